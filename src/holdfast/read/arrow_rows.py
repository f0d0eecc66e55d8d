"""Rows of base files as Arrow, in the schema asked for, without Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.errors import InvalidRequest, SchemaMismatch, TableDamaged
from holdfast.format.malformed import Malformed
from holdfast.format.schemas import META_COLUMNS, arrow_schema, differences, without_meta_columns
from holdfast.read.snapshot import Snapshot
from holdfast.storage.store import Store

_PART_ROWS = 50_000
_OUR_WRITER = "parquet-cpp-arrow"


def selected_schema(
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
    parts = [_file_rows(store, path, schema) for path in snapshot.paths]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def each_rows(store: Store, snapshot: Snapshot, schema: pa.Schema) -> Iterator[pa.Table]:
    """The same rows part by part, at most one row group of one file in memory."""
    for path in snapshot.paths:
        with _opened(store, path) as file:
            present = [name for name in schema.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=_PART_ROWS, columns=present):
                yield _fitted(pa.Table.from_batches([batch]), schema)


def count_rows(store: Store, snapshot: Snapshot) -> int:
    """How many rows the snapshot has, by the footers of its files."""
    count = 0
    for path in snapshot.paths:
        with _opened(store, path) as file:
            count += file.metadata.num_rows
    return count


def _file_rows(store: Store, path: str, schema: pa.Schema) -> pa.Table:
    with _opened(store, path) as file:
        present = set(file.schema_arrow.names)
        return _fitted(file.read(columns=[name for name in schema.names if name in present]), schema)


@contextmanager
def _opened(store: Store, path: str) -> Iterator[pq.ParquetFile]:
    """One base file; whatever cannot be read in this block is damage."""
    try:
        with store.open(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
            _check_columns(file, path)
            yield file
    except FileNotFoundError as error:
        raise TableDamaged("a data file is missing", file=path) from error
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, Malformed, SchemaMismatch) as error:
        raise TableDamaged("a data file cannot be read", file=path, cause=error) from error


def _check_columns(file: pq.ParquetFile, path: str) -> None:
    """Compare the columns with the schema stored beside them: a footer has no checksum of its own.

    A damaged name would otherwise be a column that is not there, and read as nulls.
    """
    said = (file.metadata.metadata or {}).get(b"parquet.avro.schema")
    if said is None:
        return
    found, expected = file.schema_arrow, arrow_schema(said.decode())
    if file.metadata.created_by.startswith(_OUR_WRITER):
        is_whole = not differences(without_meta_columns(found), without_meta_columns(expected))
    else:
        is_whole = set(found.names) >= set(without_meta_columns(expected).names)
    if not is_whole:
        raise TableDamaged("a data file's columns are not those it was written with", file=path)


def _fitted(found: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.table([_column(found, field) for field in schema], schema=schema)


def _column(found: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in found.column_names:
        return pa.chunked_array([pa.nulls(found.num_rows, field.type)])
    column = found.column(field.name)
    return column if column.type == field.type else pc.cast(column, field.type)
