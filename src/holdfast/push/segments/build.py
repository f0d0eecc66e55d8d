"""Segments from rows: the body of a task that turns Arrow batches into files of the deep store.

A segment's name tells the times of its rows, so its file gets its name, and a
place, when its last row is known. Until then it is a temporary file of the
task. One small description per segment is all that the driver gets.
"""

import itertools
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from types import MappingProxyType
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.config.push_schema import Field
from holdfast.errors import Conflict, SchemaMismatch
from holdfast.files.base_file import repeating_columns
from holdfast.push.ingestion.program import RowProgram
from holdfast.push.segments.column_ranges import column_ranges
from holdfast.push.segments.conversions import arrow_type, constant, convert
from holdfast.push.segments.deep_store import segment_path
from holdfast.push.segments.names import SegmentNames, TimeSpan
from holdfast.push.segments.time_formats import TimeFormat
from holdfast.storage.store import Store

SEGMENT_BYTES = 128 << 20
_ROW_GROUP_ROWS = 200_000
_ROW_GROUP_BYTES = 64 << 20
_ROW_GROUP_BYTES_MIN = 1 << 20
_SPOOLED_BYTES = 32 << 20
_CHUNK = 1 << 20
_ZSTD_LEVEL = 1
FILE_NAME = "_holdfast_file"
"""The column with the address of the file that a row is of, on the first row of each file."""
FILE_HASH = "_holdfast_file_hash"
"""The column with a number that all rows of a file share."""
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_TEXTS_MAX = 1000
"""Different times of a row group that are read one by one, if they are texts; of more only the extremes."""


@dataclass(frozen=True, slots=True)
class InputFile:
    address: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRequest:
    """What a task needs to know; it travels with it."""

    table: str
    run: str
    """The start of every token, so that the files of a run are known by their names."""
    names: SegmentNames
    fields: tuple[tuple[Field, object], ...]
    """The columns of a segment, each with what stands in it if the input has no such column."""
    time: tuple[str, TimeFormat] | None = None
    """The time column, and what its values mean."""
    most_rows: int | None = None
    most_bytes: int | None = SEGMENT_BYTES
    program: RowProgram | None = None
    """What becomes of the rows first; None: they stay as they are."""
    files: Mapping[str, InputFile] = field(default_factory=lambda: MappingProxyType({}))
    """The input files by `file_key`, where segments are made file by file."""


class BuiltSegment(msgspec.Struct, frozen=True, kw_only=True):
    """One file that is whole and durable, and not registered yet."""

    name: str
    path: str
    rows: int
    size_bytes: int
    crc: int
    """Adler-32 of the file."""
    start_ms: int | None = None
    end_ms: int | None = None
    ranges: dict[str, tuple[str, str]] = {}
    """The least and the greatest value of columns, as text."""
    sequence: int = 0
    """The number of the input file, or of the task."""


def file_key(address: str) -> str:
    """The address of a file however it is spelled: without what names the kind of storage."""
    return _SCHEME.sub("", address).lstrip("/")


def build_by_file(
    store: Store, request: SegmentRequest, *, attempt: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[BuiltSegment]:
    """Segments of the rows of each file by themselves; batches have the columns that tell the file."""
    for _, pieces in itertools.groupby(_cut_by_file(batches), key=lambda piece: piece[0]):
        first = next(pieces)
        file = _file_of(first[1], request.files)
        rows = (piece[2] for piece in itertools.chain((first,), pieces))
        yield from build_segments(
            store, request, task=file.sequence, attempt=attempt, batches=rows, file=file.address
        )


def _cut_by_file(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, str, pa.RecordBatch]]:
    """Which file it is in the order of the rows, its address where it begins, and rows of it."""
    number, last = -1, None
    for batch in batches:
        names, hashes = batch.column(FILE_NAME), batch.column(FILE_HASH).to_numpy(zero_copy_only=False)
        rows = batch.drop_columns([FILE_NAME, FILE_HASH])
        changes = np.flatnonzero(hashes[1:] != hashes[:-1]) + 1
        starts = sorted({0, *changes.tolist(), *pc.indices_nonzero(names.is_valid()).to_pylist()})
        for start, end in itertools.pairwise((*starts, len(hashes))):
            if start == end:
                continue
            address = names[start].as_py() or ""
            if address or hashes[start] != last:
                number, last = number + 1, hashes[start]
            yield number, address, rows.slice(start, end - start)


