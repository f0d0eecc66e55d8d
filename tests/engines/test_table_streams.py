"""Streams that read tables and append to them: once, whatever is repeated, and never past a clean."""

import json
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import StreamingQueryException

import holdfast
import holdfast.spark
from harness.checker import check_at_rest
from holdfast.errors import InvalidRequest, Refused
from holdfast.read.row_changes import CHANGE_TYPE
from holdfast.table.streamed import read_batch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        int(pyspark.__version__.split(".")[0]) < 4, reason="PySpark 4.0 has the first Python data sources"
    ),
]


@pytest.fixture(scope="module")
def sources(spark):
    holdfast.spark.install(spark)
    return spark


class Lake:
    """A source table, targets, and streams between them that read what is there and end."""

    def __init__(self, spark, folder):
        self.spark = spark
        self.folder = folder
        self.source = self.table("source")

    def table(self, name, **more):
        path = str(self.folder / name)
        return holdfast.create_table(path, name=name, record_key="id", partition_by="city", **more)

    def read(self, **options):
        return self.spark.readStream.format("holdfast").options(**options).load(self.source.path)

    def run(self, frame, *, name="stream", on_batch=None, sink=None, query="sink", **options):
        writer = frame.writeStream.option("checkpointLocation", self.checkpoint(name))
        if on_batch is not None:
            writer = writer.foreachBatch(on_batch)
        else:
            writer = writer.format("holdfast").option("path", sink.path).option("query", query)
        query = writer.options(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def checkpoint(self, name="stream"):
        return str(self.folder / f"checkpoint-{name}")

    def repeat_newest_batch(self, name="stream"):
        """The query dies between the commit of its newest batch and its note of it."""
        done = Path(self.checkpoint(name)) / "commits"
        newest = max(
            (file for file in done.iterdir() if file.name.isdigit()), key=lambda file: int(file.name)
        )
        newest.unlink()
        (done / f".{newest.name}.crc").unlink(missing_ok=True)
        return int(newest.name)


@pytest.fixture
def lake(sources, tmp_path):
    return Lake(sources, tmp_path)


def rows(*triples):
    columns = zip(*triples, strict=True)
    return pa.table(dict(zip(("id", "city", "value"), map(list, columns), strict=True)))


def content(table):
    return sorted((row["id"], row["city"], row["value"]) for row in table.to_arrow().to_pylist())


def test_a_stream_carries_inserts_to_another_table_once(lake):
    target = lake.table("target")
    lake.source.insert(rows(("a", "oslo", 1), ("b", "rome", 2)))
    lake.run(lake.read(query="copy"), sink=target)
    lake.source.insert(rows(("c", "oslo", 3)))

    lake.run(lake.read(query="copy"), sink=target)
    lake.run(lake.read(query="copy"), sink=target)
    batch = lake.repeat_newest_batch()
    lake.run(lake.read(query="copy"), sink=target)

    assert content(target) == content(lake.source)
    # What was written for the batch that came again is rolled back.
    newest = next(one for one in reversed(target.timeline()) if one.action == "commit")
    kept = read_batch(target._opened, newest.time, newest.action)
    assert (kept.query, kept.number) == ("sink", batch)
    assert kept.stream_id == json.loads((Path(lake.checkpoint()) / "metadata").read_text())["id"]
    check_at_rest(target._opened)


def test_another_checkpoint_under_the_same_name_is_refused_and_writes_nothing(lake):
    target = lake.table("target")
    lake.source.insert(rows(("a", "oslo", 1)))
    lake.run(lake.read(), sink=target)
    before = content(target)

    with pytest.raises(StreamingQueryException, match="another checkpoint"):
        lake.run(lake.read(), name="other", sink=target)

    assert content(target) == before
    assert target.upsert(rows(("z", "oslo", 0))).instant  # Nothing is left that stands in the way.


def test_an_upserting_stream_keeps_up_with_updates_and_repeats(lake):
    target = lake.table("target")
    write = holdfast.stream(target, query="mirror", checkpoint=lake.checkpoint())
    lake.source.insert(rows(("a", "oslo", 1), ("b", "rome", 2)))
    lake.run(lake.read(query="mirror"), on_batch=write)
    lake.source.upsert(rows(("a", "oslo", 7), ("c", "rome", 3)))
    lake.run(lake.read(query="mirror"), on_batch=write)

    lake.repeat_newest_batch()
    lake.run(lake.read(query="mirror"), on_batch=write)

    assert content(target) == content(lake.source)
    assert len(target.timeline()) == 2


def test_an_undone_batch_is_read_again_from_the_offsets_that_its_commit_keeps(lake):
    target = lake.table("target")
    write = holdfast.stream(target, query="mirror", checkpoint=lake.checkpoint())
    lake.source.insert(rows(("a", "oslo", 1)))
    lake.run(lake.read(query="mirror"), on_batch=write)
    lake.source.upsert(rows(("a", "oslo", 2)))
    lake.run(lake.read(query="mirror"), on_batch=write)

    target.undo(replay=True)
    assert content(target) == [("a", "oslo", 1)]
    lake.source.upsert(rows(("b", "oslo", 3)))
    lake.run(lake.read(query="mirror"), on_batch=write)
    assert ("a", "oslo", 2) in content(target)
    # Spark finishes the batch that it had begun, and may leave what is newer to the next start.
    lake.run(lake.read(query="mirror"), on_batch=write)

    assert content(target) == content(lake.source)


def test_a_replay_is_refused_where_it_cannot_be(lake):
    target = lake.table("target")
    target.insert(rows(("a", "oslo", 1)))
    with pytest.raises(Refused, match="no batch of a stream"):
        target.undo(replay=True)
    lake.source.insert(rows(("b", "oslo", 1)))
    lake.run(lake.read(), on_batch=holdfast.stream(target, query="mirror"))

    with pytest.raises(Refused, match="where the checkpoint"):
        target.undo(replay=True)
    with pytest.raises(Refused, match="not that of the stream"):
        target.undo(replay=True, checkpoint=str(lake.folder / "nowhere"))

    target.undo(replay=True, checkpoint=lake.checkpoint())
    lake.run(lake.read(), on_batch=holdfast.stream(target, query="mirror"))
    assert content(target) == [("a", "oslo", 1), ("b", "oslo", 1)]


def test_a_stream_with_deletes_tells_what_became_of_records(lake):
    seen = []

    def note(batch, _):
        seen.append(sorted((row[CHANGE_TYPE], row.id, row.value) for row in batch.collect()))

    lake.source.insert(rows(("a", "oslo", 1), ("b", "rome", 2)))
    lake.run(lake.read(query="cdc", deletes="true"), on_batch=note)
    lake.source.upsert(rows(("a", "oslo", 7)))
    lake.source.delete(rows(("b", "rome", 0)))
    lake.run(lake.read(query="cdc", deletes="true"), on_batch=note)

    assert [batch for batch in seen if batch] == [
        [("insert", "a", 1), ("insert", "b", 2)],
        [("delete", "b", 2), ("update_after", "a", 7), ("update_before", "a", 1)],
    ]


def test_a_clean_never_passes_a_stopped_stream(lake):
    """Many commits and a clean that keeps one; the stream with deletes still finds where it stopped."""
    seen = []
    lake.source.insert(rows(("a", "oslo", 1), ("b", "oslo", 2)))
    lake.run(lake.read(query="slow", deletes="true"), on_batch=lambda batch, _: batch.count())
    for value in range(3, 7):
        lake.source.upsert(rows(("a", "oslo", value)))
    lake.source.delete(rows(("b", "oslo", 0)))
    lake.source.clean({"hoodie.cleaner.commits.retained": "1"})

    [status] = lake.source.streams()
    assert (status.stream, status.direction, status.commits_behind) == ("slow", "reads", 5)
    lake.run(
        lake.read(query="slow", deletes="true"),
        on_batch=lambda batch, _: seen.extend(
            (row[CHANGE_TYPE], row.id, row.value) for row in batch.collect()
        ),
    )

    assert sorted(seen) == [("delete", "b", 2), ("update_after", "a", 6), ("update_before", "a", 1)]


def test_a_stream_may_begin_at_an_instant_or_with_what_comes_next(lake):
    first = lake.source.insert(rows(("a", "oslo", 1)))
    lake.source.insert(rows(("b", "oslo", 2)))
    found = {}

    def into(name):
        return lambda batch, _: found.setdefault(name, []).extend(row.id for row in batch.collect())

    for name, start in (("one", first.instant), ("two", "latest"), ("all", "earliest")):
        lake.run(lake.read(startingInstant=start), name=name, on_batch=into(name))
    lake.source.insert(rows(("c", "rome", 3)))
    for name, start in (("one", first.instant), ("two", "latest"), ("all", "earliest")):
        lake.run(lake.read(startingInstant=start), name=name, on_batch=into(name))

    assert {name: sorted(ids) for name, ids in found.items()} == {
        "one": ["b", "c"], "two": ["c"], "all": ["a", "b", "c"],
    }  # fmt: skip


def test_a_column_that_comes_later_stops_the_stream_until_it_is_loaded_again(lake):
    target = lake.table("target")
    write = holdfast.stream(target, query="mirror")
    lake.source.insert(rows(("a", "oslo", 1)))
    loaded = lake.read(query="mirror")
    lake.run(loaded, on_batch=write)
    lake.source.upsert(rows(("b", "oslo", 2)).append_column("more", pa.array(["x"])))

    with pytest.raises(StreamingQueryException, match="columns have changed"):
        lake.run(loaded, on_batch=write)
    lake.run(lake.read(query="mirror"), on_batch=write)

    assert target.to_arrow(columns=["id", "more"]).sort_by("id").to_pylist() == [
        {"id": "a", "more": None}, {"id": "b", "more": "x"},
    ]  # fmt: skip


def test_a_commit_that_was_read_and_taken_back_stops_the_stream_unless_it_is_to_go_on(lake):
    ids = []
    lake.source.insert(rows(("a", "oslo", 1)))
    lake.source.insert(rows(("b", "oslo", 2)))
    note = lambda batch, _: ids.extend(row.id for row in batch.collect())  # noqa: E731
    lake.run(lake.read(query="q"), on_batch=note)
    lake.source.undo()
    lake.source.insert(rows(("c", "oslo", 3)))

    with pytest.raises(StreamingQueryException, match="taken back"):
        lake.run(lake.read(query="q"), on_batch=note)
    lake.run(lake.read(query="q", afterUndo="continue"), on_batch=note)

    assert sorted(ids) == ["a", "b", "c"]


def test_what_a_stream_cannot_do_is_refused_by_name(lake):
    lake.source.insert(rows(("a", "oslo", 1)))
    for options, words in (
        ({"as.of.instant": "20240101000000000", "query": "q"}, "as.of.instant"),
        ({"afterUndo": "perhaps"}, "afterUndo"),
        ({"leaseSeconds": "-1"}, "leaseSeconds"),
        ({"maxCommitsPerBatch": "0"}, "maxCommitsPerBatch"),
    ):
        with pytest.raises(Exception, match=words):
            lake.read(**options)
    with pytest.raises(StreamingQueryException, match="bulk_insert"):
        lake.run(lake.read(), sink=lake.table("target"), **{"hoodie.datasource.write.operation": "upsert"})
    with pytest.raises(InvalidRequest):
        holdfast.stream(lake.source, operation="fold", query="q")
    with pytest.raises(InvalidRequest):
        holdfast.stream(lake.source, query="")
