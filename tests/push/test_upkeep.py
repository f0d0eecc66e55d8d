"""What is deleted and when its files go, retention, and what the doctor sees and mends."""

import socket

import msgspec
import pytest

from harness.push_world import ANN, DAY_MS, TABLE, PushWorld, config, refused
from holdfast.errors import TableNotFound
from holdfast.model.lineage import EntryState
from holdfast.push.audit import check_chain
from holdfast.push.metastore.port import Create
from holdfast.push.uploads.register import scan_path
from holdfast.storage.local import STAGING_FOLDER, LocalStore


@pytest.fixture
def world():
    return PushWorld().create()


def test_deleted_segments_go_at_once_and_their_files_when_brokers_have_moved_on(world):
    world.push(1)
    world.announce("b1", world.catalog.load(TABLE).push.epoch)

    world.controller.delete_segments(TABLE, ["v1"], by=ANN)
    assert world.rows() == []
    report = world.retention()
    assert report.waiting == ("v1",)
    assert len(world.files()) == 1
    world.announce("b1", world.catalog.load(TABLE).push.epoch)
    report = world.retention()

    assert report.deleted == ("v1",)
    assert world.files() == set()
    assert world.catalog.segment(TABLE, "v1") is None


def test_a_broker_that_is_gone_holds_nothing_up(world):
    world.push(1)
    broker = world.another(metastore=world.metastore.connect())
    broker.announce("b1", 0)
    world.controller.delete_segments(TABLE, ["v1"], by=ANN)
    world.retention()
    assert world.files()

    broker.metastore.close()
    world.retention()

    assert world.files() == set()


def test_a_deleted_file_stays_in_the_deleted_area_for_its_time(world):
    world.push(1)
    world.controller.delete_segments(TABLE, ["v1"], by=ANN)
    world.retention()
    assert len(list(world.deep_store.files_in_deleted_area(TABLE))) == 1

    report = world.retention(after_ms=7 * DAY_MS + 60_000)

    assert report.expired == 1
    assert list(world.deep_store.files_in_deleted_area(TABLE)) == []


def test_what_a_deleted_table_left_in_the_deleted_area_goes_after_its_time(world):
    world.push(1)
    world.controller.tables.delete(TABLE, by=ANN)
    assert len(list(world.deep_store.files_in_deleted_area(TABLE))) == 1

    world.controller.upkeep.run_retention_everywhere(by=ANN)
    assert len(list(world.deep_store.files_in_deleted_area(TABLE))) == 1
    world.clock.now += 7 * DAY_MS + 60_000
    world.controller.upkeep.run_retention_everywhere(by=ANN)

    assert list(world.deep_store.files_in_deleted_area(TABLE)) == []


def test_a_segment_that_comes_back_while_its_file_waits_keeps_the_new_file(world):
    world.controller.tables.update(config(consistent=False), by=ANN)
    world.upload("a", 1)
    world.announce("b1", world.catalog.load(TABLE).push.epoch)
    world.controller.delete_segments(TABLE, ["a"], by=ANN)

    world.upload("a", 1)
    world.announce("b1", world.catalog.load(TABLE).push.epoch)
    world.retention()
    world.retention()

    assert world.rows() == [1, 1]
    assert len(world.files()) == 1


