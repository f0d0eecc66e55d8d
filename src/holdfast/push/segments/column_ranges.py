"""The least and the greatest value of a segment's columns: from footers, and in its metadata."""

from collections.abc import Mapping
from typing import Any

from holdfast.config.push_schema import Schema
from holdfast.format.segments import ColumnDescription
from holdfast.model.segment import ColumnRange

_LENGTH_MAX = 200


def column_ranges(footer: Any) -> dict[str, tuple[str, str]]:
    """The least and the greatest value of each column, as text; long ones are left out."""
    texts = {column: (_text(least), _text(most)) for column, (least, most) in footer_ranges(footer).items()}
    return {column: pair for column, pair in texts.items() if is_short(*pair)}


def is_short(least: str, greatest: str) -> bool:
    """Whether a range is kept with the segment's record; without one nothing is left out by it."""
    return max(len(least), len(greatest)) <= _LENGTH_MAX


def footer_ranges(footer: Any) -> dict[str, tuple[Any, Any]]:
    """The least and the greatest value of each column whose statistics are whole."""
    ranges: dict[str, tuple[Any, Any]] = {}
    unknown: set[str] = set()
    for group in range(footer.num_row_groups):
        for index in range(footer.row_group(group).num_columns):
            column = footer.row_group(group).column(index)
            path, statistics = column.path_in_schema, column.statistics
            if statistics is None or not statistics.has_min_max:
                if statistics is None or statistics.null_count != column.num_values:
                    unknown.add(path)
                continue
            try:
                found = statistics.min, statistics.max
            except ValueError:  # Text that is none, for instance: nothing is known of the column.
                unknown.add(path)
                continue
            least, most = ranges.get(path, found)
            ranges[path] = (min(least, found[0]), max(most, found[1]))
    return {path: found for path, found in ranges.items() if path not in unknown and "." not in path}


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


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
