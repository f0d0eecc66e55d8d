"""What a worker keeps for later queries never takes the memory that the next one needs."""

import os
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.config.push_schema import DataType
from holdfast.model.segment import Segment
from holdfast.push.queries.columns import Column
from holdfast.push.queries.engine import Cancellation, Work
from holdfast.push.queries.pool import PoolSettings, WorkerPool
from holdfast.push.queries.scopes import View
from holdfast.storage.store import StoreLocation

COLUMNS, ROW_GROUPS, SEGMENTS, SNAPSHOTS = 100, 10, 120, 6
MEMORY_BYTES = 128 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Wide segments of few rows: their footers are most of them."""
    folder = tmp_path_factory.mktemp("wide")
    rows = pa.table({f"c{number}": list(range(ROW_GROUPS)) for number in range(COLUMNS)})
    pq.write_table(rows, folder / "0", row_group_size=1)
    for number in range(1, SEGMENTS + SNAPSHOTS):
        os.link(folder / "0", folder / str(number))
    return folder


@pytest.fixture
def pool(folder):
    settings = PoolSettings(workers=1, spares=0, threads=1, memory_bytes=MEMORY_BYTES)
    pool = WorkerPool(StoreLocation(str(folder), {}), settings)
    pool.start()
    yield pool
    pool.close()


def total(pool, first):
    view = View(name="t", table="wide_OFFLINE", columns=(Column(name="c0", kind=DataType.LONG),))
    segments = tuple(
        Segment(name=str(number), crc=0, docs=ROW_GROUPS, size_bytes=0, uri=str(number))
        for number in range(first, first + SEGMENTS)
    )
    work = Work(sql='SELECT sum("c0") AS n FROM "t"', views=((view, segments),), max_rows=10)
    answer = pool.run(work, deadline_s=time.monotonic() + 60, cancellation=Cancellation())
    return answer.to_pydict()["n"]


def test_snapshots_of_wide_segments_are_answered_one_after_the_other_by_the_same_process(pool):
    pids = pool.pids
    for first in range(SNAPSHOTS):
        for _ in range(2):
            assert total(pool, first) == [SEGMENTS * sum(range(ROW_GROUPS))]
        time.sleep(0.1)  # Long enough for what a worker does between two queries.

    assert pool.pids == pids


SHORT_OF_MEMORY = """
import resource
from holdfast.push.queries import wire
from holdfast.push.queries.instances import Instances

def grow_by(extra_bytes):
    mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + extra_bytes, resource.RLIM_INFINITY))

def ask(path):
    with instances.connection((path,)) as connection:
        return connection.execute("SELECT 1").fetchall()

instances = Instances(wire.Setup("/", {}, [], False, 128 << 20, 1, False))
ask("/a")
grow_by(1 << 20)
instances.prepare()
print(ask("/a"))
grow_by(1 << 30)
print(ask("/b"))
"""


def test_a_worker_without_memory_for_another_instance_waits_for_the_next_query():
    ended = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, timeout=60, check=False
    )

    assert (ended.stdout.split(), ended.returncode) == (["[(1,)]", "[(1,)]"], 0), ended.stderr[-2000:]
