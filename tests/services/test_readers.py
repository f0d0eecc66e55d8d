"""`verify --as`: what another reader of a merge-on-read table would see otherwise."""

import datetime as dt

import pytest

from harness.merge_on_read import HudiTable
from harness.world import WrongClock, memory_world, rows, table_of
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.compaction import ArrowCompactor
from holdfast.errors import InvalidRequest
from holdfast.model.instant import Action, State
from holdfast.model.names import instant_file
from holdfast.model.reports import FindingKind
from holdfast.services.rollback.rollback import recover
from holdfast.services.verify.verify import verify
from holdfast.writes.compaction import compact

LOGS = WriteSettings(log_ratio_max=1000.0, logs_max=100, clean=CleanSettings(automatic=False))
A, B = ("p", "a-0"), ("p", "b-0")


def misread(world, reader):
    found = [f for f in verify(world.open(), reader).findings if f.kind is FindingKind.MISREAD]
    return {finding.path: finding for finding in found}


def update(world, fare):
    return world.write("upsert", table_of([("a", "paris", fare)]), LOGS)


@pytest.fixture
def world():
    world = memory_world()
    world.create(table_type="MERGE_ON_READ")
    world.write("bulk_insert", rows("a", "b", "c"), LOGS)
    update(world, 2.0)
    return world


READERS = ("hudi-1.2", "hudi-0.15", "hudi-rs")


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_reads_a_table_of_ours_as_it_is(world, reader):
    assert verify(world.open(), reader).is_clean
    compact(world.open(), LOGS, ArrowCompactor())
    update(world, 3.0)
    assert verify(world.open(), reader).is_clean


def test_a_reader_of_which_nothing_is_known_is_named(world):
    with pytest.raises(InvalidRequest, match="nothing is known"):
        verify(world.open(), "duckdb")


def test_a_copy_on_write_table_is_read_alike():
    world = memory_world()
    world.create()
    world.insert("a")

    assert verify(world.open(), "hudi-1.2").is_clean


def test_a_commit_modified_before_its_instant_is_found(world):
    # research: Hudi 1.x then gives the log files to the slice before, and their rows vanish.
    first = world.commit_times()[0]
    path = instant_file(first, Action.DELTACOMMIT, State.COMPLETED)
    content = world.store.read(path)
    now = world.clock.now
    world.clock.now -= 3_600_000
    world.store.put(path, content)
    world.clock.now = now

    assert set(misread(world, "hudi-1.2")) == {path}
    assert "before its instant" in misread(world, "hudi-1.2")[path].detail
    assert not misread(world, "hudi-0.15")
    assert not misread(world, "hudi-rs")


def test_the_modification_times_of_a_copy_are_found(world):
    compact(world.open(), LOGS, ArrowCompactor())
    update(world, 3.0)
    assert not misread(world, "hudi-1.2")
    first = world.commit_times()[0]
    path = instant_file(first, Action.DELTACOMMIT, State.COMPLETED)
    world.clock.now += int(dt.timedelta(days=1).total_seconds() * 1000)
    world.store.put(path, world.store.read(path))

    assert "as in a copy" in misread(world, "hudi-1.2")[path].detail


def test_a_writer_whose_clock_is_ahead_waits_until_storage_has_the_time_of_its_commit(world):
    ahead = 3_000
    table = world.open()
    object.__setattr__(table, "clock", WrongClock(world.clock, ahead))
    from holdfast.config.choices import Operation
    from holdfast.engines.arrow.rows import ArrowRows
    from holdfast.writes import operations

    operations.write(table, Operation.UPSERT, ArrowRows(table_of([("a", "paris", 9.0)])), LOGS)

    assert not misread(world, "hudi-1.2")
    update(world, 10.0)
    newest = world.commit_times()[-2]
    stored = world.store.stat(instant_file(newest, Action.DELTACOMMIT, State.COMPLETED))
    shown = dt.datetime.strptime(newest[:14], "%Y%m%d%H%M%S").replace(tzinfo=dt.UTC).timestamp() * 1000
    assert stored.modified_ms >= shown + int(newest[14:])


def test_rows_behind_a_younger_rollback_are_found():
    # Hudi 0.15 takes the instant of its write before it rolls the failed one back.
    table = HudiTable()
    table.deltacommit(base=[A, B])
    table.deltacommit(logs=[A])
    table.append(A, finish=False, markers=True)
    time = table._now()
    recover(table.world.open())
    assert not misread(table.world, "hudi-0.15")
    table.groups[A][-1].logs += [path for path in table.world.store.paths("p") if "_1-0-1" in path]
    stats = [table._log(A, time)]
    table._complete(time, Action.DELTACOMMIT, stats, "UPSERT")

    found = misread(table.world, "hudi-0.15")

    assert list(found) == [stats[0].path]
    assert not misread(table.world, "hudi-rs")


def test_log_files_of_a_pending_compaction_are_found():
    table = HudiTable()
    table.deltacommit(base=[A, B])
    table.deltacommit(logs=[A])
    table.schedule_compaction([A])
    assert not misread(table.world, "hudi-rs")
    table.deltacommit(logs=[A])

    assert list(misread(table.world, "hudi-rs")) == [table.groups[A][-1].logs[0]]
    assert not misread(table.world, "hudi-0.15")


def test_a_file_group_of_log_files_alone_is_found():
    table = HudiTable()
    table.deltacommit(base=[B])
    table.deltacommit(logs=[A])

    assert list(misread(table.world, "hudi-rs")) == table.groups[A][-1].logs
