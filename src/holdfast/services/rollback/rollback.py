"""Rollback: remove every trace of a write that did not finish, or was taken back.

First the ledger says ABORT, which fences the writer for good and names the
rollback's own instant. Then a plan is stored, then exactly that plan is
carried out: completed (of a commit that was taken back), inflight, data files,
markers, heartbeat, requested, and last the completed rollback. A process that finds a
rollback half done repeats its stored plan; every step may be repeated by
several at once.

Whom to roll back is a matter of policy. A heartbeat only tells when it is
worth trying; the ledger decides.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from holdfast.concurrency.heartbeats import judge
from holdfast.concurrency.locks.open import lock_in_use
from holdfast.config.choices import FailedWritesPolicy, TableType
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS
from holdfast.errors import StorageUnavailable, TableDamaged
from holdfast.exports.follow import follow, move_before_deletion
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.properties import is_sealed
from holdfast.format.rollbacks import RollbackPlan, encode_rollback_metadata, encode_rollback_plan
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import (
    heartbeat_path,
    instant_file,
)
from holdfast.model.reports import RollbackReport
from holdfast.services.rollback.command_blocks import take_back_blocks
from holdfast.services.rollback.compaction_attempts import end_attempt, forget_left_plans, forget_plan
from holdfast.services.rollback.doomed_files import Doomed, files_of_plan, plan_rollback
from holdfast.services.rollback.failed_writes import (
    FailedWrite,
    find_failed_writes,
    partition_by_liveness,
    suspects,
)
from holdfast.services.rollback.record import Removed, rollback_metadata
from holdfast.services.sweep import files_of_markers, sweep
from holdfast.table.log_files import (
    files_of_write,
)
from holdfast.table.markers import delete_markers
from holdfast.table.missing_commits import catch_up_ledger
from holdfast.table.opened import OpenTable
from holdfast.table.pending import (
    forget_rollbacks,
    read_rollback_plan,
    refuse_if_restoring,
)
from holdfast.table.properties_file import change_settings, drop_metadata_table, read_current_settings
from holdfast.table.publish import checkpoint_if_due, forget_savepoint, publish_decided, withdraw
from holdfast.table.zone import next_instant, restore_record
from holdfast.timeline.after_decision import after_decision
from holdfast.timeline.ledger import Aborted, Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of the writes that were not completed."""

    rolled_back: tuple[RollbackReport, ...]
    left: tuple[FailedWrite, ...]
    """Writes that may be running."""


def roll_back_failed_writes(
    table: OpenTable, *, only: Collection[InstantTime] | None = None
) -> tuple[RollbackReport, ...]:
    """Recover under the lock that the table's writers use; as `recover`."""
    with lock_in_use(table).hold():
        return recover_on_request(table, only=only).rolled_back


def recover_on_request(
    table: OpenTable,
    *,
    policy: FailedWritesPolicy = FailedWritesPolicy.EAGER,
    only: Collection[InstantTime] | None = None,
) -> Recovery:
    """Recover for somebody who asked for nothing else. `OutcomeUnknown` if only a part was done."""
    known = table.ledger.read().aborted
    try:
        recovery = recover(table, policy=policy, only=only)
        follow(table)
        return recovery
    except StorageUnavailable:
        fenced = sorted(table.ledger.known.aborted.keys() - known.keys())
        if not fenced:
            raise
        with after_decision(
            "writes are rolled back", instants=", ".join(fenced), hint="the next operation finishes it"
        ):
            raise


