"""What a restore takes back: every commit younger than its target, and every write that is not finished.

Nothing here changes anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import HoldfastError, Refused, SnapshotExpired, TableDamaged, UnknownInstant
from holdfast.model.instant import Action, InstantTime, end_of, just_before
from holdfast.model.names import SHOWN_AS
from holdfast.model.reports import RestorePlan, TakenBack
from holdfast.read.snapshot import Moment
from holdfast.services.clean.plan import savepoint_times
from holdfast.services.leases import refuse_if_leased
from holdfast.services.rollback.failed_writes import FailedWrite, find_failed_writes
from holdfast.services.rollback.plan import describe_archived, describe_write
from holdfast.services.targets import commit_at, instant_named, refuse_if_doomed
from holdfast.table.archive import read_archive
from holdfast.table.counted_logs import with_counted_logs
from holdfast.table.opened import OpenTable
from holdfast.table.pending import pending_restore, refuse_if_restoring, restores_to_take_over
from holdfast.table.stable_read import timeline_and_ledger
from holdfast.table.view import View, file_paths, load_view
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Younger:
    """What there is beyond the target of a restore, each newest first."""

    planned: tuple[FailedWrite, ...]
    """Plans of compactions and clusterings; they go first."""
    commits: tuple[FailedWrite, ...]
    unfinished: tuple[FailedWrite, ...]
    """Pending writes, of any age if they are ours, and writes whose rollback is not finished."""
    rolled_back: tuple[FailedWrite, ...]
    """Nothing is left of them but the rollback on the timeline."""

    @property
    def taken_back(self) -> tuple[FailedWrite, ...]:
        """In the order in which they are taken back."""
        return (*self.planned, *_newest_first((*self.commits, *self.unfinished)))


def plan_restore(table: OpenTable, to: Moment) -> RestorePlan:
    """What going back to a commit would take; what stands in the way of it, except running writes."""
    table.settings.check_changeable()
    timeline, state = timeline_and_ledger(table)
    target = restore_target(table, timeline, state, to)
    snapshot = snapshot_at(table, timeline, target)
    restoring = pending_restore(timeline, state)
    if restoring is not None:
        aborted = state.aborted.items()
        left = [
            FailedWrite(t, a.action, None, a.rollback) for t, a in aborted if a.restore == restoring.instant
        ]
    else:
        check_restore(table, timeline, state, target)
        refuse_if_doomed(table, timeline, state, file_paths(snapshot))
        refuse_if_leased(table, after=target)
        left = list(younger(table, timeline, state, target).taken_back)
    shown = [describe_write(table, write, state) for write in _newest_first(left)]
    return RestorePlan(
        target=target,
        instants=(*shown, *_describe_archived_beyond(table, timeline, state, target)),
        resumes=None if restoring is None else restoring.instant,
    )


def _describe_archived_beyond(
    table: OpenTable, timeline: Timeline, state: LedgerState, target: InstantTime
) -> list[TakenBack]:
    """What goes of what is archived, where the target is archived, too."""
    restoring = pending_restore(timeline, state)
    if restoring is not None:
        if (target, restoring.instant) not in state.restored:
            return []
        return [describe_archived(*one) for one in commits_archived_between(table, target, restoring.instant)]
    if not state.is_archived(target):
        return []
    shown = {commit.time for commit in timeline.completed_commits}
    found = commits_archived_between(table, target)
    return [
        describe_archived(write, content)
        for write, content in found
        if write.time not in shown and not state.is_taken_back(write.time)
    ]


def restore_target(table: OpenTable, timeline: Timeline, state: LedgerState, to: Moment) -> InstantTime:
    """The commit to go back to, which may be archived if it is savepointed.

    `Refused` if another restore is not finished.
    """
    named = instant_named(table, to)
    restoring = pending_restore(timeline, state)
    if restoring is None:
        refuse_if_restoring(
            timeline, state, unless=restores_to_take_over(table.store, timeline, state, named)
        )
    else:
        asked = named or commit_at(table, timeline, to).time
        if asked != restoring.to:
            raise Refused(
                "a restore to another commit is not finished",
                restore=restoring.instant,
                to=restoring.to,
                asked=asked,
                hint=f"finish it first: holdfast restore PATH --to {restoring.to}",
            )
        return asked
    if named is not None and named in savepoint_times(timeline, state):
        return named
    return commit_at(table, timeline, to).time


def check_restore(table: OpenTable, timeline: Timeline, state: LedgerState, target: InstantTime) -> None:
    """Whether a restore may begin, as far as the timeline, the archive and the ledger tell."""
    refuse_if_restoring(timeline, state, unless=restores_to_take_over(table.store, timeline, state, target))
    saved = savepoint_times(timeline, state)
    is_shown = target in {commit.time for commit in timeline.completed_commits}
    if state.is_taken_back(target) or not (is_shown or state.is_archived(target)):
        raise UnknownInstant("the commit was taken back in the meantime", instant=target)
    if state.is_archived(target) and target not in saved:
        raise Refused(
            "the commit is being archived, and has no savepoint",
            target=target,
            hint=f"the table can be restored to commits after {state.archive and state.archive.until}",
        )
    if not is_shown:
        _refuse_if_lost(table, target)
    lost = sorted(time for time in saved if time > target)
    if lost:
        raise Refused(
            "there are savepoints after this commit",
            target=target,
            savepoints=", ".join(lost),
            hint=f"delete them first: holdfast savepoint delete PATH --commit {lost[-1]}",
        )


def _refuse_if_lost(table: OpenTable, target: InstantTime) -> None:
    if target not in {write.time for write, _ in commits_archived_between(table, just_before(target))}:
        raise TableDamaged(
            "a savepointed commit is neither on the timeline nor in the archive", instant=target
        )


def snapshot_at(table: OpenTable, timeline: Timeline, target: InstantTime) -> pa.Table:
    """The file slices of the target's snapshot; all of their files are there.

    `SnapshotExpired` or `TableDamaged` otherwise, naming the nearest commit that is whole.
    """
    view = load_view(table.store, timeline)
    try:
        return with_counted_logs(view, view.latest(end_of(target)), target)
    except (SnapshotExpired, TableDamaged) as error:
        whole = _oldest_whole(view, [c.time for c in timeline.completed_commits if c.time > target])
        hint = f"the oldest commit the table can be restored to is {whole}" if whole else error.hint
        raise type(error)(error.message, hint=hint, **error.facts) from error


def commits_archived_between(
    table: OpenTable, after: InstantTime, before: InstantTime | None = None
) -> list[tuple[FailedWrite, bytes]]:
    """The commits that left the timeline, between two instants, newest first, with what they say.

    Those are left out that a restore before the second one has taken back.
    """
    archived = read_archive(table.store, table.settings, before=before)
    if not archived.is_whole:
        raise TableDamaged("the archived timeline cannot be read, which tells what is to be taken back")
    found: list[tuple[FailedWrite, bytes]] = []
    for commit in reversed(archived.timeline.completed_commits):
        content = archived.content(commit.time, commit.action)
        if after < commit.time and (before is None or commit.time < before) and content is not None:
            found.append((FailedWrite(commit.time, commit.action, None, None), content))
    return found


def younger(table: OpenTable, timeline: Timeline, state: LedgerState, target: InstantTime) -> Younger:
    """What a restore to the target takes back."""
    failed = {write.time: write for write in find_failed_writes(table, timeline, state)}
    decided = failed.keys() | state.aborted.keys()
    commits: list[FailedWrite] = []
    services = (i for i in timeline.instants if i.action in SHOWN_AS and not i.is_completed)
    planned = [
        FailedWrite(i.time, i.action, None, None)
        for i in services
        if i.time > target and i.time not in decided
    ]
    for instant in (*timeline.completed_commits, *timeline.pending_writes):
        if instant.time > target and instant.time not in decided:
            is_commit = instant.is_completed or instant.time in state.committed
            write = FailedWrite(instant.time, instant.action, None, None)
            (commits if is_commit else planned).append(write)
    unfinished = [
        write
        for write in failed.values()
        if write.time > target
        or (write.time in state.begun and write.action is not Action.COMPACTION)
        or (write.rollback or "") > target
    ]
    rolled_back = [
        FailedWrite(time, aborted.action, None, aborted.rollback)
        for time, aborted in state.aborted.items()
        if aborted.restore is None and aborted.rollback > target and time not in failed
    ]
    return Younger(*map(_newest_first, (planned, commits, unfinished, rolled_back)))


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
