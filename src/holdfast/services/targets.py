"""Targets: which commit somebody means, and whether its snapshot can be relied on.

An instant names a commit exactly; a date and time means the newest commit at
or before it.
"""

import pyarrow as pa

from holdfast.errors import Refused, SnapshotExpired, UnknownInstant
from holdfast.model.instant import Instant, InstantTime, end_of, instant_time
from holdfast.model.reports import Commit
from holdfast.read.snapshot import Moment, as_instant
from holdfast.table.clean_plans import find_doomed_file
from holdfast.table.opened import OpenTable
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline


def instant_named(table: OpenTable, moment: Moment) -> InstantTime | None:
    """The instant that is named exactly; None if a date and time is given."""
    match moment:
        case Instant():
            return moment.time
        case Commit():
            return moment.instant
        case str() if moment.strip().isdigit():
            try:
                return instant_time(moment.strip())
            except ValueError:
                return as_instant(table, moment)
    return None


def exact_instant(table: OpenTable, moment: Moment) -> InstantTime:
    """The instant that is named; a date and time names the one of that very millisecond."""
    return instant_named(table, moment) or as_instant(table, moment)


def commit_at(table: OpenTable, timeline: Timeline, moment: Moment) -> Instant:
    """The completed commit that is meant. `UnknownInstant` if the active timeline has none."""
    name = instant_named(table, moment)
    limit = end_of(as_instant(table, moment))
    older = [commit for commit in timeline.completed_commits if end_of(commit.time) <= limit]
    if older and name in (None, older[-1].time):
        return older[-1]
    raise UnknownInstant(
        "no completed commit on the active timeline has this time"
        if name
        else "no completed commit on the active timeline is that old",
        instant=name or limit,
        hint=f"the newest commit before it is {older[-1].time}" if older else _oldest(timeline),
    )


def _oldest(timeline: Timeline) -> str:
    if not timeline.completed_commits:
        return "the table has no commit"
    return f"the oldest is {timeline.completed_commits[0].time}; older ones may be archived"


def refuse_if_doomed(
    table: OpenTable, timeline: Timeline, state: LedgerState, paths: pa.Array | pa.ChunkedArray
) -> None:
    """`Refused` if a clean that is not finished deletes one of the paths, `SnapshotExpired` if one has."""
    found = find_doomed_file(table.store, timeline, state, paths)
    if found is None:
        return
    clean, path = found
    if any(clean == completed.time for completed in timeline.completed_cleans):
        raise SnapshotExpired("this snapshot was removed by a clean", clean=clean, file=path)
    raise Refused(
        "a clean that is not finished deletes a file of this snapshot",
        clean=clean,
        file=path,
        hint="let it finish first: holdfast cleans run PATH",
    )
