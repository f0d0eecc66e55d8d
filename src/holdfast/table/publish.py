"""Publish: make the timeline show what the ledger decided.

Whoever finds a COMMIT in the ledger whose completed file is missing creates
that file from the entry's payload. Partition metafiles are part of
publishing, so a write that fails never leaves one behind. Whoever finds a
completed file whose commit was taken back removes it.
"""

import datetime as dt

from holdfast.errors import TableDamaged
from holdfast.format.commits import decode_partitions
from holdfast.format.malformed import Malformed
from holdfast.format.partition_metafile import PartitionMetafile, encode_partition_metafile
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import PARTITION_METAFILE, in_partition, instant_file
from holdfast.table.opened import OpenTable
from holdfast.table.rollback_plans import pending_plans
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline


def publish_decided(table: OpenTable, state: LedgerState, timeline: Timeline) -> bool:
    """Publish the commits of `state` that `timeline` does not show, in order; whether anything changed.

    Commits that were taken back are withdrawn. Safe to repeat, by anybody. A
    commit that another program is rolling back is left to it.
    """
    withdrawn = _withdraw(table, state, timeline)
    shown = {instant.time for instant in timeline.completed_commits}
    waiting = [(c.slot, time, c.action) for time, c in state.committed.items() if time not in shown]
    if waiting:
        taken_back = pending_plans(table.store, timeline)
        for slot, time, action in sorted(waiting):
            if time not in taken_back and _is_unpublished(table, time, action):
                _publish(table, time, action, payload=table.ledger.payload(slot))
        # It may have been taken back between our look into the ledger and the file's appearance.
        now = table.ledger.read()
        for time, action in sorted(((time, action) for _, time, action in waiting), reverse=True):
            if time in now.aborted:
                withdraw(table, time, action)
    return _publish_savepoints(table, state, timeline) or withdrawn or bool(waiting)


def shown_timeline(table: OpenTable, state: LedgerState) -> Timeline:
    """The timeline, with everything on it that `state` decided."""
    timeline = load_timeline(table.store)
    return load_timeline(table.store) if publish_decided(table, state, timeline) else timeline


def withdraw(table: OpenTable, time: InstantTime, action: Action) -> None:
    """Make a commit that was taken back invisible."""
    table.store.delete(instant_file(time, action, State.COMPLETED))


def _withdraw(table: OpenTable, state: LedgerState, timeline: Timeline) -> bool:
    ghosts = [
        instant
        for instant in timeline.completed_commits
        if (aborted := state.aborted.get(instant.time)) is not None and aborted.revoked_by is not None
    ]
    # Newest first: on the way a reader sees states that were once committed, and no others.
    for instant in reversed(ghosts):
        withdraw(table, instant.time, instant.action)
    return bool(ghosts)


def _publish_savepoints(table: OpenTable, state: LedgerState, timeline: Timeline) -> bool:
    """Show the savepoints of `state`. One without an inflight file was deleted by another program."""
    pending = [instant.time for instant in timeline.pending_savepoints if instant.time in state.savepoints]
    for time in pending:
        payload = table.ledger.payload(state.savepoints[time])
        table.store.create(instant_file(time, Action.SAVEPOINT, State.COMPLETED), payload)
    # It may have been deleted between our look into the ledger and the file's appearance.
    now = table.ledger.read().savepoints if pending else {}
    for time in pending:
        if now.get(time) != state.savepoints[time]:
            hide_savepoint(table, time)
    return bool(pending)


def hide_savepoint(table: OpenTable, time: InstantTime) -> None:
    """Make a savepoint that was deleted invisible."""
    for reached in (State.COMPLETED, State.INFLIGHT):
        table.store.delete(instant_file(time, Action.SAVEPOINT, reached))


def _is_unpublished(table: OpenTable, time: InstantTime, action: Action) -> bool:
    """Whether the completed file is missing and the inflight file is there.

    A commit whose inflight file is gone was shown before and has since been
    archived or rolled back by another Hudi program: it must not come back.
    """
    completed, inflight = (instant_file(time, action, s) for s in (State.COMPLETED, State.INFLIGHT))
    return table.store.stat(completed) is None and table.store.stat(inflight) is not None


def _publish(table: OpenTable, time: InstantTime, action: Action, *, payload: bytes) -> None:
    for partition in _partitions(payload, time):
        ensure_metafile(table, partition, time)
    path = instant_file(time, action, State.COMPLETED)
    if not table.store.create(path, payload) and table.store.read(path) != payload:
        raise TableDamaged("a completed instant says something else than its ledger entry", file=path)


def _partitions(payload: bytes, time: InstantTime) -> list[str]:
    try:
        return decode_partitions(payload)
    except Malformed as error:
        raise TableDamaged(
            "commit metadata in the ledger cannot be read", instant=time, cause=error
        ) from error


def ensure_metafile(table: OpenTable, partition: str, time: InstantTime) -> None:
    """Make a folder a partition that Hudi finds, if it is none."""
    path = in_partition(partition, PARTITION_METAFILE)
    if table.store.stat(path) is None:
        depth = len(partition.split("/")) if partition else 0
        moment = dt.datetime.fromtimestamp(table.clock.now_ms() / 1000, dt.UTC)
        metafile = PartitionMetafile(time, depth)
        table.store.create(path, encode_partition_metafile(metafile, moment=moment))
