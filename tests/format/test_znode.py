"""ZNRecords: Helix's JSON, plain and compressed."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.format import znode
from holdfast.format.malformed import Malformed
from holdfast.format.znode import ZNRecord, decode_record, encode_record, gunzip_bytes, gzip_bytes

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
RECORDS = st.builds(
    ZNRecord,
    id=TEXT,
    simple=st.dictionaries(TEXT, TEXT, max_size=4),
    maps=st.dictionaries(TEXT, st.dictionaries(TEXT, TEXT, max_size=3), max_size=4),
    lists=st.dictionaries(TEXT, st.lists(TEXT, max_size=4).map(tuple), max_size=4),
)

AS_JACKSON_PRINTS = """{
  "id" : "orders_OFFLINE",
  "simpleFields" : { },
  "mapFields" : {
    "custom.map" : {
      "a" : "1",
      "owner" : "growth \\"team\\""
    },
    "empty" : { }
  },
  "listFields" : {
    "5f0c" : [ "s1,s2", "", "COMPLETED", "1732752311200" ],
    "none" : [ ]
  }
}"""


def test_a_record_is_printed_as_jackson_prints_it():
    record = ZNRecord(
        id="orders_OFFLINE",
        maps={"empty": {}, "custom.map": {"owner": 'growth "team"', "a": "1"}},
        lists={"none": (), "5f0c": ("s1,s2", "", "COMPLETED", "1732752311200")},
    )

    assert encode_record(record).decode() == AS_JACKSON_PRINTS


@given(record=RECORDS)
def test_what_is_written_is_read(record):
    content = encode_record(record)

    assert decode_record(content) == record
    assert json.loads(content)["id"] == record.id


@given(record=RECORDS)
def test_layout_and_compression_do_not_matter_to_the_reader(record):
    content = encode_record(record)
    compact = json.dumps(json.loads(content), separators=(",", ":")).encode()

    assert decode_record(compact) == record
    assert decode_record(gzip_bytes(content)) == record
    assert decode_record(gzip.compress(compact)) == record


def test_equal_bytes_compress_to_equal_bytes():
    assert gzip_bytes(b"a" * 1000) == gzip_bytes(b"a" * 1000)
    assert gunzip_bytes(gzip_bytes(b"a" * 1000)) == b"a" * 1000
    assert gunzip_bytes(b"plain") == b"plain"


def test_fields_that_other_programs_add_or_leave_out_are_no_obstacle():
    content = b'{"id": "t", "deltaList": [], "simpleFields": null, "listFields": {"e": ["a"]}, "x": {"y": 1}}'

    assert decode_record(content) == ZNRecord(id="t", lists={"e": ("a",)})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"id": 1}',
        b'{"id": "t", "simpleFields": {"a": 1}}',
        b'{"id": "t", "mapFields": {"a": "b"}}',
        b'{"id": "t", "listFields": {"a": "b"}}',
        b'{"id": "t"',
        b"\xff\xfe",
        b"\x1f\x8b",
        b"\x1f\x8bnot gzip at all",
    ],
)
def test_what_is_no_record_is_malformed(content):
    with pytest.raises(Malformed):
        decode_record(content)


def test_damaged_bytes_are_malformed_or_a_record(damaged):
    content = encode_record(
        ZNRecord(id="t_OFFLINE", simple={"a": "b"}, maps={"s": {"i": "ONLINE"}}, lists={"e": ("a", "b")})
    )
    for kind in (content, gzip_bytes(content)):
        for damage in damaged(kind):
            try:
                assert isinstance(decode_record(damage), ZNRecord)
            except Malformed:
                continue


def test_a_small_record_cannot_claim_to_be_a_huge_one():
    bomb = gzip_bytes(b" " * (znode.EXPANDED_BYTES_MAX + 1))
    assert len(bomb) < 1_000_000

    with pytest.raises(Malformed, match="expands to more than"):
        decode_record(bomb)


def test_text_that_is_not_unicode_is_not_written():
    with pytest.raises(Malformed):
        encode_record(ZNRecord(id="t", simple={"a": "\ud800"}))
