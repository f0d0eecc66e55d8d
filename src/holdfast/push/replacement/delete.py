"""Deleting segments; an open push, and a possible revert, protect theirs."""

from collections.abc import Sequence

from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, InvalidRequest
from holdfast.model.lineage import EntryState
from holdfast.push.replacement.decisions import Decision, Draft
from holdfast.push.segments.names import summarize_names
from holdfast.push.state.table_state import TableState


def delete(
    state: TableState,
    names: Sequence[str],
    *,
    now_ms: int,
    rules: Rules,
    retention_ms: int | None = None,
) -> Decision:
    """Remove segments from the table, unless a live entry needs one of them."""
    missing = [name for name in names if name not in state.segments]
    if missing:
        raise InvalidRequest(
            "the table has no such segment", segments=summarize_names(missing), code="SEGMENT_NOT_FOUND"
        )
    blocked = segments_of_live_entries(state) & frozenset(names) if rules.locks_deletes else frozenset()
    if blocked:
        raise Conflict(
            "a push needs the segments",
            segments=summarize_names(sorted(blocked)),
            code="SEGMENT_LOCKED",
            hint="end or revert the push, or wait for retention",
        )
    draft = Draft(state, now_ms=now_ms, retention_ms=retention_ms)
    draft.remove(names)
    return draft.decision()


def segments_of_live_entries(state: TableState) -> frozenset[str]:
    """Segments that live entries need: both sides of open ones, the replaced side of completed ones."""
    held: set[str] = set()
    for entry in state.lineage.entries:
        if entry.is_live:
            held.update(entry.segments_from)
        if entry.state is EntryState.IN_PROGRESS:
            held.update(entry.segments_to)
    return frozenset(held)
