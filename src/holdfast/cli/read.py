"""`holdfast read`: the rows of a snapshot, or those that changed, without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.cli.arguments import limit_option, names, table_command
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.services.documents import quantity
from holdfast.table.opened import open_at

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.table.opened import OpenTable

_ROWS_FOR_PEOPLE = 20


@click.command(short_help="Read rows: now, as of an instant, or changed since one.")
@table_command
@click.option(
    "--as-of", metavar="T", help="An instant, or a time: on the table's clock unless it has a zone."
)
@click.option("--since", metavar="T", help="Only rows that commits after T wrote.")
@click.option("--until", metavar="T", help="With --since: and up to this T, as the rows were then.")
@click.option(
    "--deletes", is_flag=True, help="With --since: what became of each record, deletes and updates too."
)
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
    since: str | None,
    until: str | None,
    deletes: bool,
    columns: tuple[str, ...],
    limit: int | None,
    read_optimized: bool,
    target: str | None,
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Read the table at PATH, now or as of an instant, or what changed since one.

    Changed rows come with the commit that wrote them; deleted ones are reported with --deletes alone,
    in a column _change_type that has insert, update_before, update_after or delete.
    A .json file gets one object per line. An existing file is replaced. A file gets the newest commit that
    no older write can change any more.

    \b
    Example: holdfast read lake/trips --columns city,fare --as-of 2024-01-31T09:30:00 --limit 5
    """
    # Loaded here because they need Arrow, which other commands must not wait for.
    from holdfast.cli.export import check_target, write_file
    from holdfast.cli.values import row_documents

    _check_range(since, until, deletes=deletes, is_snapshot=as_of is not None or read_optimized)
    if target is not None:
        check_target(target)
    table = open_at(path, storage_options)
    if since is None:
        # A file is kept, and compared with others: its rows are those of a commit that stays as it is.
        named = as_of if as_of is not None or target is None else _find_settled_commit(table)
        found = _snapshot_rows(table, named, columns, read_optimized=read_optimized)
    elif deletes:
        found = _row_changes_since(table, since, until, columns)
    else:
        found = _rows_since(table, since, until, columns)
    schema = found.schema
    is_for_people = target is None and not as_json
    wanted = _ROWS_FOR_PEOPLE if is_for_people and limit is None else limit
    parts = _first(found.parts, wanted)
    if target is not None:
        rows = write_file(target, parts, schema)
        size = os.path.getsize(target)
        if as_json:
            print_json({"file": target, "rows": rows, "bytes": size})
        else:
            print_line(f"wrote {quantity(rows, 'row')} to {target}")
    elif as_json:
        documents = [document for part in parts for document in row_documents(part)]
        print_json({"columns": schema.names, "rows": documents})
    else:
        documents = [document for part in parts for document in row_documents(part)]
        _print_rows(schema.names, documents, total=found.count())


@dataclass(frozen=True)
class _Rows:
    schema: pa.Schema
    parts: Iterable[pa.Table]
    count: Callable[[], int]
    """How many rows the parts have, without reading all of them."""


def _check_range(since: str | None, until: str | None, *, deletes: bool, is_snapshot: bool) -> None:
    if deletes and since is None:
        raise click.UsageError("--deletes needs --since: deletes are what changed since a commit")
    if until is not None and since is None:
        raise click.UsageError("--until needs --since; --as-of reads the table as it was")
    if since is not None and is_snapshot:
        raise click.UsageError("--since goes with neither --as-of nor --read-optimized")


def _find_settled_commit(table: OpenTable) -> str | None:
    """The newest commit that no older write can change any more; None if there is no commit."""
    from holdfast.table.settled import await_settled_commit

    commit = await_settled_commit(table).commit
    return None if commit is None else commit.time


def _snapshot_rows(
    table: OpenTable, as_of: str | None, columns: Sequence[str], *, read_optimized: bool
) -> _Rows:
    from holdfast.read.arrow_rows import count_rows, each_rows, select_schema
    from holdfast.read.snapshot import snapshot

    found = snapshot(table, as_of=as_of, read_optimized=read_optimized)
    schema = select_schema(found.schema, columns=columns or None, meta_columns=False)
    return _Rows(schema, each_rows(table.store, found, schema), partial(count_rows, table.store, found))


def _rows_since(table: OpenTable, since: str, until: str | None, columns: Sequence[str]) -> _Rows:
    from holdfast.read.changes import change_schema, changes, count_changes, each_change

    found = changes(table, since=since, until=until)
    schema = change_schema(found.snapshot.schema, columns=columns or None, meta_columns=False)
    return _Rows(schema, each_change(table.store, found, schema), partial(count_changes, table.store, found))


def _row_changes_since(table: OpenTable, since: str, until: str | None, columns: Sequence[str]) -> _Rows:
    from holdfast.read.row_changes import each_row_change, row_change_schema, row_changes

    found = row_changes(table, since=since, until=until)
    schema = row_change_schema(found.schema, columns=columns or None, meta_columns=False)

    def count() -> int:
        narrow = row_change_schema(found.schema, columns=(), meta_columns=False)
        return sum(part.num_rows for part in each_row_change(table.store, found, narrow))

    return _Rows(schema, each_row_change(table.store, found, schema), count)


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
        print_line(f"{quantity(total - len(documents), 'more row')}; --limit shows more")
    else:
        print_line(quantity(total, "row"))
