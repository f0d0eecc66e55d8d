"""Columns in the types of Pinot's schemas, converted with Arrow; what does not fit is refused.

Moments become what the schema asks for: a timestamp, or a count
in the unit of its format. Numbers that become timestamps are milliseconds.
"""

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.push_schema import DataType, Field
from holdfast.errors import SchemaMismatch
from holdfast.push.segments.time_formats import time_format

_MOMENT = pa.timestamp("us")
_TYPES: Mapping[DataType, pa.DataType] = {
    DataType.INT: pa.int32(),
    DataType.LONG: pa.int64(),
    DataType.FLOAT: pa.float32(),
    DataType.DOUBLE: pa.float64(),
    DataType.BIG_DECIMAL: pa.decimal128(38, 10),
    DataType.BOOLEAN: pa.bool_(),
    DataType.TIMESTAMP: _MOMENT,
    DataType.STRING: pa.string(),
    DataType.JSON: pa.string(),
    DataType.BYTES: pa.binary(),
}


def arrow_type(field: Field) -> pa.DataType:
    """In which type the column of a segment is stored."""
    kind = _TYPES[field.type]
    return pa.list_(kind) if field.is_array else kind


def convert(column: pa.Array, field: Field) -> pa.Array:
    """The column in its stored type. `SchemaMismatch` names the column and the type of what does not fit."""
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return _convert_array(column, field) if field.is_array else _convert_values(column, field)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaMismatch(
            "a value does not fit its column",
            column=field.name,
            type=f"{field.type}{' array' if field.is_array else ''}",
            value_type=str(column.type),
            cause=str(error).partition("\n")[0][:200],
        ) from error


def select_fields(fields: Iterable[Field], held: Collection[str], chosen: Collection[str]) -> list[Field]:
    """The columns that an input gives to a table, or those of them that were chosen.

    `SchemaMismatch` if it lacks a chosen one, or has none that the table has.
    """
    known = {field.name: field for field in fields}
    unknown = [name for name in chosen if name not in known]
    missing = [name for name in chosen if name not in held]
    if unknown or missing:
        raise SchemaMismatch(
            "the table has no such column" if unknown else "the input has no such column",
            column=(unknown or missing)[0],
            columns=", ".join(known if unknown else held),
        )
    found = [field for name, field in known.items() if name in held and (not chosen or name in chosen)]
    if not found:
        raise SchemaMismatch(
            "the input has no column of the table", columns=", ".join(held), wanted=", ".join(known)
        )
    return found


def check_convertible(kind: pa.DataType, field: Field) -> None:
    """Refuse a column of which no value could be stored, before a row is read."""
    convert(pa.array([], kind), field)


def check_fields(schema: pa.Schema, fields: Iterable[Field]) -> None:
    """The same of every column of a schema that the table has."""
    for field in fields:
        if field.name in schema.names:
            check_convertible(schema.field(field.name).type, field)


def constant(field: Field, default: object, rows: int) -> pa.Array:
    """A column of one value: what stands for null in a column that the input does not have."""
    kind = _TYPES[field.type]
    scalar = pa.scalar(default, pa.timestamp("ms")).cast(kind) if kind == _MOMENT else _scalar(default, kind)
    values = pa.repeat(scalar, rows)
    return _one_each(values) if field.is_array else values


def _scalar(default: object, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(default).cast(kind) if pa.types.is_decimal(kind) else pa.scalar(default, kind)


def _convert_array(column: pa.Array, field: Field) -> pa.Array:
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return _one_each(_convert_values(column, field))
    # Counted anew: the column may be a slice, whose own offsets Arrow does not take beside a mask.
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(offsets, _convert_values(column.flatten(), field), mask=column.is_null())


def _one_each(values: pa.Array) -> pa.Array:
    offsets = pa.array(np.arange(len(values) + 1), pa.int32())
    return pa.ListArray.from_arrays(offsets, values)


def _convert_values(column: pa.Array, field: Field) -> pa.Array:
    kind, wanted = column.type, _TYPES[field.type]
    if kind == wanted:
        return column
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _of_moments(column, field)
    if field.type is DataType.TIMESTAMP and pa.types.is_integer(kind):
        return column.cast(pa.int64()).cast(pa.timestamp("ms")).cast(wanted)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if field.type is DataType.TIMESTAMP and is_text and _are_numbers(column):
        return column.cast(pa.int64()).cast(pa.timestamp("ms")).cast(wanted)
    if field.type is DataType.BYTES and is_text:
        raise pa.ArrowInvalid("text is not bytes; decode it first")
    found = column.cast(wanted)
    if pa.types.is_float32(wanted) and _overflows(column, found):
        raise pa.ArrowInvalid("a number is too large")
    return found


def _of_moments(column: pa.Array, field: Field) -> pa.Array:
    """Timestamps and dates; times with a zone are taken in UTC, dates begin at midnight."""
    kind, wanted = column.type, _TYPES[field.type]
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    moments = column.cast(_MOMENT, safe=False)
    if field.type is DataType.TIMESTAMP:
        return moments
    if field.type in (DataType.INT, DataType.LONG):
        counted = moments.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        return pc.divide(counted, time_format(field).unit_ms).cast(wanted)
    if field.type in (DataType.STRING, DataType.JSON):
        return column.cast(wanted)
    raise pa.ArrowInvalid("a moment is neither of these")


def _are_numbers(texts: pa.Array) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, "^-?[0-9]+$")).as_py())


def _overflows(column: pa.Array, found: pa.Array) -> bool:
    if not pa.types.is_floating(column.type):
        return False
    became = pc.and_(pc.is_inf(found), pc.invert(pc.is_inf(column)))
    return bool(pc.any(became).as_py())
