"""What describes a segment: its record in Pinot's property store, and the two files inside its archive."""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.format.malformed import Malformed
from holdfast.format.properties import parse_properties, render_properties
from holdfast.format.znode import ZNRecord
from holdfast.model.segment import ColumnRange, Segment

_CUSTOM = "custom.map"
_MILLISECONDS = "MILLISECONDS"

_CRC = "segment.crc"
_DOCS = "segment.total.docs"
_SIZE = "segment.size.in.bytes"
_URI = "segment.download.url"
_START = "segment.start.time"
_END = "segment.end.time"
_RAW_START = "segment.start.time.raw"
_RAW_END = "segment.end.time.raw"
_UNIT = "segment.time.unit"
_CREATED = "segment.creation.time"
_PUSHED = "segment.push.time"
_REFRESHED = "segment.refresh.time"
_INDEX_VERSION = "segment.index.version"
_DIGEST = "holdfast.segment.digest"
_COLUMNS = "holdfast.segment.columns"
_OPAQUE = "holdfast.segment.opaque"
_OURS = frozenset(
    {
        _CRC, _DOCS, _SIZE, _URI, _START, _END, _RAW_START, _RAW_END, _UNIT, _CREATED, _PUSHED, _REFRESHED,
        _INDEX_VERSION, _DIGEST, _COLUMNS, _OPAQUE,
    }
)  # fmt: skip

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_UNITS_MS = {
    "MILLISECONDS": 1,
    "SECONDS": 1000,
    "MINUTES": 60_000,
    "HOURS": 3_600_000,
    "DAYS": 86_400_000,
}
_NAME_KEYS = {
    "DIMENSION": "segment.dimension.column.names",
    "METRIC": "segment.metric.column.names",
    "DATE_TIME": "segment.datetime.column.names",
}
_CREATION = struct.Struct(">qq")
_DATA_CRC = struct.Struct(">q")


def segment_record(segment: Segment) -> ZNRecord:
    """The record of a segment, with the fields that Pinot's tools look for."""
    # Pinot writes -1 for a segment without a time range.
    start = -1 if segment.start_ms is None else segment.start_ms
    end = -1 if segment.end_ms is None else segment.end_ms
    simple = {
        **segment.other,
        _CRC: str(segment.crc),
        _DOCS: str(segment.docs),
        _SIZE: str(segment.size_bytes),
        _URI: segment.uri,
        _START: str(start),
        _END: str(end),
        _RAW_START: str(start),
        _RAW_END: str(end),
        _UNIT: _MILLISECONDS,
        _CREATED: str(segment.created_ms),
        _PUSHED: str(segment.pushed_ms),
        _INDEX_VERSION: "v3",
    }
    if segment.refreshed_ms is not None:
        simple[_REFRESHED] = str(segment.refreshed_ms)
    if segment.digest:
        simple[_DIGEST] = segment.digest
    if segment.is_opaque:
        simple[_OPAQUE] = "true"
    if segment.columns:
        simple[_COLUMNS] = _encode_ranges(segment.columns)
    return ZNRecord(
        id=segment.name, simple=simple, maps={_CUSTOM: dict(segment.custom)} if segment.custom else {}
    )


