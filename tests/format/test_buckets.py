"""Bucket numbers: Java's hash, over whole columns."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.format.buckets import bucket_file_id, bucket_numbers, bucket_of, java_hashes


@pytest.mark.parametrize(
    ("values", "bucket"),
    [(["1"], 0), (["abc", "def"], 4), (["é中😀"], 6), ([None, "x"], 1), ([""], 7)],
)
def test_a_key_has_the_bucket_that_hudi_gives_it(values, bucket):
    columns = [pa.array([value], pa.string()) for value in values]

    assert bucket_numbers(columns, count=8).tolist() == [bucket]


def java_hash(text: str) -> int:
    units = text.encode("utf-16-be")
    number = 0
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    return number


texts = st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=40)), max_size=30)


@given(texts, st.integers(0, 5))
def test_whole_columns_hash_as_java_does_one_by_one(values, skipped):
    column = pa.array(values, pa.string()).slice(skipped)

    assert java_hashes(column).tolist() == [java_hash(value or "") for value in column.to_pylist()]


def test_a_file_group_says_its_bucket():
    file_id = bucket_file_id(4, "d398fae1-c0e6-4098-8124-f55f7098bdba")

    assert file_id == "00000004-c0e6-4098-8124-f55f7098bdba-0"
    assert bucket_of(file_id) == 4
    assert bucket_of("d398fae1-c0e6-4098-8124-f55f7098bdba-0") is None
