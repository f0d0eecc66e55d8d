"""The catalog: tables and schemas come, change and go."""

from dataclasses import replace

import pytest

from harness.catalogs import CONFIG, SCHEMA, TABLE, Loses, add, entry, records, segment, with_table
from holdfast.config.push import parse_table
from holdfast.config.push_schema import parse_schema
from holdfast.errors import (
    InvalidRequest,
    LineageChanged,
    Refused,
    TableExists,
    TableNotFound,
)
from holdfast.model.lineage import Lineage
from holdfast.push.metastore.port import Create, Remove, Replace
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.records import (
    config_path,
    decode_push_state,
    external_view_path,
    ideal_state_path,
    lineage_path,
    push_state_path,
)
from holdfast.push.state.table_state import PendingDeletion, PushState


def test_a_table_is_created_once(catalog):
    with pytest.raises(TableExists) as refusal:
        catalog.create_table(parse_table(CONFIG))

    assert refusal.value.facts["code"] == "TABLE_EXISTS"


def test_a_table_needs_its_schema(catalog):
    with pytest.raises(InvalidRequest) as refusal:
        catalog.create_table(parse_table({"tableName": "items"}))

    assert refusal.value.facts["code"] == "SCHEMA_NOT_FOUND"
    assert catalog.tables() == (TABLE,)


def test_a_table_may_name_another_schema(catalog):
    catalog.create_table(parse_table({"tableName": "items", "segmentsConfig": {"schemaName": "orders"}}))

    assert catalog.schema_of("items_OFFLINE").name == "orders"


def test_a_schema_is_created_replaced_and_deleted(catalog):
    other = parse_schema({**SCHEMA, "schemaName": "items"})
    catalog.create_schema(other)
    with pytest.raises(TableExists):
        catalog.create_schema(other)
    wider = parse_schema(
        {**other.raw, "metricFieldSpecs": [{"name": "amount", "dataType": "DOUBLE"}]},
    )

    catalog.replace_schema(wider)
    assert catalog.schema("items") == wider
    assert catalog.schemas() == ("items", "orders")
    catalog.delete_schema("items")

    for call in (catalog.schema, catalog.delete_schema):
        with pytest.raises(TableNotFound) as refusal:
            call("items")
        assert refusal.value.facts["code"] == "SCHEMA_NOT_FOUND"
    with pytest.raises(TableNotFound):
        catalog.replace_schema(wider)


def test_a_schema_in_use_is_not_deleted(catalog):
    with pytest.raises(Refused) as refusal:
        catalog.delete_schema("orders")

    assert refusal.value.facts["code"] == "SCHEMA_IN_USE"
    assert catalog.schema("orders").raw == SCHEMA


def test_a_schema_is_not_deleted_while_a_table_for_it_is_created(metastore):
    catalog = Catalog(metastore)
    catalog.create_schema(parse_schema(SCHEMA))
    slow = Catalog(Loses(metastore, lambda: catalog.create_table(parse_table(CONFIG))))

    with pytest.raises(Refused):
        slow.delete_schema("orders")

    assert catalog.schema_of(TABLE).name == "orders"


def test_a_table_is_not_created_for_a_schema_that_was_just_deleted(metastore):
    catalog = Catalog(metastore)
    catalog.create_schema(parse_schema(SCHEMA))
    slow = Catalog(Loses(metastore, lambda: catalog.delete_schema("orders")))

    with pytest.raises(InvalidRequest, match="schema does not exist"):
        slow.create_table(parse_table(CONFIG))

    assert catalog.tables() == ()


# Deletion


def deleted(catalog):
    names = catalog.begin_delete(TABLE, now_ms=9)
    catalog.finish_delete(TABLE)
    return names


def is_gone(metastore):
    """Only the tombstone may be left."""
    lineage, ideal, view, tombstone, config, metadata = records(metastore)
    return (lineage, ideal, view, config, metadata) == (None,) * 5 and decode_push_state(
        tombstone.data
    ) == PushState(epoch=decode_push_state(tombstone.data).epoch, deleting_since_ms=9)


def test_j66_a_deleted_table_leaves_nothing_behind(catalog, metastore):
    add(catalog, "s1", "s2")
    before = catalog.load(TABLE)
    pending = PendingDeletion(segments=("old",), epoch=1, since_ms=1, retention_ms=1)
    catalog.save(
        before,
        replace(
            before,
            segments=frozenset({"s2"}),
            lineage=Lineage((entry(segments_from=("gone",)),)),
            push=PushState(epoch=1, deletions=(pending,)),
        ),
    )

    names = deleted(catalog)

    assert names == {"s1", "s2", "gone", "old"}
    assert is_gone(metastore)
    assert catalog.all_segments(TABLE) == {}
    assert catalog.tables() == ()
    catalog.create_table(parse_table(CONFIG))
    assert catalog.load(TABLE).lineage == Lineage()


