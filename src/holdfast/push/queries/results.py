"""Answers in the shape and spelling of Pinot's broker."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.push_schema import DataType
from holdfast.push.queries.columns import default_of
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.scopes import Output

_COUNTERS: Mapping[str, Any] = {
    "numDocsScanned": 0,
    "totalDocs": 0,
    "numEntriesScannedInFilter": 0,
    "numEntriesScannedPostFilter": 0,
    "numServersQueried": 0,
    "numServersResponded": 0,
    "numSegmentsQueried": 0,
    "numSegmentsProcessed": 0,
    "numSegmentsMatched": 0,
    "numConsumingSegmentsQueried": 0,
    "numConsumingSegmentsProcessed": 0,
    "numConsumingSegmentsMatched": 0,
    "minConsumingFreshnessTimeMs": 0,
    "numSegmentsPrunedByBroker": 0,
    "numSegmentsPrunedByServer": 0,
    "numSegmentsPrunedInvalid": 0,
    "numSegmentsPrunedByLimit": 0,
    "numSegmentsPrunedByValue": 0,
    "brokerReduceTimeMs": 0,
    "offlineThreadCpuTimeNs": 0,
    "realtimeThreadCpuTimeNs": 0,
    "offlineSystemActivitiesCpuTimeNs": 0,
    "realtimeSystemActivitiesCpuTimeNs": 0,
    "offlineResponseSerializationCpuTimeNs": 0,
    "realtimeResponseSerializationCpuTimeNs": 0,
    "offlineTotalCpuTimeNs": 0,
    "realtimeTotalCpuTimeNs": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What an answer says beside its rows."""

    request_id: str
    broker: str
    client_id: str | None = None
    took_ms: int = 0
    tables: tuple[str, ...] = ()
    """Raw names."""
    epochs: Mapping[str, int] | None = None
    segments: int = 0
    docs: int = 0


def response(
    facts: Facts, *, table: dict[str, Any] | None, failures: Sequence[QueryFailed] = ()
) -> dict[str, Any]:
    """The body of an answer. With failures, rows are a part of what was asked for at best."""
    is_answered = table is not None
    servers = 1 if is_answered and facts.segments else 0
    body: dict[str, Any] = {}
    if is_answered:
        body["resultTable"] = table
    body |= {
        "numRowsResultSet": len(table["rows"]) if table is not None else 0,
        "partialResult": is_answered and bool(failures),
        "exceptions": [{"errorCode": int(failed.code), "message": failed.text} for failed in failures],
        "numGroupsLimitReached": False,
        "numGroupsWarningLimitReached": False,
        "maxRowsInDistinctReached": False,
        "maxRowsWithoutChangeInDistinctReached": False,
        "maxExecutionTimeInDistinctReached": False,
        "timeUsedMs": facts.took_ms,
        "requestId": facts.request_id,
        "clientRequestId": facts.client_id,
        "brokerId": facts.broker,
        **_COUNTERS,
        "traceInfo": {},
        "tablesQueried": list(facts.tables),
        "pools": [],
        "rlsFiltersApplied": False,
        "groupsTrimmed": False,
    }
    if is_answered:
        body |= {
            "numDocsScanned": facts.docs,
            "totalDocs": facts.docs,
            "numServersQueried": servers,
            "numServersResponded": servers,
            "numSegmentsQueried": facts.segments,
            "numSegmentsProcessed": facts.segments,
            "numSegmentsMatched": facts.segments,
        }
    epochs = dict(facts.epochs or {})
    if epochs:
        body["snapshotEpochs"] = epochs
        if len(epochs) == 1:
            body["snapshotEpoch"] = next(iter(epochs.values()))
    return body


_VALUE_BYTES = 64
"""What a value takes as a Python object, beside its own bytes."""
_WRITTEN_BYTES = 32
"""What a number, a truth value or a moment takes in JSON, at most, with what stands between two values."""
_DECIMAL_BYTES = 84
_LOOK_BYTES = 1 << 20
_VALUES_AT_ONCE = 10_000
"""Made in one go; no other thread of the process runs meanwhile."""

_ESCAPES = np.zeros(256, dtype=np.uint8)
"""How many bytes JSON adds to a byte of a text."""
_ESCAPES[:0x20] = 5
_ESCAPES[list(b'\b\t\n\f\r"\\')] = 1
_FOUR_BYTES, _BEYOND_LATIN_1 = 0xF0, 0xC4
"""First bytes in UTF-8 of characters for which Python takes four bytes each, or two, in the whole text."""


