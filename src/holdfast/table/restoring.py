"""A restore that is not finished: while there is one, nobody may write."""

from holdfast.errors import Refused
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import instant_file
from holdfast.storage.store import Store
from holdfast.timeline.ledger import LedgerState, Restoring
from holdfast.timeline.timeline import Timeline


def pending_restore(timeline: Timeline, state: LedgerState) -> Restoring | None:
    """The restore that the ledger decided and that is not completed yet."""
    restore = state.restore
    if restore is None:
        return None
    shown = timeline.find(restore.instant, Action.RESTORE)
    return restore if shown is None or not shown.is_completed else None


def refuse_if_restoring(timeline: Timeline, state: LedgerState) -> None:
    """`Refused` while a restore is pending, ours or another program's."""
    ours = pending_restore(timeline, state)
    if ours is not None:
        raise _refusal(ours.instant, hint=f"finish it: holdfast restore PATH --to {ours.to}")
    for instant in timeline.instants:
        if instant.action is Action.RESTORE and not instant.is_completed:
            raise _refusal(instant.time, hint="let the program finish it that began it")


def forget_rollbacks(store: Store, timeline: Timeline, state: LedgerState) -> None:
    """Take from the timeline the rollbacks that the newest restore made superfluous, once it is completed.

    They are those it consisted of, whose record is its own, and all between
    the commit it went to and itself.
    """
    restore = state.restore
    if restore is None or pending_restore(timeline, state) is not None:
        return
    parts = {one.rollback for one in state.aborted.values() if one.restore == restore.instant}
    for instant in timeline.instants:
        is_between = restore.to < instant.time < restore.instant
        if instant.action is Action.ROLLBACK and (is_between or instant.time in parts):
            for reached in (State.COMPLETED, State.INFLIGHT, State.REQUESTED):
                store.delete(instant_file(instant.time, Action.ROLLBACK, reached))


def _refusal(restore: InstantTime, *, hint: str) -> Refused:
    return Refused("a restore of this table is not finished", restore=restore, hint=hint)
