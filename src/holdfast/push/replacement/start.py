"""Start: a push declares what it replaces, and by what; `end` publishes it, and `revert` takes it back.

Each rule is a pure function from what is known of a table to what becomes of
it, or a refusal that names the rule. The controller loads, asks here, and saves
the decision; when it loses a race it asks again about the new state.

    none ── start ──> IN_PROGRESS ── end ──> COMPLETED
                        │   ^                  │  ^
                revert, │   │ (never)   revert,│  │ redo
                forced  v   │         rollback v  │
                       REVERTED <──────────── REVERTED
"""

from collections import Counter
from dataclasses import replace

from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, InvalidRequest, Refused
from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.push.calls import Caller, StartRequest
from holdfast.push.replacement.checks import (
    check_owner,
    lease_expires_at_ms,
)
from holdfast.push.replacement.decisions import (
    Decision,
    Draft,
    entry_time,
)
from holdfast.push.replacement.snapshots import (
    segments_under_pins,
    surplus_snapshots,
)
from holdfast.push.segments.names import check_segment_names, summarize_names
from holdfast.push.state.table_state import EntryDetails, TableState


def start(
    state: TableState,
    request: StartRequest,
    *,
    entry_id: str,
    now_ms: int,
    by: Caller,
    rules: Rules,
    lease: str = "",
) -> Decision:
    """Open an entry; with `force`, revert what stands in its way and make room."""
    _check_names(request)
    seen = state.visible
    _check_sides(request, seen)
    if state.lineage.entry(entry_id) is not None:
        raise Conflict("the entry exists already", entry=entry_id, code="ENTRY_EXISTS")

    _check_list_is_fresh(state, request, seen, rules)
    full = frozenset(request.segments_from) == seen
    exclusive = _is_exclusive(state, request, full=full, rules=rules)
    in_the_way = _overlapping(state, request, full=full, exclusive=exclusive, rules=rules)
    if not request.force:
        _refuse_overlaps(state, request, in_the_way, rules)
    else:
        _check_takeover(state, request, in_the_way, now_ms=now_ms, by=by)

    time = entry_time(state.lineage, now_ms, rules)
    opened = LineageEntry(
        id=entry_id,
        segments_from=request.segments_from,
        segments_to=request.segments_to,
        state=EntryState.IN_PROGRESS,
        changed_at_ms=time,
    )
    details = EntryDetails(
        started_at_ms=now_ms,
        actor=by.actor,
        note=request.note,
        exclusive=exclusive,
        gates_required=request.gates_required,
        source=request.source,
        part=request.part,
        renewed_at_ms=now_ms if request.lease_ms else None,
        full=full,
        lease=lease,
        lease_ms=request.lease_ms,
    )
    draft = Draft(state, now_ms=time)
    if request.force:
        _make_room(draft, request, in_the_way, rules)
    draft.put(opened)
    draft.details[entry_id] = details
    return draft.decision(entry_ids=(entry_id,))


def _check_names(request: StartRequest) -> None:
    if not request.segments_from and not request.segments_to:
        raise InvalidRequest(
            "neither segmentsFrom nor segmentsTo names a segment",
            code="NOTHING_TO_REPLACE",
            hint="name what is replaced, or what replaces it",
        )
    check_segment_names((*request.segments_from, *request.segments_to))


def _check_sides(request: StartRequest, seen: frozenset[str]) -> None:
    unknown = [name for name in request.segments_from if name not in seen]
    if unknown:
        raise Refused(
            "segmentsFrom names segments that queries do not see",
            segments=summarize_names(unknown),
            code="FROM_NOT_VISIBLE",
            hint="list the segments again with excludeReplacedSegments=true",
        )
    taken = [name for name in request.segments_to if name in seen]
    if taken:
        raise Refused(
            "segmentsTo names segments that queries see already",
            segments=summarize_names(taken),
            code="TO_ALREADY_VISIBLE",
            hint="give every push names of its own",
        )


def _check_list_is_fresh(
    state: TableState, request: StartRequest, seen: frozenset[str], rules: Rules
) -> None:
    """Where every push delivers the whole table, a second first load would double its rows."""
    whole = rules.one_full_push and state.config.consistent_push
    if whole and seen and not request.segments_from:
        raise Conflict(
            "the table is no longer empty",
            segments=summarize_names(sorted(seen)),
            code="TABLE_NOT_EMPTY",
            hint="list the segments again and name them in segmentsFrom",
        )


def _is_exclusive(state: TableState, request: StartRequest, *, full: bool, rules: Rules) -> bool:
    if request.exclusive is not None:
        return request.exclusive
    return rules.one_full_push and state.config.consistent_push and full


def _overlapping(
    state: TableState, request: StartRequest, *, full: bool, exclusive: bool, rules: Rules
) -> tuple[LineageEntry, ...]:
    """Open entries that cannot stay beside the new one."""
    sources, targets = frozenset(request.segments_from), frozenset(request.segments_to)
    alone = rules.one_full_push and state.config.consistent_push

    def overlaps(entry: LineageEntry) -> bool:
        details = state.details_of(entry.id)
        return (
            not sources.isdisjoint(entry.segments_from)
            or not targets.isdisjoint(entry.segments_to)
            or (alone and full and details.full)
            or exclusive
            or details.exclusive
        )

    return tuple(filter(overlaps, state.open_entries))


