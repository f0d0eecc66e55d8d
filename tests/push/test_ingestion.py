"""Transforms, filters and complex types of Pinot's tables: what becomes of rows, and what is refused."""

import datetime as dt
import struct

import pyarrow as pa
import pytest

from holdfast.config.push_schema import parse_schema
from holdfast.errors import InvalidRequest, SchemaMismatch
from holdfast.push.ingestion.compile import row_program
from holdfast.push.ingestion.rules import check_config, check_schema, row_rules


def _schema(**columns):
    """Columns by their types, an array with [] behind it."""
    return {
        "schemaName": "t",
        "dimensionFieldSpecs": [
            {"name": name, "dataType": kind.removesuffix("[]"), "singleValueField": not kind.endswith("[]")}
            for name, kind in columns.items()
        ],
    }


def _transforms(**expressions):
    return [{"columnName": name, "transformFunction": text} for name, text in expressions.items()]


def _ingest(rows, schema, **ingestion):
    """The rows that the table keeps, with the columns that it has."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    rules = row_rules({"ingestionConfig": ingestion}, schema)
    program = row_program(rules, table.schema, tuple(parse_schema(schema).fields.values()))
    batches = list(program.run(table.to_batches(max_chunksize=2)))
    made = pa.Table.from_batches(batches, program.output(table.schema)) if batches else None
    return [] if made is None else made.to_pylist()


def test_columns_are_computed_of_others():
    schema = _schema(day="INT", ts="TIMESTAMP", name="STRING", year="INT", both="STRING")
    rows = [{"day": 16101, "first": "a", "last": "b"}, {"day": 16102, "first": None, "last": "c"}]

    assert _ingest(
        rows,
        schema,
        transformConfigs=_transforms(
            year="YEAR(ts)", ts="fromEpochDays(day)", name="concat(upper(first), last, '-')",
            both="CASE WHEN day > 16101 THEN 'late' ELSE 'early' END",
        ),
    ) == [
        {"day": 16101, "ts": 1391126400000, "name": "A-b", "year": 2014, "both": "early"},
        {"day": 16102, "ts": 1391212800000, "name": None, "year": 2014, "both": "late"},
    ]  # fmt: skip


def test_texts_of_csv_files_are_read_as_what_a_function_takes():
    schema = _schema(lon="FLOAT", lat="FLOAT", point="BYTES", ms="LONG")
    schema["dimensionFieldSpecs"][2]["transformFunction"] = "toSphericalGeography(stPoint(lon,lat))"

    (row,) = _ingest(
        [{"lon": "-122.1", "lat": "47.3", "s": "12"}], schema, transformConfigs=_transforms(ms="s * 1000")
    )

    assert row["point"] == b"\x80" + struct.pack(">dd", -122.1, 47.3)
    assert row["ms"] == 12_000


def test_what_came_counts_more_than_what_would_be_computed():
    rows = pa.table({"a": ["x", None], "b": ["y", "z"]})

    assert _ingest(rows, _schema(a="STRING"), transformConfigs=_transforms(a="upper(b)")) == [
        {"a": "x"}, {"a": "Z"}
    ]  # fmt: skip


def test_the_word_of_the_table_counts_more_than_that_of_the_schema():
    schema = _schema(a="STRING")
    schema["dimensionFieldSpecs"][0]["transformFunction"] = "lower(b)"

    assert _ingest([{"b": "Y"}], schema) == [{"a": "y"}]
    assert _ingest([{"b": "Y"}], schema, transformConfigs=_transforms(a="concat(b, b)")) == [{"a": "YY"}]


def test_rows_of_which_the_filter_holds_are_left_out():
    rows = [
        {"city": "oslo", "n": 1},
        {"city": "rome", "n": 2},
        {"city": None, "n": 3},
        {"city": "oslo", "n": 4},
    ]
    keep = {"filterFunction": "city = 'oslo' AND doubled < 8"}

    assert _ingest(
        rows,
        _schema(city="STRING", n="INT"),
        filterConfig=keep,
        transformConfigs=_transforms(doubled="n * 2"),
    ) == [{"city": "rome", "n": 2}, {"city": None, "n": 3}, {"city": "oslo", "n": 4}]
    assert _ingest(rows, _schema(n="INT"), filterConfig={"filterFunction": "n > 0"}) == []


def test_rows_keep_their_order_and_batches_stream():
    rows = pa.table({"n": list(range(120_000))})
    found = _ingest(rows, _schema(n="LONG"), filterConfig={"filterFunction": "MOD(n, 2) = 1"})

    assert [row["n"] for row in found] == list(range(0, 120_000, 2))


NESTED = {
    "id": 1,
    "group": {"name": "g", "at": {"city": "oslo"}},
    "tags": ["a", "b"],
    "items": [{"price": 2, "of": {"x": 1}}, {"price": 3, "of": {"x": 2}}],
    "others": [{"k": 1}],
}


def test_nested_values_become_columns_rows_and_json():
    wanted = {
        "id": "INT", "group.name": "STRING", "group.at.city": "STRING", "tags": "STRING[]",
        "items.price": "INT", "items.of.x": "INT", "others": "STRING",
    }  # fmt: skip
    empty = {**NESTED, "id": 2, "items": [], "others": None}

    assert _ingest(
        [NESTED, empty], _schema(**wanted), complexTypeConfig={"fieldsToUnnest": ["items"]}
    ) == [
        {
            "id": number, "group.name": "g", "group.at.city": "oslo", "tags": ["a", "b"],
            "items.price": price, "items.of.x": x, "others": others,
        }
        for number, price, x, others in (
            (1, 2, 1, '[{"k":1}]'), (1, 3, 2, '[{"k":1}]'), (2, None, None, None)
        )
    ]  # fmt: skip


def test_names_of_nested_columns_are_as_the_table_says():
    schema = _schema(id="INT", name="STRING", other_x="INT", tags="STRING")
    rows = [{"id": 1, "group": {"name": "g"}, "set": {"x": 5}, "tags": ["a"]}]

    assert _ingest(
        rows,
        schema,
        complexTypeConfig={
            "delimiter": "_",
            "collectionNotUnnestedToJson": "ALL",
            "prefixesToRename": {"group_": "", "set_": "other_"},
        },
    ) == [{"id": 1, "name": "g", "other_x": 5, "tags": '["a"]'}]
    with pytest.raises(SchemaMismatch, match="same name"):
        _ingest(rows, schema, complexTypeConfig={"prefixesToRename": {"group.name": "id"}})


def test_maps_give_the_keys_that_the_table_has_columns_for():
    rows = pa.table({"m": pa.array([[("a", 1), ("b", 2)], [("b", 3)]], pa.map_(pa.string(), pa.int64()))})

    found = _ingest(rows, _schema(**{"m.a": "LONG", "m.b": "LONG"}), complexTypeConfig={"delimiter": "."})

    assert found == [{"m.a": 1, "m.b": 2}, {"m.a": None, "m.b": 3}]


def test_lists_within_lists_are_unnested_one_after_the_other():
    rows = [{"a": [{"b": [{"c": 1}, {"c": 2}]}, {"b": [{"c": 3}]}]}]

    found = _ingest(rows, _schema(**{"a.b.c": "INT"}), complexTypeConfig={"fieldsToUnnest": ["a", "a.b"]})

    assert found == [{"a.b.c": 1}, {"a.b.c": 2}, {"a.b.c": 3}]


def test_moments_are_read_by_functions_and_kept_as_they_came():
    moment = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
    rows = pa.table({"at": pa.array([moment], pa.timestamp("us", "Europe/Oslo")), "nested": [{"x": 1}]})
    schema = _schema(at="TIMESTAMP", day="LONG", nested="STRING")

    (row,) = _ingest(rows, schema, transformConfigs=_transforms(day="toEpochDays(at)"))

    assert (row["at"], row["day"], row["nested"]) == (moment, moment.timestamp() // 86_400, '{"x":1}')


def test_columns_of_the_table_that_the_input_lacks_are_null():
    found = _ingest(
        [{"a": 1}], _schema(a="INT", b="INT", c="INT"), transformConfigs=_transforms(c="COALESCE(b, a)")
    )

    assert found == [{"a": 1, "c": 1}]
    with pytest.raises(SchemaMismatch, match="no such column") as caught:
        _ingest([{"a": 1}], _schema(a="INT", c="INT"), transformConfigs=_transforms(c="abs(typo)"))
    assert caught.value.facts["setting"] == "ingestionConfig.transformConfigs[0].transformFunction"


def test_a_row_that_cannot_be_transformed_says_so():
    with pytest.raises(SchemaMismatch, match="cannot be transformed") as caught:
        _ingest([{"s": "soon"}], _schema(ms="LONG"), transformConfigs=_transforms(ms="fromEpochDays(s)"))

    assert "soon" in str(caught.value)


@pytest.mark.parametrize(
    ("ingestion", "setting"),
    [
        ({"transformConfigs": _transforms(a="Groovy({x + 1}, x)")}, "transformConfigs[0].transformFunction"),
        ({"transformConfigs": _transforms(a="b", c="nosuch(b)")}, "transformConfigs[1].transformFunction"),
        ({"transformConfigs": _transforms(a="sum(b)")}, "transformConfigs[0].transformFunction"),
        ({"transformConfigs": _transforms(a="(SELECT 1)")}, "transformConfigs[0].transformFunction"),
        ({"transformConfigs": _transforms(a="b, c")}, "transformConfigs[0].transformFunction"),
        ({"transformConfigs": _transforms(a="b FROM x --")}, "transformConfigs[0].transformFunction"),
        ({"transformConfigs": _transforms(a="upper(")}, "transformConfigs[0].transformFunction"),
        ({"transformConfigs": _transforms(a="")}, "transformConfigs[0].transformFunction"),
        ({"transformConfigs": _transforms(a="b + 1", b="a + 1")}, "transformFunction"),
        ({"transformConfigs": [{"transformFunction": "upper(b)"}]}, "transformConfigs[0].columnName"),
        ({"transformConfigs": {}, "filterConfig": []}, "filterConfig"),
        ({"filterConfig": {"filterFunction": "groovy({a > 1}, a)"}}, "filterConfig.filterFunction"),
        ({"complexTypeConfig": {"fieldsToUnnest": "a"}}, "complexTypeConfig.fieldsToUnnest"),
        ({"complexTypeConfig": {"collectionNotUnnestedToJson": "SOME"}}, "collectionNotUnnestedToJson"),
        (
            {"complexTypeConfig": {"fieldsToUnnestAndKeepOriginalValue": ["a"]}},
            "complexTypeConfig.fieldsToUnnestAndKeepOriginalValue",
        ),
        ({"enrichmentConfigs": [{"enricherType": "generateColumn"}]}, "ingestionConfig.enrichmentConfigs"),
        ({"aggregationConfigs": [{"columnName": "a"}]}, "ingestionConfig.aggregationConfigs"),
    ],
)
def test_what_is_not_done_is_refused_with_the_path_of_the_setting(ingestion, setting):
    with pytest.raises(InvalidRequest) as caught:
        check_config({"tableName": "t", "ingestionConfig": ingestion})

    assert caught.value.facts["setting"].endswith(setting)


def test_schemas_are_judged_in_the_same_way():
    schema = _schema(a="INT", b="INT")
    schema["dimensionFieldSpecs"][1]["transformFunction"] = "Groovy({1})"
    with pytest.raises(InvalidRequest, match="Groovy") as caught:
        check_schema(schema)
    assert caught.value.facts["setting"] == "dimensionFieldSpecs[1].transformFunction"

    times = {"incomingGranularitySpec": {"name": "ms", "timeType": "MILLISECONDS"}}
    check_schema({**_schema(a="INT"), "timeFieldSpec": times})
    times["outgoingGranularitySpec"] = {"name": "day", "timeType": "DAYS"}
    with pytest.raises(InvalidRequest) as caught:
        check_schema({**_schema(a="INT"), "timeFieldSpec": times})
    assert caught.value.facts["setting"] == "timeFieldSpec.outgoingGranularitySpec"
