"""Which cleans are completed, and which are still to be finished."""

from holdfast.model.instant import Action, InstantTime
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline


def completed_cleans(timeline: Timeline) -> frozenset[InstantTime]:
    return frozenset(i.time for i in timeline.instants if i.action is Action.CLEAN and i.is_completed)


def pending_cleans(timeline: Timeline, state: LedgerState) -> tuple[InstantTime, ...]:
    """Cleans that were decided, or requested by another program, and are not completed, oldest first."""
    requested = {i.time for i in timeline.instants if i.action is Action.CLEAN}
    first = timeline.instants[0].time if timeline.instants else None
    # One that is older than the active timeline was completed and archived.
    unarchived = {t for t in state.cleans if not state.is_archived(t) and (first is None or t > first)}
    return tuple(sorted((requested | unarchived) - completed_cleans(timeline)))
