"""Conforming rows to another schema, against a reference that takes one value at a time."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.evolutions import SCHEMAS, evolved, rows_of, widened
from holdfast.files.conform import conform_rows

NARROW = pa.struct([("x", pa.int32())])
WIDE = pa.struct([("y", pa.string()), ("x", pa.int64())])


def lists(kind):
    return pa.list_(pa.field("element", kind))


def expected(rows, schema):
    return [widened(row, pa.struct(list(rows.schema)), pa.struct(list(schema))) for row in rows.to_pylist()]


def check(rows, schema):
    """Conform, and compare every value; the columns must be sound Arrow of exactly the asked types."""
    found = conform_rows(rows, schema)
    found.validate(full=True)
    assert type(found) is type(rows)
    assert found.schema.equals(schema, check_metadata=True)
    assert all(c.type.equals(f.type, check_metadata=True) for c, f in zip(found.columns, schema, strict=True))
    assert found.to_pylist() == expected(rows, schema)


@settings(max_examples=300)
@given(data=st.data())
def test_rows_of_an_older_schema_are_what_the_reference_makes_of_them(data):
    older = data.draw(SCHEMAS)
    newer = data.draw(evolved(older))
    rows = pa.concat_tables([data.draw(rows_of(older)), data.draw(rows_of(older))])
    start = data.draw(st.integers(0, rows.num_rows))
    part = rows.slice(start, data.draw(st.integers(0, rows.num_rows - start)))
    shuffled = pa.schema(data.draw(st.permutations(list(newer))))

    check(rows, newer)
    check(part, shuffled)
    for batch in part.to_batches():
        check(batch, shuffled)


@pytest.mark.parametrize(
    ("values", "found", "wanted"),
    [
        ([{"x": 1}, None, {"x": None}, {"x": 2}], NARROW, WIDE),
        ([[{"x": 1}, None], None, [], [{"x": 2}]], lists(NARROW), lists(WIDE)),
        (
            [[("a", {"x": 1})], None, [], [("b", None)]],
            pa.map_(pa.string(), NARROW),
            pa.map_(pa.string(), WIDE),
        ),
        ([[[{"x": 1}], None], None, [[]], [[None]]], lists(lists(NARROW)), lists(lists(WIDE))),
    ],
    ids=["struct", "list", "map", "list of lists"],
)
def test_slices_keep_their_own_rows_and_their_nulls(values, found, wanted):
    rows = pa.table({"c": pa.array(values, found)})
    schema = pa.schema([("c", wanted)])

    for start in range(5):
        for length in range(5 - start):
            check(rows.slice(start, length), schema)


def test_what_lies_beneath_a_null_does_not_come_to_light():
    hidden = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3], pa.int32())], ["x"], mask=pa.array([False, True, False])
    )
    hidden_list = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), hidden, mask=pa.array([False, True, False])
    )
    rows = pa.table({"s": hidden, "l": hidden_list})

    found = conform_rows(rows, pa.schema([("s", WIDE), ("l", lists(WIDE))]))

    one, three = {"y": None, "x": 1}, {"y": None, "x": 3}
    assert found.to_pylist() == [{"s": one, "l": [one]}, {"s": None, "l": None}, {"s": three, "l": [three]}]


def test_a_struct_that_gains_a_field_is_not_null():
    rows = pa.table({"s": pa.array([{"x": None}, None], NARROW)})

    found = conform_rows(rows, pa.schema([("s", WIDE)]))

    assert found.to_pylist() == [{"s": {"y": None, "x": None}}, {"s": None}]


@pytest.mark.parametrize(
    "layout",
    [
        pa.large_list(pa.int16()),
        pa.list_view(pa.int16()),
        pa.large_list_view(pa.int16()),
        pa.list_(pa.int16(), 2),
        pa.list_(pa.field("item", pa.int32())),
    ],
    ids=str,
)
def test_lists_of_every_layout_become_plain_ones(layout):
    rows = pa.table({"c": pa.array([[1, 2], None, [3, 4], [None, 6]], layout)})
    schema = pa.schema([("c", lists(pa.int32()))])

    for part in (rows, rows.slice(1), rows.slice(2, 1)):
        found = conform_rows(part, schema)
        found.validate(full=True)
        assert found["c"].type.value_field.name == "element"
        assert found.to_pylist() == part.to_pylist()


def test_dictionaries_and_narrow_types_become_what_is_stored():
    rows = pa.table(
        {
            "d": pa.array(["a", None, "a"]).dictionary_encode(),
            "n": pa.array([1, 2, 3], pa.int8()),
            "t": pa.array([1_000, 2_000, None], pa.timestamp("ns")),
        }
    )
    schema = pa.schema([("t", pa.timestamp("us")), ("n", pa.int32()), ("d", pa.string())])

    assert conform_rows(rows, schema).to_pydict() == {
        "t": rows["t"].cast(pa.timestamp("us")).to_pylist(),
        "n": [1, 2, 3],
        "d": ["a", None, "a"],
    }


@pytest.mark.parametrize(
    ("value", "found", "wanted"),
    [
        (1, pa.timestamp("ns"), pa.timestamp("us")),
        (2**31, pa.int64(), pa.int32()),
        (1.5, pa.float64(), pa.int64()),
        ("x", pa.string(), pa.int64()),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(value, found, wanted):
    with pytest.raises(pa.ArrowException):
        conform_rows(pa.table({"c": pa.array([value], found)}), pa.schema([("c", wanted)]))


def test_large_integers_are_rounded_and_floats_keep_their_digits():
    rows = pa.table({"i": pa.array([2**53 + 1]), "f": pa.array([1.1], pa.float32())})

    found = conform_rows(rows, pa.schema([("i", pa.float64()), ("f", pa.float64())]))

    assert found.to_pylist() == [{"i": float(2**53), "f": 1.1}]


def test_columns_that_fit_are_passed_on_without_a_copy():
    kept = pa.array(range(1000))
    rows = pa.table({"a": kept, "b": pa.array(range(1000), pa.int32())})

    found = conform_rows(rows, pa.schema([("b", pa.int64()), ("a", pa.int64()), ("c", pa.string())]))

    assert conform_rows(rows, rows.schema) is rows
    assert found["a"].chunk(0).buffers()[1].address == kept.buffers()[1].address


def test_rows_without_any_of_the_columns_are_as_many_rows_of_nulls():
    rows = pa.table({"a": [1, 2, 3]})

    assert conform_rows(rows, pa.schema([("z", WIDE)])).to_pylist() == [{"z": None}] * 3
