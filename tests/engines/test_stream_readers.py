"""What a stream of a table answers to Spark: its offsets, what is held, what is read again."""

import pyarrow as pa
import pyspark
import pytest

import holdfast
from holdfast.config.streams import StreamRead
from holdfast.errors import Conflict, SchemaMismatch, SnapshotExpired
from holdfast.read.row_changes import CHANGE_TYPE

if int(pyspark.__version__.split(".")[0]) < 4:
    pytest.skip("PySpark 4.0 has the first Python data sources", allow_module_level=True)

from holdfast.engines.spark.stream_reader import StreamReader, stream_schema
from holdfast.engines.spark.types import spark_schema_of

HARD = {"hoodie.cleaner.commits.retained": "1"}


def rows(*triples):
    columns = zip(*triples, strict=True)
    return pa.table(dict(zip(("id", "city", "value"), map(list, columns), strict=True)))


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request, tmp_path):
    made = holdfast.create_table(
        str(tmp_path / "t"), name="t", record_key="id", partition_by="city", table_type=request.param
    )
    made.insert(rows(("a", "oslo", 1), ("b", "rome", 2)))
    return made


def reader(table, **options):
    settings = StreamRead.from_options(options)
    schema = spark_schema_of(stream_schema(table._opened, settings))
    return StreamReader(table._opened.location, settings, schema)


def read(stream, start, end):
    parts = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    found = [row for batch in parts for row in batch.to_pylist()]
    return sorted((row.get(CHANGE_TYPE, ""), row["id"], row["value"]) for row in found)


def test_ranges_follow_each_other_and_a_range_may_be_read_again(table):
    stream = reader(table, query="q")
    start, first = stream.initialOffset(), stream.latestOffset()
    table.upsert(rows(("a", "oslo", 7), ("c", "rome", 3)))
    second = stream.latestOffset()

    assert read(stream, start, first) == [("", "a", 1), ("", "b", 2)]
    assert read(stream, first, second) == [("", "a", 7), ("", "c", 3)]
    assert read(reader(table, query="q"), start, first) == [("", "a", 1), ("", "b", 2)]
    assert stream.latestOffset() == second == reader(table, query="q").latestOffset()
    assert stream.partitions(second, second) == []


def test_a_stopped_stream_with_deletes_finds_what_it_has_not_read_after_any_clean(table):
    stream = reader(table, query="q", deletes="true")
    start, first = stream.initialOffset(), stream.latestOffset()
    read(stream, start, first)
    stream.commit(first)
    for value in range(3, 8):
        table.upsert(rows(("a", "oslo", value)), options=HARD)
        table.upsert(rows(("b", "rome", value)), options=HARD)
    table.delete(rows(("b", "rome", 0)), options=HARD)
    table.clean(HARD)

    later = reader(table, query="q", deletes="true")
    second = later.latestOffset()

    changes = [("delete", "b", 2), ("update_after", "a", 7), ("update_before", "a", 1)]
    assert read(later, first, second) == changes
    [held] = [each for each in table.leases() if each.stream]
    assert (held.instant, held.newest) == (first["instant"], second["instant"])
    later.commit(second)
    table.upsert(rows(("a", "oslo", 9)), options=HARD)
    table.upsert(rows(("a", "oslo", 10)), options=HARD)
    table.clean(HARD)
    if table.settings.table_type == "COPY_ON_WRITE":
        with pytest.raises(SnapshotExpired):
            read(later, first, second)


def test_a_lease_under_a_random_name_is_let_go_once_the_stream_goes_on_under_another(table):
    stream = reader(table)
    start, first = stream.initialOffset(), stream.latestOffset()
    stream.partitions(start, first)
    stream.commit(first)
    again = reader(table)
    table.upsert(rows(("a", "oslo", 7)))
    second = again.latestOffset()
    assert len(table.streams()) == 2

    assert read(again, first, second) == [("", "a", 7)]
    again.commit(second)

    [status] = table.streams()
    assert (status.stream, status.instant) == (second["stream"], second["instant"])


def test_undo_is_not_held_up_and_the_stream_notices(table):
    stream = reader(table, query="q")
    second = table.upsert(rows(("a", "oslo", 7))).instant
    offset = stream.latestOffset()
    assert offset["instant"] == second
    table.undo()
    table.upsert(rows(("c", "oslo", 3)))
    later = stream.latestOffset()

    with pytest.raises(Conflict, match="taken back"):
        stream.partitions(offset, later)
    assert read(reader(table, query="q", afterUndo="continue"), offset, later) == [("", "c", 3)]


def test_new_columns_are_noticed_and_old_ranges_read_in_the_columns_of_now(table):
    stream = reader(table, query="q")
    start, first = stream.initialOffset(), stream.latestOffset()
    table.upsert(rows(("c", "oslo", 3)).append_column("more", pa.array(["x"])))
    second = stream.latestOffset()

    with pytest.raises(SchemaMismatch, match="loaded"):
        stream.partitions(first, second)
    assert read(reader(table, columns="id,value"), first, second) == [("", "c", 3)]
    for options in ({}, {"deletes": "true"}):
        again = reader(table, query="q", **options)
        [*batches] = [batch for part in again.partitions(start, first) for batch in again.read(part)]
        assert {row["more"] for batch in batches for row in batch.to_pylist()} == {None}


def test_a_stream_of_some_partitions_reads_no_others(table):
    for options in ({}, {"deletes": "true"}):
        stream = reader(table, partitions="city=rome", **options)
        found = read(stream, stream.initialOffset(), stream.latestOffset())
        assert [row[1:] for row in found] == [("b", 2)]


def test_streams_show_how_far_they_are(table):
    stream = reader(table, query="q")
    first = stream.latestOffset()
    table.upsert(rows(("a", "oslo", 7)), idempotency=("loader", 3))
    table.upsert(rows(("a", "oslo", 8)), idempotency=("loader", 4))

    loader, reading = table.streams()

    assert (loader.stream, loader.direction, loader.batch) == ("loader", "writes", 4)
    assert (reading.stream, reading.direction, reading.instant) == ("q", "reads", first["instant"])
    assert reading.commits_behind == 2
    assert reading.behind.total_seconds() > 0
