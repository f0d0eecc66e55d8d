"""Bloom filters over record keys, in the bytes that Hadoop's filters use.

A base file carries one in its footer, so that a writer can rule the file out
without reading its keys. Everything works on whole Arrow arrays; no key ever
becomes a Python string.
"""

import base64
import binascii
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.errors import InvalidOption
from holdfast.format.malformed import Malformed

DYNAMIC = "DYNAMIC_V0"
SIMPLE = "SIMPLE"

BITS_MAX = 5_175_932
"""Twice Hudi's default row: a footer stays below 0.9 MB however many keys a file holds."""

_KEYS_MIN = 1000
_OVERFILL = 1.25
"""How far a row may be filled beyond its capacity before its false positives are worth a rebuild."""
_HASHES_MAX = 2000
_CHUNK_KEYS = 32_768
_CHUNK_BYTES = 4 << 20

_VERSION = -1
_MURMUR = 1
_HEADER = struct.Struct(">iiBi")
_ROW_COUNTS = struct.Struct(">iii")

_MULTIPLIER = np.uint32(0x5BD1E995)

_Words = npt.NDArray[np.uint32]
_Bytes = npt.NDArray[np.uint8]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BloomShape:
    bits: int
    hashes: int

    @property
    def size_bytes(self) -> int:
        return (self.bits + 7) // 8


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """Rows of bits of one shape; a key may be in the filter if any row has all its bits.

    `row_capacity` and `newest_row_keys` are what the stored form says about
    filling; looking up does not need them.
    """

    shape: BloomShape
    rows: tuple[_Bytes, ...]
    row_capacity: int
    newest_row_keys: int

    def might_contain(self, keys: pa.Array) -> _Mask:
        """For each key, False if it was certainly never added. Keys must not be null."""
        found = np.zeros(len(keys), dtype=np.bool_)
        for start, mixed in _mix_chunks([keys]):
            chunk = found[start : start + mixed.count]
            for row in self.rows:
                _mark_contained(row, self.shape, mixed=mixed, found=chunk)
        return found


def bloom_shape(key_count: int, *, false_positive_rate: float) -> BloomShape:
    """The shape for a file with this number of keys.

    Where the rate would need more than `BITS_MAX`, fewer hashes keep the
    filter half empty, so the rate degrades gently instead of collapsing.
    """
    if not 0 < false_positive_rate < 1:
        raise InvalidOption("the false-positive rate must lie between 0 and 1", given=false_positive_rate)
    keys = max(key_count, _KEYS_MIN)
    bits = min(math.ceil(keys * -math.log(false_positive_rate) / math.log(2) ** 2), BITS_MAX)
    return BloomShape(bits, hashes=max(1, math.ceil(math.log(2) * bits / keys)))


def build_bloom(keys: pa.ChunkedArray | Sequence[pa.Array], *, false_positive_rate: float) -> str:
    """The footer text of a `DYNAMIC_V0` filter with one row that holds all keys. Keys must not be null."""
    shape = bloom_shape(_key_count(keys), false_positive_rate=false_positive_rate)
    return encode_bloom(fill_bloom(keys, shape=shape))


def fill_bloom(keys: pa.ChunkedArray | Sequence[pa.Array], *, shape: BloomShape) -> BloomFilter:
    """A filter of exactly this shape with one row that holds all keys."""
    # One byte per bit while filling: numpy cannot set bits of shared bytes in one go.
    flags = np.zeros(shape.bits, dtype=np.uint8)
    _set_flags(flags, shape.hashes, keys)
    count = _key_count(keys)
    row = np.packbits(flags, bitorder="little")
    return BloomFilter(shape, (row,), row_capacity=max(count, _KEYS_MIN), newest_row_keys=count)


def extend_bloom(
    text: str, keys: pa.ChunkedArray | Sequence[pa.Array], *, type_code: str | None
) -> str | None:
    """The footer text, as `DYNAMIC_V0`, of a stored filter that also holds new keys.

    None if the filter is too full for them, or does not say how full it is:
    then it is to be built anew from all keys. Keys must not be null.
    """
    bloom = decode_bloom(text, type_code)
    count = bloom.newest_row_keys + _key_count(keys)
    if not bloom.row_capacity or count > _OVERFILL * bloom.row_capacity:
        return None
    *older, newest = bloom.rows
    flags = np.unpackbits(newest, count=bloom.shape.bits, bitorder="little")
    _set_flags(flags, bloom.shape.hashes, keys)
    rows = (*older, np.packbits(flags, bitorder="little"))
    return encode_bloom(replace(bloom, rows=rows, newest_row_keys=count))


