"""What a table's schema becomes with a write, and what is refused."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.evolutions import NUMBERS, SCHEMAS, evolved, incoming
from holdfast.errors import SchemaMismatch
from holdfast.format.evolution import evolve_schema, schema_in_file
from holdfast.format.schemas import storable_schema

ID = ("id", pa.int64())


def lists(kind):
    return pa.list_(pa.field("element", kind))


def maps(kind):
    return pa.map_(pa.string(), kind)


def structs(**fields):
    return pa.struct(fields.items())


def wrapped(kind):
    """The type at every depth, with the path to it."""
    return {
        "c": kind,
        "c.f": structs(f=kind),
        "c.element": lists(kind),
        "c.value": maps(kind),
        "c.element.value.f": lists(maps(structs(f=kind))),
    }


DEPTHS = list(wrapped(pa.int32()))


def unordered(kind):
    """A type with the fields of its structs in the order of their names."""
    if pa.types.is_struct(kind):
        fields = sorted(kind, key=lambda field: field.name)
        return pa.struct([(field.name, unordered(field.type)) for field in fields])
    if pa.types.is_list(kind):
        return lists(unordered(kind.value_type))
    return maps(unordered(kind.item_type)) if pa.types.is_map(kind) else kind


@settings(max_examples=300)
@given(data=st.data(), lacks_columns=st.booleans())
def test_every_legal_evolution_is_reached_and_then_stays(data, lacks_columns):
    existing = data.draw(SCHEMAS)
    wanted = data.draw(evolved(existing))
    found = data.draw(incoming(existing, wanted, lacks_columns=lacks_columns))

    result = evolve_schema(existing, found, fill_missing=lacks_columns)

    assert unordered(pa.struct(list(result))) == unordered(pa.struct(list(wanted)))
    assert result.names[: len(existing)] == existing.names
    assert evolve_schema(result, found, fill_missing=lacks_columns) == result
    assert evolve_schema(result, result, fill_missing=False) == result
    assert evolve_schema(result, existing, fill_missing=True) == result
    assert storable_schema(result) == result


@settings(max_examples=100)
@given(data=st.data())
def test_files_hold_what_their_own_schema_has_of_the_wanted_columns(data):
    older = data.draw(SCHEMAS)
    wanted = data.draw(evolved(older))

    form = schema_in_file(wanted, older)

    assert list(form)[: len(older)] == list(older)
    assert list(form)[len(older) :] == list(wanted)[len(older) :]
    assert schema_in_file(wanted, wanted) == wanted


@pytest.mark.parametrize("depth", DEPTHS)
def test_new_fields_come_after_the_existing_ones(depth):
    existing, found = structs(b=pa.int32(), a=pa.int32()), structs(z=pa.string(), a=pa.int32(), b=pa.int32())
    expected = structs(b=pa.int32(), a=pa.int32(), z=pa.string())

    result = evolve_schema(
        pa.schema([ID, ("c", wrapped(existing)[depth])]),
        pa.schema([("new", pa.date32()), ("c", wrapped(found)[depth]), ID]),
        fill_missing=False,
    )

    assert result == pa.schema([ID, ("c", wrapped(expected)[depth]), ("new", pa.date32())])


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("existing", NUMBERS, ids=str)
@pytest.mark.parametrize("found", NUMBERS, ids=str)
def test_numbers_become_the_wider_of_the_two(existing, found, depth):
    wider = NUMBERS[max(NUMBERS.index(existing), NUMBERS.index(found))]

    result = evolve_schema(
        pa.schema([("c", wrapped(existing)[depth])]),
        pa.schema([("c", wrapped(found)[depth])]),
        fill_missing=False,
    )

    assert result == pa.schema([("c", wrapped(wider)[depth])])


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_missing_column_is_refused_unless_it_is_to_be_filled(depth):
    full, less = structs(x=pa.int32(), y=pa.string()), structs(x=pa.int32())
    existing = pa.schema([("c", wrapped(full)[depth])])
    found = pa.schema([("c", wrapped(less)[depth])])

    with pytest.raises(SchemaMismatch, match=r"set\.null\.for\.missing\.columns") as refused:
        evolve_schema(existing, found, fill_missing=False)

    assert refused.value.facts == {"column": f"{depth}.y", "found": "missing", "expected": "string"}
    assert evolve_schema(existing, found, fill_missing=True) == existing


@pytest.mark.parametrize("fill_missing", [False, True])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.binary(), pa.string()),
        (pa.string(), pa.binary()),
        (pa.bool_(), pa.int32()),
        (pa.int32(), pa.date32()),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
        (pa.int64(), pa.timestamp("us", "UTC")),
        (pa.decimal128(10, 2), pa.decimal128(9, 2)),
        (pa.decimal128(9, 2), pa.decimal128(10, 2)),
        (pa.int32(), pa.decimal128(10, 0)),
        (lists(pa.int32()), pa.int32()),
        (structs(x=pa.int32()), lists(structs(x=pa.int32()))),
        (maps(pa.int32()), structs(x=pa.int32())),
    ],
    ids=str,
)
def test_any_other_change_is_refused_by_its_path(found, expected, depth, fill_missing):
    with pytest.raises(SchemaMismatch, match="do not fit") as refused:
        evolve_schema(
            pa.schema([ID, ("c", wrapped(expected)[depth])]),
            pa.schema([ID, ("c", wrapped(found)[depth])]),
            fill_missing=fill_missing,
        )

    assert refused.value.facts == {"column": depth, "found": str(found), "expected": str(expected)}


def test_a_column_that_hudi_stores_in_another_way_is_not_filled():
    milliseconds = pa.schema([ID, ("c", structs(t=pa.timestamp("ms", "UTC")))])

    with pytest.raises(SchemaMismatch) as refused:
        evolve_schema(milliseconds, pa.schema([ID]), fill_missing=True)

    assert refused.value.facts["column"] == "c.t"
    assert refused.value.facts["expected"] == "timestamp[ms, tz=UTC]"


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_new_name_may_not_differ_from_an_existing_one_in_case_alone(depth):
    lower, both = structs(x=pa.int32()), structs(x=pa.int32(), X=pa.int32())

    with pytest.raises(SchemaMismatch, match="upper and lower case") as refused:
        evolve_schema(
            pa.schema([("c", wrapped(lower)[depth])]),
            pa.schema([("c", wrapped(both)[depth])]),
            fill_missing=False,
        )

    assert refused.value.facts == {"column": f"{depth}.X"}


def test_another_case_is_another_column_and_refused():
    with pytest.raises(SchemaMismatch):
        evolve_schema(pa.schema([ID]), pa.schema([("ID", pa.int64())]), fill_missing=True)


def test_the_form_of_older_files_has_their_numbers_and_their_nested_fields():
    wanted = pa.schema(
        [
            ("n", pa.float64()),
            ("new", structs(x=pa.int32())),
            ("s", structs(x=pa.int64(), y=pa.string())),
            ("l", lists(structs(x=pa.int64(), y=pa.string()))),
            ("m", maps(pa.float64())),
            ("t", pa.timestamp("us", "UTC")),
        ]
    )
    stored = pa.schema(
        [
            ("m", maps(pa.float32())),
            ("t", pa.timestamp("ns")),
            ("s", structs(x=pa.int16())),
            ("l", pa.list_(pa.field("array", structs(x=pa.int64())))),
            ("n", pa.int32()),
            ("unasked", pa.int32()),
        ]
    )

    assert schema_in_file(wanted, stored) == pa.schema(
        [
            ("n", pa.int32()),
            ("new", structs(x=pa.int32())),
            ("s", structs(x=pa.int32())),
            ("l", lists(structs(x=pa.int64()))),
            ("m", maps(pa.float32())),
            ("t", pa.timestamp("us", "UTC")),
        ]
    )
