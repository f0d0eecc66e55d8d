"""Merge-on-read tables on Spark: slices with log files are merged by Arrow tasks, the others are scanned."""

import pyspark
import pytest
from pyspark.sql import functions as f

import holdfast.spark
from harness.log_writer import SCHEMA, LoggedTable, data_block, delete_block

pytestmark = pytest.mark.spark

HAS_SOURCES = int(pyspark.__version__.split(".")[0]) >= 4
OTHERS = [(f"o{number}", 10, "plain") for number in range(5)]
BASE = [(f"k{number}", 10, "base") for number in range(10)]


@pytest.fixture
def table(tmp_path):
    """Two file groups, of which one has log files of three writes, of which one is pending."""
    made = LoggedTable(tmp_path / "t", BASE, others=OTHERS)
    one, two, three = made.time(1), made.time(2), made.time(3)
    made.log(data_block(one, [("k1", 11, "one"), ("k2", 11, "one"), ("k3", 9, "late")], is_avro=True))
    made.log(data_block(two, [("k2", 12, "two")]), delete_block(two, {"k4": 12}))
    made.log(data_block(three, [("k5", 13, "pending")]), state="inflight")
    return made


MERGED = {
    *OTHERS,
    *((f"k{number}", 10, "base") for number in (0, 3, 5, 6, 7, 8, 9)),
    ("k1", 11, "one"),
    ("k2", 12, "two"),
}


def rows_of(frame):
    rows = [tuple(row) for row in frame.select(*SCHEMA.names).collect()]
    assert len(rows) == len(set(rows))
    return set(rows)


def test_a_snapshot_has_the_merged_rows(table, spark):
    frame = table.opened.read(spark)

    assert rows_of(frame) == MERGED == table.read()
    assert frame.count() == len(MERGED)
    assert rows_of(table.opened.read(spark, read_optimized=True)) == {*OTHERS, *BASE}
    as_of = table.opened.read(spark, as_of=table.time(1))
    assert rows_of(as_of) == table.read(as_of=table.time(1)) != MERGED


def test_groups_without_logs_stay_sparks_own_scan(table, spark):
    files = {
        row[0].rpartition("/")[2] for row in table.opened.read(spark).select(f.input_file_name()).collect()
    }

    plan = table.opened.read(spark)._jdf.queryExecution().executedPlan().toString()
    assert plan.count("FileScan parquet") == 1
    assert "MapInArrow" in plan
    assert len([name for name in files if name.endswith(".parquet")]) == 1
    assert table.base_file.name not in files


def test_a_filter_never_comes_before_the_merge(table, spark):
    """The row that supersedes may be one that the filter leaves out."""
    frame = table.opened.read(spark)

    assert frame.where("value = 'base' AND id IN ('k1', 'k2', 'k4')").count() == 0
    assert frame.where("ts < 11").count() == len([row for row in MERGED if row[1] < 11])


def test_columns_are_pruned_and_meta_columns_come_from_the_logs(table, spark):
    only = table.opened.read(spark, columns=["value"])
    meta = table.opened.read(spark, meta_columns=True).where("id = 'k2'").collect()

    assert only.columns == ["value"]
    assert sorted(row[0] for row in only.collect()) == sorted(row[2] for row in MERGED)
    assert [row["_hoodie_commit_time"] for row in meta] == [table.time(2)]


def test_changes_on_spark_are_those_without_it(table, spark):
    for since in ("0" * 17, table.base, table.time(1), table.time(2)):
        frame = table.opened.changes(spark, since=since)

        found = table.opened.changes_to_arrow(since=since)
        assert sorted(map(tuple, frame.collect())) == sorted(tuple(row.values()) for row in found.to_pylist())
    assert {row["id"] for row in table.opened.changes(spark, since=table.base).collect()} == {"k1", "k2"}


@pytest.mark.skipif(not HAS_SOURCES, reason="PySpark 4.0 has the first Python data sources")
def test_the_data_source_reads_the_same(table, spark):
    holdfast.spark.install(spark)
    read = spark.read.format("holdfast")

    assert rows_of(read.load(str(table.folder))) == MERGED
    optimized = read.option("hoodie.datasource.query.type", "read_optimized").load(str(table.folder))
    assert rows_of(optimized) == {*OTHERS, *BASE}
    since = {"hoodie.datasource.query.type": "incremental",
             "hoodie.datasource.read.begin.instanttime": table.time(1)}  # fmt: skip
    changed = spark.read.format("holdfast").options(**since).load(str(table.folder))
    assert rows_of(changed) == {("k2", 12, "two")}


def test_damage_that_a_task_meets_fails_the_query_with_the_file(table, spark):
    frame = table.opened.read(spark)
    log = next(path for path in table.folder.iterdir() if ".log.1_" in path.name)
    log.write_bytes(log.read_bytes()[:-5])

    with pytest.raises(Exception, match=log.name.replace(".", r"\.")):
        frame.collect()
