"""The format `holdfast` of Spark: what it reads, what it writes, and what a failed write leaves."""

import pathlib
import subprocess
import sys
import time
from decimal import Decimal

import pyarrow as pa
import pyspark
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as f

import holdfast
import holdfast.spark
from harness.checker import Violation, check_at_rest
from harness.hudi_reader import hudi_snapshot
from holdfast.config.choices import ConcurrencyMode, FailedWritesPolicy, Operation
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.errors import Fenced, InvalidRequest, WriterActive
from holdfast.table.opened import open_at
from holdfast.writes import operations
from holdfast.writes.origin import Origin

pytestmark = pytest.mark.spark

HAS_SOURCES = int(pyspark.__version__.split(".")[0]) >= 4
needs_sources = pytest.mark.skipif(not HAS_SOURCES, reason="PySpark 4.0 has the first Python data sources")

OPERATION = "hoodie.datasource.write.operation"
BULK = {OPERATION: "bulk_insert"}
KEYS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
}


@pytest.fixture(scope="module")
def sources(spark):
    """The session, which knows the format."""
    holdfast.spark.install(spark)
    return spark


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "trips")


def trips(spark, first, count):
    return spark.range(first, first + count, 1, 2).selectExpr(
        "cast(id AS string) id", "concat('c', id % 3) city", "id ts", "id / 4 fare"
    )


def load(spark, path, **options):
    return spark.read.format("holdfast").options(**options).load(path)


def save(rows, path, options, mode="append"):
    rows.write.format("holdfast").mode(mode).options(**options).save(path)


def ids(frame):
    return sorted(int(row.id) for row in frame.select("id").collect())


@pytest.mark.skipif(HAS_SOURCES, reason="this PySpark has Python data sources")
def test_an_old_pyspark_is_told_what_to_use_instead(spark):
    with pytest.raises(InvalidRequest, match=r"holdfast\.write"):
        holdfast.spark.install(spark)


@needs_sources
def test_a_hudi_job_keeps_its_options_when_only_the_format_changes(sources, path):
    described = {"hoodie.metadata.enable": "false", "hoodie.datasource.hive_sync.database": "Lake"}
    tuned = {"hoodie.parquet.page.size": "1", "holdfast.ignore.tuning.options": "true"}

    save(trips(sources, 0, 6), path, KEYS | BULK | described | tuned)

    assert ids(load(sources, path, **described, **tuned)) == list(range(6))
    with pytest.raises(Exception, match=r"hive_sync\.enable"):
        save(trips(sources, 0, 6), path, KEYS | BULK | {"hoodie.datasource.hive_sync.enable": "true"})


@needs_sources
def test_rows_of_every_type_are_read_as_the_table_reads_them(sources, path):
    rows = sources.createDataFrame(
        [(1, Decimal("1.50"), b"x", [1, None], {"k": 1.5}, (7, "s"), None), (2,) + (None,) * 6],
        "id long, d decimal(9,2), b binary, l array<int>, m map<string,double>, "
        "s struct<x:int,y:string>, t timestamp_ntz",
    ).selectExpr("*", "current_timestamp() AS at", "current_date() AS day")
    table = holdfast.create_table(path, name="x", record_key="id")
    table.bulk_insert(rows)

    assert load(sources, path).schema == table.read(sources).schema
    assert sorted(load(sources, path).collect()) == sorted(table.read(sources).collect())


@needs_sources
def test_a_frame_is_one_snapshot_and_any_snapshot_can_be_asked_for(sources, path):
    first = holdfast.write(trips(sources, 0, 30), path, KEYS | BULK)
    frame = load(sources, path)
    assert ids(frame) == list(range(30))

    second = holdfast.write(trips(sources, 30, 30), path, KEYS | BULK)

    assert ids(frame) == list(range(30))
    assert ids(load(sources, path)) == list(range(60))
    assert ids(load(sources, path, **{"as.of.instant": first.instant})) == list(range(30))
    changed = load(
        sources,
        path,
        **{
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": first.instant,
        },
    )
    assert ids(changed) == list(range(30, 60))
    assert {row[0] for row in changed.select("_hoodie_commit_time").collect()} == {second.instant}


