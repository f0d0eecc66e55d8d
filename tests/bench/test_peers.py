"""The contest of peers, as far as it goes without fetching any: the processes, the tasks, the refusals."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.framework import run_workload
from bench.peers import workloads
from bench.peers.engine import Load, Setting
from bench.peers.remote import Peer, PeerFailed, ReportedMeter
from bench.peers.rows import make_rows
from bench.plots import Bar, plot_bars

ROOT = Path(__file__).resolve().parents[2]
GROUPS, VERSIONS = 6, 4


@pytest.fixture
def started(tmp_path):
    peers = []

    def start(name, engine):
        setting = Setting(workspace=str(tmp_path / "workspace"), cores=2, memory="1g")
        peers.append(Peer(name, engine, setting, log=tmp_path / f"{engine}.log"))
        return peers[-1]

    yield start
    for peer in peers:
        peer.end()


def trips(path, *keys, ts):
    count = len(keys)
    columns = {
        "trip_id": list(keys),
        "ts": [ts] * count,
        "city": ["oslo"] * count,
        "duration": [10] * count,
        "seats": [2] * count,
        "distance": [1.5] * count,
        "latitude": [59.9] * count,
        "longitude": [10.7] * count,
    }
    pq.write_table(pa.table(columns), path)
    return Load(path=str(path))


def test_a_peer_does_what_it_is_asked_for_and_says_what_it_took(started, tmp_path):
    peer = started("deltalake", "deltalake")
    table = str(tmp_path / "table")
    peer.ask("load", table=table, rows=trips(tmp_path / "old.parquet", "a", "b", ts=1))

    written = peer.ask("upsert", table=table, rows=trips(tmp_path / "new.parquet", "b", "c", ts=5))

    assert peer.ask("read", table=table).value == [["oslo", 3, 11, 30, 6, 1.5, 59.9, 10.7, "a"]]
    assert written.usage.seconds > 0
    assert written.usage.driver_peak_bytes > 0
    assert written.usage.jvm_peak_bytes == 0


def test_what_a_peer_cannot_do_names_it_and_its_log(started, tmp_path):
    peer = started("deltalake", "deltalake")

    with pytest.raises(PeerFailed, match=r"deltalake: TableNotFoundError: .*deltalake\.log"):
        peer.ask("read", table=str(tmp_path / "nothing"))


def test_a_peer_that_does_not_start_names_its_log(started):
    with pytest.raises(PeerFailed, match=r"ended with 1; see .*nobody\.log"):
        started("nobody", "nobody").ask("read", table="")


def test_another_spark_is_refused_in_one_sentence(tmp_path):
    command = [sys.executable, "-m", "bench.peers", "--quick", "--data", str(tmp_path)]

    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert ran.returncode == 1
    assert ran.stderr.startswith("holdfast: the peers need Spark 3.5.x and this environment has ")
    assert ran.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_every_quantity_of_a_workload_is_drawn(tmp_path):
    path = tmp_path / "bars.png"

    plot_bars(path, "upsert", [Bar("one", {"seconds": 1.0, "files": 3}), Bar("two", {"seconds": 2.5})])

    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.spark
def test_holdfast_and_deltalake_come_to_the_same_in_every_task(started, spark, tmp_path):
    data, workspace = tmp_path / "data", tmp_path / "workspace"
    rows = make_rows(spark, data, 3_000, groups=GROUPS, has_more=False)
    peers = [started(workloads.OURS, "holdfast"), started(workloads.DELTALAKE, "deltalake")]
    arena = workloads.Arena(peers, data, workspace)
    wanted = (
        workloads.bulk_load(arena, rows.all, rows.count),
        workloads.upsert(arena, rows, 10),
        workloads.delete(arena, rows),
        workloads.overwrite(arena, rows),
        workloads.snapshot_read(arena, rows),
        workloads.change_read(arena, rows),
        workloads.time_travel(arena, rows),
        workloads.undo(arena, rows),
        workloads.reclaim(arena, rows, groups=GROUPS, versions=VERSIONS),
        workloads.recovery(arena, rows, tasks=1),
    )

    for workload in wanted:
        result = run_workload(
            workload,
            ReportedMeter(),
            rounds=1,
            workspace=workspace,
            settle=lambda: None,
            announce=lambda _step: None,
        )
        assert result.counted[0][workloads.OURS].usage.seconds > 0, workload.name
