"""Streamed commits: what they keep, that a batch counts once, and what a checkpoint forgets for a replay."""

import json

import pyarrow as pa
import pytest

import holdfast
from holdfast.errors import Refused
from holdfast.table.streamed import Batch, read_batch


class Stream:
    """A checkpoint as Spark keeps it, and batches that are handed over without Spark."""

    def __init__(self, folder):
        self.table = holdfast.create_table(str(folder / "t"), name="t", record_key="id")
        self.checkpoint = folder / "checkpoint"
        for name in ("commits", "offsets"):
            (self.checkpoint / name).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": "query-1"}))
        self.write = holdfast.stream(self.table, query="s", checkpoint=str(self.checkpoint))

    def run(self, number, *ids):
        """A batch that changes nothing if there are no ids, and its notes in the checkpoint."""
        (self.checkpoint / "offsets" / str(number)).write_text(f"v1\n{number}")
        if ids:
            self.write(pa.table({"id": list(ids)}), number)
        (self.checkpoint / "commits" / str(number)).write_text("v1\n{}")
        (self.checkpoint / "commits" / f".{number}.crc").write_text("crc")

    def ids(self):
        return sorted(self.table.to_arrow()["id"].to_pylist())

    def noted(self):
        folders = [self.checkpoint / name for name in ("commits", "offsets")]
        return [sorted(file.name for file in folder.iterdir()) for folder in folders]


@pytest.fixture
def stream(tmp_path):
    made = Stream(tmp_path)
    made.run(0, "a")
    made.run(1, "b")
    return made


def test_a_commit_keeps_the_batch_it_is_and_what_it_was_read_from(stream):
    newest = stream.table.timeline()[-1]

    kept = read_batch(stream.table._opened, newest.time, newest.action)

    assert kept == Batch(query="s", number=1, checkpoint=str(stream.checkpoint), offsets="v1\n1")


def test_a_repeated_batch_is_written_once_and_an_older_one_of_another_stream_is_refused(stream):
    stream.write(pa.table({"id": ["b"]}), 1)
    assert len(stream.table.timeline()) == 2
    stream.table.upsert(pa.table({"id": ["x"]}), idempotency=("s", 5))

    with pytest.raises(Refused, match="numbers other writes"):
        stream.write(pa.table({"id": ["c"]}), 4)

    assert stream.ids() == ["a", "b", "x"]


def test_a_replay_forgets_the_batch_and_those_after_it_that_wrote_nothing(stream):
    stream.run(2)
    stream.run(3)

    stream.table.undo(replay=True)

    assert stream.noted() == [[".0.crc", "0"], ["0", "1"]]
    assert stream.ids() == ["a"]
    stream.run(1, "b")
    assert stream.ids() == ["a", "b"]


def test_a_replay_that_cannot_be_is_refused_and_takes_nothing_back(stream, tmp_path):
    with pytest.raises(Refused, match="not that of the stream"):
        stream.table.undo(replay=True, checkpoint=str(tmp_path / "nowhere"))
    (stream.checkpoint / "offsets" / "1").write_text("v1\nanother range")
    with pytest.raises(Refused, match="read from"):
        stream.table.undo(replay=True)
    (stream.checkpoint / "offsets" / "1").unlink()
    with pytest.raises(Refused, match="read from"):
        stream.table.undo(replay=True)

    assert stream.ids() == ["a", "b"]
    assert "1" in stream.noted()[0]
    stream.table.upsert(pa.table({"id": ["c"]}))
    with pytest.raises(Refused, match="no batch of a stream"):
        stream.table.undo(replay=True)


def test_a_batch_that_was_taken_back_counts_again_even_if_the_process_died_before_the_undo(stream):
    """The checkpoint forgot, the commit stands: the batch comes again and is found."""
    (stream.checkpoint / "commits" / "1").unlink()

    stream.run(1, "b")

    assert stream.ids() == ["a", "b"]
    assert len(stream.table.timeline()) == 2
