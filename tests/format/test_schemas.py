import json

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidRequest, SchemaMismatch, UnsupportedTable
from holdfast.format.malformed import Malformed
from holdfast.format.schemas import (
    META_COLUMNS,
    arrow_schema,
    avro_schema,
    storable_schema,
    without_meta_columns,
)


def read_commits(table):
    """Each completed commit's Avro schema with the base files it wrote."""
    for commit in sorted((table / ".hoodie").glob("*commit")):
        content = json.loads(commit.read_text())
        stats = [stat for group in content["partitionToWriteStats"].values() for stat in group]
        files = [table / stat["path"] for stat in stats if stat["path"].endswith(".parquet")]
        yield content["extraMetadata"]["schema"], files


def table_name(table):
    lines = (table / ".hoodie" / "hoodie.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("hoodie.table.name="))


def column_type(avro):
    record = {"type": "record", "name": "r", "fields": [{"name": "c", "type": avro}]}
    return arrow_schema(json.dumps(record)).field("c").type


def stored_type(kind):
    return storable_schema(pa.schema([("c", kind)])).field("c").type


def avro_type(kind, *, name="c"):
    record = json.loads(avro_schema(pa.schema([(name, kind)]), table_name="t"))
    return record["fields"][0]["type"]


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda name: name != "element")
DECIMALS = st.integers(1, 38).flatmap(
    lambda digits: st.integers(0, digits).map(lambda scale: pa.decimal128(digits, scale))
)
TIMESTAMPS = st.builds(
    pa.timestamp, st.sampled_from(["s", "ms", "us", "ns"]), tz=st.sampled_from([None, "UTC", "Europe/Berlin"])
)
LEAVES = (
    st.sampled_from(
        [
            pa.bool_(),
            pa.int8(),
            pa.int16(),
            pa.int32(),
            pa.int64(),
            pa.uint8(),
            pa.uint16(),
            pa.uint32(),
            pa.float32(),
            pa.float64(),
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.binary(),
            pa.large_binary(),
            pa.binary(12),
            pa.date32(),
            pa.date64(),
            pa.dictionary(pa.int32(), pa.string()),
        ]
    )
    | DECIMALS
    | TIMESTAMPS
)


def fields_of(types):
    named = st.tuples(NAMES, types, st.booleans())
    return st.lists(named, min_size=1, max_size=4, unique_by=lambda field: field[0].lower()).map(
        lambda fields: [pa.field(name, kind, nullable) for name, kind, nullable in fields]
    )


TYPES = st.recursive(
    LEAVES,
    lambda inner: (
        fields_of(inner).map(pa.struct)
        | inner.map(pa.list_)
        | inner.map(pa.large_list)
        | inner.map(lambda kind: pa.list_(pa.field("array", kind, nullable=False)))
        | inner.map(lambda kind: pa.map_(pa.string(), kind))
    ),
    max_leaves=8,
)
SCHEMAS = fields_of(TYPES).map(pa.schema)


@settings(max_examples=200)
@given(schema=SCHEMAS)
def test_a_schema_comes_back_from_avro_as_it_is_stored(schema):
    text = avro_schema(schema, table_name="trips")

    stored = storable_schema(schema)
    assert arrow_schema(text) == stored
    assert str(arrow_schema(text)) == str(stored), "equality of Arrow types overlooks the names inside lists"
    assert storable_schema(stored) == stored


@settings(max_examples=200)
@given(schema=SCHEMAS, name=st.text(min_size=1, max_size=8), meta_columns=st.booleans())
def test_another_avro_library_accepts_every_schema(schema, name, meta_columns):
    text = avro_schema(schema, table_name=name, meta_columns=meta_columns)

    parsed = fastavro.parse_schema(json.loads(text))
    assert [field["name"] for field in parsed["fields"]] == [
        *(META_COLUMNS if meta_columns else ()),
        *schema.names,
    ]


def test_a_commits_schema_is_that_of_the_base_files_it_wrote(hudi_table):
    for avro, files in read_commits(hudi_table):
        for file in files:
            in_file = without_meta_columns(pq.read_schema(file).remove_metadata())

            assert arrow_schema(avro) == storable_schema(in_file)


def test_avro_text_is_what_hudi_wrote_to_the_letter(hudi_table):
    name = table_name(hudi_table)

    for avro, files in read_commits(hudi_table):
        schema = arrow_schema(avro)
        assert avro_schema(schema, table_name=name) == avro
        for file in files:
            in_footer = pq.read_metadata(file).metadata.get(b"parquet.avro.schema")
            if in_footer is not None:
                assert avro_schema(schema, table_name=name, meta_columns=True) == in_footer.decode()