def _plain(rows):
    return sorted(tuple(row) for row in rows.select("id", "city", "fare").collect())


@needs_sources
def test_now_is_read_while_an_older_write_is_undecided(sources, path):
    """As by `table.read` and `changes`: at once, and a frame keeps to the files that it found."""
    table = holdfast.create_table(path, name="trips", record_key="id", partition_by="city")
    shared = WriteSettings(
        concurrency_mode=ConcurrencyMode.OPTIMISTIC, failed_writes_policy=FailedWritesPolicy.LAZY
    )
    first = table.insert(_one("first", "rome"))
    found = []

    def while_it_runs():
        add("younger", "oslo")
        began = time.monotonic()
        now = load(sources, path)
        changed = load(
            sources,
            path,
            **{
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": first.instant,
            },
        )
        seen = _plain(now), _plain(changed)
        expected = _plain(table.read(sources)), _plain(table.changes(sources, since=first.instant))
        found.extend((now, changed, seen, expected, time.monotonic() - began))

    def add(key, city, check=lambda: None):
        rows = ArrowRows(_one(key, city))
        operations.write(open_at(path), Operation.UPSERT, rows, shared, origin=Origin(check=check))

    add("older", "paris", while_it_runs)

    now, changed, seen, expected, took = found
    assert seen == expected == ([("first", "rome", 1.0), ("younger", "oslo", 1.0)], [])
    assert took < 60
    assert (_plain(now), _plain(changed)) == seen, "a frame is one snapshot"
    assert len(_plain(load(sources, path))) == 3


def _one(key, city):
    return pa.table({"id": [key], "city": [city], "fare": [1.0]})


@needs_sources
def test_columns_are_pruned_by_name_and_by_schema(sources, path):
    holdfast.write(trips(sources, 0, 30), path, KEYS | BULK)

    assert load(sources, path, columns="fare, _hoodie_record_key").columns == ["fare", "_hoodie_record_key"]
    narrow = sources.read.schema("fare double, id string").format("holdfast").load(path)
    assert sorted(narrow.collect())[-1] == (29 / 4, "29")
    with pytest.raises(Exception, match=r"SchemaMismatch.*column: fare"):
        sources.read.schema("fare string").format("holdfast").load(path).collect()


@needs_sources
def test_filters_give_the_rows_that_spark_gives(sources, path):
    rows = trips(sources, 0, 100).withColumn("fare", f.expr("if(ts % 10 = 0, double('NaN'), fare)"))
    rows = rows.withColumn("maybe", f.expr("if(ts % 2 = 0, ts, null)"))
    rows = rows.withColumn("day", f.expr("date_add(date'2024-01-01', int(ts))"))
    holdfast.write(rows, path, KEYS | BULK)

    for condition in (
        "city = 'c1' AND ts > 90",
        "fare > 20",
        "NOT fare <= 20",
        "maybe IS NULL AND ts < 10",
        "NOT (maybe = 4) AND ts <= 8",
        "maybe IN (4, 5, null, 6)",
        "maybe NOT IN (4, 6) AND ts < 10",
        "maybe <=> null AND ts < 5",
        "day = date'2024-01-03' OR ts = 7",
        "day >= date'2024-04-01'",
        "id LIKE '9%' AND city <> 'c0'",
    ):
        assert ids(load(sources, path).where(condition)) == ids(rows.where(condition)), condition