def _file_of(address: str, files: Mapping[str, InputFile]) -> InputFile:
    """Which of the files it is; Spark writes addresses with escapes."""
    spellings = (file_key(unquote(address)), file_key(address))
    found = next((files[key] for key in spellings if key in files), None)
    if found is None:
        # Another thread may have changed how the session cuts files.
        raise Conflict(
            "rows of several files came as one",
            file=address,
            hint="run it again, and no other job of the same Spark session at once",
        )
    return found


def build_segments(
    store: Store,
    request: SegmentRequest,
    *,
    task: int,
    attempt: int,
    batches: Iterable[pa.RecordBatch],
    file: str = "",
) -> Iterator[BuiltSegment]:
    """Write the batches into as many segments as their limits ask for; each is yielded when it is whole.

    `task` is the sequence in their names: the number of the task, or that of `file`.
    """
    schema = pa.schema([pa.field(column.name, arrow_type(column)) for column, _ in request.fields])
    number = 0
    segment: _Segment | None = None
    try:
        for batch in batches if request.program is None else request.program.run(batches):
            rows = _convert_batch(batch, request, schema)
            while rows.num_rows:
                if segment is None:
                    segment = _Segment(request, schema)
                taken = segment.take(rows)
                rows = rows.slice(taken)
                if rows.num_rows or segment.is_full:
                    yield segment.finish(store, task=task, attempt=attempt, number=number, file=file)
                    segment, number = None, number + 1
        if segment is not None:
            yield segment.finish(store, task=task, attempt=attempt, number=number, file=file)
            segment = None
    finally:
        if segment is not None:
            segment.discard()


