"""Writes on Spark: rows go through Arrow into Python workers, which write the files.

A bulk insert is one pass, without a shuffle: each task sorts its rows by
partition and writes them. Everything that merges shuffles the rows once, to
the tasks that merge them. Only statistics come back to the driver, one small
record per file.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from holdfast import errors
from holdfast.config.key_generators import PartitionType
from holdfast.config.table import TableSettings
from holdfast.engines.spark.jobs import Jobs
from holdfast.engines.spark.keys import partition_path_of, quoted
from holdfast.engines.spark.routing import TASKS_PER_CORE, parallelism, routed
from holdfast.engines.spark.session import own_interpreter, spare_archives
from holdfast.engines.spark.types import arrow_schema_of
from holdfast.errors import HoldfastError, InvalidRequest, StorageUnavailable
from holdfast.files.partition_column import partition_column
from holdfast.format.commits import WriteStat
from holdfast.format.partition_paths import check_partition_path
from holdfast.format.record_keys import text_column
from holdfast.model.reports import IndexReport
from holdfast.storage.open import open_store
from holdfast.storage.store import Store, StoreLocation
from holdfast.table.opened import OpenTable
from holdfast.writes.gather import SLOT
from holdfast.writes.merge_task import MergeRequest, merge_rows
from holdfast.writes.rows import Written
from holdfast.writes.task import TaskIdentity, TaskRequest, write_rows

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_ROWS_DEFAULT = "10000"
_BATCH_ROWS_WANTED = "50000"
_OUTCOME = "outcome string"
_LOCAL_MASTER = re.compile(r"local(?:\[[^,\]]*(?:,([0-9]+))?\])?")


@dataclass(frozen=True, slots=True)
class SparkRows:
    """A Spark DataFrame as rows to be written."""

    frame: DataFrame
    counts: Mapping[str, int] | None = None
    """How many rows there are of each partition, once that was asked."""
    jobs: Jobs = field(default_factory=Jobs, repr=False, compare=False)

    def schema(self) -> pa.Schema:
        return arrow_schema_of(self.frame.schema)

    def prepared(self, schema: pa.Schema, table: TableSettings, *, by_partition: bool = True) -> "SparkRows":
        frame = self.frame.select(*(f.col(quoted(n)) for n in schema.names if n in self.frame.columns))
        for name in table.record_key:
            text_column(name, pa.array([], schema.field(name).type))
        if by_partition and table.partition_by:
            partition_column(schema.empty_table(), table)
        if not _may_be_refused(frame, table, by_partition=by_partition):
            return SparkRows(frame, jobs=self.jobs)
        with self.jobs.cancellable(frame.sparkSession):
            counts = _checked_counts(frame, table, by_partition=by_partition)
        return SparkRows(frame, counts, self.jobs)

    def write(self, table: OpenTable, request: TaskRequest) -> Written:
        rows = self.frame
        if request.table.partition_by:
            with own_interpreter(rows.sparkSession):
                marks = _partition_marks(rows, request.table)
            # The rows of a partition only have to stand together, and numbers sort faster than text.
            rows = rows.sortWithinPartitions(f.xxhash64(*marks))
        with self.jobs.cancellable(rows.sparkSession):
            return _run(
                rows, table.location, lambda store, me, batches: write_rows(store, request, me, batches)
            )

    def merge(self, table: OpenTable, request: MergeRequest) -> Written:
        session = self.frame.sparkSession
        with self.jobs.cancellable(session), own_interpreter(session), ExitStack() as stack:
            counts = self.counts
            if counts is None:
                by_partition = _says_partition(self.frame, request.task.table)
                counts = _checked_counts(self.frame, request.task.table, by_partition=by_partition)
            route = routed(self.frame, counts, table, request)
            for frame in route.held:
                stack.callback(frame.unpersist)
            tasks = request.task.write.parallelism or min(route.slots, TASKS_PER_CORE * parallelism(session))
            ordered = route.rows.repartition(max(1, tasks), SLOT).sortWithinPartitions(SLOT)
            shipped = request.for_tasks(None if request.task.write.index_type.is_global else counts)
            written = _run(
                ordered, table.location, lambda store, me, batches: merge_rows(store, shipped, me, batches)
            )
        return Written(stats=written.stats, index=route.index + written.index)

    def cancel(self) -> None:
        self.jobs.cancel(self.frame.sparkSession)


class _Problem(msgspec.Struct, frozen=True):
    """An error a task met on purpose, so that the driver can raise it with its type."""

    kind: str
    message: str
    hint: str
    facts: dict[str, str]


class _Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task tells the driver: one per file, or one that says why there is none."""

    stat: WriteStat | None = None
    index: IndexReport | None = None
    problem: _Problem | None = None


_Body = Callable[[Store, TaskIdentity, Iterable[pa.RecordBatch]], Iterator[WriteStat | IndexReport]]