def encode_bloom(bloom: BloomFilter) -> str:
    """The footer text of a filter, as `DYNAMIC_V0`."""
    header = _HEADER.pack(_VERSION, bloom.shape.hashes, _MURMUR, bloom.shape.bits)
    counts = _ROW_COUNTS.pack(bloom.row_capacity, bloom.newest_row_keys, len(bloom.rows))
    rows = b"".join(header + row.tobytes() for row in bloom.rows)
    return base64.b64encode(header + counts + rows).decode("ascii")


def decode_bloom(text: str, type_code: str | None) -> BloomFilter:
    """The filter in a footer; a footer without a type code holds a `SIMPLE` one."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed(f"bloom filter is not Base64: {error}") from error
    if type_code == DYNAMIC:
        return _decode_dynamic(content)
    if type_code in (SIMPLE, None):
        return _decode_simple(content)
    raise Malformed(f"unknown type of bloom filter: {type_code!r}")


def _decode_simple(content: bytes) -> BloomFilter:
    shape = _decode_header(content, 0)
    _check_length(content, _HEADER.size + shape.size_bytes)
    row = _decode_row(content, _HEADER.size, shape=shape)
    return BloomFilter(shape, (row,), row_capacity=0, newest_row_keys=0)


def _decode_dynamic(content: bytes) -> BloomFilter:
    shape = _decode_header(content, 0)
    if len(content) < _HEADER.size + _ROW_COUNTS.size:
        raise Malformed("bloom filter ends inside its header")
    row_capacity, newest_row_keys, row_count = _ROW_COUNTS.unpack_from(content, _HEADER.size)
    if row_count < 1 or row_capacity < 0 or newest_row_keys < 0:
        raise Malformed(
            f"bloom filter with {row_count} rows of {row_capacity} keys, {newest_row_keys} in the last"
        )
    start = _HEADER.size + _ROW_COUNTS.size
    row_size = _HEADER.size + shape.size_bytes
    # Before any row is read: the count is data and must not drive a loop on its own.
    _check_length(content, start + row_count * row_size)
    rows = []
    for position in range(start, len(content), row_size):
        if _decode_header(content, position) != shape:
            raise Malformed("bloom filter has rows of different shapes")
        rows.append(_decode_row(content, position + _HEADER.size, shape=shape))
    return BloomFilter(shape, tuple(rows), row_capacity=row_capacity, newest_row_keys=newest_row_keys)


def _decode_header(content: bytes, position: int) -> BloomShape:
    if len(content) < position + _HEADER.size:
        raise Malformed("bloom filter ends inside its header")
    version, hashes, hash_type, bits = _HEADER.unpack_from(content, position)
    if version != _VERSION or hash_type != _MURMUR:
        raise Malformed(f"bloom filter of version {version} with hash type {hash_type}")
    if not 1 <= hashes <= _HASHES_MAX or bits < 1:
        raise Malformed(f"bloom filter with {hashes} hashes on {bits} bits")
    return BloomShape(bits, hashes)


def _decode_row(content: bytes, position: int, *, shape: BloomShape) -> _Bytes:
    return np.frombuffer(content, dtype=np.uint8, count=shape.size_bytes, offset=position)


def _check_length(content: bytes, expected: int) -> None:
    if len(content) != expected:
        raise Malformed(f"bloom filter of {len(content)} bytes should have {expected}")


@dataclass(frozen=True, slots=True, eq=False)
class _MixedKeys:
    """Keys prepared for hashing under any seed.

    Hadoop's murmur variant mixes each four-byte word before it meets the
    seed, so that half of the work is done once and not once per hash. Keys
    are ordered by falling word count: `words[i]` belongs to the first
    `len(words[i])` keys, which lets keys of any length share every step.
    """

    order: npt.NDArray[np.intp]  # place of each key in the chunk it came from
    lengths: _Words
    words: tuple[_Words, ...]
    tails: _Words
    tail_multipliers: _Words

    @property
    def count(self) -> int:
        return len(self.lengths)

    def hash(self, seeds: _Words) -> _Words:
        value = seeds ^ self.lengths
        for word in self.words:
            part = value[: len(word)]
            np.multiply(part, _MULTIPLIER, out=part)
            np.bitwise_xor(part, word, out=part)
        value ^= self.tails
        value *= self.tail_multipliers
        value ^= value >> np.uint32(13)
        value *= _MULTIPLIER
        value ^= value >> np.uint32(15)
        return value

    def only(self, mask: _Mask) -> Self:
        return type(self)(
            self.order[mask],
            self.lengths[mask],
            tuple(word[mask[: len(word)]] for word in self.words),
            self.tails[mask],
            self.tail_multipliers[mask],
        )


def _mark_contained(row: _Bytes, shape: BloomShape, *, mixed: _MixedKeys, found: _Mask) -> None:
    """Set `found` for the keys whose bits are all set in the row."""
    seed = np.zeros(mixed.count, dtype=np.uint32)
    alive = np.ones(mixed.count, dtype=np.bool_)
    for _ in range(shape.hashes):
        seed = mixed.hash(seed)
        position = _positions(seed, shape.bits)
        alive &= (row[position >> np.uint32(3)] >> (position & np.uint32(7)).astype(np.uint8) & 1).view(
            np.bool_
        )
        # Each hash rules out half of the absent keys or more; most are gone after a few.
        if np.count_nonzero(alive) * 2 < len(alive):
            mixed, seed = mixed.only(alive), seed[alive]
            alive = np.ones(mixed.count, dtype=np.bool_)
        if mixed.count == 0:
            return
    found[mixed.order[alive]] = True


def _positions(hashes: _Words, bits: int) -> _Words:
    """`abs(hash % bits)` as Java computes it on signed integers."""
    magnitude = np.abs(hashes.view(np.int32)).view(np.uint32)
    # Division by a scalar is vectorised in numpy, remainder is not.
    return magnitude - magnitude // np.uint32(bits) * np.uint32(bits)


def _set_flags(flags: _Bytes, hashes: int, keys: pa.ChunkedArray | Sequence[pa.Array]) -> None:
    """Set every key's bits, where each bit of the row has a byte of its own."""
    for _, mixed in _mix_chunks(_chunks(keys)):
        seed = np.zeros(mixed.count, dtype=np.uint32)
        for _ in range(hashes):
            seed = mixed.hash(seed)
            flags[_positions(seed, len(flags))] = 1


