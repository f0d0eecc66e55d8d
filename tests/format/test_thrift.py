import io
import math
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.format.malformed import Malformed
from holdfast.format.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    SET,
    STRUCT,
    TRUE,
    Items,
    decode_struct,
    encode_struct,
    field,
)

ATOMS = {
    BYTE: st.integers(-128, 127),
    I16: st.integers(-(2**15), 2**15 - 1),
    I32: st.integers(-(2**31), 2**31 - 1),
    I64: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.floats(allow_nan=False),
    BINARY: st.binary(max_size=200),
}
NUMBERS = st.integers(-(2**15), 2**15 - 1) | st.integers(1, 20)


def fields_of(values):
    """A strategy for structs whose fields are drawn from pairs of kind and value."""
    return st.dictionaries(NUMBERS, values, max_size=6).map(
        lambda drawn: {field(number, kind): value for number, (kind, value) in drawn.items()}
    )


def items_of(kinds):
    """A strategy for lists of up to 20 items, around the length at which lists change their header."""
    return st.sampled_from(sorted(kinds)).flatmap(
        lambda kind: st.lists(kinds[kind], max_size=20).map(lambda values: Items(kind, values))
    )


def containers(structs):
    items = items_of({**ATOMS, TRUE: st.booleans(), STRUCT: structs})
    return (
        st.tuples(st.just(STRUCT), structs)
        | st.tuples(st.sampled_from([LIST, SET]), items)
        | st.tuples(st.just(LIST), st.lists(items, max_size=3).map(lambda inner: Items(LIST, inner)))
    )


LEAVES = (
    st.one_of([st.tuples(st.just(kind), values) for kind, values in ATOMS.items()])
    | st.just((TRUE, True))
    | st.just((FALSE, False))
)
STRUCTS = st.recursive(fields_of(LEAVES), lambda inner: fields_of(LEAVES | containers(inner)), max_leaves=12)


def file_footer(content):
    (size,) = struct.unpack("<I", content[-8:-4])
    return content[-8 - size : -8]


@settings(max_examples=300)
@given(fields=STRUCTS)
def test_a_struct_comes_back_from_its_bytes(fields):
    assert decode_struct(encode_struct(fields)) == fields


def test_bytes_follow_the_protocol():
    fields = {
        field(1, I32): -1,
        field(3, TRUE): True,
        field(20, BINARY): b"hi",
        field(21, LIST): Items(I64, [300]),
        field(22, STRUCT): {},
        field(23, DOUBLE): 1.0,
        field(24, BYTE): -2,
        field(25, LIST): Items(TRUE, [True, False]),
    }

    assert encode_struct(fields).hex(" ") == (
        "15 01 21 08 28 02 68 69 19 16 d8 04 1c 00 17 00 00 00 00 00 00 f0 3f 13 fe 19 21 01 02 00"
    )


def test_fields_are_written_in_ascending_order():
    unordered = {field(5, I32): 5, field(1, I32): 1}

    assert encode_struct(unordered) == encode_struct({field(1, I32): 1, field(5, I32): 5})


def test_a_field_that_goes_back_in_number_is_read():
    """Ascending order is custom, not law: a header without a step names its field outright."""
    assert decode_struct(b"\x55\x02\x05\x04\x06\x00") == {field(5, I32): 1, field(2, I32): 3}


def test_not_a_number_survives():
    fields = decode_struct(encode_struct({field(1, DOUBLE): math.nan}))

    assert math.isnan(fields[field(1, DOUBLE)])


def test_footers_that_arrow_wrote_come_back_byte_for_byte():
    rows = pa.table({"text": ["a", None] * 40, "lists": [[1, None], []] * 40, "flag": [True, False] * 40})
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=3, write_page_index=True)
    footer = file_footer(sink.getvalue())

    assert encode_struct(decode_struct(footer)) == footer


def test_footers_that_hudi_wrote_come_back_byte_for_byte(hudi_table):
    files = [path for path in hudi_table.rglob("*.parquet") if not path.name.startswith(".")]

    for path in files:
        footer = file_footer(path.read_bytes())
        assert encode_struct(decode_struct(footer)) == footer


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "ends early"),
        (b"\x15", "ends early"),
        (b"\x15\x02", "ends early"),
        (b"\x18\x05abc", "ends early"),
        (b"\x17\x00\x00", "ends early"),
        (b"\x19\xf5\xff\xff\xff\xff\x07\x00", "ends early"),
        (b"\x00\x00", "1 bytes follow"),
        (b"\x10\x00", "kind 0"),
        (b"\x19\x10\x00\x00", "kind 0"),
        (b"\x1b\x00\x00", "kind 11"),
        (b"\x1d" + bytes(17), "kind 13"),
        (b"\x15" + b"\xff" * 10 + b"\x01\x00", "no end"),
        (b"\x15" + b"\xff" * 9 + b"\x7f\x00", "64 bits"),
        (b"\x1c" * 5000 + b"\x00" * 5001, "too deeply"),
        (b"\x19" + b"\x19" * 5000 + b"\x15\x00\x00", "too deeply"),
    ],
)
def test_bytes_that_are_no_struct_are_malformed(content, reason):
    with pytest.raises(Malformed, match=reason):
        decode_struct(content)


@settings(max_examples=300)
@given(content=st.binary(max_size=100))
def test_random_bytes_never_raise_anything_but_malformed(content):
    try:
        fields = decode_struct(content)
    except Malformed:
        return
    encoded = encode_struct(fields)
    assert encode_struct(decode_struct(encoded)) == encoded
