"""The catalog: a table's state read as of one moment and written in one transaction."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from harness.catalogs import (
    CONFIG,
    SCHEMA,
    TABLE,
    Reads,
    add,
    entry,
    records,
    save_together,
    segment,
    with_table,
)
from holdfast.config.push import parse_table
from holdfast.config.push_schema import parse_schema
from holdfast.errors import (
    InvalidRequest,
    LineageChanged,
    TableDamaged,
    TableNotFound,
)
from holdfast.model.lineage import Lineage
from holdfast.push.metastore.port import Create, Replace
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.records import (
    BrokerEpochs,
    broker_epoch_path,
    config_path,
    external_view_path,
    ideal_state_path,
    lineage_path,
    push_state_path,
    segment_path,
)
from holdfast.push.state.table_state import EntryDetails, PendingDeletion, PushState


def test_a_new_table_is_empty(catalog):
    state = catalog.load(TABLE)

    assert state.segments == frozenset()
    assert state.lineage == Lineage()
    assert state.push == PushState()
    assert state.offline == frozenset()
    assert catalog.tables() == (TABLE,)
    assert catalog.table(TABLE) == state.config
    assert catalog.schema_of(TABLE).raw == SCHEMA


def test_a_step_is_read_back_as_it_was_saved(catalog):
    before = catalog.load(TABLE)
    after = replace(
        before,
        segments=frozenset({"s1", "s2"}),
        lineage=Lineage((entry(),), {"owner": "growth"}),
        push=PushState(
            epoch=7,
            details={"e1": EntryDetails(started_at_ms=5, actor="ann", source={"table": "lake"})},
            deletions=(PendingDeletion(segments=("old",), epoch=6, since_ms=1, retention_ms=2),),
            pins={3: 9},
        ),
    )

    catalog.save(before, after, added={"s1": segment("s1"), "s2": segment("s2")})

    found = catalog.load(TABLE)
    assert replace(found, versions=before.versions) == after
    assert catalog.all_segments(TABLE) == {"s1": segment("s1"), "s2": segment("s2")}


def test_what_was_read_fresh_equals_what_was_remembered(catalog, metastore):
    add(catalog, "s1")
    warm = catalog.load(TABLE)

    assert Catalog(metastore).load(TABLE) == warm == catalog.load(TABLE)


def test_pinots_records_are_at_their_places_in_their_form(catalog, metastore):
    add(catalog, "s1")

    ideal = json.loads(metastore.read("/IDEALSTATES/orders_OFFLINE").data)
    view = json.loads(metastore.read("/EXTERNALVIEW/orders_OFFLINE").data)
    config = json.loads(metastore.read("/PROPERTYSTORE/CONFIGS/TABLE/orders_OFFLINE").data)

    assert ideal["mapFields"] == view["mapFields"] == {"s1": {"Server_here_1": "ONLINE"}}
    assert ideal["simpleFields"]["STATE_MODEL_DEF_REF"] == "SegmentOnlineOfflineStateModel"
    assert (ideal["simpleFields"]["NUM_PARTITIONS"], ideal["simpleFields"]["REPLICAS"]) == ("1", "1")
    assert config["simpleFields"]["tableName"] == TABLE
    assert json.loads(metastore.read("/PROPERTYSTORE/SEGMENTS/orders_OFFLINE/s1").data)["id"] == "s1"
    assert metastore.read("/PROPERTYSTORE/SEGMENT_LINEAGE/orders_OFFLINE") is None


def test_a_switch_does_not_write_the_lists_of_segments(catalog, metastore):
    """What it costs must not depend on how many segments there are, but for the lineage itself."""
    add(catalog, "s1")
    before = catalog.load(TABLE)
    placed = metastore.read_all([ideal_state_path(TABLE), external_view_path(TABLE)])

    catalog.save(before, replace(before, lineage=Lineage((entry(),)), push=PushState(epoch=1)))

    assert metastore.read_all([ideal_state_path(TABLE), external_view_path(TABLE)]) == placed


def test_l9_of_two_steps_from_one_state_one_wins_and_the_other_changes_nothing(catalog, metastore):
    before = catalog.load(TABLE)
    catalog.save(before, replace(before, lineage=Lineage((entry(),))))
    afterwards = records(metastore)

    for loser in (
        replace(before, lineage=Lineage((entry(id="e2"),))),
        replace(before, segments=frozenset({"s1"})),
        replace(before, push=PushState(epoch=9)),
        before,
    ):
        with pytest.raises(LineageChanged):
            catalog.save(before, loser, added={"s1": segment("s1")} if loser.segments else None)

    assert records(metastore) == afterwards


@pytest.mark.parametrize("path_of", [lineage_path, ideal_state_path, external_view_path, config_path])
def test_a_foreign_change_of_any_record_stops_a_step(catalog, metastore, path_of):
    """Pinot's own tools do not know the side record."""
    before = catalog.load(TABLE)
    found = metastore.read(path_of(TABLE))
    content = b'{"id": "orders_OFFLINE"}'
    metastore.write(
        [
            Create(path_of(TABLE), content)
            if found is None
            else Replace(path_of(TABLE), content, found.version)
        ]
    )

    with pytest.raises(LineageChanged):
        catalog.save(before, replace(before, push=PushState(epoch=1)))


