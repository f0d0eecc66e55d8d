"""Delete blocks: which keys a write removed from a file slice, and how each competes with rows of its key.

Written and read is version 3, one Avro list of records. What came before are
Java objects, which only Java reads.
"""

import datetime as dt
import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro import parse_schema, schemaless_reader

from holdfast.errors import UnsupportedTable
from holdfast.format.avro_payloads import hudi_schema
from holdfast.format.malformed import Malformed

_VERSION = 3
_HEAD = struct.Struct(">ii")
_LONGEST_VARINT = 10
_KEY_BRANCH = _PARTITION_BRANCH = 1
_DECIMAL_SCALE = 15
_DECIMAL_DIGITS = 30
_RECORD_NAMES = "org.apache.hudi.avro.model."
_MICROS_A_SECOND = 1_000_000

_NO_ORDER = b"\x04\x00"
"""`IntWrapper(0)`: the delete has no ordering value, and wins against everything before it."""


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """The deletes of one block."""

    keys: pa.StringArray
    orderings: pa.Array | None
    """In the type of the ordering column; null where a delete wins against everything before it.

    None where no delete has one, or the table has no ordering column.
    """


def encode_deletes(keys: pa.StringArray, partition: str, orderings: pa.Array | None = None) -> bytes:
    """The content of a delete block. Where `orderings` is null, or None, the delete wins by its time.

    `UnsupportedTable` if an ordering value has a type that such a block has no room for.
    """
    count = len(keys)
    lengths = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    where = partition.encode()
    parts: list[pa.Array | pa.Scalar] = [
        pa.scalar(_varint(_KEY_BRANCH)),
        _varints(lengths),
        keys.cast(pa.binary()),
        pa.scalar(_varint(_PARTITION_BRANCH) + _varint(len(where)) + where),
        _orders(orderings) if orderings is not None else pa.scalar(_NO_ORDER),
        pa.scalar(b""),
    ]
    records = _content(pc.binary_join_element_wise(*parts)) if count else b""
    payload = (_varint(count) + records if count else b"") + _varint(0)
    return _HEAD.pack(_VERSION, len(payload)) + payload


def decode_deletes(content: bytes, ordering: pa.DataType | None) -> DeleteRecords:
    """The deletes in the content of a block, given the type of the table's ordering column, if it has one.

    A value of another type cannot be compared, as in Hudi: such a delete wins.
    """
    if len(content) < _HEAD.size:
        raise Malformed("the delete block ends early")
    version, length = _HEAD.unpack_from(content)
    if version in (1, 2):
        raise UnsupportedTable(
            "a delete block is in a form that only Hudi reads",
            version=version,
            hint="compact the table with Hudi 0.14 or 0.15, whose blocks are of version 3",
        )
    payload = content[_HEAD.size : _HEAD.size + max(length, 0)]
    if version != _VERSION or len(payload) != length:
        raise Malformed(f"the delete block is of version {version} and has {len(payload)} of {length} bytes")
    records = _records(payload)
    keys = pa.array([record["recordKey"] for record in records], pa.string())
    if keys.null_count:
        raise Malformed("a delete block has a record without a key")
    if ordering is None:
        return DeleteRecords(keys, None)
    values = [_comparable(record["orderingVal"], ordering) for record in records]
    return DeleteRecords(keys, pa.array(values, ordering))


_SCHEMA = parse_schema(hudi_schema("HoodieDeleteRecordList"))


def _records(payload: bytes) -> list[dict[str, Any]]:
    source = io.BytesIO(payload)
    try:
        record: Any = schemaless_reader(source, _SCHEMA, None, return_record_name=True)
    except (EOFError, IndexError, UnicodeDecodeError, ValueError, TypeError, OverflowError) as error:
        raise Malformed(f"the delete block cannot be read: {error}") from error
    if source.tell() != len(payload):
        raise Malformed("the delete block has bytes behind its records")
    records: list[dict[str, Any]] = record["deleteRecordList"]
    return records


def _comparable(found: tuple[str, dict[str, Any]] | None, kind: pa.DataType) -> Any:
    """An ordering value as one of the column's type; None if it is of another, or says that there is none."""
    if found is None:
        return None
    name, value = found[0].removeprefix(_RECORD_NAMES), found[1]["value"]
    if name == "IntWrapper" and value == 0:
        return None
    if name not in _names_of(kind):
        return None
    if pa.types.is_timestamp(kind):
        return pa.scalar(value, pa.timestamp("us", tz=kind.tz)).cast(kind, safe=False).as_py()
    if pa.types.is_date(kind):
        return dt.date.fromordinal(dt.date(1970, 1, 1).toordinal() + value)
    if pa.types.is_decimal(kind):
        return Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
    return value


def _names_of(kind: pa.DataType) -> Sequence[str]:
    """Under which names values of a column come; the first is written."""
    for is_kind, names in _NAMES:
        if is_kind(kind):
            return names
    return ()


