"""Writes on Spark: rows go through Arrow into Python workers, which write the files.

One pass, no shuffle: each task sorts its rows by partition and writes them.
Only statistics come back to the driver, one small record per file.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from holdfast import errors
from holdfast.config.table import TableSettings
from holdfast.engines.spark.session import own_interpreter
from holdfast.engines.spark.types import arrow_schema_of
from holdfast.errors import HoldfastError, InvalidRequest, StorageUnavailable
from holdfast.format.commits import WriteStat
from holdfast.format.partition_paths import check_partition_path, partition_path
from holdfast.format.record_keys import text_column
from holdfast.storage.open import open_store
from holdfast.storage.store import StoreLocation
from holdfast.table.opened import OpenTable
from holdfast.write.task import TaskIdentity, TaskRequest, write_rows

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_ROWS_DEFAULT = "10000"
_BATCH_ROWS_WANTED = "50000"
_OUTCOME = "outcome string"
_LOCAL_MASTER = re.compile(r"local(?:\[[^,\]]*(?:,([0-9]+))?\])?")


@dataclass(frozen=True, slots=True)
class SparkRows:
    """A Spark DataFrame as rows to be written."""

    frame: DataFrame

    def schema(self) -> pa.Schema:
        return arrow_schema_of(self.frame.schema)

    def prepared(self, schema: pa.Schema, table: TableSettings) -> "SparkRows":
        for name in (*table.record_key, *table.partition_by):
            text_column(name, pa.array([], schema.field(name).type))
        _check_frame(self.frame, table)
        return self

    def write(self, table: OpenTable, request: TaskRequest) -> Sequence[WriteStat]:
        return _write_frame(self.frame, table.location, request)


class _Problem(msgspec.Struct, frozen=True):
    """An error a task met on purpose, so that the driver can raise it with its type."""

    kind: str
    message: str
    hint: str
    facts: dict[str, str]


class _Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task tells the driver: one per file, or one that says why there is none."""

    stat: WriteStat | None = None
    problem: _Problem | None = None


@dataclass(frozen=True, slots=True)
class _SparkTask:
    """The task body as Spark ships it: the store is opened where it runs."""

    location: StoreLocation
    request: TaskRequest
    attempts: int
    """How often Spark tries a task before it fails the job."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark gives each task one core; Arrow would start a thread per core of the machine.
        pa.set_cpu_count(1)
        store = open_store(self.location)
        try:
            for stat in write_rows(store, self.request, _identity(), batches):
                yield _encoded(_Outcome(stat=stat))
        except StorageUnavailable as error:
            if _attempt_number() + 1 < self.attempts:
                raise  # Storage may answer the next attempt.
            yield _reported(error)
        except HoldfastError as error:
            yield _reported(error)


def _reported(error: HoldfastError) -> pa.RecordBatch:
    facts = {name: str(value) for name, value in error.facts.items()}
    return _encoded(_Outcome(problem=_Problem(type(error).__name__, error.message, error.hint, facts)))


def _write_frame(rows: DataFrame, location: StoreLocation, request: TaskRequest) -> Sequence[WriteStat]:
    """Write the rows with one Spark job; the statistics of the files."""
    ordered = rows.select(*(f.col(_quoted(name)) for name in request.schema.names))
    if request.table.partition_by:
        # The rows of a partition only have to stand together, and numbers sort faster than text.
        group = f.xxhash64(*(f.col(_quoted(name)) for name in request.table.partition_by))
        ordered = ordered.sortWithinPartitions(group)
    with _arrow_batches(rows.sparkSession), own_interpreter(rows.sparkSession):
        task = _SparkTask(location, request, _task_attempts(rows.sparkSession))
        collected = ordered.mapInArrow(task, _OUTCOME).collect()
    outcomes = [msgspec.json.decode(row[0], type=_Outcome) for row in collected]
    for outcome in outcomes:
        if outcome.problem is not None:
            raise _rebuilt(outcome.problem)
    return [outcome.stat for outcome in outcomes if outcome.stat is not None]


def _check_frame(rows: DataFrame, table: TableSettings) -> None:
    """Look for records without a key or with an impossible partition, before anything is written.

    Reads the key columns, and the distinct partition values; neither if their
    types rule trouble out.
    """
    fields = {field.name: field for field in rows.schema.fields}
    bad_key = _bad_key([fields[name] for name in table.record_key])
    if bad_key is not None and rows.filter(bad_key).limit(1).count():
        raise InvalidRequest(
            "a record has no key",
            columns=", ".join(table.record_key),
            hint="every record needs a key that is neither null nor empty",
        )
    if any(isinstance(fields[name].dataType, spark.StringType) for name in table.partition_by):
        columns = [f.col(_quoted(name)).cast("string") for name in table.partition_by]
        for values in rows.select(*columns).distinct().toLocalIterator():
            path = partition_path(
                table.partition_by, list(values), hive_style=table.hive_style, url_encode=table.url_encode
            )
            check_partition_path(path)


def _bad_key(fields: list[spark.StructField]) -> Column | None:
    """True for rows without a key; None if no row can be without one."""
    condition: Column | None = None
    for field in fields:
        column = f.col(_quoted(field.name))
        is_text = isinstance(field.dataType, spark.StringType)
        if not field.nullable and not is_text:
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


def _identity() -> TaskIdentity:
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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
