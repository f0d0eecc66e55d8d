"""Restore: take the whole table back to a commit, and prove that it is there.

    REVOKE ─► requested, inflight ─► a rollback for each instant ─► proof ─► completed ─► tidy

REVOKE takes back every younger commit and every write that is not finished, so
no write that began before the restore can be committed after it. From then on
nobody writes until the restore is completed. A crash at any point leaves a
restore that the same call resumes.
"""

import logging
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.concurrency.heartbeats import judge
from holdfast.concurrency.locks.open import recorded_lock
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS, FailedWritesPolicy
from holdfast.errors import StorageUnavailable, TableDamaged, WriterActive
from holdfast.format.ledger_entries import EntryKind, Revoked
from holdfast.format.malformed import Malformed
from holdfast.format.restores import RestoreMetadata, encode_restore_metadata, encode_restore_plan
from holdfast.format.restores import RestorePlan as StoredPlan
from holdfast.format.rollbacks import RollbackMetadata, RolledBackInstant, decode_rollback_metadata
from holdfast.model.instant import Action, InstantTime, State, next_time
from holdfast.model.names import BASE_FILE_PATTERN, META_FOLDER, heartbeat_path, instant_file
from holdfast.model.reports import RestoreReport, RollbackReport
from holdfast.read.snapshot import Moment
from holdfast.services.leases import append_taking_back, refuse_if_leased
from holdfast.services.restore_plan import check_restore, restore_target, snapshot_at, younger
from holdfast.services.rollback import FailedWrite, carry_out, rollback_metadata, sort_out
from holdfast.services.targets import refuse_if_doomed
from holdfast.storage.store import Store
from holdfast.table.metadata_table import drop_metadata_table
from holdfast.table.opened import OpenTable
from holdfast.table.publish import shown_timeline
from holdfast.table.restoring import forget_rollbacks, pending_restore
from holdfast.table.steady import read_steadily, timeline_and_ledger
from holdfast.table.view import view_of
from holdfast.timeline.ledger import Aborted, Decision, LedgerState, Restoring
from holdfast.timeline.timeline import Timeline, load_timeline, read_all_completed

log = logging.getLogger(__name__)


def restore(table: OpenTable, to: Moment, *, timeout_ms: int = HEARTBEAT_TIMEOUT_MS) -> RestoreReport:
    """Take the table back to a commit, or finish a restore to it that was begun.

    `WriterActive` while a write may be running, `Refused` if something stands
    in the way, `SnapshotExpired` if the commit's files are gone. `TableDamaged`
    if the table is not afterwards what it was then; the restore is not
    completed in that case, and nobody can write.
    """
    with recorded_lock(table).hold():
        return _restore(table, to, timeout_ms)


def _restore(table: OpenTable, to: Moment, timeout_ms: int) -> RestoreReport:
    began_ms = table.clock.elapsed_ms()
    timeline, state = _shown(table)
    target = restore_target(timeline, state, to).time
    snapshot = read_steadily(table.store, lambda now: snapshot_at(table, now, target))
    restoring = pending_restore(timeline, state) or _decide(table, timeline, target, snapshot, timeout_ms)
    if restoring is None:
        return RestoreReport(instant=None, target=target, rolled_back=(), took_ms=_since(table, began_ms))
    doomed = _doomed(table, restoring)
    _announce(table, restoring, doomed)
    drop_metadata_table(table)
    try:
        taken_back = [_take_back(table, write, aborted) for write, aborted in doomed]
    except TableDamaged:
        if pending_restore(load_timeline(table.store), table.ledger.read()) == restoring:
            raise
        # Another process has finished the same restore and tidied up after it.
        return _restore(table, to, timeout_ms)
    _delete_late_files(table, doomed)
    timeline = load_timeline(table.store)
    if pending_restore(timeline, table.ledger.read()) == restoring:
        _prove(table, timeline, snapshot, target=target, revoked=[write.time for write, _ in doomed])
        records = [*(metadata for _, metadata in taken_back), *_earlier(table, timeline, restoring)]
        _complete(table, restoring, records, _since(table, began_ms))
    forget_rollbacks(table.store, load_timeline(table.store), table.ledger.read())
    reports = tuple(report for report, _ in taken_back)
    took_ms = _since(table, began_ms)
    log.info(
        "restore.completed",
        extra={"instant": restoring.instant, "to": target, "taken_back": len(reports), "took_ms": took_ms},
    )
    return RestoreReport(instant=restoring.instant, target=target, rolled_back=reports, took_ms=took_ms)


def _shown(table: OpenTable) -> tuple[Timeline, LedgerState]:
    table.settings.check_changeable()
    timeline, state = timeline_and_ledger(table)
    forget_rollbacks(table.store, timeline, state)
    return shown_timeline(table, state), state


def _decide(
    table: OpenTable, timeline: Timeline, target: InstantTime, snapshot: pa.Table, timeout_ms: int
) -> Restoring | None:
    """Put REVOKE into the ledger; None if there is nothing to take back."""
    state = table.ledger.read()
    check_restore(timeline, state, target)
    refuse_if_doomed(table, timeline, state, snapshot["path"])
    begun = younger(table, timeline, state, target)
    idle = _idle(table, (*begun.clustering, *begun.unfinished), timeout_ms)

    def decide(state: LedgerState) -> Decision | None:
        timeline = shown_timeline(table, state)
        check_restore(timeline, state, target)
        refuse_if_doomed(table, timeline, state, snapshot["path"])
        found = younger(table, timeline, state, target)
        for write in (*found.clustering, *found.unfinished):
            if write.time not in idle and write.time not in state.aborted:
                raise _active(write)
        if not found.taken_back:
            return None
        refuse_if_leased(table, after=target)
        newest = max(time for time in (timeline.newest, state.newest) if time is not None)
        instant = next_time(table.clock.now_ms(), newest)
        return Decision(
            kind=EntryKind.REVOKE,
            instant=instant,
            action=Action.RESTORE,
            revoked=_revoked(instant, found.taken_back, found.rolled_back, state),
            restored_to=target,
            reason=f"the table was restored to {target}",
        )

    state = append_taking_back(table, decide)
    return pending_restore(load_timeline(table.store), state)