@needs_sources
@pytest.mark.parametrize("pushes_down", ["true", "false"])
def test_a_frame_that_was_filtered_still_has_all_its_rows(sources, path, pushes_down):
    """Spark may keep what one query pushed down with the relation, and give it to every other query."""
    holdfast.write(trips(sources, 0, 30), path, KEYS | BULK)
    setting = "spark.sql.python.filterPushdown.enabled"
    sources.conf.set(setting, pushes_down)
    try:
        frame = load(sources, path)
        frame.createOrReplaceTempView("filtered_trips")
        first, second = frame.where("ts < 10"), frame.where("ts >= 10 AND city = 'c1'")

        counts = [frame.count(), first.count(), frame.count(), second.count(), frame.count()]
        assert counts == [30, 10, 30, 7, 30]
        assert ids(first.union(second)) == sorted([*range(10), *range(10, 30, 3)])
        assert ids(first.union(frame)) == sorted([*range(10), *range(30)])
        joined = first.alias("a").join(frame.where("ts > 7").alias("b"), "id")
        assert sorted(int(row.id) for row in joined.select("id").collect()) == [8, 9]
        assert first.select("city").join(second.select("city"), "city").count() == 3 * 7
        assert sources.sql("SELECT * FROM filtered_trips WHERE city = 'c2'").count() == 10
        assert sources.sql("SELECT count(*) FROM filtered_trips").first()[0] == 30
        assert sources.sql("SELECT count(*) FROM filtered_trips WHERE ts IN (1, 2)").first()[0] == 2
    finally:
        sources.catalog.dropTempView("filtered_trips")
        sources.conf.unset(setting)


@needs_sources
def test_installing_sets_nothing_in_the_session(spark):
    # Not every line of PySpark has a way to ask for all settings.
    def settings():
        return sorted((row.key, row.value) for row in spark.sql("SET -v").collect())

    before = settings()
    holdfast.spark.install(spark)

    assert settings() == before


@needs_sources
def test_many_small_files_are_read_by_few_tasks(sources, path):
    rows = pa.table({"id": [str(i) for i in range(60)], "city": [f"c{i:02}" for i in range(60)]})
    holdfast.write(rows, path, KEYS | BULK)

    frame = load(sources, path)

    assert frame.select(f.spark_partition_id()).distinct().count() <= 5
    assert ids(frame) == list(range(60))


@needs_sources
def test_partitions_that_are_named_are_read_alone(sources, path):
    first = holdfast.write(trips(sources, 0, 30), path, KEYS | BULK)
    holdfast.write(trips(sources, 31, 1), path, KEYS | BULK)
    for broken in (file for file in holdfast.open_table(path).files() if file.partition == "c0"):
        (pathlib.Path(path) / broken.path).write_bytes(b"not a file that can be read")
    incremental = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": first.instant,
    }

    assert ids(load(sources, path, partitions="c1, c2/")) == sorted([*range(1, 30, 3), *range(2, 30, 3), 31])
    assert ids(load(sources, path, partitions="c2").where("ts > 20")) == [23, 26, 29]
    assert ids(load(sources, path, partitions="c1", **incremental)) == [31]
    assert ids(load(sources, path, partitions="c2", **incremental)) == []
    for wrong in ({"partitions": "c9"}, {"partitions": "c"}, {"partitions": "c9", **incremental}):
        with pytest.raises(Exception, match="the table has no such partition"):
            load(sources, path, **wrong)
    with pytest.raises(Exception, match="paths of partitions, separated by commas"):
        load(sources, path, partitions=" / ")


