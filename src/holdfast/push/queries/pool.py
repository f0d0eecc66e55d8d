"""The pool: worker processes that are always warm, and killed when a query does not end.

Workers are started as programs of their own, never forked from a process with
threads. A few more run than may work at once, so that a killed or freshly used
one costs no query any time.
"""

import contextlib
import itertools
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.errors import StorageUnavailable
from holdfast.push.queries import wire
from holdfast.push.queries.engine import Cancellation, Work
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.scopes import View
from holdfast.push.queries.typed import default_sql
from holdfast.storage.store import StoreLocation

log = logging.getLogger(__name__)

_PROGRAM = "holdfast.push.queries.worker"
_GRACE_S = 1.0
_LOOK_EVERY_MS = 100
_START_WITHIN_S = 60.0
_AFTER_FAILURE_S = 1.0
_KEPT_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT")
_SLACK_BYTES = 1 << 20
_KNOWN_TABLES = 4


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
    """The DuckDB engine: every method may be called from any thread."""

    def __init__(self, deep_store: StoreLocation, settings: PoolSettings | None = None) -> None:
        self._settings = settings or PoolSettings()
        self._deep_store = deep_store
        self._idle = _Idle()
        self._slots = threading.BoundedSemaphore(self._settings.workers)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._workers: set[_Worker] = set()
        self._is_closed = False

    def start(self) -> None:
        """Start all workers and wait until the first is ready; the others follow."""
        first, *others = [self._launch() for _ in range(self._settings.workers + self._settings.spares)]
        for worker in others:
            threading.Thread(target=self._add, args=(worker,), name="query-worker-start", daemon=True).start()
        try:
            first.wait_until_ready()
        except (OSError, EOFError) as error:
            self.close()
            raise StorageUnavailable("a query worker did not start", cause=str(error)) from error
        self._idle.put(first)

    @property
    def pids(self) -> tuple[int, ...]:
        with self._lock:
            return tuple(worker.pid for worker in self._workers)

    @property
    def ready(self) -> int:
        """How many workers wait for a query."""
        return len(self._idle)

    def run(self, work: Work, *, deadline_s: float, cancellation: Cancellation) -> pa.Table:
        """Answer within the deadline, a moment of `time.monotonic`, or end the worker that does not."""
        if not self._slots.acquire(timeout=max(0.0, deadline_s - time.monotonic())):
            raise QueryFailed(QueryError.QUERY_SCHEDULING_TIMEOUT, "all workers were busy until the deadline")
        try:
            return self._run(work, deadline_s, cancellation)
        finally:
            self._slots.release()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            workers = list(self._workers)
        for worker in workers:
            self._end(worker)

    def _run(self, work: Work, deadline_s: float, cancellation: Cancellation) -> pa.Table:
        task = self._task(work)
        tables = tuple(view.table for view, _ in work.views)
        worker = self._next(tables, deadline_s, cancellation)
        is_reusable = False
        try:
            failure, body = worker.ask(task, deadline_s, cancellation, max_body=task.max_bytes + _SLACK_BYTES)
            is_reusable = True
        finally:
            if is_reusable:
                self._idle.put(worker)
            else:
                self._replace(worker)
        if failure is None:
            return pa.ipc.open_stream(body).read_all()
        code = QueryError(failure.code)
        if code is QueryError.EXECUTION_TIMEOUT and cancellation.is_set:
            raise _cancelled()
        raise QueryFailed(code, failure.message)

    def _next(self, tables: tuple[str, ...], deadline_s: float, cancellation: Cancellation) -> "_Worker":
        """An idle worker that lives."""
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                worker = self._idle.take(tables, within_s=max(0.0, min(_LOOK_EVERY_MS / 1000, left_s)))
            except TimeoutError:
                if cancellation.is_set:
                    raise _cancelled() from None
                if left_s > 0:
                    continue
                raise QueryFailed(
                    QueryError.QUERY_SCHEDULING_TIMEOUT, "no worker was ready before the deadline"
                ) from None
            if worker.is_alive:
                return worker
            self._replace(worker)

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

    def _launch(self) -> "_Worker":
        settings = self._settings
        is_local = self._deep_store.uri.startswith("/")
        setup = wire.Setup(
            deep_store=self._deep_store.uri,
            deep_store_options=dict(self._deep_store.options),
            readable=[self._deep_store.uri] if is_local else [],
            network=not is_local,
            memory_bytes=settings.memory_bytes,
            threads=settings.threads,
            confine=settings.confine,
        )
        worker = _Worker(setup)
        with self._lock:
            self._workers.add(worker)
            is_late = self._is_closed
        if is_late:
            self._end(worker)
        return worker

    def _replace(self, worker: "_Worker") -> None:
        self._end(worker)
        with self._lock:
            if self._is_closed:
                return
        threading.Thread(target=self._add, name="query-worker-start", daemon=True).start()

    def _add(self, worker: "_Worker | None" = None) -> None:
        """Wait for a worker, and start another one if it does not come."""
        while True:
            try:
                # Starting a process may fail for a while, when the machine has no more to give.
                worker = worker or self._launch()
                worker.wait_until_ready()
            except (OSError, EOFError, ValueError) as error:
                if worker is not None:
                    self._end(worker)
                with self._lock:
                    if self._is_closed:
                        return
                log.error("query.worker_failed", extra={"cause": str(error)})
                time.sleep(_AFTER_FAILURE_S)
                worker = None
                continue
            self._idle.put(worker)
            return

    def _end(self, worker: "_Worker") -> None:
        worker.kill()
        with self._lock:
            self._workers.discard(worker)


