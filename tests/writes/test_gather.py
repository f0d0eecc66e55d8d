"""Gathering the rows of a bundle from a stream."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.writes.gather import BUNDLE, bundles


@pytest.fixture
def spilled(tmp_path, monkeypatch):
    """The files that wait on disk at the moment; none has a name that a killed process would leave."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def spilled():
        assert list(tmp_path.iterdir()) == []
        links = []
        for link in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # that of the listing itself
                links.append(os.readlink(link))
        return [link for link in links if link.startswith(str(tmp_path))]

    return spilled


def batch(*pairs):
    numbers, values = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.record_batch({BUNDLE: pa.array(numbers, pa.int64()), "v": pa.array(values, pa.string())})


def values(table):
    return table.column("v").to_pylist()


STREAM = [
    batch((1, "a"), (1, "b"), (2, "c")),
    batch(),
    batch((2, "d")),
    batch((2, "e"), (7, "f")),
]


def test_the_rows_of_a_slot_come_together_in_their_order_without_the_slot():
    found = list(bundles(iter(STREAM)))

    assert [values(rows) for rows in found] == [["a", "b"], ["c", "d", "e"], ["f"]]
    assert all(rows.column_names == ["v"] for rows in found)


def test_a_stream_without_rows_has_no_bundles():
    assert list(bundles([])) == list(bundles([batch()])) == []


def test_slots_larger_than_what_may_be_held_wait_on_disk_and_leave_nothing_there(spilled):
    seen = []
    waiting = []
    for rows in bundles(iter(STREAM), held_bytes=1):
        waiting.append(spilled())
        seen.append(values(rows))
        del rows

    assert seen == [["a", "b"], ["c", "d", "e"], ["f"]]
    assert all(waiting)
    assert spilled() == []


def test_a_slot_that_fits_does_not_touch_the_disk(spilled):
    for _ in bundles(iter(STREAM), held_bytes=1_000_000):
        assert spilled() == []


def test_rows_that_waited_on_disk_are_not_copied_into_memory(spilled):
    big = pa.record_batch({BUNDLE: pa.array([0] * 1000), "v": ["x" * 1000] * 1000})
    stream = bundles([big] * 4, held_bytes=1_000_000)
    del big

    before = pa.total_allocated_bytes()
    rows = next(stream)

    assert rows.num_rows == 4000
    assert pa.total_allocated_bytes() - before < 100_000


def test_a_reader_that_stops_early_leaves_nothing_on_disk(spilled):
    stream = bundles(iter(STREAM), held_bytes=1)
    next(stream)
    assert spilled()

    stream.close()

    assert spilled() == []


def test_a_stream_that_fails_leaves_nothing_on_disk(spilled):
    def failing():
        yield STREAM[0]
        raise RuntimeError("the task died")

    with pytest.raises(RuntimeError, match="died"):
        list(bundles(failing(), held_bytes=1))

    assert spilled() == []