def _convert_batch(batch: pa.RecordBatch, request: SegmentRequest, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the columns and the types of the table."""
    held = batch.schema.names
    columns = [
        convert(batch.column(field.name), field)
        if field.name in held
        else constant(field, default, batch.num_rows)
        for field, default in request.fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Segment:
    """One segment while it is written."""

    def __init__(self, request: SegmentRequest, schema: pa.Schema) -> None:
        self._request = request
        self._schema = schema
        self._spool = cast(BinaryIO, SpooledTemporaryFile(max_size=_SPOOLED_BYTES))  # noqa: SIM115
        self._parquet: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = self._flushed_bytes = self._rows = 0
        self._footer: list[Any] = []
        self._span: TimeSpan | None = None

    @property
    def is_full(self) -> bool:
        return self._rows >= self._most_rows

    @property
    def _most_rows(self) -> int:
        return self._request.most_rows or (1 << 62)

    def take(self, rows: pa.RecordBatch) -> int:
        """Add as many of the rows as the segment has room for, one at least if it has none yet."""
        if self._rows and not self._has_room_for(rows):
            return 0
        taken = rows.slice(0, self._most_rows - self._rows)
        self._pending.append(taken)
        self._rows += taken.num_rows
        self._pending_rows += taken.num_rows
        self._pending_bytes += taken.nbytes
        most = self._request.most_bytes or SEGMENT_BYTES * 4
        limit = max(_ROW_GROUP_BYTES_MIN, min(_ROW_GROUP_BYTES, most // 4))
        if self._pending_rows >= _ROW_GROUP_ROWS or self._pending_bytes >= limit:
            self._flush()
        return int(taken.num_rows)

    def finish(self, store: Store, *, task: int, attempt: int, number: int, file: str) -> BuiltSegment:
        """Give the segment its name and its place; the file is durable when this returns."""
        self._flush()
        assert self._parquet is not None, "a segment has rows"
        self._parquet.close()
        name = self._request.names.name(task, number, self._span, file)
        path = segment_path(self._request.table, name, token=f"{self._request.run}-{attempt}")
        with self._spool as spool, store.upload(path) as sink:
            size, crc = _copy(spool, sink)
        return BuiltSegment(
            name=name,
            path=path,
            rows=self._rows,
            size_bytes=size,
            crc=crc,
            start_ms=None if self._span is None else self._span.start_ms,
            end_ms=None if self._span is None else self._span.end_ms,
            ranges=column_ranges(self._footer[0]),
            sequence=task,
        )

    def discard(self) -> None:
        if self._parquet is not None:
            self._parquet.close()  # Or it would complain when it is collected.
        self._spool.close()

    def _has_room_for(self, rows: pa.RecordBatch) -> bool:
        """Judged by how small the rows got that were encoded already."""
        if self._request.most_bytes is None:
            return self._rows < self._most_rows
        written = self._spool.tell()
        ratio = written / self._flushed_bytes if self._flushed_bytes else 1.0
        fits = written + ratio * (self._pending_bytes + rows.nbytes) <= self._request.most_bytes
        return fits and self._rows < self._most_rows

    def _flush(self) -> None:
        if not self._pending:
            return
        rows = pa.Table.from_batches(self._pending)
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                self._spool,
                self._schema,
                compression="zstd",
                compression_level=_ZSTD_LEVEL,
                use_dictionary=repeating_columns(rows),
                version="2.6",
                write_page_checksum=True,
                store_schema=False,
                metadata_collector=self._footer,
            )
        self._parquet.write_table(rows, row_group_size=rows.num_rows)
        if self._request.time is not None:
            self._span = _wider(self._span, _span_of(rows, *self._request.time))
        self._flushed_bytes += self._pending_bytes
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


def _copy(source: BinaryIO, sink: BinaryIO) -> tuple[int, int]:
    size, crc = 0, 1
    source.seek(0)
    while chunk := source.read(_CHUNK):
        crc = zlib.adler32(chunk, crc)
        size += len(chunk)
        sink.write(chunk)
    return size, crc


def _span_of(rows: pa.Table, column: str, meaning: TimeFormat) -> TimeSpan | None:
    """The first and the last time of the rows; None if they have no times."""
    times = rows.column(column)
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    found = pc.unique(times).drop_null().cast(pa.string()) if meaning.pattern else times
    if not meaning.pattern or (len(found) > _TEXTS_MAX and _sort_as_time(found, meaning)):
        extremes = pc.min_max(found).as_py()
        ends = [value for value in (extremes["min"], extremes["max"]) if value is not None]
    else:
        ends = found.to_pylist()
    if not ends:
        return None
    try:
        ordered = sorted((meaning.ms_of(value), str(value)) for value in ends)
    except ValueError as error:
        raise SchemaMismatch(
            "a time is not in the format of its column", column=column, cause=str(error)
        ) from error
    (start_ms, first), (end_ms, last) = ordered[0], ordered[-1]
    return TimeSpan(first=first, last=last, start_ms=start_ms, end_ms=end_ms)


def _sort_as_time(texts: pa.Array, meaning: TimeFormat) -> bool:
    """Whether the order of the texts is that of the moments they tell."""
    if not meaning.looks:
        return False
    return bool(pc.all(pc.match_substring_regex(texts, f"^{meaning.looks}$")).as_py())


def _wider(one: TimeSpan | None, other: TimeSpan | None) -> TimeSpan | None:
    if one is None or other is None:
        return other or one
    early, late = min(one, other, key=lambda s: s.start_ms), max(one, other, key=lambda s: s.end_ms)
    return TimeSpan(first=early.first, last=late.last, start_ms=early.start_ms, end_ms=late.end_ms)
