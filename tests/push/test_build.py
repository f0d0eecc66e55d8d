"""Segments from Arrow batches: their limits, their times, their names."""

import datetime as dt
import io
import zlib
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.config.push import parse_table
from holdfast.config.push_job import SegmentNaming
from holdfast.config.push_schema import DataType, Field, FieldKind, parse_schema
from holdfast.errors import InvalidRequest, SchemaMismatch
from holdfast.push.segments.build import SegmentRequest, build_segments
from holdfast.push.segments.deep_store import segment_of_file
from holdfast.push.segments.names import SegmentNames, TimeSpan, segment_names
from holdfast.push.segments.time_formats import TimeFormat, time_format
from holdfast.storage.memory import MemoryStore

DAY_MS = 86_400_000


def _field(name, kind, **more):
    return Field(name=name, type=kind, kind=FieldKind.DIMENSION, **more)


ID, DAY = _field("id", DataType.LONG), _field("day", DataType.INT, format="1:DAYS:EPOCH")


def _request(**more):
    given = {
        "table": "orders_OFFLINE", "run": "run1", "names": SegmentNames(prefix="orders", postfix="7"),
        "fields": ((ID, -1), (DAY, 0)), **more,
    }  # fmt: skip
    return SegmentRequest(**given)


def _built(rows, request, *, batch_rows=100, task=0):
    store = MemoryStore()
    batches = rows.to_batches(max_chunksize=batch_rows)
    return store, list(build_segments(store, request, task=task, attempt=5, batches=batches))


def _read(store, built):
    return pq.read_table(io.BytesIO(store.read(built.path)))


def test_a_segment_holds_so_many_rows_and_no_more():
    store, built = _built(pa.table({"id": range(25)}), _request(most_rows=10), batch_rows=7)

    assert [one.rows for one in built] == [10, 10, 5]
    ids = [value for one in built for value in _read(store, one).column("id").to_pylist()]
    assert ids == list(range(25))


def test_a_segment_is_as_large_as_it_may_be():
    noise = pa.table({"id": pa.array([(n * 2654435761) % 2**61 for n in range(400_000)])})

    _, built = _built(noise, _request(most_bytes=1_000_000), batch_rows=10_000)

    assert len(built) > 2
    assert all(500_000 < one.size_bytes < 1_300_000 for one in built[:-1])


def test_rows_that_no_limit_cuts_are_one_segment_in_few_row_groups():
    store, built = _built(pa.table({"id": range(5000)}), _request(), batch_rows=50)

    assert [one.rows for one in built] == [5000]
    assert pq.ParquetFile(io.BytesIO(store.read(built[0].path))).num_row_groups == 1


def test_a_task_without_rows_builds_nothing():
    store, built = _built(pa.table({"id": pa.array([], pa.int64())}), _request())

    assert (built, list(store.paths(""))) == ([], [])


def test_what_is_told_of_a_segment_is_true_of_its_file():
    rows = pa.table({"id": [3, 1, 2], "day": [20_002, 20_000, None]})

    store, (built,) = _built(rows, _request(time=("day", TimeFormat(unit_ms=DAY_MS))), task=4)

    content = store.read(built.path)
    assert (built.size_bytes, built.crc) == (len(content), zlib.adler32(content))
    assert built.path == "orders/orders_7_4__run1-5.parquet"
    assert segment_of_file(built.path) == built.name == "orders_7_4"
    assert (built.start_ms, built.end_ms) == (20_000 * DAY_MS, 20_002 * DAY_MS)
    assert built.ranges == {"id": ("1", "3"), "day": ("20000", "20002")}


def test_times_that_are_texts_are_ordered_by_what_they_mean():
    day = _field("day", DataType.STRING, format="1:DAYS:SIMPLE_DATE_FORMAT:dd.MM.yyyy")
    rows = pa.table({"day": ["02.01.2026", "01.02.2026", "31.12.2025"]})

    _, (built,) = _built(rows, _request(fields=((ID, -1), (day, "")), time=("day", time_format(day))))

    assert (built.start_ms, built.end_ms) == (1_767_139_200_000, 1_769_904_000_000)


class _Counting(TimeFormat):
    """Counts the texts that are read one by one."""

    read: ClassVar[list[object]] = []

    def ms_of(self, value):
        self.read.append(value)
        return super().ms_of(value)


NEW_YEAR = dt.datetime(2026, 1, 1)
MANY = 5000
"""Moments, 61 seconds apart."""


def _moments(form, kind=DataType.STRING, pattern="%Y-%m-%d %H:%M:%S", *, wrong=()):
    """The times that are told of a segment with many different moments in no order."""
    at = _field("at", kind, format=form)
    texts = [(NEW_YEAR + dt.timedelta(seconds=61 * (n * 7 % MANY))).strftime(pattern) for n in range(MANY)]
    values = list(map(int, texts)) if kind is DataType.LONG else [*texts, *wrong]
    meaning = time_format(at)
    _Counting.read.clear()
    counting = _Counting(pattern=meaning.pattern, looks=meaning.looks, zone=meaning.zone)
    _, (built,) = _built(pa.table({"at": values}), _request(fields=((at, ""),), time=("at", counting)))
    return built.start_ms, built.end_ms


