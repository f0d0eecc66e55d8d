"""Streams: how far a stream has read a table, what is held for it, and who appends to it under numbers.

A stream's position is the commit up to which it has read. Its lease holds the
snapshot of that commit, and that of the one it is about to read, so a stream
that stops and goes on within the time of its lease finds both.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import Conflict
from holdfast.model.instant import Instant, InstantTime
from holdfast.services.leases import leases
from holdfast.table.opened import OpenTable
from holdfast.table.settled import read_settled
from holdfast.table.stable_read import timeline_and_ledger

READS, WRITES = "reads", "writes"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """A stream as others see it."""

    stream: str
    """Its name; of one that writes the application that numbers its batches."""
    direction: str
    """`reads` or `writes`."""
    instant: InstantTime
    """The commit up to which it has read, or is reading; or the newest that it wrote."""
    batch: int | None = None
    """Of one that writes: the number of that commit."""
    commits_behind: int | None = None
    """Of one that reads: how many commits it has not read."""
    behind: dt.timedelta | None = None
    """Of one that reads: how much younger the newest commit is than the one up to which it has read."""
    expires_at: dt.datetime | None = None
    """Of one that reads: until when its snapshots are held, unless it goes on."""
    is_expired: bool = False


def streams(table: OpenTable) -> list[StreamStatus]:
    """Those that read and those that write, each by name. Changes nothing."""
    timeline, state = timeline_and_ledger(table)
    commits = [commit.time for commit in timeline.completed_commits]
    reading = [
        StreamStatus(
            stream=each.stream,
            direction=READS,
            instant=each.newest or each.instant,
            commits_behind=sum(time > (each.newest or each.instant) for time in commits),
            behind=_apart(each.newest or each.instant, max(commits, default=each.instant)),
            expires_at=each.expires_at,
            is_expired=each.is_expired,
        )
        for each in leases(table)
        if each.stream
    ]
    writing = [
        StreamStatus(
            stream=application, direction=WRITES, instant=numbered[-1].instant, batch=numbered[-1].number
        )
        for application, numbered in state.numbered.items()
        if numbered
    ]
    return sorted([*reading, *writing], key=lambda each: (each.stream, each.direction))


def _apart(older: InstantTime, newer: InstantTime) -> dt.timedelta:
    form = "%Y%m%d%H%M%S%f"
    moments = [dt.datetime.strptime(time.ljust(17, "0") + "000", form) for time in (older, newer)]  # noqa: DTZ007
    return max(dt.timedelta(0), moments[1] - moments[0])


def find_position(
    table: OpenTable, *, after: InstantTime | None = None, most: int | None = None
) -> Instant | None:
    """The newest commit that no older write can change any more; None if there is none.

    With `most` no more than so many commits behind that one.
    """
    settled = read_settled(table)
    newest = settled.commit
    if newest is None or most is None or after is None:
        return newest
    ahead: Sequence[Instant] = [
        commit for commit in settled.timeline.completed_commits if after < commit.time <= newest.time
    ]
    return ahead[most - 1] if len(ahead) > most else newest


def refuse_if_taken_back(table: OpenTable, instant: InstantTime) -> None:
    """`Conflict` if a commit that a stream has read does not stand any more."""
    timeline, state = timeline_and_ledger(table)
    first = timeline.first_commit_time
    commits = {commit.time for commit in timeline.completed_commits}
    is_gone = instant not in commits and first is not None and instant >= first
    if is_gone or not commits or state.is_taken_back(instant):
        raise Conflict(
            "a commit that the stream has read was taken back",
            instant=instant,
            hint="what the stream wrote may hold its rows; begin anew with another checkpoint, "
            "or set the option afterUndo=continue to go on with the commits that follow",
        )
