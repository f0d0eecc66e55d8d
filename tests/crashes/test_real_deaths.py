"""The same on disk, with processes that really die: without finally blocks, and by SIGKILL under Spark."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from harness.checker import check_at_any_time, check_at_rest, visible_ids
from harness.faults import CrashingStore, RecordingStore, die_by_exit, die_by_signal
from harness.hudi_reader import hudi_ids
from harness.world import SimulatedClock, World
from holdfast.storage.local import LocalStore

OLD = frozenset({"old1", "old2"})
NEW = frozenset({"new1", "new2", "new3"})


def _insert(world):
    world.insert(*sorted(NEW))


def _roll_back(world):
    from holdfast.services.rollback import roll_back_failed_writes

    roll_back_failed_writes(world.open())


@pytest.fixture
def clean(tmp_path):
    world = World(LocalStore(str(tmp_path / "start")))
    world.create()
    world.insert(*sorted(OLD))
    return world


def _steps(world, act, folder):
    shutil.copytree(world.store.uri(""), folder)
    recorder = RecordingStore(LocalStore(str(folder)))
    act(World(recorder, world.clock, world.host))
    return len(recorder.changes)


def _die_in_a_child(folder, clock, host, act, *, step, after, die):
    child = os.fork()
    if child == 0:
        act(World(CrashingStore(LocalStore(str(folder)), step, after=after, die=die), clock, host))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status != 0, f"the child was to die at step {step}"


@pytest.mark.parametrize("die", [die_by_exit, die_by_signal], ids=["exit", "SIGKILL"])
def test_a_process_that_dies_at_any_step_leaves_the_old_table_or_the_new_one(clean, tmp_path, die, request):
    count = _steps(clean, _insert, tmp_path / "counted")
    for step in range(1, count + 1):
        for after in (False, True):
            folder = tmp_path / f"{die.__name__}-{step}-{after}"
            shutil.copytree(clean.store.uri(""), folder)
            _die_in_a_child(folder, clean.clock, clean.host, _insert, step=step, after=after, die=die)
            # The child's clock died with it; what comes next happens later.
            later = SimulatedClock(clean.clock.now + 60_000)
            world = World(LocalStore(str(folder)), later, clean.host)
            check_at_any_time(world.open())
            assert hudi_ids(folder) == visible_ids(world.open())
            assert visible_ids(world.open()) in (OLD, OLD | NEW)

            world.insert("next")

            check_at_rest(world.open())
            seen = visible_ids(world.open()) - {"next"}
            assert seen in (OLD, OLD | NEW)
            assert hudi_ids(folder) == seen | {"next"}
            shutil.rmtree(folder)
    request.config.summary_lines.append(
        f"real deaths by {die.__name__}: {2 * count} points, data lost 0, orphans 0"
    )


WRITER = """
import sys
sys.path[:0] = {path!r}
import holdfast
from harness.faults import CrashingStore, die_by_signal
from holdfast.engines.spark.session import local_session
from dataclasses import replace
from pyspark.sql import functions as f

spark = local_session("doomed", master="local[2]")
table = holdfast.open_table({table!r})
step = {step}
if step:
    opened = table._opened
    deadly = CrashingStore(opened.store, step, after=True, die=die_by_signal)
    table = holdfast.Table(replace(opened, store=deadly))
rows = spark.range(0, {rows}, 1, 2).select(
    f.concat(f.lit("new"), f.col("id").cast("string")).alias("id"),
    f.concat(f.lit("c"), (f.col("id") % 3).cast("string")).alias("city"),
)
print("writing", flush=True)
table.bulk_insert(rows)
print("written", flush=True)
"""


def _start_writer(folder, *, step, rows):
    path = [str(Path(__file__).resolve().parent.parent), *sys.path]
    script = WRITER.format(path=path, table=str(folder), step=step, rows=rows)
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait_for_marker(folder, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if any(folder.glob(".hoodie/.temp/*/*/*.marker.*")):
            return
        time.sleep(0.01)
    raise AssertionError("the writer left no marker")


@pytest.mark.spark
@pytest.mark.parametrize("moment", ["while its tasks write", "after its decision"])
def test_a_spark_job_killed_with_sigkill_is_taken_back_or_shown_whole(tmp_path, moment):
    """BEGIN, heartbeat, requested and inflight are the driver's first four changes, COMMIT its fifth."""
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    table.insert(holdfast_rows("old1", "old2"))
    while_writing = moment == "while its tasks write"
    writer = _start_writer(tmp_path, step=0 if while_writing else 5, rows=3_000_000 if while_writing else 300)
    if while_writing:
        _wait_for_marker(tmp_path)
        writer.kill()
    writer.wait(timeout=180)
    _kill_session(writer.pid)
    assert writer.returncode == -signal.SIGKILL
    table = holdfast.open_table(str(tmp_path))
    assert table.to_arrow().num_rows == 2
    assert hudi_ids(tmp_path) == {"old1", "old2"}

    commit = table.insert(holdfast_rows("next"))

    check_at_rest(table._opened)
    expected = 3 if while_writing else 303
    assert table.to_arrow().num_rows == expected
    assert len(hudi_ids(tmp_path)) == expected
    assert len(commit.rolled_back) == (1 if while_writing else 0)


def holdfast_rows(*ids):
    import pyarrow as pa

    return pa.table({"id": list(ids), "city": ["c0"] * len(ids)})


def _kill_session(session):
    """Kill what the writer started: the JVM, and the Python workers in groups of their own."""
    while members := [
        pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_in(pid, session)
    ]:
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _is_in(pid, session):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    state, session_id = fields[0], int(fields[3])
    return session_id == session and state not in "ZX"
