"""Writes through Spark's data source: one write whose two halves run in different processes.

Spark makes the writer in one process of its driver, ships it to the tasks and
commits or aborts in another process, which may come much later or never. So
the write stops where rows are to be written, with everything it has done so
far in the ledger and on the timeline, and the second half takes it up there as
the same owner. The owner is the Spark application: it is alive for as long as
a second half can come.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from holdfast.clock import SystemClock
from holdfast.config.choices import Operation
from holdfast.config.datasource import OPERATION, SourceWrite
from holdfast.config.table import TableSettings
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.compaction import ArrowCompactor
from holdfast.engines.spark.tasks import task_identity
from holdfast.engines.spark.types import arrow_schema_of
from holdfast.errors import Fenced, HoldfastError, InvalidOption, StorageUnavailable
from holdfast.format.commits import WriteStat
from holdfast.host import Liveness, Owner, SystemHost
from holdfast.model.instant import InstantTime
from holdfast.services.rollback.failed_writes import FailedWrite
from holdfast.services.rollback.rollback import roll_back
from holdfast.storage.open import open_store
from holdfast.storage.store import StoreLocation
from holdfast.table.opened import OpenTable, open_existing, open_new, open_target
from holdfast.table.streamed import Batch, read_batch, refuse_other_stream
from holdfast.writes.merge_task import MergeRequest
from holdfast.writes.operations import write
from holdfast.writes.origin import Origin
from holdfast.writes.outcome import Written
from holdfast.writes.repeats import find_repeated_commit
from holdfast.writes.task import TaskRequest, write_rows

_SORTED_BYTES = 128 * 1024 * 1024
"""How many bytes of rows a task sorts at a time; it holds about three times as many."""
_BATCH_ROWS = 50_000


def begin_write(
    location: StoreLocation, options: Mapping[str, str], schema: spark.StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """Begin a write and stop before the first row; the writer that goes on with it."""
    request = SourceWrite.from_options(options)
    operation = _operation_without_shuffle(request.operation, overwrite=overwrite)
    clock = SystemClock()
    host = _ApplicationHost(_application(clock.unique()))
    table = open_target(location, request, columns=schema.names, clock=clock, host=host)
    settings = WriteSettings.from_options(request.options)
    _refuse_if_shared(settings)
    columns = arrow_schema_of(schema)
    try:
        write(table, operation, _TaskRows(columns), settings)
    except _Handover as handover:
        return SourceWriter(location, handover.task, columns, operation, host, is_new=table.is_new)
    # A write ends before its rows are written if it is the repeat of one that is committed.
    return _RepeatWriter()


def roll_back_of_application(location: StoreLocation) -> None:
    """Roll back what this Spark application began on a table and nobody decided."""
    clock = SystemClock()
    application = _application(clock.unique())
    table = open_existing(open_store(location), location, clock=clock, host=SystemHost())
    for instant, begun in table.ledger.read().begun.items():
        owner = begun.owner
        if owner is not None and replace(owner, token=application.token) == application:
            write = FailedWrite(instant, begun.action, None, None)
            roll_back(table, write, reason="the batch of the stream was given up")


class _RepeatWriter(DataSourceArrowWriter):
    """A write whose number is committed already: its rows are passed over."""

    def __init__(self) -> None:
        """Nothing is kept: there is nothing to write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return _Message(())


