"""hudi-rs as a second pair of eyes: what it sees in a table we wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

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


def hudi_ids(folder: Path | str) -> frozenset[str]:
    ids = hudi_snapshot(folder).column("id").to_pylist()
    assert len(ids) == len(set(ids)), f"hudi-rs sees a key twice: {sorted(ids)}"
    return frozenset(ids)


def _table(folder: Path | str, options: HudiReadOptions) -> pa.Table:
    table = HudiTableBuilder.from_base_uri(str(folder)).build()
    batches = table.read(options)
    return pa.Table.from_batches(batches) if batches else pa.table({"id": pa.array([], pa.string())})
