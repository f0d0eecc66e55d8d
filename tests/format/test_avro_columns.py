"""Avro blocks as columns, against fastavro, which reads them record by record."""

import contextlib
import datetime as dt
import io
import json
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UnsupportedTable
from holdfast.format.avro_columns import decode_avro_rows
from holdfast.format.malformed import Malformed
from holdfast.format.schemas import avro_schema

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("flag", pa.bool_()),
        ("bytes", pa.binary()),
        ("fixed", pa.binary(3)),
        ("decimal", pa.decimal128(12, 3)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("list", pa.list_(pa.field("element", pa.struct([("x", pa.string()), ("y", pa.int32())])))),
        ("map", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int64())))),
        ("struct", pa.struct([("p", pa.string()), ("q", pa.struct([("r", pa.float64())]))])),
    ]
)
TEXT = avro_schema(SCHEMA, table_name="t")


def _values(kind):
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: _values(field.type) for field in kind})
    if pa.types.is_map(kind):
        return st.none() | st.dictionaries(st.text(max_size=3), _values(kind.item_type), max_size=4)
    if pa.types.is_list(kind):
        return st.none() | st.lists(_values(kind.value_type), max_size=4)
    return st.none() | _leaves(kind)


def _leaves(kind):
    if pa.types.is_string(kind):
        return st.text(max_size=20)
    if pa.types.is_integer(kind):
        edge = 2 ** (kind.bit_width - 1)
        return st.integers(-edge, edge - 1)
    if pa.types.is_floating(kind):
        return st.floats(allow_nan=False, width=kind.bit_width)
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if pa.types.is_binary(kind):
        return st.binary(max_size=20)
    if pa.types.is_decimal(kind):
        return st.integers(1 - 10**kind.precision, 10**kind.precision - 1).map(
            lambda n: Decimal(n).scaleb(-kind.scale)
        )
    if pa.types.is_date(kind):
        return st.dates()
    return st.datetimes(timezones=st.just(dt.UTC))


def block(records, text=TEXT):
    parsed = parse_schema(json.loads(text))
    written = []
    for record in records:
        sink = io.BytesIO()
        schemaless_writer(sink, parsed, record)
        written.append(struct.pack(">i", len(sink.getvalue())) + sink.getvalue())
    return struct.pack(">ii", 3, len(written)) + b"".join(written)


rows = st.fixed_dictionaries({field.name: _values(field.type) for field in SCHEMA})


@settings(max_examples=150)
@given(st.lists(rows, max_size=8), st.sets(st.sampled_from(SCHEMA.names)))
def test_records_are_read_as_fastavro_wrote_them(records, wanted):
    found = decode_avro_rows(block(records), TEXT, wanted)

    schema = pa.schema([field for field in SCHEMA if field.name in wanted])
    assert found.schema == schema
    if wanted:
        assert found == pa.Table.from_pylist(records, schema=schema)


@settings(max_examples=150)
@given(st.lists(rows, min_size=1, max_size=3), st.data())
def test_wrong_bytes_are_malformed_or_other_values_and_nothing_else(records, data):
    content = bytearray(block(records))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Malformed, pa.ArrowInvalid):
        decode_avro_rows(bytes(content), TEXT, SCHEMA.names).validate(full=True)


def test_every_truncation_is_malformed():
    record = {
        "text": "a", "int": 1, "long": 2, "float": 0.5, "double": 0.25, "flag": True, "bytes": b"b",
        "fixed": b"abc", "decimal": Decimal("1.000"), "day": dt.date(2026, 1, 1), "moment": None,
        "list": [{"x": "y", "y": 1}], "map": {"k": [1, 2]}, "struct": {"p": "q", "q": None},
    }  # fmt: skip
    content = block([record])

    for end in range(len(content)):
        with pytest.raises(Malformed):
            decode_avro_rows(content[:end], TEXT, SCHEMA.names)
    with pytest.raises(Malformed):
        decode_avro_rows(content + b"\0", TEXT, SCHEMA.names)


def test_names_defined_before_unions_in_any_order_enums_and_sized_arrays():
    """What other writers make of the same columns."""
    text = json.dumps(
        {
            "type": "record", "name": "r", "namespace": "n",
            "fields": [
                {"name": "a", "type": [{"type": "record", "name": "point", "fields": [
                    {"name": "x", "type": "long"}]}, "null"]},
                {"name": "b", "type": ["null", "point"]},
                {"name": "c", "type": {"type": "enum", "name": "colour", "symbols": ["red", "blue"]}},
                {"name": "d", "type": ["null", {"type": "bytes", "logicalType": "decimal",
                                                "precision": 9, "scale": 2}]},
                {"name": "e", "type": {"type": "array", "items": "int"}},
            ],
        }
    )  # fmt: skip
    # The array as two blocks: one that tells its size in bytes, and one that does not.
    datum = bytes([0, 10, 2, 12, 2, 2, 4, 0xFF, 0x7F, 3, 4, 2, 4, 2, 6, 0])
    content = struct.pack(">iii", 3, 1, len(datum)) + datum

    found = decode_avro_rows(content, text, "abcde")

    assert found.to_pylist() == [
        {"a": {"x": 5}, "b": {"x": 6}, "c": "blue", "d": Decimal("-1.29"), "e": [1, 2, 3]}
    ]


def test_what_has_no_columns_is_refused():
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "string"]}]})

    with pytest.raises(UnsupportedTable, match="several types"):
        decode_avro_rows(struct.pack(">ii", 3, 0), text, "a")


def test_many_records_are_read_without_a_step_for_each_field():
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(20)])
    count = 20_000
    values = {name: np.arange(count) for name in schema.names}
    text = avro_schema(schema, table_name="t")
    content = block(pa.table(values, schema=schema).to_pylist(), text)

    assert decode_avro_rows(content, text, schema.names) == pa.table(values, schema=schema)
