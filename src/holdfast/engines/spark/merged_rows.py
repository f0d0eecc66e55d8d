"""Slices with log files on Spark: Arrow tasks merge them, where Spark's own scan cannot.

What a task holds is one row group and the logs of one slice. A task that
fails is run again by Spark, and gives the same rows: the slices are fixed.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.engines.spark.session import own_interpreter, spare_archives
from holdfast.engines.spark.types import spark_schema_of
from holdfast.model.instant import InstantTime
from holdfast.model.slices import FileSlice
from holdfast.read.merged_rows import each_merged_row
from holdfast.read.snapshot import Snapshot
from holdfast.read.tasks import slices_of_tasks
from holdfast.storage.open import open_store
from holdfast.storage.store import StoreLocation

_BATCH_ROWS = 50_000


def merge_frame(
    session: SparkSession,
    location: StoreLocation,
    snapshot: Snapshot,
    schema: pa.Schema,
    *,
    since: InstantTime | None = None,
) -> DataFrame:
    """The rows of the slices with log files; with `since` those alone that were written after it."""
    tasks = slices_of_tasks(snapshot.merged)
    task = _MergeTask(location, tasks, snapshot, schema, since)
    numbers = session.range(0, len(tasks), 1, len(tasks))
    with own_interpreter(session):
        return numbers.mapInArrow(task, spark_schema_of(schema))


class _MergeTask:
    """What Spark ships to its workers: the store is opened there."""

    def __init__(
        self,
        location: StoreLocation,
        tasks: Sequence[Sequence[FileSlice]],
        snapshot: Snapshot,
        schema: pa.Schema,
        since: InstantTime | None,
    ) -> None:
        assert snapshot.merge is not None, "there are slices with log files"
        self._location = location
        self._tasks = tasks
        self._merge = snapshot.merge
        self._schema = schema
        self._since = since

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark gives each task one core; Arrow would start a thread per core of the machine.
        pa.set_cpu_count(1)
        spare_archives()
        store = open_store(self._location)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for slice_ in self._tasks[number]:
                    for rows in each_merged_row(store, slice_, self._schema, self._merge, since=self._since):
                        yield from rows.to_batches(max_chunksize=_BATCH_ROWS)
