"""xxHash of 64 bits, by which Hudi names a table's lock in ZooKeeper."""

_WORD = (1 << 64) - 1
_PRIMES = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def xxhash64(data: bytes, seed: int) -> int:
    """For short texts only: it takes one step of Python for every eight bytes."""
    p1, p2, p3, p4, p5 = _PRIMES
    at = 0
    if len(data) >= 32:
        lanes = [seed + p1 + p2, seed + p2, seed, seed - p1]
        while at + 32 <= len(data):
            lanes = [_round(lane, _int(data, at + 8 * n, 8)) for n, lane in enumerate(lanes)]
            at += 32
        value = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = (value ^ _round(0, lane)) * p1 + p4
    else:
        value = seed + p5
    value = (value + len(data)) & _WORD
    while at + 8 <= len(data):
        value = _rotate(value ^ _round(0, _int(data, at, 8)), 27) * p1 + p4
        value &= _WORD
        at += 8
    if at + 4 <= len(data):
        value = (_rotate(value ^ (_int(data, at, 4) * p1 & _WORD), 23) * p2 + p3) & _WORD
        at += 4
    for byte in data[at:]:
        value = (_rotate(value ^ (byte * p5 & _WORD), 11) * p1) & _WORD
    value = (value ^ value >> 33) * p2 & _WORD
    value = (value ^ value >> 29) * p3 & _WORD
    return value ^ value >> 32


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _PRIMES[1]) & _WORD, 31) * _PRIMES[0] & _WORD


def _rotate(value: int, by: int) -> int:
    value &= _WORD
    return (value << by | value >> (64 - by)) & _WORD


def _int(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
