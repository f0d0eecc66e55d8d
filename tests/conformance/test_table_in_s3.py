"""A whole table in an S3 server: the same protocol, with conditional requests instead of links."""

import uuid

import pytest

import holdfast
from harness.checker import check_at_rest
from harness.faults import Crash, CrashingStore
from harness.world import World, rows


@pytest.fixture
def place(s3_server):
    location = s3_server.location(f"tables/{uuid.uuid4().hex}")
    return {"path": location.uri, "storage_options": dict(location.options)}


@pytest.fixture
def table(place):
    return holdfast.create_table(**place, name="trips", record_key="id", partition_by="city")


def test_a_table_is_written_and_read_back(table, place):
    first = table.insert(rows("a", "b", "c"))
    table.insert(rows("d"))

    reopened = holdfast.open_table(**place)
    assert sorted(reopened.to_arrow()["id"].to_pylist()) == ["a", "b", "c", "d"]
    assert sorted(reopened.to_arrow(as_of=first)["id"].to_pylist()) == ["a", "b", "c"]
    assert all(file.startswith(place["path"]) for file in reopened.files())
    check_at_rest(reopened._opened)


@pytest.mark.parametrize("step", [1, 4, 6, 8, 9, 11])
def test_a_writer_that_dies_is_taken_back_or_shown_by_the_next_one(table, place, step):
    table.insert(rows("old"))
    world = World(table._opened.store)
    with pytest.raises(Crash):
        world.on(CrashingStore(world.store, step, after=True)).insert("new1", "new2")

    holdfast.open_table(**place).insert(rows("next"))

    table = holdfast.open_table(**place)
    check_at_rest(table._opened)
    seen = set(table.to_arrow()["id"].to_pylist()) - {"next"}
    assert seen in ({"old"}, {"old", "new1", "new2"})


@pytest.mark.spark
def test_spark_tasks_write_through_the_same_door(table, place, spark):
    frame = spark.range(0, 100, 1, 2).selectExpr(
        "cast(id as string) id", "concat('c', id % 3) city", "1.5D fare"
    )

    commit = table.bulk_insert(frame)

    assert (commit.records_written, commit.files_written) == (100, 6)
    assert holdfast.open_table(**place).to_arrow().num_rows == 100
    check_at_rest(table._opened)
