"""The DuckDB engine: worker processes, each for one query at a time."""

import itertools
import os
import threading
import time
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.push.queries import wire
from holdfast.push.queries.engine import Cancellation, Work
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.processes import ProcessPool, cancellation_error
from holdfast.push.queries.scopes import View
from holdfast.push.queries.typed import default_sql
from holdfast.storage.store import StoreLocation

_PROGRAM = "holdfast.push.queries.worker"
_SLACK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    workers: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))
    """How many queries run at once."""
    spares: int = 1
    threads: int = field(default_factory=lambda: max(1, os.cpu_count() or 1))
    """Of one query."""
    memory_bytes: int = 1 << 30
    """Of one query."""
    max_rows: int = 1_000_000
    max_bytes: int = 256 << 20
    """Of one answer."""
    confine: bool = True


class WorkerPool:
    """Every method may be called from any thread."""

    def __init__(self, deep_store: StoreLocation, settings: PoolSettings | None = None) -> None:
        self._settings = settings or PoolSettings()
        setup = _setup(deep_store, self._settings)
        self._processes = ProcessPool(_PROGRAM, setup, self._settings.workers + self._settings.spares)
        self._slots = threading.BoundedSemaphore(self._settings.workers)
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Start all workers and wait until the first is ready; the others follow."""
        self._processes.start()

    @property
    def pids(self) -> tuple[int, ...]:
        return self._processes.pids

    @property
    def ready(self) -> int:
        """How many workers wait for a query."""
        return self._processes.ready

    def run(self, work: Work, *, deadline_s: float, cancellation: Cancellation) -> pa.Table:
        """Answer within the deadline, a moment of `time.monotonic`, or end the worker that does not."""
        if not self._slots.acquire(timeout=max(0.0, deadline_s - time.monotonic())):
            raise QueryFailed(QueryError.QUERY_SCHEDULING_TIMEOUT, "all workers were busy until the deadline")
        try:
            return self._run(work, deadline_s, cancellation)
        finally:
            self._slots.release()

    def is_well(self) -> bool:
        """Whether there are workers, at work or waiting; one that is ended is replaced."""
        return bool(self._processes.pids)

    def close(self) -> None:
        self._processes.close()

    def _run(self, work: Work, deadline_s: float, cancellation: Cancellation) -> pa.Table:
        task = self._task(work)
        tables = tuple(view.table for view, _ in work.views)
        # One that has read these tables lately may still have a DuckDB of their files.
        worker = self._processes.take(tables, deadline_s=deadline_s, cancellation=cancellation)
        is_reusable = False
        try:
            answer, body = worker.ask(
                task,
                wire.Answer,
                deadline_s=deadline_s,
                cancellation=cancellation,
                interrupt=wire.INTERRUPT.pack(task.number),
                max_body=task.max_bytes + _SLACK_BYTES,
            )
            assert answer.number == task.number
            is_reusable = True
        finally:
            if is_reusable:
                self._processes.give_back(worker)
            else:
                self._processes.replace(worker)
        if answer.failure is None:
            return pa.ipc.open_stream(body).read_all()
        code = QueryError(answer.failure.code)
        if code is QueryError.EXECUTION_TIMEOUT and cancellation.is_set:
            raise cancellation_error()
        raise QueryFailed(code, answer.failure.message)

    def _task(self, work: Work) -> wire.Task:
        views = [
            wire.ViewTask(
                name=view.name,
                columns=_columns(view),
                segments=[segment.name for segment in segments],
                files=[segment.uri for segment in segments],
                has_segment_names=view.has_segment_names,
            )
            for view, segments in work.views
        ]
        return wire.Task(
            number=next(self._numbers),
            sql=work.sql,
            views=views,
            max_rows=min(work.max_rows, self._settings.max_rows),
            max_bytes=self._settings.max_bytes,
        )


def _setup(deep_store: StoreLocation, settings: PoolSettings) -> wire.Setup:
    is_local = deep_store.uri.startswith("/")
    return wire.Setup(
        deep_store=deep_store.uri,
        deep_store_options=dict(deep_store.options),
        readable=[deep_store.uri] if is_local else [],
        network=not is_local,
        memory_bytes=settings.memory_bytes,
        threads=settings.threads,
        confine=settings.confine,
    )


def _columns(view: View) -> list[wire.ColumnTask]:
    stored = [wire.ColumnTask(column.name, column.kind, column.is_array) for column in view.columns]
    filled = [
        wire.ColumnTask(column.name, column.kind, column.is_array, default_sql(column))
        for column in view.filled
    ]
    return stored + filled
