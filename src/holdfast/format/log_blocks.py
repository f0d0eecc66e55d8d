"""Log blocks: the frame that Hudi's log files and archived timelines are made of.

    #HUDI# | size | version, type, header, content, footer | size of all before

A file is any number of blocks. What does not hold together is skipped up to
the next block, as Hudi does; a caller that needs the whole file is told.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from holdfast.format.malformed import Malformed

MAGIC = b"#HUDI#"

_VERSION = 1
_SIZE_AT = len(MAGIC)
_BODY_AT = _SIZE_AT + 8
_POINTER_BYTES = 8


class BlockType(IntEnum):
    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class BlockHeader(IntEnum):
    """Java takes these for positions in an array: one that it does not know makes it fail."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3


@dataclass(frozen=True, slots=True)
class LogBlock:
    kind: int
    """A `BlockType`, or the number of one that came later."""
    content: bytes
    header: Mapping[int, bytes] = field(default_factory=dict)


def encode_block(block: LogBlock) -> bytes:
    body = b"".join(
        (
            struct.pack(">ii", _VERSION, block.kind),
            _encode_map(block.header),
            struct.pack(">q", len(block.content)),
            block.content,
            _encode_map({}),
        )
    )
    size = len(body) + _POINTER_BYTES
    return b"".join((MAGIC, struct.pack(">q", size), body, struct.pack(">q", size + len(MAGIC))))


def decode_blocks(content: bytes) -> Iterator[LogBlock | None]:
    """The blocks in order; None stands for a part that cannot be read."""
    at = 0
    while at < len(content):
        end = _end_of_block(content, at)
        block = None if end is None else _block(content[at + _BODY_AT : end - _POINTER_BYTES])
        yield block
        if block is not None and end is not None:
            at = end
            continue
        following = content.find(MAGIC, at + 1)
        at = len(content) if following < 0 else following


def _end_of_block(content: bytes, at: int) -> int | None:
    """Where the block that begins here ends; None if none that is whole begins here."""
    if not content.startswith(MAGIC, at) or at + _BODY_AT > len(content):
        return None
    (size,) = struct.unpack_from(">q", content, at + _SIZE_AT)
    end: int = at + _BODY_AT + size
    if size < _POINTER_BYTES or end > len(content):
        return None
    (pointer,) = struct.unpack_from(">q", content, end - _POINTER_BYTES)
    is_followed = end == len(content) or content.startswith(MAGIC, end)
    return end if pointer == size + len(MAGIC) and is_followed else None


def _block(body: bytes) -> LogBlock | None:
    try:
        version, kind = struct.unpack_from(">ii", body)
        if version != _VERSION:
            return None
        header, at = _decode_map(body, 8)
        (length,) = struct.unpack_from(">q", body, at)
    except (struct.error, Malformed):
        return None
    content = body[at + 8 : at + 8 + length]
    return LogBlock(kind, content, header) if 0 <= length == len(content) else None


def _encode_map(entries: Mapping[int, bytes]) -> bytes:
    parts = [struct.pack(">i", len(entries))]
    for key, value in entries.items():
        parts += [struct.pack(">ii", key, len(value)), value]
    return b"".join(parts)


def _decode_map(body: bytes, at: int) -> tuple[dict[int, bytes], int]:
    (count,) = struct.unpack_from(">i", body, at)
    at += 4
    entries: dict[int, bytes] = {}
    for _ in range(count):
        key, length = struct.unpack_from(">ii", body, at)
        at += 8
        if not 0 <= length <= len(body) - at:
            raise Malformed("a block's header ends early")
        entries[key] = body[at : at + length]
        at += length
    return entries, at
