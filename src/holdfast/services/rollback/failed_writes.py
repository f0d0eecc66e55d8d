"""Failed writes: those that are not completed, and which of them no process can finish any more.

A heartbeat only tells when it is worth trying to roll a write back; the ledger
decides. Nothing here changes anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.concurrency.heartbeats import HeartbeatState, HeartbeatStatus
from holdfast.config.choices import FailedWritesPolicy
from holdfast.host import Liveness, Owner
from holdfast.model.instant import Action, InstantTime
from holdfast.model.names import heartbeat_path
from holdfast.table.opened import OpenTable
from holdfast.table.pending import pending_clustering, pending_restore, rollbacks_by_target
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline


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


def find_failed_writes(table: OpenTable, timeline: Timeline, state: LedgerState) -> tuple[FailedWrite, ...]:
    """Writes that are not completed, newest first; pending clustering is a plan, not a failed write.

    They are pending on the timeline or begun in the ledger and not committed,
    or aborted with a rollback that is not completed.
    """
    plans = rollbacks_by_target(table.store, timeline)
    completed = {i.time for i in timeline.instants if i.is_completed}
    found: dict[InstantTime, FailedWrite] = {}
    for time, begun in state.begun.items():
        found[time] = FailedWrite(time, begun.action, begun.owner, plans.get(time), begun.shared)
    for instant in timeline.pending_writes:
        if instant.time not in state.committed and instant.time not in found:
            found[instant.time] = FailedWrite(instant.time, instant.action, None, plans.get(instant.time))
    ghosts = _ghosts(table, timeline, state)
    for time, aborted in state.aborted.items():
        if aborted.restore is not None and time not in ghosts:
            found.pop(time, None)  # The restore sees to it.
        elif time in found or aborted.rollback not in completed:
            found[time] = FailedWrite(time, aborted.action, None, aborted.rollback)
    first = timeline.instants[0].time if timeline.instants else None
    clustering = pending_clustering(table.store, timeline)
    return tuple(
        sorted(
            # An aborted instant older than the active timeline was rolled back and archived.
            (
                write
                for write in found.values()
                if write.time not in clustering
                and (
                    write.rollback is None
                    or write.time in ghosts
                    or ((first is None or write.rollback >= first) and not state.has_left(write.rollback))
                )
            ),
            key=lambda write: write.time,
            reverse=True,
        )
    )


def partition_by_liveness(
    table: OpenTable,
    failed: Iterable[FailedWrite],
    statuses: Mapping[InstantTime, HeartbeatStatus],
    *,
    policy: FailedWritesPolicy,
) -> tuple[tuple[FailedWrite, ...], tuple[FailedWrite, ...]]:
    """Those that no process can finish any more, and those that may be running. Changes nothing."""
    writes = tuple(failed)
    abandoned = tuple(w for w in writes if _is_abandoned(table, w, statuses.get(w.time), policy))
    return abandoned, tuple(write for write in writes if write not in abandoned)


def suspects(
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


def _ghosts(table: OpenTable, timeline: Timeline, state: LedgerState) -> frozenset[InstantTime]:
    """Writes that were aborted and are on the timeline, although their rollbacks were completed.

    The ledger is newer than the timeline then, as it can be in a copy: the rollbacks are to be repeated.
    """
    restore = pending_restore(timeline, state)
    suspects = [
        instant.time
        for instant in timeline.pending_writes
        if (aborted := state.aborted.get(instant.time)) is not None
        and (
            state.has_left(aborted.rollback)
            if aborted.restore is None
            else restore is None or restore.instant != aborted.restore
        )
    ]
    if not suspects:
        return frozenset()
    # It was over before the ledger was read, so nothing may be left of it now.
    now = {instant.time for instant in load_timeline(table.store).pending_writes}
    return frozenset(now.intersection(suspects))
