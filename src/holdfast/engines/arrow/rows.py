"""An Arrow table as rows to be written, in this process and without Spark."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.table import TableSettings
from holdfast.errors import SchemaMismatch
from holdfast.files.conform import conformed
from holdfast.files.partition_column import partition_column
from holdfast.files.picking import picked_rows
from holdfast.format.commits import WriteStat
from holdfast.model.reports import IndexReport
from holdfast.table.opened import OpenTable
from holdfast.writes.gather import SLOT
from holdfast.writes.global_index import globally_located
from holdfast.writes.merge_task import MergeRequest, incoming_rows, merge_rows, newest_of_each_key
from holdfast.writes.rows import Cancellation, Written
from holdfast.writes.task import TaskIdentity, TaskRequest, check_batch, write_rows

_BATCH_ROWS = 50_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ArrowRows:
    table: pa.Table
    cancellation: Cancellation = field(default_factory=Cancellation, repr=False, compare=False)

    def schema(self) -> pa.Schema:
        return self.table.schema

    def prepared(
        self, schema: pa.Schema, table: TableSettings, *, by_partition: bool = True, looks_ahead: bool = True
    ) -> "ArrowRows":
        """Conform the rows at once: what does not fit is refused before anything is written."""
        stored = _stored(self.table, schema)
        for batch in stored.to_batches(max_chunksize=_BATCH_ROWS):
            check_batch(batch, table, by_partition=by_partition)
        return ArrowRows(stored, self.cancellation)

    def write(self, table: OpenTable, request: TaskRequest) -> Written:
        """Write the rows as one task."""
        rows = self.table
        if request.table.partition_by and rows.num_rows:
            order = pc.sort_indices(partition_column(rows, request.table).indices).to_numpy()
            rows = picked_rows(rows, order.astype(np.int64))
        batches = rows.to_batches(max_chunksize=_BATCH_ROWS)
        return Written(stats=list(self._each(write_rows(table.store, request, _identity(table), batches))))

    def merge(self, table: OpenTable, request: MergeRequest) -> Written:
        """Merge the rows as one task and one slot."""
        rows = self.table
        index = IndexReport()
        if request.task.write.index_type.is_global and request.looks_up:
            rows, index = globally_located(table.store, rows, request)
        elif request.task.write.index_type.is_global and request.combines:
            rows = newest_of_each_key(incoming_rows(rows, request), request.task.table.ordering).rows
        slot = pa.array(np.zeros(rows.num_rows, dtype=np.int64))
        batches = rows.append_column(SLOT, slot).to_batches(max_chunksize=_BATCH_ROWS)
        outcomes = list(self._each(merge_rows(table.store, request, _identity(table), batches)))
        stats = [outcome for outcome in outcomes if isinstance(outcome, WriteStat)]
        reports = [outcome for outcome in outcomes if isinstance(outcome, IndexReport)]
        return Written(stats=stats, index=sum(reports, index))

    def cancel(self) -> None:
        self.cancellation.cancel()

    def _each(self, outcomes: Iterable[T]) -> Iterator[T]:
        """What a task tells, file by file, until the write is cancelled."""
        self.cancellation.refuse_if_cancelled()
        for outcome in outcomes:
            yield outcome
            self.cancellation.refuse_if_cancelled()


def _identity(table: OpenTable) -> TaskIdentity:
    return TaskIdentity(task=0, stage=0, attempt=0, file_prefix=str(uuid.UUID(table.clock.unique())))


def _stored(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    try:
        return conformed(rows, schema)
    except pa.ArrowException as error:
        raise SchemaMismatch(
            "a value does not fit the stored type", cause=str(error).partition("\n")[0]
        ) from error
