"""Bytes that look like what a table or an upload holds: decoded, or refused by name."""

import datetime as dt
import gzip
import io
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuzz.inputs import changed, how_many
from harness.damage import rich_table
from harness.log_writer import data_block, delete_block
from holdfast.errors import HoldfastError, InvalidRequest, TableDamaged, UnsupportedTable
from holdfast.format.archive import decode_archive
from holdfast.format.avro import decode_container
from holdfast.format.avro_columns import decode_avro_rows
from holdfast.format.cleans import decode_clean_metadata, decode_clean_plan
from holdfast.format.commits import (
    decode_commit,
    decode_extra_metadata,
    decode_partitions,
    decode_replaced_file_ids,
    decode_writes,
    decode_written_files,
)
from holdfast.format.compaction_plans import CompactionPlan, decode_compaction_plan, encode_compaction_plan
from holdfast.format.delete_blocks import decode_deletes
from holdfast.format.ledger_entries import decode_checkpoint, decode_entry
from holdfast.format.lineage import lineage_of, lineage_record
from holdfast.format.log_blocks import BlockHeader, decode_blocks, encode_block
from holdfast.format.malformed import Malformed
from holdfast.format.parquet_footer import decode_footer
from holdfast.format.partition_metafile import decode_partition_metafile
from holdfast.format.properties import decode_table_properties, parse_properties
from holdfast.format.replace_requests import decode_replace_request, encode_replace_request
from holdfast.format.restores import decode_restore_metadata, decode_restore_plan
from holdfast.format.rollbacks import decode_rollback_metadata, decode_rollback_plan
from holdfast.format.savepoints import decode_savepoint
from holdfast.format.segments import (
    ColumnDescription,
    Creation,
    SegmentDescription,
    decode_creation,
    decode_description,
    encode_creation,
    encode_description,
)
from holdfast.format.znode import decode_record, encode_record
from holdfast.model.lineage import EntryState, Lineage, LineageEntry
from holdfast.model.names import parse_archive, parse_base_file, parse_instant_file, parse_marker
from holdfast.model.segment import ColumnRange
from holdfast.push.uploads.archives import ArchiveLimits, BatchSegment, pack_batch, pack_segment
from holdfast.push.uploads.inspection.inspect import Form, Question, inspect
from holdfast.push.uploads.inspection.pool import InspectionPool
from holdfast.timeline.ledger import LedgerState

DESCRIPTION = SegmentDescription(
    name="s1",
    table="trips_OFFLINE",
    docs=3,
    time_column="ts",
    start_ms=1,
    end_ms=9,
    columns=(ColumnDescription(name="ts", type="LONG", kind="DATE_TIME", range=ColumnRange("1", "9")),),
)


@pytest.fixture(scope="module")
def files():
    """Every file under `.hoodie` of a table with a rich history, by its path."""
    store = rich_table().store
    return {path: store.read(path) for path in store.paths(".hoodie")}


def endings(files, *endings):
    found = [content for path, content in files.items() if path.endswith(endings) and content]
    assert found, endings
    return found


def parquet_file():
    sink = io.BytesIO()
    rows = {
        "id": pa.array(range(50)),
        "city": pa.array(["rome"] * 50),
        "tags": pa.array([["a", "b"]] * 50),
        "at": pa.array([{"x": 1, "y": "z"}] * 50),
    }
    pq.write_table(pa.table(rows), sink, row_group_size=20, write_statistics=True)
    return sink.getvalue()


def test_properties(files, tally):
    seeds = [
        *endings(files, "hoodie.properties"),
        encode_description(DESCRIPTION),
        b"# c\nhoodie.table.name=t\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.version=6\n",
        b"a\\\n  b : \\u00e9\n",
    ]
    for decode in (decode_table_properties, parse_properties, decode_description, decode_partition_metafile):
        tally.feed("properties", decode, changed(seeds, how_many(1500), decode.__name__), (Malformed,))


def test_avro_plans(files, tally):
    avro = [content for content in files.values() if content.startswith(b"Obj\x01")]
    seeds = [*avro, encode_replace_request(), encode_compaction_plan(CompactionPlan(operations=()))]
    for decode in (
        decode_container,
        decode_clean_plan,
        decode_clean_metadata,
        decode_rollback_plan,
        decode_rollback_metadata,
        decode_restore_plan,
        decode_restore_metadata,
        decode_savepoint,
        decode_replace_request,
        decode_compaction_plan,
    ):
        tally.feed("Avro plans", decode, changed(seeds, how_many(900), decode.__name__), (Malformed,))


def test_timeline_files(files, tally):
    commits = endings(files, ".commit", ".replacecommit")
    for decode in (
        decode_commit,
        decode_replaced_file_ids,
        decode_partitions,
        decode_written_files,
        decode_writes,
        decode_extra_metadata,
    ):
        tally.feed("timeline", decode, changed(commits, how_many(1200), decode.__name__), (Malformed,))
    archives = [content for path, content in files.items() if "/archived/" in path]
    tally.feed(
        "timeline",
        lambda content: [*decode_archive(content, dt.UTC).files, *decode_blocks(content)],
        changed(archives, how_many(2000), "archives"),
        (Malformed,),
    )