@needs_sources
def test_a_table_of_sparks_catalog_is_refused_with_what_to_do(sources, path):
    """But where Spark asks nothing of the format: then the first use of what it made is refused."""
    holdfast.write(trips(sources, 0, 3), path, KEYS | BULK)
    rows = trips(sources, 3, 3)
    said = r"Spark's catalog does not pass one on.*load\(path\) and save\(path\)"

    with pytest.raises(Exception, match=said):
        sources.sql(f"CREATE TABLE catalog_trips USING holdfast LOCATION '{path}'")
    with pytest.raises(Exception, match=said):
        rows.write.format("holdfast").options(**KEYS | BULK).saveAsTable("catalog_trips")
    assert not sources.catalog.tableExists("catalog_trips")

    with pytest.raises(Exception, match=said):
        sources.sql(f"CREATE TABLE catalog_trips USING holdfast LOCATION '{path}' AS SELECT '7' id")
    assert not sources.catalog.tableExists("catalog_trips")

    for place in ("", f"LOCATION '{path}'", f"OPTIONS (path '{path}')"):
        sources.sql(f"CREATE TABLE catalog_trips (id string, city string) USING holdfast {place}")
        try:
            with pytest.raises(Exception, match=said):
                sources.table("catalog_trips").collect()
            with pytest.raises(Exception, match=said):
                sources.sql("INSERT INTO catalog_trips VALUES ('7', 'c1')")
        finally:
            sources.sql("DROP TABLE catalog_trips")
        assert ids(load(sources, path)) == [0, 1, 2]

    # With a path the rows are written, and only the name in the catalog is of no use.
    writer = rows.write.format("holdfast").options(**KEYS | BULK, path=path).mode("append")
    writer.saveAsTable("catalog_trips")
    try:
        assert ids(load(sources, path)) == [0, 1, 2, 3, 4, 5]
        with pytest.raises(Exception, match=said):
            sources.table("catalog_trips").collect()
    finally:
        sources.sql("DROP TABLE catalog_trips")
    assert ids(load(sources, path)) == [0, 1, 2, 3, 4, 5]

    sources.sql(f"CREATE TEMPORARY VIEW named_trips USING holdfast OPTIONS (path '{path}')")
    try:
        assert ids(sources.table("named_trips")) == [0, 1, 2, 3, 4, 5]
    finally:
        sources.catalog.dropTempView("named_trips")


@needs_sources
def test_an_append_makes_the_table_and_is_one_commit_that_hudi_rs_reads(sources, path):
    save(trips(sources, 0, 30), path, KEYS | BULK)
    save(trips(sources, 30, 30), path, {OPERATION: "insert"})

    table = holdfast.open_table(path)
    assert [i.action for i in table.timeline()] == ["commit", "commit"]
    assert ids(load(sources, path)) == list(range(60))
    assert sorted(map(int, hudi_snapshot(path).column("id").to_pylist())) == list(range(60))
    assert len(table.files()) == 12, "two tasks, three cities, two commits"
    check_at_rest(table._opened)


@needs_sources
def test_an_overwrite_replaces_the_rows_and_leaves_the_way_back(sources, path):
    save(trips(sources, 0, 30), path, KEYS, mode="overwrite")
    before = holdfast.open_table(path).timeline()[-1]
    assert len(hudi_snapshot(path)) == 30, "an overwrite of nothing makes the table"

    save(trips(sources, 90, 5), path, {}, mode="overwrite")

    table = holdfast.open_table(path)
    assert [i.action for i in table.timeline()] == ["replacecommit", "replacecommit"]
    assert ids(load(sources, path)) == [90, 91, 92, 93, 94]
    assert sorted(map(int, hudi_snapshot(path).column("id").to_pylist())) == [90, 91, 92, 93, 94]
    assert ids(table.read(sources, as_of=before)) == list(range(30))


@needs_sources
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "upsert, the default.*holdfast.write"),
        ({OPERATION: "delete"}, "operation: delete"),
        (BULK | {"hoodie.table.name": "other"}, "contradicts the table"),
        (BULK | {"hoodie.parquet.max.filesize": "1"}, "did you mean"),
    ],
)
def test_what_cannot_be_done_here_is_refused_and_changes_nothing(sources, path, options, said):
    holdfast.write(trips(sources, 0, 3), path, KEYS | BULK)

    with pytest.raises(Exception, match=said):
        save(trips(sources, 0, 3), path, options)

    assert len(holdfast.open_table(path).timeline()) == 1


@needs_sources
def test_an_option_that_needs_a_shuffle_is_refused_and_makes_no_table(sources, path):
    with pytest.raises(Exception, match="this needs a shuffle"):
        save(trips(sources, 0, 3), path, KEYS | BULK | {"hoodie.index.type": "BUCKET"})

    assert not holdfast.table_exists(path)


