"""Table configurations and schemas as records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.format.malformed import Malformed
from holdfast.format.table_configs import schema_of, schema_record, table_config_of, table_config_record
from holdfast.format.znode import ZNRecord, decode_record, encode_record

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(sections=st.dictionaries(TEXT.filter(lambda key: not key.startswith("table")), JSON, max_size=5))
def test_a_configuration_is_read_as_it_was_written(sections):
    config = {"tableName": "orders_OFFLINE", "tableType": "OFFLINE", **sections}

    record = decode_record(encode_record(table_config_record("orders_OFFLINE", config)))

    assert table_config_of(record) == config


def test_sections_are_json_texts_under_their_keys():
    config = {
        "tableName": "t_OFFLINE",
        "tableType": "OFFLINE",
        "isDimTable": False,
        "tenants": {"broker": "D"},
    }

    assert table_config_record("t_OFFLINE", config).simple == {
        "tableName": "t_OFFLINE",
        "tableType": "OFFLINE",
        "isDimTable": "false",
        "tenants": '{"broker":"D"}',
    }


def test_a_schema_is_one_text_on_one_line():
    record = schema_record("orders", {"schemaName": "orders", "note": "two\nlines"})

    assert record == ZNRecord(
        id="orders", simple={"schemaJSON": '{"schemaName":"orders","note":"two\\nlines"}'}
    )
    assert schema_of(record) == {"schemaName": "orders", "note": "two\nlines"}


@pytest.mark.parametrize(
    "simple", [{}, {"schemaJSON": "{"}, {"schemaJSON": "[]"}, {"schemaJSON": "[" * 10**5}]
)
def test_a_record_without_a_schema_is_malformed(simple):
    with pytest.raises(Malformed):
        schema_of(ZNRecord(id="t", simple=simple))


def test_a_section_that_is_not_json_is_malformed():
    with pytest.raises(Malformed):
        table_config_of(ZNRecord(id="t", simple={"tenants": "{"}))
