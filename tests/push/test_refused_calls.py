"""Refused calls: they are remembered, and whoever sends them cannot make the record grow."""

import msgspec
import pytest

from harness.push_faults import MetastoreWrapper
from harness.push_world import DAY_MS, PushWorld
from holdfast.errors import StorageUnavailable
from holdfast.push.metastore.port import Create
from holdfast.push.refused_calls import REFUSED_CALLS, RefusedCalls


class FailingOnce(MetastoreWrapper):
    """The next read fails."""

    fails = False

    def _look(self, act):
        if self.fails:
            self.fails = False
            raise StorageUnavailable("the store does not answer")
        return act()


@pytest.fixture
def world():
    return PushWorld()


def opened(world, record="c1"):
    return RefusedCalls.open(world.metastore, world.clock, record=record)


def note(calls, *, actor="", address="10.0.0.1", table="orders", code="ACCESS_DENIED"):
    calls.note(actor=actor, address=address, operation="DeleteTable", table=table, code=code, request_id="r")


def test_equal_calls_share_a_line_with_a_count(world):
    calls = opened(world)
    note(calls, actor="ann")
    world.clock.now += 1000
    note(calls, actor="ann")
    note(calls, actor="ann", code="LEASE_HELD")

    newest, older = calls.newest(10)

    assert (newest.code, newest.count) == ("LEASE_HELD", 1)
    assert (older.code, older.count) == ("ACCESS_DENIED", 2)
    assert older.last_at_ms - older.first_at_ms >= 1000


def test_what_was_written_is_there_after_a_restart_and_for_other_controllers(world):
    calls = opened(world)
    note(calls, actor="ann")
    calls.write()

    again, other = opened(world), opened(world, "c2")
    note(again, actor="ann")

    assert [one.count for one in again.newest(10)] == [2]
    assert [one.count for one in other.newest(10)] == [1]


def test_nothing_is_written_when_nothing_was_refused(world):
    opened(world).write()

    assert world.metastore.children(REFUSED_CALLS) == ()


def test_what_could_not_be_written_is_written_the_next_time(world):
    store = FailingOnce(world.metastore)
    calls = RefusedCalls.open(store, world.clock, record="c1")
    note(calls, actor="ann")

    store.fails = True
    with pytest.raises(StorageUnavailable):
        calls.write()
    calls.write()

    assert [one.actor for one in opened(world).newest(10)] == ["ann"]


def test_the_record_of_a_former_controller_goes_with_the_audit_of_its_time(world):
    former, present = opened(world, "former"), opened(world, "present")
    for calls in (former, present):
        note(calls, actor="ann")
        calls.write()

    world.clock.now += 300 * DAY_MS
    note(present, actor="bob")
    present.write()
    world.controller.upkeep.run_retention_everywhere()
    assert set(world.metastore.children(REFUSED_CALLS)) == {"former", "present"}
    world.clock.now += 100 * DAY_MS
    world.controller.upkeep.run_retention_everywhere()

    assert world.metastore.children(REFUSED_CALLS) == ("present",)
    note(former, actor="carl")
    former.write()
    assert "carl" in {one.actor for one in present.newest(10)}


def test_a_flood_neither_grows_the_record_nor_hides_what_others_did(world):
    calls = opened(world)
    note(calls, actor="ann", table="before-the-flood")
    for number in range(2000):
        note(calls, address=f"10.1.{number // 250}.{number % 250}", table="x" * 10_000 + str(number))
        note(calls, actor="bob", table=f"table-{number}")

    calls.write()

    (record,) = world.metastore.read_children(REFUSED_CALLS).values()
    assert len(record.data) < 400_000
    assert len(msgspec.json.decode(record.data)) == 1 + 10 + 50
    assert "before-the-flood" in {one.table for one in calls.newest(1000)}


def test_all_addresses_of_an_ipv6_network_are_one_caller(world):
    calls = opened(world)
    for other in ("2001:db8:0:1::1", "::ffff:10.0.0.1", "::ffff:10.0.0.2", "testclient"):
        for table in map(str, range(10)):
            note(calls, address=other, table=table)
    for number in range(200):
        note(calls, address=f"2001:db8::{number:x}:{number:x}")

    found = [one.address for one in calls.newest(1000)]

    assert len(found) == 5 * 10
    assert sum(one.startswith("2001:db8::") for one in found) == 10


def test_a_record_that_cannot_be_read_keeps_no_service_from_starting(world):
    world.metastore.write([Create(f"{REFUSED_CALLS}/c1", b"not JSON")])

    calls = opened(world)
    note(calls, actor="ann")
    calls.write()

    assert [one.actor for one in opened(world).newest(10)] == ["ann"]


def test_the_record_of_another_controller_that_cannot_be_read_hides_no_other(world, caplog):
    world.metastore.write([Create(f"{REFUSED_CALLS}/broken", b"not JSON")])
    other, calls = opened(world, "c2"), opened(world)
    note(other, actor="bob")
    other.write()
    note(calls, actor="ann")

    assert {one.actor for one in calls.newest(10)} == {"ann", "bob"}
    assert "refused_calls.unreadable" in caplog.messages