def test_a_push_that_died_is_reverted_and_its_storage_comes_back(world):
    world.push(1)
    dead = world.start(["v1"], ["v2"])
    world.upload("v2", 2)

    world.retention(after_ms=DAY_MS // 2)
    assert world.state_of(dead) is EntryState.IN_PROGRESS
    world.retention(after_ms=DAY_MS)
    assert world.state_of(dead) is EntryState.REVERTED
    world.retention()

    assert world.state_of(dead) is None
    assert world.rows() == [1, 1]
    assert len(world.files()) == 1
    refused("ENTRY_REVERTED", world.end, dead)


def test_a_name_in_the_record_of_scans_that_is_no_file_breaks_no_retention(world):
    """Earlier versions let `discardFiles` write one there."""
    world.push(1)
    named = msgspec.json.encode({"at_ms": 1, "doomed": ["../x", "orders/../../x", "/x"]})
    world.metastore.write([Create(scan_path(TABLE), named)])
    world.deep_store.put(TABLE, "lost", b"bytes", token="t1")
    world.clock.now = 4_000_000_000_000

    assert len(world.retention().orphans) == 1
    assert b".." not in world.metastore.read(scan_path(TABLE)).data


def test_an_old_file_that_no_record_names_goes(world):
    world.deep_store.put(TABLE, "lost", b"bytes", token="t1")
    world.store._clock = world.clock
    world.push(1)

    assert world.retention().orphans == ()
    world.clock.now = 4_000_000_000_000
    orphans = world.retention().orphans

    assert len(orphans) == 1
    assert orphans[0].startswith("orders/lost__")
    assert world.rows() == [1, 1]


def test_what_uploads_that_died_left_half_written_goes(tmp_path):
    world = PushWorld(store=LocalStore(str(tmp_path))).create()
    world.push(1)
    draft = tmp_path / STAGING_FOLDER / f"{socket.gethostname()}~another-boot~1~a"
    draft.parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(b"half")

    world.controller.upkeep.run_retention_everywhere()

    assert not draft.exists()
    assert world.rows() == [1, 1]


def test_only_the_leader_runs_retention_everywhere(world):
    world.push(1)
    other = world.another(metastore=world.metastore.connect())

    assert len(world.controller.upkeep.run_retention_everywhere()) == 1
    assert other.controller.upkeep.run_retention_everywhere() == ()


def test_a_table_that_cannot_be_read_does_not_stop_retention_of_the_others(world):
    from holdfast.push.metastore.port import Replace
    from holdfast.push.state.records import lineage_path

    world.controller.tables.create(config("items"), by=ANN)
    world.push(1, table="items_OFFLINE")
    path = lineage_path("items_OFFLINE")
    world.metastore.write([Replace(path, b"{", world.metastore.read(path).version)])

    reports = world.controller.upkeep.run_retention_everywhere()

    assert [report.table for report in reports] == [TABLE]


def test_a_deleted_table_is_gone_with_its_lineage_and_can_be_created_again(world):
    entry = world.push(1)

    world.controller.tables.delete(TABLE, by=ANN)

    assert world.controller.views.tables() == ()
    assert world.files() == set()
    world.create()
    refused("ENTRY_NOT_FOUND", world.end, entry)
    assert check_chain(world.metastore, TABLE, world.catalog.load(TABLE).push) > 3


def test_the_files_of_a_deleted_table_wait_for_brokers(world):
    world.push(1)
    world.announce("b1", 1)

    refused("TABLE_IN_USE", world.controller.tables.delete, TABLE, by=ANN)
    assert world.files()
    with pytest.raises(TableNotFound):
        world.catalog.load(TABLE)
    world.catalog.withdraw_epoch(TABLE, "b1")
    world.controller.upkeep.run_retention_everywhere()

    assert world.files() == set()
    assert world.controller.views.tables() == ()


def test_a_changed_audit_record_is_noticed(world):
    from holdfast.push.metastore.port import Replace

    world.push(1)
    path = f"/PROPERTYSTORE/LINEAGE_AUDIT/{TABLE}/000000000002"
    found = world.metastore.read(path)
    world.metastore.write([Replace(path, found.data.replace(b'"ann"', b'"eve"'), found.version)])

    codes = [finding.code for finding in world.controller.upkeep.doctor(TABLE, by=ANN)]

    assert codes == ["AUDIT_BROKEN"]


def test_a_healthy_table_has_no_findings(world):
    world.push(1)
    world.push(2)

    assert world.controller.upkeep.doctor(TABLE, by=ANN) == ()


def test_the_doctor_has_no_false_alarms_from_the_first_push_to_many_reverts(world):
    """After each step, and before retention has followed."""

    def is_healthy() -> bool:
        return world.controller.upkeep.doctor(TABLE, by=ANN) == ()

    opened = world.start([], ["v0"])
    assert is_healthy(), "a first push that has not uploaded anything"
    world.upload("v0", 9)
    assert is_healthy(), "a first push whose segments are not seen yet"
    world.end(opened)
    last = ""
    for number in range(1, 5):
        last = world.push(number)
        assert is_healthy(), number
    world.revert(last)
    assert is_healthy()
    for _ in range(3):
        world.retention()
        assert is_healthy()


def test_the_doctor_still_sees_segments_that_a_push_published_and_somebody_took_out(world):
    world.push(1)
    world.push(2, "a", "b")
    world.controller.delete_segments(TABLE, ["a"], by=ANN)

    found = {one.code: one.names for one in world.controller.upkeep.doctor(TABLE, by=ANN)}

    assert found == {"TO_MISSING": ("a",)}


def test_the_doctor_sees_a_missing_file_and_one_too_many(world):
    world.push(1)
    (path,) = world.files()
    world.store.delete(path)
    world.deep_store.put(TABLE, "lost", b"bytes", token="t1")

    found = {finding.code: finding.names for finding in world.controller.upkeep.doctor(TABLE, by=ANN)}

    assert found == {"NO_FILE": ("v1",), "UNNAMED_FILES": ("orders/lost__t1.parquet",)}


def test_the_doctor_sees_a_file_that_is_cut_off(world):
    world.push(1)
    (path,) = world.files()
    world.store.put(path, world.store.read(path)[:-1])

    found = {finding.code: finding.names for finding in world.controller.upkeep.doctor(TABLE, by=ANN)}

    assert found == {"WRONG_SIZE": ("v1",)}


def test_the_doctor_mends_what_a_reverted_entry_hides():
    """Pinot's own hazard: the name of a reverted push was used again."""
    from holdfast.config.push_rules import PINOT

    world = PushWorld(rules=PINOT).create(consistent=False)
    first = world.start([], ["a"])
    world.revert(first, force=True)
    second = world.start([], ["a"])
    world.upload("a")
    world.end(second)
    assert world.seen() == set()

    found = world.controller.upkeep.doctor(TABLE, fix=True, by=ANN)

    assert {finding.code for finding in found} >= {"REVERTED_HIDES", "NOTHING_VISIBLE"}
    assert world.seen() == {"a"}
