"""Restore: take the whole table back to a commit, and prove that it is there.

    REVOKE ─► requested, inflight ─► a rollback for each instant ─► proof ─► completed ─► tidy

REVOKE takes back every younger commit and every write that is not finished, so
no write that began before the restore can be committed after it. From then on
no process writes until the restore is completed. A crash at any point leaves a
restore that the same call resumes.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.concurrency.heartbeats import judge
from holdfast.concurrency.locks.open import lock_in_use
from holdfast.config.choices import FailedWritesPolicy
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS
from holdfast.errors import StorageUnavailable, TableDamaged, WriterActive
from holdfast.exports.follow import move_before_deletion
from holdfast.format.ledger_entries import EntryKind, Revoked
from holdfast.format.malformed import report_damage
from holdfast.format.restores import RestoreMetadata, encode_restore_metadata, encode_restore_plan
from holdfast.format.restores import RestorePlan as StoredPlan
from holdfast.format.rollbacks import (
    RollbackMetadata,
    RollbackPlan,
    RollbackRequest,
    RolledBackInstant,
    decode_rollback_metadata,
)
from holdfast.model.instant import Action, InstantTime, State, just_after
from holdfast.model.names import (
    BASE_FILE_PATTERN,
    META_FOLDER,
    heartbeat_path,
    instant_file,
    instant_path,
    is_file_of,
    partition_of,
)
from holdfast.model.reports import RestorePlan, RestoreReport, RollbackReport
from holdfast.read.snapshot import Moment
from holdfast.services.archive.archive import finish_archive
from holdfast.services.leases import append_taking_back, refuse_if_leased
from holdfast.services.plans import refuse_beyond_plan
from holdfast.services.rehearsals import rehearse
from holdfast.services.restore.plan import (
    check_restore,
    commits_archived_between,
    plan_restore,
    restore_target,
    snapshot_at,
    younger,
)
from holdfast.services.rollback.command_blocks import take_back_blocks
from holdfast.services.rollback.doomed_files import files_of_commit
from holdfast.services.rollback.failed_writes import FailedWrite, partition_by_liveness
from holdfast.services.rollback.record import Removed, rollback_metadata
from holdfast.services.rollback.rollback import carry_out
from holdfast.services.targets import refuse_if_doomed
from holdfast.storage.store import Store
from holdfast.table.counted_logs import with_counted_logs
from holdfast.table.log_files import (
    find_logs_of_writes,
    is_log_file,
    log_name,
)
from holdfast.table.missing_commits import catch_up_ledger
from holdfast.table.opened import OpenTable
from holdfast.table.pending import forget_rollbacks, pending_restore, restores_to_take_over
from holdfast.table.properties_file import drop_metadata_table
from holdfast.table.publish import load_published_timeline
from holdfast.table.stable_read import read_stable
from holdfast.table.view import file_paths, view_of
from holdfast.table.zone import next_instant
from holdfast.timeline.after_decision import after_decision
from holdfast.timeline.ledger import Aborted, Decision, LedgerState, Restoring
from holdfast.timeline.timeline import Timeline, load_timeline, read_all_completed

log = logging.getLogger(__name__)


def restore(table: OpenTable, to: Moment, *, timeout_ms: int = HEARTBEAT_TIMEOUT_MS) -> RestoreReport:
    """Take the table back to a commit, or finish a restore to it that was begun.

    `WriterActive` while a write may be running, `Refused` if something stands
    in the way, `SnapshotExpired` if the commit's files are gone. `TableDamaged`
    if the table is not afterwards what it was then; the restore is not
    completed in that case, and no process can write.
    """
    with lock_in_use(table).hold():
        return _restore(table, to, timeout_ms)


def execute_restore(table: OpenTable, plan: RestorePlan) -> RestoreReport:
    """As `restore`. `PlanOutdated` if more would be taken back, or deleted, than the plan shows."""
    if plan.vanishing:
        refuse_beyond_plan(plan.vanishing, rehearse_restore(table, plan.target).vanishing)
    planned = frozenset(one.instant for one in plan.instants)
    with lock_in_use(table).hold():
        return _restore(table, plan.target, HEARTBEAT_TIMEOUT_MS, planned)


def rehearse_restore(table: OpenTable, to: Moment) -> RestorePlan:
    """The plan of a restore with every file that would be gone. Changes nothing."""
    plan = plan_restore(table, to)
    rehearsed = rehearse(table, lambda rehearsal: restore(rehearsal, plan.target))
    return replace(plan, vanishing=rehearsed.vanishing, hindrance=rehearsed.blocked_by)


def _restore(
    table: OpenTable, to: Moment, timeout_ms: int, planned: Collection[InstantTime] | None = None
) -> RestoreReport:
    """Only what is `planned` is taken back, if that is given."""
    began_ms = table.clock.monotonic_ms()
    timeline, state = _show_decided(table)
    target = restore_target(table, timeline, state, to)
    snapshot = read_stable(table.store, lambda now: snapshot_at(table, now, target))
    restoring = pending_restore(timeline, state) or _decide(
        table, timeline, target, snapshot, timeout_ms, planned
    )
    if restoring is None:
        return RestoreReport(instant=None, target=target, rolled_back=(), took_ms=_since(table, began_ms))
    hint = f"until it is finished no process can write; finish it: holdfast restore PATH --to {target}"
    with after_decision("the restore is decided", instant=restoring.instant, hint=hint):
        return _carry_out(table, to, restoring, snapshot, timeout_ms, began_ms)


def _carry_out(
    table: OpenTable, to: Moment, restoring: Restoring, snapshot: pa.Table, timeout_ms: int, began_ms: int
) -> RestoreReport:
    target = restoring.to
    doomed = _writes_to_take_back(table, restoring)
    archived = _commits_in_archive(table, restoring)
    _announce(table, restoring, [*(write for write, _ in doomed), *(write for write, _ in archived)])
    drop_metadata_table(table)
    load_published_timeline(table, table.ledger.read())
    move_before_deletion(table)
    try:
        taken_back = [_take_back(table, write, aborted) for write, aborted in doomed]
    except TableDamaged:
        if pending_restore(load_timeline(table.store), table.ledger.read()) == restoring:
            raise
        # Another process has finished the same restore and tidied up after it.
        return _restore(table, to, timeout_ms)
    revoked = [write.time for write, _ in (*doomed, *archived)]
    _delete_late_files(table, revoked)
    _take_back_archived_blocks(table, restoring, [write for write, _ in archived])
    taken_back += [_report_archived(table, restoring, write, content) for write, content in archived]
    timeline = load_timeline(table.store)
    if pending_restore(timeline, table.ledger.read()) == restoring:
        _prove(table, timeline, snapshot, target=target, revoked=revoked)
        records = [*(metadata for _, metadata in taken_back), *_earlier(table, timeline, restoring)]
        _complete(table, restoring, records, _since(table, began_ms))
    forget_rollbacks(table.store, load_timeline(table.store), table.ledger.read())
    reports = tuple(report for report, _ in taken_back)
    took_ms = _since(table, began_ms)
    log.info(
        "restore.completed",
        extra={
            "table": table.store.uri(""),
            "instant": restoring.instant,
            "to": target,
            "taken_back": len(reports),
            "took_ms": took_ms,
        },
    )
    return RestoreReport(instant=restoring.instant, target=target, rolled_back=reports, took_ms=took_ms)


def _show_decided(table: OpenTable) -> tuple[Timeline, LedgerState]:
    table.settings.check_changeable()
    timeline, state = catch_up_ledger(table)
    forget_rollbacks(table.store, timeline, state)
    return load_published_timeline(table, state), state


def _decide(
    table: OpenTable,
    timeline: Timeline,
    target: InstantTime,
    snapshot: pa.Table,
    timeout_ms: int,
    planned: Collection[InstantTime] | None,
) -> Restoring | None:
    """Put REVOKE into the ledger; None if there is nothing to take back."""
    state = table.ledger.read()
    check_restore(table, timeline, state, target)
    refuse_if_doomed(table, timeline, state, file_paths(snapshot))
    begun = younger(table, timeline, state, target)
    idle = _idle(table, (*begun.planned, *begun.unfinished), timeout_ms)

    def decide(state: LedgerState) -> Decision | None:
        if state.is_archived(target):
            # What is half archived could neither be taken back nor archived any more.
            finish_archive(table)
        timeline = load_published_timeline(table, state)
        check_restore(table, timeline, state, target)
        refuse_if_doomed(table, timeline, state, file_paths(snapshot))
        found = younger(table, timeline, state, target)
        for write in (*found.planned, *found.unfinished):
            if write.time not in idle and write.time not in state.aborted:
                raise _active(write)
        is_begun = bool(restores_to_take_over(table.store, timeline, state, target))
        if not found.taken_back and not state.is_archived(target) and not is_begun:
            return None
        if planned is not None:
            refuse_beyond_plan(planned, [write.time for write in found.taken_back])
        refuse_if_leased(table, after=target)
        newest = max(time for time in (timeline.newest, state.newest) if time is not None)
        instant = next_instant(table, newest)
        return Decision(
            kind=EntryKind.REVOKE,
            instant=instant,
            action=Action.RESTORE,
            revoked=_revocations(instant, found.taken_back, found.rolled_back, state),
            restored_to=target,
            reason=f"the table was restored to {target}",
        )

    state = append_taking_back(table, decide)
    hint = f"finish it, if it was: holdfast restore PATH --to {target}"
    with after_decision("a restore may have been decided", hint=hint):
        return pending_restore(load_timeline(table.store), state)


def _idle(table: OpenTable, writes: Sequence[FailedWrite], timeout_ms: int) -> frozenset[InstantTime]:
    """The writes that no process can finish any more. `WriterActive` if one may be running."""
    unsure = [write for write in writes if write.rollback is None]
    beating = [w for w in unsure if w.shared or table.store.stat(heartbeat_path(w.time)) is not None]
    silent = [write for write in unsure if write not in beating]
    statuses = judge(table, {write.time: write.owner for write in beating}, timeout_ms=timeout_ms)
    for running in (
        *partition_by_liveness(table, beating, statuses, policy=FailedWritesPolicy.LAZY)[1],
        *partition_by_liveness(table, silent, {}, policy=FailedWritesPolicy.EAGER)[1],
    ):
        raise _active(running)
    return frozenset(write.time for write in writes)


def _active(write: FailedWrite) -> WriterActive:
    return WriterActive(
        "a write may be running on this table",
        instant=write.time,
        owner=write.owner or "another program",
        hint="stop it, or wait until its heartbeat has expired: holdfast heartbeats show PATH",
    )


def _revocations(
    instant: InstantTime,
    taken_back: Iterable[FailedWrite],
    rolled_back: Iterable[FailedWrite],
    state: LedgerState,
) -> tuple[Revoked, ...]:
    """Each with its rollback: the one that was decided before, or a new one after the restore's instant."""
    revoked: list[Revoked] = []
    newest = instant
    for write in (*taken_back, *rolled_back):
        aborted = state.aborted.get(write.time)
        if aborted is None:
            newest = just_after(newest)
        revoked.append(Revoked(write.time, write.action, newest if aborted is None else aborted.rollback))
    return tuple(revoked)


