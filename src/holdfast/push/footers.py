"""What the footer of a segment's Parquet file tells about the values in its columns."""

from typing import Any

_LENGTH_MAX = 200


def column_ranges(footer: Any) -> dict[str, tuple[str, str]]:
    """The least and the greatest value of each column, as text; long ones are left out."""
    texts = {column: (_text(least), _text(most)) for column, (least, most) in footer_ranges(footer).items()}
    return {column: pair for column, pair in texts.items() if max(map(len, pair)) <= _LENGTH_MAX}


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
            least, most = ranges.get(path, (statistics.min, statistics.max))
            ranges[path] = (min(least, statistics.min), max(most, statistics.max))
    return {path: found for path, found in ranges.items() if path not in unknown and "." not in path}


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
