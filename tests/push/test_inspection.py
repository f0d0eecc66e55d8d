"""Uploaded files are looked at in processes that can be ended, whatever is in them."""

import gzip
import io
import os
import random
import resource
import signal
import tarfile
import time
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import InvalidRequest
from holdfast.format.segments import (
    ColumnDescription,
    Creation,
    SegmentDescription,
    encode_creation,
)
from holdfast.model.segment import ColumnRange
from holdfast.push.segments.column_ranges import column_ranges
from holdfast.push.uploads.archives import ArchiveLimits, BatchSegment, RoomNeeded, pack_batch, pack_segment
from holdfast.push.uploads.inspection.inspect import Form, Question, inspect
from holdfast.push.uploads.inspection.pool import InspectionPool

LIMITS = ArchiveLimits()
CREATION = Creation(7, 1_700_000_000_000)


@pytest.fixture(scope="module")
def pool():
    started = InspectionPool(LIMITS, within_s=3.0)
    started.start()
    yield started
    started.close()


@pytest.fixture
def ask(pool, tmp_path):
    """Look at bytes in a process, as the service does; the findings, and what was unpacked."""

    def ask(content, form, **more):
        (tmp_path / "sent").write_bytes(content)
        with open(tmp_path / "sent", "rb") as source, open(tmp_path / "columns", "w+b") as columns:
            found = pool.inspect(source, columns, Question(form=form, limits=LIMITS, **more))
        return found, (tmp_path / "columns").read_bytes()

    return ask


def parquet(rows=3):
    sink = io.BytesIO()
    pq.write_table(pa.table({"ts": range(rows), "city": ["rome"] * rows}), sink)
    return sink.getvalue()


def described(name="s1", *, docs=3, columns=()):
    return SegmentDescription(name=name, table="orders", docs=docs, columns=columns)


def packed(description, rows):
    sink = io.BytesIO()
    pack_segment(sink, description, CREATION, io.BytesIO(rows), size_bytes=len(rows))
    return sink.getvalue()


def archive(**files):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("__", "."))
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(sink.getvalue(), compresslevel=9)


FORMS = {
    "a Parquet file": (parquet(), Form.SEGMENT),
    "an archive": (packed(described(), parquet()), Form.SEGMENT),
    "a description": (packed(described(), b""), Form.DESCRIPTION),
    "a batch": (
        pack_batch(
            BatchSegment(description=described(name), creation=CREATION, uri=f"file:///x/{name}")
            for name in ("a", "b")
        ),
        Form.BATCH,
    ),
}


@pytest.mark.parametrize("sent", FORMS.values(), ids=FORMS)
def test_a_process_finds_what_this_one_would(sent, ask):
    content, form = sent
    columns = io.BytesIO()
    question = Question(form=form, limits=LIMITS, name="s1", table="orders", time_column="ts", created_ms=5)
    expected = inspect(io.BytesIO(content), columns, question)

    found, unpacked = ask(content, form, name="s1", table="orders", time_column="ts", created_ms=5)

    assert found == expected
    if form is Form.SEGMENT:
        assert unpacked == columns.getvalue()


def test_a_refusal_says_what_it_says_here(ask):
    with pytest.raises(InvalidRequest, match="disagree about the number of rows") as refused:
        ask(packed(described(docs=4), parquet(3)), Form.SEGMENT)

    assert refused.value.facts == {"segment": "s1", "said": 4, "found": 3, "code": "INVALID_SEGMENT"}


def test_statistics_that_are_no_text_tell_nothing():
    """They ended the call as a bug; a full run of the fuzzing found them."""
    pq.write_table(pa.table({"city": ["aaaa", "zzzz"], "id": [1, 2]}), sink := io.BytesIO())
    damaged = sink.getvalue().replace(b"zzzz", b"z\xffzz")

    assert column_ranges(pq.ParquetFile(io.BytesIO(damaged)).metadata) == {"id": ("1", "2")}


