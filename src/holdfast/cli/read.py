"""`holdfast read`: the rows of a snapshot, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.arguments import limit_option, names, opened, table_command
from holdfast.cli.output import counted, print_json, print_line, print_table

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_FOR_PEOPLE = 20


@click.command
@table_command
@click.option("--as-of", metavar="T", help="An instant, or a date and time in UTC.")
@click.option(
    "--columns", multiple=True, callback=names, metavar="COLUMN[,COLUMN]", help="Only these columns. Repeats."
)
@limit_option("At most N rows. Without it people get 20; --json and --to give all.")
@click.option("--read-optimized", is_flag=True, help="Read the base files alone of a merge-on-read table.")
@click.option("--to", "target", metavar="FILE", help="Write a .parquet, .csv or .json file instead.")
def read(
    path: str,
    *,
    as_of: str | None,
    columns: tuple[str, ...],
    limit: int | None,
    read_optimized: bool,
    target: str | None,
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Read the table at PATH, now or as of an instant.

    A .json file gets one object per line. An existing file is replaced.

    \b
    Example: holdfast read lake/trips --columns city,fare --as-of 2024-01-31T09:30:00 --limit 5
    """
    # Loaded here because they need Arrow, which other commands must not wait for.
    from holdfast.cli.export import check_target, write_file
    from holdfast.cli.values import row_documents
    from holdfast.read.arrow_rows import count_rows, each_rows, selected_schema
    from holdfast.read.snapshot import snapshot

    if target is not None:
        check_target(target)
    table = opened(path, storage_options)
    found = snapshot(table, as_of=as_of, read_optimized=read_optimized)
    schema = selected_schema(found.schema, columns=columns or None, meta_columns=False)
    is_for_people = target is None and not as_json
    wanted = _ROWS_FOR_PEOPLE if is_for_people and limit is None else limit
    parts = _first(each_rows(table.store, found, schema), wanted)
    if target is not None:
        rows = write_file(target, parts, schema)
        size = os.path.getsize(target)
        if as_json:
            print_json({"file": target, "rows": rows, "bytes": size})
        else:
            print_line(f"wrote {counted(rows, 'row')} to {target}")
    elif as_json:
        documents = [document for part in parts for document in row_documents(part)]
        print_json({"columns": schema.names, "rows": documents})
    else:
        documents = [document for part in parts for document in row_documents(part)]
        _print_rows(schema.names, documents, total=count_rows(table.store, found))


def _first(parts: Iterable[pa.Table], limit: int | None) -> Iterator[pa.Table]:
    """The parts up to a number of rows; no more of them are read."""
    if limit is None:
        yield from parts
        return
    left = limit
    for part in parts if left else ():
        yield part.slice(0, left)
        left -= min(left, part.num_rows)
        if not left:
            return


def _print_rows(header: Sequence[str], documents: Sequence[Mapping[str, object]], *, total: int) -> None:
    from holdfast.cli.values import cell

    if documents:
        print_table(header, [[cell(document[name]) for name in header] for document in documents])
    if total > len(documents):
        print_line(f"{counted(total - len(documents), 'more row')}; --limit shows more")
    else:
        print_line(counted(total, "row"))
