"""Revert, rollback to any retained snapshot, and redo: pure decisions."""

from dataclasses import replace

from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, InvalidRequest, Refused
from holdfast.model.lineage import EntryState, Lineage, LineageEntry
from holdfast.push.calls import Caller, RollbackTarget
from holdfast.push.replacement.checks import (
    absent,
    check_online,
    check_owner,
    decide_on_gone_entry,
    entry_reverted,
    no_such_entry,
)
from holdfast.push.replacement.decisions import (
    Decision,
    Draft,
    entry_time,
)
from holdfast.push.replacement.snapshots import (
    redo_steps,
    rollback_snapshots,
    was_published,
    was_rejected,
)
from holdfast.push.segments.names import summarize_names
from holdfast.push.state.table_state import TableState


def revert(
    state: TableState,
    entry_id: str,
    *,
    force: bool,
    now_ms: int,
    by: Caller,
    rules: Rules,
    only_open: bool = False,
) -> Decision:
    """Go back to what was before an entry; with `force`, give an open one up, or `only_open` that."""
    entry = state.lineage.entry(entry_id)
    if entry is None:
        return decide_on_gone_entry(state, entry_id, EntryState.REVERTED, rules)
    if entry.state is EntryState.REVERTED:
        if rules.repeats_revert:
            return Decision(after=state, entry_ids=(entry_id,), already=True)
        raise entry_reverted(entry_id)
    if entry.state is EntryState.IN_PROGRESS and not force:
        raise Refused(
            "the push is still open",
            entry=entry_id,
            code="REVERT_NEEDS_FORCE",
            hint="end it, or revert it with forceRevert=true",
        )
    if entry.state is EntryState.COMPLETED and only_open:
        raise Refused("the push was published meanwhile", entry=entry_id, code="ENTRY_COMPLETED")
    check_owner(state, entry_id, by)
    return _revert_all(state, (entry,), now_ms=now_ms, rules=rules)


def rollback(state: TableState, target: RollbackTarget, *, now_ms: int, by: Caller, rules: Rules) -> Decision:
    """Revert every entry newer than the target in one step."""
    snapshot = _find_snapshot(state, target)
    _refuse_if_newer(state, target)
    if not snapshot:
        return Decision(after=state, already=True)
    entries = tuple(entry for entry in state.completed_entries if entry.id in frozenset(snapshot))
    for entry in entries:
        check_owner(state, entry.id, by)
    return _revert_all(state, tuple(reversed(entries)), now_ms=now_ms, rules=rules)


def redo(state: TableState, entry_id: str, *, now_ms: int, by: Caller, rules: Rules) -> Decision:
    """Publish again what a revert or a rollback took back, and whatever it was built on."""
    entry = state.lineage.entry(entry_id)
    if entry is None:
        raise no_such_entry(state, entry_id)
    if entry.state is EntryState.COMPLETED:
        return Decision(after=state, entry_ids=(entry_id,), already=True)
    if not was_published(state, entry):
        raise Refused("the entry was never published", entry=entry_id, code="REDO_NOT_PUBLISHED")
    steps = redo_steps(state, entry)
    if steps is None:
        raise Refused(
            "there is nothing left to redo",
            entry=entry_id,
            code="REDO_SOURCE_GONE",
            hint="its segments were deleted, or another push took its place: push again",
        )
    check_owner(state, entry_id, by)
    for step in steps:
        check_online(state, step.segments_to, rules)
        _refuse_claimed(state, step)

    draft = Draft(state, now_ms=now_ms)
    for step in steps:
        time = entry_time(Lineage(tuple(draft.entries.values())), now_ms, rules)
        draft.put(replace(step, state=EntryState.COMPLETED, changed_at_ms=time))
        draft.publish(step.id, ended_at_ms=now_ms)
    return draft.decision(entry_ids=tuple(step.id for step in steps))