def test_l11_a_table_that_is_created_again_goes_on_from_the_epoch_of_the_former(catalog):
    before = catalog.load(TABLE)
    catalog.save(before, replace(before, push=PushState(epoch=7)))
    deleted(catalog)

    catalog.create_table(parse_table(CONFIG))

    assert catalog.load(TABLE).push.epoch > 7
    assert catalog.load(TABLE).push.deleting_since_ms is None


def test_l9_who_decided_on_a_deleted_table_does_not_change_its_successor(catalog):
    """In ZooKeeper the records of a new table have the versions that those of the old one had."""
    stale = catalog.load(TABLE)
    deleted(catalog)
    catalog.create_table(parse_table(CONFIG))

    with pytest.raises(LineageChanged):
        catalog.save(stale, replace(stale, segments=frozenset({"s1"})), added={"s1": segment("s1")})

    assert catalog.load(TABLE).segments == frozenset()
    assert catalog.all_segments(TABLE) == {}


def test_who_finishes_a_deletion_late_does_not_touch_the_successor(catalog):
    catalog.begin_delete(TABLE, now_ms=9)
    assert catalog.is_being_deleted(TABLE)
    catalog.finish_delete(TABLE)
    catalog.create_table(parse_table(CONFIG))
    add(catalog, "s1")

    assert not catalog.is_being_deleted(TABLE)
    catalog.finish_delete(TABLE)

    assert catalog.load(TABLE).segments == {"s1"}
    assert set(catalog.all_segments(TABLE)) == {"s1"}


def test_a_successor_that_is_created_while_metadata_goes_is_not_touched(metastore):
    """Every batch of removals holds on to the tombstone it was decided by."""
    catalog = with_table(metastore)
    add(catalog, "s1")
    catalog.begin_delete(TABLE, now_ms=9)

    def meanwhile():
        catalog.finish_delete(TABLE)
        catalog.create_table(parse_table(CONFIG))
        add(catalog, "s1")

    Catalog(Loses(metastore, meanwhile)).finish_delete(TABLE)

    assert catalog.load(TABLE).segments == {"s1"}
    assert set(catalog.all_segments(TABLE)) == {"s1"}


def test_a_table_that_is_being_deleted_cannot_be_used_and_deletion_can_be_repeated(catalog):
    add(catalog, "s1")
    before = catalog.load(TABLE)

    first = catalog.begin_delete(TABLE, now_ms=9)

    with pytest.raises(TableNotFound, match="being deleted"):
        catalog.load(TABLE)
    with pytest.raises(LineageChanged):
        catalog.save(before, replace(before, push=PushState(epoch=9)))
    with pytest.raises(TableExists):
        catalog.create_table(parse_table(CONFIG))
    assert catalog.begin_delete(TABLE, now_ms=10) == first == {"s1"}
    catalog.finish_delete(TABLE)
    catalog.finish_delete(TABLE)
    with pytest.raises(TableNotFound):
        catalog.begin_delete(TABLE, now_ms=11)


def test_a_step_that_wins_against_a_deletion_is_deleted_too(catalog, metastore):
    slow = Catalog(Loses(metastore, lambda: add(catalog, "s1")))

    names = deleted(slow)

    assert names == {"s1"}
    assert is_gone(metastore)


def test_what_an_incomplete_deletion_left_is_told_and_can_be_deleted(catalog, metastore):
    add(catalog, "s1")
    metastore.write([Remove(config_path(TABLE), metastore.read(config_path(TABLE)).version)])

    with pytest.raises(TableExists, match="not deleted to the end"):
        catalog.create_table(parse_table(CONFIG))
    assert deleted(catalog) == {"s1"}

    catalog.create_table(parse_table(CONFIG))


def test_a_damaged_table_can_be_deleted(catalog, metastore):
    add(catalog, "s1")
    for path_of in (lineage_path, ideal_state_path, external_view_path, push_state_path, config_path):
        found = metastore.read(path_of(TABLE))
        metastore.write(
            [
                Create(path_of(TABLE), b"garbage")
                if found is None
                else Replace(path_of(TABLE), b"garbage", found.version)
            ]
        )

    assert deleted(catalog) == {"s1"}

    assert is_gone(metastore)
