"""What a restore takes back: every commit younger than its target, and every write that is not finished.

Nothing here changes anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import HoldfastError, Refused, SnapshotExpired, TableDamaged, UnknownInstant
from holdfast.model.instant import Action, Instant, InstantTime, end_of
from holdfast.model.reports import RestorePlan
from holdfast.read.snapshot import Moment
from holdfast.services.leases import refuse_if_leased
from holdfast.services.previews import taken_back
from holdfast.services.rollback import FailedWrite, failed_writes
from holdfast.services.targets import commit_at, instant_named, refuse_if_doomed
from holdfast.table.opened import OpenTable
from holdfast.table.restoring import pending_restore, refuse_if_restoring
from holdfast.table.steady import timeline_and_ledger
from holdfast.table.view import View, load_view
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Younger:
    """What there is beyond the target of a restore, each newest first."""

    clustering: tuple[FailedWrite, ...]
    """Plans that another program made; they go first."""
    commits: tuple[FailedWrite, ...]
    unfinished: tuple[FailedWrite, ...]
    """Pending writes, of any age if they are ours, and writes whose rollback is not finished."""
    rolled_back: tuple[FailedWrite, ...]
    """Nothing is left of them but the rollback on the timeline."""

    @property
    def taken_back(self) -> tuple[FailedWrite, ...]:
        """In the order in which they are taken back."""
        return (*self.clustering, *_newest_first((*self.commits, *self.unfinished)))


def plan_restore(table: OpenTable, to: Moment) -> RestorePlan:
    """What going back to a commit would take; what stands in the way of it, except running writes."""
    table.settings.check_changeable()
    timeline, state = timeline_and_ledger(table)
    target = restore_target(timeline, state, to).time
    snapshot = snapshot_at(table, timeline, target)
    restoring = pending_restore(timeline, state)
    if restoring is not None:
        aborted = state.aborted.items()
        left = [
            FailedWrite(t, a.action, None, a.rollback) for t, a in aborted if a.restore == restoring.instant
        ]
    else:
        check_restore(timeline, state, target)
        refuse_if_doomed(table, timeline, state, snapshot["path"])
        refuse_if_leased(table, after=target)
        left = list(younger(table, timeline, state, target).taken_back)
    return RestorePlan(
        target=target,
        instants=tuple(taken_back(table, write, state) for write in _newest_first(left)),
        resumes=None if restoring is None else restoring.instant,
    )


def restore_target(timeline: Timeline, state: LedgerState, to: Moment) -> Instant:
    """The commit to go back to. `Refused` if another restore is not finished."""
    restoring = pending_restore(timeline, state)
    if restoring is None:
        refuse_if_restoring(timeline, state)
    else:
        asked = instant_named(to) or commit_at(timeline, to).time
        if asked != restoring.to:
            raise Refused(
                "a restore to another commit is not finished",
                restore=restoring.instant,
                to=restoring.to,
                asked=asked,
                hint=f"finish it first: holdfast restore PATH --to {restoring.to}",
            )
    return commit_at(timeline, to)


def check_restore(timeline: Timeline, state: LedgerState, target: InstantTime) -> None:
    """Whether a restore may begin, as far as the timeline and the ledger tell."""
    refuse_if_restoring(timeline, state)
    if target in state.aborted or target not in {commit.time for commit in timeline.completed_commits}:
        raise UnknownInstant("the commit was taken back in the meantime", instant=target)
    if state.is_archived(target):
        raise Refused(
            "commits after this one are archived, and cannot be taken back",
            target=target,
            hint=f"the table can be restored to commits after {state.archive and state.archive.until}",
        )
    shown = {i.time for i in timeline.instants if i.action is Action.SAVEPOINT and i.is_completed}
    lost = sorted(time for time in shown | set(state.savepoints) if time > target)
    if lost:
        raise Refused(
            "there are savepoints after this commit",
            target=target,
            savepoints=", ".join(lost),
            hint=f"delete them first: holdfast savepoint delete PATH --commit {lost[-1]}",
        )


def snapshot_at(table: OpenTable, timeline: Timeline, target: InstantTime) -> pa.Table:
    """The base files of the target's snapshot; all of them are there.

    `SnapshotExpired` or `TableDamaged` otherwise, naming the nearest commit that is whole.
    """
    view = load_view(table.store, timeline)
    try:
        return view.latest(end_of(target))
    except (SnapshotExpired, TableDamaged) as error:
        whole = _oldest_whole(view, [c.time for c in timeline.completed_commits if c.time > target])
        hint = f"the oldest commit the table can be restored to is {whole}" if whole else error.hint
        raise type(error)(error.message, hint=hint, **error.facts) from error


def younger(table: OpenTable, timeline: Timeline, state: LedgerState, target: InstantTime) -> Younger:
    """What a restore to the target takes back."""
    failed = {write.time: write for write in failed_writes(table, timeline, state)}
    decided = failed.keys() | state.aborted.keys()
    commits: list[FailedWrite] = []
    clustering: list[FailedWrite] = []
    for instant in (*timeline.completed_commits, *timeline.pending_writes):
        if instant.time > target and instant.time not in decided:
            is_commit = instant.is_completed or instant.time in state.committed
            write = FailedWrite(instant.time, instant.action, None, None)
            (commits if is_commit else clustering).append(write)
    unfinished = [
        write
        for write in failed.values()
        if write.time > target or write.time in state.begun or (write.rollback or "") > target
    ]
    rolled_back = [
        FailedWrite(time, aborted.action, None, aborted.rollback)
        for time, aborted in state.aborted.items()
        if aborted.restore is None and aborted.rollback > target and time not in failed
    ]
    return Younger(*map(_newest_first, (clustering, commits, unfinished, rolled_back)))


def _newest_first(writes: Iterable[FailedWrite]) -> tuple[FailedWrite, ...]:
    return tuple(sorted(writes, key=lambda write: write.time, reverse=True))


def _oldest_whole(view: View, times: list[InstantTime]) -> InstantTime | None:
    for time in times:
        try:
            view.latest(end_of(time))
        except HoldfastError:
            continue
        return time
    return None