def test_the_fixtures_exercise_schemas_and_footers(hudi_fixture):
    commits = list(read_commits(hudi_fixture("cow_v6_nonpartitioned")))

    footers = [pq.read_metadata(file).metadata for _, files in commits for file in files]
    assert len(commits) == 2
    assert all(b"parquet.avro.schema" in footer for footer in footers)


@pytest.mark.parametrize(
    ("table", "record", "namespace"),
    [
        ("trips", "trips_record", "hoodie.trips"),
        ("my-lake.trips", "my__lake__trips_record", "hoodie.my__lake__trips"),
        ("2024trips", "__024trips_record", "hoodie.__024trips"),
        ("Fähre", "F__hre_record", "hoodie.F__hre"),
    ],
)
def test_table_names_are_made_fit_for_avro(table, record, namespace):
    avro = json.loads(avro_schema(pa.schema([("id", pa.int32())]), table_name=table))

    assert (avro["name"], avro["namespace"]) == (record, namespace)


def test_a_table_without_a_name_has_no_schema():
    with pytest.raises(InvalidRequest, match="needs a name"):
        avro_schema(pa.schema([("id", pa.int32())]), table_name="")


@pytest.mark.parametrize(
    ("precision", "size"), [(1, 1), (2, 1), (3, 2), (10, 5), (15, 7), (18, 8), (19, 9), (38, 16)]
)
def test_decimals_take_the_smallest_size_that_fits(precision, size):
    assert avro_type(pa.decimal128(precision, 1), name="price") == [
        "null",
        {
            "type": "fixed",
            "name": "fixed",
            "namespace": "hoodie.t.t_record.price",
            "size": size,
            "logicalType": "decimal",
            "precision": precision,
            "scale": 1,
        },
    ]


def test_local_timestamps_are_told_from_those_in_utc():
    in_utc = {"type": "long", "logicalType": "timestamp-micros"}
    assert avro_type(pa.timestamp("ns", "UTC"))[1] == in_utc
    assert avro_type(pa.timestamp("ns"))[1] == {**in_utc, "adjust-to-utc": False}


def test_structs_below_lists_and_maps_are_named_after_their_column():
    inner = pa.struct([("x", pa.decimal128(3, 0)), ("y", pa.struct([("z", pa.int32())]))])

    struct = avro_type(pa.list_(pa.map_(pa.string(), inner)), name="deep")[1]["items"][1]["values"][1]

    assert (struct["name"], struct["namespace"]) == ("deep", "hoodie.t.t_record")
    assert struct["fields"][0]["type"][1]["namespace"] == "hoodie.t.t_record.deep.x"
    assert struct["fields"][1]["type"][1]["name"] == "y"
    assert struct["fields"][1]["type"][1]["namespace"] == "hoodie.t.t_record.deep"


@pytest.mark.parametrize(
    ("avro", "expected"),
    [
        (["null", "int"], pa.int32()),
        (["int", "null"], pa.int32()),
        (["int"], pa.int32()),
        ("int", pa.int32()),
        ({"type": "string", "avro.java.string": "String"}, pa.string()),
        ({"type": {"type": "long"}}, pa.int64()),
        ({"type": ["null", "long"]}, pa.int64()),
        ({"type": "enum", "name": "colour", "symbols": ["RED"]}, pa.string()),
        ({"type": "fixed", "name": "f", "size": 16}, pa.binary(16)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, pa.decimal128(9, 0)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}, pa.decimal256(50, 2)),
        (
            {"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 9},
            pa.decimal128(9, 9),
        ),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms")),
        ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC")),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("ms")),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "int", "logicalType": "timestamp-micros"}, pa.int32()),
        ({"type": "long", "logicalType": ["odd"]}, pa.int64()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, pa.binary()),
        ({"type": "bytes", "logicalType": "decimal"}, pa.binary()),
        ({"type": "array", "items": "int"}, pa.list_(pa.int32())),
        ({"type": "map", "values": ["null", "bytes"]}, pa.map_(pa.string(), pa.binary())),
        (
            {"type": "record", "name": "s", "fields": [{"name": "x", "type": ["null", "double"]}]},
            pa.struct([("x", pa.float64())]),
        ),
    ],
)
def test_avro_types_are_understood_in_every_spelling(avro, expected):
    assert column_type(avro) == expected