def recover(
    table: OpenTable,
    *,
    policy: FailedWritesPolicy = FailedWritesPolicy.EAGER,
    timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
    only: Collection[InstantTime] | None = None,
) -> Recovery:
    """Finish what was decided and roll back, newest first, what no process can finish any more.

    Afterwards the left-overs of decided instants are swept. `Refused` while a
    restore is pending. With `only`, other failed writes wait for the next call.
    """
    # Another program may have upgraded the table since it was opened.
    settings = read_current_settings(table)
    settings.check_changeable()
    if not table.is_new and not is_sealed(settings.properties):
        change_settings(table.store, {}, now_ms=table.clock.now_ms())
    timeline, state = catch_up_ledger(table)
    refuse_if_restoring(timeline, state)
    restore_record(table, state)
    if publish_decided(table, state, timeline):
        timeline = load_timeline(table.store)
    checkpoint_if_due(table, state)
    failed = find_failed_writes(table, timeline, state)
    if policy is FailedWritesPolicy.NEVER:
        return Recovery((), failed)
    forget_torn_rollbacks(table, timeline)
    _forget_savepoints(table, timeline, state)
    forget_left_plans(table, timeline, table.ledger.read())
    forget_rollbacks(table.store, timeline, state)
    statuses = judge(table, suspects(table, failed, policy), timeout_ms=timeout_ms)
    abandoned, left = partition_by_liveness(table, failed, statuses, policy=policy)
    if only is not None:
        left += tuple(write for write in abandoned if write.time not in only)
        abandoned = tuple(write for write in abandoned if write.time in only)
    if abandoned:
        drop_metadata_table(table)
    attempted = [roll_back(table, write) for write in abandoned]
    sweep(table)
    return Recovery(tuple(report for report in attempted if report is not None), left)


def roll_back(
    table: OpenTable, write: FailedWrite, *, reason: str = "the writer did not finish"
) -> RollbackReport | None:
    """Abort the write in the ledger, then remove its traces.

    None if the write was committed in the meantime, and is published then, or
    if a restore took it back. A crash at any point leaves a rollback that the
    next caller of `recover` finishes. Of a compaction only the attempt ends, and
    its plan stays.
    """
    if write.action is Action.COMPACTION and write.rollback is None:
        if not end_attempt(table, write, reason=reason):
            publish_decided(table, table.ledger.read(), load_timeline(table.store))
        return None
    return finish_rollback(table, write, abort(table, write, reason=reason))


def finish_rollback(table: OpenTable, write: FailedWrite, state: LedgerState) -> RollbackReport | None:
    """Remove the traces of a write that `state` aborted; None as for `roll_back`."""
    began_ms = table.clock.monotonic_ms()
    aborted = state.aborted.get(write.time)
    if aborted is None:
        publish_decided(table, state, load_timeline(table.store))
        return None
    try:
        plan, removed = carry_out(table, write, aborted)
    except TableDamaged:
        if table.ledger.read().aborted[write.time].restore is None:
            raise
        return None  # A restore has taken it over, finished it and forgotten the plan.
    took_ms = table.clock.monotonic_ms() - began_ms
    rollback = aborted.rollback
    metadata = rollback_metadata(table.store, plan, removed, rollback, took_ms=took_ms)
    completed = instant_file(rollback, Action.ROLLBACK, State.COMPLETED)
    table.store.create(completed, encode_rollback_metadata(metadata))
    log.info(
        "rollback.completed",
        extra={
            "table": table.store.uri(""),
            "instant": rollback,
            "rolled_back": write.time,
            "deleted": len(removed.deleted),
            "took_ms": took_ms,
        },
    )
    return RollbackReport(
        instant=rollback,
        rolled_back=write.time,
        action=write.action,
        deleted=removed.deleted,
        took_ms=took_ms,
    )


def carry_out(table: OpenTable, write: FailedWrite, aborted: Aborted) -> tuple[RollbackPlan, Removed]:
    """Remove the traces of a write that the ledger aborted; the plan, and what became of its files."""
    plan = _ensure_plan(table, write, aborted)
    table.store.create(instant_file(aborted.rollback, Action.ROLLBACK, State.INFLIGHT), b"")
    return plan, _execute(table, write, aborted, files_of_plan(table, plan, write))