def _writes_to_take_back(table: OpenTable, restoring: Restoring) -> list[tuple[FailedWrite, Aborted]]:
    """What this restore takes back, in order. What was rolled back before it began is not among it."""
    completed = {i.time for i in load_timeline(table.store).instants if i.is_completed}
    found = [
        (FailedWrite(time, aborted.action, None, aborted.rollback), aborted)
        for time, aborted in table.ledger.read().aborted.items()
        if aborted.restore == restoring.instant and aborted.rollback not in completed
    ]
    return sorted(found, key=lambda one: one[1].rollback)


def _earlier(table: OpenTable, timeline: Timeline, restoring: Restoring) -> list[RollbackMetadata]:
    """What was rolled back before the restore began; its record goes into the restore's."""
    times = {one.rollback for one in table.ledger.read().aborted.values() if one.restore == restoring.instant}
    completed = [i for i in timeline.instants if i.time in times and i.is_completed]
    found: list[RollbackMetadata] = []
    for instant, content in read_all_completed(table.store, completed):
        with report_damage("rollback metadata cannot be read", file=instant_path(instant)):
            found.append(decode_rollback_metadata(content))
    return found


def _commits_in_archive(table: OpenTable, restoring: Restoring) -> list[tuple[FailedWrite, bytes]]:
    """Archived commits that this restore takes back, with what they say."""
    if (restoring.to, restoring.instant) not in table.ledger.read().restored:
        return []
    return commits_archived_between(table, restoring.to, restoring.instant)


