"""Which cleans are completed, and which are still to be finished."""

from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import instant_file, stored_plan
from holdfast.storage.store import Store
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline


def completed_cleans(timeline: Timeline) -> frozenset[InstantTime]:
    return frozenset(i.time for i in timeline.instants if i.action is Action.CLEAN and i.is_completed)


def pending_cleans(store: Store, timeline: Timeline, state: LedgerState) -> tuple[InstantTime, ...]:
    """Cleans that were decided, or requested by another program, and are not completed, oldest first."""
    requested = {i.time for i in timeline.instants if i.action is Action.CLEAN}
    first = timeline.instants[0].time if timeline.instants else None
    # One that is older than the active timeline was completed and archived.
    unarchived = {t for t in state.cleans if not state.is_archived(t) and (first is None or t > first)}
    decided = {t for t in unarchived - requested if _has_plan(store, t)}
    return tuple(sorted((requested | decided) - completed_cleans(timeline)))


def _has_plan(store: Store, clean: InstantTime) -> bool:
    """Whether a clean that is not on the timeline is still to come.

    Otherwise it was completed and archived: by another program, because the
    ledger would tell of us. The stored plan goes after the request has come.
    """
    places = (stored_plan(clean), instant_file(clean, Action.CLEAN, State.REQUESTED))
    return any(store.stat(path) is not None for path in places)
