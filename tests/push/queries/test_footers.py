"""Footers are read once, and what several files have together is worked out once for each list."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.push.queries.segment_files import Footers


@pytest.fixture
def read():
    return []


@pytest.fixture
def footers(tmp_path, read):
    tables = {
        "a": pa.table({"id": [1, 2], "city": ["Oslo", None]}),
        "b": pa.table({"id": [3], "city": ["Bergen"]}),
        "c": pa.table({"id": [4.5], "extra": [1]}),
    }
    for name, rows in tables.items():
        pq.write_table(rows, tmp_path / name)

    def source(path):
        read.append(path)
        return tmp_path / path

    return Footers(source)


def test_a_footer_is_read_once_for_all_lists_it_is_in(footers, read):
    for paths in (["a"], ["a", "b"], ["a", "b"], ["b"]):
        footers.of(paths)

    assert read == ["a", "b"]


def test_files_of_the_same_columns_are_equal_and_a_null_in_one_counts_for_all(footers):
    both = footers.of(["a", "b"])

    assert both.are_equal
    assert both.schema.names == ["id", "city"]
    assert both.without_nulls == {"id"}
    assert footers.of(["b"]).without_nulls == {"id", "city"}


def test_columns_of_different_files_are_united(footers):
    united = footers.of(["b", "c"])

    assert not united.are_equal
    assert united.schema.names == ["id", "city", "extra"]
    assert united.schema.field("id").type == pa.float64()
    assert united.without_nulls == {"id"}


def test_the_size_of_footers_is_that_of_all_files(footers, tmp_path):
    sizes = [pq.read_metadata(tmp_path / name).serialized_size for name in ("a", "c")]

    assert footers.of(["a", "c"]).size_bytes == sum(sizes)
