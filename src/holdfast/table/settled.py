"""Settled snapshots: what somebody can name must not change once it was seen.

A snapshot is named by a moment, and is what the commits up to it left. A write
that began before the moment and is not decided yet would still come to be part
of it. Instants increase in the order of BEGIN, so up to the newest that was
given out no further one can come: a snapshot without such a write stays as it
is for good.

Up to a later moment one can come, from a writer whose clock is behind, or that
has looked at its clock and not begun yet. Such a moment is named only when it
lies so far back that neither is possible any more.
"""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import UnknownInstant, WriterActive
from holdfast.host import Liveness
from holdfast.model.instant import Instant, InstantTime, State, end_of, next_time
from holdfast.model.names import instant_file
from holdfast.table.missing_commits import refuse_if_vanished
from holdfast.table.opened import OpenTable
from holdfast.table.pending import pending_clustering
from holdfast.table.stable_read import timeline_and_ledger
from holdfast.table.zone import timeline_zone
from holdfast.timeline.ledger import DecidedCommit, LedgerState
from holdfast.timeline.timeline import Timeline

_WAIT_MS = 5_000
"""Enough for a write that is being committed; a caller who waits for more decides that."""
_PAUSE_MS = 25
_PAUSE_MS_MAX = 500
BEGINS_WITHIN_MS = 3_000
"""How long after it has looked at its clock a write may begin. One that comes later begins anew."""
_APART_MS = 1_000
"""By so much the clocks of those that read and write a table may differ."""
_OVER_AFTER_MS = BEGINS_WITHIN_MS + _APART_MS
"""How long after a moment no write can begin at it any more, or before."""


def find_undecided_writes(table: OpenTable, timeline: Timeline, state: LedgerState) -> list[InstantTime]:
    """Writes that readers of `timeline` may yet come to see, oldest first.

    Those that are begun or pending, of other programs too, and those that are
    decided and not shown. Clustering is not among them: it changes no row.
    `TableDamaged` if the timeline has nothing of a commit that stands. In a table that is only read
    none is waited for, as in Hudi: what was left pending, nobody here can take back.
    """
    if table.settings.is_read_only:
        return []
    pending = {instant.time for instant in timeline.pending_writes}
    pending -= pending_clustering(table.store, timeline)
    return sorted(
        (pending | state.begun.keys() | _unshown_commits(table, timeline, state)) - state.aborted.keys()
    )


def _unshown_commits(table: OpenTable, timeline: Timeline, state: LedgerState) -> set[InstantTime]:
    """Commits that were decided, and begun on the timeline, if at all, since it was read."""
    known = {instant.time for instant in timeline.instants}
    missing = [time for time in state.committed if time not in known and not state.is_archived(time)]
    unshown = {
        time
        for time in missing
        if any(
            table.store.stat(instant_file(time, state.committed[time].action, reached)) is not None
            for reached in (State.INFLIGHT, State.COMPLETED)
        )
    }
    # One without them was shown, and archived or rolled back by another program; or all its files are lost.
    refuse_if_vanished(
        table,
        [
            DecidedCommit(state.committed[t].slot, t, state.committed[t].action)
            for t in missing
            if t not in unshown
        ],
    )
    return unshown


@dataclass(frozen=True, slots=True)
class SettledTimeline:
    """How far the snapshots of a table stay as they are."""

    timeline: Timeline
    undecided: InstantTime | None
    """The oldest write that is not decided."""

    @property
    def commit(self) -> Instant | None:
        """The newest commit whose snapshot does not change any more."""
        commits = self.timeline.completed_commits
        older = [one for one in commits if self.undecided is None or one.time < self.undecided]
        return older[-1] if older else None


def read_settled(table: OpenTable) -> SettledTimeline:
    timeline, state = timeline_and_ledger(table)
    return SettledTimeline(timeline, min(find_undecided_writes(table, timeline, state), default=None))


def await_settled_commit(table: OpenTable) -> SettledTimeline:
    """As `read_settled`, but that waits for the oldest commit, if even that is not settled.

    `WriterActive` if it takes too long. Without a commit if the table has none.
    """
    settled = read_settled(table)
    oldest = settled.timeline.completed_commits[:1]
    if settled.commit is None and oldest:
        await_settled(table, lambda _: oldest[0].time)
        settled = read_settled(table)
    return settled


def await_settled(table: OpenTable, named: Callable[[Timeline], InstantTime]) -> Timeline:
    """The timeline once no write up to the time that is `named` is undecided, and none can begin there.

    Waits a few seconds for it, then raises `WriterActive`, which says for whom; `UnknownInstant` for a
    moment that is still to come.
    """
    began_ms, pause_ms = table.clock.monotonic_ms(), _PAUSE_MS
    while True:
        now_ms = table.clock.now_ms()  # Before the ledger is read: what began until then is in it.
        timeline, state = timeline_and_ledger(table)
        time = named(timeline)
        undecided = find_undecided_writes(table, timeline, state)
        older = [write for write in undecided if end_of(write) <= end_of(time)]
        is_over = _is_given_out(timeline, state, time) or _is_past(table, now_ms - _OVER_AFTER_MS, time)
        if is_over and not older:
            return timeline
        if not is_over and not _is_past(table, now_ms + _OVER_AFTER_MS, time):
            raise _still_to_come(timeline, state, time)
        if older and table.clock.monotonic_ms() - began_ms >= _WAIT_MS:
            raise _snapshot_may_change(table, timeline, state, time, older[0])
        table.clock.wait_ms(pause_ms)
        pause_ms = min(2 * pause_ms, _PAUSE_MS_MAX)


def _is_given_out(timeline: Timeline, state: LedgerState, time: InstantTime) -> bool:
    """Whether an instant at that time or later is there: none gets an older one any more."""
    newest = _newest(timeline, state)
    return newest is not None and end_of(time) <= end_of(newest)


def _newest(timeline: Timeline, state: LedgerState) -> InstantTime | None:
    return max((time for time in (timeline.newest, state.newest) if time is not None), default=None)


def _is_past(table: OpenTable, now_ms: int, time: InstantTime) -> bool:
    """Whether no write would get that time, or an older one, by a clock that shows so much."""
    return next_time(now_ms, None, timeline_zone(table)) > end_of(time)


def _still_to_come(timeline: Timeline, state: LedgerState, time: InstantTime) -> UnknownInstant:
    newest = _newest(timeline, state)
    hint = "leave it out to read what is there now, or wait"
    if newest is not None:
        hint += f"; the newest instant of the table is {newest}"
    return UnknownInstant(
        "this moment is still to come, and what is written until then belongs to it", moment=time, hint=hint
    )


def _snapshot_may_change(
    table: OpenTable, timeline: Timeline, state: LedgerState, time: InstantTime, write: InstantTime
) -> WriterActive:
    begun = state.begun.get(write)
    is_gone = begun is not None and table.host.liveness(begun.owner) is Liveness.GONE
    settled = [commit.time for commit in timeline.completed_commits if commit.time < write]
    if is_gone or write in state.committed:
        hint = "its process did not finish it: holdfast rollbacks run PATH"
    else:
        hint = "wait until it has finished; if its process is gone: holdfast rollbacks run PATH"
    if settled:
        hint += f"; the newest snapshot that does not change any more is {settled[-1]}"
    return WriterActive(
        "this snapshot may still change: an older write is not decided",
        snapshot=time,
        write=write,
        owner=begun.owner if begun is not None else "another program",
        hint=hint,
    )
