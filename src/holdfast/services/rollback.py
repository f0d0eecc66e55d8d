"""Rollback: remove every trace of a write that did not finish, or was taken back.

First the ledger says ABORT, which fences the writer for good and names the
rollback's own instant. Then a plan is stored, then exactly that plan is
carried out: completed (of a commit that was taken back), inflight, data files,
markers, heartbeat, requested, and last the completed rollback. Whoever finds a
rollback half done repeats its stored plan; every step may be repeated by
several at once.

Whom to roll back is a matter of policy. A heartbeat only tells when it is
worth trying; the ledger decides.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.concurrency.heartbeats import HeartbeatState, HeartbeatStatus, judge
from holdfast.concurrency.locks.open import recorded_lock
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS, FailedWritesPolicy
from holdfast.errors import StorageUnavailable, TableDamaged, UnsupportedTable
from holdfast.format.commits import decode_written_files
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.malformed import Malformed
from holdfast.format.replace_requests import decode_replace_request
from holdfast.format.rollbacks import (
    RollbackMetadata,
    RollbackPlan,
    RollbackRequest,
    RolledBackInstant,
    RolledBackPartition,
    encode_rollback_metadata,
    encode_rollback_plan,
)
from holdfast.host import Liveness, Owner
from holdfast.model.instant import Action, Instant, InstantTime, State, next_time
from holdfast.model.names import (
    META_FOLDER,
    heartbeat_path,
    in_partition,
    instant_file,
    is_file_of,
    partition_of,
)
from holdfast.model.reports import RollbackReport
from holdfast.services.sweep import sweep, unclaimed_files
from holdfast.storage.store import read_or_none
from holdfast.table.markers import delete_markers, read_markers
from holdfast.table.metadata_table import drop_metadata_table
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import read_settings
from holdfast.table.publish import publish_decided, withdraw
from holdfast.table.restoring import forget_rollbacks, refuse_if_restoring
from holdfast.table.rollback_plans import pending_plans, read_plan
from holdfast.table.steady import timeline_and_ledger
from holdfast.timeline.ledger import Aborted, Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """A write that is not completed, and what is known of its fate."""

    time: InstantTime
    action: Action
    owner: Owner | None
    """None if another program began it."""
    rollback: InstantTime | None
    """The instant of a rollback that was begun for it."""
    shared: bool = False
    """Whether its writer admits others at the same time."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of the writes that were not completed."""

    rolled_back: tuple[RollbackReport, ...]
    left: tuple[FailedWrite, ...]
    """Writes that may be running."""


def roll_back_failed_writes(table: OpenTable) -> tuple[RollbackReport, ...]:
    """Recover by hand, under the lock that the table's writers use."""
    with recorded_lock(table).hold():
        return recover(table).rolled_back


def recover(
    table: OpenTable,
    *,
    policy: FailedWritesPolicy = FailedWritesPolicy.EAGER,
    timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
) -> Recovery:
    """Finish what was decided and roll back, newest first, what nobody can finish any more.

    Afterwards the left-overs of decided instants are swept. `Refused` while a
    restore is pending.
    """
    # Another program may have upgraded the table since it was opened.
    read_settings(table.store).check_changeable()
    timeline, state = timeline_and_ledger(table)
    refuse_if_restoring(timeline, state)
    if publish_decided(table, state, timeline):
        timeline = load_timeline(table.store)
    failed = failed_writes(table, timeline, state)
    if policy is FailedWritesPolicy.NEVER:
        return Recovery((), failed)
    forget_torn_rollbacks(table, timeline)
    _forget_savepoints(table, timeline, state)
    forget_rollbacks(table.store, timeline, state)
    statuses = judge(table, _suspects(table, failed, policy), timeout_ms=timeout_ms)
    abandoned, left = sort_out(table, failed, statuses, policy=policy)
    if abandoned:
        drop_metadata_table(table)
    attempted = [roll_back(table, write) for write in abandoned]
    sweep(table)
    return Recovery(tuple(report for report in attempted if report is not None), left)


