"""Random schemas, ways in which they may legally change, and rows to go with them."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
_VALUES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.dates(dt.date(1800, 1, 1)),
    pa.timestamp("us"): st.datetimes(dt.datetime(1800, 1, 1)),
    pa.decimal128(9, 2): st.integers(-999_999_999, 999_999_999).map(lambda n: Decimal(n) / 100),
}
_NAMES = st.sampled_from("abcdefgh")


def _lists(kind):
    return pa.list_(pa.field("element", kind))


def _structs(kinds):
    return st.dictionaries(_NAMES, kinds, min_size=1, max_size=3).map(
        lambda fields: pa.struct(fields.items())
    )


KINDS = st.recursive(
    st.sampled_from(list(_VALUES)),
    lambda kinds: st.one_of(
        kinds.map(_lists), kinds.map(lambda kind: pa.map_(pa.string(), kind)), _structs(kinds)
    ),
    max_leaves=5,
)
SCHEMAS = _structs(KINDS).map(lambda struct: pa.schema(list(struct)))


@st.composite
def evolved(draw, schema):
    """A schema that the given one may become: wider numbers, and more columns at the end."""
    return pa.schema(list(draw(_evolved_struct(schema))))


@st.composite
def _evolved_struct(draw, fields):
    kept = [pa.field(field.name, draw(_evolved_kind(field.type))) for field in fields]
    new = draw(st.dictionaries(st.sampled_from("stuvw"), KINDS, max_size=2))
    return pa.struct([*kept, *(pa.field(n, kind) for n, kind in new.items() if n not in fields.names)])


@st.composite
def _evolved_kind(draw, kind):
    if pa.types.is_struct(kind):
        return draw(_evolved_struct(pa.schema(list(kind))))
    if pa.types.is_list(kind):
        return _lists(draw(_evolved_kind(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), draw(_evolved_kind(kind.item_type)))
    return draw(st.sampled_from(NUMBERS[NUMBERS.index(kind) :])) if kind in NUMBERS else kind


@st.composite
def incoming(draw, existing, wanted, *, lacks_columns):
    """A schema of rows that make a table of schema `existing` one of schema `wanted`."""
    return pa.schema(list(draw(_incoming_struct(existing, wanted, lacks_columns=lacks_columns))))


@st.composite
def _incoming_struct(draw, existing, wanted, *, lacks_columns):
    before = {field.name: field.type for field in existing}
    fields = []
    for field in wanted:
        kind = field.type
        if field.name in before:
            if lacks_columns and before[field.name] == kind and draw(st.booleans()):
                continue
            kind = draw(_incoming_kind(before[field.name], kind, lacks_columns=lacks_columns))
        fields.append(pa.field(field.name, kind))
    return pa.struct(draw(st.permutations(fields or list(wanted))))


@st.composite
def _incoming_kind(draw, existing, wanted, *, lacks_columns):
    if pa.types.is_struct(wanted):
        return draw(_incoming_struct(existing, wanted, lacks_columns=lacks_columns))
    if pa.types.is_list(wanted):
        inner = _incoming_kind(existing.value_type, wanted.value_type, lacks_columns=lacks_columns)
        return _lists(draw(inner))
    if pa.types.is_map(wanted):
        inner = _incoming_kind(existing.item_type, wanted.item_type, lacks_columns=lacks_columns)
        return pa.map_(pa.string(), draw(inner))
    if existing == wanted and wanted in NUMBERS:
        return draw(st.sampled_from(NUMBERS[: NUMBERS.index(wanted) + 1]))
    return wanted


def rows_of(schema, *, max_size=6):
    """Tables of that schema, with nulls at every level."""
    kind = pa.struct(list(schema))
    rows = st.lists(_values(kind, optional=False), max_size=max_size)
    return rows.map(lambda values: pa.Table.from_pylist(values, schema=schema))


def _values(kind, *, optional=True):
    if pa.types.is_struct(kind):
        values = st.fixed_dictionaries({field.name: _values(field.type) for field in kind})
    elif pa.types.is_list(kind):
        values = st.lists(_values(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        values = st.dictionaries(st.text(max_size=2), _values(kind.item_type), max_size=2).map(
            lambda entries: list(entries.items())
        )
    else:
        values = _VALUES[kind]
    return st.none() | values if optional else values


def widened(value, found, kind):
    """What a value of type `found` is in type `kind`, one value at a time and without Arrow."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        types = {field.name: field.type for field in found}
        return {
            field.name: widened(value[field.name], types[field.name], field.type)
            if field.name in types
            else None
            for field in kind
        }
    if pa.types.is_list(kind):
        return [widened(element, found.value_type, kind.value_type) for element in value]
    if pa.types.is_map(kind):
        return [(key, widened(item, found.item_type, kind.item_type)) for key, item in value]
    if found == pa.float32() and kind == pa.float64():
        return float(str(np.float32(value)))
    if found in NUMBERS and kind == pa.float32():
        return float(np.array(value, found.to_pandas_dtype()).astype(np.float32))
    return float(value) if found in NUMBERS and kind == pa.float64() else value
