"""An Arrow table as rows to be written, in this process and without Spark."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.table import TableSettings
from holdfast.engines.arrow.compaction import ArrowCompactor
from holdfast.engines.arrow.global_index import locate_globally
from holdfast.errors import SchemaMismatch
from holdfast.files.conform import conform_rows
from holdfast.files.partition_column import partition_column
from holdfast.files.picking import pick_rows
from holdfast.table.opened import OpenTable
from holdfast.writes.gather import BUNDLE
from holdfast.writes.merge_task import MergeRequest, incoming_rows, merge_rows, newest_of_each_key
from holdfast.writes.outcome import TaskOutput, Written
from holdfast.writes.rows import Cancellation
from holdfast.writes.task import TaskIdentity, TaskRequest, check_batch, write_rows

_BATCH_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class ArrowRows:
    table: pa.Table
    cancellation: Cancellation = field(default_factory=Cancellation, repr=False, compare=False)

    def schema(self) -> pa.Schema:
        return self.table.schema

    def prepare(
        self,
        schema: pa.Schema,
        table: TableSettings,
        *,
        by_partition: bool = True,
        validate_first: bool = True,
    ) -> "ArrowRows":
        """Conform the rows at once: what does not fit is refused before anything is written."""
        stored = _conform(self.table, schema)
        for batch in stored.to_batches(max_chunksize=_BATCH_ROWS):
            check_batch(batch, table, by_partition=by_partition)
        return ArrowRows(stored, self.cancellation)

    def write(self, table: OpenTable, request: TaskRequest) -> Written:
        """Write the rows as one task."""
        rows = self.table
        if request.table.partition_by and rows.num_rows:
            order = pc.sort_indices(partition_column(rows, request.table).indices).to_numpy()
            rows = pick_rows(rows, order.astype(np.int64))
        batches = rows.to_batches(max_chunksize=_BATCH_ROWS)
        return Written.of(self._until_cancelled(write_rows(table.store, request, _identity(table), batches)))

    def merge(self, table: OpenTable, request: MergeRequest) -> Written:
        """Merge the rows as one task and one bundle."""
        rows = self.table
        index = None
        if request.task.write.index_type.is_global and request.looks_up:
            rows, index = locate_globally(table.store, rows, request)
        elif request.task.write.index_type.is_global and request.combines:
            rows = newest_of_each_key(incoming_rows(rows, request), request.task.table.ordering).rows
        bundle = pa.array(np.zeros(rows.num_rows, dtype=np.int64))
        batches = rows.append_column(BUNDLE, bundle).to_batches(max_chunksize=_BATCH_ROWS)
        outputs = merge_rows(table.store, request, _identity(table), batches)
        return Written.of(self._until_cancelled(outputs), index=index)

    def compactor(self) -> ArrowCompactor:
        return ArrowCompactor()

    def cancel(self) -> None:
        self.cancellation.cancel()

    def _until_cancelled(self, outputs: Iterable[TaskOutput]) -> Iterator[TaskOutput]:
        """What a task reports, file by file, until the write is cancelled."""
        self.cancellation.refuse_if_cancelled()
        for output in outputs:
            yield output
            self.cancellation.refuse_if_cancelled()


def _identity(table: OpenTable) -> TaskIdentity:
    return TaskIdentity(task=0, stage=0, attempt=0, file_prefix=str(uuid.UUID(table.clock.unique())))


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    try:
        return conform_rows(rows, schema)
    except pa.ArrowException as error:
        raise SchemaMismatch(
            "a value does not fit the stored type", cause=str(error).partition("\n")[0]
        ) from error
