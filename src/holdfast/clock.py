"""Time and chance: the two things tests must control.

Everything in Holdfast that asks for the time, waits, repeats something in the
background or needs a unique name asks a `Clock`.
"""

import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

log = logging.getLogger(__name__)

_EARLIEST = 0.9
_chance = random.SystemRandom()
_LOCAL_TIME = Path("/etc/localtime")
_ZONES = "/zoneinfo/"


class Timer(Protocol):
    """Something that repeats until it is stopped. `stop` returns when it has."""

    def stop(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch."""

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never goes back and counts suspended time."""

    def every_ms(self, interval_ms: int, action: Callable[[], None], *, name: str) -> Timer:
        """Call `action` in the background until stopped.

        It is called once in every interval, a little early by chance, so that
        many processes do not all act at once. Whatever it raises is logged,
        and the next call comes.
        """

    def wait_ms(self, duration_ms: int) -> None:
        """Return after that long."""

    def unique(self) -> str:
        """A name nobody else has: 32 hexadecimal digits."""

    def zone_name(self) -> str | None:
        """This process's time zone, as the time zone database calls it; None if it has no name there."""


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        # CLOCK_MONOTONIC stops while a Linux machine is suspended; BOOTTIME does not.
        source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime_ns(source) // 1_000_000

    def every_ms(self, interval_ms: int, action: Callable[[], None], *, name: str) -> Timer:
        timer = _ThreadTimer(interval_ms, action, name)
        timer.start()
        return timer

    def wait_ms(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)

    def unique(self) -> str:
        return uuid.uuid4().hex

    def zone_name(self) -> str | None:
        given = os.environ.get("TZ")
        if given is not None:
            return _zone_key(given.removeprefix(":") or "UTC")
        if not _LOCAL_TIME.exists():
            return "UTC"  # As the C library and Java have it then.
        return _zone_key(str(_LOCAL_TIME.resolve()))


def _zone_key(text: str) -> str | None:
    """The zone that a name or the path of its file means; None if the database has none like it."""
    name = text.rpartition(_ZONES)[2].removeprefix("posix/")
    try:
        return ZoneInfo(name).key
    except (ValueError, OSError, KeyError):  # How it answers paths, folders and unknown names.
        return None


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