@needs_sources
def test_a_row_without_a_key_fails_the_write_and_leaves_no_trace(sources, path):
    holdfast.write(trips(sources, 0, 30), path, KEYS | BULK)

    with pytest.raises(Exception, match="a record has no key"):
        save(trips(sources, 30, 30).withColumn("id", f.expr("if(ts = 45, null, id)")), path, BULK)

    table = holdfast.open_table(path)
    assert [i.action for i in table.timeline()] == ["commit", "rollback"]
    assert ids(load(sources, path)) == list(range(30))
    check_at_rest(table._opened)


@needs_sources
def test_a_task_that_is_tried_again_counts_once(sources, path):
    def fails_once(batches):
        yield from batches
        if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 1:
            raise RuntimeError("the first attempt at this task dies after its rows")

    rows = trips(sources, 0, 3000)

    save(rows.mapInArrow(fails_once, rows.schema), path, KEYS | BULK)

    table = holdfast.open_table(path)
    assert ids(load(sources, path)) == list(range(3000))
    check_at_rest(table._opened)


@needs_sources
def test_a_job_that_fails_is_rolled_back_at_once(sources, path):
    holdfast.write(trips(sources, 0, 3), path, KEYS | BULK)

    fare = f.expr("if(ts = 2999, raise_error('on purpose'), fare)").cast("double")

    with pytest.raises(Exception, match="on purpose"):
        save(trips(sources, 0, 3000).withColumn("fare", fare), path, BULK)

    table = holdfast.open_table(path)
    assert [i.action for i in table.timeline()] == ["commit", "rollback"]
    check_at_rest_in_the_end(table)


def check_at_rest_in_the_end(table, seconds=30):
    """Other tasks of a failed job may run on for a moment; what they leave goes with the next recovery."""
    deadline = time.monotonic() + seconds
    while True:
        table.roll_back_failed_writes()
        try:
            return check_at_rest(table._opened)
        except Violation:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@needs_sources
def test_another_writer_is_told_that_the_application_is_still_writing(sources, path):
    """The other one writes from within a task, and its rows say what it was told."""

    def rival(batches):
        list(batches)
        row = {"id": ["rival"], "city": ["c0"], "ts": [1], "fare": [1.0]}
        try:
            holdfast.open_table(path).bulk_insert(pa.table(row))
        except WriterActive:
            row["id"] = ["WriterActive"]
        yield pa.RecordBatch.from_pydict(row)

    holdfast.write(trips(sources, 0, 3), path, KEYS | BULK)
    rows = trips(sources, 0, 1).coalesce(1)

    save(rows.mapInArrow(rival, rows.schema), path, BULK)

    assert "WriterActive" in holdfast.open_table(path).to_arrow().column("id").to_pylist()


@needs_sources
def test_a_write_that_was_rolled_back_meanwhile_cannot_commit(path):
    """Begun in a process that no application stands behind, so that the next writer may end it."""
    from holdfast.engines.spark.source_writer import begin_write
    from holdfast.engines.spark.types import spark_schema_of
    from holdfast.storage.open import location_of

    rows = pa.table({"id": ["a"], "city": ["rome"]})
    holdfast.write(rows, path, KEYS | BULK)
    writer = begin_write(location_of(path), BULK, spark_schema_of(rows.schema), overwrite=False)

    next_commit = holdfast.write(rows, path, BULK)

    assert len(next_commit.rolled_back) == 1
    with pytest.raises(Fenced):
        writer.commit([])
    writer.abort([])
    assert holdfast.open_table(path).to_arrow().num_rows == 2
    check_at_rest(holdfast.open_table(path)._opened)


