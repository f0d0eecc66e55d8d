"""Instants: what was asked for, what kind, and how far it got.

requested ──► inflight ──► completed
"""

import datetime as dt
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

InstantTime = NewType("InstantTime", str)
"""A requested time on the wall clock of the table's zone, `yyyyMMddHHmmssSSS`; compared as text."""

_DIGITS = 17
_TIME = re.compile(r"[0-9]{14}([0-9]{3})?")
_MILLISECOND = dt.timedelta(milliseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_HELD_BACK = dt.timedelta(seconds=1)
"""How long before an hour that comes twice the instants of its first passage stop."""
_LONGEST_REPEAT = dt.timedelta(hours=3)
"""No clock is put back further than that."""


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
    completion: InstantTime | None = None
    """The same on the wall clock of the table's zone, where names of files say it: from version 8 on."""

    @property
    def is_completed(self) -> bool:
        return self.state is State.COMPLETED


def instant_time(text: str) -> InstantTime:
    """The text as an instant time; `ValueError` if it is none."""
    if not _TIME.fullmatch(text):
        raise ValueError(f"not an instant time: {text!r}")
    return InstantTime(text)


def time_at(epoch_ms: int, zone: dt.tzinfo) -> InstantTime:
    """The instant time of a moment, on the wall clock of a zone."""
    return wall_time((_EPOCH + epoch_ms * _MILLISECOND).astimezone(zone))


def wall_time(wall: dt.datetime) -> InstantTime:
    """The instant time that a wall clock shows, whatever its zone."""
    return InstantTime(f"{wall:%Y%m%d%H%M%S}{wall.microsecond // 1000:03d}")


def moment_of(time: InstantTime, zone: dt.tzinfo) -> dt.datetime:
    """The moment an instant time names, in UTC; the first of two where the clock was put back."""
    return _wall_of(time).replace(tzinfo=zone).astimezone(dt.UTC)


def is_repeated(moment: dt.datetime, zone: dt.tzinfo) -> bool:
    """Whether the wall clock of the zone shows this moment's time twice, because it is put back."""
    first, second = (moment.astimezone(zone).replace(fold=fold).utcoffset() for fold in (0, 1))
    assert first is not None, "a zone knows its offset"
    assert second is not None, "a zone knows its offset"
    return first > second


def end_of(time: InstantTime) -> InstantTime:
    """The time to the millisecond; one of an old table ends with the second and means all of it."""
    return InstantTime(time.ljust(_DIGITS, "9"))


def just_before(time: InstantTime) -> InstantTime:
    """The last time before it, for comparing; it need not be on any calendar."""
    return InstantTime(str(int(end_of(time)) - 1))


def just_after(time: InstantTime) -> InstantTime:
    """The next time there is, on the calendar."""
    return wall_time(_wall_of(time) + _MILLISECOND)


def next_time(now_ms: int, newest: InstantTime | None, zone: dt.tzinfo) -> InstantTime:
    """The time for a new instant: now, or just after the newest if the clock is behind it.

    Where the zone's clock is about to be put back, the time stops before the
    hour that comes twice: Hudi's writers, which go back with the clock, would
    else come to lie before an instant that was there already.
    """
    now = wall_time(_wall_before_repeat(_EPOCH + now_ms * _MILLISECOND, zone))
    if newest is None or now > newest:
        return now
    return just_after(newest)


def _wall_before_repeat(now: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    """What the zone's clock shows; just before the hour that comes twice, as long as that passes first."""
    wall = now.astimezone(zone)
    if wall.fold or not is_repeated(now, zone):
        return wall
    early, late = now - _LONGEST_REPEAT, now
    while late - early > _MILLISECOND:
        middle = early + (late - early) / 2
        early, late = (early, middle) if is_repeated(middle, zone) else (middle, late)
    return late.astimezone(zone).replace(tzinfo=None, microsecond=0) - _HELD_BACK


def _wall_of(time: InstantTime) -> dt.datetime:
    # Arithmetic with it must know no zone: a clock that is put back is no reason for an earlier time.
    wall = dt.datetime.strptime(time[:14], "%Y%m%d%H%M%S")  # noqa: DTZ007
    return wall + int(time[14:17] or 999) * _MILLISECOND
