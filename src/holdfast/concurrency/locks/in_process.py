"""A lock among the threads of this process."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from holdfast.clock import Clock
from holdfast.concurrency.locks.lock import Hold, lock_timeout


class InProcessLock:
    """One per table and process: threads hold it in the order in which they asked."""

    def __init__(self, name: str, *, clock: Clock, patience_ms: int) -> None:
        self._name = name
        self._queue = _queue_of(name)
        self._clock = clock
        self._patience_ms = patience_ms

    @contextmanager
    def hold(self) -> Iterator[Hold]:
        turn = _Turn(threading.current_thread().name)
        self._queue.join(turn)
        try:
            if not turn.came.wait(self._patience_ms / 1000):
                self._refuse()
            turn.since_ms = self._clock.monotonic_ms()
            yield turn
        finally:
            self._queue.leave(turn)

    def _refuse(self) -> None:
        first = self._queue.first()
        raise lock_timeout(
            self._name,
            holder=f"thread {first.thread} of this process",
            age_ms=self._clock.monotonic_ms() - first.since_ms if first.since_ms else None,
            waited_ms=self._patience_ms,
            hint="wait until that write has ended, then repeat the call",
        )


@dataclass(eq=False)
class _Turn:
    thread: str
    came: threading.Event = field(default_factory=threading.Event)
    since_ms: int = 0

    def refuse_if_lost(self) -> None:
        """It cannot be lost: it ends with the process."""


class _Queue:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: deque[_Turn] = deque()

    def join(self, turn: _Turn) -> None:
        with self._guard:
            self._turns.append(turn)
            self._turns[0].came.set()

    def leave(self, turn: _Turn) -> None:
        with self._guard:
            self._turns.remove(turn)
            if self._turns:
                self._turns[0].came.set()

    def first(self) -> _Turn:
        with self._guard:
            return self._turns[0]


_queues: WeakValueDictionary[str, _Queue] = WeakValueDictionary()
"""What threads of one process share can only be a variable of the module."""
_queues_guard = threading.Lock()


def _queue_of(name: str) -> _Queue:
    with _queues_guard:
        queue = _queues.get(name)
        if queue is None:
            queue = _queues[name] = _Queue()
        return queue
