"""Reads on Spark: how it is made to look at many files, and which it does not open."""

import datetime as dt
import uuid

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

import holdfast
from holdfast.engines.spark.inputs import file_frame, spark_path
from holdfast.errors import InvalidRequest

pytestmark = pytest.mark.spark

LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


def tasks_of(spark, act):
    """How many tasks Spark starts for something."""
    context = spark.sparkContext
    group = str(uuid.uuid4())
    context.setLocalProperty("spark.jobGroup.id", group)
    try:
        act()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    # What ran is told to the tracker by another thread.
    context._jsc.sc().listenerBus().waitUntilEmpty()
    status = context.statusTracker()
    stages = [s for job in status.getJobIdsForGroup(group) for s in status.getJobInfo(job).stageIds]
    return sum(status.getStageInfo(stage).numTasks for stage in stages)


def test_many_files_are_looked_at_in_few_tasks_and_the_session_keeps_its_settings(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="t", record_key="id", partition_by="city")
    table.insert(pa.table({"id": range(60), "city": [f"c{number}" for number in range(60)]}))
    before = spark.conf.get(LISTING_TASKS)

    few = tasks_of(spark, lambda: table.read(spark))
    spark.conf.set(LISTING_TASKS, "50")
    try:
        as_chosen = tasks_of(spark, lambda: table.read(spark))
        kept = spark.conf.get(LISTING_TASKS)
    finally:
        spark.conf.set(LISTING_TASKS, before)

    assert 0 < few <= 4 * spark.sparkContext.defaultParallelism < 50
    assert (as_chosen, kept, before) == (50, "50", "10000")


def test_source_files_are_looked_at_likewise_and_an_error_leaves_the_setting_as_it_was(spark, tmp_path):
    files = [tmp_path / f"{number}.csv" for number in range(60)]
    for file in files:
        file.write_text("id\n1\n")
    places = [spark_path(str(file)) for file in files]

    few = tasks_of(spark, lambda: file_frame(spark, places, file_format="csv", ddl="id long"))
    with pytest.raises(InvalidRequest, match="nowhere"):
        file_frame(spark, [*places, spark_path(str(tmp_path / "nowhere"))], file_format="csv", ddl="id long")

    assert 0 < few <= 4 * spark.sparkContext.defaultParallelism
    assert spark.conf.get(LISTING_TASKS) == "10000"


CITIES = ["paris", "rome", "", None, "50%", "new york", "münchen", "a=b", "01", "c d/e"]


def spark_rows(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


def test_a_query_opens_no_file_of_a_partition_that_it_does_not_ask_for(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="t", record_key="id", partition_by="city")
    table.insert(pa.table({"id": [1, 2, 3], "city": ["paris", "rome", "oslo"], "v": [1.0, 2.0, 3.0]}))
    table.upsert(pa.table({"id": [2], "city": ["rome"], "v": [5.0]}))
    for file in [*tmp_path.glob("city=paris/*.parquet"), *tmp_path.glob("city=oslo/*.parquet")]:
        file.write_bytes(b"not Parquet")

    asked = table.read(spark).where("city = 'rome'")
    changed = table.changes(spark, since="2000-01-01").where("city in ('rome', 'bern')").select("id", "v")

    assert spark_rows(asked) == [(2, "rome", 5.0)]
    assert spark_rows(changed) == [(2, 5.0)]


@pytest.mark.parametrize(
    ("folder", "encoded", "more"),
    [
        ("a", "false", ["12:30"]),
        # Hadoop does not take a colon beside a character of its patterns.
        ("a [b] {c} 50%", "false", ["[x]*"]),
        ("b=c/a [b] {c}", "true", ["12:30", "[x]*"]),
    ],
)
def test_rows_are_the_same_whatever_their_partitions_are_called(spark, tmp_path, folder, encoded, more):
    cities = [*CITIES, *more]
    properties = {"hoodie.datasource.write.partitionpath.urlencode": encoded}
    table = holdfast.create_table(
        str(tmp_path / folder), name="t", record_key="id", partition_by="city", properties=properties
    )
    table.insert(pa.table({"id": range(len(cities)), "city": pa.array(cities, pa.string())}))

    expected = sorted(zip(range(len(cities)), cities, strict=True), key=repr)

    assert spark_rows(table.read(spark)) == expected
    for number, city in enumerate(cities):
        condition = f.col("city").isNull() if city is None else f.col("city") == city
        assert spark_rows(table.read(spark).where(condition)) == [(number, city)], city


def test_partition_columns_of_other_types_keep_them_and_their_places(spark, tmp_path):
    days = [dt.date(1969, 12, 31), dt.date(2024, 2, 29), None]
    rows = pa.table(
        {
            "day": pa.array(days, pa.date32()),
            "id": [1, 2, 3],
            "shard": pa.array([-5, 7, 1 << 40], pa.int64()),
            "v": ["x", "y", "z"],
        }
    )
    table = holdfast.create_table(str(tmp_path), name="t", record_key="id", partition_by=["shard", "day"])
    table.insert(rows)

    whole = table.read(spark)
    some = table.read(spark, columns=["v", "day"])

    assert whole.schema.simpleString() == "struct<day:date,id:bigint,shard:bigint,v:string>"
    assert spark_rows(whole) == sorted(map(tuple, zip(*rows.to_pydict().values(), strict=True)), key=repr)
    assert spark_rows(some.where("day < '2000-01-01'")) == [("x", days[0])]
    assert spark_rows(table.read(spark, columns=["v"])) == [("x",), ("y",), ("z",)]


def test_a_row_that_lies_in_another_partition_is_read_as_its_columns_say(spark, tmp_path):
    """As hudi-rs reads it, and our own reads without Spark."""
    staying = {
        "hoodie.index.type": "GLOBAL_SIMPLE",
        "hoodie.simple.index.update.partition.path": "false",
    }
    table = holdfast.create_table(str(tmp_path), name="t", record_key="id", partition_by="city")
    table.insert(pa.table({"id": [1, 2], "city": ["paris", "rome"]}))
    table.upsert(pa.table({"id": [1], "city": ["rome"]}), options=staying)

    assert [path.parent.name for path in tmp_path.glob("city=*/*.parquet")].count("city=rome") == 1
    assert spark_rows(table.read(spark).where("city = 'rome'")) == [(1, "rome"), (2, "rome")]
    assert spark_rows(table.read(spark)) == [(1, "rome"), (2, "rome")]


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_row_changes_are_those_without_spark(kind, spark, tmp_path):
    """Deletes, updates, rows that moved to other file groups, nested values; of two partitions."""
    table = holdfast.create_table(
        str(tmp_path / "t"), name="t", record_key="id", partition_by="city", table_type=kind
    )
    rows = pa.table(
        {
            "id": [f"k{number}" for number in range(40)],
            "city": ["oslo", "rome"] * 20,
            "value": list(range(40)),
            "more": [{"tags": [f"t{number}", None]} for number in range(40)],
        }
    )
    first = table.insert(rows)
    table.upsert(rows.slice(0, 9).set_column(2, "value", pa.array([-1] * 9)))
    table.delete(rows.slice(5, 8))
    table.insert(rows.slice(6, 2), options={"hoodie.parquet.small.file.limit": "0"})
    until = table.delete_partitions(["city=rome"])

    for since in (first, "20000101000000000", until):
        expected = table.changes_to_arrow(since=since, deletes=True)
        frame = table.changes(spark, since=since, deletes=True)
        assert frame.columns == expected.column_names
        found = [row.asDict(recursive=True) for row in frame.collect()]
        assert sorted(map(str, found)) == sorted(map(str, expected.to_pylist()))
