"""What an uploaded file holds.

The file is a stranger's: an archive, properties, the footer of a Parquet file.
Everything that reads it is here, so that it can run in a process of its own.
"""

import datetime as dt
from enum import StrEnum
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import InvalidRequest
from holdfast.format.segments import SegmentDescription
from holdfast.model.segment import ColumnRange
from holdfast.push.segments.column_ranges import (
    column_ranges,
    footer_ranges,
    is_short,
)
from holdfast.push.segments.names import check_segment_name
from holdfast.push.uploads.archives import (
    ArchiveLimits,
    BatchSegment,
    UnpackedSegment,
    segment_crc,
    unpack_batch,
    unpack_segment,
)
from holdfast.push.uploads.inspection.stored_types import check_described_types, check_stored_types

_PARQUET = b"PAR1"
_GZIP = b"\x1f\x8b"
_COLUMNS_MAX = 10_000


class Form(StrEnum):
    """What an upload is sent as."""

    SEGMENT = "SEGMENT"
    """A Parquet file, or an archive with one."""
    DESCRIPTION = "DESCRIPTION"
    """An archive of the metadata of one segment."""
    BATCH = "BATCH"
    """An archive of the metadata of many."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    form: Form
    limits: ArchiveLimits
    name: str = ""
    """Of the segment in a Parquet file, which does not say it."""
    table: str = ""
    time_column: str | None = None
    created_ms: int = 0
    """Of a segment in a Parquet file, likewise."""
    accept_opaque: bool = False
    kinds: dict[str, str] = msgspec.field(default_factory=dict)
    """The columns of the table's schema, whose types those of the file must fit."""
    room: int | None = None
    """How large the Parquet file of an archive may be; None: as large as the limits say."""


class InspectedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """One segment."""

    name: str
    crc: int
    docs: int
    created_ms: int
    start_ms: int | None = None
    end_ms: int | None = None
    columns: dict[str, ColumnRange]
    uri: str = ""
    is_opaque: bool = False
    is_unpacked: bool = False
    """Its Parquet file was in an archive, and is where the caller wanted it."""


def inspect(source: BinaryIO, columns: BinaryIO, question: Question) -> list[InspectedSegment]:
    """The segments in a file. A Parquet file that is in an archive goes to `columns`.

    `InvalidRequest` tells what is wrong with it, `RoomNeeded` that a Parquet file is too large for `room`.
    """
    match question.form:
        case Form.SEGMENT:
            return [_inspect_segment(source, columns, question)]
        case Form.DESCRIPTION:
            unpacked = unpack_segment(source, columns, limits=question.limits)
            _check_description(unpacked.description, question)
            return [_describe(unpacked.description, unpacked.creation.crc, unpacked.creation.created_ms)]
        case Form.BATCH:
            found = unpack_batch(source, limits=question.limits).values()
            for one in found:
                _check_description(one.description, question)
            return list(map(_describe_batch, found))


def _inspect_segment(source: BinaryIO, columns: BinaryIO, question: Question) -> InspectedSegment:
    start = source.read(len(_PARQUET))
    source.seek(0)
    if start == _PARQUET:
        return _inspect_parquet(source, question)
    if start.startswith(_GZIP):
        return _inspect_archive(source, columns, question)
    raise InvalidRequest(
        "the file is neither Parquet nor a gzipped tar", code="INVALID_SEGMENT", hint="send one of them"
    )


def _inspect_parquet(source: BinaryIO, question: Question) -> InspectedSegment:
    name = question.name.removesuffix(".parquet")
    check_segment_name(name)
    file = _open_parquet(source, name)
    footer = file.metadata
    check_stored_types(name, _columns_of(file, name), footer, question.kinds)
    start_ms, end_ms = _time_range(footer_ranges(footer), question.time_column)
    description = SegmentDescription(name=name, table=question.table, docs=footer.num_rows)
    source.seek(0)
    return InspectedSegment(
        name=name,
        crc=segment_crc(description, source),
        docs=footer.num_rows,
        created_ms=question.created_ms,
        start_ms=start_ms,
        end_ms=end_ms,
        columns={column: ColumnRange(*texts) for column, texts in column_ranges(footer).items()},
    )


def _inspect_archive(source: BinaryIO, columns: BinaryIO, question: Question) -> InspectedSegment:
    unpacked = unpack_segment(source, columns, limits=question.limits, room=question.room)
    description, creation = unpacked.description, unpacked.creation
    _check_rows(unpacked, columns, question)
    found = _describe(description, creation.crc, creation.created_ms)
    return msgspec.structs.replace(found, is_opaque=unpacked.is_opaque, is_unpacked=unpacked.has_columns)


def _check_description(description: SegmentDescription, question: Question) -> None:
    check_described_types(description.name, description.columns, question.kinds)


def _check_rows(unpacked: UnpackedSegment, columns: BinaryIO, question: Question) -> None:
    name = unpacked.description.name
    if unpacked.is_opaque:
        if not question.accept_opaque:
            raise InvalidRequest(
                "the segment is in Pinot's own format, which cannot be queried here",
                segment=name,
                code="OPAQUE_SEGMENT",
                hint="send Parquet, or accept it with acceptOpaque=true to keep, list and switch it only",
            )
        return
    if not unpacked.has_columns:
        raise InvalidRequest(
            "the archive holds no rows", segment=name, code="INVALID_SEGMENT", hint="add columns.parquet"
        )
    columns.seek(0)
    file = _open_parquet(columns, name)
    rows = file.metadata.num_rows
    if rows != unpacked.description.docs:
        raise InvalidRequest(
            "the segment's properties and its file disagree about the number of rows",
            segment=name,
            said=unpacked.description.docs,
            found=rows,
            code="INVALID_SEGMENT",
        )
    check_stored_types(name, _columns_of(file, name), file.metadata, question.kinds)


def _describe(description: SegmentDescription, crc: int, created_ms: int) -> InspectedSegment:
    if len(description.columns) > _COLUMNS_MAX:
        raise InvalidRequest(
            "the segment has too many columns",
            segment=description.name,
            limit=_COLUMNS_MAX,
            code="INVALID_SEGMENT",
        )
    ranges = {one.name: one.range for one in description.columns if one.range is not None}
    return InspectedSegment(
        name=description.name,
        crc=crc,
        docs=description.docs,
        created_ms=created_ms,
        start_ms=description.start_ms,
        end_ms=description.end_ms,
        columns={name: one for name, one in ranges.items() if is_short(one.least, one.greatest)},
    )


def _describe_batch(segment: BatchSegment) -> InspectedSegment:
    found = _describe(segment.description, segment.creation.crc, segment.creation.created_ms)
    return msgspec.structs.replace(found, uri=segment.uri)


def _open_parquet(file: BinaryIO, name: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(name, error) from error


def _columns_of(file: pq.ParquetFile, name: str) -> pa.Schema:
    try:
        return file.schema_arrow
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: Exception) -> InvalidRequest:
    return InvalidRequest(
        "the segment's Parquet file cannot be read",
        segment=name,
        cause=str(error).partition("\n")[0],
        code="INVALID_SEGMENT",
    )


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