class _Idle:
    """Workers that wait for a query."""

    def __init__(self) -> None:
        self._waiting: list[_Worker] = []
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, worker: "_Worker") -> None:
        with self._changed:
            self._waiting.append(worker)
            self._changed.notify()

    def take(self, tables: tuple[str, ...], *, within_s: float) -> "_Worker":
        """One that has read these tables lately, else the one that has waited longest."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting, within_s):
                raise TimeoutError
            chosen = next((one for one in reversed(self._waiting) if tables in one.known), self._waiting[0])
            self._waiting.remove(chosen)
        chosen.known.append(tables)
        return chosen


class _Worker:
    """One process, used by one thread at a time."""

    def __init__(self, setup: wire.Setup) -> None:
        self.known: deque[tuple[str, ...]] = deque(maxlen=_KNOWN_TABLES)
        """The tables of its last queries, of which it may still have a DuckDB."""
        self._channel, theirs = socket.socketpair()
        self._control, their_control = socket.socketpair()
        with theirs, their_control:
            inherited = (theirs.fileno(), their_control.fileno())
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, "-m", _PROGRAM, *(str(number) for number in inherited)],
                pass_fds=inherited,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                cwd="/",
                # Ctrl-C in a terminal is for the broker, which ends its workers.
                process_group=0,
            )
        wire.send(self._channel, setup)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self) -> None:
        self._channel.settimeout(_START_WITHIN_S)
        wire.receive(self._channel, wire.Ready)
        self._channel.settimeout(None)

    def ask(
        self, task: wire.Task, deadline_s: float, cancellation: Cancellation, *, max_body: int
    ) -> tuple[wire.Failure | None, bytearray]:
        """The answer; whoever calls kills the worker if this raises."""
        try:
            wire.send(self._channel, task)
            self._await(task, deadline_s, cancellation)
            # What is still to come was computed already.
            self._channel.settimeout(max(_GRACE_S, deadline_s - time.monotonic() + _GRACE_S))
            answer, body = wire.receive(self._channel, wire.Answer, max_body=max_body)
            self._channel.settimeout(None)
        except TimeoutError:
            raise QueryFailed(QueryError.EXECUTION_TIMEOUT, "the query took too long") from None
        except (EOFError, OSError, ValueError) as error:
            raise QueryFailed(
                QueryError.QUERY_EXECUTION,
                "the query's process ended before it answered",
                hint="it probably needed more memory than it may have",
            ) from error
        assert answer.number == task.number
        return answer.failure, body

    def _await(self, task: wire.Task, deadline_s: float, cancellation: Cancellation) -> None:
        """Return when the answer begins to arrive. At the deadline ask the worker to stop, then give up."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        give_up_s: float | None = None
        while True:
            now = time.monotonic()
            if give_up_s is None and (now >= deadline_s or cancellation.is_set):
                with contextlib.suppress(OSError):
                    self._control.sendall(wire.INTERRUPT.pack(task.number))
                give_up_s = now + _GRACE_S
            if give_up_s is not None and now >= give_up_s:
                if cancellation.is_set:
                    raise _cancelled()
                raise QueryFailed(QueryError.EXECUTION_TIMEOUT, "the query took too long")
            until_s = deadline_s if give_up_s is None else give_up_s
            if poll.poll(min(_LOOK_EVERY_MS, max(1, (until_s - now) * 1000))):
                return

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._channel.close()
        self._control.close()


def _columns(view: View) -> list[wire.ColumnTask]:
    stored = [wire.ColumnTask(column.name, column.kind, column.is_array) for column in view.columns]
    filled = [
        wire.ColumnTask(column.name, column.kind, column.is_array, default_sql(column))
        for column in view.filled
    ]
    return stored + filled


def _cancelled() -> QueryFailed:
    return QueryFailed(QueryError.QUERY_CANCELLATION, "the query was cancelled")


def _environment() -> dict[str, str]:
    """Only what starting Python needs: secrets in the broker's environment stay there."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(_search_path(sys.path)), "TZ": "UTC"}


def _search_path(paths: Sequence[str]) -> list[str]:
    return [os.path.abspath(path) for path in paths if path]
