"""A standalone Spark cluster: tables are written, read and pushed by executors in processes of their own."""

import subprocess
import sys

import pytest

from harness.guides import Guide
from harness.spark_cluster import spark_cluster

pytestmark = pytest.mark.spark

PRELUDE = """
import sys
import holdfast
from holdfast.engines.spark.session import session_at

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
assert table.read(spark).count() == 1000
assert table.read(spark).where("ts >= 5000").count() == 100
assert table.read(spark, as_of=first.instant).where("ts >= 5000").count() == 0
assert not table.verify().findings
print("told")
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
