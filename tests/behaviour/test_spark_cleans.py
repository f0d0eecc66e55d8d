"""Queries on Spark that run while versions of their files are cleaned away."""

import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import holdfast

pytestmark = pytest.mark.spark

_GROUPS = 8


@pytest.fixture
def table(tmp_path):
    """One row in each of eight partitions, so a query opens its last files late."""
    table = holdfast.create_table(
        str(tmp_path / "trips"), name="trips", record_key="id", partition_by="city", ordering="ts"
    )
    table.upsert(_rows(0))
    return table


def _rows(version):
    count = range(_GROUPS)
    return pa.table(
        {
            "id": [f"t{n}" for n in count],
            "city": [f"c{n}" for n in count],
            "ts": pa.array([version] * _GROUPS, pa.int64()),
            "version": pa.array([version] * _GROUPS, pa.int64()),
        }
    )


class _SlowQuery:
    """A query whose tasks read their first file and then wait until the gate is open."""

    def __init__(self, frame, gate):
        waits_for = str(gate)

        def held(batches):
            import os

            for batch in batches:
                while not os.path.exists(waits_for):
                    time.sleep(0.02)
                yield batch

        self._gate = gate
        self._frame = frame.select("id", "version").mapInArrow(held, "id string, version long")
        self._pool = ThreadPoolExecutor(1)
        self._result = self._pool.submit(self._frame.collect)

    def wait_until_it_reads(self, spark):
        while not _is_running(spark):
            time.sleep(0.02)

    def versions(self):
        self._gate.touch()
        return [row.version for row in self._result.result(timeout=120)]


def _is_running(spark):
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


@pytest.fixture
def slow_query(spark, tmp_path):
    # One file in each task: more tasks than cores, so that most files are opened after the gate.
    spark.conf.set("spark.sql.files.openCostInBytes", str(128 * 1024 * 1024))
    queries = []

    def begun(frame):
        queries.append(_SlowQuery(frame, tmp_path / "gate"))
        queries[-1].wait_until_it_reads(spark)
        return queries[-1]

    yield begun
    (tmp_path / "gate").touch()
    spark.conf.unset("spark.sql.files.openCostInBytes")


def _write_and_clean(table, commits, *, retained):
    options = {"hoodie.clean.commits.retained": str(retained)}
    for version in range(1, commits + 1):
        assert table.upsert(_rows(version), options=options).post_commit_errors == ()


def test_a_query_that_began_before_as_many_commits_as_are_retained_finishes(spark, table, slow_query):
    query = slow_query(table.read(spark))

    _write_and_clean(table, 3, retained=3)

    assert query.versions() == [0] * _GROUPS
    assert {row.version for row in table.read(spark).collect()} == {3}


def test_a_query_that_holds_a_lease_finishes_whatever_the_retention(spark, table, slow_query):
    with table.lease("long query", ttl=60) as lease:
        query = slow_query(table.read(spark, as_of=lease.instant))

        _write_and_clean(table, 4, retained=1)

        assert query.versions() == [0] * _GROUPS


def test_a_query_that_outlives_the_retention_fails_and_gives_no_part_of_the_rows(spark, table, slow_query):
    query = slow_query(table.read(spark))

    _write_and_clean(table, 4, retained=1)

    with pytest.raises((PySparkException, Py4JJavaError), match=r"does not exist|NOT_EXIST"):
        query.versions()


def test_a_snapshot_that_a_clean_has_removed_is_not_read_at_all(spark, table):
    first = table.timeline()[0].time
    _write_and_clean(table, 4, retained=1)

    with pytest.raises(holdfast.errors.SnapshotExpired) as caught:
        table.read(spark, as_of=first)
    assert caught.value.facts["clean"] in {i.time for i in table.timeline() if i.action == "clean"}
