"""`holdfast fsview`: the file slices a snapshot consists of."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import table_command
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.config.choices import TableType
from holdfast.model.slices import FileSlice
from holdfast.services.documents import Bytes
from holdfast.table.opened import open_at

_HEADER = ("Partition", "FileId", "Base-Instant", "Data-File", "Data-File Size")
_LOGS_HEADER = ("Num Delta Files", "Total Delta Size", "Delta Files")


@click.command(short_help="Show the file slices of a table.")
@table_command
@click.option(
    "--as-of", metavar="T", help="An instant, or a time: on the table's clock unless it has a zone."
)
def fsview(path: str, *, as_of: str | None, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the file slices of the table at PATH: base files, each with its log files.

    \b
    Example: holdfast fsview lake/trips --as-of 2024-01-31T09:30:00
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.read.snapshot import as_instant, snapshot_slices

    table = open_at(path, storage_options)
    time = None if as_of is None else as_instant(table, as_of)
    slices = snapshot_slices(table, time)
    has_logs = table.settings.table_type is TableType.MERGE_ON_READ
    if as_json:
        print_json({"as_of": time, "file_slices": [_fields(one, has_logs=has_logs) for one in slices]})
    elif slices:
        header = (*_HEADER, *_LOGS_HEADER) if has_logs else _HEADER
        print_table(
            header,
            [_row(one, has_logs=has_logs) for one in slices],
            spare=("Delta Files", "FileId", "Base-Instant", "Total Delta Size", "Data-File Size"),
        )
    else:
        print_line("no files")


def _fields(one: FileSlice, *, has_logs: bool) -> dict[str, object]:
    fields: dict[str, object] = {
        "partition": one.partition,
        "file_id": one.file_id,
        "base_instant": one.instant,
        "data_file": one.base,
        "data_file_size": one.size,
    }
    if has_logs:
        fields |= {"delta_files": one.logs, "total_delta_size": one.log_bytes or 0}
    return fields


def _row(one: FileSlice, *, has_logs: bool) -> tuple[object, ...]:
    row = (one.partition, one.file_id, one.instant, _name(one.base or ""), Bytes(one.size or 0))
    if not has_logs:
        return row
    return (*row, len(one.logs), Bytes(one.log_bytes or 0), ", ".join(map(_name, one.logs)))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
