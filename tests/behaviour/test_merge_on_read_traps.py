"""What tables with log files have lost elsewhere, and may not lose here; each trap that no other test has."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import holdfast
from harness.attempts import AttemptedRows, attempt, counted
from harness.checker import check_at_rest, visible_rows
from harness.hudi_reader import hudi_snapshot
from harness.world import SimulatedHost, memory_world, table_of
from holdfast.config.choices import Operation
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.format.delete_blocks import decode_deletes
from holdfast.format.log_blocks import BlockType, decode_blocks
from holdfast.host import Liveness
from holdfast.model.names import is_data_file
from holdfast.writes import operations

APPENDS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "100"}
LOGS = WriteSettings(log_ratio_max=1000.0, logs_max=100, clean=CleanSettings(automatic=False))
SHARED = WriteSettings.from_options(
    {**APPENDS, "hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
)
REWRITES = WriteSettings.from_options(
    {"hoodie.write.concurrency.mode": "optimistic_concurrency_control", "holdfast.mor.max.logs": "0"}
)


@pytest.fixture
def table(tmp_path):
    table = holdfast.create_table(
        str(tmp_path / "t"), name="t", record_key="id", ordering="ts", table_type="MERGE_ON_READ"
    )
    table.insert(pa.table({"id": ["a", "b"], "ts": [5, 5]}))
    return table


@pytest.fixture
def world():
    world = memory_world()
    world.create(table_type="MERGE_ON_READ")
    world.write("insert", table_of([("a", "paris", 1.0), ("b", "paris", 1.0)]), LOGS)
    return world


def logs(world):
    return {
        path for path in world.store.paths("") if ".log." in path and is_data_file(path.rpartition("/")[2])
    }


def blocks(table):
    paths = [path for path in table.files() if ".log." in path]
    return [block for path in paths for block in decode_blocks((Path(table.path) / path).read_bytes())]


def seen(table):
    ours = {row["id"]: row["ts"] for row in table.to_arrow().to_pylist()}
    assert ours == {row["id"]: row["ts"] for row in hudi_snapshot(table.path).to_pylist()}
    return ours


def test_a_delete_that_is_older_than_its_row_is_not_written(table):
    """Of Hudi's readers some would let it win against the row of the base file."""
    commit = table.delete(pa.table({"id": ["a"], "ts": [4]}), options=APPENDS)

    assert commit.records_deleted == 0
    assert blocks(table) == []
    assert seen(table) == {"a": 5, "b": 5}


def test_a_delete_without_an_order_takes_that_of_its_row(table):
    table.upsert(pa.table({"id": ["a"], "ts": [9]}), options=APPENDS)

    table.delete(pa.table({"id": ["a"]}), options=APPENDS)

    (deletes,) = [block for block in blocks(table) if block.kind == BlockType.DELETE]
    assert decode_deletes(deletes.content, pa.int64()).orderings.to_pylist() == [9]
    assert seen(table) == {"b": 5}


def test_a_row_that_comes_back_older_than_what_the_base_file_has_is_no_resurrection(table):
    """In a log file it would lose against the old row of the base file, which would be seen again."""
    table.delete(pa.table({"id": ["a"], "ts": [6]}), options=APPENDS)

    commit = table.upsert(pa.table({"id": ["a"], "ts": [3]}), options=APPENDS)

    assert commit.records_inserted == 1
    assert not [path for path in table.files() if ".log." in path]
    assert seen(table) == {"a": 3, "b": 5}


def test_of_two_attempts_at_a_task_one_log_file_counts(world):
    """By the markers and what the commit says, never by how many blocks there are."""

    class TwiceRows(AttemptedRows):
        def _run(self, store, body):
            list(body(store, attempt(1)))
            assert len(logs(world)) == 1
            return counted(store, body)

    commit = operations.write(
        world.open(), Operation.UPSERT, TwiceRows(table_of([("a", "paris", 2.0)])), LOGS
    )

    assert commit.files_written == 1
    assert len(logs(world)) == 1
    assert sorted(visible_rows(world.open())) == [("a", "paris", 2.0), ("b", "paris", 1.0)]
    check_at_rest(world.open())


def test_a_rollback_after_the_slice_was_rewritten_finds_the_log_file_in_the_slice_before(world):
    """By markers and names: a look at the newest slice would miss it."""
    world.host = SimulatedHost(others=Liveness.UNKNOWN)
    world.die_after(lambda w: w.write("upsert", table_of([("a", "paris", 2.0)]), SHARED), last="upload")
    (left,) = logs(world)
    world.write("upsert", table_of([("b", "paris", 3.0)]), REWRITES)
    assert logs(world) == {left}
    world.clock.wait_ms(3_600_000)

    world.write("upsert", table_of([("b", "paris", 4.0)]), REWRITES)

    assert logs(world) == set()
    assert sorted(visible_rows(world.open())) == [("a", "paris", 1.0), ("b", "paris", 4.0)]


READING = "for batch in table.to_batches(): rows += batch.num_rows"
COMPACTING = "table.compact(); rows = 0"
MEMORY = """
import sys
import pyarrow as pa
import holdfast
table, rows = holdfast.open_table(sys.argv[1]), 0
{act}
print(rows, pa.default_memory_pool().max_memory())
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """One base file of many row groups, and log files with a row in each of these."""
    path = str(tmp_path_factory.mktemp("large") / "t")
    count = 400_000
    table = holdfast.create_table(path, name="t", record_key="id", table_type="MERGE_ON_READ")
    numbers = pa.array(range(count))
    given = pa.table({"id": numbers.cast(pa.string()), "n": numbers, "text": ["x" * 200] * count})
    table.bulk_insert(given, options={"hoodie.parquet.max.file.size": str(16 * 2**20)})
    table.upsert(given.take(list(range(0, count, 5000))), options=APPENDS)
    assert [path.count(".log.") for path in table.files()] == [0, 1]
    return path, given


@pytest.mark.parametrize(("act", "share"), [(READING, 0.25), (COMPACTING, 0.6)], ids=["read", "compaction"])
def test_the_memory_of_a_merge_is_bounded_by_a_row_group_and_the_log_files(large, act, share):
    """Not by the base file: with all of it in memory both would take more than its rows do."""
    path, given = large

    ran = subprocess.run(
        [sys.executable, "-c", MEMORY.format(act=act), path], capture_output=True, text=True, check=True
    )

    rows, peak = map(int, ran.stdout.split())
    assert rows in (0, given.num_rows)
    assert peak < share * given.nbytes
