"""What a table has taken in: what its standing commits say, whatever became of the others."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashes.matrix import INGEST, INGESTING, NEW, NEXT, OLD, clean_table, crash_points, one_more_write
from harness.checker import check_at_any_time, check_at_rest, visible_rows
from harness.faults import RecordingStore, StoreWrapper
from harness.world import START_MS, SimulatedHost, memory_world, table_of
from holdfast.config.choices import CleanPolicy, ConcurrencyMode, FailedWritesPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Conflict, Refused
from holdfast.format.commits import decode_commit
from holdfast.host import Liveness
from holdfast.jobs.ingested import (
    NOTHING_INGESTED,
    Changed,
    Ingested,
    Register,
    address_of,
    batch_origin,
    files_origin,
    new_files,
)
from holdfast.jobs.source_files import SourceFile
from holdfast.model.names import SOURCES_FOLDER
from holdfast.services.archive.archive import archive_instants
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.undo import undo
from holdfast.timeline.timeline import load_timeline, read_completed

SHARED = WriteSettings(
    concurrency_mode=ConcurrencyMode.OPTIMISTIC, failed_writes_policy=FailedWritesPolicy.LAZY
)
TWO_LEFT = WriteSettings(
    clean=CleanSettings(
        policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
        versions_retained=1,
        automatic=False,
        keep_min=2,
        keep_max=3,
    )
)


def day(number):
    return f"day{number}.csv", table_of([(f"k{number}", "paris", float(number))])


def ingested(world):
    return sorted(Register(world.open()).read().files)


@pytest.fixture
def world():
    return clean_table()


def test_a_commit_says_which_files_it_took_in_where_every_hudi_program_shows_it(world):
    world.ingest(dict([day(1), day(2)]))

    newest = load_timeline(world.store).completed_commits[-1]
    said = decode_commit(read_completed(world.store, newest)).extra_metadata
    assert said["holdfast.source.pipeline"] == "trips"
    assert said["holdfast.source.folder"] == "/in"
    assert json.loads(said["holdfast.source.files"]) == [
        ["day1.csv", 1, START_MS],
        ["day2.csv", 1, START_MS],
    ]


def test_files_that_were_ingested_are_not_new(world):
    world.ingest(dict([day(1)]))

    assert world.ingest(dict([day(1)])) is None
    assert world.ingest(dict([day(1), day(2)])).records_written == 1
    assert ingested(world) == ["/in/day1.csv", "/in/day2.csv"]


def test_an_undone_commit_forgets_its_files_and_no_others(world):
    world.ingest(dict([day(1)]))
    world.ingest(dict([day(2)]))

    undo(world.open())

    assert ingested(world) == ["/in/day1.csv"]
    assert world.ingest(dict([day(1), day(2)])).records_written == 1


def test_a_restore_forgets_the_files_of_every_commit_it_takes_back(world):
    kept = world.ingest(dict([day(1)])).instant
    for number in (2, 3):
        world.ingest(dict([day(number)]))

    restore(world.open(), kept)

    assert ingested(world) == ["/in/day1.csv"]


def test_a_register_that_was_read_before_an_undo_forgets_too(world):
    world.ingest(dict([day(1)]))
    register = Register(world.open())
    register.read()

    undo(world.open())

    assert register.read() == NOTHING_INGESTED


def test_archived_commits_still_count(world):
    for number in range(8):
        world.ingest(dict([day(number)]))

    report = archive_instants(world.open(), TWO_LEFT)

    assert len(report.archived) > 4
    assert ingested(world) == [f"/in/day{number}.csv" for number in range(8)]
    assert world.ingest(dict(day(number) for number in range(8))) is None


def test_a_register_finds_commits_that_came_and_were_archived_since_it_was_read(world):
    register = Register(world.open())
    register.read()
    for number in range(8):
        world.ingest(dict([day(number)]))
    archive_instants(world.open(), TWO_LEFT)

    assert len(register.read().files) == 8


def test_a_file_of_an_archived_commit_is_not_ingested_by_a_run_that_slept_meanwhile(world):
    """It made its list before everybody else; they committed, and archived, while it slept."""
    register = Register(world.open())
    before = register.read()
    file = SourceFile("/in/day0.csv", 1, START_MS)
    for number in range(8):
        world.ingest(dict([day(number)]))
    archive_instants(world.open(), TWO_LEFT)

    with pytest.raises(Conflict, match="another run ingested it first"):
        world.write("bulk_insert", day(0)[1], origin=files_origin(register, [file], before, pipeline="t"))

    check_at_rest(world.open())


def test_the_checkpoint_spares_reading_the_commits_again(world):
    world = replace(world, checkpoint_after=3)
    for number in range(6):
        world.ingest(dict([day(number)]))
    assert list(world.store.paths(SOURCES_FOLDER))

    class Counting(StoreWrapper):
        reads = 0

        def _look(self, verb, path, act):
            type(self).reads += verb == "read" and path.endswith(".commit")
            return act()

    assert ingested(world.on(Counting(world.store))) == [f"/in/day{number}.csv" for number in range(6)]
    assert Counting.reads <= 3


def test_old_checkpoints_go(world):
    world = replace(world, checkpoint_after=1)
    for number in range(6):
        world.ingest(dict([day(number)]))

    assert len(list(world.store.paths(SOURCES_FOLDER))) == 2


def test_a_checkpoint_that_nobody_can_read_is_as_good_as_none(world):
    world = replace(world, checkpoint_after=1)
    world.ingest(dict([day(1)]))
    for path in list(world.store.paths(SOURCES_FOLDER)):
        world.store.put(path, b"torn")

    assert ingested(world) == ["/in/day1.csv"]


def test_a_checkpoint_forgets_with_an_undo_too(world):
    world = replace(world, checkpoint_after=1)
    world.ingest(dict([day(1)]))

    undo(world.open())

    assert ingested(world) == []


def test_commits_of_other_programs_take_nothing_in(world):
    world.insert("plain")

    assert Register(world.open()).read() == NOTHING_INGESTED


def test_two_runs_that_made_their_lists_at_once_ingest_a_file_once(world):
    """The second began when the first was decided: it is refused before it writes a row."""
    register = Register(world.open())
    before = register.read()
    world.ingest(dict([day(1)]), SHARED)
    recorder = RecordingStore(world.store)
    file = SourceFile("/in/day1.csv", 1, START_MS)
    late = replace(world.on(recorder), host=SimulatedHost(1, Liveness.ALIVE))

    with pytest.raises(Conflict, match="another run ingested it first"):
        late.write(
            "bulk_insert", day(1)[1], SHARED, origin=files_origin(register, [file], before, pipeline="t")
        )

    assert not any(change.startswith("upload") for change in recorder.changes)
    check_at_rest(world.open())


def test_a_batch_of_a_stream_is_committed_once(world):
    def commit(batch, query="q1"):
        origin = batch_origin(Register(world.open()), query, batch, pipeline="t")
        return world.write("bulk_insert", day(batch)[1], origin=origin)

    commit(0)
    commit(1)

    with pytest.raises(Conflict, match="another run ingested it first"):
        commit(1)
    assert Register(world.open()).read().batches == {"q1": 1}
    commit(2, "q2")
    assert Register(world.open()).read().batches == {"q1": 1, "q2": 2}


@pytest.mark.parametrize(
    ("size", "modified_ms"), [(11, START_MS), (10, START_MS + 1)], ids=["size", "time of modification"]
)
def test_a_changed_file_is_refused_by_name_unless_the_source_says_otherwise(size, modified_ms):
    then = SourceFile("/in/a.csv", 10, START_MS)
    now = SourceFile("/in/a.csv", size, modified_ms)
    before = Ingested({"/in/a.csv": then})

    with pytest.raises(Refused, match=r"a file was changed after it was ingested \(file: /in/a.csv"):
        new_files([now], before, changed=Changed.REFUSE)
    assert new_files([now], before, changed=Changed.IGNORE) == []
    assert new_files([now], before, changed=Changed.INGEST) == [now]


def test_a_changed_file_that_is_ingested_again_is_known_as_it_is_now(world):
    world.ingest(dict([day(1)]))
    register = Register(world.open())
    before = register.read()
    grown = SourceFile("/in/day1.csv", 2, START_MS)

    world.write("upsert", day(1)[1], origin=files_origin(register, [grown], before, pipeline="t"))

    assert Register(world.open()).read().files == {"/in/day1.csv": grown}


def test_spark_and_others_spell_addresses_in_s3_in_two_ways():
    assert address_of(SourceFile("s3a://b/in/a.csv", 1, 1)) == "s3://b/in/a.csv"


@given(
    st.sets(
        st.lists(st.sampled_from(["a", "ab", "b c", "é", "=x"]), min_size=1, max_size=3).map("/".join),
        min_size=1,
    )
)
def test_whatever_the_files_are_called_a_commit_says_their_addresses(names):
    world = memory_world()
    world.create()
    files = [SourceFile(f"/data/in/{name}", 1, 1) for name in names]
    register = Register(world.open())
    origin = files_origin(register, files, NOTHING_INGESTED, pipeline="t")

    world.write("bulk_insert", day(1)[1], origin=origin)

    assert set(Register(world.open()).read().files) == {file.uri for file in files}
    assert origin.conflict(origin.extra_metadata) is not None


@pytest.mark.parametrize(
    "operation", [o for o in INGESTING if o.after == OLD | NEW], ids=lambda operation: operation.name
)
def test_a_run_killed_anywhere_and_run_again_ingests_every_row_exactly_once(operation):
    """Keys are not looked for, so a row that comes twice is seen twice."""
    for point, world in crash_points(operation):
        INGEST.run(world)

        check_at_any_time(world.open())
        assert visible_rows(world.open()) == OLD | NEW, point
        assert INGEST.run(world) is None, point
        one_more_write(world, NEXT)
        check_at_rest(world.open())


def test_a_run_killed_while_it_makes_up_for_a_killed_one_ingests_every_row_exactly_once():
    for number, (point, crashed) in enumerate(crash_points(INGESTING[0], moments=(True,))):
        again = replace(INGESTING[0], start=replace(INGESTING[0].start, make=lambda left=crashed: left))
        counted = crashed.copy()
        if INGEST.run(counted) is None:
            continue
        for nested, world in crash_points(again, every=4, offset=number, moments=(True,)):
            INGEST.run(world)

            check_at_any_time(world.open())
            assert visible_rows(world.open()) == OLD | NEW, f"{point}; then {nested}"