def test_several_tables_change_together_or_not_at_all(catalog):
    catalog.create_schema(parse_schema({**SCHEMA, "schemaName": "items"}))
    catalog.create_table(parse_table({"tableName": "items"}))
    states = [catalog.load(TABLE), catalog.load("items_OFFLINE")]
    steps = [(state, replace(state, push=PushState(epoch=5))) for state in states]
    add(catalog, "s1")

    with pytest.raises(LineageChanged):
        save_together(catalog, steps)
    assert catalog.load("items_OFFLINE").push.epoch == 0

    states = [catalog.load(TABLE), catalog.load("items_OFFLINE")]
    save_together(catalog, [(state, replace(state, push=PushState(epoch=5))) for state in states])
    assert [catalog.load(table).push.epoch for table in catalog.tables()] == [5, 5]


def test_extra_changes_are_part_of_the_step(catalog, metastore):
    before = catalog.load(TABLE)

    catalog.save(before, before, extra=[Create("/PROPERTYSTORE/LINEAGE_AUDIT/t/1", b"who")])
    with pytest.raises(LineageChanged):
        catalog.save(
            catalog.load(TABLE), before, extra=[Create("/PROPERTYSTORE/LINEAGE_AUDIT/t/1", b"twice")]
        )

    assert metastore.read("/PROPERTYSTORE/LINEAGE_AUDIT/t/1").data == b"who"


def test_a_state_is_never_read_from_two_moments(metastore):
    """The epoch counts the segments, so a mix of two states would show."""
    catalog = with_table(metastore)
    reader = Catalog(metastore)
    stop = threading.Event()

    def write():
        for number in range(60):
            before = catalog.load(TABLE)
            name = f"s{number}"
            after = replace(
                before,
                segments=before.segments | {name},
                push=PushState(epoch=before.push.epoch + 1),
                lineage=Lineage((*before.lineage.entries, entry(id=name, segments_to=(name,)))),
            )
            catalog.save(before, after, added={name: segment(name)})

    def read():
        seen = 0
        while not stop.is_set():
            state = reader.load(TABLE)
            assert len(state.segments) == len(state.lineage.entries) == state.push.epoch >= seen
            seen = state.push.epoch

    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(read)
        pool.submit(write).result()
        stop.set()
        reading.result()
    assert reader.load(TABLE).push.epoch == 60


