"""Segments: their values, how they are described, and which names are accepted."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote_plus

from holdfast.config.push_schema import Schema
from holdfast.errors import InvalidRequest
from holdfast.format.segments import ColumnDescription
from holdfast.model.segment import ColumnRange, Segment

__all__ = [
    "ColumnRange",
    "Segment",
    "check_segment_name",
    "check_segment_names",
    "column_descriptions",
    "encoded_name",
]

# The last three groups are what ZooKeeper does not take in a path.
_REFUSED = re.compile(r'[\\/:*?"<>|,\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]')
_MAX_ENCODED = 180
"""Together with the longest ending in the deleted area this stays a file name on every disk."""


def column_descriptions(schema: Schema, ranges: Mapping[str, ColumnRange]) -> tuple[ColumnDescription, ...]:
    """The columns of a segment as its metadata tells them; those without a known range have none."""
    return tuple(
        ColumnDescription(
            name=one.name,
            type=one.type.value,
            kind=one.kind.value,
            is_single=not one.is_array,
            range=ranges.get(one.name),
        )
        for one in schema.fields.values()
    )


def check_segment_name(name: str) -> None:
    """Refuse what Pinot refuses, and a comma, which would split the name in the lineage record."""
    if not name or name != name.strip() or name.startswith(".") or _REFUSED.search(name):
        raise InvalidRequest(
            "not a segment name",
            segment=repr(name),
            code="INVALID_SEGMENT_NAME",
            hint='leave out \\ / : * ? " < > | , control characters, a leading dot and outer blanks',
        )
    try:
        length = len(encoded_name(name))
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "the segment name is not text", segment=repr(name), code="INVALID_SEGMENT_NAME"
        ) from error
    if length > _MAX_ENCODED:
        raise InvalidRequest(
            "the segment name is too long",
            segment=name[:80],
            length=length,
            limit=_MAX_ENCODED,
            code="INVALID_SEGMENT_NAME",
        )


def check_segment_names(names: Iterable[str]) -> None:
    for name in names:
        check_segment_name(name)


def encoded_name(name: str) -> str:
    """The name as Java's URL encoder writes it, which is how Pinot names files in the deep store."""
    return quote_plus(name, safe="*").replace("~", "%7E")