def test_log_files(tally):
    """What decodes the blocks of log files meets wrong bytes that the frame around them let pass."""
    rows = [(f"k{number}", number, "x" * number) for number in range(8)]
    avro = data_block("20260101000000000", rows, is_avro=True)
    text = avro.header[BlockHeader.SCHEMA].decode()
    deletes = delete_block("20260101000000000", {"a": 1, "b": None})
    whole = encode_block(avro) + encode_block(deletes)
    tally.feed("logs", lambda c: list(decode_blocks(c)), changed([whole], how_many(2000), "logs"), ())
    tally.feed(
        "logs",
        lambda content: decode_avro_rows(content, text, ("id", "ts", "value")),
        changed([avro.content], how_many(2000), "avro rows"),
        (Malformed, pa.ArrowInvalid),
    )
    tally.feed(
        "logs",
        lambda content: decode_deletes(content, pa.int64()),
        changed([deletes.content], how_many(2000), "deletes"),
        (Malformed, UnsupportedTable),
    )


def test_names_of_files(files, tally):
    names = [path.rpartition("/")[2].encode() for path in files]
    names += [b"f1-0_1-2-3_20260101000000000.parquet", b".f1-0_20260101000000000.log.1_0-1-2"]
    for parse in (parse_instant_file, parse_base_file, parse_marker, parse_archive):
        tally.feed(
            "names",
            lambda name, parse=parse: parse(name.decode("utf-8", "surrogateescape")),
            changed(names, how_many(750), parse.__name__),
            (),
        )


def test_ledger_files(files, tally):
    entries = [content for path, content in files.items() if "/ledger/" in path]
    states = [content for path, content in files.items() if "/checkpoint/" in path]
    tally.feed("ledger", decode_entry, changed(entries, how_many(3500), "entries"), (Malformed,))
    tally.feed(
        "ledger",
        lambda content: decode_checkpoint(content, LedgerState),
        changed(states, how_many(2500), "states"),
        (Malformed,),
    )


def test_a_table_with_changed_files_is_opened_or_refused(files, tally):
    """The whole way, from a store: the ledger's chain and the timeline's names, too."""
    world = rich_table()
    kinds = ("/ledger/", "/checkpoint/", ".commit", ".replacecommit", "hoodie.properties", "/floor")
    paths = [path for path in files if any(kind in path for kind in kinds)]

    def use(change):
        path, content = change
        table = world.copy()
        table.store.put(path, content)
        opened = table.open()
        opened.ledger.read()

    each = how_many(2000) // len(paths) + 1
    inputs = ((path, one) for path in paths for one in changed([files[path]], each, path))
    tally.feed("ledger", use, inputs, (TableDamaged, HoldfastError))


def test_records_of_the_push_service(tally):
    entry = LineageEntry(
        id="e1", segments_from=("a",), segments_to=("b",), state=EntryState.COMPLETED, changed_at_ms=5
    )
    seeds = [encode_record(lineage_record("trips_OFFLINE", Lineage((entry,), {"k": "v"})))]
    tally.feed(
        "records",
        lambda content: lineage_of(decode_record(content)),
        changed(seeds, how_many(2000), "lineage"),
        (Malformed,),
    )


def test_footers_of_parquet_files(tally):
    whole = parquet_file()
    size = int.from_bytes(whole[-8:-4], "little")
    footer = whole[-8 - size : -8]
    tally.feed(
        "footers",
        lambda content: decode_footer(content, data_end=len(whole) - size - 8),
        changed([footer], how_many(4000), "thrift"),
        (Malformed,),
    )


def test_uploads(tally, request):
    rows = parquet_file()
    packed = io.BytesIO()
    description = SegmentDescription(name="s1", table="trips_OFFLINE", docs=50)
    pack_segment(packed, description, Creation(7, 8), io.BytesIO(rows), size_bytes=len(rows))
    batch = pack_batch([BatchSegment(description=DESCRIPTION, creation=Creation(7, 8), uri="file:///x/s1")])
    limits = ArchiveLimits(expanded_bytes=64 << 20)

    pool, ended = InspectionPool(limits), []
    request.addfinalizer(pool.close)
    pool.start()

    def look(form):
        question = Question(form=form, limits=limits, name="s1", table="trips_OFFLINE", time_column="id")

        def act(content):
            with (
                open(os.memfd_create("sent"), "w+b") as source,
                open(os.memfd_create("columns"), "w+b") as columns,
            ):
                source.write(content)
                source.flush()
                before = pool.pids
                try:
                    pool.inspect(source, columns, question)
                finally:
                    ended.extend(set(before) - set(pool.pids))

        return act

    for form, seeds, count in (
        (Form.SEGMENT, [rows], 4000),
        (Form.SEGMENT, [packed.getvalue()], 2000),
        (Form.DESCRIPTION, [packed.getvalue()], 1500),
        (Form.BATCH, [batch], 2500),
    ):
        inputs = changed(seeds, how_many(count), f"{form} {len(seeds[0])}")
        tally.feed("archives and footers", look(form), inputs, (InvalidRequest,), seconds_max=6.0)
        # pyarrow aborts over some footers, which is why a process of its own looks at them.
        assert len(ended) <= 1 + how_many(count) // 100
        ended.clear()
    creation = changed([encode_creation(Creation(7, 8, 9))], how_many(500), "creation")
    tally.feed("archives", decode_creation, creation, (Malformed,))


def test_archives_with_whole_compression(tally):
    """Most changes to a compressed file end at its checksum: these change what is inside."""
    packed = io.BytesIO()
    pack_segment(packed, DESCRIPTION, Creation(7, 8), io.BytesIO(b"PAR1rowsPAR1"), size_bytes=12)
    plain = gzip.decompress(packed.getvalue())
    question = Question(form=Form.SEGMENT, limits=ArchiveLimits(expanded_bytes=64 << 20))

    def look(content):
        return inspect(io.BytesIO(gzip.compress(content, 1)), io.BytesIO(), question)

    tally.feed("archives", look, changed([plain], how_many(4000), "tar"), (InvalidRequest,))