def check_size(answer: pa.Table, most_bytes: int) -> None:
    """Refuse an answer that would take more than this, as it came, as Python objects and as JSON together."""
    needed = answer.nbytes
    for column in answer.columns:
        needed += _size_in_memory(column, most_bytes)
        if needed > most_bytes:
            raise QueryFailed(
                QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED,
                "the answer is too large",
                rows=answer.num_rows,
                most_bytes=most_bytes,
            )


def _size_in_memory(column: pa.ChunkedArray, most_bytes: int) -> int:
    """Bytes of the values of a column as Python objects and as JSON, those inside lists included."""
    stored = column.type
    if _is_array(stored):
        inside = (_size_in_memory(pa.chunked_array([chunk.flatten()]), most_bytes) for chunk in column.chunks)
        return len(column) * (_VALUE_BYTES + 3) + sum(inside)
    needed = len(column) * (_VALUE_BYTES + _WRITTEN_BYTES)
    if pa.types.is_decimal(stored):
        return needed + len(column) * 2 * _DECIMAL_BYTES
    if kind_of(stored) is DataType.BYTES:
        # The bytes, then their hexadecimal digits, once as a text and once in JSON.
        return needed + 5 * int(column.nbytes)
    if kind_of(stored) is not DataType.STRING:
        return needed
    if not (pa.types.is_string(stored) or pa.types.is_large_string(stored)):
        # Shown as Python writes it, and how long that is cannot be known beforehand.
        return needed + 12 * int(column.nbytes)
    least = needed + 2 * int(column.nbytes)
    if least > most_bytes:
        return least
    return needed + _text_bytes(column)


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Bytes of texts in Python and in JSON."""
    characters, written, width = 0, 0, 1
    for chunk in column.chunks:
        data = _data(chunk)
        for at in range(0, data.size, _LOOK_BYTES):
            piece = data[at : at + _LOOK_BYTES]
            largest = int(piece.max())
            width = max(width, 4 if largest >= _FOUR_BYTES else 2 if largest >= _BEYOND_LATIN_1 else 1)
            characters += int(np.count_nonzero(piece & 0xC0 != 0x80))
            written += piece.size + int(_ESCAPES[piece].sum(dtype=np.int64))
    return characters * width + written


def _data(chunk: pa.Array) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """The bytes of the texts in an array, one after the other."""
    _, offsets, data = chunk.buffers()
    if data is None or not len(chunk):
        return np.zeros(0, dtype=np.uint8)
    kind = np.int64 if pa.types.is_large_string(chunk.type) else np.int32
    ends = np.frombuffer(offsets, dtype=kind)
    start, end = int(ends[chunk.offset]), int(ends[chunk.offset + len(chunk)])
    return np.frombuffer(data, dtype=np.uint8)[start:end]


def _is_array(stored: pa.DataType) -> bool:
    return bool(pa.types.is_list(stored) or pa.types.is_large_list(stored))


def result_table(answer: pa.Table, outputs: Sequence[Output], *, null_handling: bool) -> dict[str, Any]:
    """`resultTable`: names, types and rows."""
    columns = [
        _Formatted.of(answer.column(at), output, null_handling=null_handling)
        for at, output in enumerate(outputs)
    ]
    return {
        "dataSchema": {
            "columnNames": [output.name for output in outputs],
            "columnDataTypes": [column.type for column in columns],
        },
        "rows": [list(row) for row in zip(*(column.values for column in columns), strict=True)],
    }


@dataclass(frozen=True, slots=True)
class _Formatted:
    type: str
    values: list[Any]

    @staticmethod
    def of(column: pa.ChunkedArray, output: Output, *, null_handling: bool) -> "_Formatted":
        stored = column.type
        is_array = _is_array(stored)
        kind = kind_of(stored.value_type if is_array else stored)
        if kind is DataType.STRING and output.kind is DataType.JSON:
            kind = DataType.JSON
        if pa.types.is_null(stored) and output.kind is not None:
            kind = output.kind
        if is_array:
            return _Formatted(f"{kind}_ARRAY", _arrays(column, kind, null_handling=null_handling))
        return _Formatted(str(kind), _values(column, kind, null_handling=null_handling))


def _arrays(column: pa.ChunkedArray, kind: DataType, *, null_handling: bool) -> list[Any]:
    """Elements are formatted in one go and then cut into rows again."""
    rows: list[Any] = []
    for chunk in column.chunks:
        elements = _values(pa.chunked_array([chunk.flatten()]), kind, null_handling=null_handling)
        at = 0
        for length in pc.list_value_length(chunk).to_pylist():
            rows.append(None if length is None and null_handling else elements[at : at + (length or 0)])
            at += length or 0
    return rows


def _values(column: pa.ChunkedArray, kind: DataType, *, null_handling: bool) -> list[Any]:
    """JSON values of one column, null replaced by the type's default unless nulls are handled."""
    stand_in = None if null_handling or not column.null_count else _stand_in(kind)
    values: list[Any] = []
    for at in range(0, len(column), _VALUES_AT_ONCE):
        values += _plain(column.slice(at, _VALUES_AT_ONCE), kind)
    if stand_in is None:
        return values
    return [stand_in if value is None else value for value in values]


