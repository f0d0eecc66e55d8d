"""Segment records, `metadata.properties` and `creation.meta`."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.format.malformed import Malformed
from holdfast.format.segments import (
    ColumnDescription,
    Creation,
    SegmentDescription,
    decode_creation,
    decode_description,
    encode_creation,
    encode_description,
    segment_of,
    segment_record,
)
from holdfast.format.znode import ZNRecord, decode_record, encode_record
from holdfast.model.segment import ColumnRange, Segment

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TIME = st.none() | st.integers(0, 2**62)
SEGMENTS = st.builds(
    Segment,
    name=WORD,
    crc=st.integers(0, 2**32),
    docs=st.integers(0, 2**40),
    size_bytes=st.integers(0, 2**50),
    uri=TEXT,
    start_ms=TIME,
    end_ms=TIME,
    created_ms=st.integers(0, 2**50),
    pushed_ms=st.integers(0, 2**50),
    refreshed_ms=st.none() | st.integers(0, 2**50),
    digest=st.sampled_from(["", "ab" * 32]),
    is_opaque=st.booleans(),
    custom=st.dictionaries(TEXT, TEXT, max_size=3),
    columns=st.dictionaries(WORD, st.builds(ColumnRange, TEXT, TEXT), max_size=3),
    other=st.dictionaries(st.sampled_from(["segment.tier", "segment.crypter", "x"]), TEXT, max_size=2),
)


@given(segment=SEGMENTS)
def test_a_segments_record_is_read_as_it_was_written(segment):
    assert segment_of(decode_record(encode_record(segment_record(segment)))) == segment


def test_the_record_has_the_fields_that_pinots_tools_read():
    record = segment_record(
        Segment(
            name="s", crc=7, docs=3, size_bytes=9, uri="u", start_ms=1, end_ms=2, created_ms=4, pushed_ms=5
        )
    )

    assert record.id == "s"
    assert record.simple == {
        "segment.crc": "7",
        "segment.creation.time": "4",
        "segment.push.time": "5",
        "segment.download.url": "u",
        "segment.start.time": "1",
        "segment.end.time": "2",
        "segment.start.time.raw": "1",
        "segment.end.time.raw": "2",
        "segment.time.unit": "MILLISECONDS",
        "segment.total.docs": "3",
        "segment.size.in.bytes": "9",
        "segment.index.version": "v3",
    }


def test_times_in_another_unit_become_milliseconds():
    record = ZNRecord(
        id="s", simple={"segment.time.unit": "DAYS", "segment.start.time": "2", "segment.end.time": "-1"}
    )

    assert segment_of(record).start_ms == 2 * 86_400_000
    assert segment_of(record).end_ms is None


@pytest.mark.parametrize(
    "simple",
    [
        {"segment.crc": "x"},
        {"segment.total.docs": "1.5"},
        {"segment.time.unit": "FORTNIGHTS"},
        {"holdfast.segment.columns": "["},
        {"holdfast.segment.columns": '{"a": ["x"]}'},
        {"holdfast.segment.columns": "[" * 100_000},
    ],
)
def test_a_record_that_cannot_be_read_is_malformed(simple):
    with pytest.raises(Malformed):
        segment_of(ZNRecord(id="s", simple=simple))


COLUMNS = st.builds(
    ColumnDescription,
    name=WORD,
    type=st.sampled_from(["INT", "STRING"]),
    kind=st.sampled_from(["DIMENSION", "METRIC", "DATE_TIME"]),
    cardinality=st.integers(0, 10**9),
    is_single=st.booleans(),
    range=st.none() | st.builds(ColumnRange, TEXT, TEXT),
)


@given(
    name=WORD,
    table=TEXT,
    docs=st.integers(0, 2**40),
    time_column=st.none() | WORD,
    times=st.none() | st.tuples(st.integers(0, 2**50), st.integers(0, 2**50)),
    columns=st.lists(COLUMNS, max_size=5, unique_by=lambda column: column.name),
)
def test_a_description_is_read_as_it_was_written(name, table, docs, time_column, times, columns):
    kinds = ("DIMENSION", "METRIC", "DATE_TIME")
    start_ms, end_ms = times or (None, None)
    description = SegmentDescription(
        name=name,
        table=table,
        docs=docs,
        time_column=time_column,
        start_ms=start_ms,
        end_ms=end_ms,
        columns=tuple(sorted(columns, key=lambda column: kinds.index(column.kind))),
    )

    assert decode_description(encode_description(description)) == description


PINOTS = b"""segment.padding.character = \\u0000
segment.name = baseballStats_OFFLINE_0
segment.table.name = baseballStats
segment.dimension.column.names = playerID,teamID
segment.datetime.column.names = yearID
segment.metric.column.names = runs
segment.time.column.name = yearID
segment.time.unit = DAYS
segment.start.time = 10
segment.end.time = 20
segment.total.docs = 97889
column.playerID.cardinality = 18107
column.playerID.dataType = STRING
column.playerID.isSingleValues = true
column.playerID.minValue = aardsda01
column.playerID.maxValue = zwilldu01
"""


def test_properties_in_pinots_spelling_are_read():
    description = decode_description(PINOTS)

    assert description.name == "baseballStats_OFFLINE_0"
    assert description.table == "baseballStats"
    assert (description.docs, description.time_column) == (97889, "yearID")
    assert (description.start_ms, description.end_ms) == (10 * 86_400_000, 20 * 86_400_000)
    assert [column.name for column in description.columns] == ["playerID", "teamID", "runs", "yearID"]
    assert description.columns[0].range == ColumnRange("aardsda01", "zwilldu01")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"segment.name = s",
        b"segment.total.docs = 1",
        b"segment.name = s\nsegment.total.docs = many",
        b"segment.name = s\nsegment.total.docs = -1",
        b"segment.name = s\nsegment.total.docs = 1\nsegment.time.unit = X",
        b"segment.name = \\ud800\nsegment.total.docs = 1",
    ],
)
def test_properties_that_do_not_describe_a_segment_are_malformed(content):
    with pytest.raises(Malformed):
        decode_description(content)


def test_damaged_properties_are_malformed_or_a_description(damaged):
    for damage in damaged(PINOTS):
        try:
            assert isinstance(decode_description(damage), SegmentDescription)
        except Malformed:
            continue


@pytest.mark.parametrize("creation", [Creation(4_000_000_000, 1_700_000_000_000), Creation(1, 2, 3)])
def test_creation_data_are_big_endian_numbers(creation):
    content = encode_creation(creation)

    assert struct.unpack(">q", content[:8]) == (creation.crc,)
    assert decode_creation(content) == creation


@pytest.mark.parametrize("size", [0, 8, 15, 17, 23, 25])
def test_creation_data_of_another_length_are_malformed(size):
    with pytest.raises(Malformed):
        decode_creation(b"\0" * size)
