"""Pinot's schemas, read into typed values."""

import pytest

from holdfast.config.push_schema import DataType, FieldKind, incompatibilities, parse_schema
from holdfast.errors import InvalidRequest

WHOLE = {
    "schemaName": "orders",
    "dimensionFieldSpecs": [
        {"name": "city", "dataType": "STRING", "defaultNullValue": "?"},
        {"name": "tags", "dataType": "string", "singleValueField": False},
    ],
    "metricFieldSpecs": [{"name": "amount", "dataType": "DOUBLE"}],
    "dateTimeFieldSpecs": [
        {"name": "ts", "dataType": "TIMESTAMP", "format": "TIMESTAMP", "granularity": "1:MILLISECONDS"}
    ],
    "primaryKeyColumns": ["city"],
    "ours": 1,
}


def schema(*dimensions, **others):
    specs = [{"name": name, "dataType": kind} for name, kind in dimensions]
    return {"schemaName": "orders", "dimensionFieldSpecs": specs, **others}


def test_a_whole_schema_is_read():
    parsed = parse_schema(WHOLE)

    assert parsed.name == "orders"
    assert list(parsed.fields) == ["city", "tags", "amount", "ts"]
    assert parsed.fields["city"].default == "?"
    assert parsed.fields["tags"].type is DataType.STRING
    assert parsed.fields["tags"].is_array
    assert parsed.fields["amount"].kind is FieldKind.METRIC
    assert parsed.fields["ts"].format == "TIMESTAMP"
    assert parsed.primary_key == ("city",)
    assert parsed.raw == WHOLE


def test_the_former_way_to_name_the_time_column_is_read():
    time = {"incomingGranularitySpec": {"name": "day", "dataType": "INT", "timeType": "DAYS"}}

    parsed = parse_schema(schema(("a", "INT"), timeFieldSpec=time))

    assert parsed.fields["day"].kind is FieldKind.DATE_TIME
    assert parsed.fields["day"].format == "1:DAYS:EPOCH"


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"schemaName": "orders"},
        {"schemaName": "a__b", **schema(("a", "INT"))} | {"schemaName": "a__b"},
        schema(("a", "INT")) | {"schemaName": "a/b"},
        schema(("a", "INT"), ("a", "INT")),
        schema(("a", "VARCHAR")),
        schema(("a", None)),
        schema(("", "INT")),
        schema(("$segmentName", "STRING")),
        schema(("a\n", "STRING")),
        schema((5, "STRING")),
        schema(("a", "INT"), dimensionFieldSpecs={}),
        schema(("a", "INT"), metricFieldSpecs=[5]),
        schema(("a", "INT"), metricFieldSpecs=[{"name": "m", "dataType": "INT", "singleValueField": False}]),
        schema(("a", "INT"), metricFieldSpecs=[{"name": "m", "dataType": "INT", "singleValueField": 1}]),
        schema(("a", "INT"), primaryKeyColumns=["b"]),
        schema(("a", "INT"), primaryKeyColumns="a"),
        schema(("a", "INT"), timeFieldSpec=5),
        schema(("a", "INT"), ours="\ud800"),
        schema(("a", "INT"), timeFieldSpec={"incomingGranularitySpec": 5}),
    ],
    ids=repr,
)
def test_what_is_no_schema_is_refused_with_a_code(value):
    with pytest.raises(InvalidRequest) as refusal:
        parse_schema(value)

    assert refusal.value.facts["code"] in ("INVALID_SCHEMA", "INVALID_TABLE_NAME", "INVALID_JSON")


def test_columns_may_come_but_not_go_or_change():
    old = parse_schema(schema(("a", "INT"), ("b", "STRING")))

    assert incompatibilities(old, parse_schema(schema(("a", "INT"), ("b", "STRING"), ("c", "LONG")))) == ()
    assert incompatibilities(old, parse_schema(schema(("a", "LONG")))) == (
        "a was INT and would be LONG",
        "b is gone",
    )
