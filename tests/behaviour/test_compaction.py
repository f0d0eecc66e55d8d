"""Compactions: planned, carried out, tried again, taken away; beside writes, and after deaths."""

from dataclasses import replace

import pytest

from harness.faults import Crash, CrashingStore, RecordingStore
from harness.world import SimulatedHost, memory_world, row_list, rows, table_of
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.compaction import ArrowCompactor
from holdfast.errors import (
    Fenced,
    Refused,
    TableDamaged,
    UnknownInstant,
    UnsupportedTable,
    WriteConflict,
    WriterActive,
)
from holdfast.format.commits import decode_commit
from holdfast.format.compaction_plans import decode_compaction_plan, encode_compaction_plan
from holdfast.host import Liveness
from holdfast.model.instant import Action, State
from holdfast.model.names import instant_file, is_data_file
from holdfast.read.arrow_rows import read_rows, select_schema
from holdfast.read.compactions import compactions
from holdfast.read.snapshot import snapshot
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.verify.verify import verify
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.compaction import compact, schedule_compaction, unschedule_compaction

LOGS = WriteSettings(log_ratio_max=1000.0, logs_max=100)
"""Whatever a write updates, it appends."""


def visible(world, as_of=None):
    table = world.open()
    found = snapshot(table, as_of=as_of)
    return frozenset(row_list(read_rows(table.store, found, found.schema)))


def with_meta(world):
    table = world.open()
    found = snapshot(table)
    return read_rows(
        table.store, found, select_schema(found.schema, columns=None, meta_columns=True)
    ).to_pylist()


def write(world, operation, incoming):
    return world.write(operation, incoming, LOGS)


def files(world):
    return {path for path in world.store.paths("") if is_data_file(path.rpartition("/")[2])}


def logs(world):
    return {path for path in files(world) if ".log." in path}


def states(world):
    return [one.state for one in compactions(world.open())]


def pack(world, instant=None, settings=LOGS):
    return compact(world.open(), settings, ArrowCompactor(), instant)


@pytest.fixture
def world():
    """Two file groups with two log files each: one of updates, one of an update and a delete."""
    world = memory_world()
    world.create(table_type="MERGE_ON_READ")
    write(world, "bulk_insert", rows("a", "b", "c", "d"))
    write(world, "upsert", table_of([("a", "paris", 5.0), ("b", "rome", 5.0)]))
    write(world, "upsert", table_of([("c", "paris", 6.0), ("d", "rome", 6.0)]))
    write(world, "delete", rows("a", city="paris"))
    assert len(logs(world)) == 5
    return world


NOW = frozenset({("c", "paris", 6.0), ("b", "rome", 5.0), ("d", "rome", 6.0)})


def test_a_compaction_changes_no_row(world):
    before = visible(world)
    assert before == NOW
    times = {row["id"]: row["_hoodie_commit_time"] for row in with_meta(world)}

    commit = pack(world)

    assert visible(world) == before
    assert commit.files_written == 2
    now = with_meta(world)
    assert {row["id"]: row["_hoodie_commit_time"] for row in now} == times
    assert {row["_hoodie_file_name"] for row in now} == {
        path.rpartition("/")[2] for path in world.files_of(commit.instant)
    }
    assert visible(world, as_of=world.commit_times()[1]) == {
        ("a", "paris", 5.0), ("b", "rome", 5.0), ("c", "paris", 1.0), ("d", "rome", 1.0),
    }  # fmt: skip


def test_a_compaction_is_a_commit_as_hudi_writes_it(world):
    commit = pack(world)

    content = world.store.read(instant_file(commit.instant, Action.COMPACTION, State.COMPLETED))
    metadata = decode_commit(content)
    assert metadata.compacted
    assert metadata.operation_type == "COMPACT"
    (paris,) = metadata.partition_to_write_stats["city=paris"]
    assert paris.prev_commit == world.commit_times()[0]
    assert (paris.total_log_files_compacted, paris.total_log_records, paris.total_log_blocks) == (3, 2, 3)
    assert (paris.num_writes, paris.num_deletes, paris.num_update_writes, paris.num_inserts) == (1, 1, 1, 0)
    assert paris.total_log_size_compacted == sum(
        world.store.stat(path).size for path in logs(world) if path.startswith("city=paris")
    )
    (instant,) = [i for i in load_timeline(world.store).completed_commits if i.action is Action.COMMIT]
    assert instant.time == commit.instant


def test_nothing_is_left_to_compact(world):
    assert pack(world) is not None
    before = world.store.paths("")

    assert pack(world) is None
    assert schedule_compaction(world.open(), LOGS) is None
    assert [path for path in world.store.paths(".hoodie") if "compaction.requested" in path] == [
        path for path in before if "compaction.requested" in path
    ]


