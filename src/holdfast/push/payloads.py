"""Payloads: what an uploaded file holds, read and checked before anything is kept of it."""

import datetime as dt
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.config.push import PushTable
from holdfast.errors import InvalidRequest
from holdfast.format.segments import SegmentDescription
from holdfast.push.archives import ArchiveLimits, BatchSegment, segment_crc, unpack_segment
from holdfast.push.footers import column_ranges, footer_ranges
from holdfast.push.segments import ColumnRange, Segment, check_segment_name

_PARQUET = b"PAR1"
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One segment that wants to be registered."""

    name: str
    crc: int
    docs: int
    created_ms: int
    start_ms: int | None = None
    end_ms: int | None = None
    file: Path | None = None
    """Its bytes on this machine; None: they stay where they are."""
    copy_of: str = ""
    """Its bytes in the deep store, which are to be copied."""
    uri: str = ""
    """Where the bytes are, if they stay there."""
    is_placed: bool = False
    """They are in the deep store already, at the path `uri`, and become the segment's as they are."""
    size_bytes: int = 0
    is_opaque: bool = False
    columns: Mapping[str, ColumnRange]

    @property
    def has_bytes(self) -> bool:
        return self.file is not None or bool(self.copy_of)


@contextmanager
def opened_payload(
    file: Path,
    *,
    name: str,
    config: PushTable,
    now_ms: int,
    accept_opaque: bool,
    limits: ArchiveLimits | None = None,
) -> Iterator[Payload]:
    """The segment in an uploaded file, a Parquet file or an archive; unpacked while the block runs."""
    with open(file, "rb") as source:
        start = source.read(len(_PARQUET))
    if start == _PARQUET:
        yield _of_parquet(file, name, config, now_ms)
        return
    if not start.startswith(_GZIP):
        raise InvalidRequest(
            "the file is neither Parquet nor a gzipped tar", code="INVALID_SEGMENT", hint="send one of them"
        )
    columns = file.with_name(file.name + ".columns")
    try:
        yield _of_archive(file, columns, accept_opaque=accept_opaque, limits=limits)
    finally:
        if os.path.lexists(columns):
            columns.unlink()


def described_payload(file: Path, *, uri: str, size_bytes: int = 0) -> Payload:
    """The segment that an archive of metadata describes; its bytes are elsewhere."""
    columns = file.with_name(file.name + ".columns")
    try:
        with open(file, "rb") as source:
            unpacked = unpack_segment(source, columns)
    finally:
        if os.path.lexists(columns):
            columns.unlink()
    found = BatchSegment(description=unpacked.description, creation=unpacked.creation, uri=uri)
    return batch_payload(found, size_bytes=size_bytes)


def copied_payload(segment: Segment, *, name: str) -> Payload:
    """The same rows under another name."""
    is_elsewhere = "://" in segment.uri
    return Payload(
        name=name,
        crc=segment.crc,
        docs=segment.docs,
        created_ms=segment.created_ms,
        start_ms=segment.start_ms,
        end_ms=segment.end_ms,
        copy_of="" if is_elsewhere else segment.uri,
        uri=segment.uri if is_elsewhere else "",
        size_bytes=segment.size_bytes,
        is_opaque=segment.is_opaque,
        columns=segment.columns,
    )


def batch_payload(segment: BatchSegment, *, size_bytes: int = 0) -> Payload:
    description, creation = segment.description, segment.creation
    return Payload(
        name=description.name,
        crc=creation.crc,
        docs=description.docs,
        created_ms=creation.created_ms,
        start_ms=description.start_ms,
        end_ms=description.end_ms,
        uri=segment.uri,
        size_bytes=size_bytes,
        columns=_ranges(description),
    )


def _of_archive(file: Path, columns: Path, *, accept_opaque: bool, limits: ArchiveLimits | None) -> Payload:
    with open(file, "rb") as source:
        unpacked = unpack_segment(source, columns, limits=limits)
    if unpacked.is_opaque and not accept_opaque:
        raise InvalidRequest(
            "the segment is in Pinot's own format, which cannot be queried here",
            segment=unpacked.description.name,
            code="OPAQUE_SEGMENT",
            hint="send Parquet, or accept it with acceptOpaque=true to keep, list and switch it only",
        )
    if not unpacked.is_opaque and not unpacked.has_columns:
        raise InvalidRequest(
            "the archive holds no rows",
            segment=unpacked.description.name,
            code="INVALID_SEGMENT",
            hint="add columns.parquet",
        )
    description, creation = unpacked.description, unpacked.creation
    kept = columns if unpacked.has_columns else file
    if unpacked.has_columns:
        rows = _footer(columns, description.name).num_rows
        if rows != description.docs:
            raise InvalidRequest(
                "the segment's properties and its file disagree about the number of rows",
                segment=description.name,
                said=description.docs,
                found=rows,
                code="INVALID_SEGMENT",
            )
    return Payload(
        name=description.name,
        crc=creation.crc,
        docs=description.docs,
        created_ms=creation.created_ms,
        start_ms=description.start_ms,
        end_ms=description.end_ms,
        file=kept,
        size_bytes=kept.stat().st_size,
        is_opaque=unpacked.is_opaque,
        columns=_ranges(description),
    )


def _of_parquet(file: Path, name: str, config: PushTable, now_ms: int) -> Payload:
    name = name.removesuffix(".parquet")
    check_segment_name(name)
    footer = _footer(file, name)
    ranges = footer_ranges(footer)
    start_ms, end_ms = _time_range(ranges, config.time_column)
    description = SegmentDescription(name=name, table=config.table, docs=footer.num_rows)
    with open(file, "rb") as source:
        crc = segment_crc(description, source)
    return Payload(
        name=name,
        crc=crc,
        docs=footer.num_rows,
        created_ms=now_ms,
        start_ms=start_ms,
        end_ms=end_ms,
        file=file,
        size_bytes=file.stat().st_size,
        columns={column: ColumnRange(*texts) for column, texts in column_ranges(footer).items()},
    )


def _footer(file: Path, name: str) -> Any:
    try:
        with pq.ParquetFile(file) as parquet:
            return parquet.metadata
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRequest(
            "the segment's Parquet file cannot be read",
            segment=name,
            cause=str(error).partition("\n")[0],
            code="INVALID_SEGMENT",
        ) from error


def _time_range(ranges: dict[str, tuple[Any, Any]], time_column: str | None) -> tuple[int | None, int | None]:
    """The time column's range in milliseconds; whole numbers are taken to be milliseconds."""
    least, most = (_ms(value) for value in ranges.get(time_column or "", (None, None)))
    return (None, None) if least is None or most is None else (least, most)


def _ms(value: Any) -> int | None:
    match value:
        case bool():
            return None
        case int():
            return value
        case dt.datetime():
            moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
            return int(moment.timestamp() * 1000)
        case dt.date():
            return int(dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC).timestamp() * 1000)
        case _:
            return None


def _ranges(description: SegmentDescription) -> dict[str, ColumnRange]:
    return {column.name: column.range for column in description.columns if column.range is not None}
