"""Whether the columns of a file can be read as what the schema says, whatever their values are.

A file of which one value cannot be read would make its whole table unreadable
once it is published. So a type is taken only if each of its values fits, or if
the footer says that those in the file do.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from holdfast.config.push_schema import DataType, Schema
from holdfast.errors import InvalidRequest
from holdfast.format.segments import ColumnDescription

ARRAY = "[]"
_INT_MAX = 2**31
_LONG_MAX = 2**63
_MOMENT_MAX_MS = _LONG_MAX // 1000
"""Moments are read as microseconds."""
_FLOAT_MAX = 3.4028234663852886e38
_WIDER: Mapping[str, frozenset[str]] = {
    "BOOLEAN": frozenset({"INT", "LONG", "FLOAT", "DOUBLE"}),
    "INT": frozenset({"LONG", "FLOAT", "DOUBLE", "BIG_DECIMAL", "BOOLEAN", "TIMESTAMP"}),
    "LONG": frozenset({"FLOAT", "DOUBLE", "BIG_DECIMAL", "BOOLEAN", "TIMESTAMP"}),
    "FLOAT": frozenset({"DOUBLE"}),
    "BIG_DECIMAL": frozenset({"DOUBLE"}),
    "TIMESTAMP": frozenset({"LONG"}),
    "STRING": frozenset({"BYTES"}),
    "JSON": frozenset({"BYTES"}),
}
"""What a described type may be read as, beside itself and text."""

Kinds = Mapping[str, str]
"""Column → the type that the schema gives it, `[]` behind that of a column of several values."""


def kinds_of(schema: Schema) -> dict[str, str]:
    return {
        name: field.type.value + (ARRAY if field.is_array else "") for name, field in schema.fields.items()
    }


def check_stored_types(segment: str, stored: pa.Schema, footer: Any, kinds: Kinds) -> None:
    """Refuse a file with a column that cannot be read as the schema says."""
    by_name = {name.lower(): name for name in stored.names}
    for column, kind in kinds.items():
        name = column if column in stored.names else by_name.get(column.lower())
        if name is None:
            continue
        found = stored.field(name).type
        if not _fits(found, kind, _ends(footer, name)):
            raise _misfit(segment, column, str(found), kind)


def check_described_types(segment: str, columns: Iterable[ColumnDescription], kinds: Kinds) -> None:
    """Refuse a description whose columns could not be read as the schema says."""
    for column in columns:
        kind = kinds.get(column.name)
        if kind is None:
            continue
        wanted = kind.removesuffix(ARRAY)
        is_alike = wanted in ("STRING", "JSON", column.type) or wanted in _WIDER.get(column.type, ())
        if not is_alike or (not column.is_single and wanted == kind):
            found = column.type + ("" if column.is_single else ARRAY)
            raise _misfit(segment, column.name, found, kind)


def _misfit(segment: str, column: str, found: str, expected: str) -> InvalidRequest:
    return InvalidRequest(
        "a column of the segment cannot be read as the schema says",
        segment=segment,
        column=column,
        found=found,
        expected=expected,
        code="TYPE_MISMATCH",
        hint="store the column in the type of the schema",
    )


def _fits(found: pa.DataType, kind: str, ends: tuple[Any, Any] | None) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    wanted = DataType(kind.removesuffix(ARRAY))
    if wanted in (DataType.STRING, DataType.JSON) or pa.types.is_null(found):
        return True
    if not kind.endswith(ARRAY):
        return _fits_value(found, wanted, ends)
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        found = found.value_type
    # Only single values are converted between moments and numbers.
    is_alike = _is_moment(found) == (wanted is DataType.TIMESTAMP)
    return is_alike and _fits_value(found, wanted, ends)


def _fits_value(found: pa.DataType, wanted: DataType, ends: tuple[Any, Any] | None) -> bool:
    types = pa.types
    is_whole = bool(types.is_integer(found))
    match wanted:
        case DataType.INT:
            return bool(types.is_boolean(found)) or (is_whole and _is_within(found, ends, _INT_MAX))
        case DataType.LONG:
            return (
                bool(types.is_boolean(found))
                or _is_moment(found)
                or (is_whole and _is_within(found, ends, _LONG_MAX))
            )
        case DataType.FLOAT if types.is_float64(found):
            return ends is not None and all(not math.isfinite(end) or abs(end) <= _FLOAT_MAX for end in ends)
        case DataType.FLOAT | DataType.DOUBLE:
            is_number = types.is_floating(found) or types.is_decimal(found)
            return bool(is_whole or is_number or types.is_boolean(found))
        case DataType.BIG_DECIMAL:
            return bool(is_whole or types.is_decimal(found))
        case DataType.BOOLEAN:
            return bool(is_whole or types.is_boolean(found))
        case DataType.TIMESTAMP:
            return _is_moment(found) or (is_whole and _is_within(found, ends, _MOMENT_MAX_MS))
        case _:
            is_bytes = types.is_binary(found) or types.is_large_binary(found)
            is_text = types.is_string(found) or types.is_large_string(found)
            return bool(is_bytes or is_text or types.is_fixed_size_binary(found))


def _is_moment(found: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(found) or pa.types.is_date(found))


def _is_within(found: pa.DataType, ends: tuple[Any, Any] | None, limit: int) -> bool:
    """Whether whole numbers of the type are less than the limit, or those that are there."""
    is_signed = pa.types.is_signed_integer(found)
    if 2 ** (found.bit_width - (1 if is_signed else 0)) <= limit:
        return True
    return ends is not None and -limit <= ends[0] and ends[1] < limit


def _ends(footer: Any, name: str) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column, within lists too; None if the footer does not say."""
    least: list[Any] = []
    most: list[Any] = []
    for group in range(footer.num_row_groups):
        rows = footer.row_group(group)
        for index in range(rows.num_columns):
            column = rows.column(index)
            if column.path_in_schema.partition(".")[0] != name:
                continue
            statistics = column.statistics
            is_empty = column.num_values == 0
            if is_empty or (statistics is not None and statistics.null_count == column.num_values):
                continue
            if statistics is None or not statistics.has_min_max:
                return None
            try:
                least.append(statistics.min)
                most.append(statistics.max)
            except ValueError:
                return None
    try:
        return (min(least), max(most)) if least else (0, 0)
    except TypeError:
        return None
