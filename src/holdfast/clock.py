"""Time and chance: the two things tests must control.

Everything in Holdfast that asks for the time, waits, repeats something in the
background or needs a unique name asks a `Clock`.
"""

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

_EARLIEST = 0.9
_chance = random.SystemRandom()


class Timer(Protocol):
    """Something that repeats until it is stopped. `stop` returns when it has."""

    def stop(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch."""

    def elapsed_ms(self) -> int:
        """Milliseconds on a clock that never goes back and counts suspended time."""

    def every_ms(self, interval_ms: int, action: Callable[[], None], *, name: str) -> Timer:
        """Call `action` in the background until stopped.

        It is called once in every interval, a little early by chance, so that
        many processes do not all act at once. Whatever it raises is logged,
        and the next call comes.
        """

    def unique(self) -> str:
        """A name nobody else has: 32 hexadecimal digits."""


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        # CLOCK_MONOTONIC stops while a Linux machine is suspended; BOOTTIME does not.
        source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime_ns(source) // 1_000_000

    def every_ms(self, interval_ms: int, action: Callable[[], None], *, name: str) -> Timer:
        timer = _ThreadTimer(interval_ms, action, name)
        timer.start()
        return timer

    def unique(self) -> str:
        return uuid.uuid4().hex


class _ThreadTimer(threading.Thread):
    def __init__(self, interval_ms: int, action: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._interval_s = interval_ms / 1000
        self._action = action
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._interval_s * _chance.uniform(_EARLIEST, 1)):
            try:
                self._action()
            except Exception as error:  # noqa: BLE001  # the loop that keeps a service alive
                log.warning("timer.failed", extra={"timer": self.name, "cause": str(error)})

    def stop(self) -> None:
        self._stopped.set()
        self.join()
