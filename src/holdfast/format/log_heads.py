"""What the blocks of a log file say of themselves: who wrote them, without what they hold.

Deciding whose a log file is must cost little and bear everything: files that are
torn, and blocks that came later than this program.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import SEEK_END
from typing import BinaryIO

from holdfast.format.log_blocks import MAGIC, BlockHeader, BlockType
from holdfast.model.instant import InstantTime

_FIXED = struct.Struct(">qii")
"""The size of the block, its version and its kind."""
_INT = struct.Struct(">i")
_ENTRY = struct.Struct(">ii")
_POINTER = struct.Struct(">q")
_VERSION = 1
_ENTRIES_MAX = 64
_ROLLBACK = b"0"
"""The kind of a command block that takes back."""


@dataclass(frozen=True, slots=True)
class BlockHead:
    kind: int
    header: Mapping[int, bytes]
    is_whole: bool
    """Whether the block ends as it should; of one that does not, the head may still be readable."""

    @property
    def instant(self) -> InstantTime | None:
        """Who wrote the block; None if it does not say."""
        return self._time(BlockHeader.INSTANT_TIME)

    @property
    def taken_back(self) -> InstantTime | None:
        """The instant whose blocks before this one do not count; None if it is no such command."""
        command = self.header.get(BlockHeader.COMMAND_BLOCK_TYPE)
        is_rollback = self.kind == BlockType.COMMAND and command == _ROLLBACK
        return self._time(BlockHeader.TARGET_INSTANT_TIME) if is_rollback else None

    def _time(self, key: BlockHeader) -> InstantTime | None:
        text = self.header.get(key, b"").decode("ascii", "replace")
        return InstantTime(text) if text.isascii() and text.isdigit() else None


def read_heads(source: BinaryIO) -> Iterator[BlockHead]:
    """The heads of the blocks in order; a part that is torn gives its head, if that is readable."""
    size = source.seek(0, SEEK_END)
    at = 0
    while at < size:
        head, end = _read_head(source, at, size)
        if head is not None:
            yield head
        at = end if end is not None else _find_magic(source, at + 1, size)


def _read_head(source: BinaryIO, at: int, size: int) -> tuple[BlockHead | None, int | None]:
    """The head of the block that begins here, and where a whole one ends."""
    source.seek(at)
    if source.read(len(MAGIC)) != MAGIC:
        return None, None
    fixed = source.read(_FIXED.size)
    if len(fixed) < _FIXED.size:
        return None, None
    length, version, kind = _FIXED.unpack(fixed)
    header = _read_header(source) if version == _VERSION else None
    end = _end_of_block(source, at, length, size)
    return None if header is None else BlockHead(kind, header, end is not None), end


def _read_header(source: BinaryIO) -> dict[int, bytes] | None:
    """None if it breaks off."""
    counted = source.read(_INT.size)
    if len(counted) < _INT.size or not 0 <= _INT.unpack(counted)[0] <= _ENTRIES_MAX:
        return None
    header: dict[int, bytes] = {}
    for _ in range(_INT.unpack(counted)[0]):
        entry = source.read(_ENTRY.size)
        if len(entry) < _ENTRY.size:
            return None
        key, length = _ENTRY.unpack(entry)
        value = source.read(length) if length >= 0 else b""
        if len(value) != length:
            return None
        header[key] = value
    return header


def _end_of_block(source: BinaryIO, at: int, length: int, size: int) -> int | None:
    """Where the block ends; None if it is torn."""
    end = at + len(MAGIC) + _POINTER.size + length
    if length < _POINTER.size or end > size:
        return None
    source.seek(end - _POINTER.size)
    (pointer,) = _POINTER.unpack(source.read(_POINTER.size))
    is_followed = end == size or source.read(len(MAGIC)) == MAGIC
    return end if pointer == length + len(MAGIC) and is_followed else None


def _find_magic(source: BinaryIO, at: int, size: int) -> int:
    """Where the next block begins; the end if none does."""
    source.seek(at)
    found = source.read().find(MAGIC)
    return size if found < 0 else at + found
