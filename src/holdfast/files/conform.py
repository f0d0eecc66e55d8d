"""Conforming: rows of an older or narrower schema in the form that another schema asks for.

Whole columns at a time; a column that is as asked for already is passed on as it is.
"""

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.format.schemas import is_list

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def conform_rows(rows: _Rows, schema: pa.Schema) -> _Rows:
    """The columns of the schema, in its order; those the rows lack, also within structs, are null.

    Numbers become wider as in Hudi: large integers lose digits in a float,
    and a float becomes the double that is written with the same digits. Any
    other conversion is lossless, or the error of Arrow (`pa.ArrowException`)
    if a value does not fit.
    """
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    columns = [_column(rows, field) for field in schema]
    return type(rows).from_arrays(columns, schema=schema)


def _column(rows: pa.Table | pa.RecordBatch, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in rows.schema.names:
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    if _is_as_asked(column.type, field.type):
        return column
    if isinstance(column, pa.Array):
        return _conform_array(column, field.type)
    return pa.chunked_array([_conform_array(chunk, field.type) for chunk in column.chunks], field.type)


def _is_as_asked(given: pa.DataType, kind: pa.DataType) -> bool:
    """Equality of types alone overlooks what the elements of a list are called, which Parquet stores."""
    return bool(given.equals(kind, check_metadata=True))


def _conform_array(values: pa.Array, kind: pa.DataType) -> pa.Array:
    given = values.type
    if _is_as_asked(given, kind):
        return values
    if pa.types.is_dictionary(given) or pa.types.is_run_end_encoded(given):
        return _conform_array(pc.cast(values, given.value_type), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(given):
        return _conform_struct(values, kind)
    if pa.types.is_map(kind) and pa.types.is_map(given):
        return _conform_map(values, kind)
    if pa.types.is_list(kind) and is_list(given):
        return _conform_list(values, kind)
    if pa.types.is_float32(given) and pa.types.is_float64(kind):
        # As Hudi has it: 1.1 becomes 1.1, not the 1.10000002… that a float32 of 1.1 exactly is.
        return pc.cast(pc.cast(values, pa.string()), kind)
    is_rounded = pa.types.is_integer(given) and pa.types.is_floating(kind)
    return pc.cast(values, kind, safe=not is_rounded)


def _conform_struct(values: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    given = {field.name: index for index, field in enumerate(values.type)}
    fields = [
        _conform_array(values.field(given[field.name]), field.type)
        if field.name in given
        else pa.nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=_mask(values))


def _conform_list(values: pa.Array, kind: pa.ListType) -> pa.ListArray:
    """A list of any layout; what lies behind a null is left out, because Parquet cannot store it."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    ends = pa.array(np.append(0, np.cumsum(lengths, dtype=np.int64)))
    elements = _conform_array(values.flatten(), kind.value_type)
    return pa.ListArray.from_arrays(pc.cast(ends, pa.int32()), elements, type=kind, mask=_mask(values))


def _conform_map(values: pa.MapArray, kind: pa.MapType) -> pa.MapArray:
    offsets = values.offsets
    start = offsets[0].as_py()
    length = offsets[-1].as_py() - start
    keys = _conform_array(values.keys.slice(start, length), kind.key_type)
    items = _conform_array(values.items.slice(start, length), kind.item_type)
    offsets = pc.subtract(offsets, start)
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=_mask(values))


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None