def _idle(table: OpenTable, writes: Sequence[FailedWrite], timeout_ms: int) -> frozenset[InstantTime]:
    """The writes that nobody can finish any more. `WriterActive` if one may be running."""
    unsure = [write for write in writes if write.rollback is None]
    beating = [w for w in unsure if w.shared or table.store.stat(heartbeat_path(w.time)) is not None]
    silent = [write for write in unsure if write not in beating]
    statuses = judge(table, {write.time: write.owner for write in beating}, timeout_ms=timeout_ms)
    for running in (
        *sort_out(table, beating, statuses, policy=FailedWritesPolicy.LAZY)[1],
        *sort_out(table, silent, {}, policy=FailedWritesPolicy.EAGER)[1],
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


def _revoked(
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
            newest = next_time(0, newest)
        revoked.append(Revoked(write.time, write.action, newest if aborted is None else aborted.rollback))
    return tuple(revoked)


def _doomed(table: OpenTable, restoring: Restoring) -> list[tuple[FailedWrite, Aborted]]:
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
        try:
            found.append(decode_rollback_metadata(content))
        except Malformed as error:
            file = instant_file(instant.time, instant.action, instant.state)
            raise TableDamaged("rollback metadata cannot be read", file=file, cause=error) from error
    return found


def _announce(table: OpenTable, restoring: Restoring, doomed: Iterable[tuple[FailedWrite, Aborted]]) -> None:
    """Show other programs that a restore is going on."""
    instants = tuple(RolledBackInstant(write.time, write.action) for write, _ in doomed)
    requested, inflight = (
        instant_file(restoring.instant, Action.RESTORE, state) for state in (State.REQUESTED, State.INFLIGHT)
    )
    table.store.create(requested, encode_restore_plan(StoredPlan(instants, restoring.to)))
    table.store.create(inflight, b"")


def _take_back(
    table: OpenTable, write: FailedWrite, aborted: Aborted
) -> tuple[RollbackReport, RollbackMetadata]:
    began_ms = table.clock.elapsed_ms()
    plan, deleted = carry_out(table, write, aborted)
    took_ms = _since(table, began_ms)
    report = RollbackReport(
        instant=aborted.rollback,
        rolled_back=write.time,
        action=write.action,
        deleted=deleted,
        took_ms=took_ms,
    )
    return report, rollback_metadata(plan, aborted.rollback, took_ms=took_ms)


def _delete_late_files(table: OpenTable, doomed: Iterable[tuple[FailedWrite, Aborted]]) -> None:
    """Delete what tasks finished after the plans were made."""
    paths = pa.array(table.store.paths("", without=META_FOLDER), pa.string())
    late = _files_of(paths, [write.time for write, _ in doomed]).to_pylist()
    stuck = table.store.delete_all(late) if late else ()
    if stuck:
        raise StorageUnavailable("files that were taken back could not be deleted", first=stuck[0])


def _prove(
    table: OpenTable,
    timeline: Timeline,
    snapshot: pa.Table,
    *,
    target: InstantTime,
    revoked: Iterable[InstantTime],
) -> None:
    """`TableDamaged` if the table is not what the target's snapshot was."""
    newest = timeline.last_commit
    if newest is None or newest.time != target:
        raise _unproven("the newest commit is another one", commit=newest and newest.time)
    paths, sizes = _stored(table.store)
    left = _files_of(paths, revoked)
    if len(left) > 0:
        raise _unproven("a file that was taken back is still there", file=left[0].as_py())
    now = view_of(table.store, timeline, paths).latest()["path"].combine_chunks()
    then = snapshot["path"].combine_chunks()
    for one, other in ((now, then), (then, now), (then, paths)):
        differing = one.filter(pc.invert(pc.is_in(one, other)))
        if len(differing) > 0:
            raise _unproven("the snapshot does not consist of the same files", file=differing[0].as_py())
    stored = sizes.take(pc.index_in(then, paths))
    wrong = then.filter(pc.fill_null(pc.not_equal(stored, snapshot["size"].combine_chunks()), False))
    if len(wrong) > 0:
        raise _unproven("a file is not as long as its commit says", file=wrong[0].as_py())


def _unproven(difference: str, **facts: object) -> TableDamaged:
    return TableDamaged(
        f"the restore did not lead to the state it should: {difference}",
        **facts,
        hint="holdfast verify PATH shows more; the same restore can be run again",
    )


def _stored(store: Store) -> tuple[pa.Array, pa.Array]:
    """The paths of all files in storage outside the timeline, and their sizes."""
    inside = META_FOLDER + "/"
    found = [(file.path, file.size) for file in store.walk("") if not file.path.startswith(inside)]
    return pa.array([path for path, _ in found], pa.string()), pa.array([s for _, s in found], pa.int64())


def _files_of(paths: pa.Array, times: Iterable[InstantTime]) -> pa.Array:
    """The base files of the given instants."""
    instants = pc.extract_regex(paths, BASE_FILE_PATTERN).field("instant")
    return paths.filter(pc.is_in(instants, pa.array(times, pa.string()), skip_nulls=True))


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
    return table.clock.elapsed_ms() - began_ms