def _revert_all(
    state: TableState, entries: tuple[LineageEntry, ...], *, now_ms: int, rules: Rules
) -> Decision:
    """Revert the entries, newest first, in one step."""
    going = frozenset(entry.id for entry in entries)
    for entry in entries:
        _refuse_consumed(state, entry, going)
        if entry.state is EntryState.COMPLETED:
            _check_way_back(state, entry, rules)
    time = entry_time(state.lineage, now_ms, rules)
    draft = Draft(state, now_ms=time)
    # The oldest gets the least time, so that the record keeps telling the order.
    for later, entry in enumerate(reversed(entries)):
        draft.put(replace(entry, state=EntryState.REVERTED, changed_at_ms=time + later))
        if rules.keeps_reverted and was_rejected(state, entry):
            continue  # Until retention, queries that name the entry see what the gate found.
        if rules.keeps_reverted and entry.state is EntryState.COMPLETED:
            details = state.details_of(entry.id)
            # What hides from now on is its new side, and that stays: it can be redone, even if
            # what it had replaced was being deleted.
            draft.details[entry.id] = replace(
                details,
                epoch=state.push.epoch if details.epoch is None else details.epoch,
                finalised=False,
            )
        else:
            draft.remove(entry.segments_to)
            draft.finalise(entry.id)
    decision = draft.decision(entry_ids=tuple(entry.id for entry in entries))
    _check_all_back(decision.after, entries)
    return decision


def _refuse_if_newer(state: TableState, target: RollbackTarget) -> None:
    newest = next((entry.id for entry in reversed(state.completed_entries)), None)
    if target.newest not in (None, newest):
        raise Conflict(
            "the snapshots have changed",
            newest=newest or "none",
            expected=target.newest,
            code="SNAPSHOT_CHANGED",
            hint="list the snapshots again",
        )


def _check_way_back(state: TableState, entry: LineageEntry, rules: Rules) -> None:
    gone = absent(state, entry.segments_from)
    offline = sorted(state.offline.intersection(entry.segments_from)) if state.offline else []
    if gone or offline or (state.details_of(entry.id).finalised and entry.segments_from):
        raise Refused(
            "the snapshot before the push is no longer complete",
            segments=summarize_names(gone or offline),
            entry=entry.id,
            code="REVERT_SOURCE_GONE",
            hint="retention removed it: push the older data again",
        )


def _refuse_consumed(state: TableState, entry: LineageEntry, going: frozenset[str]) -> None:
    others = [one for one in state.lineage.entries if one.is_live and one.id not in going]
    for other in others:
        if not frozenset(other.segments_from).isdisjoint(entry.segments_to):
            raise Conflict(
                "a later push builds on this one",
                entry=entry.id,
                later=other.id,
                code="REVERT_CONSUMED_BY",
                hint=f"revert {other.id} first",
            )


def _check_all_back(after: TableState, entries: tuple[LineageEntry, ...]) -> None:
    """L4: the whole previous snapshot, or a refusal."""
    if len(entries) == 1 and after.visible.issuperset(entries[0].segments_from):
        return  # Mostly it is one push, and there may be a hundred thousand names.
    newly = frozenset[str]().union(*(e.segments_from for e in entries if e.state is EntryState.COMPLETED))
    between = frozenset[str]().union(*(e.segments_to for e in entries))
    hidden = sorted(newly - between - after.visible)
    if hidden:
        raise Refused(
            "another entry hides what would come back",
            segments=summarize_names(hidden),
            code="REVERT_SOURCE_GONE",
            hint="push the older data again",
        )


def _refuse_claimed(state: TableState, entry: LineageEntry) -> None:
    sources = frozenset(entry.segments_from)
    for other in state.open_entries:
        if state.details_of(other.id).exclusive or not sources.isdisjoint(other.segments_from):
            raise Conflict(
                "an open push replaces the same segments",
                entry=entry.id,
                other=other.id,
                code="FROM_ALREADY_REPLACED",
                hint=f"end or revert {other.id} first",
            )


def _find_snapshot(state: TableState, target: RollbackTarget) -> tuple[str, ...]:
    """The entries to revert, newest first; empty if the target is what queries see."""
    given = [value for value in (target.steps, target.entry_id, target.epoch) if value is not None]
    if len(given) != 1 or (target.steps is not None and target.steps < 1):
        raise InvalidRequest(
            "a rollback has one target",
            code="NO_TARGET",
            hint="give a number of steps from 1, an entry, or an epoch",
        )
    known = rollback_snapshots(state)
    for snapshot in known:
        if target.steps == snapshot.position and snapshot.position:
            return snapshot.steps
        if target.entry_id is not None and target.entry_id == snapshot.entry_id:
            return snapshot.steps
        if target.epoch is not None and target.epoch == snapshot.epoch:
            return snapshot.steps
    raise Refused(
        "there is no such snapshot to go back to",
        target=given[0],
        steps_possible=len(known) - 1,
        code="REVERT_SOURCE_GONE",
        hint="list the snapshots",
    )
