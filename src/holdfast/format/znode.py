"""ZNRecords: the JSON documents in which Helix, and so Pinot, keeps its state.

Written as Jackson prints them, maps in order of their keys. Large ones may be
gzip; two magic bytes tell.
"""

import gzip
import io
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring as quoted
from types import MappingProxyType

import msgspec

from holdfast.format.malformed import Malformed

PLAIN_BYTES_MAX = 1_024_000
"""Helix compresses what is larger."""
EXPANDED_BYTES_MAX = 64 << 20
"""No record is larger than this once expanded; a smaller one may claim to be."""

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZNRecord:
    id: str
    simple: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    maps: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))


def encode_record(record: ZNRecord) -> bytes:
    """The record's JSON; equal records give equal bytes."""
    simple = [f"{quoted(key)} : {quoted(value)}" for key, value in sorted(record.simple.items())]
    maps = [f"{quoted(key)} : {_map(each)}" for key, each in sorted(record.maps.items())]
    lists = [f"{quoted(key)} : {_list(each)}" for key, each in sorted(record.lists.items())]
    fields = (
        f'"id" : {quoted(record.id)}',
        f'"simpleFields" : {_block(simple, "  ")}',
        f'"mapFields" : {_block(maps, "  ")}',
        f'"listFields" : {_block(lists, "  ")}',
    )
    try:
        return _block(fields, "").encode()
    except UnicodeEncodeError as error:
        raise Malformed("a text of the record is not Unicode") from error


def decode_record(content: bytes) -> ZNRecord:
    """The record in these bytes, compressed or not."""
    try:
        wire = msgspec.json.decode(gunzip_bytes(content), type=_Record)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"not a ZNRecord: {error}") from error
    return ZNRecord(
        id=wire.id,
        simple=wire.simple_fields or {},
        maps=wire.map_fields or {},
        lists=wire.list_fields or {},
    )


def gzip_bytes(content: bytes) -> bytes:
    """The bytes as gzip; equal bytes give equal gzip."""
    return gzip.compress(content, compresslevel=6, mtime=0)


def gunzip_bytes(content: bytes) -> bytes:
    """The bytes without compression, as they are if they have none."""
    if not content.startswith(_GZIP_MAGIC):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as source:
            plain = source.read(EXPANDED_BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Malformed(f"the record is not gzip: {error}") from error
    if len(plain) > EXPANDED_BYTES_MAX:
        raise Malformed(f"the record expands to more than {EXPANDED_BYTES_MAX} bytes")
    return plain


class _Record(msgspec.Struct, rename="camel"):
    id: str
    simple_fields: dict[str, str] | None = None
    map_fields: dict[str, dict[str, str]] | None = None
    list_fields: dict[str, tuple[str, ...]] | None = None


def _block(items: Iterable[str], indent: str) -> str:
    lines = f",\n{indent}  ".join(items)
    return f"{{\n{indent}  {lines}\n{indent}}}" if lines else "{ }"


def _map(values: Mapping[str, str]) -> str:
    return _block([f"{quoted(key)} : {quoted(value)}" for key, value in sorted(values.items())], "    ")


def _list(values: tuple[str, ...]) -> str:
    return f"[ {', '.join(map(quoted, values))} ]" if values else "[ ]"
