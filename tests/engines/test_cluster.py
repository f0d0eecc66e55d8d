"""A standalone Spark cluster: tables are written, read and pushed by executors in processes of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.guides import Guide
from harness.lake_pushes import service
from harness.push_client import Client, make_table
from harness.spark_cluster import spark_cluster

pytestmark = pytest.mark.spark

PRELUDE = """
import sys, time
import holdfast
from holdfast.engines.spark.session import session_at
from holdfast.push import run_job

spark = session_at("cluster", sys.argv[1])
spark.conf.set("spark.sql.shuffle.partitions", "4")
"""

STORY = """
rows = spark.range(0, 1000, 1, 4).selectExpr(
    "concat('k', id) id", "concat('c', id % 3) city", "id ts", "id / 4 fare"
)
table = holdfast.create_table(sys.argv[2], name="trips", record_key="id", partition_by="city", ordering="ts")
first = table.bulk_insert(rows)
second = table.upsert(rows.where("ts < 100").selectExpr("id", "city", "ts + 5000 ts", "fare + 1 fare"))
assert (second.records_updated, second.records_inserted) == (100, 0), second
# Partitions that are too large for one task: keys are sent to all.
small = {"hoodie.parquet.max.file.size": "2048"}
third = table.upsert(rows.where("ts < 50").selectExpr("id", "city", "ts + 6000 ts", "fare"), options=small)
assert (third.records_updated, third.records_inserted) == (50, 0), third
assert table.read(spark).count() == 1000
assert table.read(spark).where("ts >= 5000").count() == 100
assert table.read(spark, as_of=first.instant).where("ts >= 5000").count() == 0
assert not table.verify().findings
print("told")
"""

SLOW_PUSH = """
def slowly(batches):
    for batch in batches:
        time.sleep(0.3)
        yield batch

spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
rows = spark.range(0, 4000, 1, 8).selectExpr("id", "concat('c', id % 3) city")
report = run_job(
    {
        "tableSpec": {"tableName": sys.argv[2]},
        "pinotClusterSpecs": [{"controllerURI": sys.argv[3]}],
        "segments": {"rows": 100},
        "gates": [{"min_rows": 4000}, {"max_rows": 4000}, {"unique": "id"}],
    },
    frame=rows.mapInArrow(slowly, rows.schema),
)
assert report.rows == 4000, report
print("pushed", len(report.segments))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def test_a_table_is_written_corrected_and_read_by_two_workers(cluster, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", PRELUDE + STORY, cluster.master, tmp_path / "trips"],
        env=cluster.environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip

    assert "told" in ran.stdout, ran.stderr[-5000:]
    assert cluster.workers_that_ran() == 2


def test_the_guide_to_clusters_runs(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    Guide("docs/cluster.md", ports={"7077": str(cluster.port)}, environment=cluster.environment).run()


def test_an_executor_that_is_killed_while_it_builds_segments_loses_and_doubles_nothing(cluster, tmp_path):
    with service(tmp_path) as running:
        table = make_table(Client(running), consistent=True)
        job = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + SLOW_PUSH, cluster.master, table.name, running.controller_url],
            env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        killed = kill_an_executor_once_there_are_segments(cluster, tmp_path / "segments", job)
        out, errors = job.communicate(timeout=200)

        assert job.returncode == 0, errors[-5000:]
        assert killed not in cluster.executors()
        answer = table.client.sql(f"SELECT count(*), count(DISTINCT id) FROM {table.name}")
        assert answer["resultTable"]["rows"] == [[4000, 4000]]
        files = list((tmp_path / "segments").rglob("*.parquet"))
        assert len(files) == int(out.split()[-1]) == len(table.visible())


def kill_an_executor_once_there_are_segments(cluster, folder: Path, job) -> int:
    deadline = time.monotonic() + 120
    while len(list(folder.rglob("*.parquet"))) < 5:
        assert job.poll() is None, job.stderr.read()[-5000:]
        assert time.monotonic() < deadline, "no segment was built"
        time.sleep(0.05)
    executor = cluster.executors()[0]
    os.kill(executor, signal.SIGKILL)
    return executor