def sort_out(
    table: OpenTable,
    failed: Iterable[FailedWrite],
    statuses: Mapping[InstantTime, HeartbeatStatus],
    *,
    policy: FailedWritesPolicy,
) -> tuple[tuple[FailedWrite, ...], tuple[FailedWrite, ...]]:
    """Those that nobody can finish any more, and those that may be running. Changes nothing."""
    writes = tuple(failed)
    abandoned = tuple(w for w in writes if _is_abandoned(table, w, statuses.get(w.time), policy))
    return abandoned, tuple(write for write in writes if write not in abandoned)


def _is_abandoned(
    table: OpenTable, write: FailedWrite, status: HeartbeatStatus | None, policy: FailedWritesPolicy
) -> bool:
    if write.rollback is not None:
        return True
    liveness = Liveness.UNKNOWN if write.owner is None else table.host.liveness(write.owner)
    if liveness is Liveness.GONE:
        return True
    is_expired = status is not None and status.state is HeartbeatState.EXPIRED
    if write.shared:
        return is_expired
    if liveness is Liveness.ALIVE:
        return False
    # With one writer at a time, the one that begins now is it; a foreign one that beats is not alone.
    is_eager = policy is FailedWritesPolicy.EAGER
    return is_expired or (is_eager and (write.owner is not None or status is None))


def _suspects(
    table: OpenTable, failed: Iterable[FailedWrite], policy: FailedWritesPolicy
) -> dict[InstantTime, Owner | None]:
    """The writes whose heartbeat matters."""
    return {
        write.time: write.owner
        for write in failed
        if write.rollback is None
        and (
            write.shared
            or policy is FailedWritesPolicy.LAZY
            or (write.owner is None and table.store.stat(heartbeat_path(write.time)) is not None)
        )
    }


def failed_writes(table: OpenTable, timeline: Timeline, state: LedgerState) -> tuple[FailedWrite, ...]:
    """Writes that are not completed, newest first; pending clustering is a plan, not a failed write.

    They are pending on the timeline or begun in the ledger and not committed,
    or aborted with a rollback that is not completed.
    """
    plans = pending_plans(table.store, timeline)
    completed = {i.time for i in timeline.instants if i.is_completed}
    found: dict[InstantTime, FailedWrite] = {}
    for time, begun in state.begun.items():
        found[time] = FailedWrite(time, begun.action, begun.owner, plans.get(time), begun.shared)
    for instant in timeline.pending_writes:
        if instant.time not in state.committed and instant.time not in found:
            found[instant.time] = FailedWrite(instant.time, instant.action, None, plans.get(instant.time))
    for time, aborted in state.aborted.items():
        if aborted.restore is not None:
            found.pop(time, None)  # The restore sees to it.
        elif time in found or aborted.rollback not in completed:
            found[time] = FailedWrite(time, aborted.action, None, aborted.rollback)
    first = timeline.instants[0].time if timeline.instants else None
    clustering = pending_clustering(table, timeline)
    return tuple(
        sorted(
            # An aborted instant older than the active timeline was rolled back and archived.
            (
                write
                for write in found.values()
                if write.time not in clustering
                and (write.rollback is None or first is None or write.rollback >= first)
                and (write.rollback is None or not state.is_archived(write.rollback))
            ),
            key=lambda write: write.time,
            reverse=True,
        )
    )


