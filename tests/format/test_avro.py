import io
import json
import random
import time

import fastavro
import pytest

from holdfast.format.avro import decode_container, encode_container
from holdfast.format.malformed import Malformed

STRING = {"type": "string", "avro.java.string": "String"}


def map_of(values):
    return {"type": "map", "values": values, "avro.java.string": "String"}


def array_of(items):
    return {"type": "array", "items": items}


def optional(name, kind):
    return {"name": name, "type": ["null", kind], "default": None}


POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}
SCHEMA = {
    "type": "record",
    "name": "Sample",
    "namespace": "test.holdfast",
    "fields": [
        {"name": "text", "type": STRING},
        optional("absent", STRING),
        {"name": "number", "type": "long"},
        {"name": "small", "type": ["int", "null"], "default": 1},
        {"name": "flag", "type": "boolean"},
        {"name": "part", "type": "float"},
        {"name": "raw", "type": "bytes"},
        {"name": "texts", "type": array_of(STRING)},
        {"name": "sizes", "type": map_of("long")},
        {"name": "point", "type": POINT},
        {"name": "points", "type": array_of("Point")},
        {"name": "again", "type": ["null", "test.holdfast.Point"]},
        {"name": "suit", "type": {"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]}},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
RECORD = {
    "text": "städte/😀",
    "absent": None,
    "number": -(2**62),
    "small": 7,
    "flag": True,
    "part": 0.5,
    "raw": b"\x00\xff",
    "texts": ["a", "", "b" * 300],
    "sizes": {"a": 1, "": -1},
    "point": {"x": 1.25},
    "points": [{"x": 0.0}, {"x": -1.0}],
    "again": {"x": 2.0},
    "suit": "SPADES",
    "digest": b"abcd",
    "day": 19000,
}
CONTENT = encode_container(SCHEMA, RECORD)


def container(schema, payload, *, records=1, header=()):
    """A container put together by hand, so that it may say anything."""
    entries = [
        (b"avro.schema", schema if isinstance(schema, bytes) else json.dumps(schema).encode()),
        *header,
    ]
    parts = [b"Obj\x01", varint(len(entries))]
    for key, value in entries:
        parts += [varint(len(key)), key, varint(len(value)), value]
    parts += [varint(0), b"s" * 16, varint(records), varint(len(payload)), payload, b"s" * 16]
    return b"".join(parts)


def varint(number):
    raw = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*encoded, raw])


def record_of(*fields, name="R"):
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{number}", "type": kind} for number, kind in enumerate(fields)],
    }


def test_a_record_of_every_type_is_read_back():
    assert decode_container(CONTENT) == RECORD


def test_another_library_reads_the_container_and_finds_the_schema_as_given():
    reader = fastavro.reader(io.BytesIO(CONTENT))

    assert next(reader)["texts"] == RECORD["texts"]
    assert list(reader) == []
    assert json.loads(reader.metadata["avro.schema"]) == SCHEMA


def test_containers_of_another_library_are_read():
    buffer = io.BytesIO()
    fastavro.writer(buffer, SCHEMA, [RECORD])

    assert decode_container(buffer.getvalue()) == RECORD


def test_equal_records_give_equal_bytes():
    assert encode_container(SCHEMA, dict(RECORD)) == CONTENT


def test_different_records_differ_in_their_sync_markers():
    other = encode_container(SCHEMA, RECORD | {"number": 1})

    assert other[-16:] != CONTENT[-16:]


def test_a_header_in_several_sized_blocks_is_read():
    schema = json.dumps(record_of("int")).encode()
    entries = [
        varint(1) + b"k" + varint(1) + b"v",
        varint(11) + b"avro.schema" + varint(len(schema)) + schema,
    ]
    blocks = b"".join(varint(-1) + varint(len(entry)) + entry for entry in entries)
    content = b"Obj\x01" + blocks + varint(0) + b"s" * 16 + varint(1) + varint(1) + varint(3) + b"s" * 16

    assert decode_container(content) == {"f0": 3}


@pytest.mark.parametrize("records", [0, 2, -1, 2**62])
def test_a_container_must_hold_exactly_one_record(records):
    with pytest.raises(Malformed, match="records"):
        decode_container(container(record_of("int"), b"\x02", records=records))


def test_a_second_block_is_refused():
    content = container(record_of("int"), b"\x02")

    with pytest.raises(Malformed, match="follow"):
        decode_container(content + varint(1) + varint(1) + b"\x02" + b"s" * 16)


def test_bytes_left_over_in_the_block_are_refused():
    with pytest.raises(Malformed, match="ends before"):
        decode_container(container(record_of("int"), b"\x02\x02"))


def test_a_compressed_container_is_refused():
    content = container(record_of("int"), b"\x02", header=[(b"avro.codec", b"deflate")])

    with pytest.raises(Malformed, match="compressed"):
        decode_container(content)


def test_the_null_codec_may_be_named():
    assert decode_container(container(record_of("int"), b"\x02", header=[(b"avro.codec", b"null")])) == {
        "f0": 1
    }


@pytest.mark.parametrize("length", [2**31, 2**40, 2**62, -1, -(2**62)])
def test_an_absurd_length_is_refused_without_allocating_it(length):
    began = time.perf_counter()

    for kind in ("string", "bytes", {"type": "array", "items": "int"}, {"type": "map", "values": "long"}):
        with pytest.raises(Malformed):
            decode_container(container(record_of(kind), varint(length)))
    with pytest.raises(Malformed):
        decode_container(b"Obj\x01" + varint(length) + b"\x02")
    with pytest.raises(Malformed):
        decode_container(b"Obj\x01" + varint(1) + varint(length) + b"avro.schema")

    assert time.perf_counter() - began < 1


def test_a_number_without_end_is_refused():
    with pytest.raises(Malformed, match="no end"):
        decode_container(b"Obj\x01" + b"\xff" * 100)


@pytest.mark.parametrize(
    "schema",
    [
        record_of({"type": "array", "items": "null"}),
        record_of({"type": "array", "items": {"type": "null"}}),
        record_of({"type": "array", "items": record_of(name="Empty")}),
        record_of({"type": "array", "items": record_of("null", "null", name="Nulls")}),
        record_of({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
        record_of("R"),
        record_of(record_of("R", name="Inner")),
    ],
)
def test_a_schema_by_which_few_bytes_would_make_an_endless_value_is_refused(schema):
    with pytest.raises(Malformed, match="schema"):
        decode_container(container(schema, varint(2**62)))


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b"nonsense",
        b"\xff",
        b"[" * 100_000,
        b'{"type":"fixed","name":"F","size":' + b"9" * 5000 + b"}",
        b'{"type":' * 2_000 + b'"int"' + b"}" * 2_000,
        b'{"type":"record","name":"R","fields":[{"name":"f","type":' + b"[" * 600 + b"]" * 600 + b"}]}",
        "int",
        ["null", record_of("int")],
        {"type": "record", "name": "R"},
        {"type": "record", "name": "R", "fields": {}},
        {"type": "record", "name": "R", "fields": [1]},
        {"type": "record", "name": "R", "fields": [{"name": "f"}]},
        {"type": "record", "name": 5, "fields": []},
        record_of("Elsewhere"),
        record_of(None),
        record_of({"type": "array"}),
        record_of({"type": "enum", "name": "E", "symbols": [1]}),
        record_of({"type": "fixed", "name": "F", "size": 2**70}),
        record_of(record_of("int", name="Twice"), record_of("int", name="Twice")),
    ],
)
def test_a_schema_that_is_none_is_refused(schema):
    with pytest.raises(Malformed):
        decode_container(container(schema, b"\x02"))


@pytest.mark.timeout(60)
def test_a_damaged_container_is_read_or_refused(damaged):
    refused = 0

    for content in damaged(CONTENT):
        try:
            decode_container(content)
        except Malformed:
            refused += 1

    assert refused > len(CONTENT)


@pytest.mark.timeout(60)
def test_every_truncation_is_refused():
    for size in range(len(CONTENT)):
        with pytest.raises(Malformed):
            decode_container(CONTENT[:size])


@pytest.mark.timeout(60)
def test_a_record_is_read_or_refused_under_any_neighbouring_schema():
    payload = fastavro_payload()
    chance = random.Random(7)
    refused = 0

    for _ in range(4000):
        schema = json.loads(json.dumps(SCHEMA))
        for _ in range(chance.choice((1, 1, 3))):
            mutate(schema, chance)
        try:
            decode_container(container(schema, payload))
        except Malformed:
            refused += 1

    assert 1000 < refused < 4000


def fastavro_payload():
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(SCHEMA), RECORD)
    return buffer.getvalue()


def mutate(schema, chance):
    """Put something else in one random place of a schema."""
    places = []
    pending = [schema]
    while pending:
        node = pending.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                pending.append(node[key])
    others = [
        None,
        0,
        -1,
        2**80,
        1.5,
        True,
        "",
        "null",
        "int",
        "string",
        "bytes",
        "double",
        "a.b",
        "Point",
        "array",
    ]
    node, key = chance.choice(places)
    other = chance.choice([*others, [], {}, ["null", "long"], {"type": "map", "values": "string"}])
    node[key] = json.loads(json.dumps(other))
    if isinstance(node, dict) and chance.random() < 0.2:
        node[chance.choice(["type", "items", "namespace", "logicalType", "precision"])] = chance.choice(
            others
        )
