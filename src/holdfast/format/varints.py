"""Numbers of seven bits a byte, the low ones first, as Avro and Protobuf have them; many at a time."""

import numpy as np
import numpy.typing as npt

from holdfast.format.malformed import Malformed

Unsigned = npt.NDArray[np.uint64]
_LONGEST = 10
_BITS = np.uint64(7)
_LOW = np.uint64(0x7F)
_MORE = np.uint8(0x80)


def encode_varints(numbers: Unsigned) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes of all numbers, one behind the other, and where each begins, with the end as the last."""
    lengths = np.ones(len(numbers), dtype=np.int64)
    rest = numbers >> _BITS
    while rest.any():
        lengths += rest > 0
        rest = rest >> _BITS
    starts = np.concatenate(([0], np.cumsum(lengths)))
    encoded = np.empty(int(starts[-1]), dtype=np.uint8)
    for place in range(int(lengths.max(initial=0))):
        has_byte = lengths > place
        low = (numbers[has_byte] >> np.uint64(7 * place)) & _LOW
        is_last = lengths[has_byte] == place + 1
        encoded[starts[:-1][has_byte] + place] = low.astype(np.uint8) | np.where(is_last, 0, _MORE)
    return encoded, starts


def decode_varints(raw: bytes) -> Unsigned:
    """All numbers that the bytes hold; `Malformed` if the last has no end."""
    encoded = np.frombuffer(raw, dtype=np.uint8)
    if len(encoded) == 0:
        return np.empty(0, dtype=np.uint64)
    ends = np.flatnonzero(encoded < _MORE)
    if len(ends) == 0 or ends[-1] != len(encoded) - 1:
        raise Malformed("the last number has no end")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > _LONGEST:
        raise Malformed("a number is too long")
    numbers = np.zeros(len(ends), dtype=np.uint64)
    for place in range(int(lengths.max())):
        has_byte = lengths > place
        low = encoded[starts[has_byte] + place].astype(np.uint64) & _LOW
        numbers[has_byte] |= low << np.uint64(7 * place)
    return numbers


def zigzag(numbers: npt.NDArray[np.int64]) -> Unsigned:
    """Signed numbers as unsigned ones, those near zero small."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
