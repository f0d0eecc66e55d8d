"""An Arrow table as rows to be written, in this process and without Spark."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.config.table import TableSettings
from holdfast.format.commits import WriteStat
from holdfast.table.opened import OpenTable
from holdfast.write.task import TaskIdentity, TaskRequest, check_batch, write_rows

_BATCH_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class ArrowRows:
    table: pa.Table

    def schema(self) -> pa.Schema:
        return self.table.schema

    def check(self, table: TableSettings) -> None:
        for batch in self.table.to_batches(max_chunksize=_BATCH_ROWS):
            check_batch(batch, table)

    def write(self, table: OpenTable, request: TaskRequest) -> Sequence[WriteStat]:
        """Write the rows as one task."""
        order = [(name, "ascending") for name in request.table.partition_by]
        ordered = self.table.sort_by(order) if order else self.table
        batches = ordered.to_batches(max_chunksize=_BATCH_ROWS)
        prefix = str(uuid.UUID(table.clock.unique()))
        identity = TaskIdentity(task=0, stage=0, attempt=0, file_prefix=prefix)
        return list(write_rows(table.store, request, identity, batches))