def _report_archived(
    table: OpenTable, restoring: Restoring, write: FailedWrite, content: bytes
) -> tuple[RollbackReport, RollbackMetadata]:
    """As `_take_back`, of an archived commit, whose files are deleted."""
    named = files_of_commit(write, content, is_archived=True)
    paths = [path for path in named if is_file_of(path, write.time) or is_log_file(path)]
    by_partition: dict[str, list[str]] = {}
    for path in paths:
        by_partition.setdefault(partition_of(path), []).append(table.store.uri(path))
    requests = tuple(RollbackRequest(partition, files=tuple(f)) for partition, f in by_partition.items())
    plan = RollbackPlan(RolledBackInstant(write.time, write.action), requests)
    report = RollbackReport(
        instant=restoring.instant,
        rolled_back=write.time,
        action=write.action,
        deleted=tuple(paths),
        took_ms=0,
    )
    removed = Removed(tuple(paths))
    return report, rollback_metadata(table.store, plan, removed, restoring.instant, took_ms=0)


def _announce(table: OpenTable, restoring: Restoring, doomed: Iterable[FailedWrite]) -> None:
    """Show other programs that a restore is going on."""
    instants = tuple(RolledBackInstant(write.time, write.action) for write in doomed)
    requested, inflight = (
        instant_file(restoring.instant, Action.RESTORE, state) for state in (State.REQUESTED, State.INFLIGHT)
    )
    table.store.create(requested, encode_restore_plan(StoredPlan(instants, restoring.to)))
    table.store.create(inflight, b"")


