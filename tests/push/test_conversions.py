"""Columns of any Arrow type in the types of Pinot's schemas."""

import datetime as dt
import decimal

import pyarrow as pa
import pytest

from holdfast.config.push_schema import DataType, Field, FieldKind
from holdfast.errors import SchemaMismatch
from holdfast.push.segments.conversions import arrow_type, constant, convert, select_fields

NOON = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def _field(kind, *, name="c", is_array=False, **more):
    return Field(name=name, type=kind, kind=FieldKind.DIMENSION, is_array=is_array, **more)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (DataType.INT, pa.array([1, None], pa.int64()), [1, None]),
        (DataType.INT, pa.array(["12", None]), [12, None]),
        (DataType.LONG, pa.array([1.0]), [1]),
        (DataType.LONG, pa.array([True]), [1]),
        (DataType.FLOAT, pa.array([0.5], pa.float64()), [0.5]),
        (DataType.DOUBLE, pa.array(["1e3"]), [1000.0]),
        (DataType.BIG_DECIMAL, pa.array([3], pa.int64()), [decimal.Decimal("3")]),
        (DataType.BIG_DECIMAL, pa.array(["1.25"]), [decimal.Decimal("1.25")]),
        (DataType.BOOLEAN, pa.array(["true", "false"]), [True, False]),
        (DataType.BOOLEAN, pa.array([1, 0]), [True, False]),
        (DataType.STRING, pa.array([1, None]), ["1", None]),
        (DataType.STRING, pa.array([dt.date(2026, 11, 16)]), ["2026-11-16"]),
        (DataType.STRING, pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
        (DataType.BYTES, pa.array([b"x"]), [b"x"]),
        (DataType.TIMESTAMP, pa.array([NOON_MS]), [NOON.replace(tzinfo=None)]),
        (DataType.TIMESTAMP, pa.array([str(NOON_MS)]), [NOON.replace(tzinfo=None)]),
        (DataType.TIMESTAMP, pa.array(["2026-11-16 12:00:00"]), [NOON.replace(tzinfo=None)]),
        (DataType.TIMESTAMP, pa.array([NOON], pa.timestamp("us", "Asia/Tokyo")), [NOON.replace(tzinfo=None)]),
        (DataType.LONG, pa.array([NOON], pa.timestamp("us", "UTC")), [NOON_MS]),
        (DataType.LONG, pa.array([None], pa.null()), [None]),
    ],
)  # fmt: skip
def test_values_that_fit_are_converted(kind, values, expected):
    found = convert(values, _field(kind))

    assert found.type == arrow_type(_field(kind))
    assert found.to_pylist() == expected


def test_a_moment_becomes_a_count_in_the_unit_of_the_column():
    days = _field(DataType.INT, format="1:DAYS:EPOCH")

    assert convert(pa.array([NOON]), days).to_pylist() == [20773]
    assert convert(pa.array([dt.date(1970, 1, 3)]), days).to_pylist() == [2]


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string())])
def test_several_values_of_rows_that_are_a_part_of_others_are_converted(kind):
    """Arrow cuts the columns of a table where any of them is cut, so whoever has a table may have slices."""
    several = _field(DataType.INT, is_array=True)
    rows = pa.array([["1"], None, ["2", "3"], [], ["4"]], kind)

    assert convert(rows.slice(1), several).to_pylist() == [None, [2, 3], [], [4]]
    assert convert(rows.slice(2, 2), several).to_pylist() == [[2, 3], []]
    assert convert(rows.slice(5), several).to_pylist() == []


def test_several_values_are_converted_one_by_one():
    several = _field(DataType.INT, is_array=True)

    assert convert(pa.array([["1", "2"], None, []]), several).to_pylist() == [[1, 2], None, []]
    assert convert(pa.array([5, 6]), several).to_pylist() == [[5], [6]]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (DataType.INT, pa.array([2**31])),
        (DataType.INT, pa.array(["1.5"])),
        (DataType.LONG, pa.array([1.5])),
        (DataType.LONG, pa.array([2**63], pa.uint64())),
        (DataType.FLOAT, pa.array([1e300])),
        (DataType.BOOLEAN, pa.array(["maybe"])),
        (DataType.BOOLEAN, pa.array([NOON])),
        (DataType.BYTES, pa.array(["0a"])),
        (DataType.TIMESTAMP, pa.array(["soon"])),
        (DataType.BIG_DECIMAL, pa.array(["1e40"])),
        (DataType.INT, pa.array([{"a": 1}])),
        (DataType.STRING, pa.array([b"\xff"])),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_column_and_its_type(kind, values):
    with pytest.raises(SchemaMismatch) as caught:
        convert(values, _field(kind, name="price"))

    assert (caught.value.facts["column"], caught.value.facts["value_type"]) == ("price", str(values.type))


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (DataType.INT, -1, -1),
        (DataType.STRING, "null", "null"),
        (DataType.DOUBLE, float("-inf"), float("-inf")),
        (DataType.BIG_DECIMAL, 0, decimal.Decimal(0)),
        (DataType.TIMESTAMP, 0, dt.datetime(1970, 1, 1)),
        (DataType.BYTES, b"", b""),
    ],
)
def test_a_column_that_is_missing_is_filled_with_its_default(kind, default, expected):
    assert constant(_field(kind), default, 2).to_pylist() == [expected] * 2
    assert constant(_field(kind, is_array=True), default, 1).to_pylist() == [[expected]]


def test_the_columns_of_an_input_are_those_of_the_table_or_the_chosen_ones():
    fields = [_field(DataType.INT, name=name) for name in ("a", "b", "c")]

    assert [one.name for one in select_fields(fields, ["c", "a", "other"], ())] == ["a", "c"]
    assert [one.name for one in select_fields(fields, ["c", "a"], ("c",))] == ["c"]
    for held, chosen in ((["x"], ()), (["a"], ("b",)), (["a"], ("z",))):
        with pytest.raises(SchemaMismatch):
            select_fields(fields, held, chosen)