@pytest.mark.parametrize("at", range(8))
def test_l1_a_change_between_two_reads_makes_a_table_be_read_again(metastore, at):
    catalog = with_table(metastore)
    before = catalog.load(TABLE)
    after = replace(
        before,
        segments=frozenset({"s1"}),
        lineage=Lineage((entry(),)),
        push=PushState(epoch=1),
        config=parse_table({**CONFIG, "quota": {"storage": "1G"}}),
    )

    def meanwhile():
        catalog.save(before, after, added={"s1": segment("s1")})

    found = Catalog(Reads(metastore, at, meanwhile)).load(TABLE)

    assert replace(found, versions={}) in (replace(before, versions={}), replace(after, versions={}))
    assert (found.versions == before.versions) == (found.push.epoch == 0)


def test_segments_leave_the_table_and_their_metadata_stays_until_it_is_forgotten(catalog):
    add(catalog, "s1", "s2")
    before = catalog.load(TABLE)

    catalog.save(before, replace(before, segments=frozenset({"s2"})))
    assert catalog.load(TABLE).segments == {"s2"}
    assert set(catalog.all_segments(TABLE)) == {"s1", "s2"}
    catalog.forget(TABLE, ["s1", "never"])

    assert set(catalog.all_segments(TABLE)) == {"s2"}
    assert catalog.segment(TABLE, "s1") is None


def test_thousands_of_segments_are_forgotten_in_batches(catalog):
    names = [f"s{number:05}" for number in range(1234)]
    add(catalog, *names)

    catalog.forget(TABLE, names)

    assert catalog.all_segments(TABLE) == {}


def test_metadata_is_replaced_where_a_crash_or_an_upload_left_some(catalog):
    add(catalog, "s1")
    before = catalog.load(TABLE)
    assert catalog.segment(TABLE, "s1").crc == 1

    catalog.save(before, before, added={"s1": segment("s1", crc=99)})

    assert catalog.segment(TABLE, "s1").crc == 99


def test_metadata_can_go_in_the_same_step(catalog):
    add(catalog, "s1", "s2")
    before = catalog.load(TABLE)

    catalog.save(before, replace(before, segments=frozenset({"s2"})), forgotten=["s1", "absent"])

    assert set(catalog.all_segments(TABLE)) == {"s2"}


def test_a_segment_that_no_server_holds_is_offline_until_it_comes_again(catalog, metastore):
    add(catalog, "s1", "s2")
    path = external_view_path(TABLE)
    view = json.loads(metastore.read(path).data)
    view["mapFields"]["s1"] = {"Server_here_1": "ERROR"}
    metastore.write([Replace(path, json.dumps(view).encode(), metastore.read(path).version)])

    before = catalog.load(TABLE)
    assert before.offline == {"s1"}
    catalog.save(before, before, added={"s1": segment("s1")})

    assert catalog.load(TABLE).offline == frozenset()


def test_foreign_fields_and_places_survive_a_step(catalog, metastore):
    path = ideal_state_path(TABLE)
    ideal = json.loads(metastore.read(path).data)
    ideal["simpleFields"]["BUCKET_SIZE"] = "0"
    ideal["mapFields"]["s0"] = {"Server_a_1": "ONLINE", "Server_b_1": "ONLINE"}
    ideal["listFields"]["x"] = ["y"]
    metastore.write([Replace(path, json.dumps(ideal).encode(), metastore.read(path).version)])

    add(catalog, "s1")

    found = json.loads(metastore.read(path).data)
    assert found["simpleFields"] == {**ideal["simpleFields"], "NUM_PARTITIONS": "2"}
    assert found["mapFields"]["s0"] == {"Server_a_1": "ONLINE", "Server_b_1": "ONLINE"}
    assert found["listFields"] == {"x": ["y"]}


def test_a_changed_configuration_is_part_of_the_step(catalog):
    before = catalog.load(TABLE)
    batch = {"segmentIngestionType": "REFRESH", "consistentDataPush": True}
    config = parse_table({**CONFIG, "ingestionConfig": {"batchIngestionConfig": batch}})

    catalog.save(before, replace(before, config=config))

    assert catalog.load(TABLE).config == config
    assert catalog.table(TABLE).consistent_push


