"""Task bodies on Spark: rows go through Arrow into Python workers, which write files.

What a body yields comes back to the driver, one small record each; data never
does. An error that a body raises on purpose reaches the driver with its type.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from holdfast import errors
from holdfast.engines.spark.session import own_interpreter, setting_for_now, spare_archives
from holdfast.errors import HoldfastError, StorageUnavailable
from holdfast.storage.open import open_store
from holdfast.storage.store import Store, StoreLocation
from holdfast.writes.task import TaskIdentity

Output = TypeVar("Output", bound=msgspec.Struct)
Body = Callable[[Store, TaskIdentity, Iterable[pa.RecordBatch]], Iterator[msgspec.Struct]]

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_ROWS_DEFAULT = "10000"
_BATCH_ROWS_WANTED = "50000"
_OUTCOME = "outcome string"
_LOCAL_MASTER = re.compile(r"local(?:\[[^,\]]*(?:,([0-9]+))?\])?")


def run_tasks(rows: DataFrame, location: StoreLocation, body: Body, kind: type[Output]) -> list[Output]:
    """Run the body on every partition of the rows, in one Spark job; what its tasks report."""
    session = rows.sparkSession
    task = _SparkTask(location, body, _task_attempts(session))
    # Larger batches than Spark's are a fifth faster.
    larger = setting_for_now(session, _BATCH_ROWS, _BATCH_ROWS_WANTED, default=_BATCH_ROWS_DEFAULT)
    with larger, own_interpreter(session):
        collected = rows.mapInArrow(task, _OUTCOME).collect()
    outcomes = [msgspec.json.decode(row[0], type=_Outcome) for row in collected]
    for outcome in outcomes:
        if outcome.problem is not None:
            raise _rebuild_error(outcome.problem)
    return [msgspec.json.decode(outcome.output, type=kind) for outcome in outcomes]


class _Problem(msgspec.Struct, frozen=True):
    """An error a task met on purpose, so that the driver can raise it with its type."""

    kind: str
    message: str
    hint: str
    facts: dict[str, str]


class _Outcome(msgspec.Struct, frozen=True):
    """One output of a task, or the error that ended it."""

    output: msgspec.Raw = msgspec.Raw(b"null")
    problem: _Problem | None = None


@dataclass(frozen=True, slots=True)
class _SparkTask:
    """A task body as Spark ships it: the store is opened where it runs."""

    location: StoreLocation
    body: Body
    attempts: int
    """How often Spark tries a task before it fails the job."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark gives each task one core; Arrow would start a thread per core of the machine.
        pa.set_cpu_count(1)
        spare_archives()
        try:
            for output in self.body(open_store(self.location), task_identity(), batches):
                yield _encode(_Outcome(output=msgspec.Raw(msgspec.json.encode(output))))
        except StorageUnavailable as error:
            if _attempt_number() + 1 < self.attempts:
                raise  # Storage may answer the next attempt.
            yield _encode_error(error)
        except HoldfastError as error:
            yield _encode_error(error)


def _encode_error(error: HoldfastError) -> pa.RecordBatch:
    facts = {name: str(value) for name, value in error.facts.items()}
    return _encode(_Outcome(problem=_Problem(type(error).__name__, error.message, error.hint, facts)))


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


def _encode(outcome: _Outcome) -> pa.RecordBatch:
    text = msgspec.json.encode(outcome).decode()
    return pa.RecordBatch.from_arrays([pa.array([text])], names=["outcome"])


def _rebuild_error(problem: _Problem) -> HoldfastError:
    kind = getattr(errors, problem.kind)
    assert issubclass(kind, HoldfastError)
    error: HoldfastError = kind(problem.message, hint=problem.hint, **problem.facts)
    return error
