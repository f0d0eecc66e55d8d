"""The same on disk, with processes that really die: without finally blocks, and by SIGKILL under Spark."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest

import holdfast
from crashes.matrix import INSERT, NEXT, OLD, OVERWRITE, UPSERT
from harness.checker import check_at_any_time, check_at_rest, visible_rows
from harness.faults import CrashingStore, RecordingStore, die_by_exit, die_by_signal
from harness.hudi_reader import hudi_ids, hudi_rows
from harness.processes import kill_session
from harness.world import SimulatedClock, World, row_list, table_of
from holdfast.storage.local import LocalStore

WRITES = {"insert": INSERT, "upsert": UPSERT, "insert_overwrite": OVERWRITE}


@pytest.fixture
def clean(tmp_path):
    world = World(LocalStore(str(tmp_path / "start")))
    world.create()
    world.write("insert", table_of(sorted(OLD)))
    return world


def _steps(world, act, folder):
    shutil.copytree(world.store.uri(""), folder)
    recorder = RecordingStore(LocalStore(str(folder)))
    act(World(recorder, replace(world.clock), world.host))
    return len(recorder.changes)


def _die_in_a_child(folder, clock, host, act, *, step, after, die):
    child = os.fork()
    if child == 0:
        act(World(CrashingStore(LocalStore(str(folder)), step, after=after, die=die), clock, host))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status != 0, f"the child was to die at step {step}"


@pytest.mark.parametrize("die", [die_by_exit, die_by_signal], ids=["exit", "SIGKILL"])
@pytest.mark.parametrize("name", WRITES)
def test_a_process_that_dies_at_any_step_leaves_the_old_table_or_the_new_one(
    clean, tmp_path, name, die, request
):
    write = WRITES[name]
    allowed = (OLD, write.effect(OLD))
    count = _steps(clean, write.run, tmp_path / "counted")
    for step in range(1, count + 1):
        for after in (False, True):
            folder = tmp_path / f"{die.__name__}-{step}-{after}"
            shutil.copytree(clean.store.uri(""), folder)
            _die_in_a_child(folder, clean.clock, clean.host, write.run, step=step, after=after, die=die)
            # The child's clock died with it; what comes next happens later.
            later = SimulatedClock(clean.clock.now + 60_000)
            world = World(LocalStore(str(folder)), later, clean.host)
            check_at_any_time(world.open())
            assert hudi_rows(folder) == visible_rows(world.open())
            assert visible_rows(world.open()) in allowed

            world.write("insert", table_of([NEXT]))

            check_at_rest(world.open())
            seen = visible_rows(world.open()) - {NEXT}
            assert seen in allowed
            assert hudi_rows(folder) == seen | {NEXT}
            shutil.rmtree(folder)
    request.config.summary_lines.append(
        f"real deaths of {name} by {die.__name__}: {2 * count} points, data lost 0, orphans 0"
    )


WRITER = """
import sys
sys.path[:0] = {path!r}
import holdfast
from harness.faults import CrashingStore, die_by_signal
from holdfast.engines.spark.session import local_session
from holdfast.timeline.ledger import Ledger
from dataclasses import replace
from pyspark.sql import functions as f

spark = local_session("doomed", master="local[2]")
table = holdfast.open_table({table!r})
step = {step}
if step:
    opened = table._opened
    deadly = CrashingStore(opened.store, step, after=True, die=die_by_signal)
    table = holdfast.Table(replace(opened, store=deadly, ledger=Ledger(deadly, opened.clock)))
number = f.col("id")
rows = spark.range(0, {rows}, 1, 2).select(
    f.concat(f.lit({prefix!r}), number.cast("string")).alias("id"),
    f.concat(f.lit("c"), (number % 3).cast("string")).alias("city"),
    f.lit(-1.0).alias("fare"),
)
print("writing", flush=True)
table.{operation}(rows)
print("written", flush=True)
"""


def _start_writer(folder, operation, *, prefix, step, rows):
    path = [str(Path(__file__).resolve().parent.parent), *sys.path]
    script = WRITER.format(
        path=path, table=str(folder), operation=operation, prefix=prefix, step=step, rows=rows
    )
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait_for_marker(folder, kind, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if any(folder.glob(f".hoodie/.temp/*/*/*.marker.{kind}")):
            return
        time.sleep(0.01)
    raise AssertionError("the writer left no marker")


def _trips(prefix, count):
    """Rows as the Spark job writes them, but with another fare."""
    numbers = range(count)
    return table_of((f"{prefix}{n}", f"c{n % 3}", 1.0) for n in numbers)


def _killed(writer):
    writer.wait(timeout=180)
    kill_session(writer.pid)
    assert writer.returncode == -signal.SIGKILL


@pytest.mark.spark
@pytest.mark.parametrize("moment", ["while its tasks write", "after its decision"])
def test_a_spark_job_killed_with_sigkill_is_taken_back_or_shown_whole(tmp_path, moment):
    """BEGIN, heartbeat, requested and inflight are the driver's first four changes, COMMIT its fifth."""
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    table.insert(_trips("old", 2))
    while_writing = moment == "while its tasks write"
    writer = _start_writer(
        tmp_path,
        "bulk_insert",
        prefix="new",
        step=0 if while_writing else 5,
        rows=3_000_000 if while_writing else 300,
    )
    if while_writing:
        _wait_for_marker(tmp_path, "CREATE")
        writer.kill()
    _killed(writer)
    table = holdfast.open_table(str(tmp_path))
    assert table.to_arrow().num_rows == 2
    assert hudi_ids(tmp_path) == {"old0", "old1"}

    commit = table.insert(_trips("next", 1))

    check_at_rest(table._opened)
    expected = 3 if while_writing else 303
    assert table.to_arrow().num_rows == expected
    assert len(hudi_ids(tmp_path)) == expected
    assert len(commit.rolled_back) == (1 if while_writing else 0)


@pytest.mark.spark
@pytest.mark.parametrize("moment", ["while its tasks write", "after its decision"])
def test_a_spark_upsert_killed_with_sigkill_is_taken_back_or_shown_whole(tmp_path, moment):
    """It changes the value of every row; its tasks leave markers of merges."""
    while_writing = moment == "while its tasks write"
    count = 300_000 if while_writing else 300
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    table.insert(_trips("old", count))
    before = table.to_arrow()
    writer = _start_writer(tmp_path, "upsert", prefix="old", step=0 if while_writing else 5, rows=count)
    if while_writing:
        _wait_for_marker(tmp_path, "MERGE")
        writer.kill()
    _killed(writer)
    table = holdfast.open_table(str(tmp_path))
    assert table.to_arrow().equals(before)

    commit = table.insert(_trips("next", 1))

    check_at_rest(table._opened)
    assert len(commit.rolled_back) == (1 if while_writing else 0)
    fares = table.to_arrow(columns=["id", "fare"]).filter(pc.field("id") != "next0")["fare"]
    assert fares.value_counts().to_pylist() == [{"values": 1.0 if while_writing else -1.0, "counts": count}]
    assert hudi_rows(tmp_path) == frozenset(row_list(table.to_arrow()))
