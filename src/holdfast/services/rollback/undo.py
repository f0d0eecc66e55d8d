"""Taking back one instant: a pending write, or the newest commit.

A commit is taken back by a REVOKE in the ledger. From then on it counts as
aborted: its completed file is withdrawn first, so readers see the state before
it, and then a rollback removes its traces as it does those of a failed write.
"""

from collections.abc import Callable

from holdfast.concurrency.heartbeats import HeartbeatState, judge
from holdfast.concurrency.locks.open import lock_in_use
from holdfast.config.choices import FailedWritesPolicy
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS
from holdfast.errors import Refused, UnknownInstant, WriteConflict, WriterActive
from holdfast.format.ledger_entries import EntryKind, Revoked
from holdfast.model.instant import Action, Instant, InstantTime, just_before
from holdfast.model.reports import RollbackReport, TakenBack
from holdfast.services.leases import append_taking_back, refuse_if_leased
from holdfast.services.plans import refuse_beyond_plan
from holdfast.services.rollback.failed_writes import FailedWrite, find_failed_writes, partition_by_liveness
from holdfast.services.rollback.rollback import abort, finish_rollback, recover, roll_back
from holdfast.services.targets import refuse_if_doomed
from holdfast.table.archive import read_archive
from holdfast.table.missing_commits import catch_up_ledger
from holdfast.table.opened import OpenTable
from holdfast.table.pending import (
    pending_clustering,
    read_rollback_plan,
    refuse_if_restoring,
    rollbacks_by_target,
)
from holdfast.table.properties_file import drop_metadata_table
from holdfast.table.publish import load_published_timeline
from holdfast.table.stable_read import read_stable, timeline_and_ledger
from holdfast.table.view import file_paths, load_view
from holdfast.table.zone import next_instant
from holdfast.timeline.after_decision import after_decision
from holdfast.timeline.ledger import NO_COMMIT, Decision, LedgerState
from holdfast.timeline.timeline import Timeline

_FINISHED_BY_THE_NEXT = (
    "the next write or undo finishes it; before you take back another, see holdfast timeline show PATH"
)


def roll_back_instant(
    table: OpenTable, time: InstantTime, *, timeout_ms: int = HEARTBEAT_TIMEOUT_MS
) -> RollbackReport:
    """Roll back a pending write, or take back the newest commit.

    `UnknownInstant` if there is no such write, `WriterActive` if it may be
    running, `Refused` if something stands in the way, and what.
    """
    with lock_in_use(table).hold():
        return _roll_back_instant(table, time, timeout_ms)


def execute_rollback(table: OpenTable, plan: TakenBack) -> RollbackReport:
    """As `roll_back_instant`. `PlanOutdated` if the plan is about a write that has been committed since."""
    with lock_in_use(table).hold():
        return _roll_back_instant(
            table, plan.instant, HEARTBEAT_TIMEOUT_MS, may_be_committed=plan.is_committed
        )


def _roll_back_instant(
    table: OpenTable, time: InstantTime, timeout_ms: int, *, may_be_committed: bool = True
) -> RollbackReport:
    timeline, state = _show_decided(table)
    failed = {write.time: write for write in find_failed_writes(table, timeline, state)}
    if time in failed:
        return _roll_back_pending(table, failed[time], timeout_ms)
    instant = _find_completed(timeline, time)
    if not may_be_committed:
        refuse_beyond_plan((), [time])
    return _take_back(table, instant, lambda timeline, state: _check(table, instant, timeline, state))


def undo(table: OpenTable) -> RollbackReport:
    """Take back the newest commit, after what dead writers left; or finish an undo that was begun."""
    with lock_in_use(table).hold():
        return _undo(table)


def _undo(table: OpenTable) -> RollbackReport:
    newest = find_interrupted_undo(table) or _newest_commit(table)
    try:
        return _roll_back_instant(table, newest, HEARTBEAT_TIMEOUT_MS)
    except UnknownInstant as error:
        raise WriteConflict(
            "the commit was taken back by another process",
            instant=newest,
            hint="look at the timeline before you undo another",
        ) from error


def _newest_commit(table: OpenTable) -> InstantTime:
    recover(table)
    newest = _show_decided(table)[0].last_commit
    if newest is None:
        raise Refused("there is no commit to undo", table=table.settings.name)
    return newest.time


def find_interrupted_undo(table: OpenTable) -> InstantTime | None:
    """The commit that the ledger took back and whose rollback is not completed."""
    timeline, state = timeline_and_ledger(table)
    failed = (
        write.time for write in find_failed_writes(table, timeline, state) if write.time in state.aborted
    )
    return next((time for time in failed if state.aborted[time].revoked_by is not None), None)


def check_undo(table: OpenTable, time: InstantTime) -> Instant:
    """The commit, if it could be taken back now; what stands in the way otherwise. Changes nothing."""
    timeline, state = timeline_and_ledger(table)
    refuse_if_restoring(timeline, state)
    instant = _find_completed(timeline, time)
    _check(table, instant, timeline, state)
    return instant


def _show_decided(table: OpenTable) -> tuple[Timeline, LedgerState]:
    table.settings.check_changeable()
    timeline, state = catch_up_ledger(table)
    refuse_if_restoring(timeline, state)
    return load_published_timeline(table, state), state