_DYING_DRIVER = """
import glob, os, signal, sys, time
import holdfast.spark
from holdfast.engines.spark.session import local_session

spark = local_session("dies", master="local[2]")
holdfast.spark.install(spark)
path = sys.argv[1]
jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

def kill_when_a_file_is_there(batches):
    for batch in batches:
        yield batch
    while len(glob.glob(path + "/*.parquet")) < 3:
        time.sleep(0.1)
    os.kill(jvm, signal.SIGKILL)

rows = spark.range(0, 200_000, 1, 1).selectExpr("cast(id AS string) id", "'c0' city", "id ts", "id / 4 fare")
rows = rows.mapInArrow(kill_when_a_file_is_there, rows.schema)
options = {"hoodie.datasource.write.operation": "bulk_insert", "hoodie.parquet.max.file.size": "65536"}
rows.write.format("holdfast").mode("append").options(**options).save(path)
"""


@needs_sources
def test_a_driver_that_is_killed_leaves_nothing_that_is_seen_and_the_next_write_removes_it(path):
    rows = pa.table({"id": ["a"], "city": ["c0"], "ts": [1], "fare": [1.0]})
    flat = {name: value for name, value in KEYS.items() if "partition" not in name}
    holdfast.write(rows, path, flat | BULK)

    ran = subprocess.run(
        [sys.executable, "-c", _DYING_DRIVER, path], capture_output=True, text=True, timeout=300
    )

    assert ran.returncode != 0
    table = holdfast.open_table(path)
    assert [i.state for i in table.timeline()] == ["COMPLETED", "INFLIGHT"], ran.stderr
    assert table.to_arrow().num_rows == 1
    commit = holdfast.write(rows, path, BULK)
    assert len(commit.rolled_back) == 1
    assert commit.rolled_back[0].deleted
    check_at_rest(table._opened)


@needs_sources
def test_a_first_write_that_is_refused_makes_no_table_and_a_corrected_one_does(sources, path):
    without_key = sources.range(3).selectExpr("cast(NULL AS string) id", "'c0' city", "id ts")
    with pytest.raises(Exception, match="key"):
        save(without_key, path, KEYS | BULK)
    assert not holdfast.table_exists(path)

    save(trips(sources, 0, 3), path, KEYS | BULK | {"hoodie.datasource.write.recordkey.field": "ts"})

    assert holdfast.open_table(path).settings.record_key == ("ts",)
    assert load(sources, path).count() == 3


def test_a_load_in_one_pass_that_meets_a_bad_row_makes_no_table(spark, path):
    without_key = spark.range(3).selectExpr("cast(NULL AS string) id", "'c0' city", "id ts")
    with pytest.raises(InvalidRequest):
        holdfast.write(without_key, path, KEYS | BULK)
    assert not holdfast.table_exists(path)

    corrected = KEYS | BULK | {"hoodie.datasource.write.recordkey.field": "ts"}
    commit = holdfast.write(trips(spark, 0, 3), path, corrected, mode="ignore")

    assert commit.records_written == 3


@needs_sources
def test_a_numbered_write_that_comes_again_passes_its_rows_over(sources, path):
    numbered = KEYS | BULK | {"txnAppId": "nightly", "txnVersion": "7"}
    save(trips(sources, 0, 3), path, numbered)
    save(trips(sources, 0, 3), path, numbered)

    assert load(sources, path).count() == 3
    assert len(holdfast.open_table(path).timeline()) == 1


def test_a_batch_of_a_stream_that_is_retried_is_inserted_once(spark, path, tmp_path):
    """The process dies after the commit and before Spark notes the batch, which it then hands over again."""
    trips(spark, 0, 3).write.json(str(tmp_path / "in"))
    table = holdfast.create_table(path, name="trips", record_key="id", partition_by="city")
    stream = spark.readStream.schema("id string, city string, ts long, fare double").json(
        str(tmp_path / "in")
    )
    commits = []

    def insert(frame, number):
        commits.append(table.insert(frame, idempotency=("rides", number)))
        if len(commits) == 1:
            raise RuntimeError("the process died")

    def run():
        writer = stream.writeStream.foreachBatch(insert).option("checkpointLocation", str(tmp_path / "state"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    with pytest.raises(Exception, match="the process died"):
        run()
    run()

    assert [commit.repeated for commit in commits] == [False, True]
    assert commits[0].instant == commits[1].instant
    assert table.to_arrow().num_rows == 3
