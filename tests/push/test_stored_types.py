"""What types a segment's columns may have: what is taken can be read, whatever the values are."""

import datetime as dt
import decimal
import io

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.config.push_schema import DataType
from holdfast.errors import InvalidRequest
from holdfast.format.segments import ColumnDescription
from holdfast.push.queries import wire
from holdfast.push.queries.stored_columns import column_sql, is_same
from holdfast.push.uploads.inspection.stored_types import check_described_types, check_stored_types

MOMENTS = [dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), None]
VALUES = {
    pa.bool_(): [True, False, None],
    pa.int8(): [-(2**7), 2**7 - 1, None],
    pa.uint8(): [0, 2**8 - 1],
    pa.int16(): [-(2**15), 2**15 - 1],
    pa.uint16(): [0, 2**16 - 1],
    pa.int32(): [-(2**31), 2**31 - 1, None],
    pa.uint32(): [0, 2**32 - 1],
    pa.int64(): [-(2**63), 2**63 - 1, None],
    pa.uint64(): [0, 2**64 - 1],
    pa.float32(): [-3e38, 3e38, float("nan"), float("inf"), None],
    pa.float64(): [-1e308, 1e308, float("nan"), float("-inf"), None],
    pa.decimal128(20, 4): [decimal.Decimal("-9999999999999999.9999"), decimal.Decimal(0), None],
    pa.string(): ["", "oslo", "1x", None],
    pa.large_string(): ["", "oslo"],
    pa.binary(): [b"", b"oslo", None],
    pa.date32(): [dt.date(1900, 1, 1), dt.date(2100, 1, 1), None],
    pa.timestamp("ms"): MOMENTS,
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "UTC"): [one and one.replace(tzinfo=dt.UTC) for one in MOMENTS],
    pa.dictionary(pa.int32(), pa.string()): ["oslo", None],
    pa.list_(pa.int32()): [[1, -(2**31)], [], None],
    pa.list_(pa.int64()): [[2**40], []],
    pa.list_(pa.string()): [["a", "b"], None],
    pa.null(): [None],
}


def _file(values, kind):
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": pa.array(values, kind)}), sink)
    return sink


def _check(sink, kind):
    file = pq.ParquetFile(sink)
    check_stored_types("s1", file.schema_arrow, file.metadata, {"c": kind, "absent": "LONG"})


@pytest.mark.parametrize("is_array", [False, True], ids=["single", "array"])
@pytest.mark.parametrize("kind", DataType)
@pytest.mark.parametrize("stored", VALUES, ids=str)
def test_what_is_taken_can_be_read(tmp_path, stored, kind, is_array):
    sink = _file(VALUES[stored], stored)
    try:
        _check(sink, kind + "[]" * is_array)
    except InvalidRequest:
        return  # That is refused; which types must be is asked below.
    (tmp_path / "f.parquet").write_bytes(sink.getvalue())
    task = wire.ColumnTask("c", kind, is_array)
    sql = column_sql(
        pq.read_schema(tmp_path / "f.parquet"), task, without_nulls=frozenset(), is_plain=is_same
    )
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT {sql} AS c FROM '{tmp_path}/f.parquet'").fetchall()
    assert len(found) == len(VALUES[stored])


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        (pa.string(), "LONG"), (pa.string(), "INT"), (pa.string(), "DOUBLE"), (pa.string(), "TIMESTAMP"),
        (pa.string(), "BOOLEAN"), (pa.string(), "BIG_DECIMAL"), (pa.float64(), "LONG"),
        (pa.int64(), "INT"), (pa.uint64(), "LONG"), (pa.float64(), "FLOAT"), (pa.list_(pa.int32()), "INT"),
        (pa.list_(pa.string()), "INT[]"), (pa.int32(), "BYTES"), (pa.timestamp("ms"), "INT"),
    ],
    ids=str,
)  # fmt: skip
def test_what_could_not_be_read_is_refused_with_column_and_types(stored, kind):
    with pytest.raises(InvalidRequest) as caught:
        _check(_file(VALUES[stored], stored), kind)

    facts = caught.value.facts
    assert (facts["segment"], facts["column"]) == ("s1", "c")
    assert facts["found"].partition("<")[0] == str(stored).partition("<")[0]
    assert (facts["expected"], facts["code"]) == (kind, "TYPE_MISMATCH")


@pytest.mark.parametrize(
    ("values", "stored", "kind"),
    [
        ([1, 2**31 - 1, None], pa.int64(), "INT"),
        ([[1], [2, 3]], pa.list_(pa.int64()), "INT[]"),
        ([1.5, 3e38, None], pa.float64(), "FLOAT"),
        ([5], pa.uint64(), "LONG"),
        ([None, None], pa.int64(), "INT"),
        ([], pa.int64(), "INT"),
    ],
)
def test_a_wider_type_is_taken_if_its_values_fit(values, stored, kind):
    _check(_file(values, stored), kind)


def test_a_wider_type_is_not_taken_if_the_file_does_not_tell_its_values():
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": pa.array([1], pa.int64())}), sink, write_statistics=False)

    with pytest.raises(InvalidRequest, match="INT"):
        _check(sink, "INT")


def test_a_column_is_found_as_queries_find_it():
    sink = io.BytesIO()
    pq.write_table(pa.table({"C": ["x"]}), sink)

    with pytest.raises(InvalidRequest, match="LONG"):
        _check(sink, "LONG")


@pytest.mark.parametrize(
    ("described", "is_single", "kind", "is_taken"),
    [
        ("LONG", True, "LONG", True),
        ("INT", True, "LONG", True),
        ("LONG", True, "INT", False),
        ("STRING", True, "LONG", False),
        ("LONG", True, "STRING", True),
        ("LONG", False, "LONG", False),
        ("LONG", False, "LONG[]", True),
        ("LONG", True, "LONG[]", True),
    ],
)
def test_a_description_is_held_against_the_schema(described, is_single, kind, is_taken):
    column = ColumnDescription(name="c", type=described, kind="DIMENSION", is_single=is_single)
    other = ColumnDescription(name="unknown", type="MAP", kind="DIMENSION")

    if is_taken:
        check_described_types("s1", [column, other], {"c": kind})
    else:
        with pytest.raises(InvalidRequest, match="schema"):
            check_described_types("s1", [column, other], {"c": kind})
