"""An Arrow table as rows to be written, in this process and without Spark."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.table import TableSettings
from holdfast.errors import SchemaMismatch
from holdfast.format.commits import WriteStat
from holdfast.table.opened import OpenTable
from holdfast.write.task import TaskIdentity, TaskRequest, check_batch, write_rows

_BATCH_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class ArrowRows:
    table: pa.Table

    def schema(self) -> pa.Schema:
        return self.table.schema

    def prepared(self, schema: pa.Schema, table: TableSettings) -> "ArrowRows":
        columns = [_stored(self.table.column(field.name), field) for field in schema]
        stored = pa.Table.from_arrays(columns, schema=schema)
        for batch in stored.to_batches(max_chunksize=_BATCH_ROWS):
            check_batch(batch, table)
        return ArrowRows(stored)

    def write(self, table: OpenTable, request: TaskRequest) -> Sequence[WriteStat]:
        """Write the rows as one task."""
        order = [(name, "ascending") for name in request.table.partition_by]
        ordered = self.table.sort_by(order) if order else self.table
        batches = ordered.to_batches(max_chunksize=_BATCH_ROWS)
        prefix = str(uuid.UUID(table.clock.unique()))
        identity = TaskIdentity(task=0, stage=0, attempt=0, file_prefix=prefix)
        return list(write_rows(table.store, request, identity, batches))


def _stored(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return pc.cast(column, field.type)
    except pa.ArrowException as error:
        raise SchemaMismatch(
            "a value does not fit the stored type",
            column=field.name,
            found=column.type,
            expected=field.type,
            cause=str(error).partition("\n")[0],
        ) from error
