"""A table comes to be with its first commit, or not at all."""

from contextlib import suppress

import pyarrow as pa
import pytest

import holdfast
from crashes.matrix import FIRST_WRITE, NOTHING, Operation, crash_points
from harness.checker import check_at_rest, visible_rows
from harness.faults import RecordingStore
from harness.world import LOCATION, SimulatedHost, memory_world, table_of
from holdfast.config.choices import Operation as WriteOperation
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.errors import (
    Conflict,
    InvalidOption,
    InvalidRequest,
    TableExists,
    TableNotFound,
    WriteConflict,
    WriterActive,
)
from holdfast.host import Liveness
from holdfast.model.names import PROPERTIES_FILE
from holdfast.services.rollback.rollback import recover
from holdfast.table.opened import open_new
from holdfast.writes import operations

GOOD = pa.table({"id": [1, 2], "city": ["paris", "rome"], "ts": [1, 1]})
WITHOUT_KEY = pa.table({"id": pa.array([1, None], pa.int64()), "city": ["paris", "rome"], "ts": [1, 1]})
OF_A_TYPE_THAT_CANNOT_BE_STORED = GOOD.append_column("gap", pa.array([1, 2], pa.duration("s")))
KEY = "hoodie.datasource.write.recordkey.field"


def options(key="id", **others):
    return {
        "hoodie.table.name": "trips",
        KEY: key,
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "ts",
        **{name.replace("_", "."): value for name, value in others.items()},
    }


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "trips")


REFUSED = {
    "a row without a key": (WITHOUT_KEY, {}),
    "a type that cannot be stored": (OF_A_TYPE_THAT_CANNOT_BE_STORED, {}),
    "a partition that is no folder": (GOOD.set_column(1, "city", pa.array(["a/../b", "rome"])), {}),
    "a bucket of a column that is no key": (
        GOOD,
        {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.hash.field": "city"},
    ),
    "an option with a wrong value": (GOOD, {"hoodie.cleaner.commits.retained": "many"}),
}


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_first_write_leaves_nothing_at_all(path, tmp_path, operation, why):
    rows, more = REFUSED[why]
    given = options() | {"hoodie.datasource.write.operation": operation} | more

    with pytest.raises(InvalidRequest):
        holdfast.write(rows, path, given)

    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("mode", ["append", "overwrite", "ignore", "errorifexists"])
def test_after_a_refused_first_write_a_corrected_one_makes_the_table(path, mode):
    with pytest.raises(InvalidRequest):
        holdfast.write(WITHOUT_KEY, path, options())

    commit = holdfast.write(GOOD, path, options(key="ts,id"), mode)

    assert commit.records_written == 2
    assert holdfast.open_table(path).settings.record_key == ("ts", "id")


def test_a_created_table_exists_although_it_is_empty(path):
    holdfast.create_table(path, name="trips", record_key="id", partition_by="city", ordering="ts")

    with pytest.raises(TableExists):
        holdfast.create_table(path, name="trips", record_key="id")
    with pytest.raises(TableExists):
        holdfast.write(GOOD, path, options(), "errorifexists")
    assert holdfast.write(GOOD, path, options(), "ignore") is None


FIRST = Operation("a first write", FIRST_WRITE.run, NOTHING, frozenset())


def test_wherever_a_first_write_dies_one_with_another_key_makes_the_table_unless_the_first_has():
    outcomes = set()
    for _, world in crash_points(FIRST):
        corrected = table_of([("k", "oslo", 1.0)]).append_column("k", pa.array(["k"]))
        with suppress(InvalidOption):
            world.first_write(corrected, record_key="k")
        table = world.open()
        seen = {row[0] for row in visible_rows(table)}
        recover(table)
        check_at_rest(table)
        outcomes.add((table.settings.record_key, *sorted(seen)))

    assert outcomes == {(("k",), "k"), (("id",), "new1", "new2", "new3")}


def test_nobody_sees_the_table_before_its_first_commit_nor_without_it():
    world = memory_world()
    recorder = RecordingStore(world.store)

    FIRST_WRITE.run(world.on(recorder))

    (made,) = (n for n, change in enumerate(recorder.changes) if change == f"create {PROPERTIES_FILE}")
    (shown,) = (n for n, change in enumerate(recorder.changes) if change.endswith(".commit"))
    assert shown < made


def test_a_first_write_that_was_decided_is_there_for_whoever_opens_the_table_next():
    world = memory_world()
    world.die_after(FIRST_WRITE.run, last="ledger")

    assert len(visible_rows(world.open())) == 3


def test_a_first_write_that_was_decided_is_there_for_whoever_creates_the_table_next():
    world = memory_world()
    world.die_after(FIRST_WRITE.run, last="ledger")

    with pytest.raises(TableExists):
        world.create()

    assert len(visible_rows(world.open())) == 3


def test_a_first_write_that_died_is_no_table():
    world = memory_world()
    world.die_after(FIRST_WRITE.run, last="upload")

    with pytest.raises(TableNotFound):
        world.open()


def test_a_table_that_is_created_while_its_first_write_runs_is_the_one():
    world = memory_world()
    interrupted = RecordingStore(world.store)
    upload = interrupted._change

    def creating(verb, path, act):
        done = upload(verb, path, act)
        if verb == "upload" and not world.store.stat(PROPERTIES_FILE):
            world.create()
        return done

    interrupted._change = creating
    with pytest.raises(WriteConflict, match="created"):
        FIRST_WRITE.run(world.on(interrupted))

    assert visible_rows(world.open()) == set()
    FIRST_WRITE.run(world)
    assert len(visible_rows(world.open())) == 3


def test_while_a_first_write_is_known_to_run_no_other_begins():
    world = memory_world()
    world.die_after(FIRST_WRITE.run, last="upload")
    world.host = SimulatedHost(9, Liveness.ALIVE)

    with pytest.raises(WriterActive):
        FIRST_WRITE.run(world)


def test_a_first_write_that_finds_another_table_when_it_begins_is_a_conflict():
    """It was not there when the write was asked for."""
    wanted = memory_world()
    FIRST_WRITE.run(wanted)
    world = memory_world()
    late = open_new(world.store, LOCATION, wanted.open().settings, clock=world.clock, host=world.host)
    world.first_write(table_of([("k", "oslo", 1.0)]), record_key="city")

    with pytest.raises(Conflict, match="recordkey"):
        operations.write(
            late, WriteOperation.BULK_INSERT, ArrowRows(table_of([("a", "rome", 1.0)])), WriteSettings()
        )