def test_everything_read_from_avro_is_nullable():
    schema = arrow_schema(
        '{"type":"record","name":"r","fields":[{"name":"c","type":{"type":"array","items":"int"}}]}'
    )

    assert schema.field("c").nullable
    assert schema.field("c").type.value_field == pa.field("element", pa.int32(), nullable=True)


@pytest.mark.parametrize("reference", ["point", "geo.point", {"type": "point"}, ["null", "point"]])
def test_a_named_type_can_be_used_again_by_name(reference):
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}]}
    fields = [{"name": "a", "type": ["null", point]}, {"name": "b", "type": reference}]
    record = {"type": "record", "name": "r", "namespace": "geo", "fields": fields}

    schema = arrow_schema(json.dumps(record))

    assert schema.field("b").type == schema.field("a").type == pa.struct([("x", pa.int32())])


def test_names_inside_a_record_are_resolved_in_its_namespace():
    inner = {"type": "fixed", "name": "f", "namespace": "far", "size": 2}
    outer = {
        "type": "record",
        "name": "far.s",
        "fields": [{"name": "x", "type": inner}, {"name": "y", "type": "f"}],
    }
    record = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "c", "type": outer}, {"name": "d", "type": "far.f"}],
    }

    schema = arrow_schema(json.dumps(record))

    assert schema.field("c").type.field("y").type == schema.field("d").type == pa.binary(2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '"string"',
        '{"type":"array","items":"int"}',
        '{"type":"record"}',
        '{"type":"record","name":"r"}',
        '{"type":"record","name":1,"fields":[]}',
        '{"type":"record","name":"r","namespace":2,"fields":[]}',
        '{"type":"record","name":"r","fields":{}}',
        '{"type":"record","name":"r","fields":[1]}',
        '{"type":"record","name":"r","fields":[{"name":"c"}]}',
        '{"type":"record","name":"r","fields":[{"type":"int"}]}',
        '{"type":"record","name":"r","fields":[{"name":"c","type":"int"},{"name":"c","type":"int"}]}',
        '{"type":"record","name":"r","fields":[{"name":"c","type":7}]}',
        '{"type":"record","name":"r","fields":[{"name":"c","type":"unheard"}]}',
        '{"type":"record","name":"r","fields":[{"name":"c","type":{"type":"array"}}]}',
        '{"type":"record","name":"r","fields":[{"name":"c","type":{"type":"map"}}]}',
        '{"type":"record","name":"r","fields":[{"name":"c","type":{"type":"fixed","name":"f"}}]}',
        '{"type":"record","name":"r","fields":[{"name":"c","type":{"type":"fixed","name":"f","size":-1}}]}',
        '{"type":"record","name":"r","fields":[{"name":"\\ud800","type":"int"}]}',
        '{"type":"record","name":"r","fields":[{"name":"c","type":["null",["int"]]}]}',
        '{"type":"record","name":"r","fields":[{"name":"c","type":'
        + '{"type":"array","items":' * 600
        + '"int"'
        + "}" * 600
        + "}]}",
        "[" * 100_000,
        '{"type":"record","name":"r","doc":' + "9" * 5000 + "}",
    ],
)
def test_text_that_is_no_record_schema_is_malformed(text):
    with pytest.raises(Malformed, match="Avro schema"):
        arrow_schema(text)


@pytest.mark.parametrize(
    ("avro", "reason"),
    [
        (["null", "int", "string"], "several types"),
        ("null", "null"),
        (["null"], "null"),
        ({"type": "array", "items": ["null", "r"]}, "contains itself"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 77}, "decimal digits"),
    ],
)
def test_avro_without_a_columnar_form_is_unsupported(avro, reason):
    with pytest.raises(UnsupportedTable, match=reason):
        column_type(avro)


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (pa.int8(), pa.int32()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.large_string(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.run_end_encoded(pa.int32(), pa.int8()), pa.int32()),
        (pa.timestamp("ns", tz="Asia/Tokyo"), pa.timestamp("us", tz="UTC")),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.date64(), pa.date32()),
        (pa.decimal256(20, 3), pa.decimal128(20, 3)),
        (pa.decimal32(5, 2), pa.decimal128(5, 2)),
        (pa.binary(3), pa.binary(3)),
        (pa.map_(pa.large_string(), pa.int16()), pa.map_(pa.string(), pa.int32())),
        (pa.list_(pa.int8(), 3), pa.list_(pa.int32())),
    ],
)
def test_types_are_stored_in_the_plain_type_that_holds_them(kind, stored):
    assert stored_type(kind) == stored


