"""Instants: what was asked for, what kind, and how far it got.

requested ──► inflight ──► completed
"""

import datetime as dt
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

InstantTime = NewType("InstantTime", str)
"""A requested time in the table's clock, `yyyyMMddHHmmssSSS`; compared as text."""

_DIGITS = 17
_TIME = re.compile(r"[0-9]{14}([0-9]{3})?")


class Action(StrEnum):
    COMMIT = "commit"
    DELTACOMMIT = "deltacommit"
    REPLACECOMMIT = "replacecommit"
    COMPACTION = "compaction"
    LOGCOMPACTION = "logcompaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"


COMMIT_ACTIONS = frozenset({Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT})
"""Actions whose completed instants a query sees."""


class State(StrEnum):
    REQUESTED = "REQUESTED"
    INFLIGHT = "INFLIGHT"
    COMPLETED = "COMPLETED"


@dataclass(frozen=True, slots=True)
class Instant:
    time: InstantTime
    action: Action
    state: State
    completed_at: dt.datetime | None = None

    @property
    def is_completed(self) -> bool:
        return self.state is State.COMPLETED


def instant_time(text: str) -> InstantTime:
    """The text as an instant time; `ValueError` if it is none."""
    if not _TIME.fullmatch(text):
        raise ValueError(f"not an instant time: {text!r}")
    return InstantTime(text)


def time_at(epoch_ms: int) -> InstantTime:
    """The instant time of a moment, in UTC."""
    moment = dt.datetime.fromtimestamp(epoch_ms // 1000, dt.UTC)
    return InstantTime(f"{moment:%Y%m%d%H%M%S}{epoch_ms % 1000:03d}")


def moment_of(time: InstantTime) -> dt.datetime:
    """The moment an instant time names, in UTC."""
    millis = int(time[14:17] or 999)
    moment = dt.datetime.strptime(time[:14], "%Y%m%d%H%M%S").replace(tzinfo=dt.UTC)
    return moment + dt.timedelta(milliseconds=millis)


def end_of(time: InstantTime) -> InstantTime:
    """The time to the millisecond; one of an old table ends with the second and means all of it."""
    return InstantTime(time.ljust(_DIGITS, "9"))


def just_before(time: InstantTime) -> InstantTime:
    """The last time before it, for comparing; it need not be on any calendar."""
    return InstantTime(str(int(end_of(time)) - 1))


def next_time(now_ms: int, newest: InstantTime | None) -> InstantTime:
    """The time for a new instant: now, or just after the newest if the clock is behind it."""
    now = time_at(now_ms)
    if newest is None or now > newest:
        return now
    later = moment_of(newest) + dt.timedelta(milliseconds=1)
    return time_at(int(later.timestamp() * 1000 + 0.5))
