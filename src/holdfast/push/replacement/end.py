"""End: a push is published, if everything that it declared is there and its gates passed."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from holdfast.config.gates import Gate
from holdfast.config.push_rules import Rules
from holdfast.errors import InvalidRequest, Refused
from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.push.calls import Caller
from holdfast.push.replacement.checks import (
    absent,
    check_lease,
    check_online,
    decide_on_gone_entry,
    entry_reverted,
)
from holdfast.push.replacement.decisions import (
    Decision,
    Draft,
    entry_time,
)
from holdfast.push.segments.names import summarize_names
from holdfast.push.state.table_state import TableState, digest_of


def end(
    state: TableState,
    entry_id: str,
    *,
    now_ms: int,
    by: Caller,
    rules: Rules,
    segments_to: Sequence[str] = (),
    lease: str = "",
    override_gates: bool = False,
) -> Decision:
    """Publish an entry: from now on queries see its `segments_to` in place of its `segments_from`."""
    entry = state.lineage.entry(entry_id)
    if entry is None:
        return decide_on_gone_entry(state, entry_id, EntryState.COMPLETED, rules)
    if entry.state is EntryState.COMPLETED:
        return Decision(after=state, entry_ids=(entry_id,), already=True)
    if entry.state is EntryState.REVERTED:
        raise entry_reverted(entry_id)
    check_lease(state, entry_id, lease)
    _check_sources_exist(state, entry)
    chosen = _choose_segments(entry, segments_to)
    _check_uploaded(state, chosen)
    check_online(state, chosen, rules)
    unmet = _unmet_gates(state, entry_id, chosen)
    if unmet is not None and not (override_gates and by.operator):
        raise unmet

    time = entry_time(state.lineage, now_ms, rules)
    draft = Draft(state, now_ms=time)
    draft.put(replace(entry, segments_to=chosen, state=EntryState.COMPLETED, changed_at_ms=time))
    if rules.narrowing_removes and chosen is not entry.segments_to:
        kept = frozenset(chosen)
        draft.remove(name for name in entry.segments_to if name not in kept)
    draft.publish(entry_id, ended_at_ms=now_ms)
    return replace(draft.decision(entry_ids=(entry_id,)), overridden=unmet is not None)


def _choose_segments(entry: LineageEntry, segments_to: Sequence[str]) -> tuple[str, ...]:
    if not segments_to:
        return entry.segments_to
    declared = frozenset(entry.segments_to)
    strangers = [name for name in segments_to if name not in declared]
    if strangers:
        raise InvalidRequest(
            "the push did not declare the segments",
            segments=summarize_names(strangers),
            entry=entry.id,
            code="TO_NOT_DECLARED",
            hint="end may leave out segments that start named, and add none",
        )
    return tuple(segments_to)


def _check_sources_exist(state: TableState, entry: LineageEntry) -> None:
    gone = absent(state, entry.segments_from)
    if gone:
        raise Refused(
            "segments that the push replaces were deleted meanwhile",
            segments=summarize_names(gone),
            entry=entry.id,
            code="FROM_MISSING_AT_END",
            hint="revert the push with forceRevert=true and push again",
        )


def _check_uploaded(state: TableState, names: Sequence[str]) -> None:
    missing = absent(state, names)
    if missing:
        raise Refused(
            "segments were not uploaded",
            segments=summarize_names(missing),
            count=len(missing),
            code="TO_NOT_UPLOADED",
            hint="upload them, or leave them out of the list that end is given",
        )


def _unmet_gates(state: TableState, entry_id: str, chosen: tuple[str, ...]) -> Refused | None:
    """Why the gates that the table has, or the push asked for, do not let it be published."""
    details = state.details_of(entry_id)
    if not (details.gates_required or state.config.gates):
        return None
    failed = [gate.name for gate in details.gates if not gate.passed]
    if failed:
        return Refused("gates failed", gates=summarize_names(failed), entry=entry_id, code="GATE_FAILED")
    if not is_validated(state, entry_id, chosen):
        return Refused(
            "the gates were not run on what is to be published",
            entry=entry_id,
            code="GATE_FAILED",
            hint="validate the push, then end it",
        )
    return None


def is_validated(state: TableState, entry_id: str, names: Iterable[str]) -> bool:
    """Whether gates, those that the table has now among them, were evaluated on these segments."""
    details = state.details_of(entry_id)
    return bool(details.gates) and details.gated == gate_scope(names, state.config.gates)


def gate_scope(names: Iterable[str], gates: Sequence[Gate]) -> str:
    """What gates looked at, and which of them the table had, as a digest."""
    return digest_of("\0".join((*sorted(names), *map(repr, gates))))
