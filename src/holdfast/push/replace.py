"""The rules of replacing segments: start, end, revert, rollback, redo, delete.

Each rule is a pure function from what is known of a table to what becomes of
it, or a refusal that names the rule. The controller loads, asks here, and saves
what it is told; when it loses a race it asks again about the new state.

    none ── start ──> IN_PROGRESS ── end ──> COMPLETED
                        │   ^                  │  ^
                revert, │   │ (never)   revert,│  │ redo
                forced  v   │         rollback v  │
                       REVERTED <──────────── REVERTED
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, InvalidRequest, Refused
from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.push.drafts import (
    Draft,
    absent,
    check_online,
    check_owner,
    digest_of,
    ended_before,
    entry_time,
    few,
    reverted_entry,
)
from holdfast.push.leases import check_lease, lease_expires_at_ms
from holdfast.push.reports import Caller
from holdfast.push.rules import Decision, StartRequest
from holdfast.push.segments import check_segment_names
from holdfast.push.snapshots import completed, details_of, pinned, surplus_snapshots
from holdfast.push.state import EntryDetails, TableState


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
        return ended_before(state, entry_id, EntryState.COMPLETED, rules)
    if entry.state is EntryState.COMPLETED:
        return Decision(after=state, entry_ids=(entry_id,), already=True)
    if entry.state is EntryState.REVERTED:
        raise reverted_entry(entry_id)
    check_lease(state, entry_id, lease)
    _check_sources_exist(state, entry)
    chosen = _narrowed(entry, segments_to)
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
            segments=few(unknown),
            code="FROM_NOT_VISIBLE",
            hint="list the segments again with excludeReplacedSegments=true",
        )
    taken = [name for name in request.segments_to if name in seen]
    if taken:
        raise Refused(
            "segmentsTo names segments that queries see already",
            segments=few(taken),
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
            segments=few(sorted(seen)),
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
        details = details_of(state, entry.id)
        return (
            not sources.isdisjoint(entry.segments_from)
            or not targets.isdisjoint(entry.segments_to)
            or (alone and full and details.full)
            or exclusive
            or details.exclusive
        )

    return tuple(
        entry for entry in state.lineage.entries if entry.state is EntryState.IN_PROGRESS and overlaps(entry)
    )


def _refuse_overlaps(
    state: TableState, request: StartRequest, in_the_way: tuple[LineageEntry, ...], rules: Rules
) -> None:
    sources, targets = frozenset(request.segments_from), frozenset(request.segments_to)
    for entry in state.lineage.entries:
        replaced, named = sources.intersection(entry.segments_from), targets.intersection(entry.segments_to)
        if entry.is_live and replaced:
            raise Conflict(
                "another push replaces the same segments",
                segments=few(sorted(replaced)),
                entry=entry.id,
                code="FROM_ALREADY_REPLACED",
                hint="wait for it, or start with forceCleanup=true",
            )
        if entry.is_live and named:
            raise Conflict(
                "another push has the same segmentsTo",
                segments=few(sorted(named)),
                entry=entry.id,
                code="TO_NAME_CONFLICT",
                hint="give every push names of its own, or start with forceCleanup=true",
            )
        if rules.attempts_have_own_names and not entry.is_live and named:
            raise InvalidRequest(
                "segmentsTo names segments of a reverted push",
                segments=few(sorted(named)),
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
            holder=details_of(state, holder).actor or "unknown",
            code="LEASE_HELD",
            hint="wait for it, revert it, or start with forceCleanup=true",
        )


def _refuse_hidden_names(state: TableState, targets: frozenset[str], rules: Rules) -> None:
    """What a completed entry replaced stays hidden for good: nobody would ever see it."""
    for entry in completed(state) if rules.attempts_have_own_names else ():
        hidden = targets.intersection(entry.segments_from)
        if hidden:
            raise Conflict(
                "segmentsTo names segments that a push has replaced",
                segments=few(sorted(hidden)),
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
                holder=details_of(state, entry.id).actor or "unknown",
                lease_ends_in_ms=expires - now_ms,
                code="LEASE_HELD",
                hint="wait until its lease has run out, or let an operator take over",
            )


def _make_room(
    draft: Draft, request: StartRequest, in_the_way: tuple[LineageEntry, ...], rules: Rules
) -> None:
    """Give up what overlaps, and remove what nobody can go back to any more."""
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
    kept = pinned(state, draft.now_ms) | (_held(state) if rules.attempts_have_own_names else frozenset())
    for entry in state.lineage.entries:
        if entry.state is EntryState.REVERTED:
            _clear_reverted(draft, entry, targets, kept, rules)
    _drop_superseded(draft, request, rules)


def _held(state: TableState) -> frozenset[str]:
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
    last = next((e for e in reversed(completed(state)) if Counter(e.segments_to) == wanted), None)
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


def _narrowed(entry: LineageEntry, segments_to: Sequence[str]) -> tuple[str, ...]:
    if not segments_to:
        return entry.segments_to
    declared = frozenset(entry.segments_to)
    strangers = [name for name in segments_to if name not in declared]
    if strangers:
        raise InvalidRequest(
            "the push did not declare the segments",
            segments=few(strangers),
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
            segments=few(gone),
            entry=entry.id,
            code="FROM_MISSING_AT_END",
            hint="revert the push with forceRevert=true and push again",
        )


def _check_uploaded(state: TableState, names: Sequence[str]) -> None:
    missing = absent(state, names)
    if missing:
        raise Refused(
            "segments were not uploaded",
            segments=few(missing),
            count=len(missing),
            code="TO_NOT_UPLOADED",
            hint="upload them, or leave them out of the list that end is given",
        )


def _unmet_gates(state: TableState, entry_id: str, chosen: tuple[str, ...]) -> Refused | None:
    """Why the gates that the push asked for do not let it be published."""
    details = details_of(state, entry_id)
    if not details.gates_required:
        return None
    failed = [gate.name for gate in details.gates if not gate.passed]
    if failed:
        return Refused("gates failed", gates=few(failed), entry=entry_id, code="GATE_FAILED")
    if not details.gates or details.gated != gate_scope(chosen):
        return Refused(
            "the gates were not run on what is to be published",
            entry=entry_id,
            code="GATE_FAILED",
            hint="validate the push, then end it",
        )
    return None


def gate_scope(names: Iterable[str]) -> str:
    """What gates looked at, as a digest."""
    return digest_of("\0".join(sorted(names)))
