"""Which uploaded segments are accepted, and what becomes of the table: pure decisions.

The bytes are durable, in a file of their own, before a segment is registered;
a file is never overwritten, so readers of the older one are not disturbed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, InvalidRequest, Refused
from holdfast.model.lineage import LineageEntry, visible
from holdfast.model.segment import Segment
from holdfast.push.calls import UploadOptions
from holdfast.push.replacement.checks import check_lease
from holdfast.push.replacement.decisions import Decision
from holdfast.push.segments.names import check_segment_names, summarize_names
from holdfast.push.state.table_state import EntryDetails, PendingDeletion, TableState

_YEAR_1971_MS = 31_536_000_000
_YEAR_2071_MS = 3_187_296_000_000


def check_upload(
    state: TableState,
    incoming: Mapping[str, int],
    known: Mapping[str, Segment],
    *,
    options: UploadOptions,
    rules: Rules,
    lease: str = "",
) -> None:
    """Refuse an upload. `incoming` has the CRC by name; `known` is the metadata that exists."""
    check_segment_names(incoming)
    for name, crc in incoming.items():
        present = known.get(name) if name in state.segments else None
        _check_options(name, crc, present, options)
    if rules.guards_uploads:
        _check_entries(state, incoming)
        _check_in_place(state, incoming, known, options)
    _check_gated(state, incoming)
    _check_exclusive(state, incoming, rules)
    if rules.guards_uploads:
        _check_reserved(state, incoming)
    for entry in _receiving(state, incoming):
        check_lease(state, entry.id, lease)


def register_segments(
    state: TableState, added: Mapping[str, Segment], known: Mapping[str, Segment], *, now_ms: int
) -> Decision:
    """Put the segments into the table. `known` is the metadata they had before, if any."""
    segments = state.segments | added.keys()
    seen = state.visible
    changed = frozenset(name for name, segment in added.items() if _differs(segment, known.get(name)))
    shows_other_rows = visible(segments, state.lineage) != seen or not changed.isdisjoint(seen)
    epoch = state.push.epoch + shows_other_rows
    deletions = _without_registered(state, added)
    replaced = tuple(sorted(_files_to_free(added, known)))
    if replaced:
        retention_ms = state.config.deleted_retention_ms
        freed = PendingDeletion(
            segments=(), epoch=epoch, since_ms=now_ms, retention_ms=retention_ms, files=replaced
        )
        deletions = (*deletions, freed)
    push = replace(
        state.push, epoch=epoch, deletions=deletions, details=_touch_entries(state, added, changed, now_ms)
    )
    return Decision(after=replace(state, segments=segments, push=push), entry_ids=tuple(sorted(changed)))


def _differs(segment: Segment, before: Segment | None) -> bool:
    return before is None or before.uri != segment.uri


def _files_to_free(added: Mapping[str, Segment], known: Mapping[str, Segment]) -> set[str]:
    """Files that the new metadata no longer names."""
    return {known[name].uri for name in added if name in known and known[name].uri != added[name].uri}


def _without_registered(state: TableState, added: Mapping[str, Segment]) -> tuple[PendingDeletion, ...]:
    """The pending deletions without the names that are back.

    Their old files are found by the metadata that is being replaced, and are
    listed by path from here on.
    """
    if not any(not added.keys().isdisjoint(pending.segments) for pending in state.push.deletions):
        return state.push.deletions
    return tuple(
        replace(pending, segments=tuple(name for name in pending.segments if name not in added))
        for pending in state.push.deletions
    )


def _touch_entries(
    state: TableState, added: Mapping[str, Segment], changed: frozenset[str], now_ms: int
) -> Mapping[str, EntryDetails]:
    """An upload is a sign of life of its push, and what its gates found no longer holds."""
    details = dict(state.push.details)
    for entry in _receiving(state, added):
        known = state.details_of(entry.id)
        if known.lease_ms:
            known = replace(known, renewed_at_ms=now_ms)
        if not changed.isdisjoint(entry.segments_to):
            known = replace(known, gates=(), gated="")
        if known != state.details_of(entry.id):
            details[entry.id] = known
    return MappingProxyType(details)


def _receiving(state: TableState, names: Iterable[str]) -> list[LineageEntry]:
    """The open pushes that declared one of the names."""
    wanted = frozenset(names)
    return [entry for entry in state.open_entries if not wanted.isdisjoint(entry.segments_to)]


def _check_options(name: str, crc: int, present: Segment | None, options: UploadOptions) -> None:
    if present is None and options.refresh_only:
        raise InvalidRequest("there is no such segment to refresh", segment=name, code="REFRESH_OF_MISSING")
    if options.if_match is not None and (present is None or present.crc != options.if_match):
        raise Conflict(
            "the segment does not have the expected CRC",
            segment=name,
            expected=options.if_match,
            found="none" if present is None else present.crc,
            code="CRC_MISMATCH",
        )
    if present is not None and not options.allow_refresh:
        raise Conflict(
            "the segment exists already", segment=name, code="SEGMENT_EXISTS", hint="allow a refresh"
        )


def _check_entries(state: TableState, names: Iterable[str]) -> None:
    live = frozenset[str]().union(*(e.segments_to for e in state.lineage.entries if e.is_live))
    others = frozenset(names) - live
    for entry in state.lineage.entries:
        given_up = () if entry.is_live else sorted(others.intersection(entry.segments_to))
        if given_up:
            raise Conflict(
                "the push of the segment was reverted",
                segments=summarize_names(given_up),
                entry=entry.id,
                code="LINEAGE_ENTRY_REVERTED",
                hint="start a new push, with new segment names",
            )


def _check_reserved(state: TableState, names: Iterable[str]) -> None:
    """L5: a push that was given up and forgotten must not add its late segments to what queries see.

    Before the first push of a table there is none that could be late.
    """
    was_pushed = state.lineage.entries or state.push.tombstones
    if not (state.config.consistent_push and was_pushed):
        return
    live = (e.segments_to for e in state.lineage.entries if e.is_live)
    strangers = sorted(frozenset(names).difference(state.segments, *live))
    if strangers:
        raise Conflict(
            "no open push declared the segment",
            segments=summarize_names(strangers),
            code="NOT_RESERVED",
            hint="start a push that names it in segmentsTo, or switch consistent push off",
        )


def _check_gated(state: TableState, names: Iterable[str]) -> None:
    """What a table's gates guard is shown by pushes alone: other uploads would be seen at once."""
    if not state.config.gates:
        return
    strangers = sorted(frozenset(names).difference(*(e.segments_to for e in state.open_entries)))
    if strangers:
        raise Refused(
            "the table has gates, and no open push declared the segment",
            segments=summarize_names(strangers),
            code="GATED",
            hint="start a push that names it in segmentsTo",
        )