def roll_back(
    table: OpenTable, write: FailedWrite, *, reason: str = "the writer did not finish"
) -> RollbackReport | None:
    """Abort the write in the ledger, then remove its traces.

    None if the write was committed in the meantime, and is published then, or
    if a restore took it back. A crash at any point leaves a rollback that the
    next caller of `recover` finishes.
    """
    began_ms = table.clock.elapsed_ms()
    state = abort(table, write.time, write.action, adopt=write.rollback, reason=reason)
    aborted = state.aborted.get(write.time)
    if aborted is None:
        publish_decided(table, state, load_timeline(table.store))
        return None
    try:
        plan, deleted = carry_out(table, write, aborted)
    except TableDamaged:
        if table.ledger.read().aborted[write.time].restore is None:
            raise
        return None  # A restore has taken it over, finished it and forgotten the plan.
    took_ms = table.clock.elapsed_ms() - began_ms
    rollback = aborted.rollback
    metadata = rollback_metadata(plan, rollback, took_ms=took_ms)
    completed = instant_file(rollback, Action.ROLLBACK, State.COMPLETED)
    table.store.create(completed, encode_rollback_metadata(metadata))
    log.info(
        "rollback.completed",
        extra={"instant": rollback, "rolled_back": write.time, "deleted": len(deleted), "took_ms": took_ms},
    )
    return RollbackReport(
        instant=rollback, rolled_back=write.time, action=write.action, deleted=deleted, took_ms=took_ms
    )


def carry_out(table: OpenTable, write: FailedWrite, aborted: Aborted) -> tuple[RollbackPlan, tuple[str, ...]]:
    """Remove the traces of a write that the ledger aborted; the plan and the files it named."""
    plan = _stored_plan(table, write, aborted)
    table.store.create(instant_file(aborted.rollback, Action.ROLLBACK, State.INFLIGHT), b"")
    doomed = _planned_files(plan, write.time)
    _execute(table, write, doomed, is_revoked=aborted.revoked_by is not None)
    return plan, doomed


def abort(
    table: OpenTable, time: InstantTime, action: Action, *, adopt: InstantTime | None, reason: str
) -> LedgerState:
    """Decide that the instant never commits, unless it is decided already."""
    timeline = load_timeline(table.store)
    newest = timeline.newest
    is_shown = any(instant.time == time for instant in timeline.pending_writes)
    completed = instant_file(time, action, State.COMPLETED)

    def decide(state: LedgerState) -> Decision | None:
        if time in state.committed or time in state.aborted or table.store.stat(completed) is not None:
            return None
        # What is archived was decided. So was what nobody has begun: a checkpoint may have passed it.
        if state.is_archived(time) or (time not in state.begun and not is_shown):
            return None
        newest_known = max((t for t in (newest, state.newest, time) if t is not None), default=None)
        rollback = adopt or next_time(table.clock.now_ms(), newest_known)
        return Decision(kind=EntryKind.ABORT, instant=time, action=action, rollback=rollback, reason=reason)

    return table.ledger.append(decide)


def _stored_plan(table: OpenTable, write: FailedWrite, aborted: Aborted) -> RollbackPlan:
    """The plan in storage; the first one stored is the one everybody carries out."""
    path = instant_file(aborted.rollback, Action.ROLLBACK, State.REQUESTED)
    if table.store.stat(path) is None:
        plan = plan_rollback(table, write, is_revoked=aborted.revoked_by is not None)
        table.store.create(path, encode_rollback_plan(plan))
    stored = read_plan(table.store, aborted.rollback)
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
        if read_plan(table.store, instant.time) is not None:
            continue
        if instant.state is State.REQUESTED:
            table.store.delete(instant_file(instant.time, instant.action, State.REQUESTED))
        log.warning("rollback.unreadable", extra={"instant": instant.time, "state": instant.state})


def _forget_savepoints(table: OpenTable, timeline: Timeline, state: LedgerState) -> None:
    """Remove savepoints that were begun and never decided, or deleted only in part."""
    for instant in timeline.pending_savepoints:
        if instant.time not in state.savepoints:
            table.store.delete(instant_file(instant.time, Action.SAVEPOINT, State.INFLIGHT))


def plan_rollback(table: OpenTable, write: FailedWrite, *, is_revoked: bool = False) -> RollbackPlan:
    """What to delete: what the commit names, what the markers announce, or else what a listing finds."""
    paths = _committed_files(table, write) if is_revoked else _announced_files(table, write)
    if paths is None:
        paths = table.store.paths("", without=META_FOLDER)
    doomed: dict[str, list[str]] = {}
    for path in sorted({path for path in paths if is_file_of(path, write.time)}):
        doomed.setdefault(partition_of(path), []).append(table.store.uri(path))
    requests = [RollbackRequest(partition, files=tuple(files)) for partition, files in sorted(doomed.items())]
    return RollbackPlan(write.time, write.action, tuple(requests))


