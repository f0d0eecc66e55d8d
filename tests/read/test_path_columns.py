"""When the paths of files may stand for partition columns: only where no row can lie elsewhere."""

from dataclasses import replace

import pyarrow as pa
import pytest

from harness.checker import check_at_any_time, check_at_rest
from harness.faults import Crash, CrashingStore, RecordingStore
from harness.world import LOCATION, memory_world, table_of
from holdfast.config.archiving import ArchiveSettings
from holdfast.config.cleaning import CleanPolicy, CleanSettings
from holdfast.config.table import new_table_settings
from holdfast.config.write import WriteSettings
from holdfast.format.archive import decode_archive, encode_archive
from holdfast.format.commits import IN_PLACE, decode_extra_metadata
from holdfast.model.instant import InstantTime, State
from holdfast.model.names import ARCHIVED_IN_PLACE, instant_file
from holdfast.read.path_columns import path_columns
from holdfast.read.snapshot import snapshot
from holdfast.services.archive import archive_after_recovery
from holdfast.services.undo import undo
from holdfast.table.in_place import archived_in_place
from holdfast.table.opened import create_new
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
    return world.write("upsert", table_of([("a", city, 1.0) for city in cities]), settings)


def told(world, as_of=None):
    table = world.open()
    found = snapshot(table, as_of=as_of)
    return path_columns(table, found, found.schema) is not None


def without_mark(world, commit):
    """As a commit of another program, which says nothing of where its rows lie."""
    path = instant_file(commit.instant, commit.action, State.COMPLETED)
    world.store.put(path, world.store.read(path).replace(IN_PLACE.encode(), b"something.else"))
    assert IN_PLACE not in decode_extra_metadata(world.store.read(path))


def archive(world):
    return archive_after_recovery(world.open(), TWO)


def test_the_paths_of_a_new_table_tell(world):
    write(world, "paris")
    write(world, "rome")

    assert told(world)


def test_a_record_that_stays_where_it_was_found_ends_it_until_that_is_undone(world):
    write(world, "paris")
    write(world, "rome", settings=STAYING)
    after = told(world)
    before = told(world, as_of=load_timeline(world.store).completed_commits[0])
    undo(world.open())

    assert not after
    assert not before, "what later commits did is not looked at closer"
    assert told(world)


def test_the_same_index_without_such_records_does_not(world):
    write(world, "paris")
    moving = WriteSettings.from_options({"hoodie.index.type": "GLOBAL_SIMPLE"})
    write(world, "rome", settings=moving)

    assert told(world)
    check_at_rest(world.open())


def test_a_commit_of_another_program_ends_it(world):
    without_mark(world, write(world, "paris"))
    write(world, "paris")

    assert not told(world)


def test_archived_commits_go_on_telling(world):
    for number in range(1, 9):
        write(world, f"city{number}")
        if number in (4, 7):
            assert archive(world).archived
            assert told(world), number

    assert len(load_timeline(world.store).completed_commits) == 3
    assert told(world)


@pytest.mark.parametrize("number", [1, 5])
def test_one_that_does_not_say_it_is_not_forgotten_when_it_is_archived(world, number):
    for now in range(1, 9):
        commit = write(world, f"city{now}")
        if now == number:
            without_mark(world, commit)
        if now in (4, 7):
            assert archive(world).archived

    assert commit.instant not in [one.time for one in load_timeline(world.store).completed_commits[:-1]]
    table = world.open()
    assert snapshot(table).are_in_place, "the timeline knows nothing of it any more"
    assert not archived_in_place(table)
    assert not told(world)


def test_an_archive_of_another_program_ends_it(world):
    for number in range(1, 5):
        write(world, f"city{number}")
    archive(world)
    assert told(world)

    world.store.create(".hoodie/archived/.commits_.archive.7_1-0-1", b"")

    assert not told(world)


def test_an_archive_to_which_another_program_appends_ends_it(world):
    for number in range(1, 5):
        write(world, f"city{number}")
    path = archive(world).file

    world.store.put(path, world.store.read(path) + b"more")

    assert not told(world)


def test_a_record_that_is_lost_ends_it_and_does_not_come_back(world):
    for number in range(1, 5):
        write(world, f"city{number}")
    archive(world)
    world.store.delete(ARCHIVED_IN_PLACE)
    after = told(world)
    for number in range(5, 8):
        write(world, f"city{number}")
    archive(world)

    assert not after
    assert not told(world)


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
        check_at_any_time(copy.open())
        archive(copy)
        assert told(copy), recorder.changes[number - 1]
        check_at_rest(copy.open())


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
    settings = new_table_settings(
        name="trips",
        record_key=("id",),
        partition_by=("city",),
        ordering=None,
        table_type="COPY_ON_WRITE",
        properties=properties,
    )
    create_new(world.store, LOCATION, settings, clock=world.clock, host=world.host)
    world.write("upsert", pa.table({"id": ["a"], "city": pa.nulls(1, kind)}), BY_HAND)

    assert told(world) is tells


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

    telling, others = columns.split(found.paths)

    folders = {path.rpartition("/")[0] for path in telling}
    assert folders == {"city=paris", "city=new york", "city=münchen", "city=a=b"}
    assert {path.rpartition("/")[0] for path in others} == {"city=50%", "city=__HIVE_DEFAULT_PARTITION__"}
    assert sorted(telling + others) == sorted(found.paths)


def test_a_query_without_partition_columns_needs_nothing_of_the_paths(world):
    write(world, "paris")
    table = world.open()
    found = snapshot(table)

    assert path_columns(table, found, pa.schema([("fare", pa.float64())])) is None


def test_an_archive_of_another_program_with_more_than_was_decided_on_is_not_taken_for_ours(world):
    """Hudi archived our commits together with one of its own, after an archiver of ours had died."""
    for number in range(1, 6):
        write(world, f"city{number}")
    finished = world.copy()
    path = archive(finished).file
    ours = decode_archive(finished.store.read(path)).files
    theirs = replace(ours[-1], time=InstantTime("20200101000000000"), content=b"{}")
    world.die_after(archive, last="create .hoodie/.holdfast/ledger")
    world.store.create(path, encode_archive([theirs, *ours], per_block=10))

    archive(world)

    assert told(finished)
    assert len(load_timeline(world.store).completed_commits) == 2
    assert not told(world)
