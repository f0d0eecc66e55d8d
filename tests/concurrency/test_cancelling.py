"""Cancelling: a write that lost its right stops while it works, its Spark jobs with it and no others."""

import glob
import logging
import threading
import time
from dataclasses import replace

import pytest

import holdfast
from harness.faults import StoreWrapper
from harness.world import abort, memory_world, rows
from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.errors import Fenced
from holdfast.host import SystemHost
from holdfast.model.instant import Action, InstantTime
from holdfast.writes import operations
from holdfast.writes.task import TaskRequest

INSTANT = InstantTime("20990101000000000")


@pytest.fixture
def table():
    return memory_world().create()


def test_arrow_rows_stop_between_two_files(table):
    given = ArrowRows(rows("a", "b", "c", "d"))
    uploaded = []

    class Watching(StoreWrapper):
        def upload(self, path):
            uploaded.append(path)
            given.cancel()
            return super().upload(path)

    request = TaskRequest(
        instant=INSTANT,
        action=Action.COMMIT,
        schema=given.schema(),
        field_ids={},
        table=table.settings,
        write=WriteSettings(),
    )
    table.store.create(f".hoodie/{INSTANT}.inflight", b"")
    prepared = given.prepare(given.schema(), table.settings)

    with pytest.raises(Fenced, match="lost its right to commit"):
        prepared.write(replace(table, store=Watching(table.store)), request)

    assert len(uploaded) == 1


@pytest.fixture
def sleeping(spark, tmp_path):
    """Rows whose tasks sleep once the write has begun; a file tells that one does."""
    begun, signal = str(tmp_path / "lake/.hoodie/*.inflight"), str(tmp_path / "sleeping")

    def sleep(batches):
        for batch in batches:
            if glob.glob(begun):
                with open(signal, "w"):
                    time.sleep(60)
            yield batch

    frame = spark.range(4, numPartitions=2).selectExpr("concat('k', id) id", "id v")
    return frame.mapInArrow(sleep, frame.schema), tmp_path / "sleeping"


@pytest.mark.spark
@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_a_spark_write_that_another_process_aborts_ends_within_about_an_interval(
    sleeping, tmp_path, operation, caplog
):
    caplog.set_level(logging.ERROR, "py4j")
    frame, signal = sleeping
    path = str(tmp_path / "lake")
    table = holdfast.create_table(path, name="trips", record_key="id")
    aborted_at = []

    def think_it_dead():
        eventually_slowly(signal.exists)
        other = holdfast.open_table(path)._opened
        [instant] = other.ledger.read().begun
        abort(replace(other, host=SystemHost()), instant)
        aborted_at.append(time.monotonic())

    other = threading.Thread(target=think_it_dead)
    other.start()
    with pytest.raises(Fenced, match="rolled back by another process"):
        getattr(table, operation)(frame, options={"hoodie.client.heartbeat.interval_in_ms": "1000"})
    took = time.monotonic() - aborted_at[0]
    other.join()

    assert took < 30, "long before the tasks would have ended"
    assert table.to_arrow().num_rows == 0


def eventually_slowly(is_so):
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


@pytest.mark.spark
def test_a_spark_write_leaves_no_tag_and_cancels_no_other_job(spark, tmp_path):
    """A write that was cancelled does not begin again; what others run in the session is left alone."""
    from holdfast.engines.spark.writer import SparkRows

    frame = spark.range(4).selectExpr("concat('k', id) id", "id v")
    cancelled = SparkRows(frame)
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id")

    cancelled.cancel()
    with pytest.raises(Fenced, match="lost its right to commit"):
        operations.write(table._opened, Operation.BULK_INSERT, cancelled, WriteSettings())
    table.bulk_insert(frame)

    assert spark.range(10).count() == 10
    assert table.to_arrow().num_rows == 4
    context = getattr(spark, "_sc", None)
    assert not (spark.getTags() if context is None else context.getJobTags())
