"""`holdfast fsview`: the file slices a snapshot consists of."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import table_command
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.config.choices import TableType
from holdfast.services.documents import Bytes
from holdfast.table.opened import open_at

_HEADER = ("Partition", "FileId", "Base-Instant", "Data-File", "Data-File Size")


@click.command
@table_command
@click.option(
    "--as-of", metavar="T", help="An instant, or a time: on the table's clock unless it has a zone."
)
def fsview(path: str, *, as_of: str | None, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the base files of the table at PATH.

    \b
    Example: holdfast fsview lake/trips --as-of 2024-01-31T09:30:00
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.read.snapshot import as_instant, snapshot_slices

    table = open_at(path, storage_options)
    time = None if as_of is None else as_instant(table, as_of)
    files = snapshot_slices(table, time)
    is_base_only = table.settings.table_type is TableType.MERGE_ON_READ
    if as_json:
        slices = [
            {
                "partition": file.partition,
                "file_id": file.file_id,
                "base_instant": file.instant,
                "data_file": file.path,
                "data_file_size": file.size,
            }
            for file in files
        ]
        print_json({"as_of": time, "base_files_only": is_base_only, "file_slices": slices})
    elif files:
        rows = [
            (file.partition, file.file_id, file.instant, file.path.rpartition("/")[2], Bytes(file.size or 0))
            for file in files
        ]
        print_table(_HEADER, rows, spare=("FileId", "Base-Instant", "Data-File Size"))
        if is_base_only:
            print_line("log files are not shown")
    else:
        print_line("no files")