def test_stored_schemas_are_nullable_throughout_but_for_map_keys_and_carry_no_metadata():
    inner = pa.field("x", pa.int32(), nullable=False, metadata={"PARQUET:field_id": "3"})
    schema = pa.schema(
        [
            pa.field("s", pa.struct([inner]), nullable=False),
            pa.field("l", pa.list_(pa.field("array", pa.int32(), nullable=False))),
            pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
        ],
        metadata={"pandas": "{}"},
    )

    stored = storable_schema(schema)

    assert stored.metadata is None
    assert stored.field("s") == pa.field("s", pa.struct([pa.field("x", pa.int32())]))
    assert stored.field("s").type.field("x").metadata is None
    assert stored.field("l").type.value_field.equals(pa.field("element", pa.int32()))
    assert not stored.field("m").type.key_field.nullable
    assert stored.field("m").type.item_field.nullable


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (pa.uint64(), "decimal128"),
        (pa.float16(), "float32"),
        (pa.time32("ms"), "int64 or string"),
        (pa.time64("us"), "int64 or string"),
        (pa.duration("us"), "int64 or string"),
        (pa.month_day_nano_interval(), "int64 or string"),
        (pa.null(), "type its values will have"),
        (pa.decimal256(39, 2), "38 digits"),
        (pa.decimal128(5, -1), "scale"),
        (pa.decimal128(5, 6), "scale"),
        (pa.binary(0), "Avro"),
        (pa.map_(pa.int32(), pa.int32()), "keys"),
        (pa.struct([]), "at least one field"),
        (pa.list_(pa.struct([("element", pa.int32())])), "rename"),
        (pa.dense_union([pa.field("a", pa.int32())]), "Avro"),
    ],
)
def test_types_that_no_table_stores_are_refused_with_path_type_and_way_out(kind, hint):
    schema = pa.schema([("a", pa.struct([("b", kind)]))])

    with pytest.raises(SchemaMismatch) as refused:
        storable_schema(schema)

    assert refused.value.facts == {"column": "a.b", "type": str(kind)}
    assert hint in refused.value.hint


def test_paths_name_elements_of_lists_and_values_of_maps():
    schema = pa.schema([("a", pa.list_(pa.map_(pa.string(), pa.struct([("b", pa.uint64())]))))])

    with pytest.raises(SchemaMismatch) as refused:
        storable_schema(schema)

    assert refused.value.facts["column"] == "a.element.value.b"


@pytest.mark.parametrize("name", ["", "1st", "a-b", "a b", "a.b", "x\n", "١", "a²", "a𝒳", "a\u0301"])
def test_names_that_avro_does_not_allow_are_refused(name):
    for schema in (pa.schema([(name, pa.int32())]), pa.schema([("s", pa.struct([(name, pa.int32())]))])):
        with pytest.raises(SchemaMismatch, match="Avro does not allow"):
            storable_schema(schema)


@pytest.mark.parametrize("name", ["größe", "名前", "_é", "цена_1", "ا١"])
def test_names_with_letters_of_any_script_are_stored_as_hudi_does(name):
    schema = pa.schema([(name, pa.int32()), ("s", pa.struct([(name, pa.int32())]))])

    assert arrow_schema(avro_schema(storable_schema(schema), table_name="t")) == schema


def test_names_that_differ_only_in_case_are_refused():
    with pytest.raises(SchemaMismatch, match="same name") as refused:
        storable_schema(pa.schema([("s", pa.struct([("id", pa.int32()), ("ID", pa.int32())]))]))

    assert refused.value.facts == {"column": "s.ID"}


def test_the_same_name_may_return_at_another_level():
    schema = pa.schema([("a", pa.struct([("a", pa.struct([("a", pa.decimal128(4, 2))]))]))])

    assert arrow_schema(avro_schema(schema, table_name="a")) == schema


@pytest.mark.parametrize("name", [*META_COLUMNS, "_HOODIE_RECORD_KEY"])
def test_meta_columns_are_not_taken_from_the_user(name):
    with pytest.raises(SchemaMismatch, match="keeps for itself"):
        storable_schema(pa.schema([(name, pa.string())]))


def test_meta_columns_can_be_taken_off():
    schema = pa.schema([*((name, pa.string()) for name in META_COLUMNS), ("id", pa.int32())])

    assert without_meta_columns(schema) == pa.schema([("id", pa.int32())])
    assert META_COLUMNS[0] == "_hoodie_commit_time"
    assert len(META_COLUMNS) == 5
