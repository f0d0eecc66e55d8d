"""The bucket index: which bucket a key belongs to, and which bucket a file group is.

The number is Hudi's: Java's hash of the list of key values. A file group says
its bucket in the first eight characters of its id.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_DIGITS = 8
_CHUNK_KEYS = 65_536
_CONTINUATION = 0x80
_FOUR_BYTES = 0xF0
_Hashes = npt.NDArray[np.uint32]


def bucket_numbers(values: Sequence[pa.StringArray], *, count: int) -> npt.NDArray[np.int64]:
    """The bucket of each row, from the texts of the key columns that decide it; null counts as absent."""
    hashes = np.ones(len(values[0]), dtype=np.uint32)
    for column in values:
        hashes = hashes * np.uint32(31) + java_hashes(column)
    return (hashes & np.uint32(0x7FFF_FFFF)).astype(np.int64) % count


def java_hashes(texts: pa.StringArray) -> _Hashes:
    """`String.hashCode` of each text, as unsigned numbers; 0 for null."""
    parts = [_hashes(texts.slice(start, _CHUNK_KEYS)) for start in range(0, len(texts), _CHUNK_KEYS)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)


def _hashes(texts: pa.StringArray) -> _Hashes:
    filled = texts.fill_null("") if texts.null_count else texts
    _, offset_buffer, content = filled.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[filled.offset : filled.offset + len(filled) + 1]
    text = bytes(memoryview(content or b"")[offsets[0] : offsets[-1]])
    units, starts = _utf16(text, offsets.astype(np.int64) - offsets[0])
    lengths = np.diff(starts)
    hashes = np.zeros(len(filled), dtype=np.uint32)
    # One step per character position, over those texts that are that long.
    longest_first = np.argsort(-lengths, kind="stable")
    starts_ordered = starts[:-1][longest_first]
    ordered = np.zeros(len(filled), dtype=np.uint32)
    still = np.searchsorted(-lengths[longest_first], -np.arange(1, lengths.max(initial=0) + 1), side="right")
    for position, reaching in enumerate(still.tolist()):
        ordered[:reaching] *= np.uint32(31)
        ordered[:reaching] += units[starts_ordered[:reaching] + position]
    hashes[longest_first] = ordered
    return hashes


def _utf16(text: bytes, starts: npt.NDArray[np.int64]) -> tuple[_Hashes, npt.NDArray[np.int64]]:
    """The UTF-16 code units of concatenated texts, and where each text begins among them."""
    content = np.frombuffer(text, dtype=np.uint8)
    if content.max(initial=0) < _CONTINUATION:
        return content.astype(np.uint32), starts
    # Every byte but continuations begins a character; four-byte ones are two units in UTF-16.
    begins = (content & 0xC0) != _CONTINUATION
    units_before = np.concatenate([[0], np.cumsum(begins.astype(np.int64) + (content >= _FOUR_BYTES))])
    units = np.frombuffer(text.decode().encode("utf-16-be"), dtype=">u2").astype(np.uint32)
    return units, units_before[starts]


def bucket_file_id(bucket: int, unique: str) -> str:
    """The id of a new file group for a bucket; `unique` is a UUID."""
    return f"{bucket:0{_DIGITS}d}{unique[_DIGITS:]}-0"


def bucket_of(file_id: str) -> int | None:
    """The bucket a file group is, or None if its id does not say."""
    digits = file_id[:_DIGITS]
    return int(digits) if digits.isdigit() and digits.isascii() and len(digits) == _DIGITS else None
