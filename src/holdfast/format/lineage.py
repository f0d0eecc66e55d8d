"""Segment lineage as Pinot keeps it: one ZNRecord per table, one list per entry.

A list is [from, to, state, timestamp], names joined by commas, and "true" as a
fifth element where an entry may complete itself. Readers take four or more.
"""

import re
from collections.abc import Iterable, Sequence

from holdfast.format.malformed import Malformed
from holdfast.format.znode import ZNRecord
from holdfast.model.lineage import EntryState, Lineage, LineageEntry

_CUSTOM = "custom.map"
_ELEMENTS_MIN = 4
_TIMESTAMP = re.compile(r"-?[0-9]{1,19}")


def lineage_record(table: str, lineage: Lineage) -> ZNRecord:
    """The record of this lineage. Whatever else the stored record held is not in it."""
    return ZNRecord(
        id=table,
        maps={_CUSTOM: dict(lineage.custom)} if lineage.custom else {},
        lists={entry.id: _elements(entry) for entry in lineage.entries},
    )


def lineage_of(record: ZNRecord) -> Lineage:
    """The lineage in a record, oldest change first; entries changed in one millisecond by id."""
    entries = [_entry(*item) for item in record.lists.items()]
    entries.sort(key=lambda entry: (entry.changed_at_ms, entry.id))
    return Lineage(tuple(entries), record.maps.get(_CUSTOM, {}))


def _elements(entry: LineageEntry) -> tuple[str, ...]:
    elements = (
        _join(entry.segments_from),
        _join(entry.segments_to),
        entry.state.value,
        str(entry.changed_at_ms),
    )
    # Older readers accept the fifth element, but only writers that need it add it.
    return (*elements, "true") if entry.auto_complete else elements


def _join(names: Iterable[str]) -> str:
    joined = ",".join(names)
    assert _names(joined) == tuple(names), "a segment's name is not empty and has no comma"
    return joined


def _entry(id: str, elements: Sequence[str]) -> LineageEntry:  # noqa: A002  # the word of the protocol
    if len(elements) < _ELEMENTS_MIN:
        raise Malformed(f"entry {id!r} has {len(elements)} elements, and needs {_ELEMENTS_MIN}")
    segments_from, segments_to, state, timestamp = elements[:_ELEMENTS_MIN]
    if state not in EntryState.__members__:
        raise Malformed(f"entry {id!r} has the state {state!r}")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise Malformed(f"entry {id!r} has the timestamp {timestamp!r}")
    return LineageEntry(
        id=id,
        segments_from=_names(segments_from),
        segments_to=_names(segments_to),
        state=EntryState(state),
        changed_at_ms=int(timestamp),
        auto_complete=len(elements) > _ELEMENTS_MIN and elements[_ELEMENTS_MIN].lower() == "true",
    )


def _names(joined: str) -> tuple[str, ...]:
    return tuple(filter(None, joined.split(",")))