def _committed_files(table: OpenTable, write: FailedWrite) -> list[str] | None:
    """None if the commit is not shown any more; its markers may be gone in part by then."""
    path = instant_file(write.time, write.action, State.COMPLETED)
    content = read_or_none(table.store, path)
    if content is None:
        return None
    try:
        return [file.path for file in decode_written_files(content) if file.path is not None]
    except Malformed as error:
        raise TableDamaged("commit metadata cannot be read", file=path, cause=error) from error


def _announced_files(table: OpenTable, write: FailedWrite) -> list[str] | None:
    """None if there is no marker although the write may have begun to write files."""
    paths = [marker.data_path for marker in read_markers(table.store, write.time)]
    inflight = instant_file(write.time, write.action, State.INFLIGHT)
    return None if not paths and table.store.stat(inflight) is not None else paths


def _execute(table: OpenTable, write: FailedWrite, doomed: tuple[str, ...], *, is_revoked: bool) -> None:
    completed = instant_file(write.time, write.action, State.COMPLETED)
    if is_revoked:
        withdraw(table, write.time, write.action)
    elif table.store.stat(completed) is not None:
        raise TableDamaged("an instant is completed although it was aborted", file=completed)
    # The inflight file goes first. A task that finishes a file looks for it afterwards and
    # withdraws the file if it is gone; a file it kept was announced by a marker read below.
    table.store.delete(instant_file(write.time, write.action, State.INFLIGHT))
    late = unclaimed_files(table, write.time, committed=frozenset())
    failed = table.store.delete_all(dict.fromkeys((*doomed, *late)))
    if failed:
        raise StorageUnavailable(
            "files of a failed write could not be deleted", first=failed[0], count=len(failed)
        )
    delete_markers(table.store, write.time)
    table.store.delete(heartbeat_path(write.time))
    table.store.delete(instant_file(write.time, write.action, State.REQUESTED))


def _planned_files(plan: RollbackPlan, time: InstantTime) -> tuple[str, ...]:
    """The plan's files relative to the table, wherever the table was when it was planned."""
    files: list[str] = []
    for request in plan.requests:
        if request.log_blocks:
            raise UnsupportedTable("rolling back log blocks is not supported", instant=time)
        for file in request.files:
            name = file.rpartition("/")[2]
            if not is_file_of(name, time):
                raise TableDamaged("a rollback plan names a file of another instant", file=file, instant=time)
            files.append(in_partition(request.partition, name))
    return tuple(files)


def rollback_metadata(plan: RollbackPlan, rollback: InstantTime, *, took_ms: int) -> RollbackMetadata:
    return RollbackMetadata(
        start_time=rollback,
        time_taken_ms=took_ms,
        total_files_deleted=sum(len(request.files) for request in plan.requests),
        commits=(plan.target,),
        partitions=tuple(RolledBackPartition(r.partition, r.files) for r in plan.requests),
        instants=(RolledBackInstant(plan.target, plan.target_action),),
    )


def pending_clustering(table: OpenTable, timeline: Timeline) -> frozenset[InstantTime]:
    """Pending clustering: a plan to be carried out again, not a failed write."""
    return frozenset(
        instant.time
        for instant in timeline.pending_writes
        if instant.action is Action.REPLACECOMMIT and _is_clustering(table, instant)
    )


def _is_clustering(table: OpenTable, instant: Instant) -> bool:
    path = instant_file(instant.time, instant.action, State.REQUESTED)
    try:
        return decode_replace_request(table.store.read(path)).is_clustering
    except FileNotFoundError:
        return False
    except Malformed as error:
        raise TableDamaged("a replacecommit's request cannot be read", file=path, cause=error) from error
