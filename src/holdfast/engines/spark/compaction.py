"""Compactions on Spark: one task for each slice."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast.engines.spark.jobs import Jobs
from holdfast.engines.spark.tasks import Body, run_tasks
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable
from holdfast.writes.compact_task import CompactRequest, compact_slices
from holdfast.writes.outcome import TaskOutput, Written
from holdfast.writes.task import TaskIdentity


@dataclass(frozen=True, slots=True)
class SparkCompactor:
    session: SparkSession
    jobs: Jobs = field(default_factory=Jobs)

    def compact(self, table: OpenTable, request: CompactRequest) -> Written:
        count = len(request.slices)
        numbers = self.session.range(0, count, 1, numPartitions=count)
        with self.jobs.cancellable(self.session):
            return Written.of(run_tasks(numbers, table.location, compacting(request), TaskOutput))

    def cancel(self) -> None:
        self.jobs.cancel(self.session)


def compacting(request: CompactRequest) -> Body:
    def compact(store: Store, me: TaskIdentity, batches: Iterable[pa.RecordBatch]) -> Iterator[TaskOutput]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        return compact_slices(store, request, me, numbers)

    return compact
