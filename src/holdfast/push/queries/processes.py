"""Processes that work for the broker: always warm, and killed when one does not answer in time.

They are started as programs of their own, never forked from a process with
threads. A few more may run than work at once, so that a killed one costs no
query any time.
"""

import contextlib
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
from typing import TypeVar

import msgspec

from holdfast.errors import StorageUnavailable
from holdfast.push.queries import wire
from holdfast.push.queries.engine import Cancellation
from holdfast.push.queries.failures import QueryError, QueryFailed

log = logging.getLogger(__name__)

_GRACE_S = 1.0
_LOOK_EVERY_MS = 100
_START_WITHIN_S = 60.0
_AFTER_FAILURE_S = 1.0
_KEPT_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT")
_KNOWN_KEYS = 4

Key = tuple[str, ...]
"""What a process may remember from its last tasks: one that knows it is preferred."""
Reply = TypeVar("Reply", bound=msgspec.Struct)


class Process:
    """One process, used by one thread at a time."""

    def __init__(self, program: str, setup: msgspec.Struct) -> None:
        self.known: deque[Key] = deque(maxlen=_KNOWN_KEYS)
        self._channel, theirs = socket.socketpair()
        self._control, their_control = socket.socketpair()
        with theirs, their_control:
            inherited = (theirs.fileno(), their_control.fileno())
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, "-m", program, *(str(number) for number in inherited)],
                pass_fds=inherited,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                cwd="/",
                # Ctrl-C in a terminal is for the broker, which ends its processes.
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
        self,
        task: msgspec.Struct,
        reply: type[Reply],
        *,
        deadline_s: float,
        cancellation: Cancellation,
        interrupt: bytes | None = None,
        max_body: int = 0,
        files: Sequence[int] = (),
    ) -> tuple[Reply, bytearray]:
        """The answer. If this raises, the caller kills the process.

        `files` are descriptors that the process gets with the task.
        At the deadline `interrupt` goes to the control channel and the process
        has a moment to stop by itself; without one it has none.
        """
        try:
            # What is sent is read at once by a process that lives; one that is stopped must not hold us.
            self._channel.settimeout(max(_GRACE_S, deadline_s - time.monotonic() + _GRACE_S))
            if files:
                wire.send_with_files(self._channel, task, files)
            else:
                wire.send(self._channel, task)
            self._await(deadline_s, cancellation, interrupt)
            # What is still to come was computed already.
            self._channel.settimeout(max(_GRACE_S, deadline_s - time.monotonic() + _GRACE_S))
            answer = wire.receive(self._channel, reply, max_body=max_body)
            self._channel.settimeout(None)
        except TimeoutError:
            raise QueryFailed(QueryError.EXECUTION_TIMEOUT, "the query took too long") from None
        except (EOFError, OSError, ValueError) as error:
            raise QueryFailed(
                QueryError.QUERY_EXECUTION,
                "the query's process ended before it answered",
                hint="it probably needed more memory than it may have",
            ) from error
        return answer

    def _await(self, deadline_s: float, cancellation: Cancellation, interrupt: bytes | None) -> None:
        """Return when the answer begins to arrive, or give up some time after the deadline."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        give_up_s: float | None = None
        while True:
            now = time.monotonic()
            if give_up_s is None and (now >= deadline_s or cancellation.is_set):
                give_up_s = now
                if interrupt is not None:
                    give_up_s += _GRACE_S
                    with contextlib.suppress(OSError):
                        self._control.sendall(interrupt)
            if give_up_s is not None and now >= give_up_s:
                if cancellation.is_set:
                    raise cancellation_error()
                raise QueryFailed(QueryError.EXECUTION_TIMEOUT, "the query took too long")
            until_s = deadline_s if give_up_s is None else give_up_s
            if poll.poll(min(_LOOK_EVERY_MS, max(1, (until_s - now) * 1000))):
                return

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._channel.close()
        self._control.close()


class ProcessPool:
    """Processes of one program. Every method may be called from any thread."""

    def __init__(self, program: str, setup: msgspec.Struct, count: int) -> None:
        self._program = program
        self._setup = setup
        self._count = count
        self._idle = _Idle()
        self._lock = threading.Lock()
        self._processes: set[Process] = set()
        self._is_closed = False

    def start(self) -> None:
        """Start all processes and wait until the first is ready; the others follow."""
        first, *others = [self._launch() for _ in range(self._count)]
        for process in others:
            self._add_in_thread(process)
        try:
            first.wait_until_ready()
        except (OSError, EOFError) as error:
            self.close()
            raise StorageUnavailable("a process for queries did not start", cause=str(error)) from error
        self._idle.put(first)

    @property
    def pids(self) -> tuple[int, ...]:
        with self._lock:
            return tuple(process.pid for process in self._processes)

    @property
    def ready(self) -> int:
        """How many processes wait for a task."""
        return len(self._idle)

    def take(self, key: Key, *, deadline_s: float, cancellation: Cancellation) -> Process:
        """An idle process that lives, of those that know the key if there is one."""
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise QueryFailed(
                    QueryError.QUERY_SCHEDULING_TIMEOUT, "no process was ready before the deadline"
                )
            try:
                process = self._idle.take(key, within_s=min(_LOOK_EVERY_MS / 1000, left_s))
            except TimeoutError:
                if cancellation.is_set:
                    raise cancellation_error() from None
                continue
            if process.is_alive:
                return process
            self.replace(process)

    def give_back(self, process: Process) -> None:
        self._idle.put(process)

    def replace(self, process: Process) -> None:
        """End a process and start another in its place."""
        self._end(process)
        with self._lock:
            if self._is_closed:
                return
        self._add_in_thread(None)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            processes = list(self._processes)
        for process in processes:
            self._end(process)

    def _launch(self) -> Process:
        process = Process(self._program, self._setup)
        with self._lock:
            self._processes.add(process)
            is_late = self._is_closed
        if is_late:
            self._end(process)
        return process

    def _add_in_thread(self, process: Process | None) -> None:
        threading.Thread(target=self._add, args=(process,), name="query-process-start", daemon=True).start()

    def _add(self, process: Process | None) -> None:
        """Wait for a process, and start another one if it does not come."""
        while True:
            try:
                # Starting a process may fail for a while, when the machine has no more to give.
                process = process or self._launch()
                process.wait_until_ready()
            except (OSError, EOFError, ValueError) as error:
                if process is not None:
                    self._end(process)
                with self._lock:
                    if self._is_closed:
                        return
                log.error("query.process_failed", extra={"program": self._program, "cause": str(error)})
                time.sleep(_AFTER_FAILURE_S)
                process = None
                continue
            self._idle.put(process)
            return

    def _end(self, process: Process) -> None:
        process.kill()
        with self._lock:
            self._processes.discard(process)


class _Idle:
    """Processes that wait for a task."""

    def __init__(self) -> None:
        self._waiting: list[Process] = []
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, process: Process) -> None:
        with self._changed:
            self._waiting.append(process)
            self._changed.notify()

    def take(self, key: Key, *, within_s: float) -> Process:
        """One that knows the key, else the one that has waited longest."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting, within_s):
                raise TimeoutError
            chosen = next((one for one in reversed(self._waiting) if key in one.known), self._waiting[0])
            self._waiting.remove(chosen)
        chosen.known.append(key)
        return chosen


def cancellation_error() -> QueryFailed:
    return QueryFailed(QueryError.QUERY_CANCELLATION, "the query was cancelled")


def _environment() -> dict[str, str]:
    """Only what starting Python needs: secrets in the broker's environment stay there."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(_search_path(sys.path)), "TZ": "UTC"}


def _search_path(paths: Sequence[str]) -> list[str]:
    return [os.path.abspath(path) for path in paths if path]
