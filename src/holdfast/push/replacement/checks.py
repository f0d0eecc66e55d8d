"""What several rules of replacing check, and the refusals that they share."""

from collections.abc import Sequence

from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, InvalidRequest, Refused
from holdfast.model.lineage import EntryState
from holdfast.push.calls import Caller
from holdfast.push.replacement.decisions import Decision
from holdfast.push.segments.names import summarize_names
from holdfast.push.state.table_state import TableState


def absent(state: TableState, names: Sequence[str]) -> list[str]:
    """Those of the names that the table does not have."""
    # Mostly it has all, and there may be a hundred thousand.
    if state.segments.issuperset(names):
        return []
    return [name for name in names if name not in state.segments]


def decide_on_gone_entry(state: TableState, entry_id: str, wanted: EntryState, rules: Rules) -> Decision:
    """The answer for an entry that retention has removed since."""
    tombstone = state.push.tombstones.get(entry_id) if rules.remembers_ended else None
    if tombstone is None:
        raise no_such_entry(state, entry_id)
    if tombstone.state is wanted:
        return Decision(after=state, entry_ids=(entry_id,), already=True)
    if wanted is EntryState.COMPLETED:
        raise entry_reverted(entry_id)
    raise Refused(
        "the snapshot before the push is gone",
        entry=entry_id,
        code="REVERT_SOURCE_GONE",
        hint="retention removed it: push the older data again",
    )


def check_online(state: TableState, names: Sequence[str], rules: Rules) -> None:
    matters = rules.all_replicas and state.offline
    waiting = [name for name in names if name in state.offline] if matters else []
    if waiting:
        raise Conflict(
            "segments are not online on every replica",
            segments=summarize_names(waiting),
            count=len(waiting),
            code="TO_NOT_ONLINE",
            hint="wait, and end the push again",
        )


def check_not_emptied(before: TableState, after: TableState) -> None:
    """Refuse what would leave queries without a single segment, for callers who did not mean that."""
    if before.visible and not after.visible:
        raise Refused(
            "queries would see no rows any more",
            table=before.table,
            code="WOULD_BE_EMPTY",
            hint="call it again with toEmpty=true, if an empty table is meant",
        )


def check_owner(state: TableState, entry_id: str, by: Caller) -> None:
    owner = state.details_of(entry_id).actor
    if not by.operator and owner and owner != by.actor:
        raise Refused(
            "the push belongs to somebody else",
            entry=entry_id,
            owner=owner,
            code="FOREIGN_ENTRY",
            hint="let an operator do it",
        )


def check_lease(state: TableState, entry_id: str, lease: str) -> None:
    """Refuse who does not hold the lease that the push asked for."""
    held = state.details_of(entry_id).lease
    if held and held != lease:
        raise Conflict(
            "the push has a lease and the call does not carry its token",
            entry=entry_id,
            code="LEASE_HELD",
            hint="send the token that start answered",
        )


def lease_expires_at_ms(state: TableState, entry_id: str) -> int | None:
    """None: the push asked for no lease."""
    details = state.details_of(entry_id)
    return (details.renewed_at_ms or 0) + details.lease_ms if details.lease_ms else None


def no_such_entry(state: TableState, entry_id: str) -> InvalidRequest:
    return InvalidRequest(
        "the table has no such lineage entry",
        table=state.table,
        entry=entry_id,
        code="ENTRY_NOT_FOUND",
        hint="list the lineage",
    )


def entry_reverted(entry_id: str) -> Refused:
    return Refused(
        "the push was reverted",
        entry=entry_id,
        code="ENTRY_REVERTED",
        hint="start a new push, with new segment names",
    )
