"""When the paths of files may stand for partition columns: only where no row can lie elsewhere."""

import pyarrow as pa
import pytest

from harness.checker import check_at_any_time, check_at_rest
from harness.faults import Crash, CrashingStore, InterruptedStore, RecordingStore
from harness.world import memory_world, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import ArchiveSettings, CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.format.commits import DIGEST, IN_PLACE, decode_extra_metadata
from holdfast.model.instant import InstantTime, State
from holdfast.model.names import ARCHIVED_IN_PLACE, instant_file, partition_of
from holdfast.model.reports import FindingKind, Severity
from holdfast.read.path_columns import path_columns
from holdfast.read.snapshot import snapshot
from holdfast.services.archive.archive import archive_without_recovery
from holdfast.services.rollback.undo import undo
from holdfast.services.verify.verify import verify
from holdfast.table.row_placement import add_to_placement_record, read_placement_record
from holdfast.timeline.timeline import load_timeline

BY_HAND = WriteSettings(clean=CleanSettings(automatic=False), archives=False)
STAYING = WriteSettings.from_options(
    {
        "hoodie.index.type": "GLOBAL_SIMPLE",
        "hoodie.simple.index.update.partition.path": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
    }
)
TWO = ArchiveSettings(
    clean=CleanSettings(
        automatic=False,
        policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
        versions_retained=1,
        keep_min=2,
        keep_max=3,
    )
)
"""Two commits stay when there are more than three."""


@pytest.fixture
def world():
    world = memory_world()
    world.create()
    return world


def write(world, *cities, settings=BY_HAND):
    """One row for each city, with the same key in each."""
    return world.write("upsert", table_of([("a", city, 1.0) for city in cities]), settings)


def telling(world, as_of=None):
    """The folders whose names are relied on for all their files."""
    table = world.open()
    found = snapshot(table, as_of=as_of)
    columns = path_columns(table, found, found.schema)
    told, others = ([], found.paths) if columns is None else columns.split(found.paths)
    return {partition_of(path) for path in told} - {partition_of(path) for path in others}


def telling_all(world):
    return telling(world) == {partition_of(path) for path in snapshot(world.open()).paths}


def without_mark(world, commit):
    """As a commit of another program, which says nothing of where its rows lie."""
    path = instant_file(commit.instant, commit.action, State.COMPLETED)
    content = world.store.read(path)
    for ours in (IN_PLACE, DIGEST):
        content = content.replace(ours.encode(), b"something.else." + ours[-1:].encode())
    world.store.put(path, content)
    assert not {IN_PLACE, DIGEST} & set(decode_extra_metadata(content))


def archive(world):
    return archive_without_recovery(world.open(), TWO)


def test_the_paths_of_a_new_table_tell(world):
    write(world, "paris")
    write(world, "rome")

    assert telling(world) == {"city=paris", "city=rome"}


def test_those_do_not_where_a_record_stays_that_was_found_there(world):
    first = world.write("upsert", table_of([("a", "paris", 1.0), ("b", "rome", 1.0)]), BY_HAND)
    world.write("upsert", table_of([("b", "oslo", 1.0)]), STAYING)
    then, now = telling(world, as_of=first.instant), telling(world)
    undo(world.open())

    assert then == {"city=paris", "city=rome"}
    assert now == {"city=paris"}
    assert telling(world) == {"city=paris", "city=rome"}


def test_nor_after_writes_that_take_it_over_until_the_files_are_replaced(world):
    write(world, "paris")
    world.write("upsert", table_of([("a", "rome", 2.0)]), STAYING)
    world.write("upsert", table_of([("b", "paris", 3.0)]), BY_HAND)
    after = telling(world)
    world.write("insert_overwrite", table_of([("c", "paris", 4.0)]), BY_HAND)

    assert after == set()
    assert telling(world) == {"city=paris"}


def test_the_same_index_without_such_records_changes_nothing(world):
    write(world, "paris")
    write(world, "rome", settings=WriteSettings.from_options({"hoodie.index.type": "GLOBAL_SIMPLE"}))

    assert telling_all(world)
    check_at_rest(world.open())


def test_those_of_another_program_do_not_tell_nor_what_is_built_on_them(world):
    without_mark(world, write(world, "paris"))
    write(world, "rome")
    assert telling(world) == {"city=rome"}

    write(world, "paris")

    assert telling(world) == {"city=rome"}


def test_a_commit_that_is_gone_without_those_that_built_on_it_tells_nothing_of_them(world):
    """As Hudi leaves it, which rolls back also what is not the newest, if there are many writers."""
    write(world, "paris")
    stray = world.write("upsert", table_of([("a", "rome", 2.0)]), STAYING)
    world.write("upsert", table_of([("a", "paris", 3.0)]), BY_HAND)
    for state in State:
        world.store.delete(instant_file(stray.instant, stray.action, state))
    for path in world.files_of(stray.instant):
        world.store.delete(path)

    assert telling(world) == set()


