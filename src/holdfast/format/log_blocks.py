"""Log blocks: the frame that Hudi's log files and archived timelines are made of.

    #HUDI# | size | version, type, header, content, footer | size of all before

A file is any number of blocks. What does not hold together is skipped up to
the next block, as Hudi does; a caller is told of it, and of its header as far
as that can be read.
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
_HEADER_BYTES_MAX = 1 << 20


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
    COMPACTED_BLOCK_TIMES = 4
    """In blocks of a log compaction: the instants whose blocks they stand for."""
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    """Of table version 8 on: the records have some of the columns alone."""
    POSITIONS_BASE_INSTANT = 8


ROLLBACK = b"0"
"""The command of a command block: the blocks of its target before it do not count."""


@dataclass(frozen=True, slots=True)
class LogBlock:
    kind: int
    """A `BlockType`, or the number of one that came later."""
    content: bytes
    header: Mapping[int, bytes] = field(default_factory=dict)
    at: int = field(default=0, compare=False)
    """Where it begins in its file."""

    @property
    def instant(self) -> str:
        """The write that left the block; empty if it does not say."""
        return _text(self.header, BlockHeader.INSTANT_TIME)

    @property
    def target(self) -> str:
        """The write whose blocks a command takes back."""
        return _text(self.header, BlockHeader.TARGET_INSTANT_TIME)

    @property
    def compacted(self) -> tuple[str, ...]:
        """The writes whose blocks this one stands for; none unless a log compaction wrote it."""
        times = _text(self.header, BlockHeader.COMPACTED_BLOCK_TIMES)
        return tuple(time.strip() for time in times.split(",") if time.strip())


@dataclass(frozen=True, slots=True)
class TornBlock:
    """A part of a file that is no whole block."""

    at: int
    instant: str = ""
    """The write that began it, if that much can be read."""
    problem: str = "a log block is torn"


def command_block(rollback: str, target: str) -> LogBlock:
    """Takes back the blocks of `target` that stand before it in the file slice."""
    header: dict[int, bytes] = {
        BlockHeader.INSTANT_TIME: rollback.encode(),
        BlockHeader.COMMAND_BLOCK_TYPE: ROLLBACK,
        BlockHeader.TARGET_INSTANT_TIME: target.encode(),
    }
    return LogBlock(BlockType.COMMAND, b"", header)


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


def decode_blocks(content: bytes) -> Iterator[LogBlock | TornBlock]:
    """The blocks in order, and what is between them that is none."""
    at = 0
    while at < len(content):
        end = _end_of_block(content, at)
        if end is None:
            yield _describe_torn(content, at, "a log block is torn")
        else:
            block = _block(content, at, end)
            yield block
            if isinstance(block, LogBlock):
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


def _block(content: bytes, at: int, end: int) -> LogBlock | TornBlock:
    body = content[at + _BODY_AT : end - _POINTER_BYTES]
    try:
        version, kind = struct.unpack_from(">ii", body)
        if version != _VERSION:
            return _describe_torn(content, at, f"a log block is of version {version}, which is not known")
        header, start = _decode_map(body, 8)
        (length,) = struct.unpack_from(">q", body, start)
    except (struct.error, Malformed):
        return _describe_torn(content, at, "a log block cannot be read")
    held = body[start + 8 : start + 8 + length]
    if not 0 <= length == len(held):
        return _describe_torn(content, at, "a log block cannot be read")
    return LogBlock(kind, held, header, at)


def _describe_torn(content: bytes, at: int, problem: str) -> TornBlock:
    """What is left of a block; its header comes before most of it, and so tells often who wrote it."""
    if not content.startswith(MAGIC, at):
        return TornBlock(at, problem=problem)
    # Of what follows another block begins with the next magic bytes.
    end = content.find(MAGIC, at + len(MAGIC))
    rest = content[at + _BODY_AT : min(len(content) if end < 0 else end, at + _HEADER_BYTES_MAX)]
    return TornBlock(at, _find_instant(rest), problem)


def _find_instant(body: bytes) -> str:
    """The instant in the header of a block that may end anywhere."""
    try:
        (count,) = struct.unpack_from(">i", body, 8)
        start = 12
        for _ in range(count):
            key, length = struct.unpack_from(">ii", body, start)
            value = body[start + 8 : start + 8 + max(length, 0)]
            if len(value) != length:
                return ""
            if key == BlockHeader.INSTANT_TIME:
                return _digits(value)
            start += 8 + length
    except struct.error:
        pass
    return ""


def _text(header: Mapping[int, bytes], key: BlockHeader) -> str:
    return header.get(key, b"").decode("utf-8", "replace")


def _digits(value: bytes) -> str:
    return value.decode() if value.isdigit() else ""


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