def _take_back(
    table: OpenTable, write: FailedWrite, aborted: Aborted
) -> tuple[RollbackReport, RollbackMetadata]:
    began_ms = table.clock.monotonic_ms()
    plan, removed = carry_out(table, write, aborted)
    took_ms = _since(table, began_ms)
    report = RollbackReport(
        instant=aborted.rollback,
        rolled_back=write.time,
        action=write.action,
        deleted=removed.deleted,
        took_ms=took_ms,
    )
    return report, rollback_metadata(table.store, plan, removed, aborted.rollback, took_ms=took_ms)


def _delete_late_files(table: OpenTable, revoked: Collection[InstantTime]) -> None:
    """Delete what archived commits wrote, and what tasks finished after the plans were made."""
    late = _files_of(table.store, table.store.paths("", without=META_FOLDER), revoked)
    stuck = table.store.delete_all(late) if late else ()
    if stuck:
        raise StorageUnavailable("files that were taken back could not be deleted", first=stuck[0])


def _take_back_archived_blocks(
    table: OpenTable, restoring: Restoring, archived: Collection[FailedWrite]
) -> None:
    """Say of blocks of archived commits that they do not count, where their files hold others', too."""
    times = frozenset(write.time for write in archived)
    logs = (
        find_logs_of_writes(table.store, table.store.paths("", without=META_FOLDER), times) if times else {}
    )
    for time in times if logs else ():
        held = [path for path, writers in logs.items() if time in writers]
        take_back_blocks(table.store, held, rollback=restoring.instant, target=time)


