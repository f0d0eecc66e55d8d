"""Types and values as Delta Lake spells them: schemas, statistics, partition values."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from holdfast.errors import UnsupportedTable
from holdfast.exports.statistics import FileFacts

_LEAVES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}
_DECIMAL_DIGITS_MAX = 38
_TEXT_MAX = 64
"""Longer bounds of texts are cut off, or left out."""


def schema_string(schema: pa.Schema) -> str:
    """The columns as Delta's JSON; `UnsupportedTable` names one that it has no type for."""
    fields = [_field(field, path=field.name) for field in schema]
    return msgspec.json.encode({"type": "struct", "fields": fields}).decode()


def has_zoneless_moments(kind: pa.DataType) -> bool:
    """Whether there are timestamps without a zone in a type, which readers have to know."""
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(has_zoneless_moments(kind.field(number).type) for number in range(kind.num_fields))


def partition_text(value: Any) -> str | None:
    """The text of a partition value; None stands for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def statistics_text(facts: FileFacts, schema: pa.Schema) -> str:
    """What is known of a file, as Delta's JSON."""
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for field in schema:
        found = facts.columns.get(field.name)
        if found is None and field.name not in facts.columns and field.type.num_fields == 0:
            nulls[field.name] = facts.rows  # The file is older than the column.
        if found is None:
            continue
        if found.nulls is not None:
            nulls[field.name] = found.nulls
        if found.least is not None:
            _put(least, field, _bound(found.least, field.type, is_upper=False))
            _put(greatest, field, _bound(found.greatest, field.type, is_upper=True))
    written: Mapping[str, Any] = {
        "numRecords": facts.rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }
    return msgspec.json.encode(written).decode()


def _put(bounds: dict[str, Any], field: pa.Field, value: Any) -> None:
    if value is not None:
        bounds[field.name] = value


def _bound(value: Any, kind: pa.DataType, *, is_upper: bool) -> Any:
    """A bound as JSON; None if it is better left out.

    Of fractions it is: the greatest value of a footer is not that of readers to whom NaN is greater.
    """
    if pa.types.is_integer(kind) and isinstance(value, int):
        return value
    if pa.types.is_date(kind) and isinstance(value, dt.date):
        return value.isoformat()
    if pa.types.is_string(kind) and isinstance(value, str):
        if len(value) <= _TEXT_MAX:
            return value
        return None if is_upper else value[:_TEXT_MAX]
    if pa.types.is_timestamp(kind) and isinstance(value, dt.datetime):
        return _moment_bound(value, is_upper=is_upper, suffix="Z" if kind.tz else "")
    return None


def _moment_bound(value: dt.datetime, *, is_upper: bool, suffix: str) -> str | None:
    """To the millisecond, which is all that readers compare; never within the bounds."""
    utc = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    rest = dt.timedelta(microseconds=utc.microsecond % 1000)
    try:
        whole = utc - rest + (dt.timedelta(milliseconds=1) if is_upper and rest else dt.timedelta())
    except OverflowError:
        return None
    return whole.isoformat(timespec="milliseconds") + suffix


def _field(field: pa.Field, *, path: str) -> dict[str, Any]:
    # Files of older schemas lack newer columns, so any may be null.
    return {"name": field.name, "type": _type(field.type, path=path), "nullable": True, "metadata": {}}


def _type(kind: pa.DataType, *, path: str) -> Any:
    if kind in _LEAVES:
        return _LEAVES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS_MAX:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        fields = [_field(field, path=f"{path}.{field.name}") for field in kind]
        return {"type": "struct", "fields": fields}
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _type(kind.value_type, path=path), "containsNull": True}
    if pa.types.is_map(kind):
        key, value = _type(kind.key_type, path=path), _type(kind.item_type, path=path)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    raise UnsupportedTable(
        "Delta Lake has no type for a column",
        column=path,
        type=kind,
        hint="export to iceberg alone, or store the column as another type",
    )