def test_text_that_is_not_unicode_is_refused_and_nothing_changes(catalog, metastore):
    before = catalog.load(TABLE)
    as_found = records(metastore)
    details = {"e": EntryDetails(started_at_ms=1, note="\ud800")}

    for after, added in (
        (replace(before, push=PushState(details=details)), {}),
        (replace(before, lineage=Lineage(custom={"a": "\ud800"})), {}),
        (replace(before, segments=frozenset({"s1"})), {"s1": segment("s1", custom={"a": "\ud800"})}),
    ):
        with pytest.raises(InvalidRequest, match="not text"):
            catalog.save(before, after, added=added)

    assert records(metastore) == as_found


def test_an_unknown_table_is_told(catalog):
    for call in (catalog.load, catalog.table, catalog.schema_of):
        with pytest.raises(TableNotFound) as refusal:
            call("nothing_OFFLINE")
        assert refusal.value.facts["code"] == "TABLE_NOT_FOUND"


@pytest.mark.parametrize(
    ("path_of", "content"),
    [
        (lineage_path, b'{"id": "t", "listFields": {"e": ["a", "b", "UNKNOWN", "5"]}}'),
        (lineage_path, b'{"id": "t", "listFields": {"e": ["a", "b", "COMPLETED"]}}'),
        (ideal_state_path, b"garbage"),
        (external_view_path, b"[]"),
        (push_state_path, b'{"epoch": "seven"}'),
        (config_path, b'{"id": "t", "simpleFields": {"tableName": "../x"}}'),
        (config_path, b'{"id": "t", "simpleFields": {"tableName": "t", "quota": "{"}}'),
    ],
)
def test_j4_j5_a_record_that_cannot_be_read_fails_its_table_only(catalog, metastore, path_of, content):
    catalog.create_schema(parse_schema({**SCHEMA, "schemaName": "items"}))
    catalog.create_table(parse_table({"tableName": "items"}))
    path = path_of(TABLE)
    found = metastore.read(path)
    metastore.write([Create(path, content) if found is None else Replace(path, content, found.version)])

    with pytest.raises(TableDamaged) as refusal:
        catalog.load(TABLE)

    assert refusal.value.facts["path"] == path
    assert metastore.read(path).data == content
    assert catalog.load("items_OFFLINE").push == PushState()


def test_a_damaged_segment_is_named(catalog, metastore):
    metastore.write(
        [Create(segment_path(TABLE, "s1"), b'{"id": "s1", "simpleFields": {"segment.crc": "x"}}')]
    )

    with pytest.raises(TableDamaged) as refusal:
        catalog.segments(TABLE, ["s1"])

    assert refusal.value.facts["path"] == segment_path(TABLE, "s1")


# Brokers


def test_brokers_say_what_they_read(catalog, metastore):
    catalog.announce_epoch(TABLE, "b1", BrokerEpochs(3, 4))
    metastore.announce(broker_epoch_path(TABLE, "b2"), b"nonsense")

    assert catalog.broker_epochs(TABLE) == {"b1": BrokerEpochs(3, 4), "b2": BrokerEpochs(-1, -1)}
    catalog.withdraw_epoch(TABLE, "b1")
    assert set(catalog.broker_epochs(TABLE)) == {"b2"}


def test_a_watch_of_a_table_tells_of_a_step_and_ends(catalog):
    heard = threading.Event()
    end = catalog.watch(TABLE, heard.set)

    add(catalog, "s1")

    assert heard.wait(10)
    end()


def test_a_watch_of_all_tables_tells_of_a_new_one(catalog):
    heard = threading.Event()
    catalog.watch_tables(heard.set)

    catalog.create_table(parse_table({"tableName": "more", "segmentsConfig": {"schemaName": "orders"}}))

    assert heard.wait(10)