def _check_in_place(
    state: TableState, incoming: Mapping[str, int], known: Mapping[str, Segment], options: UploadOptions
) -> None:
    """Other rows under a name that queries or a revert rely on would change a snapshot unseen."""
    if not state.config.consistent_push or options.allow_in_place:
        return
    relied_on = state.visible.union(
        *(side for entry in state.completed_entries for side in (entry.segments_from, entry.segments_to))
    )
    changed = sorted(
        name
        for name in relied_on.intersection(incoming)
        if name not in state.segments or name not in known or known[name].crc != incoming[name]
    )
    if changed:
        raise Conflict(
            "the segment is part of a published snapshot",
            segments=summarize_names(changed),
            code="IN_PLACE_REFRESH",
            hint="push it under a new name, or allow a refresh in place",
        )


def _check_exclusive(state: TableState, names: Iterable[str], rules: Rules) -> None:
    for entry in state.open_entries if rules.guards_uploads else ():
        is_exclusive = state.details_of(entry.id).exclusive
        strangers = sorted(frozenset(names).difference(entry.segments_to)) if is_exclusive else []
        if strangers:
            raise Conflict(
                "an exclusive push is open",
                segments=summarize_names(strangers),
                entry=entry.id,
                code="EXCLUSIVE_PUSH",
                hint="wait until it ended",
            )


def check_times(state: TableState, segment: Segment) -> None:
    """Pinot's sanity check of a segment's time range."""
    if not state.config.checks_segment_times:
        return
    if segment.start_ms is None or segment.end_ms is None:
        if state.config.time_column is not None:
            raise Refused(
                "the segment has no time range and the table has a time column",
                segment=segment.name,
                column=state.config.time_column,
                code="INVALID_TIME_RANGE",
            )
        return
    if not _YEAR_1971_MS <= segment.start_ms <= segment.end_ms <= _YEAR_2071_MS:
        raise Refused(
            "the segment's time range is not between 1971 and 2071",
            segment=segment.name,
            start_ms=segment.start_ms,
            end_ms=segment.end_ms,
            code="INVALID_TIME_RANGE",
            hint="switch the check off with ingestionConfig.segmentTimeValueCheck=false",
        )
