"""Field ids: which number each column gets, and how Parquet keeps it."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.format.field_ids import (
    META_FIELD_IDS,
    column_paths,
    decode_field_ids,
    encode_field_ids,
    extend_field_ids,
    read_field_ids,
    with_field_ids,
)
from holdfast.format.malformed import Malformed
from holdfast.format.schemas import META_COLUMNS

NESTED = pa.schema(
    [
        ("id", pa.string()),
        ("stop", pa.struct([("city", pa.string()), ("at", pa.struct([("hour", pa.int32())]))])),
        ("tags", pa.list_(pa.field("element", pa.struct([("name", pa.string())])))),
        ("fares", pa.map_(pa.string(), pa.list_(pa.field("element", pa.float64())))),
    ]
)


def test_numbers_follow_the_columns_with_what_is_in_them():
    ids = extend_field_ids({}, NESTED)

    assert ids == {
        "id": 1,
        "stop": 2,
        "stop.city": 3,
        "stop.at": 4,
        "stop.at.hour": 5,
        "tags": 6,
        "tags.element": 7,
        "tags.element.name": 8,
        "fares": 9,
        "fares.key": 10,
        "fares.value": 11,
        "fares.value.element": 12,
    }
    assert list(ids) == column_paths(NESTED)


def test_columns_that_come_later_get_the_next_numbers_and_change_no_other():
    before = extend_field_ids({}, NESTED)
    stop = pa.struct([("city", pa.string()), ("street", pa.string())])

    after = extend_field_ids(before, pa.schema([("note", pa.string()), ("stop", stop)]))

    assert after == {**before, "note": 13, "stop.street": 14}


def test_numbers_of_columns_that_are_gone_are_not_given_again():
    assert extend_field_ids({"id": 1, "gone": 7}, pa.schema([("new", pa.int32())]))["new"] == 8


def test_parquet_keeps_the_numbers_of_all_columns():
    ids = extend_field_ids({}, NESTED)
    schema = pa.schema([*((name, pa.string()) for name in META_COLUMNS), *NESTED])
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, with_field_ids(schema, ids), store_schema=False) as writer:
        writer.write_table(schema.empty_table())

    stored = pq.ParquetFile(sink).schema_arrow

    assert read_field_ids(stored) == {**ids, **META_FIELD_IDS}
    assert stored == schema


def test_meta_columns_have_numbers_beyond_those_of_data_columns():
    assert list(META_FIELD_IDS) == list(META_COLUMNS)
    assert all(1_000_000 < number < 2_147_483_447 for number in META_FIELD_IDS.values())
    assert len(set(META_FIELD_IDS.values())) == len(META_COLUMNS)


def test_a_column_without_a_number_is_stored_without_one():
    schema = with_field_ids(NESTED, {"id": 1})

    assert read_field_ids(schema) == {"id": 1}


def test_the_text_of_a_commit_gives_back_the_numbers():
    ids = extend_field_ids({}, NESTED)

    assert decode_field_ids(encode_field_ids(ids)) == ids


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '{"id": "1"}', '{"id": 0}', '{"id": -1}', '{"a": 1, "b": 1}', '{"a": 1000001}', "{" * 9999],
)
def test_what_is_no_numbering_is_refused(text):
    with pytest.raises(Malformed, match="field ids"):
        decode_field_ids(text)
