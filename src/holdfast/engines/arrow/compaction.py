"""Compactions in this process and without Spark: one slice after the other."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.table.opened import OpenTable
from holdfast.writes.compact_task import CompactRequest, compact_slices
from holdfast.writes.outcome import TaskOutput, Written
from holdfast.writes.rows import Cancellation
from holdfast.writes.task import TaskIdentity


@dataclass(frozen=True, slots=True)
class ArrowCompactor:
    cancellation: Cancellation = field(default_factory=Cancellation)

    def compact(self, table: OpenTable, request: CompactRequest) -> Written:
        return Written.of(self._compact(table, request))

    def cancel(self) -> None:
        self.cancellation.cancel()

    def _compact(self, table: OpenTable, request: CompactRequest) -> Iterator[TaskOutput]:
        me = TaskIdentity(task=0, stage=0, attempt=0, file_prefix=str(uuid.UUID(table.clock.unique())))
        for output in compact_slices(table.store, request, me, range(len(request.slices))):
            self.cancellation.refuse_if_cancelled()
            yield output