_NAMES = (
    (pa.types.is_boolean, ("BooleanWrapper",)),
    (lambda kind: pa.types.is_integer(kind) and kind.bit_width <= 32, ("IntWrapper",)),
    (pa.types.is_integer, ("LongWrapper",)),
    (pa.types.is_float32, ("FloatWrapper",)),
    (pa.types.is_float64, ("DoubleWrapper",)),
    (pa.types.is_string, ("StringWrapper",)),
    (pa.types.is_date, ("DateWrapper", "IntWrapper")),
    (pa.types.is_decimal, ("DecimalWrapper",)),
    # In Avro, which Hudi takes the values from, a timestamp is a long.
    (pa.types.is_timestamp, ("LongWrapper", "TimestampMicrosWrapper")),
    (pa.types.is_binary, ("BytesWrapper",)),
)
_BRANCHES = {
    "BooleanWrapper": 1,
    "IntWrapper": 2,
    "LongWrapper": 3,
    "FloatWrapper": 4,
    "DoubleWrapper": 5,
    "BytesWrapper": 6,
    "StringWrapper": 7,
    "DateWrapper": 8,
    "DecimalWrapper": 9,
    "TimeMicrosWrapper": 10,
    "TimestampMicrosWrapper": 11,
}


def _orders(values: pa.Array) -> pa.Array:
    """The ordering values as they stand in the records."""
    names = _names_of(values.type)
    if not names:
        raise UnsupportedTable(
            "a delete block cannot hold an ordering value of this type",
            type=str(values.type),
            hint="order by an integer, a text, a date or a timestamp",
        )
    branch = pa.scalar(_varint(_BRANCHES[names[0]]))
    written = pc.binary_join_element_wise(branch, _encode_values(values), pa.scalar(b""))
    return pc.coalesce(written, pa.scalar(_NO_ORDER))


def _encode_values(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        return pc.binary_join_element_wise(_varints(lengths), values.cast(pa.binary()), pa.scalar(b""))
    if pa.types.is_floating(kind):
        wide = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
        little = wide.astype("<f4" if pa.types.is_float32(kind) else "<f8")
        return _keep_nulls(_bytes_of_each(little), values)
    if pa.types.is_boolean(kind):
        flags = pc.fill_null(values, False).to_numpy(zero_copy_only=False).astype(np.uint8)
        return _keep_nulls(_bytes_of_each(flags), values)
    if pa.types.is_decimal(kind):
        written = [None if each is None else _decimal(each) for each in values.to_pylist()]
        return pa.array(written, pa.binary())
    return _keep_nulls(_varints(_whole_numbers(values)), values)


def _whole_numbers(values: pa.Array) -> npt.NDArray[np.int64]:
    """Integers, days or microseconds, with zeros for nulls."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", tz=values.type.tz))
    if pa.types.is_date(values.type):
        values = values.cast(pa.date32()).cast(pa.int32())
    numbers: npt.NDArray[np.int64] = pc.fill_null(values.cast(pa.int64()), 0).to_numpy().astype(np.int64)
    return numbers


def _decimal(value: Decimal) -> bytes:
    """A decimal as Hudi's wrapper holds it: 30 digits, 15 of them behind the point."""
    unscaled = int(value.scaleb(_DECIMAL_SCALE))
    if Decimal(unscaled).scaleb(-_DECIMAL_SCALE) != value or abs(unscaled) >= 10**_DECIMAL_DIGITS:
        raise UnsupportedTable(
            "a delete block has no room for this ordering value", value=value, digits=_DECIMAL_DIGITS
        )
    content = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return _varint(len(content)) + content


def _keep_nulls(encoded: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_valid(values), encoded, pa.scalar(None, pa.binary()))


def _bytes_of_each(numbers: npt.NDArray[Any]) -> pa.Array:
    width = numbers.dtype.itemsize
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(numbers), [None, pa.py_buffer(numbers.tobytes())]
    )
    return fixed.cast(pa.binary())


def _varints(numbers: npt.NDArray[Any]) -> pa.Array:
    """Avro's form of whole numbers, each its own few bytes."""
    signed = numbers.astype(np.int64)
    left = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    content = np.zeros((len(left), _LONGEST_VARINT), dtype=np.uint8)
    lengths = np.ones(len(left), dtype=np.int32)
    for place in range(_LONGEST_VARINT):
        rest = left >> np.uint64(7)
        has_more = rest > 0
        content[:, place] = (left & np.uint64(0x7F)).astype(np.uint8) | (has_more.astype(np.uint8) << 7)
        lengths += has_more
        left = rest
        if not has_more.any():
            break
    used = np.arange(_LONGEST_VARINT) < lengths[:, None]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content[used].tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _varint(number: int) -> bytes:
    encoded: bytes = _varints(np.array([number]))[0].as_py()
    return encoded


def _content(values: pa.BinaryArray) -> bytes:
    """The bytes of all values, one behind the other."""
    _, offset_buffer, content = values.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return memoryview(content)[offsets[0] : offsets[-1]].tobytes()