def _roll_back_pending(table: OpenTable, write: FailedWrite, timeout_ms: int) -> RollbackReport:
    statuses = judge(table, {write.time: write.owner}, timeout_ms=timeout_ms)
    _, left = partition_by_liveness(table, [write], statuses, policy=FailedWritesPolicy.EAGER)
    # A process may live that has nothing to do with this table: it writes to the one this was copied from.
    if left and statuses[write.time].state is not HeartbeatState.EXPIRED:
        raise WriterActive(
            "this write may be running",
            instant=write.time,
            owner=write.owner or "another program",
            hint="stop it, or wait until its heartbeat has expired: holdfast heartbeats show PATH",
        )
    drop_metadata_table(table)
    aborted = abort(table, write, reason="rolled back by hand")
    with after_decision("the write is rolled back", instant=write.time, hint=_FINISHED_BY_THE_NEXT):
        report = finish_rollback(table, write, aborted)
    if report is None:
        raise WriteConflict(
            "the write was committed, or a restore took it back, in the meantime",
            instant=write.time,
            hint="look at the timeline; the newest commit can be taken back",
        )
    return report


def _take_back(
    table: OpenTable, instant: Instant, check: Callable[[Timeline, LedgerState], None]
) -> RollbackReport:
    def decide(state: LedgerState) -> Decision | None:
        if instant.time in state.aborted:
            return None
        timeline = load_published_timeline(table, state)
        check(timeline, state)
        known = [time for time in (timeline.newest, state.newest) if time is not None]
        first = next_instant(table, max(known))
        rollback = _find_begun_rollback(table, instant.time, timeline, state) or first
        return Decision(
            kind=EntryKind.REVOKE,
            instant=first,
            action=Action.ROLLBACK,
            revoked=(Revoked(instant.time, instant.action, rollback),),
            reason="taken back by hand",
        )

    append_taking_back(table, decide)
    with after_decision("the commit is taken back", instant=instant.time, hint=_FINISHED_BY_THE_NEXT):
        drop_metadata_table(table)
        report = roll_back(table, FailedWrite(instant.time, instant.action, None, None))
    if report is None:
        raise WriteConflict("a restore has taken the commit back", instant=instant.time)
    return report


def _find_begun_rollback(
    table: OpenTable, time: InstantTime, timeline: Timeline, state: LedgerState
) -> InstantTime | None:
    """The rollback of a commit that is under way in a copy or by another program, if we can carry it out."""
    rollback = rollbacks_by_target(table.store, timeline).get(time)
    if rollback is None or state.has_left(rollback):
        return None
    plan = read_rollback_plan(table.store, rollback)
    has_log_blocks = plan is None or any(request.log_blocks for request in plan.requests)
    return None if has_log_blocks else rollback


def _find_completed(timeline: Timeline, time: InstantTime) -> Instant:
    for instant in timeline.completed_commits:
        if instant.time == time:
            return instant
    raise UnknownInstant(
        "no write on the active timeline has this time",
        instant=time,
        hint="holdfast timeline show PATH lists the instants; archived commits cannot be rolled back",
    )


def _check(table: OpenTable, instant: Instant, timeline: Timeline, state: LedgerState) -> None:
    refuse_if_restoring(timeline, state)
    later = [other.time for other in timeline.completed_commits if other.time > instant.time]
    if later:
        raise Refused(
            "there are commits after this one",
            instant=instant.time,
            after=len(later),
            newest=later[-1],
            hint="take back the newest first, or restore the table to the commit before this one",
        )
    if instant.time in state.savepoints or timeline.find(instant.time, Action.SAVEPOINT) is not None:
        raise Refused(
            "the commit is savepointed",
            instant=instant.time,
            hint=f"delete the savepoint first: holdfast savepoint delete PATH --commit {instant.time}",
        )
    if timeline.completed_commits[0] == instant and _has_archive(table, state):
        raise Refused(
            "the commits before this one are archived",
            instant=instant.time,
            hint="the timeline must keep a commit: write the rows as they are to be instead",
        )
    refuse_if_leased(table, after=just_before(instant.time))
    _refuse_if_planned_on(table, timeline)
    # Raises SnapshotExpired or TableDamaged if the state before it is not there any more.
    before = read_stable(
        table.store, lambda now: load_view(table.store, now).latest(just_before(instant.time))
    )
    refuse_if_doomed(table, timeline, state, file_paths(before))


def _has_archive(table: OpenTable, state: LedgerState) -> bool:
    """Whether there were commits before those on the timeline."""
    if state.archive is not None and state.archive.until != NO_COMMIT:
        return True
    return bool(read_archive(table.store, table.settings).timeline.completed_commits)


def _refuse_if_planned_on(table: OpenTable, timeline: Timeline) -> None:
    services = (Action.COMPACTION, Action.LOGCOMPACTION)
    planned = [i.time for i in timeline.instants if i.action in services and not i.is_completed]
    planned += pending_clustering(table.store, timeline)
    if planned:
        raise Refused(
            "a compaction or clustering is planned on this table",
            instant=min(planned),
            hint="let it run first",
        )
