"""Parts of a table: a push that replaces a time range or a partition names neither more nor less.

What the segments tell of themselves decides: their time range, and the least
and the greatest value of a column. A segment that may lie on both sides of the
border is never replaced silently.
"""

from collections.abc import Iterable, Mapping
from enum import Enum

from holdfast.errors import Conflict, InvalidRequest, Refused
from holdfast.model.segment import Segment
from holdfast.push.segments.names import summarize_names
from holdfast.push.state.table_state import Part


class _Place(Enum):
    INSIDE = "inside"
    OUTSIDE = "outside"
    ACROSS = "across"
    """Some of its rows may be on either side, or it does not say."""


def check_part(part: Part) -> None:
    has_times = part.start_ms is not None and part.end_ms is not None
    if not has_times and not part.column:
        raise InvalidRequest(
            "the part of the table has no border",
            code="PART_INVALID",
            hint="give a timeRange, a partition or both",
        )
    if part.start_ms is not None and part.end_ms is not None and part.start_ms >= part.end_ms:
        raise InvalidRequest("the time range is empty", code="PART_INVALID")


def segments_in(part: Part, segments: Mapping[str, Segment], names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that lie in the part; `Conflict` if one lies across its border."""
    places = {name: _place(part, segments.get(name)) for name in sorted(names)}
    across = [name for name, place in places.items() if place is _Place.ACROSS]
    if across:
        raise Conflict(
            "segments lie across the border of the part",
            segments=summarize_names(across),
            count=len(across),
            code="PART_OVERLAPS",
            hint="widen the part, or name segmentsFrom",
        )
    return tuple(name for name, place in places.items() if place is _Place.INSIDE)


def check_inside(part: Part, segments: Mapping[str, Segment], names: Iterable[str]) -> None:
    """What a push of a part brings must lie in it, or the next push of the part would miss it."""
    strange = [name for name in names if _place(part, segments.get(name)) is not _Place.INSIDE]
    if strange:
        raise Refused(
            "segments do not lie in the part that the push replaces",
            segments=summarize_names(strange),
            count=len(strange),
            code="TO_OUTSIDE_PART",
            hint="revert the push, and build the segments again",
        )


def _place(part: Part, segment: Segment | None) -> _Place:
    if segment is None:
        return _Place.ACROSS
    places = {_in_time(part, segment), _in_partition(part, segment)}
    if _Place.OUTSIDE in places:
        return _Place.OUTSIDE
    return _Place.ACROSS if _Place.ACROSS in places else _Place.INSIDE


def _in_time(part: Part, segment: Segment) -> _Place:
    if part.start_ms is None or part.end_ms is None:
        return _Place.INSIDE
    if segment.start_ms is None or segment.end_ms is None:
        return _Place.ACROSS
    if segment.end_ms < part.start_ms or segment.start_ms >= part.end_ms:
        return _Place.OUTSIDE
    is_inside = segment.start_ms >= part.start_ms and segment.end_ms < part.end_ms
    return _Place.INSIDE if is_inside else _Place.ACROSS


def _in_partition(part: Part, segment: Segment) -> _Place:
    if not part.column:
        return _Place.INSIDE
    values = segment.columns.get(part.column)
    if values is None or values.least != values.greatest:
        return _Place.ACROSS
    return _Place.INSIDE if values.least == part.value else _Place.OUTSIDE
