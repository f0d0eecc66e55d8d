"""The content of delete blocks: which keys a log file takes away, as `HoodieDeleteRecordList` of Avro.

Whole columns at a time. A record has the key, its partition and an ordering
value with its Java type; the integer 0 stands for none, and such a delete wins
over whatever was written before it.
"""

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.format.varints import encode_varints, zigzag

DELETE_VERSION = 3
"""Of the content. Versions 1 and 2 are Java's own serialization."""

_HEADER = struct.Struct(">ii")
_PRESENT = b"\x02"
"""The branch of a union with null that holds a value."""
_NO_ORDER = b"\x04\x00"
"""The ordering value 0 of Java's Integer."""
_END = b"\x00"
_INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _STRING, _DATE, _DECIMAL, _TIME = range(2, 11)
_BOOLEAN = 1
_DECIMAL_STORED = pa.decimal128(38, 15)
"""The scale that the schema of deletes has; Java's decimals of several scales can be compared."""
_DECIMAL_BYTES = 16


def encode_deletes(keys: pa.StringArray, partition: str, order: pa.Array | None) -> bytes:
    """The content of a delete block for these keys of one partition.

    `order` has an ordering value for each; null, or None for all, means that there is none.
    """
    fields = [
        pa.scalar(_PRESENT, pa.binary()),
        _texts(keys),
        pa.scalar(_PRESENT + _text(partition), pa.binary()),
        pa.scalar(_NO_ORDER, pa.binary()) if order is None else _order(order),
    ]
    records = pc.binary_join_element_wise(*fields, pa.scalar(b"", pa.binary()))
    payload = b"".join((_number(len(keys)), _joined(records), _END)) if len(keys) > 0 else _END
    return _HEADER.pack(DELETE_VERSION, len(payload)) + payload


def _order(values: pa.Array) -> pa.BinaryArray:
    """The branch and the value for each ordering value, as Java has it where Hudi reads the column."""
    encoded = _typed(values)
    if encoded is None:
        return pa.array([_NO_ORDER], pa.binary()).take(pa.array(np.zeros(len(values), dtype=np.int64)))
    branch, content = encoded
    joined = pc.binary_join_element_wise(
        pa.scalar(_number(branch), pa.binary()), content, pa.scalar(b"", pa.binary())
    )
    return pc.if_else(values.is_valid(), joined, pa.scalar(_NO_ORDER, pa.binary()))


def _typed(values: pa.Array) -> tuple[int, pa.BinaryArray] | None:
    """The branch for values of this type, and what stands in it; None if there is no branch for them."""
    kind, known = values.type, values.drop_null()
    if len(known) == 0:
        return None
    filled = values.fill_null(known[0])
    if pa.types.is_boolean(kind):
        return _BOOLEAN, _fixed(filled.cast(pa.uint8()).to_numpy())
    if pa.types.is_int32(kind):
        return _INT, _numbers(filled.cast(pa.int64()))
    # Hudi takes the number behind a timestamp for its ordering value.
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        return _LONG, _numbers(filled.cast(pa.int64()))
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return (_FLOAT if pa.types.is_float32(kind) else _DOUBLE), _fixed(filled.to_numpy())
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return (_BYTES if pa.types.is_binary(kind) else _STRING), _texts(filled)
    if pa.types.is_date32(kind):
        return _DATE, _numbers(filled.cast(pa.int32()).cast(pa.int64()))
    if pa.types.is_time64(kind):
        return _TIME, _numbers(filled.cast(pa.int64()))
    if pa.types.is_decimal128(kind):
        return _decimals(filled)
    return None


def _decimals(values: pa.Array) -> tuple[int, pa.BinaryArray] | None:
    try:
        stored = values.cast(_DECIMAL_STORED)
    except pa.ArrowInvalid:
        return None
    little = np.frombuffer(stored.buffers()[1], dtype=np.uint8).reshape(-1, _DECIMAL_BYTES)
    big = np.ascontiguousarray(little[stored.offset : stored.offset + len(stored), ::-1])
    sized = np.insert(big, 0, _number(_DECIMAL_BYTES)[0], axis=1)
    return _DECIMAL, _rows(sized)


def _numbers(values: pa.Array) -> pa.BinaryArray:
    encoded, starts = encode_varints(zigzag(values.to_numpy()))
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(encoded)]
    )


def _texts(values: pa.Array) -> pa.BinaryArray:
    """Each value behind its length in bytes."""
    lengths = _numbers(pc.binary_length(values).cast(pa.int64()))
    return pc.binary_join_element_wise(lengths, values.cast(pa.binary()), pa.scalar(b"", pa.binary()))


def _fixed(values: npt.NDArray[np.generic]) -> pa.BinaryArray:
    """The bytes of each number, the low ones first."""
    ordered = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"))
    return _rows(ordered.view(np.uint8).reshape(len(values), -1))


def _rows(rows: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    count, width = rows.shape
    starts = np.arange(count + 1, dtype=np.int32) * width
    return pa.BinaryArray.from_buffers(
        pa.binary(),
        count,
        [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(rows))],
    )


def _text(value: str) -> bytes:
    content = value.encode()
    return _number(len(content)) + content


def _number(value: int) -> bytes:
    return encode_varints(zigzag(np.array([value], dtype=np.int64)))[0].tobytes()


def _joined(records: pa.BinaryArray) -> bytes:
    starts = np.frombuffer(records.buffers()[1], dtype=np.int32)[
        records.offset : records.offset + len(records) + 1
    ]
    return bytes(memoryview(records.buffers()[2])[int(starts[0]) : int(starts[-1])])
