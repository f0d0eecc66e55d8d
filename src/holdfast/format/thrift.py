"""Thrift's compact protocol, as far as a Parquet footer uses it.

Structs are generic: a field is known by its number and its kind, so a struct
goes back to bytes with every field that its reader knew nothing about. Maps
are refused, because Parquet has none.
"""

import struct
from typing import Final, NamedTuple, TypeAlias, cast

from holdfast.format.malformed import Malformed

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
STRUCT: Final = 12


class Items(NamedTuple):
    """A list or a set: the kind of its items, then the items."""

    kind: int
    values: "list[Value]"


Value: TypeAlias = "bool | int | float | bytes | Items | Struct"
Struct: TypeAlias = dict[int, "Value"]
"""Values by `field`. One number for both parts, because footers have hundreds of thousands of fields."""

_DEPTH_MAX = 32
_LONG_LIST = 15
_DOUBLE = struct.Struct("<d")


def field(number: int, kind: int) -> int:
    """Where a struct keeps the field of this number and kind."""
    return number << 4 | kind


def decode_struct(content: bytes) -> Struct:
    """The struct that fills these bytes from the first to the last."""
    try:
        fields, end = _read_struct(content, 0, _DEPTH_MAX)
    except IndexError:
        raise Malformed("a Thrift struct ends early") from None
    if end != len(content):
        raise Malformed(f"{len(content) - end} bytes follow a Thrift struct")
    return fields


def encode_struct(fields: Struct) -> bytes:
    """The bytes of a struct, its fields in ascending order of number."""
    encoded = bytearray()
    _write_struct(encoded, fields)
    return bytes(encoded)


# Reading takes the place to start from and gives the place behind. Single-byte
# numbers are decoded where they are met: a footer consists of little else.


def _read_struct(content: bytes, at: int, depth: int) -> tuple[Struct, int]:
    if not depth:
        raise Malformed("a Thrift struct nests too deeply")
    fields: Struct = {}
    number = 0
    while header := content[at]:
        at += 1
        kind = header & 0x0F
        if header > 0x0F:
            number += header >> 4
        else:
            number, at = _read_signed(content, at)
        value: Value
        if I16 <= kind <= I64:
            raw = content[at]
            if raw < 0x80:
                at += 1
                value = (raw >> 1) ^ -(raw & 1)
            else:
                value, at = _read_signed(content, at)
        elif TRUE <= kind <= FALSE:
            value = kind == TRUE
        else:
            value, at = _read_value(content, at, kind, depth)
        fields[number << 4 | kind] = value
    return fields, at + 1


def _read_value(content: bytes, at: int, kind: int, depth: int) -> tuple[Value, int]:
    """A value as it stands behind a field header, or in a list."""
    if kind == BINARY:
        return _read_binary(content, at)
    if kind == STRUCT:
        return _read_struct(content, at, depth - 1)
    if kind in (LIST, SET):
        return _read_items(content, at, depth - 1)
    if I16 <= kind <= I64:
        return _read_signed(content, at)
    if kind in (TRUE, FALSE):
        return content[at] == TRUE, at + 1
    if kind == BYTE:
        return content[at] - 2 * (content[at] & 0x80), at + 1
    if kind == DOUBLE:
        _check_left(content, at, _DOUBLE.size)
        return _DOUBLE.unpack_from(content, at)[0], at + _DOUBLE.size
    raise Malformed(f"a Thrift value of kind {kind}")


def _read_items(content: bytes, at: int, depth: int) -> tuple[Items, int]:
    if not depth:
        raise Malformed("a Thrift list nests too deeply")
    header = content[at]
    at += 1
    kind, count = header & 0x0F, header >> 4
    if count == _LONG_LIST:
        count, at = _read_unsigned(content, at)
    _check_left(content, at, count)  # Every item takes a byte or more.
    values: list[Value] = []
    for _ in range(count):
        value, at = _read_value(content, at, kind, depth)
        values.append(value)
    return Items(kind, values), at


def _read_binary(content: bytes, at: int) -> tuple[bytes, int]:
    size = content[at]
    if size < 0x80:
        at += 1
    else:
        size, at = _read_unsigned(content, at)
    _check_left(content, at, size)
    return content[at : at + size], at + size


def _read_signed(content: bytes, at: int) -> tuple[int, int]:
    raw, at = _read_unsigned(content, at)
    return (raw >> 1) ^ -(raw & 1), at


def _read_unsigned(content: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = content[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Malformed("a Thrift number has no end")
    if raw >> 64:
        raise Malformed("a Thrift number exceeds 64 bits")
    return raw, at


def _check_left(content: bytes, at: int, size: int) -> None:
    if size > len(content) - at:
        raise Malformed(f"a Thrift struct ends early: {size} bytes expected, {len(content) - at} left")


def _write_struct(encoded: bytearray, fields: Struct) -> None:
    last = 0
    for key in sorted(fields):
        number, kind, value = key >> 4, key & 0x0F, fields[key]
        step = number - last
        last = number
        if 0 < step <= 15:
            encoded.append(step << 4 | kind)
        else:
            encoded.append(kind)
            _write_signed(encoded, number)
        if I16 <= kind <= I64:
            _write_signed(encoded, cast(int, value))
        elif kind > FALSE:
            _write_value(encoded, kind, value)
    encoded.append(0)


def _write_value(encoded: bytearray, kind: int, value: Value) -> None:
    match value:
        case bytes():
            _write_unsigned(encoded, len(value))
            encoded += value
        case dict():
            _write_struct(encoded, value)
        case Items():
            _write_items(encoded, value)
        case bool():
            encoded.append(TRUE if value else FALSE)
        case float():
            encoded += _DOUBLE.pack(value)
        case int() if kind == BYTE:
            encoded.append(value & 0xFF)
        case int():
            _write_signed(encoded, value)


def _write_items(encoded: bytearray, items: Items) -> None:
    count = len(items.values)
    encoded.append(min(count, _LONG_LIST) << 4 | items.kind)
    if count >= _LONG_LIST:
        _write_unsigned(encoded, count)
    for value in items.values:
        _write_value(encoded, items.kind, value)


def _write_signed(encoded: bytearray, number: int) -> None:
    _write_unsigned(encoded, (number << 1) ^ (number >> 63))


def _write_unsigned(encoded: bytearray, number: int) -> None:
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
