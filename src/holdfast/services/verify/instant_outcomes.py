"""InstantOutcomes: what became of an instant, as the ledger and the timeline tell.

Files, markers and heartbeats name their instant. Whether they are needed
follows from its outcome.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from holdfast.model.instant import Action, InstantTime, end_of
from holdfast.table.pending import is_rollback_over, pending_restore
from holdfast.timeline.ledger import Aborted, LedgerState
from holdfast.timeline.timeline import Timeline


class Outcome(Enum):
    PENDING = "pending"
    """It may still become a commit, or its traces are not all removed."""
    COMMITTED = "committed"
    GONE = "gone"
    """It was rolled back; nothing of it may be left."""
    ARCHIVED = "archived"
    """It is older than the active timeline: committed, unless somebody knows better."""
    UNKNOWN = "unknown"
    """It is not known. A writer makes itself known before it writes anything else."""


@dataclass(frozen=True)
class InstantOutcomes:
    timeline: Timeline
    state: LedgerState
    undone: frozenset[InstantTime]
    """What completed rollbacks and restores say they removed."""
    planned: frozenset[InstantTime]
    """What pending rollbacks are to remove."""

    def of(self, time: InstantTime) -> Outcome:
        if time in self._completed:
            return Outcome.COMMITTED
        if time in self._pending or time in self._shown:
            return Outcome.PENDING  # What was taken back and is still shown is withdrawn before its files go.
        aborted = self.state.aborted.get(time)
        if aborted is not None:
            return Outcome.GONE if self.is_carried_out(aborted) else Outcome.PENDING
        if time in self.undone:
            return Outcome.GONE
        if self.state.is_taken_back(time):
            return Outcome.GONE if pending_restore(self.timeline, self.state) is None else Outcome.PENDING
        if self.state.is_archived(time):
            return Outcome.ARCHIVED
        if time in self.state.committed:
            return Outcome.PENDING
        return Outcome.ARCHIVED if self.is_before_timeline(time) else Outcome.UNKNOWN

    def is_carried_out(self, aborted: Aborted) -> bool:
        """Whether the rollback of an aborted instant is finished."""
        is_shown = aborted.restore is None and aborted.rollback in self._finished_rollbacks
        return is_shown or is_rollback_over(self.timeline, self.state, aborted)

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
    def _shown(self) -> frozenset[InstantTime]:
        return frozenset(instant.time for instant in self.timeline.completed_commits)

    @cached_property
    def _completed(self) -> frozenset[InstantTime]:
        return self._shown - self.taken_back

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
