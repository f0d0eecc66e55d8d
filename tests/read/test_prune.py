"""Pruned reads: conditions leave out row groups and rows, and never one that matches."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from holdfast.errors import TableDamaged
from holdfast.read.prune import Condition, each_match
from holdfast.storage.local import LocalStore

FILE = "f.parquet"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def store(tmp_path):
    rows = pa.table({"id": range(1000), "name": [f"n{i:03d}" if i % 2 else None for i in range(1000)]})
    pq.write_table(rows, tmp_path / FILE, row_group_size=100)
    return LocalStore(str(tmp_path))


def ids(store, *conditions, schema=SCHEMA):
    parts = list(each_match(store, FILE, schema, conditions))
    assert all(part.schema == schema for part in parts)
    return [i for part in parts for i in part.column("id").to_pylist()]


def test_without_conditions_every_row_comes(store):
    assert ids(store) == list(range(1000))


@pytest.mark.parametrize(
    ("column", "test", "expected"),
    [
        ("id", pc.field("id") == 512, [512]),
        ("id", pc.field("id") >= 990, list(range(990, 1000))),
        ("id", pc.field("id").isin([3, 700]), [3, 700]),
        ("id", ~(pc.field("id") < 995), list(range(995, 1000))),
        ("id", pc.field("id") < 0, []),
        ("name", pc.field("name") == "n101", [101]),
        ("name", pc.field("name").is_null() & (pc.field("id") < 4), [0, 2]),
    ],
)
def test_exactly_the_matching_rows_come(store, column, test, expected):
    assert ids(store, Condition(column, test)) == expected


def test_several_conditions_hold_together(store):
    assert ids(store, Condition("id", pc.field("id") > 500), Condition("id", pc.field("id") < 503)) == [
        501,
        502,
    ]


def test_a_condition_on_a_column_the_file_lacks_or_has_in_another_type_rules_out_nothing(store):
    wider = pa.schema([("id", pa.int64()), ("name", pa.string()), ("later", pa.int64())])
    other = pa.schema([("id", pa.float64())])

    assert len(ids(store, Condition("later", pc.field("later") == 1), schema=wider)) == 1000
    assert len(ids(store, Condition("id", pc.field("id") == 1.0), schema=other)) == 1000


def test_row_groups_without_a_match_are_not_read(store, tmp_path):
    """Their bytes may be anything."""
    path = tmp_path / FILE
    group = pq.ParquetFile(path).metadata.row_group(0)
    content = bytearray(path.read_bytes())
    content[4 : 4 + group.column(0).total_compressed_size] = b"\xff" * group.column(0).total_compressed_size
    path.write_bytes(content)

    assert ids(store, Condition("id", pc.field("id") == 512)) == [512]
    with pytest.raises(TableDamaged):
        ids(store)