def _refuse_overlaps(
    state: TableState, request: StartRequest, in_the_way: tuple[LineageEntry, ...], rules: Rules
) -> None:
    sources, targets = frozenset(request.segments_from), frozenset(request.segments_to)
    for entry in state.lineage.entries:
        replaced, named = sources.intersection(entry.segments_from), targets.intersection(entry.segments_to)
        if entry.is_live and replaced:
            raise Conflict(
                "another push replaces the same segments",
                segments=summarize_names(sorted(replaced)),
                entry=entry.id,
                code="FROM_ALREADY_REPLACED",
                hint="wait for it, or start with forceCleanup=true",
            )
        if entry.is_live and named:
            raise Conflict(
                "another push has the same segmentsTo",
                segments=summarize_names(sorted(named)),
                entry=entry.id,
                code="TO_NAME_CONFLICT",
                hint="give every push names of its own, or start with forceCleanup=true",
            )
        if rules.attempts_have_own_names and not entry.is_live and named:
            raise InvalidRequest(
                "segmentsTo names segments of a reverted push",
                segments=summarize_names(sorted(named)),
                entry=entry.id,
                code="NAME_REVERTED",
                hint="give every push names of its own, or start with forceCleanup=true",
            )
    _refuse_hidden_names(state, targets, rules)
    if in_the_way:
        holder = in_the_way[0].id
        raise Conflict(
            "another push of the whole table is open",
            entry=holder,
            holder=state.details_of(holder).actor or "unknown",
            code="LEASE_HELD",
            hint="wait for it, revert it, or start with forceCleanup=true",
        )


def _refuse_hidden_names(state: TableState, targets: frozenset[str], rules: Rules) -> None:
    """What a completed entry replaced stays hidden for good: no query would ever see it."""
    for entry in state.completed_entries if rules.attempts_have_own_names else ():
        hidden = targets.intersection(entry.segments_from)
        if hidden:
            raise Conflict(
                "segmentsTo names segments that a push has replaced",
                segments=summarize_names(sorted(hidden)),
                entry=entry.id,
                code="TO_NAME_CONFLICT",
                hint="give every push names of its own",
            )


def _check_takeover(
    state: TableState, request: StartRequest, in_the_way: tuple[LineageEntry, ...], *, now_ms: int, by: Caller
) -> None:
    for entry in in_the_way:
        check_owner(state, entry.id, by)
        expires = lease_expires_at_ms(state, entry.id)
        if expires is not None and expires > now_ms and not (request.takeover and by.operator):
            raise Conflict(
                "another push is alive",
                entry=entry.id,
                holder=state.details_of(entry.id).actor or "unknown",
                lease_ends_in_ms=expires - now_ms,
                code="LEASE_HELD",
                hint="wait until its lease has run out, or let an operator take over",
            )


def _make_room(
    draft: Draft, request: StartRequest, in_the_way: tuple[LineageEntry, ...], rules: Rules
) -> None:
    """Give up what overlaps, and remove what no revert can reach any more."""
    state = draft.before
    targets = frozenset(request.segments_to)
    _refuse_hidden_names(state, targets, rules)
    for entry in in_the_way:
        rest = tuple(name for name in entry.segments_to if name not in targets)
        if rest:
            draft.put(replace(entry, segments_to=rest, state=EntryState.REVERTED, changed_at_ms=draft.now_ms))
            draft.remove(rest)
            draft.finalise(entry.id)
        else:
            draft.drop(entry.id)
    kept = segments_under_pins(state, draft.now_ms) | (
        _names_of_live_entries(state) if rules.attempts_have_own_names else frozenset()
    )
    for entry in state.lineage.entries:
        if entry.state is EntryState.REVERTED:
            _clear_reverted(draft, entry, targets, kept, rules)
    _drop_superseded(draft, request, rules)


def _names_of_live_entries(state: TableState) -> frozenset[str]:
    """What live entries name on either side."""
    live = [entry for entry in state.lineage.entries if entry.is_live]
    return frozenset[str]().union(*(side for e in live for side in (e.segments_from, e.segments_to)))


def _clear_reverted(
    draft: Draft, entry: LineageEntry, targets: frozenset[str], kept: frozenset[str], rules: Rules
) -> None:
    going = [name for name in entry.segments_to if name not in kept]
    if going:
        draft.remove(going)
        draft.finalise(entry.id)
    if rules.attempts_have_own_names and not targets.isdisjoint(entry.segments_to):
        rest = tuple(name for name in entry.segments_to if name not in targets)
        if rest:
            draft.put(replace(entry, segments_to=rest))
        else:
            draft.drop(entry.id)


def _drop_superseded(draft: Draft, request: StartRequest, rules: Rules) -> None:
    """Remove snapshots so that, with the new one, no more than the table's number stay."""
    state = draft.before
    wanted = Counter(request.segments_from)
    last = next((e for e in reversed(state.completed_entries) if Counter(e.segments_to) == wanted), None)
    if last is None or not state.config.refresh:
        return
    if not rules.counts_snapshots:
        draft.remove(last.segments_from)
        draft.finalise(last.id)
        return
    room = max(1, state.config.retained_snapshots - 1)
    surplus = surplus_snapshots(state, room=room, now_ms=draft.now_ms)
    draft.remove(surplus.segments)
    for entry_id in surplus.entry_ids:
        draft.finalise(entry_id)