def _key_count(keys: pa.ChunkedArray | Sequence[pa.Array]) -> int:
    return sum(len(chunk) for chunk in _chunks(keys))


def _chunks(keys: pa.ChunkedArray | Sequence[pa.Array]) -> Sequence[pa.Array]:
    return keys.chunks if isinstance(keys, pa.ChunkedArray) else keys


def _mix_chunks(arrays: Iterable[pa.Array]) -> Iterator[tuple[int, _MixedKeys]]:
    """The keys in pieces of bounded size, each with its first key's place in its array."""
    for array in arrays:
        assert array.null_count == 0, "a record key is never null"
        offsets, content = _string_buffers(array)
        start = 0
        while start < len(array):
            last_fitting = int(np.searchsorted(offsets, offsets[start] + _CHUNK_BYTES, side="right")) - 1
            stop = min(start + _CHUNK_KEYS, max(last_fitting, start + 1))
            yield start, _mix(offsets[start : stop + 1], content)
            start = stop


def _string_buffers(array: pa.Array) -> tuple[npt.NDArray[np.int64], _Bytes]:
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offset_buffer, content_buffer = array.buffers()
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(offset_buffer, dtype=width)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(content_buffer, dtype=np.uint8) if content_buffer else np.empty(0, dtype=np.uint8)
    return offsets.astype(np.int64), content


def _mix(offsets: npt.NDArray[np.int64], content: _Bytes) -> _MixedKeys:
    starts, lengths = offsets[:-1], np.diff(offsets)
    order = np.argsort(-(lengths >> 2), kind="stable")
    starts, lengths = starts[order], lengths[order]
    tails, tail_multipliers = _tails(starts + lengths, lengths & 3, content=content)
    return _MixedKeys(
        order,
        lengths.astype(np.uint32),
        tuple(_words(starts, lengths, content=content)),
        tails,
        tail_multipliers,
    )


def _words(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], *, content: _Bytes
) -> Iterator[_Words]:
    falling = -(lengths >> 2)
    # Every four neighbouring bytes seen as a number: keys begin anywhere.
    windows = np.ndarray(max(len(content) - 3, 0), dtype="<u4", buffer=content, strides=(1,))
    for index in range(-int(falling[0])):
        reaching = int(np.searchsorted(falling, -index, side="left"))
        word = windows[starts[:reaching] + 4 * index]
        word *= _MULTIPLIER
        word ^= word >> np.uint32(24)
        word *= _MULTIPLIER
        yield word


def _tails(
    ends: npt.NDArray[np.int64], left: npt.NDArray[np.int64], *, content: _Bytes
) -> tuple[_Words, _Words]:
    """What the last one to three bytes of each key contribute, and the factor that follows them.

    Java's bytes are signed: one above 127 fills all higher bits when it is widened.
    """
    signed = content.view(np.int8)
    tails = np.zeros(len(ends), dtype=np.uint32)
    for back in (1, 2, 3):
        having = np.flatnonzero(left >= back)
        widened = signed[ends[having] - back].astype(np.int32) << np.int32(8 * (back - 1))
        tails[having] ^= widened.view(np.uint32)
    return tails, np.where(left > 0, _MULTIPLIER, np.uint32(1))