def test_archived_commits_go_on_telling(world):
    write(world, "paris")
    for number in range(1, 9):
        write(world, f"city{number}", "paris")
        if number in (4, 7):
            assert archive(world).archived
            assert telling_all(world), number

    assert len(load_timeline(world.store).completed_commits) == 3
    assert len(telling(world)) == 9


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("is_archive_lost", [False, True])
def test_one_that_does_not_say_it_is_not_forgotten_when_it_is_archived(world, number, is_archive_lost):
    for now in range(1, 9):
        commit = write(world, f"city{now}")
        if now == number:
            without_mark(world, commit)
        if now in (4, 7):
            assert archive(world).archived
    world.write("upsert", table_of([("x", f"city={number}", 0.0)]), BY_HAND)
    if is_archive_lost:
        for path in world.store.paths(".hoodie/archived"):
            world.store.delete(path)
    assert archive(world).archived

    expected = {f"city=city{now}" for now in range(1, 9) if now != number} | {f"city=city={number}"}
    assert telling(world) == expected


def test_a_record_that_is_lost_ends_it_for_what_is_archived(world):
    for number in range(1, 5):
        write(world, f"city{number}")
    archive(world)
    world.store.delete(ARCHIVED_IN_PLACE)

    assert telling(world) == {"city=city3", "city=city4"}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"20200101000000000\n", None])
def test_a_record_that_is_damaged_is_not_believed_and_is_reported(world, content):
    for number in range(1, 5):
        write(world, f"city{number}")
    archive(world)
    whole = world.store.read(ARCHIVED_IN_PLACE)
    world.store.put(ARCHIVED_IN_PLACE, whole.replace(b"2", b"3") if content is None else content)

    assert telling(world) == {"city=city3", "city=city4"}
    (finding,) = verify(world.open()).findings
    assert (finding.kind, finding.path) == (FindingKind.TORN, ARCHIVED_IN_PLACE)
    assert finding.severity is Severity.WARNING
    for number in range(5, 8):
        write(world, f"city{number}")
    archive(world)
    assert verify(world.open()).is_clean
    assert telling(world) == {f"city=city{number}" for number in range(3, 8)}


def test_an_archiver_that_dies_leaves_it_to_the_next_one(world):
    for number in range(1, 5):
        write(world, f"city{number}")
    recorder = RecordingStore(world.copy().store)
    archive(world.copy().on(recorder))
    assert any(ARCHIVED_IN_PLACE in change for change in recorder.changes)

    for number in range(1, 1 + len(recorder.changes)):
        copy = world.copy()
        with pytest.raises(Crash):
            archive(copy.on(CrashingStore(copy.store, number, after=True)))
        assert telling_all(copy), recorder.changes[number - 1]
        check_at_any_time(copy.open())
        archive(copy)
        assert telling_all(copy), recorder.changes[number - 1]
        check_at_rest(copy.open())


def test_two_that_add_to_the_record_lose_nothing(world):
    slow = InterruptedStore(
        world.store, ARCHIVED_IN_PLACE, lambda: add_to_placement_record(world.store, [InstantTime("2")])
    )
    add_to_placement_record(slow, [InstantTime("1")])
    slower = InterruptedStore(
        world.store, ARCHIVED_IN_PLACE, lambda: add_to_placement_record(world.store, [InstantTime("4")])
    )
    add_to_placement_record(slower, [InstantTime("3")])

    assert read_placement_record(world.store) == {"1", "2", "3", "4"}


@pytest.mark.parametrize(
    ("kind", "properties", "tells"),
    [
        (pa.string(), {}, True),
        (pa.int32(), {}, True),
        (pa.int64(), {}, True),
        (pa.date32(), {}, True),
        (pa.decimal128(9, 2), {}, False),
        (pa.timestamp("us", "UTC"), {}, False),
        (pa.string(), {"hoodie.datasource.write.hive_style_partitioning": "false"}, False),
    ],
)
def test_only_values_that_can_be_read_back_are_taken_from_paths(kind, properties, tells):
    world = memory_world()
    world.create(properties)
    world.write("upsert", pa.table({"id": ["a"], "city": pa.nulls(1, kind)}), BY_HAND)

    table = world.open()
    found = snapshot(table)
    assert (path_columns(table, found, found.schema) is not None) is tells


def test_nulls_and_escaped_values_are_read_from_the_files(world):
    cities = ["paris", "", None, "50%", "new york", "münchen", "a=b", "__HIVE_DEFAULT_PARTITION__"]
    world.write(
        "bulk_insert",
        table_of([(str(number), city, 1.0) for number, city in enumerate(cities)]),
        BY_HAND,
    )
    table = world.open()
    found = snapshot(table)
    columns = path_columns(table, found, found.schema)
    assert columns is not None

    told, others = columns.split(found.paths)

    folders = {path.rpartition("/")[0] for path in told}
    assert folders == {"city=paris", "city=new york", "city=münchen", "city=a=b"}
    assert {path.rpartition("/")[0] for path in others} == {"city=50%", "city=__HIVE_DEFAULT_PARTITION__"}
    assert sorted(told + others) == sorted(found.paths)


def test_a_query_without_partition_columns_needs_nothing_of_the_paths(world):
    write(world, "paris")
    table = world.open()
    found = snapshot(table)

    assert path_columns(table, found, pa.schema([("fare", pa.float64())])) is None
