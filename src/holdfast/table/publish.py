"""Publish: make the timeline show what the ledger decided.

If the completed file of a COMMIT in the ledger is missing, any operation
creates it from the entry's payload. Partition metafiles are part of
publishing, so a write that fails never leaves one behind. A completed file
whose commit was taken back is removed.

The properties of a table that comes to be with its first commit are shown after
that commit: no reader sees the table without it.

A restore that was completed, and whose completed file is missing, is shown
again, too. When much was added to the ledger, a checkpoint of it is stored.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from holdfast.config.choices import TableType
from holdfast.errors import TableDamaged
from holdfast.format.archive import ArchivedFile
from holdfast.format.commits import decode_partitions, reseal_commit
from holdfast.format.malformed import report_damage
from holdfast.format.partition_metafile import PartitionMetafile, encode_partition_metafile
from holdfast.format.restores import RestoreMetadata, encode_restore_metadata
from holdfast.format.rollbacks import RolledBackInstant
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, State, moment_of
from holdfast.model.names import PARTITION_METAFILE, in_partition, instant_file
from holdfast.storage.store import Store, read_or_none
from holdfast.table.clean_plans import pending_cleans
from holdfast.table.missing_commits import refuse_if_incomplete, refuse_if_vanished
from holdfast.table.pending import is_rollback_over, rollbacks_by_target, unshown_restores
from holdfast.table.properties_file import has_settings, show_settings
from holdfast.table.zone import timeline_zone
from holdfast.timeline.archived import load_archived
from holdfast.timeline.ledger import NO_SLOT, DecidedCommit, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

if TYPE_CHECKING:
    from holdfast.table.opened import OpenTable

log = logging.getLogger(__name__)

_MODIFICATIONS = 10
_WAIT_MS = 1000
"""A clock that is further ahead than all of them together is reported, and `verify` tells what it does."""


def publish_decided(
    table: OpenTable, state: LedgerState, timeline: Timeline, *, written: InstantTime | None = None
) -> bool:
    """Publish the commits of `state` that `timeline` does not show, in order; whether anything changed.

    Commits that were taken back are withdrawn. Safe to repeat, by anybody. A
    commit that another program is rolling back is left to it. `TableDamaged` if
    files of a commit are not here, unless this process has just `written` it.
    """
    shown_again = _show_restores(table, state, timeline)
    withdrawn = _withdraw(table, state, timeline)
    shown = {instant.time for instant in timeline.completed_commits}
    known = {instant.time for instant in timeline.instants}
    archived = {time for time in state.committed if state.is_archived(time) and time not in known}
    waiting = _in_order(state, without=shown | archived)
    if waiting:
        taken_back = rollbacks_by_target(table.store, timeline)
        unseen = [commit for commit in waiting if commit.time not in taken_back]
        refuse_if_vanished(table, [commit for commit in unseen if commit.time != written])
        for slot, time, action in unseen:
            if not _is_unpublished(table, time, action):
                continue
            payload = _payload(table, time, action, slot)
            if payload is not None:
                if time != written:
                    refuse_if_incomplete(table, time, payload)
                _publish(table, time, action, payload=payload)
        # It may have been taken back between our look into the ledger and the file's appearance.
        now = table.ledger.read()
        for time, action in sorted(((time, action) for _, time, action in waiting), reverse=True):
            if _is_taken_back(table, now, time):
                withdraw(table, time, action)
    is_born = _publish_properties(table, state)
    is_changed = withdrawn or shown_again or is_born or bool(waiting)
    return _publish_savepoints(table, state, timeline) or is_changed


def _in_order(state: LedgerState, *, without: Collection[InstantTime]) -> list[DecidedCommit]:
    """The commits but these, in the order in which they were decided (I7)."""
    return sorted(
        DecidedCommit(commit.slot, time, commit.action)
        for time, commit in state.committed.items()
        if time not in without
    )


def _show_restores(table: OpenTable, state: LedgerState, timeline: Timeline) -> bool:
    """Show restores again that were completed and whose completed files are missing; whether any was."""
    lost = unshown_restores(timeline, state)
    aborted = table.ledger.read_with_older_aborts().aborted if lost else {}
    for restore in lost:
        parts = {time: one for time, one in aborted.items() if one.restore == restore}
        instants = tuple(RolledBackInstant(time, one.action) for time, one in parts.items())
        metadata = RestoreMetadata(restore, 0, tuple(parts), {}, instants)
        inflight, completed = (
            instant_file(restore, Action.RESTORE, state) for state in (State.INFLIGHT, State.COMPLETED)
        )
        table.store.create(inflight, b"")
        table.store.create(completed, encode_restore_metadata(metadata))
        log.warning("restore.shown_again", extra={"table": table.store.uri(""), "instant": restore})
    return bool(lost)


def load_published_timeline(table: OpenTable, state: LedgerState) -> Timeline:
    """The timeline, with everything on it that `state` decided."""
    timeline = load_timeline(table.store)
    return load_timeline(table.store) if publish_decided(table, state, timeline) else timeline


def withdraw(table: OpenTable, time: InstantTime, action: Action) -> None:
    """Make a commit that was taken back invisible."""
    table.store.delete(instant_file(time, action, State.COMPLETED))


def _is_taken_back(table: OpenTable, now: LedgerState, time: InstantTime) -> bool:
    """Whether a commit that was decided before `now` does not stand any more."""
    if time in now.committed or time in now.aborted:
        return time in now.aborted
    return time in table.ledger.read_with_older_aborts().aborted  # A checkpoint has passed it.


def _withdraw(table: OpenTable, state: LedgerState, timeline: Timeline) -> bool:
    ghosts = [
        instant
        for instant in timeline.completed_commits
        if (aborted := state.aborted.get(instant.time)) is not None and aborted.revoked_by is not None
    ]
    # Newest first: on the way a reader sees states that were once committed, and no others.
    for instant in reversed(ghosts[1:]):
        withdraw(table, instant.time, instant.action)
    is_back = _bring_back(table, state, timeline, ghosts)
    for instant in ghosts[:1]:
        withdraw(table, instant.time, instant.action)
    return bool(ghosts) or is_back


def _bring_back(table: OpenTable, state: LedgerState, timeline: Timeline, ghosts: Sequence[Instant]) -> bool:
    """Show the commit again that the newest restore went to, if it was archived; whether it was not shown.

    Once a commit follows it, it may be archived like any other.
    """
    restore = state.restore
    if restore is None or (restore.to, restore.instant) not in state.restored:
        return False
    standing = {commit.time for commit in timeline.completed_commits} - {ghost.time for ghost in ghosts}
    if any(time > restore.to for time in standing) or _is_gone(state, restore.to):
        return False
    if restore.to in rollbacks_by_target(table.store, timeline):
        return False  # Another program is rolling it back.
    if _is_wholly_shown(table.store, timeline, restore.to):
        return False
    files = _read_archived_files(table, restore.to)
    known = state.committed.get(restore.to)
    is_changed = False
    for file in files:
        # The completed one is there first: what is only inflight would count as not finished.
        content = file.content
        if file.state is State.COMPLETED:
            said = None if known is None or known.slot == NO_SLOT else known.slot
            kept = None if said is None else table.ledger.payload_unless_trimmed(said)
            content = kept or reseal_commit(content, file.time)
        is_changed |= table.store.create(instant_file(file.time, file.action, file.state), content)
    if _is_gone(table.ledger.read(), restore.to):
        withdraw(table, restore.to, files[0].action)
    return is_changed


def _is_wholly_shown(store: Store, timeline: Timeline, time: InstantTime) -> bool:
    """Whether a commit is there in each state, so that nothing has to be taken from the archive."""
    begun = (State.REQUESTED, State.INFLIGHT)
    shown = next((commit for commit in timeline.completed_commits if commit.time == time), None)
    return shown is not None and all(store.stat(instant_file(time, shown.action, s)) for s in begun)


def _read_archived_files(table: OpenTable, time: InstantTime) -> list[ArchivedFile]:
    """The files of an archived commit, the completed one first."""
    # The zone is that of moments which are shown, and none is here.
    archived = load_archived(table.store, table.settings.archive_folder, dt.UTC).files.values()
    files = [file for file in archived if file.time == time and file.action in COMMIT_ACTIONS]
    files.sort(key=lambda file: file.state is not State.COMPLETED)
    if not files or files[0].state is not State.COMPLETED:
        raise TableDamaged("a commit that the table is restored to is not in the archive", instant=time)
    return files


def _is_gone(state: LedgerState, time: InstantTime) -> bool:
    return state.is_archived(time) or state.is_taken_back(time)


def _publish_properties(table: OpenTable, state: LedgerState) -> bool:
    """Make the table exist that comes to be with its only commit, if it does not yet; whether it was so."""
    # Only the process that made the commit may meet the properties of a table that came too late.
    if state.newborn is None or (has_settings(table.store) and not table.is_new):
        return False
    slot = state.committed[state.newborn].slot
    show_settings(table.store, table.ledger.properties(slot), now_ms=table.clock.now_ms())
    return True


def _publish_savepoints(table: OpenTable, state: LedgerState, timeline: Timeline) -> bool:
    """Show the savepoints of `state`. One without an inflight file was deleted by another program."""
    pending = [instant.time for instant in timeline.pending_savepoints if instant.time in state.savepoints]
    for time in pending:
        settle_savepoint(table, time, state.savepoints[time])
    return bool(pending)


def settle_savepoint(table: OpenTable, time: InstantTime, slot: int | None) -> int | None:
    """Make the timeline show what the ledger says of a commit's savepoint; the slot of the one that stands.

    `slot` is what the caller has read. A process that changes the files looks into the
    ledger afterwards: one that slept may have removed a savepoint that was made
    since, or shown one that was deleted since.
    """
    while True:
        if slot is None:
            _hide_savepoint(table, time)
        else:
            _show_savepoint(table, time, slot)
        now = table.ledger.read().savepoints.get(time)
        if now == slot:
            return slot
        slot = now


def forget_savepoint(table: OpenTable, time: InstantTime) -> None:
    """Remove the inflight file of a savepoint that was never decided, or deleted only in part."""
    table.store.delete(instant_file(time, Action.SAVEPOINT, State.INFLIGHT))
    decided = table.ledger.read().savepoints.get(time)
    if decided is not None:
        settle_savepoint(table, time, decided)


def _hide_savepoint(table: OpenTable, time: InstantTime) -> None:
    """Remove the files of a savepoint, up to the moment at which there is one again.

    A process that dies here has removed one file at most of a savepoint that
    was made meanwhile, so that the next operation finds it.
    """
    for reached in (State.COMPLETED, State.INFLIGHT):
        if time in table.ledger.read().savepoints:
            return
        table.store.delete(instant_file(time, Action.SAVEPOINT, reached))


def _show_savepoint(table: OpenTable, time: InstantTime, slot: int) -> None:
    try:
        payload = table.ledger.payload(slot)
    except TableDamaged:
        if table.ledger.read().savepoints.get(time) == slot:
            raise
        return  # It was deleted, and its entry trimmed.
    inflight, completed = (
        instant_file(time, Action.SAVEPOINT, state) for state in (State.INFLIGHT, State.COMPLETED)
    )
    table.store.create(inflight, b"")
    if not table.store.create(completed, payload) and read_or_none(table.store, completed) != payload:
        # The file of one that was deleted, whose deletion is not carried out yet.
        table.store.put(completed, payload)


def _is_unpublished(table: OpenTable, time: InstantTime, action: Action) -> bool:
    """Whether the completed file is missing and the inflight file is there.

    A commit whose inflight file is gone was shown before and has since been
    archived or rolled back by another Hudi program: it must not come back.
    """
    completed, inflight = (instant_file(time, action, s) for s in (State.COMPLETED, State.INFLIGHT))
    return table.store.stat(completed) is None and table.store.stat(inflight) is not None


def _payload(table: OpenTable, time: InstantTime, action: Action, slot: int) -> bytes | None:
    """The metadata of a commit; None if it was shown, archived and trimmed in the meantime."""
    if slot == NO_SLOT:
        raise TableDamaged(
            "a commit was shown and its file is missing",
            file=instant_file(time, action, State.COMPLETED),
            hint="put the file back from a backup: another program made it, and the ledger has no copy",
        )
    return table.ledger.payload_unless_trimmed(slot)


def _publish(table: OpenTable, time: InstantTime, action: Action, *, payload: bytes) -> None:
    for partition in _partitions(payload, time):
        ensure_metafile(table, partition, time)
    path = instant_file(time, action, State.COMPLETED)
    if not table.store.create(path, payload) and table.store.read(path) != payload:
        raise TableDamaged("a completed instant says something else than its ledger entry", file=path)
    if table.settings.table_type is TableType.MERGE_ON_READ:
        _modify_after(table, path, time)


def _modify_after(table: OpenTable, path: str, time: InstantTime) -> None:
    """Write the file anew until storage says that it was modified at its instant, or later.

    Hudi 1.x takes that for the completion of the commit, and gives log files of a
    commit that was completed before its instant to the slices before it. The
    writer's clock is ahead of storage's then.
    """
    began_ms = round(moment_of(time, timeline_zone(table)).timestamp() * 1000)
    for _ in range(_MODIFICATIONS):
        stored = table.store.stat(path)
        if stored is None or stored.modified_ms >= began_ms:
            return
        table.clock.wait_ms(min(began_ms - stored.modified_ms, _WAIT_MS))
        try:
            content, version = table.store.read_version(path)
        except FileNotFoundError:
            return  # It was taken back.
        table.store.replace(path, content, version)
    log.warning("publish.modified_too_early", extra={"table": table.store.uri(""), "file": path})


def _partitions(payload: bytes, time: InstantTime) -> list[str]:
    with report_damage("commit metadata in the ledger cannot be read", instant=time):
        return decode_partitions(payload)


def ensure_metafile(table: OpenTable, partition: str, time: InstantTime) -> None:
    """Make a folder a partition that Hudi finds, if it is none."""
    path = in_partition(partition, PARTITION_METAFILE)
    if table.store.stat(path) is None:
        depth = len(partition.split("/")) if partition else 0
        moment = dt.datetime.fromtimestamp(table.clock.now_ms() / 1000, dt.UTC)
        metafile = PartitionMetafile(time, depth)
        table.store.create(path, encode_partition_metafile(metafile, moment=moment))


def checkpoint_if_due(table: OpenTable, state: LedgerState) -> None:
    """Store what the ledger says up to `state`, whose commits are all published, if much was added to it."""
    if not table.ledger.is_checkpoint_due(state):
        return
    timeline = load_timeline(table.store)
    cleaned: set[InstantTime] = set()
    if state.cleans:
        cleaned = state.cleans.keys() - set(pending_cleans(table.store, timeline, state))
    shown = {commit.time: commit.action for commit in timeline.completed_commits}
    settled = _aborts_to_forget(timeline, state)
    table.ledger.checkpoint_if_due(state, shown=shown, cleaned=cleaned, settled=settled)


def _aborts_to_forget(timeline: Timeline, state: LedgerState) -> frozenset[InstantTime]:
    """Aborted instants of which the timeline tells nothing any more: neither they nor their rollbacks."""
    shown = {instant.time for instant in timeline.instants}
    return frozenset(
        time
        for time, aborted in state.aborted.items()
        if time not in shown and aborted.rollback not in shown and is_rollback_over(timeline, state, aborted)
    )