def bombs():
    """Each with noise before it, so that nothing expands too far for its size."""
    noise, creation = random.Random(7).randbytes(200_000), encode_creation(CREATION)
    head = b"segment.name=s1\nsegment.total.docs=3\n"
    for what, tail in {
        "millions of columns": b"segment.dimension.column.names=" + b"a," * (7 << 20),
        "a line of millions of lines": b"a=" + b"\\\n" * (7 << 20),
        "millions of backslashes": b"a=" + b"\\" * (15 << 20),
    }.items():
        yield what, archive(noise=noise, metadata__properties=head + tail, creation__meta=creation)


BOMBS = dict(bombs())


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_answered_in_time_and_takes_no_memory_of_the_service(bomb, pool, ask):
    """Half a megabyte once took 2.4 GB of the process that serves everybody, and 48 seconds."""
    assert len(BOMBS[bomb]) < 500_000
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()

    with suppress(InvalidRequest):
        ask(BOMBS[bomb], Form.DESCRIPTION)

    assert time.monotonic() - began < 15
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown < 64 << 10
    assert ask(parquet(), Form.SEGMENT, name="s1")[0][0].docs == 3


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
def test_a_process_that_hangs_or_dies_is_replaced(blow, pool, ask):
    for pid in pool.pids:
        os.kill(pid, blow)
    found = []
    for _ in range(3):
        # A stopped one is ended after its time; one that is dead is noticed before it is asked.
        with suppress(InvalidRequest):
            found, _ = ask(parquet(), Form.SEGMENT, name="s1")

    assert found[0].docs == 3


def test_more_columns_than_a_table_has_are_refused_and_long_ranges_left_out(ask):
    def column(number, text="x"):
        return ColumnDescription(
            name=f"c{number}", type="STRING", kind="DIMENSION", range=ColumnRange(text, text)
        )

    with pytest.raises(InvalidRequest, match="too many columns"):
        ask(packed(described(columns=tuple(map(column, range(10_001)))), b""), Form.DESCRIPTION)

    (found,), _ = ask(packed(described(columns=(column(1), column(2, "x" * 300))), b""), Form.DESCRIPTION)
    assert found.columns == {"c1": ColumnRange("x", "x")}


def test_what_an_archive_unpacks_to_is_told_before_it_is_written(ask, tmp_path):
    rows = parquet(1000)
    sent = packed(described(docs=1000), rows)

    with pytest.raises(RoomNeeded) as needed:
        ask(sent, Form.SEGMENT, room=len(rows) - 1)

    assert needed.value.size == len(rows)
    assert (tmp_path / "columns").read_bytes() == b""
    assert ask(sent, Form.SEGMENT, room=len(rows))[1] == rows


def _varint(number):
    encoded = b""
    while number > 0x7F:
        encoded, number = encoded + bytes([number & 0x7F | 0x80]), number >> 7
    return encoded + bytes([number])


def nested_schema(depth):
    """A Parquet file whose schema is a group in a group, so many times, in Thrift's compact protocol."""
    root = b"\x48\x01r\x15\x02\0"  # name: r, num_children: 1
    group = b"\x35\x02\x18\x01g\x15\x02\0"  # repetition_type: OPTIONAL, name: g, num_children: 1
    leaf = b"\x15\x02\x25\x02\x18\x01x\0"  # type: INT32, repetition_type: OPTIONAL, name: x
    footer = b"\x15\x04\x19\xfc" + _varint(depth + 2) + root + group * depth + leaf
    footer += b"\x16\0\x19\x0c\0"  # num_rows: 0, row_groups: none
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize("depth", [200, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("is_packed", [False, True], ids=["alone", "in an archive"])
def test_a_schema_of_groups_in_groups_ends_no_process(pool, ask, depth, is_packed):
    """pyarrow before 26 overflows its stack, which no Python code can catch."""
    assert ask(nested_schema(50), Form.SEGMENT, name="s1")[0][0].docs == 0, "a schema that is not too deep"
    before = sorted(pool.pids)
    sent = packed(described(docs=0), nested_schema(depth)) if is_packed else nested_schema(depth)

    with pytest.raises(InvalidRequest, match="cannot be read"):
        ask(sent, Form.SEGMENT, name="s1")

    assert sorted(pool.pids) == before
