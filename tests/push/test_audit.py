"""The audit: records that can only be added to, and that do not grow without bound."""

import pytest

from harness.push_world import ANN, DAY_MS, TABLE, PushWorld
from holdfast.errors import TableDamaged
from holdfast.push.audit import audit_path, check_chain, read_audit, trim_audit
from holdfast.push.metastore.port import Remove


@pytest.fixture
def world():
    world = PushWorld().create()
    for number in (1, 2, 3):
        world.push(number)
        world.clock.now += DAY_MS // 2
    return world


def records(world, **options):
    return read_audit(world.metastore, TABLE, **options)


def test_the_newest_records_come_first(world):
    assert [record.number for record in records(world, limit=3)] == [7, 6, 5]
    assert records(world)[0].operation == "end"
    assert records(world)[0].facts["shown"] == "1: v3"


def test_records_are_read_back_to_a_moment(world):
    since = records(world)[1].at_ms

    assert len(records(world, since_ms=since)) == 2


def test_old_records_go_by_number_and_the_chain_holds(world):
    assert trim_audit(world.metastore, TABLE, keep=2, oldest_ms=0) == 5

    assert [record.number for record in records(world)] == [7, 6]
    assert check_chain(world.metastore, TABLE, world.catalog.load(TABLE).push) == 2


def test_old_records_go_by_age_and_the_newest_stays(world):
    trim_audit(world.metastore, TABLE, keep=100, oldest_ms=world.clock.now + DAY_MS)

    assert [record.number for record in records(world)] == [7]


def test_a_record_that_was_taken_out_between_others_is_noticed(world):
    path = f"{audit_path(TABLE)}/000000000004"
    world.metastore.write([Remove(path, world.metastore.read(path).version)])

    with pytest.raises(TableDamaged):
        check_chain(world.metastore, TABLE, world.catalog.load(TABLE).push)


def test_the_newest_record_cannot_be_taken_away_unnoticed(world):
    path = f"{audit_path(TABLE)}/000000000007"
    world.metastore.write([Remove(path, world.metastore.read(path).version)])

    with pytest.raises(TableDamaged):
        check_chain(world.metastore, TABLE, world.catalog.load(TABLE).push)


def test_a_refused_call_leaves_no_record(world):
    before = len(records(world))

    with pytest.raises(Exception, match="no such lineage entry"):
        world.controller.end_replace(TABLE, "nobody", by=ANN)

    assert len(records(world)) == before


def test_the_oldest_records_cannot_be_taken_away_unnoticed(world):
    trim_audit(world.metastore, TABLE, keep=5, oldest_ms=0)
    assert check_chain(world.metastore, TABLE, world.catalog.load(TABLE).push) == 5

    path = f"{audit_path(TABLE)}/000000000003"
    world.metastore.write([Remove(path, world.metastore.read(path).version)])

    with pytest.raises(TableDamaged, match="oldest"):
        check_chain(world.metastore, TABLE, world.catalog.load(TABLE).push)