class SourceWriter(DataSourceArrowWriter):
    """A write that has begun: tasks write its files, the driver decides it."""

    def __init__(
        self,
        location: StoreLocation,
        task: TaskRequest,
        columns: pa.Schema,
        operation: Operation,
        host: "_ApplicationHost",
        *,
        is_new: bool,
    ) -> None:
        self._location = location
        self._task = task
        self._columns = columns
        self._operation = operation
        self._host = host
        self._is_new = is_new

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Bad rows are reported: trying them again would not help."""
        # Spark gives each task one core; Arrow would start a thread per core of the machine.
        pa.set_cpu_count(1)
        store = open_store(self._location)
        batches = _in_partition_order(iterator, self._task.table)
        try:
            outputs = write_rows(store, self._task, task_identity(), batches)
            return _Message(tuple(Written.of(outputs).stats))
        except StorageUnavailable:
            raise  # Storage may answer the next attempt.
        except HoldfastError as error:
            return _Message((), error)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Decide and publish what the tasks wrote."""
        write(self._open_table(), self._operation, self._rows_of(messages), self._task.write)

    def commit_batch(self, messages: list[WriterCommitMessage], batch: Batch) -> None:
        """As `commit`, as that batch of a stream; if it is committed already, roll back what is written."""
        settings = self._task.write.with_number((batch.query, batch.number))
        table = self._open_table()
        repeated = find_repeated_commit(table, settings)
        if repeated is None:
            rows = self._rows_of(messages)
            origin = Origin(extra_metadata=batch.extra_metadata())
            repeated = write(table, self._operation, rows, settings, origin=origin)
            if not repeated.repeated:
                return
        self.abort([])
        found = read_batch(table, repeated.instant, repeated.action)
        refuse_other_stream(found, batch, repeated.instant)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Roll the write back, unless it is decided. What the tasks left is known by its markers."""
        table = self._open_table()
        instant = self._task.instant
        if instant in table.ledger.read().begun:
            roll_back(
                table, FailedWrite(instant, self._task.action, None, None), reason="the Spark job failed"
            )

    def _rows_of(self, messages: Sequence[WriterCommitMessage | None]) -> "_WrittenRows":
        written = [message for message in messages if isinstance(message, _Message)]
        assert len(written) == len(messages), "every task of a job that succeeded sends a message"
        for message in written:
            if message.problem is not None:
                raise message.problem
        return _WrittenRows(self._columns, self._task.instant, [s for m in written for s in m.stats])

    def _open_table(self) -> OpenTable:
        store = open_store(self._location)
        clock, settings = SystemClock(), self._task.table
        if self._is_new:
            return open_new(store, self._location, settings, clock=clock, host=self._host)
        table = open_existing(store, self._location, clock=clock, host=self._host)
        return replace(table, settings=settings)


@dataclass(frozen=True)
class _Message(WriterCommitMessage):
    """What one task did."""

    stats: tuple[WriteStat, ...]
    problem: HoldfastError | None = None


class _Handover(BaseException):
    """Ends the first half. Not an Exception: the write has not failed and is not rolled back."""

    def __init__(self, task: TaskRequest) -> None:
        super().__init__("the second half goes on from here")
        self.task = task


@dataclass(frozen=True)
class _TaskRows:
    """Rows that pass through Spark's tasks and not through this process."""

    columns: pa.Schema

    def schema(self) -> pa.Schema:
        return self.columns

    def prepare(
        self,
        schema: pa.Schema,
        table: TableSettings,
        *,
        by_partition: bool = True,
        validate_first: bool = True,
    ) -> Self:
        return self

    def write(self, table: OpenTable, request: TaskRequest) -> Written:
        raise _Handover(request)

    def merge(self, table: OpenTable, request: MergeRequest) -> Written:
        raise _needs_shuffle("this option of the write")

    def compactor(self) -> ArrowCompactor:
        return ArrowCompactor()  # This process has no session.

    def cancel(self) -> None:
        """Nothing of it runs in this process."""


@dataclass(frozen=True)
class _WrittenRows(_TaskRows):
    """The same rows when the tasks have written them, under that instant."""

    instant: InstantTime
    stats: Sequence[WriteStat]

    def write(self, table: OpenTable, request: TaskRequest) -> Written:
        if request.instant != self.instant:
            raise Fenced(
                "this write was rolled back by another process",
                instant=self.instant,
                hint="nothing of it is visible; run the write again",
            )
        return Written(stats=self.stats)


@dataclass(frozen=True)
class _ApplicationHost:
    """The host of a write that belongs to a Spark application, in any of its processes."""

    application: Owner

    def owner(self, token: str) -> Owner:
        return self.application

    def liveness(self, owner: Owner) -> Liveness:
        return Liveness.ALIVE if owner == self.application else SystemHost().liveness(owner)


def _application(token: str) -> Owner:
    """The JVM that started this process, as an owner; this process if none is found."""
    ours = SystemHost().owner(token)
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
        except OSError:
            break
        fields = rest.split()
        if name == "java":
            return replace(ours, pid=pid, started=fields[19])
        pid = int(fields[1])
    return ours


def _operation_without_shuffle(given: Operation | None, *, overwrite: bool) -> Operation:
    """What to carry out. Only what needs no shuffle: this door to Spark has none."""
    if given in (Operation.BULK_INSERT, Operation.INSERT):
        return Operation.INSERT_OVERWRITE_TABLE if overwrite else Operation.BULK_INSERT
    if overwrite and given in (None, Operation.INSERT_OVERWRITE_TABLE):
        return Operation.INSERT_OVERWRITE_TABLE
    raise _needs_shuffle(given or f"{Operation.UPSERT}, the default")


def _refuse_if_shared(settings: WriteSettings) -> None:
    """Between the two halves of such a write no process of ours runs that could beat for it."""
    if settings.is_shared:
        raise InvalidOption(
            "this door to Spark is for tables with one writer",
            policy=settings.failed_writes_policy,
            hint="call holdfast.write(df, path, options), which keeps a heartbeat",
        )


def _needs_shuffle(what: str) -> InvalidOption:
    return InvalidOption(
        "this needs a shuffle, which Spark does not offer to Python data sources",
        operation=what,
        hint=f"call holdfast.write(df, path, options), or set {OPERATION} to bulk_insert",
    )


def _in_partition_order(batches: Iterable[pa.RecordBatch], table: TableSettings) -> Iterator[pa.RecordBatch]:
    """The rows in an order in which those of a partition stand together, a stretch at a time."""
    if not table.partition_by:
        yield from batches
        return
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _SORTED_BYTES:
            yield from _sort_by_partition(held, table)
            held, size = [], 0
    yield from _sort_by_partition(held, table)


def _sort_by_partition(held: list[pa.RecordBatch], table: TableSettings) -> Iterator[pa.RecordBatch]:
    if held:
        by = [(name, "ascending") for name in table.partition_by]
        yield from pa.Table.from_batches(held).sort_by(by).to_batches(max_chunksize=_BATCH_ROWS)