@pytest.mark.parametrize(
    ("form", "kind", "pattern"),
    [
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd HH:mm:ss|UTC", DataType.STRING, "%Y-%m-%d %H:%M:%S"),
        ("SIMPLE_DATE_FORMAT|yyyy.MM.dd'T'HH:mm:ss.SSS|UTC", DataType.STRING, "%Y.%m.%dT%H:%M:%S.000"),
        ("1:SECONDS:SIMPLE_DATE_FORMAT:yyyyMMddHHmmss", DataType.LONG, "%Y%m%d%H%M%S"),
    ],
)
def test_times_that_are_texts_are_not_read_row_by_row(form, kind, pattern):
    start_ms, end_ms = _moments(form, kind, pattern)

    assert (start_ms, end_ms) == (1_767_225_600_000, 1_767_225_600_000 + 61_000 * (MANY - 1))
    assert len(_Counting.read) == 2


def test_many_times_whose_texts_do_not_sort_as_time_does_are_ordered_by_what_they_mean():
    start_ms, end_ms = _moments("SIMPLE_DATE_FORMAT|dd.MM.yyyy HH:mm:ss|UTC", pattern="%d.%m.%Y %H:%M:%S")

    assert (start_ms, end_ms) == (1_767_225_600_000, 1_767_225_600_000 + 61_000 * (MANY - 1))


@pytest.mark.parametrize("wrong", ["2026-01-02 25:00:00", "2026-01-02 tenish"])
def test_one_of_many_times_that_is_not_in_its_format_is_refused(wrong):
    """It lies between the others, so the first and the last do not show it."""
    with pytest.raises(SchemaMismatch, match="format"):
        _moments("SIMPLE_DATE_FORMAT|yyyy-MM-dd HH:mm:ss|UTC", wrong=[wrong])


def test_a_time_that_is_not_in_its_format_is_refused():
    day = _field("day", DataType.STRING, format="SIMPLE_DATE_FORMAT|yyyy-MM-dd|UTC")

    with pytest.raises(SchemaMismatch, match="format"):
        _built(pa.table({"day": ["today"]}), _request(fields=((day, ""),), time=("day", time_format(day))))


@pytest.mark.parametrize(
    ("form", "value", "ms"),
    [
        ("1:MILLISECONDS:EPOCH", 5, 5),
        ("EPOCH|SECONDS|1", 5, 5000),
        ("5:MINUTES:EPOCH", 2, 600_000),
        ("TIMESTAMP", 5, 5),
        ("1:MILLISECONDS:TIMESTAMP", 5, 5),
        ("", 5, 5),
        ("1:DAYS:SIMPLE_DATE_FORMAT:yyyyMMdd", "19700102", DAY_MS),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd HH:mm|Europe/Oslo", "1970-01-01 01:00", 0),
    ],
)
def test_formats_of_time_columns_are_understood(form, value, ms):
    assert time_format(_field("t", DataType.LONG, format=form)).ms_of(value) == ms


@pytest.mark.parametrize("form", ["1:YEARS:EPOCH", "x", "0:DAYS:EPOCH", "SIMPLE_DATE_FORMAT|EEE|UTC"])
def test_a_format_that_is_not_understood_is_refused(form):
    with pytest.raises(SchemaMismatch):
        time_format(_field("t", DataType.LONG, format=form))


# Names

SPAN = TimeSpan(first="20000", last="20002", start_ms=20_000 * DAY_MS, end_ms=20_002 * DAY_MS)


def _rule(naming=None, *, refresh=True, run_ms=1_732_752_000_456, time="day", form="1:DAYS:EPOCH", **batch):
    kind = "STRING" if "SIMPLE" in form else "INT"
    schema = parse_schema(
        {"schemaName": "orders", "dateTimeFieldSpecs": [{"name": "day", "dataType": kind, "format": form}]}
    )
    table = parse_table(
        {
            "tableName": "orders",
            "segmentsConfig": {"timeColumnName": time} if time else {},
            "ingestionConfig": {
                "batchIngestionConfig": {"segmentIngestionType": "REFRESH" if refresh else "APPEND", **batch}
            },
        }
    )
    return segment_names(naming or SegmentNaming(), table, schema, run_ms=run_ms)


def test_names_are_those_of_pinots_simple_generator():
    assert _rule().name(3, 0, SPAN) == "orders_OFFLINE_20000_20002_1732752000456_3"
    assert _rule().name(3, 2, SPAN) == "orders_OFFLINE_20000_20002_1732752000456_3_2"
    assert _rule(time="").name(0, 0, None) == "orders_OFFLINE_1732752000456_0"
    assert _rule(run_ms=None).name(0, 0, SPAN) == "orders_OFFLINE_20000_20002_0"


def test_prefix_postfix_and_what_is_left_out_are_as_the_job_says():
    naming = SegmentNaming(prefix="p", postfix="x", exclude_time=True, exclude_sequence=True)

    assert _rule(naming).name(0, 0, SPAN) == "p_x_1732752000456"


def test_dates_stand_in_names_of_tables_that_are_added_to():
    form = "1:DAYS:SIMPLE_DATE_FORMAT:yyyyMMdd"

    assert _rule(form=form, refresh=False).name(0, 0, SPAN) == (
        "orders_OFFLINE_2024-10-04_2024-10-06_1732752000456_0"
    )
    assert _rule(form=form).name(0, 0, SPAN) == "orders_OFFLINE_1732752000456_0"
    hourly = _rule(form=form, refresh=False, segmentIngestionFrequency="HOURLY", run_ms=None)
    assert hourly.name(0, 0, SPAN) == "orders_OFFLINE_2024-10-04-00_2024-10-06-00_0"


def test_a_name_that_no_segment_can_have_is_refused():
    with pytest.raises(InvalidRequest, match="segment name"):
        _rule(SegmentNaming(prefix="a/b")).name(0, 0, None)
