"""The controller's use cases over records and files in memory."""

from dataclasses import replace

import pytest

from harness.push_world import ANN, DAY_MS, SCHEMA, TABLE, PushWorld, config, parquet, refused
from holdfast.errors import Conflict, InvalidRequest, Refused, TableNotFound
from holdfast.model.lineage import EntryState
from holdfast.push.audit import check_chain
from holdfast.push.calls import (
    Caller,
    RollbackTarget,
    StartRequest,
    UploadOptions,
)
from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.state.table_state import AnsweredCall, Tombstone


@pytest.fixture
def world():
    return PushWorld().create()


def test_a_push_shows_its_rows_at_its_end_and_not_before(world):
    first = world.start([], ["a0", "a1"])
    world.upload("a0", 1)
    world.upload("a1", 1)
    assert world.rows() == []

    switched = world.end(first)

    assert world.rows() == [1, 1, 1, 1]
    assert switched.epoch == 1
    assert switched.changes.shown == ("a0", "a1")


def test_a_revert_brings_the_rows_before_back_and_a_redo_the_later_ones(world):
    world.push(1)
    second = world.push(2)

    world.revert(second)
    assert world.rows() == [1, 1]
    world.controller.redo(TABLE, second, by=ANN)

    assert world.rows() == [2, 2]


def test_the_end_of_an_unknown_table_is_not_found(world):
    with pytest.raises(TableNotFound):
        world.controller.end_replace("nobody_OFFLINE", "e", by=ANN)


def test_a_dry_run_says_what_would_change_and_changes_nothing(world):
    world.push(1)
    second = world.push(2)
    before = world.catalog.load(TABLE)
    controller = world.controller

    start = controller.start_replace(
        TABLE, StartRequest(segments_from=("v2",), segments_to=("v3",), force=True), dry_run=True, by=ANN
    )
    revert = controller.revert_replace(TABLE, second, dry_run=True, by=ANN)
    rollback = controller.rollback(TABLE, RollbackTarget(steps=1), dry_run=True, by=ANN)
    world.clock.now += 2 * DAY_MS
    retention = controller.upkeep.run_retention(TABLE, dry_run=True, by=ANN)

    assert start.changes.removed == ("v1",)
    assert start.changes.bytes_freed == len(parquet(1))
    assert [entry.state for entry in start.changes.entries_after] == [EntryState.IN_PROGRESS]
    assert revert.changes.shown == rollback.changes.shown == ("v1",)
    assert revert.changes.hidden == ("v2",)
    assert retention.changes.removed == ("v1",)
    assert retention.changes.reasons
    assert world.catalog.load(TABLE) == before


def test_a_dry_run_of_end_says_what_would_be_shown(world):
    first = world.start([], ["a"])
    world.upload("a")

    switched = world.end(first, dry_run=True)

    assert switched.changes.shown == ("a",)
    assert world.state_of(first) is EntryState.IN_PROGRESS


def test_a_start_that_is_repeated_with_its_key_opens_one_entry(world):
    by = Caller(actor="ann", key="k1")

    first = world.start([], ["a"], by=by)
    again = world.start([], ["a"], by=by)

    assert first == again
    assert len(world.controller.views.lineage(TABLE).entries) == 1
    refused("KEY_REUSED", world.start, [], ["b"], by=by)


def test_of_calls_with_a_key_the_newest_thousand_are_remembered(world):
    """Every write of a table carries them, so their number must not grow with the calls of a day."""
    remember(world, calls={f"k{n}": AnsweredCall(request="", answer=(), at_ms=0) for n in range(1000)})

    world.start([], ["a"], by=replace(ANN, key="new"))

    known = world.catalog.load(TABLE).push.calls
    assert (len(known), "new" in known, "k0" in known, "k1" in known) == (1000, True, False, True)


def test_of_entries_that_retention_removed_the_newest_two_thousand_are_remembered(world):
    ended = Tombstone(state=EntryState.REVERTED, at_ms=world.clock.now)
    remember(world, tombstones={f"e{n}": ended for n in range(2000)})
    first = world.push(1)
    world.revert(first)
    world.retention(after_ms=2 * DAY_MS)
    world.retention()
    world.retention()

    known = world.catalog.load(TABLE).push.tombstones

    assert (len(known), first in known, "e0" in known, "e1" in known) == (2000, True, False, True)


def test_calls_that_name_no_table_leave_nothing_behind(world):
    for number in range(100):
        with pytest.raises(TableNotFound):
            world.revert("e", table=f"nobody{number}_OFFLINE")

    assert not world.controller._transactions._locks


def remember(world, **remembered):
    """What earlier calls left in the table's side record."""
    state = world.catalog.load(TABLE)
    world.catalog.save(state, replace(state, push=replace(state.push, **remembered)))


