"""hudi-rs as a second pair of eyes: what it sees in a table we wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from harness.world import Row, row_list
from holdfast.files.conform import conform_rows
from holdfast.format.schemas import META_COLUMNS
from holdfast.storage.store import Store


def copy_to_disk(store: Store, folder: Path) -> Path:
    """Put every file of a store into a folder, so that another program can read it."""
    for path in store.paths(""):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(store.read(path))
    return folder


def hudi_snapshot(folder: Path | str, *, as_of: str | None = None) -> pa.Table:
    options = HudiReadOptions()
    if as_of is not None:
        options = options.with_as_of_timestamp(as_of)
    return _table(folder, options)


def hudi_changes(folder: Path | str, *, since: str, until: str | None = None) -> pa.Table:
    options = HudiReadOptions().with_query_type(HudiQueryType.Incremental).with_start_timestamp(since)
    if until is not None:
        options = options.with_end_timestamp(until)
    return _table(folder, options)


def hudi_schema(folder: Path | str) -> pa.Schema:
    return HudiTableBuilder.from_base_uri(str(folder)).build().get_schema()


def hudi_rows(folder: Path | str) -> frozenset[Row]:
    found = hudi_snapshot(folder)
    rows = row_list(found) if found.num_rows else []
    assert len(rows) == len({key for key, *_ in rows}), f"hudi-rs sees a key twice: {sorted(rows)}"
    return frozenset(rows)


def hudi_ids(folder: Path | str) -> frozenset[str]:
    return frozenset(key for key, *_ in hudi_rows(folder))


def check_alike(ours: pa.Table, theirs: pa.Table) -> None:
    """Both must hold the same rows, compared value by value in the types that hudi-rs gives.

    Its types may be wider than ours, because it reads an older snapshot in the
    table's newest schema, and it takes local times for UTC. A column that only
    it has is one of later, and all null.
    """
    assert set(ours.column_names) <= set(theirs.column_names)
    schema = pa.schema(
        [f for f in theirs.schema if f.name in ours.column_names or f.name not in META_COLUMNS]
    )
    assert _rows(conform_rows(ours, schema)) == _rows(theirs.select(schema.names))


def _rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def _table(folder: Path | str, options: HudiReadOptions) -> pa.Table:
    table = HudiTableBuilder.from_base_uri(str(folder)).build()
    batches = table.read(options)
    return pa.Table.from_batches(batches) if batches else pa.table({"id": pa.array([], pa.string())})