def _prove(
    table: OpenTable,
    timeline: Timeline,
    snapshot: pa.Table,
    *,
    target: InstantTime,
    revoked: Collection[InstantTime],
) -> None:
    """`TableDamaged` if the table is not what the target's snapshot was."""
    newest = timeline.last_commit
    if newest is None or newest.time != target:
        raise _unproven("the newest commit is another one", commit=newest and newest.time)
    paths, sizes = _list_files(table.store)
    left = _files_of(table.store, paths.to_pylist(), revoked)
    if left:
        raise _unproven("a file that was taken back is still there", file=left[0])
    view = view_of(table.store, timeline, paths)
    now = file_paths(with_counted_logs(view, view.latest())).combine_chunks()
    then = file_paths(snapshot).combine_chunks()
    for one, other in ((now, then), (then, now), (then, paths)):
        differing = one.filter(pc.invert(pc.is_in(one, other)))
        if len(differing) > 0:
            raise _unproven("the snapshot does not consist of the same files", file=differing[0].as_py())
    bases = snapshot["base"].combine_chunks()
    stored = sizes.take(pc.index_in(bases, paths))
    wrong = bases.filter(pc.fill_null(pc.not_equal(stored, snapshot["size"].combine_chunks()), False))
    if len(wrong) > 0:
        raise _unproven("a file is not as long as its commit says", file=wrong[0].as_py())


def _unproven(difference: str, **facts: object) -> TableDamaged:
    return TableDamaged(
        f"the restore did not lead to the state it should: {difference}",
        **facts,
        hint="holdfast verify PATH shows more; the same restore can be run again",
    )


def _list_files(store: Store) -> tuple[pa.Array, pa.Array]:
    """The paths of all files in storage outside the timeline, and their sizes."""
    inside = META_FOLDER + "/"
    found = [(file.path, file.size) for file in store.walk("") if not file.path.startswith(inside)]
    return pa.array([path for path, _ in found], pa.string()), pa.array([s for _, s in found], pa.int64())


def _files_of(store: Store, paths: Collection[str], times: Collection[InstantTime]) -> list[str]:
    """The files of the given instants, and of no other."""
    gone = frozenset(times)
    named = pa.array(paths, pa.string())
    instants = pc.extract_regex(named, BASE_FILE_PATTERN).field("instant")
    base = named.filter(pc.is_in(instants, pa.array(gone, pa.string()), skip_nulls=True)).to_pylist()
    logs = find_logs_of_writes(store, paths, gone)
    whole = [path for path, writers in logs.items() if writers <= gone]
    of_slices = [path for path in paths if (name := log_name(path)) is not None and name.base_instant in gone]
    return list(dict.fromkeys((*base, *whole, *of_slices)))


def _complete(
    table: OpenTable, restoring: Restoring, rollbacks: Iterable[RollbackMetadata], took_ms: int
) -> None:
    by_instant = {metadata.commits[0]: metadata for metadata in rollbacks}
    metadata = RestoreMetadata(
        start_time=restoring.instant,
        time_taken_ms=took_ms,
        commits=tuple(by_instant),
        rollbacks={time: (metadata,) for time, metadata in by_instant.items()},
        instants=tuple(instant for metadata in by_instant.values() for instant in metadata.instants),
    )
    completed = instant_file(restoring.instant, Action.RESTORE, State.COMPLETED)
    table.store.create(completed, encode_restore_metadata(metadata))


def _since(table: OpenTable, began_ms: int) -> int:
    return table.clock.monotonic_ms() - began_ms