@dataclass(frozen=True, slots=True)
class _SparkTask:
    """A task body as Spark ships it: the store is opened where it runs."""

    location: StoreLocation
    body: _Body
    attempts: int
    """How often Spark tries a task before it fails the job."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark gives each task one core; Arrow would start a thread per core of the machine.
        pa.set_cpu_count(1)
        spare_archives()
        try:
            for told in self.body(open_store(self.location), task_identity(), batches):
                yield _encoded(_Outcome(stat=told) if isinstance(told, WriteStat) else _Outcome(index=told))
        except StorageUnavailable as error:
            if _attempt_number() + 1 < self.attempts:
                raise  # Storage may answer the next attempt.
            yield _reported(error)
        except HoldfastError as error:
            yield _reported(error)


def _reported(error: HoldfastError) -> pa.RecordBatch:
    facts = {name: str(value) for name, value in error.facts.items()}
    return _encoded(_Outcome(problem=_Problem(type(error).__name__, error.message, error.hint, facts)))


def _run(rows: DataFrame, location: StoreLocation, body: _Body) -> Written:
    """Write the rows with one Spark job; what its tasks tell."""
    session = rows.sparkSession
    task = _SparkTask(location, body, _task_attempts(session))
    with _arrow_batches(session), own_interpreter(session):
        collected = rows.mapInArrow(task, _OUTCOME).collect()
    outcomes = [msgspec.json.decode(row[0], type=_Outcome) for row in collected]
    for outcome in outcomes:
        if outcome.problem is not None:
            raise _rebuilt(outcome.problem)
    stats = [outcome.stat for outcome in outcomes if outcome.stat is not None]
    reports = [outcome.index for outcome in outcomes if outcome.index is not None]
    return Written(stats=stats, index=sum(reports, IndexReport()))


def _says_partition(rows: DataFrame, table: TableSettings) -> bool:
    return set(table.partition_by) <= set(rows.columns)


def _partition_marks(rows: DataFrame, table: TableSettings) -> list[Column]:
    """Columns that are equal where partitions are, the cheapest there are."""
    if set(table.partition_types) == {PartitionType.SIMPLE}:
        return [f.col(quoted(name)) for name in table.partition_by]
    return [partition_path_of(rows, table)]


def _may_be_refused(rows: DataFrame, table: TableSettings, *, by_partition: bool) -> bool:
    """Whether the types of the columns leave room for a record without a key or an impossible partition."""
    if _bad_key([rows.schema[name] for name in table.record_key]) is not None:
        return True
    kinds = [rows.schema[name].dataType for name in table.partition_by] if by_partition else []
    is_computed = bool(kinds) and set(table.partition_types) != {PartitionType.SIMPLE}
    return is_computed or any(isinstance(kind, spark.StringType) for kind in kinds)


def _checked_counts(rows: DataFrame, table: TableSettings, *, by_partition: bool) -> dict[str, int]:
    """The rows of each partition, counted in one pass that also refuses what cannot be stored.

    Reads the key and partition columns only.
    """
    bad_key = _bad_key([rows.schema[name] for name in table.record_key])
    bad = f.lit(0) if bad_key is None else f.sum(bad_key.cast("int"))
    with own_interpreter(rows.sparkSession):
        path = partition_path_of(rows, table) if by_partition else f.lit("")
        counted = rows.groupBy(path.alias("path")).agg(f.count(f.lit(1)), bad).collect()
    for path_of_rows, _, bad_keys in counted:
        check_partition_path(path_of_rows)
        if bad_keys:
            raise InvalidRequest(
                "a record has no key",
                columns=", ".join(table.record_key),
                hint="every record needs a key that is neither null nor empty",
            )
    return {path_of_rows: count for path_of_rows, count, _ in counted}


def _bad_key(fields: list[spark.StructField]) -> Column | None:
    """True for rows without a key; None if no row can be without one."""
    condition: Column | None = None
    for key in fields:
        column = f.col(quoted(key.name))
        is_text = isinstance(key.dataType, spark.StringType)
        if not key.nullable and not is_text:
            return None
        is_absent = column.isNull() | (column == "") if is_text else column.isNull()
        condition = is_absent if condition is None else condition & is_absent
    return condition


@contextmanager
def _arrow_batches(session: SparkSession) -> Iterator[None]:
    """Larger batches for this job: a fifth faster. A size that somebody chose is left alone."""
    before = session.conf.get(_BATCH_ROWS) or ""
    if before != _BATCH_ROWS_DEFAULT:
        yield
        return
    session.conf.set(_BATCH_ROWS, _BATCH_ROWS_WANTED)
    try:
        yield
    finally:
        session.conf.set(_BATCH_ROWS, before)


def _task_attempts(session: SparkSession) -> int:
    local = _LOCAL_MASTER.fullmatch(session.conf.get("spark.master", "") or "")
    if local is not None:
        return int(local[1] or 1)
    return int(session.conf.get("spark.task.maxFailures", "4") or 4)


def _attempt_number() -> int:
    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0


def task_identity() -> TaskIdentity:
    context = TaskContext.get()
    assert context is not None, "a task body runs in a task"
    return TaskIdentity(
        task=context.partitionId(),
        stage=context.stageId(),
        attempt=context.taskAttemptId(),
        file_prefix=str(uuid.uuid4()),
    )


def _encoded(outcome: _Outcome) -> pa.RecordBatch:
    text = msgspec.json.encode(outcome).decode()
    return pa.RecordBatch.from_arrays([pa.array([text])], names=["outcome"])


def _rebuilt(problem: _Problem) -> HoldfastError:
    kind = getattr(errors, problem.kind)
    assert issubclass(kind, HoldfastError)
    error: HoldfastError = kind(problem.message, hint=problem.hint, **problem.facts)
    return error
