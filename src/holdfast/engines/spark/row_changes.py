"""Row changes on Spark: Arrow tasks compare versions of file groups, one shuffle matches what is left.

Only rows that are in one of the two snapshots alone are shuffled, to the tasks
of their keys. A task that fails is run again by Spark, and gives the same rows:
the files are fixed.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.engines.spark.session import own_interpreter, spare_archives
from holdfast.engines.spark.types import spark_schema_of
from holdfast.files.conform import conform_rows
from holdfast.files.meta_columns import PARTITION_PATH, RECORD_KEY
from holdfast.read.row_changes import GroupChange, RowChanges, each_compared_row, match_rows
from holdfast.read.tasks import group_changes_of_tasks
from holdfast.storage.open import open_store
from holdfast.storage.store import StoreLocation

_BATCH_ROWS = 50_000


def read_row_changes_frame(
    session: SparkSession, location: StoreLocation, changes: RowChanges, schema: pa.Schema
) -> DataFrame:
    """The changes in a schema made by `row_change_schema`."""
    tasks = group_changes_of_tasks(changes.groups)
    if not tasks:
        return session.createDataFrame([], spark_schema_of(schema))
    count = len(tasks)
    numbers = session.range(0, count, 1, count)
    with own_interpreter(session):
        compared = numbers.mapInArrow(
            _CompareTask(location, tasks, changes), spark_schema_of(changes.compared_schema)
        )
        of_keys = compared.repartition(count, f.col(PARTITION_PATH), f.col(RECORD_KEY))
        return of_keys.mapInArrow(_MatchTask(changes, schema), spark_schema_of(schema))


class _CompareTask:
    """What Spark ships to its workers: the store is opened there."""

    def __init__(
        self, location: StoreLocation, tasks: Sequence[Sequence[GroupChange]], changes: RowChanges
    ) -> None:
        self._location = location
        self._tasks = tasks
        self._changes = changes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark gives each task one core; Arrow would start a thread per core of the machine.
        pa.set_cpu_count(1)
        spare_archives()
        store = open_store(self._location)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in each_compared_row(store, self._tasks[number], self._changes):
                    yield from rows.to_batches(max_chunksize=_BATCH_ROWS)


class _MatchTask:
    """Matches all rows of some keys: those of one task are in memory together."""

    def __init__(self, changes: RowChanges, schema: pa.Schema) -> None:
        self._columns = changes.without_files()
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.set_cpu_count(1)
        spare_archives()
        compared = self._columns.compared_schema
        parts = (conform_rows(pa.Table.from_batches([batch]), compared) for batch in batches)
        yield from match_rows(parts, self._columns, self._schema).to_batches(max_chunksize=_BATCH_ROWS)