def segment_of(record: ZNRecord) -> Segment:
    fields = record.simple
    unit_ms = _unit_ms(fields.get(_UNIT, _MILLISECONDS))
    return Segment(
        name=record.id,
        crc=_number(fields, _CRC, -1),
        docs=_number(fields, _DOCS, 0),
        size_bytes=_number(fields, _SIZE, 0),
        uri=fields.get(_URI, ""),
        start_ms=_time(fields, _START, unit_ms),
        end_ms=_time(fields, _END, unit_ms),
        created_ms=_number(fields, _CREATED, 0),
        pushed_ms=_number(fields, _PUSHED, 0),
        refreshed_ms=_number(fields, _REFRESHED, 0) if _REFRESHED in fields else None,
        digest=fields.get(_DIGEST, ""),
        is_opaque=fields.get(_OPAQUE) == "true",
        custom=record.maps.get(_CUSTOM, {}),
        columns=_decode_ranges(fields[_COLUMNS]) if _COLUMNS in fields else {},
        other={key: value for key, value in fields.items() if key not in _OURS},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDescription:
    name: str
    type: str
    kind: str
    """DIMENSION, METRIC or DATE_TIME."""
    cardinality: int = 0
    is_single: bool = True
    range: ColumnRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDescription:
    """What `metadata.properties` says."""

    name: str
    table: str
    docs: int
    time_column: str | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    columns: tuple[ColumnDescription, ...] = ()


def encode_description(description: SegmentDescription) -> bytes:
    """The `metadata.properties` of a segment; equal input gives equal bytes."""
    values = {
        "segment.name": description.name,
        "segment.table.name": description.table,
        _DOCS: str(description.docs),
        _INDEX_VERSION: "v3",
    }
    for kind, key in _NAME_KEYS.items():
        values[key] = _join([column.name for column in description.columns if column.kind == kind])
    if description.time_column is not None:
        values["segment.time.column.name"] = description.time_column
    if description.start_ms is not None and description.end_ms is not None:
        values |= {_UNIT: _MILLISECONDS, _START: str(description.start_ms), _END: str(description.end_ms)}
    for column in description.columns:
        values |= _column_values(column)
    return render_properties(values, comments=())


def decode_description(content: bytes) -> SegmentDescription:
    values = parse_properties(content)
    name = values.get("segment.name")
    if not name or _DOCS not in values:
        raise Malformed("the segment's properties lack its name or its number of rows")
    unit_ms = _unit_ms(values.get(_UNIT) or _MILLISECONDS)
    docs = _number(values, _DOCS, 0)
    if docs < 0:
        raise Malformed("the segment's number of rows is negative")
    return SegmentDescription(
        name=name,
        table=values.get("segment.table.name", ""),
        docs=docs,
        time_column=values.get("segment.time.column.name") or None,
        start_ms=_time(values, _START, unit_ms),
        end_ms=_time(values, _END, unit_ms),
        columns=tuple(
            _column(values, column, kind)
            for kind, key in _NAME_KEYS.items()
            for column in _split(values.get(key, ""))
        ),
    )


@dataclass(frozen=True, slots=True)
class Creation:
    """What `creation.meta` says."""

    crc: int
    created_ms: int
    data_crc: int | None = None


def encode_creation(creation: Creation) -> bytes:
    content = _CREATION.pack(creation.crc, creation.created_ms)
    return content if creation.data_crc is None else content + _DATA_CRC.pack(creation.data_crc)


def decode_creation(content: bytes) -> Creation:
    if len(content) == _CREATION.size:
        return Creation(*_CREATION.unpack(content))
    if len(content) == _CREATION.size + _DATA_CRC.size:
        crc, created_ms = _CREATION.unpack_from(content)
        return Creation(crc, created_ms, _DATA_CRC.unpack_from(content, _CREATION.size)[0])
    raise Malformed(f"creation.meta has {len(content)} bytes, and needs 16 or 24")


def _column_values(column: ColumnDescription) -> dict[str, str]:
    prefix = f"column.{column.name}."
    values = {
        f"{prefix}dataType": column.type,
        f"{prefix}columnType": column.kind,
        f"{prefix}cardinality": str(column.cardinality),
        f"{prefix}isSingleValues": str(column.is_single).lower(),
        f"{prefix}hasDictionary": "false",
    }
    if column.range is not None:
        values |= {f"{prefix}minValue": column.range.least, f"{prefix}maxValue": column.range.greatest}
    return values


def _column(values: Mapping[str, str], name: str, kind: str) -> ColumnDescription:
    prefix = f"column.{name}."
    least, greatest = values.get(f"{prefix}minValue"), values.get(f"{prefix}maxValue")
    return ColumnDescription(
        name=name,
        type=values.get(f"{prefix}dataType", ""),
        kind=kind,
        cardinality=_number(values, f"{prefix}cardinality", 0),
        is_single=values.get(f"{prefix}isSingleValues", "true").lower() == "true",
        range=None if least is None or greatest is None else ColumnRange(least, greatest),
    )


def _join(names: list[str]) -> str:
    return ",".join(name.replace("\\", "\\\\").replace(",", "\\,") for name in names)


def _split(joined: str) -> list[str]:
    names = [re.sub(r"\\(.)", r"\1", part) for part in re.findall(r"(?:[^\\,]++|\\.)++", joined, re.DOTALL)]
    return [name for name in names if name]


def _encode_ranges(columns: Mapping[str, ColumnRange]) -> str:
    plain = {name: [each.least, each.greatest] for name, each in columns.items()}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _decode_ranges(text: str) -> dict[str, ColumnRange]:
    try:
        return {name: ColumnRange(str(least), str(most)) for name, (least, most) in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed("the ranges of the columns cannot be read") from error


def _time(values: Mapping[str, str], key: str, unit_ms: int) -> int | None:
    time = _number(values, key, -1)
    return None if time < 0 else time * unit_ms


def _number(values: Mapping[str, str], key: str, default: int) -> int:
    text = values.get(key)
    if text is None or text in ("", "null"):
        return default
    if not _WHOLE.fullmatch(text):
        raise Malformed(f"{key} is {text[:40]!r}, not a whole number")
    return int(text)


def _unit_ms(unit: str) -> int:
    if unit not in _UNITS_MS:
        raise Malformed(f"{unit[:40]!r} is not a unit of time")
    return _UNITS_MS[unit]