def abort(table: OpenTable, write: FailedWrite, *, reason: str) -> LedgerState:
    """Decide that the write never commits, unless it is decided already."""
    time, action, adopt = write.time, write.action, write.rollback
    timeline = load_timeline(table.store)
    newest = timeline.newest
    is_shown = any(instant.time == time for instant in timeline.pending_writes)
    completed = instant_file(time, action, State.COMPLETED)

    def decide(state: LedgerState) -> Decision | None:
        if time in state.committed or time in state.aborted or table.store.stat(completed) is not None:
            return None
        # What is archived was decided. So was what no entry begins: a checkpoint may have passed it.
        if state.is_archived(time) or (time not in state.begun and not is_shown):
            return None
        newest_known = max((t for t in (newest, state.newest, time) if t is not None), default=None)
        rollback = adopt or next_instant(table, newest_known)
        return Decision(kind=EntryKind.ABORT, instant=time, action=action, rollback=rollback, reason=reason)

    return table.ledger.append(decide)


def _ensure_plan(table: OpenTable, write: FailedWrite, aborted: Aborted) -> RollbackPlan:
    """The plan in storage; the first one stored is the one everybody carries out."""
    path = instant_file(aborted.rollback, Action.ROLLBACK, State.REQUESTED)
    if table.store.stat(path) is None:
        plan = plan_rollback(table, write, is_revoked=aborted.revoked_by is not None)
        table.store.create(path, encode_rollback_plan(plan))
    stored = read_rollback_plan(table.store, aborted.rollback)
    if stored is None:
        raise TableDamaged("the plan of a rollback cannot be read", file=path)
    if stored.target != write.time:
        raise TableDamaged("a rollback plan names another instant", file=path, target=stored.target)
    return stored


def forget_torn_rollbacks(table: OpenTable, timeline: Timeline) -> None:
    """Remove requests whose plan cannot be read: nothing was carried out, a new one will be made.

    One that is inflight is reported and left: it may have been carried out in part.
    """
    for instant in timeline.pending_rollbacks:
        if read_rollback_plan(table.store, instant.time) is not None:
            continue
        if instant.state is State.REQUESTED:
            table.store.delete(instant_file(instant.time, instant.action, State.REQUESTED))
        log.warning(
            "rollback.unreadable",
            extra={"table": table.store.uri(""), "instant": instant.time, "state": instant.state},
        )


def _forget_savepoints(table: OpenTable, timeline: Timeline, state: LedgerState) -> None:
    """Remove savepoints that were begun and never decided, or deleted only in part."""
    for instant in timeline.pending_savepoints:
        if instant.time not in state.savepoints:
            forget_savepoint(table, instant.time)


def _execute(table: OpenTable, write: FailedWrite, aborted: Aborted, doomed: Doomed) -> Removed:
    completed = instant_file(write.time, write.action, State.COMPLETED)
    if aborted.revoked_by is not None:
        withdraw(table, write.time, write.action)
        move_before_deletion(table)
    elif table.store.stat(completed) is not None:
        raise TableDamaged("an instant is completed although it was aborted", file=completed)
    # The inflight file goes first. A task that finishes a file looks for it afterwards and
    # withdraws the file if it is gone; a file it kept was announced by a marker read below.
    table.store.delete(instant_file(write.time, write.action, State.INFLIGHT))
    late = files_of_markers(table, write.time, committed=frozenset())
    shared = dict.fromkeys((*doomed.shared, *late.shared))
    # A log file that others wrote to may have become one that only this write is in, or be gone.
    found = files_of_write(table.store, shared, write.time)
    blocks = take_back_blocks(table.store, found.shared, rollback=aborted.rollback, target=write.time)
    failed = table.store.delete_all(dict.fromkeys((*doomed.files, *late.own, *found.own)))
    if failed:
        raise StorageUnavailable(
            "files of a failed write could not be deleted", first=failed[0], count=len(failed)
        )
    delete_markers(table.store, write.time)
    table.store.delete(heartbeat_path(write.time))
    table.store.delete(instant_file(write.time, write.action, State.REQUESTED))
    if write.action is Action.COMMIT and table.settings.table_type is TableType.MERGE_ON_READ:
        forget_plan(table, write.time)  # Or the compaction that it was would be pending again.
    gone = (path for path in doomed.shared if path not in blocks.held)
    return Removed((*doomed.files, *gone), blocks)