def test_what_is_written_after_a_compaction_goes_to_the_new_slice(world):
    commit = pack(world)
    write(world, "upsert", table_of([("b", "rome", 9.0)]))

    assert ("b", "rome", 9.0) in visible(world)
    assert [path for path in logs(world) if f"_{commit.instant}.log." in path]


def test_a_plan_is_carried_out(world):
    time = schedule_compaction(world.open(), LOGS)
    assert states(world) == [State.REQUESTED]
    assert visible(world) == NOW

    commit = pack(world)

    assert commit.instant == time
    assert states(world) == [State.COMPLETED]
    assert visible(world) == NOW


def test_the_plan_names_files_as_hudi_does(world):
    time = schedule_compaction(world.open(), LOGS)

    plan = decode_compaction_plan(world.store.read(instant_file(time, Action.COMPACTION, State.REQUESTED)))
    by_partition = {operation.partition: operation for operation in plan.operations}
    rome = by_partition["city=rome"]
    assert rome.base_instant == world.commit_times()[0]
    assert rome.base_file in {path.rpartition("/")[2] for path in files(world)}
    assert set(rome.log_files) == {
        path.rpartition("/")[2] for path in logs(world) if path.startswith("city=rome")
    }
    assert rome.metrics["TOTAL_LOG_FILES"] == 2.0
    assert rome.metrics["TOTAL_LOG_FILES_SIZE"] > 0


def test_a_write_beside_a_plan_loses_nothing(world):
    """hudi 7969, 8132, 4863: a plan lacked a log file, and its rows were gone after the compaction."""
    schedule_compaction(world.open(), LOGS)
    write(world, "upsert", table_of([("b", "rome", 9.0)]))
    expected = visible(world)
    assert ("b", "rome", 9.0) in expected

    pack(world)

    assert visible(world) == expected
    write(world, "upsert", table_of([("c", "paris", 8.0), ("d", "rome", 8.0)]))
    assert {("c", "paris", 8.0), ("d", "rome", 8.0), ("b", "rome", 9.0)} == visible(world)


def test_a_plan_that_lacks_a_log_file_is_refused(world):
    # hudi 7969, 8132, 4863: the new base file lost what the plan did not name.
    time = schedule_compaction(world.open(), LOGS)
    path = instant_file(time, Action.COMPACTION, State.REQUESTED)
    plan = decode_compaction_plan(world.store.read(path))
    short = [replace(one, log_files=one.log_files[:-1]) for one in plan.operations]
    world.store.put(path, encode_compaction_plan(replace(plan, operations=tuple(short))))

    with pytest.raises(TableDamaged, match="lacks a log file"):
        pack(world)

    assert visible(world) == NOW
    unschedule_compaction(world.open(), time)
    assert pack(world) is not None
    assert visible(world) == NOW


def test_a_plan_whose_log_file_is_gone_is_refused(world):
    schedule_compaction(world.open(), LOGS)
    gone = min(logs(world))
    world.store.delete(gone)

    with pytest.raises(TableDamaged):
        pack(world)


def test_a_plan_is_taken_away(world):
    before = world.store.paths("")
    time = schedule_compaction(world.open(), LOGS)
    unschedule_compaction(world.open(), time)

    assert [p for p in world.store.paths("") if "holdfast" not in p] == [
        p for p in before if "holdfast" not in p
    ]
    with pytest.raises(UnknownInstant):
        pack(world, time)
    with pytest.raises(UnknownInstant):
        unschedule_compaction(world.open(), time)


def test_a_plan_that_rows_rely_on_is_not_taken_away(world):
    """Another program wrote to the slice that the compaction is to make."""
    time = schedule_compaction(world.open(), LOGS)
    log = min(logs(world))
    base = world.commit_times()[0]
    world.store.create(log.replace(f"_{base}.log", f"_{time}.log"), world.store.read(log))

    with pytest.raises(Refused, match="rows were written"):
        unschedule_compaction(world.open(), time)

    assert states(world) == [State.REQUESTED]


def test_a_copy_on_write_table_has_nothing_to_compact():
    world = memory_world()
    world.create()

    with pytest.raises(UnsupportedTable, match="merge-on-read"):
        pack(world)


def test_no_plan_is_made_beside_a_write_that_is_undecided(world):
    """Its log files would be missing in the plan."""
    world.die_after(lambda w: write(w, "upsert", table_of([("b", "rome", 9.0)])), last="inflight")
    living = replace(world, host=SimulatedHost(actor=7, others=Liveness.ALIVE))

    with pytest.raises(WriterActive):
        schedule_compaction(living.open(), LOGS)

    assert states(world) == []
    assert schedule_compaction(world.open(), LOGS) is not None


