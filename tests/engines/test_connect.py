"""Spark Connect: the core of the suite through a remote session, on the server that comes with PySpark.

The client runs in processes of its own: whether PySpark is remote is decided once in each.
"""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

from harness.servers import free_port, serving_beside
from holdfast.jobs.service_client import ServiceClient

pytestmark = pytest.mark.spark

TESTS = Path(__file__).resolve().parent.parent
SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 120
CORES = 2
HOLDFAST = TESTS.parent / ".venv" / "bin" / "holdfast"
"""With everything that the service needs, which the environments of the matrix have not."""

if not list(SPARK_HOME.glob("jars/spark-connect_*.jar")):
    pytest.skip(
        f"PySpark {pyspark.__version__} brings no Connect server: there it is a jar of its own",
        allow_module_level=True,
    )
if importlib.util.find_spec("grpc") is None:
    pytest.skip("needs pyspark[connect]; make test-matrix has it", allow_module_level=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server; a failed task is tried again, as on a cluster."""
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Over a handful of rows most of the time goes into compiling.
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    command = [SPARK_HOME / "bin" / "spark-submit", "--master", f"local[{CORES},4]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
    try:
        wait_for(port, process, folder / "log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def wait_for(port, process, log):
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server did not start: {log.read_text()[-3000:]}")
            time.sleep(0.2)


def remotely(server, *arguments):
    environment = {**os.environ, "SPARK_REMOTE": server}
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=TESTS.parent, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-5_000:]
    return ran.stdout


@pytest.mark.parametrize(
    "tests",
    [
        ["tests/behaviour/test_spark_writes.py"],
        ["tests/behaviour/test_spark_merges.py", "-k", "written_without_it or crowded or spelled or spread"],
        ["tests/read"],
    ],
    ids=["writes", "merges", "reads"],
)
def test_the_core_of_the_suite_runs_through_a_remote_session(server, tests):
    said = remotely(server, "-m", "pytest", "-m", "spark", "-p", "no:cacheprovider", *tests)

    assert "passed" in said


STORY = """
import sys
from pyspark.sql import SparkSession
import holdfast
from holdfast.engines.spark.routing import parallelism

spark = SparkSession.builder.getOrCreate()
assert "connect" in type(spark).__module__, type(spark)
assert parallelism(spark) == int(sys.argv[2]), "as many tasks as the server runs at once"
spark.conf.set("spark.sql.shuffle.partitions", "2")
rows = spark.range(100).selectExpr("concat('k', id) id", "concat('c', id % 3) city", "id ts", "id / 4 fare")
newer = rows.where("ts < 10").selectExpr("id", "city", "ts + 1000 ts", "fare + 1 fare")

for number, index in enumerate(("SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "BUCKET")):
    options = {"hoodie.index.type": index}
    if index == "BUCKET":
        options["hoodie.bucket.index.num.buckets"] = "2"
    path = f"{sys.argv[1]}/{number}"
    table = holdfast.create_table(path, name="trips", record_key="id", partition_by="city", ordering="ts")
    first = table.bulk_insert(rows, options=options)
    second = table.upsert(newer, options=options)
    assert (second.records_updated, second.records_inserted) == (10, 0), second
    assert table.delete(rows.where("ts = 50").select("id", "city"), options=options).records_deleted == 1
    table.insert_overwrite(rows.where("city = 'c0'").limit(5), options=options)
    assert table.read(spark).where("city = 'c0'").count() == 5
    assert table.read(spark, as_of=first.instant).count() == 100
    assert table.changes(spark, since=first.instant, until=second.instant).count() == 10
print("told")
"""


def test_a_table_is_made_changed_and_read_with_every_index(server, tmp_path):
    assert "told" in remotely(server, "-c", STORY, str(tmp_path), str(CORES))


STATEMENTS = """
import sys
from pyspark.sql import SparkSession
import holdfast

spark = SparkSession.builder.getOrCreate()
spark.range(3).selectExpr("CAST(id AS INT) id", "'c' city", "9D fare").createOrReplaceTempView("news")

def sql(text):
    answer = holdfast.sql(spark, text, catalog={"trips": sys.argv[1] + "/trips"})
    return sorted(map(tuple, answer.collect())) if hasattr(answer, "collect") else answer

columns = "id INT, fare DOUBLE, city STRING"
sql(f"CREATE TABLE trips ({columns}) PARTITIONED BY (city) TBLPROPERTIES (primaryKey = 'id')")
first = sql("INSERT INTO trips VALUES (1, 1, 'c'), (5, 5, 'd'), (6, 6, 'd')").instant
sql("UPDATE trips SET city = 'e', fare = fare + 1 WHERE id = 5")
sql("DELETE FROM trips WHERE id = 6")
clauses = (
    "WHEN MATCHED THEN UPDATE SET fare = t.fare + s.fare",
    "WHEN NOT MATCHED AND s.id > 1 THEN INSERT *",
    "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET fare = 0",
)
sql("MERGE INTO trips t USING news s ON t.id = s.id " + " ".join(clauses))
rows = sql("SELECT * FROM trips")
assert rows == [(1, 10.0, "c"), (2, 9.0, "c"), (5, 0.0, "e")], rows
assert len(sql(f"SELECT * FROM trips VERSION AS OF {first}")) == 3
assert sql("DESCRIBE trips")[0][0] == "city"
print("told")
"""


def test_statements_run_through_a_remote_session(server, tmp_path):
    assert "told" in remotely(server, "-c", STATEMENTS, str(tmp_path))


PUSH = """
import sys
from pyspark.sql import SparkSession
import holdfast
from holdfast.push import run_job

spark = SparkSession.builder.getOrCreate()
assert "connect" in type(spark).__module__, type(spark)
lake = holdfast.create_table(sys.argv[1], name="orders", record_key="id")
lake.bulk_insert(spark.range(0, 100, 1, 4).selectExpr("id", "concat('c', id % 3) city"))
job = {
    "tableSpec": {"tableName": "orders"},
    "pinotClusterSpecs": [{"controllerURI": sys.argv[2]}],
    "segments": {"rows": 10},
    "gates": [{"min_rows": 100}, {"unique": "id"}],
}
first = run_job({**job, "source": {"table": sys.argv[1]}}, spark)
assert (first.rows, first.source["lake.table"]) == (100, sys.argv[1]), first
assert len(first.segments) >= 10
second = run_job({**job, "gates": []}, frame=spark.range(7).selectExpr("id", "'oslo' city"))
assert sorted(second.replaced) == sorted(first.segments)
print("pushed")
"""


def test_a_table_is_pushed_through_a_remote_session(server, tmp_path):
    controller, broker = free_port(), free_port()
    (tmp_path / "serve.yaml").write_text(f"controller: {{port: {controller}}}\nbroker: {{port: {broker}}}\n")
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent / "src")}
    command = [str(HOLDFAST), "serve", "--config", str(tmp_path / "serve.yaml")]
    with serving_beside(command, environment=environment):
        client = ServiceClient(f"http://127.0.0.1:{controller}")
        client.post("/schemas", {"schemaName": "orders", "dimensionFieldSpecs": [
            {"name": "id", "dataType": "LONG"}, {"name": "city", "dataType": "STRING"},
        ]})  # fmt: skip
        batch = {"segmentIngestionType": "REFRESH", "consistentDataPush": True}
        client.post("/tables", {
            "tableName": "orders", "tableType": "OFFLINE", "segmentsConfig": {"replication": "1"},
            "ingestionConfig": {"batchIngestionConfig": batch},
        })  # fmt: skip

        assert "pushed" in remotely(server, "-c", PUSH, str(tmp_path / "lake"), client.url)

        answer = client.post("/sql", {"sql": "SELECT count(*), min(city) FROM orders"})
        assert answer["resultTable"]["rows"] == [[7, "oslo"]]
