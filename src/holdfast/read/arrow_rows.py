"""Rows of base files as Arrow, in the schema asked for, without Spark."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import InvalidRequest
from holdfast.files.conform import conform_rows
from holdfast.files.open_base_file import open_base_file
from holdfast.format.schemas import META_COLUMNS
from holdfast.read.merged_rows import each_merged_row
from holdfast.read.snapshot import Snapshot
from holdfast.read.vanished import explaining_absence
from holdfast.storage.store import Store

_PART_ROWS = 50_000
_COUNTED = pa.schema([(META_COLUMNS[0], pa.string())])
"""What of rows is read to count them: it is the smallest column."""


def select_schema(
    schema: pa.Schema | None, *, columns: Sequence[str] | None, meta_columns: bool
) -> pa.Schema:
    """The columns asked for, in the order asked for; `InvalidRequest` names one that is not there."""
    data = list(schema) if schema is not None else []
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    if columns is None:
        return pa.schema([*meta, *data] if meta_columns else data)
    if isinstance(columns, str):
        columns = [columns]
    if not columns or len(set(columns)) != len(columns):
        raise InvalidRequest("name at least one column, and each once", columns=", ".join(columns) or "none")
    known = {field.name: field for field in [*meta, *data]}
    missing = [name for name in columns if name not in known]
    if missing:
        raise InvalidRequest("the table has no such column", column=missing[0], columns=", ".join(known))
    wanted = [known[name] for name in columns]
    return pa.schema([*(m for m in meta if meta_columns and m not in wanted), *wanted])


def read_rows(store: Store, snapshot: Snapshot, schema: pa.Schema) -> pa.Table:
    """All rows of the snapshot, every page checked against its checksum."""
    parts = [_file_rows(store, path, schema) for path in snapshot.plain.paths]
    parts += _each_merged(store, snapshot, schema)
    return pa.concat_tables(parts) if parts else schema.empty_table()


def each_rows(
    store: Store,
    snapshot: Snapshot,
    schema: pa.Schema,
    *,
    choose: Callable[[pq.ParquetFile], Sequence[int]] | None = None,
) -> Iterator[pa.Table]:
    """The same rows part by part, at most one row group of one file in memory.

    `choose` names the row groups of a file that are wanted; of others no row need come.
    Rows of slices with log files all come: what a base file says of itself they may have changed.
    """
    for path in snapshot.plain.paths:
        with explaining_absence(store), open_base_file(store, path) as file:
            present = [name for name in schema.names if name in file.schema_arrow.names]
            groups = None if choose is None else list(choose(file))
            for batch in file.iter_batches(batch_size=_PART_ROWS, columns=present, row_groups=groups):
                yield conform_rows(pa.Table.from_batches([batch]), schema)
    yield from _each_merged(store, snapshot, schema)


def count_rows(store: Store, snapshot: Snapshot) -> int:
    """How many rows the snapshot has: by the footers of its files, where there are no log files."""
    count: int = sum(part.num_rows for part in _each_merged(store, snapshot, _COUNTED))
    for path in snapshot.plain.paths:
        with explaining_absence(store), open_base_file(store, path) as file:
            count += file.metadata.num_rows
    return count


def read_stored_schema(store: Store, path: str) -> pa.Schema:
    """The columns of one file as they are stored, by its footer."""
    with explaining_absence(store), open_base_file(store, path) as file:
        return file.schema_arrow


def _each_merged(store: Store, snapshot: Snapshot, schema: pa.Schema) -> Iterator[pa.Table]:
    for slice_ in snapshot.merged:
        assert snapshot.merge is not None, "the slice has log files"
        yield from each_merged_row(store, slice_, schema, snapshot.merge)


def _file_rows(store: Store, path: str, schema: pa.Schema) -> pa.Table:
    with explaining_absence(store), open_base_file(store, path) as file:
        present = set(file.schema_arrow.names)
        return conform_rows(file.read(columns=[name for name in schema.names if name in present]), schema)