class Meddling(ArrowCompactor):
    """Something happens while the base files are written."""

    def __init__(self, act):
        super().__init__()
        object.__setattr__(self, "act", act)

    def compact(self, table, request):
        written = super().compact(table, request)
        self.act()
        return written


def test_a_compaction_that_a_write_overtook_is_not_committed(world):
    """The write is another process's, which admits others."""
    from holdfast.config.choices import ConcurrencyMode

    shared = WriteSettings.from_options(
        {
            "hoodie.write.concurrency.mode": ConcurrencyMode.OPTIMISTIC,
            "holdfast.mor.max.log.ratio": "1000",
            "holdfast.mor.max.logs": "100",
        }
    )
    other = replace(world, host=SimulatedHost(actor=7, others=Liveness.ALIVE))
    meddling = Meddling(lambda: other.write("upsert", table_of([("b", "rome", 9.0)]), shared))
    with pytest.raises(WriteConflict):
        compact(world.open(), shared, meddling)

    assert ("b", "rome", 9.0) in visible(world)
    assert states(world) == []
    assert pack(world) is not None
    assert ("b", "rome", 9.0) in visible(world)


@pytest.mark.parametrize("planned", [True, False], ids=["planned before", "at once"])
def test_an_attempt_that_others_ended_does_not_commit(world, planned):
    """Whoever took it for dead has deleted what it wrote."""
    if planned:
        schedule_compaction(world.open(), LOGS)
    before = files(world)

    with pytest.raises(Fenced):
        compact(world.open(), LOGS, Meddling(lambda: recover(world.open())))

    assert files(world) == before
    assert visible(world) == NOW
    assert states(world) == ([State.INFLIGHT] if planned else [])


def test_of_two_attempts_the_later_commits(world):
    schedule_compaction(world.open(), LOGS)

    with pytest.raises(Fenced):
        compact(world.open(), LOGS, Meddling(lambda: pack(world)))

    assert visible(world) == NOW
    assert states(world) == [State.COMPLETED]
    assert verify(world.open()).is_clean


def test_a_dead_attempt_leaves_the_plan(world):
    time = schedule_compaction(world.open(), LOGS)
    before = files(world)
    world.die_after(lambda w: pack(w), last="upload")
    assert files(world) != before
    assert states(world) == [State.INFLIGHT]
    assert visible(world) == NOW

    recover(world.open())

    assert states(world) == [State.INFLIGHT]
    assert files(world) == before
    assert pack(world).instant == time
    assert visible(world) == NOW


def test_a_dead_compaction_that_was_not_planned_before_leaves_nothing(world):
    before = files(world)
    world.die_after(lambda w: pack(w), last="upload")

    recover(world.open())

    assert states(world) == []
    assert files(world) == before


def test_undo_of_a_compaction_brings_the_log_files_back(world):
    before = files(world)
    commit = pack(world)

    assert undo(world.open()).rolled_back == commit.instant

    assert files(world) == before
    assert states(world) == []
    assert visible(world) == NOW
    write(world, "upsert", table_of([("b", "rome", 9.0)]))
    assert ("b", "rome", 9.0) in visible(world)


def test_restore_takes_plans_and_compactions_that_are_younger(world):
    target = world.commit_times()[1]
    then = visible(world, as_of=target)
    pack(world)
    write(world, "upsert", table_of([("b", "rome", 9.0)]))
    schedule_compaction(world.open(), LOGS)

    restore(world.open(), target)

    assert visible(world) == then
    assert states(world) == []
    assert pack(world) is not None
    assert visible(world) == then


@pytest.mark.parametrize("planned", [True, False], ids=["planned before", "at once"])
def test_wherever_a_compaction_dies_it_can_be_done(world, planned):
    if planned:
        schedule_compaction(world.open(), LOGS)
    counted = world.copy()
    recorder = RecordingStore(counted.store)
    pack(counted.on(recorder))
    for step, change in enumerate(recorder.changes, 1):
        for after in (False, True):
            _check_death(world.copy(), step, after=after, point=f"{change}, {after}")


def _check_death(world, step, *, after, point):
    with pytest.raises(Crash):
        pack(world.on(CrashingStore(world.store, step, after=after)))
    assert visible(world) == NOW, point
    write(world, "upsert", table_of([("b", "rome", 9.0)]))
    expected = {*NOW, ("b", "rome", 9.0)} - {("b", "rome", 5.0)}
    assert visible(world) == expected, point
    pack(world)
    assert visible(world) == expected, point
    assert all(state is State.COMPLETED for state in states(world)), point
