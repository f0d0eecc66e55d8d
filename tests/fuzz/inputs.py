"""Inputs that nobody meant: valid ones with something changed, from a seed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence

SEED = int(os.environ.get("HOLDFAST_SEED", "20261118"))
SHARE = float(os.environ.get("HOLDFAST_FUZZ", "0.04"))
"""How many of all inputs are tried; `make test-fuzz` tries all of them."""

_NUMBERS = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    0x7FFFFFFFFFFFFFFF,
    0xFFFFFFFFFFFFFFFF,
)
_TEXTS = (
    b"\x00", b"\\", b'"', b"'", b"\n", b"\r\n\r\n", b"=", b":", b"../", b"%2e%2e/", b"${env:HOME}", b"NaN",
    b"1e999", b"-0", b"null", b"true", b"{", b"[", b"]}", b"\\ud800", b"\xed\xa0\x80", b"\xff\xfe", b"PAR1",
    b"Obj\x01", b"#HUDI#", b"\x1f\x8b\x08\x00", "é漢\u202e\U0001f600".encode(), b"9" * 400, b"a" * 5000,
)  # fmt: skip


def how_many(all_of_them: int) -> int:
    return max(40, round(all_of_them * SHARE))


def changed(seeds: Sequence[bytes], count: int, name: str) -> Iterator[bytes]:
    """That many inputs, each a seed with a few changes."""
    chance = random.Random(f"{SEED} {name}")
    for _ in range(count):
        content = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            chance.choice(_CHANGES)(content, chance, seeds)
        yield bytes(content)


def _flip(content: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def _overwrite(content: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    """With a number at an end of its range, as a length or a count might be."""
    if content:
        at, size = chance.randrange(len(content)), chance.choice((1, 2, 4, 8))
        number = chance.choice(_NUMBERS) & (1 << 8 * size) - 1
        content[at : at + size] = number.to_bytes(size, chance.choice(("big", "little")))


def _cut(content: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    del content[chance.randrange(len(content) + 1) :]


def _remove(content: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    at = chance.randrange(len(content) + 1)
    del content[at : at + chance.choice((1, 2, 4, 16, 64, 256))]


def _insert(content: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    at = chance.randrange(len(content) + 1)
    content[at:at] = chance.choice((chance.choice(_TEXTS), chance.randbytes(chance.randrange(1, 20))))


def _repeat(content: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    at = chance.randrange(len(content) + 1)
    piece = content[at : at + chance.choice((1, 4, 16, 64))]
    content[at:at] = piece * chance.choice((2, 10, 100, 1000))


def _splice(content: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    other = chance.choice(seeds)
    content[chance.randrange(len(content) + 1) :] = other[chance.randrange(len(other) + 1) :]


def _move(content: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    at, to = chance.randrange(len(content) + 1), chance.randrange(len(content) + 1)
    piece = content[at : at + 16]
    del content[at : at + 16]
    content[to:to] = piece


_CHANGES: tuple[Callable[[bytearray, random.Random, Sequence[bytes]], None], ...] = (
    _flip, _flip, _overwrite, _cut, _remove, _insert, _repeat, _splice, _move,
)  # fmt: skip


STATEMENTS = (
    """SELECT city, COUNT(*) AS n, SUM(fare) FROM trips WHERE fare > 1.5 AND city IN ('a', 'b')
       GROUP BY city HAVING COUNT(*) > 1 ORDER BY n DESC LIMIT 10, 20""",
    "SET timeoutMs = 100; SELECT * FROM trips OPTION(enableNullHandling=true)",
    """WITH a AS (SELECT id FROM trips), b AS (SELECT id FROM orders)
       SELECT a.id FROM a JOIN b ON a.id = b.id""",
    "SELECT CASE WHEN fare BETWEEN 1 AND 2 THEN 'x' ELSE NULL END, CAST(id AS STRING) FROM trips",
    "SELECT DISTINCTCOUNTHLL(city), PERCENTILE(fare, 95), FIRSTWITHTIME(fare, ts, 'DOUBLE') FROM trips",
    """SELECT DATETIMECONVERT(id, '1:MILLISECONDS:EPOCH', '1:DAYS:EPOCH', '1:DAYS'),
       DATETRUNC('day', id) FROM trips""",
    """SELECT ROW_NUMBER() OVER (PARTITION BY city ORDER BY ts) FROM trips
       WHERE NOT (city LIKE '%x_' OR id <> 3)""",
    "SELECT REGEXP_LIKE(city, '^(a|b)+$'), ARRAYLENGTH(tags), JSONEXTRACTSCALAR(j, '$.a', 'INT') FROM trips",
    "SELECT id FROM trips UNION ALL SELECT id FROM orders EXCEPT SELECT 1 INTERSECT SELECT id FROM trips",
    'EXPLAIN PLAN FOR SELECT "id", `city` FROM trips -- a remark\n WHERE /* one */ id IS NOT NULL',
    "SELECT x.id FROM (SELECT id FROM trips WHERE id = (SELECT MAX(id) FROM orders)) x",
)
_VOCABULARY = """
SELECT FROM WHERE LIMIT JOIN ON AND OR NOT IN CASE WHEN END NULL TRUE LATERAL PIVOT TABLESAMPLE VALUES
COPY ATTACH PRAGMA trips orders other ( ) (( )) , ; * + - / % || = <> != < > :: ? @ { } [ ] . .. ' " `
'' -- /* */ $$ 0x 1e9 1e-999 CAST( INT( DATE( DECIMAL( STRUCT( MAP( ARRAY[ UNNEST( LAMBDA
NULLABLE<INT> TUPLE< ARRAY<INT \x00 \ud7ff é 𝒳
"""
_PHRASES = (
    "GROUP BY", "ORDER BY", "INTERVAL '1' DAY", "x -> x", "INSERT INTO", "read_csv('/etc/passwd')",
    "getenv('HOME')", "9" * 50,
)  # fmt: skip
_WORDS = (*_VOCABULARY.split(), *_PHRASES)


def statements(count: int, name: str) -> Iterator[str]:
    """That many statements, with words added, taken away, repeated, nested and moved."""
    chance = random.Random(f"{SEED} {name}")
    for _ in range(count):
        words = chance.choice(STATEMENTS).split(" ")
        for _ in range(chance.choice((1, 1, 1, 1, 2, 6))):
            _change_words(words, chance)
        text = " ".join(words)
        if chance.random() < 0.2:
            text = next(changed([text.encode()], 1, text)).decode("utf-8", "replace")
        yield text


def _change_words(words: list[str], chance: random.Random) -> None:
    at = chance.randrange(len(words) + 1)
    match chance.randrange(7):
        case 0:
            words.insert(at, chance.choice(_WORDS))
        case 1:
            del words[at : at + chance.randrange(1, 4)]
        case 2:
            words[at : at + 1] = [chance.choice(_WORDS)]
        case 3:
            opening, closing = chance.choice(
                (("(", ")"), ("INT(", ")"), ("NOT (", ")"), ("[", "]"), ("-", ""))
            )
            depth = chance.choice((1, 5, 30, 200))
            words[at:at] = [opening] * depth
            words[at + depth + 1 : at + depth + 1] = [closing] * depth
        case 4:
            words[at:at] = words[at : at + chance.randrange(1, 9)] * chance.choice((1, 2, 30))
        case 5:
            other = chance.choice(STATEMENTS).split(" ")
            words[at:] = other[chance.randrange(len(other)) :]
        case _:
            other = chance.randrange(len(words) or 1)
            words[at:at], words[other:other] = words[other : other + 2], words[at : at + 2]
