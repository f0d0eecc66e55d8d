"""Reads on Spark: how it is made to look at the files."""

import uuid

import pyarrow as pa
import pytest

import holdfast

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
