"""Rows of base files as Arrow, in the schema asked for, without Spark."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.errors import InvalidRequest, TableDamaged
from holdfast.format.schemas import META_COLUMNS
from holdfast.read.snapshot import Snapshot
from holdfast.storage.store import Store


def selected_schema(
    schema: pa.Schema | None, *, columns: Sequence[str] | None, meta_columns: bool
) -> pa.Schema:
    """The columns asked for, in the order asked for; `InvalidRequest` names one that is not there."""
    data = list(schema) if schema is not None else []
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    if columns is None:
        return pa.schema([*meta, *data] if meta_columns else data)
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


def _file_rows(store: Store, path: str, schema: pa.Schema) -> pa.Table:
    try:
        with store.open(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
            present = set(file.schema_arrow.names)
            found = file.read(columns=[name for name in schema.names if name in present])
            return pa.table(
                [_column(found, field) for field in schema], schema=schema
            )
    except (pa.ArrowException, OSError, EOFError) as error:
        if isinstance(error, FileNotFoundError):
            raise TableDamaged("a data file is missing", file=path) from error
        raise TableDamaged("a data file cannot be read", file=path, cause=error) from error


def _column(found: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in found.column_names:
        return pa.chunked_array([pa.nulls(found.num_rows, field.type)])
    column = found.column(field.name)
    return column if column.type == field.type else pc.cast(column, field.type)
