"""Status: what a table is, what is unfinished in it, and who keeps others from writing.

What the state of an instant means is decided here; what shows it only
renders it. Nothing here changes anything.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast.concurrency.heartbeats import heartbeats
from holdfast.host import Liveness
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, State
from holdfast.model.pushes import Fate, Push
from holdfast.read.snapshot import snapshot_slices, table_schema
from holdfast.services.documents import quantity
from holdfast.services.leases import LeaseStatus, leases
from holdfast.services.pushes import (
    Ask,
    ask_nobody,
    find_served,
    find_undone_commits,
    push_records,
    push_warnings,
)
from holdfast.table.opened import OpenTable
from holdfast.table.stable_read import timeline_and_ledger
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline


class Outlook(Enum):
    """What becomes of an instant that is not completed."""

    RUNNING = "being written"
    """No other process can write until it ends."""
    SHARING = "being written, admits others"
    UNSHOWN = "committed, not shown yet"
    ROLLING_BACK = "being rolled back"
    EXPIRING = "rolled back when its heartbeat has expired"
    FAILED = "rolled back at the next write"
    SERVICE = "to be finished"
    RESTORING = "to be finished by the same restore"
    """No process can write until it is finished."""


@dataclass(frozen=True, slots=True)
class PendingInstant:
    """An instant that is not completed, and what is known of its outcome."""

    time: InstantTime
    action: Action
    state: State | None
    """None if its first file is not there yet."""
    owner: str | None
    """None if another program began it."""
    liveness: Liveness
    outlook: Outlook
    rolled_back_by: InstantTime | None = None
    silent_ms: int | None = None
    """How old its heartbeat is, by this machine's clock; None if it has none."""

    @property
    def fate(self) -> str:
        """The outlook, in words."""
        is_rolling_back = self.outlook is Outlook.ROLLING_BACK
        return self.outlook.value + (f" by {self.rolled_back_by}" if is_rolling_back else "")

    @property
    def blocks_writers(self) -> bool:
        return self.outlook in (Outlook.RUNNING, Outlook.RESTORING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """What a table is and holds."""

    columns: Mapping[str, str]
    latest_commit: Instant | None
    commits: int
    """On the timeline."""
    files: int
    """Base files of the newest snapshot."""
    size_bytes: int
    partitions: int
    pending: tuple[PendingInstant, ...]
    """Oldest first."""
    leases: tuple[LeaseStatus, ...]
    leftovers: int
    """Files that a process was writing when it was killed."""
    leftover_bytes: int
    served: tuple[Push, ...]
    """The push that queries see at each place where it is served."""
    fates: Mapping[str, Fate]
    """What the services told of pushes, by lineage entry; nothing where they were not asked."""
    warnings: tuple[str, ...]

    @property
    def blocked_by(self) -> tuple[PendingInstant, ...]:
        """What keeps others from writing."""
        return tuple(one for one in self.pending if one.blocks_writers)


def table_status(table: OpenTable, *, ask: Ask = ask_nobody) -> TableStatus:
    """`ask` finds out what became of the pushes that are recorded; without it the newest count as served."""
    timeline, state = timeline_and_ledger(table)
    slices = snapshot_slices(table)
    pending = pending_instants(table, timeline, state)
    records = push_records(table)
    fates = ask(records.pushes)
    served = find_served(records.pushes, fates)
    gone = find_undone_commits(table, [push.instant for push in served]) if served else frozenset()
    leftovers = table.store.leftovers()
    return TableStatus(
        columns={field.name: str(field.type) for field in table_schema(table, timeline) or ()},
        latest_commit=timeline.last_commit,
        commits=len(timeline.completed_commits),
        files=sum(len(one.files) for one in slices),
        size_bytes=sum(one.bytes for one in slices),
        partitions=len({one.partition for one in slices}),
        pending=pending,
        leases=tuple(leases(table)),
        leftovers=len(leftovers),
        leftover_bytes=sum(file.size for file in leftovers),
        served=tuple(served),
        fates=fates,
        warnings=(
            *_warnings(table, pending, leftovers=len(leftovers)),
            *push_warnings(table, records, gone, fates),
        ),
    )


def pending_instants(table: OpenTable, timeline: Timeline, state: LedgerState) -> tuple[PendingInstant, ...]:
    """What the timeline or the ledger has begun and not completed, oldest first."""
    states: dict[tuple[InstantTime, Action], State | None] = {
        (time, begun.action): None for time, begun in state.begun.items()
    }
    states |= {(i.time, i.action): i.state for i in timeline.instants if not i.is_completed}
    silences = {status.instant: status.age_ms for status in heartbeats(table)} if states else {}
    return tuple(
        _judge(table, state, time, action, reached, silences.get(time))
        for (time, action), reached in sorted(states.items(), key=lambda item: item[0])
    )


def _judge(
    table: OpenTable,
    state: LedgerState,
    time: InstantTime,
    action: Action,
    reached: State | None,
    silent_ms: int | None,
) -> PendingInstant:
    begun, aborted = state.begun.get(time), state.aborted.get(time)
    liveness = Liveness.UNKNOWN if begun is None else table.host.liveness(begun.owner)
    is_shared = begun is not None and begun.shared
    if action is Action.RESTORE:
        outlook = Outlook.RESTORING
    elif action not in COMMIT_ACTIONS:
        outlook = Outlook.SERVICE
    elif time in state.committed:
        outlook = Outlook.UNSHOWN
    elif aborted is not None:
        outlook = Outlook.ROLLING_BACK
    elif liveness is Liveness.ALIVE:
        outlook = Outlook.SHARING if is_shared else Outlook.RUNNING
    elif is_shared and liveness is Liveness.UNKNOWN:
        outlook = Outlook.EXPIRING
    else:
        outlook = Outlook.FAILED
    return PendingInstant(
        time,
        action,
        reached,
        owner=None if begun is None else str(begun.owner),
        liveness=liveness,
        outlook=outlook,
        rolled_back_by=None if aborted is None else aborted.rollback,
        silent_ms=silent_ms,
    )


def _warnings(table: OpenTable, pending: tuple[PendingInstant, ...], *, leftovers: int) -> list[str]:
    counts = Counter(one.outlook for one in pending)
    restoring, unshown = counts[Outlook.RESTORING], counts[Outlook.UNSHOWN]
    running, sharing = counts[Outlook.RUNNING], counts[Outlook.SHARING]
    stopped = len(pending) - restoring - unshown - running - sharing
    warnings: list[str] = []
    if restoring:
        warnings.append("a restore is not finished; no process can write until it is run again")
    if sharing:
        warnings.append(f"{quantity(sharing, 'write')} running; those who write alone are refused meanwhile")
    if running:
        warnings.append(f"{quantity(running, 'write')} running; others are refused until it ends")
    if unshown:
        warnings.append(f"{quantity(unshown, 'commit')} decided but not shown yet: `rollbacks run` shows it")
    if stopped:
        warnings.append(f"{quantity(stopped, 'pending instant')} without a live writer: see `rollbacks run`")
    if table.settings.metadata_partitions:
        warnings.append("the table has a metadata table, which the first write of Holdfast switches off")
    if leftovers:
        files = quantity(leftovers, "half-written file")
        warnings.append(f"{files} left behind; the next write removes them")
    return warnings
