"""Pipelines that are killed with SIGKILL at moments that chance chooses, and run again."""

import os
import random
import subprocess
import sys
import time

import pytest

import holdfast
from harness.checker import check_at_rest
from harness.processes import kill_session
from holdfast.jobs.ingested import Register
from holdfast.table.opened import open_at
from holdfast.timeline.timeline import load_timeline

SEED = int(os.environ.get("HOLDFAST_SEED", "20261116"))
KILLS = 3
FILES = 24
ROWS = 20

PIPELINE = """
name: numbers
source: {format: csv, path: in/*.csv, files_per_run: 2}
transform: SELECT id, concat('c', id % 3) AS city FROM source
table:
  path: lake
  record_key: id
  partition_by: city
  operation: bulk_insert
  options: {hoodie.cleaner.commits.retained: 2, hoodie.keep.min.commits: 4, hoodie.keep.max.commits: 6}
"""


def _deliver(folder):
    (folder / "in").mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        (folder / "in" / f"{number:03}.csv").write_text("id\n" + "".join(f"{n}\n" for n in ids))
    (folder / "numbers.yaml").write_text(PIPELINE)


def _start(folder):
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "run",
        "numbers.yaml",
        "--every",
        "0.01",
        "--master",
        "local[2]",
    ]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _ingested(folder):
    """How many files are in commits that stand; 0 before there is a table."""
    path = str(folder / "lake")
    return len(Register(open_at(path)).read().files) if holdfast.table_exists(path) else 0


def _wait(process, folder, *, more_than):
    deadline = time.monotonic() + 300
    while _ingested(folder) <= more_than:
        assert process.poll() is None, "the pipeline ended"
        assert time.monotonic() < deadline, "the pipeline does not get on"
        time.sleep(0.02)


@pytest.mark.spark
def test_every_row_of_many_small_files_is_ingested_exactly_once_whatever_is_killed(tmp_path, request):
    """Keys are not looked for, so a row that comes twice is seen twice."""
    chance = random.Random(SEED)
    _deliver(tmp_path)
    moments = []
    for _ in range(KILLS):
        process = _start(tmp_path)
        try:
            _wait(process, tmp_path, more_than=_ingested(tmp_path))
            time.sleep(chance.uniform(0, 1.5))
        finally:
            kill_session(process.pid)
            process.wait(timeout=60)
        moments.append(_ingested(tmp_path))
    assert moments == sorted(moments)
    assert moments[-1] < FILES, "all was done before the last kill"
    process = _start(tmp_path)
    try:
        _wait(process, tmp_path, more_than=FILES - 1)
        process.terminate()
        assert process.wait(timeout=60) == 0
    finally:
        kill_session(process.pid)

    table = open_at(str(tmp_path / "lake"))
    ids = holdfast.open_table(str(tmp_path / "lake")).to_arrow()["id"].to_pylist()
    assert sorted(ids) == list(range(FILES * ROWS))
    check_at_rest(table)
    commits = len(load_timeline(table.store).completed_commits)
    request.config.summary_lines.append(
        f"pipeline killed {KILLS} times, after {moments} of {FILES} files: {commits} commits left on the "
        f"timeline, rows lost 0, rows doubled 0 (seed {SEED})"
    )
