"""Fates: what became of an instant, as the ledger and the timeline tell.

Files, markers and heartbeats name their instant. Whether they are needed
follows from its fate.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from holdfast.model.instant import Action, InstantTime, end_of
from holdfast.table.restoring import pending_restore
from holdfast.timeline.ledger import Aborted, LedgerState
from holdfast.timeline.timeline import Timeline


class Fate(Enum):
    PENDING = "pending"
    """It may still become a commit, or its traces are not all removed."""
    COMMITTED = "committed"
    GONE = "gone"
    """It was rolled back; nothing of it may be left."""
    ARCHIVED = "archived"
    """It is older than the active timeline: committed, unless somebody knows better."""
    UNKNOWN = "unknown"
    """Nobody knows it. A writer makes itself known before it writes anything else."""


@dataclass(frozen=True)
class Fates:
    timeline: Timeline
    state: LedgerState
    undone: frozenset[InstantTime]
    """What completed rollbacks and restores say they removed."""
    planned: frozenset[InstantTime]
    """What pending rollbacks are to remove."""

    def of(self, time: InstantTime) -> Fate:
        if time in self._completed:
            return Fate.COMMITTED
        if time in self._pending:
            return Fate.PENDING
        aborted = self.state.aborted.get(time)
        if aborted is not None:
            return Fate.GONE if self.is_carried_out(aborted) else Fate.PENDING
        if time in self.undone:
            return Fate.GONE
        if self.state.is_archived(time):
            return Fate.ARCHIVED
        if time in self.state.committed:
            return Fate.PENDING
        return Fate.ARCHIVED if self.is_before_timeline(time) else Fate.UNKNOWN

    def is_carried_out(self, aborted: Aborted) -> bool:
        """Whether the rollback of an aborted instant is finished."""
        if aborted.restore is not None:
            restore = pending_restore(self.timeline, self.state)
            return restore is None or restore.instant != aborted.restore
        if aborted.rollback in self._finished_rollbacks or self.state.is_archived(aborted.rollback):
            return True
        instants = self.timeline.instants
        return bool(instants) and end_of(aborted.rollback) < end_of(instants[0].time)

    def is_before_timeline(self, time: InstantTime) -> bool:
        """Whether commits of that time may have been archived."""
        return self._first is not None and end_of(time) < end_of(self._first)

    @cached_property
    def _first(self) -> InstantTime | None:
        # Hudi may leave a savepointed commit behind and archive those after it.
        kept = {i.time for i in self.timeline.instants if i.action is Action.SAVEPOINT}
        times = [instant.time for instant in self.timeline.completed_commits]
        return next((time for time in times if time not in kept), times[-1] if times else None)

    @cached_property
    def taken_back(self) -> frozenset[InstantTime]:
        """Commits that were revoked, whether the timeline still shows them or not."""
        return frozenset(t for t, aborted in self.state.aborted.items() if aborted.revoked_by is not None)

    @cached_property
    def _completed(self) -> frozenset[InstantTime]:
        return frozenset(instant.time for instant in self.timeline.completed_commits) - self.taken_back

    @cached_property
    def _pending(self) -> frozenset[InstantTime]:
        # A savepoint has the time of its commit, about which it says nothing.
        shown = (
            i.time for i in self.timeline.instants if not i.is_completed and i.action is not Action.SAVEPOINT
        )
        return frozenset(shown) | self.state.begun.keys() | self.planned

    @cached_property
    def _finished_rollbacks(self) -> frozenset[InstantTime]:
        return frozenset(
            i.time for i in self.timeline.instants if i.action is Action.ROLLBACK and i.is_completed
        )
