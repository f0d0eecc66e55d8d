"""Plans of rollbacks that were requested and not completed, by us or by another program."""

from holdfast.format.malformed import Malformed
from holdfast.format.rollbacks import RollbackPlan, decode_rollback_plan
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import instant_file
from holdfast.storage.store import Store, read_or_none
from holdfast.timeline.timeline import Timeline


def read_plan(store: Store, rollback: InstantTime) -> RollbackPlan | None:
    """The stored plan; None if it is absent or torn."""
    content = read_or_none(store, instant_file(rollback, Action.ROLLBACK, State.REQUESTED))
    try:
        return None if content is None else decode_rollback_plan(content)
    except Malformed:
        return None


def pending_plans(store: Store, timeline: Timeline) -> dict[InstantTime, InstantTime]:
    """Target → rollback instant; the first plan for a target is the one that counts."""
    plans: dict[InstantTime, InstantTime] = {}
    for instant in timeline.pending_rollbacks:
        plan = read_plan(store, instant.time)
        if plan is not None:
            plans.setdefault(plan.target, instant.time)
    return plans
