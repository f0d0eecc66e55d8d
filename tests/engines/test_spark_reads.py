"""Reads on Spark: how it is made to look at many files."""

import uuid

import pyarrow as pa
import pytest

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