def _plain(column: pa.ChunkedArray, kind: DataType) -> list[Any]:
    stored = column.type
    match kind:
        case DataType.TIMESTAMP:
            return _moments(column)
        case DataType.FLOAT | DataType.DOUBLE:
            return _reals(column)
        case DataType.BYTES:
            return [None if value is None else value.hex() for value in column.to_pylist()]
        case DataType.BIG_DECIMAL:
            return [None if value is None else _decimal(value) for value in column.to_pylist()]
        case DataType.STRING | DataType.JSON if not (
            pa.types.is_string(stored) or pa.types.is_large_string(stored)
        ):
            return [None if value is None else str(value) for value in column.to_pylist()]
        case _:
            return list(column.to_pylist())


def _moments(column: pa.ChunkedArray) -> list[Any]:
    """As Java prints a timestamp: at least one digit of the fraction, and no zeros after it. Always UTC."""
    plain = column.cast(pa.timestamp("ns" if column.type.unit == "ns" else "us"))
    written = pc.strftime(plain, format="%Y-%m-%d %H:%M:%S")
    return list(
        pc.replace_substring_regex(
            pc.utf8_rtrim(written, characters="0"), pattern=r"\.$", replacement=".0"
        ).to_pylist()
    )


def _reals(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_float32(column.type):
        # The shortest digits that mean the same FLOAT, as Java prints it.
        column = column.cast(pa.string()).cast(pa.float64())
    values = list(column.to_pylist())
    if pc.all(pc.is_finite(column), skip_nulls=True).as_py() is not False:
        return values
    return [value if value is None or math.isfinite(value) else _odd(value) for value in values]


def _odd(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Any) -> str:
    """Plain notation, without zeros that only the column's scale put there."""
    written = format(Decimal(value), "f")
    return written.rstrip("0").rstrip(".") if "." in written else written


def _stand_in(kind: DataType) -> Any:
    value = default_of(kind)
    match kind:
        case DataType.FLOAT | DataType.DOUBLE:
            return _odd(float(value))
        case DataType.TIMESTAMP:
            return "1970-01-01 00:00:00.0"
        case DataType.BYTES:
            return ""
        case DataType.BIG_DECIMAL:
            return "0"
        case _:
            return value


def kind_of(stored: pa.DataType) -> DataType:
    """The Pinot type of what the engine returned."""
    types = pa.types
    if types.is_boolean(stored):
        return DataType.BOOLEAN
    if types.is_int64(stored) or types.is_uint32(stored):
        return DataType.LONG
    if types.is_uint64(stored) or types.is_decimal(stored):
        return DataType.BIG_DECIMAL
    if types.is_integer(stored):
        return DataType.INT
    if types.is_float32(stored):
        return DataType.FLOAT
    if types.is_floating(stored):
        return DataType.DOUBLE
    if types.is_timestamp(stored):
        return DataType.TIMESTAMP
    if types.is_binary(stored) or types.is_large_binary(stored) or types.is_fixed_size_binary(stored):
        return DataType.BYTES
    return DataType.STRING


def explanation(sql: str, tables: Mapping[str, tuple[int, int]], limit: int) -> dict[str, Any]:
    """The answer to EXPLAIN PLAN FOR: what the broker does, then what the engine is asked."""
    rows: list[list[Any]] = [[f"BROKER_REDUCE(limit:{limit})", 1, 0], [f"DUCKDB({sql})", 2, 1]]
    for at, (name, (segments, epoch)) in enumerate(tables.items()):
        rows.append([f"SCAN(table:{name}, segments:{segments}, epoch:{epoch})", 3 + at, 2])
    return {
        "dataSchema": {
            "columnNames": ["Operator", "Operator_Id", "Parent_Id"],
            "columnDataTypes": ["STRING", "INT", "INT"],
        },
        "rows": rows,
    }


def as_failed(error: BaseException) -> QueryFailed:
    """Any error as something that may be told: an unforeseen one without its text, which may name paths."""
    if isinstance(error, QueryFailed):
        return error
    return QueryFailed(QueryError.INTERNAL, "the query could not be answered", kind=type(error).__name__)
