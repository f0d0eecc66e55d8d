"""Avro containers: files that hold exactly one record and say how to read it.

Plans and reports on the timeline have this form. The frame is read here, with
every length checked against the bytes at hand; fastavro sees only the record,
and only after the schema found in the file has been reduced to what it can
read in bounded time.
"""

import hashlib
import io
import json
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import SchemaParseException

from holdfast.format.malformed import Malformed

_MAGIC = b"Obj\x01"
_SYNC_SIZE = 16
_LONGEST_LONG = 10

_LARGEST_FIXED = 2**31 - 1
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def encode_container(schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    """The container of one record; equal input gives equal bytes."""
    buffer = io.BytesIO()
    schemaless_writer(buffer, parse_schema(schema), record)
    payload = buffer.getvalue()
    schema_text = json.dumps(schema, separators=(",", ":")).encode()
    sync = hashlib.sha256(schema_text + payload).digest()[:_SYNC_SIZE]
    header = _MAGIC + _long(1) + _bytes(b"avro.schema") + _bytes(schema_text) + _long(0) + sync
    return header + _long(1) + _bytes(payload) + sync


def decode_container(content: bytes) -> dict[str, Any]:
    """The one record of a container, by the names of the schema found in it."""
    source = _Source(content)
    if source.take(len(_MAGIC)) != _MAGIC:
        raise Malformed("this is not an Avro container")
    header = _header(source)
    if header.get("avro.codec", b"null") != b"null":
        raise Malformed("the container is compressed")
    schema = _schema(header.get("avro.schema", b""))
    sync = source.take(_SYNC_SIZE)
    records = source.long()
    payload = source.bytes()
    if records != 1:
        raise Malformed(f"the container's first block holds {records} records")
    if source.take(_SYNC_SIZE) != sync:
        raise Malformed("the container's block does not end with its sync marker")
    if source.left:
        raise Malformed(f"{source.left} bytes follow the container's record")
    return _record(payload, schema)


def encode_record(schema: Any, record: dict[str, Any]) -> bytes:
    """One record without a frame, of a schema that `compile_schema` gave."""
    buffer = io.BytesIO()
    try:
        schemaless_writer(buffer, schema, record)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise Malformed(f"the record does not fit its schema: {error}") from error
    return buffer.getvalue()


def compile_schema(schema: dict[str, Any]) -> Any:
    """A schema of our own, ready for `encode_record`."""
    return parse_schema(schema)


def load_schema(text: bytes) -> Any:
    """A schema of somebody else's, as found in a file, ready for `decode_record`."""
    return _schema(text)


def decode_record(schema: Any, content: bytes) -> dict[str, Any]:
    """One record without a frame, of a schema that `load_schema` gave."""
    return _record(content, schema)


class _Source:
    """Bytes taken from the front, never more than there are."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise Malformed(f"the container ends early: {size} bytes expected, {self.left} left")
        self._at += size
        return self._content[self._at - size : self._at]

    def long(self) -> int:
        raw = 0
        for position in range(_LONGEST_LONG):
            (byte,) = self.take(1)
            raw |= (byte & 0x7F) << (7 * position)
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
        raise Malformed("a number in the container has no end")

    def bytes(self) -> bytes:
        return self.take(self.long())


def _header(source: _Source) -> dict[str, bytes]:
    entries: dict[str, bytes] = {}
    while count := source.long():
        if count < 0:  # The map's block then also tells its size in bytes.
            source.long()
        for _ in range(abs(count)):
            key = source.bytes().decode("latin-1")
            entries[key] = source.bytes()
    return entries


def _schema(text: bytes) -> Any:
    """The schema in the header, ready for fastavro."""
    try:
        schema = _reduce(_json(text), "", set())
        if not isinstance(schema, dict) or schema["type"] != "record":
            raise Malformed("the container's schema is not that of a record")
        return parse_schema(schema)
    # Schemas nest, so a deep one exhausts the stack before it is refused.
    except (RecursionError, SchemaParseException) as error:
        raise Malformed(f"the container's schema is unreadable: {error}") from error


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Malformed(f"the container's schema is not JSON: {error}") from error


def _reduce(schema: Any, namespace: str, known: set[str]) -> Any:
    """What of a schema decides how bytes are read; `known` collects the names it defines.

    Refuses what lets a few bytes stand for an endless value: arrays of items
    that take no bytes, records that take none, and types that contain
    themselves. The last follows from the order of things: a type's name is
    known only after its end.
    """

    def part(inner: object) -> Any:
        return _reduce(inner, namespace, known)

    match schema:
        case str() if schema in _PRIMITIVES:
            return schema
        case str():
            name = _full_name(schema, namespace)
            if name not in known:
                raise Malformed(f"the container's schema uses the unknown type {schema!r}")
            return name
        case list():
            return [part(branch) for branch in schema]
        case {"type": "array", "items": items}:
            item = part(items)
            if item == "null":
                raise Malformed("the container's schema has an array of nothing")
            return {"type": "array", "items": item}
        case {"type": "map", "values": values}:
            return {"type": "map", "values": part(values)}
        case {"type": "record" | "enum" | "fixed", "name": str()}:
            return _reduce_definition(schema, namespace, known)
        case {"type": str() | list() | dict() as inner}:
            return part(inner)
        case _:
            raise Malformed("the container's schema has a part that is no schema")


def _reduce_definition(schema: dict[str, Any], namespace: str, known: set[str]) -> dict[str, Any]:
    name = _full_name(schema["name"], str(schema.get("namespace", namespace)))
    reduced: dict[str, Any] = {"type": schema["type"], "name": name}
    match schema:
        case {"type": "record", "fields": list(fields)}:
            inside = name.rpartition(".")[0]
            reduced["fields"] = [_reduce_field(field, inside, known) for field in fields]
            is_usable = any(field["type"] != "null" for field in reduced["fields"])
        case {"type": "enum", "symbols": list(symbols)}:
            reduced["symbols"] = symbols
            is_usable = all(isinstance(symbol, str) for symbol in symbols)
        case {"type": "fixed", "size": int(size)}:
            reduced["size"] = size
            is_usable = 0 < size <= _LARGEST_FIXED
        case _:
            is_usable = False
    if not is_usable:
        raise Malformed(f"the container's schema defines {name!r} as something unreadable")
    known.add(name)
    return reduced


def _reduce_field(field: object, namespace: str, known: set[str]) -> dict[str, Any]:
    match field:
        case {"name": str(name), "type": inner}:
            return {"name": name, "type": _reduce(inner, namespace, known)}
        case _:
            raise Malformed("the container's schema has a field without name or type")


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _record(payload: bytes, schema: Any) -> dict[str, Any]:
    buffer = io.BytesIO(payload)
    try:
        record = schemaless_reader(buffer, schema, None)
    except (EOFError, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"the container's record does not fit its schema: {error}") from error
    if buffer.tell() != len(payload):
        raise Malformed("the container's record ends before its block does")
    assert isinstance(record, dict), "the schema is that of a record"
    return record


def _long(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def _bytes(content: bytes) -> bytes:
    return _long(len(content)) + content