def test_a_rollback_that_is_repeated_with_its_key_goes_back_once():
    world = PushWorld().create(batch={"retainedSnapshots": 4})
    for number in (1, 2, 3):
        world.push(number)
    by = Caller(actor="ann", key="k1")

    world.rollback(steps=1, by=by)
    world.rollback(steps=1, by=by)

    assert world.rows() == [2, 2]


def test_two_controllers_that_start_first_lose_no_entry():
    world = PushWorld().create(consistent=False)
    other = world.another(metastore=world.metastore.connect())

    world.start([], ["a"])
    other.start([], ["b"])

    assert len(world.controller.views.lineage(TABLE).entries) == 2


def test_several_tables_are_switched_in_one_write(world):
    world.controller.tables.create(config("items"), by=ANN)
    entries = {}
    for table in (TABLE, "items_OFFLINE"):
        entries[table] = world.start([], ["a"], table=table)
        world.upload("a", table=table)

    before = world.metastore._tree.writes
    world.controller.end_group(entries, by=ANN)

    assert world.seen(TABLE) == world.seen("items_OFFLINE") == {"a"}
    assert world.metastore._tree.writes - before == 6  # lineage, state and audit record of each
    world.controller.revert_group(entries, by=ANN)
    assert world.seen(TABLE) == world.seen("items_OFFLINE") == set()


def test_a_group_of_which_one_is_refused_changes_nothing(world):
    world.controller.tables.create(config("items"), by=ANN)
    first = world.start([], ["a"])
    world.upload("a")
    second = world.start([], ["a"], table="items_OFFLINE")
    before = world.catalog.load(TABLE)

    refused("TO_NOT_UPLOADED", world.controller.end_group, {TABLE: first, "items_OFFLINE": second}, by=ANN)

    assert world.catalog.load(TABLE) == before


def test_end_waits_for_the_segments_to_come_online_and_notices_a_revert_meanwhile(world):
    """J44: the wait looks at the entry again each time."""
    from holdfast.format.znode import decode_record, encode_record
    from holdfast.push.metastore.port import Replace
    from holdfast.push.state.records import external_view_path

    first = world.start([], ["a"])
    world.upload("a")
    view = world.metastore.read(external_view_path(TABLE))
    offline = replace(decode_record(view.data), maps={"a": {"Server_localhost_8098": "ERROR"}})
    world.metastore.write([Replace(external_view_path(TABLE), encode_record(offline), view.version)])

    refused("TO_NOT_ONLINE", world.end, first)
    waited = []

    def wait(_seconds):
        waited.append(1)
        if len(waited) == 3:
            world.revert(first, force=True)

    world.controller._wait = wait
    refused("ENTRY_CHANGED", world.end, first, online_within_ms=1_000_000)

    assert len(waited) == 3


def test_end_waits_for_brokers_and_says_how_far_they_are(world):
    world.announce("b1", 0)
    first = world.start([], ["a"])
    world.upload("a")

    def wait(_seconds):
        world.announce("b1", 1)

    world.controller._wait = wait
    switched = world.end(first, brokers_within_ms=1_000_000)

    assert switched.brokers == {"b1": 1}


def test_a_push_with_a_lease_is_renewed_by_heartbeats_and_uploads(world):
    started = world.controller.start_replace(TABLE, StartRequest(segments_to=("a",), lease_ms=1000), by=ANN)
    world.clock.now += 600

    expires = world.controller.heartbeat(TABLE, started.entry_id, lease_token=started.lease_token, by=ANN)

    assert expires > started.lease_expires_at_ms
    refused("LEASE_HELD", world.controller.heartbeat, TABLE, started.entry_id, lease_token="other", by=ANN)
    refused("LEASE_HELD", world.upload, "a")
    world.upload("a", lease_token=started.lease_token)
    world.end(started.entry_id, lease_token=started.lease_token)
    assert started.lease_token not in world.metastore.read(f"/PROPERTYSTORE/PUSH_STATE/{TABLE}").data.decode()


def test_a_push_that_does_not_fit_is_refused_before_its_first_upload():
    world = PushWorld().create(quota={"storage": "1K"})

    error = refused(
        "QUOTA_EXCEEDED",
        world.controller.start_replace,
        TABLE,
        StartRequest(segments_to=("a",), expected_bytes=1025),
        by=ANN,
    )

    assert isinstance(error, Refused)
    assert error.facts["allowed_bytes"] == 2048
    assert error.facts["incoming_bytes"] == 1025
    world.controller.start_replace(TABLE, StartRequest(segments_to=("a",), expected_bytes=1024), by=ANN)


def test_an_upload_that_does_not_fit_is_refused_and_leaves_no_file():
    world = PushWorld().create(quota={"storage": f"{len(parquet(1)) - 1}B"})
    first = world.start([], ["a", "b"])
    world.upload("a")

    refused("QUOTA_EXCEEDED", world.upload, "b")

    assert len(world.files()) == 1
    world.revert(first, force=True)


# Pins, audit, consistent push


def test_a_pinned_snapshot_survives_retention_until_the_pin_runs_out(world):
    world.push(1)
    world.push(2)
    epoch = world.controller.views.snapshots(TABLE)[-1].epoch
    world.controller.pin(TABLE, epoch, until_ms=world.clock.now + 10 * DAY_MS, by=ANN)

    world.retention(after_ms=5 * DAY_MS)
    assert [each.segments for each in world.controller.views.snapshots(TABLE)] == [{"v2"}, {"v1"}]
    world.retention(after_ms=6 * DAY_MS)

    assert [each.segments for each in world.controller.views.snapshots(TABLE)] == [{"v2"}]


def test_a_pin_needs_a_snapshot(world):
    refused("SNAPSHOT_NOT_FOUND", world.controller.pin, TABLE, 99, until_ms=1, by=ANN)


def test_every_change_is_audited_in_a_chain(world):
    first = world.push(1)
    world.revert(first)

    records = world.controller.views.audit(TABLE)

    assert [record.operation for record in reversed(records)] == ["create table", "start", "end", "revert"]
    assert records[0].actor == "ann"
    assert records[0].entries == {first: "REVERTED"}
    assert check_chain(world.metastore, TABLE, world.catalog.load(TABLE).push) == 4


def test_a_change_of_a_schema_is_in_the_audit_of_every_table_that_uses_it(world):
    world.controller.tables.create(config("returns"), by=ANN)
    other = {"schemaName": "others", "dimensionFieldSpecs": [{"name": "id", "dataType": "INT"}]}
    world.controller.tables.put_schema(other, override=False, by=ANN)
    world.controller.tables.create(config("others", segments={"schemaName": "others"}), by=ANN)

    world.controller.tables.put_schema(SCHEMA, override=True, by=ANN)

    newest = [
        world.controller.views.audit(f"{name}_OFFLINE")[0].operation
        for name in ("orders", "returns", "others")
    ]
    assert newest == ["change schema", "change schema", "create table"]


def test_consistent_push_is_switched_off_in_place_and_on_again(world):
    world.push(1, "orders_1732752000456_0", "orders_1732752000456_1")

    switched = world.controller.set_consistent_push(TABLE, enabled=False, by=ANN)

    assert switched.changes.shown == ("orders_0", "orders_1")
    assert world.rows() == [1, 1, 1, 1]
    assert not world.catalog.table(TABLE).consistent_push
    world.upload("orders_0", 2)
    world.upload("orders_1", 2)
    assert world.rows() == [2, 2, 2, 2]
    world.controller.set_consistent_push(TABLE, enabled=True, by=ANN)
    world.push(3, "orders_1732752000999_0")
    assert world.rows() == [3, 3]


def test_consistent_push_is_not_switched_off_while_a_push_is_open(world):
    world.start([], ["a"])

    refused("LEASE_HELD", world.controller.set_consistent_push, TABLE, enabled=False, by=ANN)


def test_segments_are_selected_by_time():
    world = PushWorld().create(consistent=False, ingestionConfig={"segmentTimeValueCheck": False})
    for name, start, end in (("a", 10, 19), ("b", 15, 25), ("c", None, None), ("d", 30, 39)):
        payload = replace(world.payload(name, 1), start_ms=start, end_ms=end)
        world.controller._registrar.register(TABLE, [payload], options=UploadOptions(), by=ANN)
    select = world.controller.views.select

    assert select(TABLE) == ("a", "b", "c", "d")
    assert select(TABLE, start_ms=10, end_ms=20) == ("a", "b", "c")
    assert select(TABLE, start_ms=10, end_ms=20, exclude_overlapping=True) == ("a", "c")
    refused("EMPTY_RANGE", select, TABLE, start_ms=20, end_ms=20)


def test_a_write_whose_outcome_is_unknown_and_that_happened_is_not_made_twice():
    from holdfast.errors import OutcomeUnknown

    class Forgetful(MemoryMetastore):
        forgets = False

        def write(self, changes):
            super().write(changes)
            if self.forgets:
                self.forgets = False
                raise OutcomeUnknown("the connection was lost")

    world = PushWorld(metastore=Forgetful()).create()
    world.metastore.forgets = True

    entry = world.start([], ["a"])

    assert [each.id for each in world.controller.views.lineage(TABLE).entries] == [entry]
    assert len([r for r in world.controller.views.audit(TABLE) if r.operation == "start"]) == 1


def test_a_call_that_always_loses_its_race_gives_up(world):
    class Busy(MemoryMetastore):
        pass

    other = world.another(metastore=world.metastore.connect())

    def interfering(self, states, *rest, **options):
        other.controller.tables._note(TABLE, "interfere", by=ANN)
        return attempt(states, *rest, **options)

    transactions = world.controller._transactions
    attempt = transactions._attempt
    transactions._attempt = interfering.__get__(transactions)

    error = refused("CAS_EXHAUSTED", world.start, [], ["a"])

    assert isinstance(error, Conflict)
    assert not isinstance(error, InvalidRequest)
