"""Trips: the rows that the Spark workloads read, about 140 bytes each.

Every value is a function of the row's number and its edition, so the same rows
come out of every run. They lie on disk as Parquet, and all variants read the
same files.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

CITIES = 32
KEY = "trip_id"
PARTITION = "city"
ORDERING = "ts"

_FILES = 8
_FIRST_TS = 1_700_000_000_000
_TS_STEP = 37
_LATER_MS = 30_000_000_000
_DRIVERS = 20_000
_RIDERS = 200_000
_SCATTERED = 100


def trips(session: SparkSession, folder: Path, *, rows: int) -> DataFrame:
    """The first `rows` trips; written below `folder` unless they lie there from an earlier run."""
    return stored(session, folder / f"trips-{rows}", lambda: _generated(session, 0, rows)).frame


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows as Spark reads them, and where they lie for those who read them without Spark."""

    path: Path
    frame: DataFrame


def incoming(session: SparkSession, folder: Path, *, rows: int, percent: int) -> Stored:
    """Later editions of so many trips in all of the table, and a tenth as many new trips."""

    def generate() -> DataFrame:
        new = _generated(session, rows, rows + rows * percent // 1000)
        return _updates(session, rows=rows, percent=percent).union(new)

    return stored(session, folder / f"trips-{rows}-incoming-{percent}", generate)


def updates(session: SparkSession, folder: Path, *, rows: int, percent: int) -> Stored:
    """As `incoming`, without new trips."""
    path = folder / f"trips-{rows}-updates-{percent}"
    return stored(session, path, lambda: _updates(session, rows=rows, percent=percent))


def scattered(session: SparkSession, folder: Path, *, rows: int, number: int) -> Stored:
    """Later editions of one trip in a hundred, all over the table; of each number others, and still later."""

    def generate() -> DataFrame:
        is_chosen = _below(100, f.col("id"), salt=_SCATTERED + number) == 0
        return _edition(session.range(0, rows, 1, _FILES).where(is_chosen), edition=1 + number)

    return stored(session, folder / f"trips-{rows}-scattered-{number}", generate)


def city(number: int) -> str:
    return f"city-{number:02d}"


def half() -> Column:
    """0 or 1, as many rows of each in every city."""
    return f.pmod(f.xxhash64(f.col(KEY)), f.lit(2))


def between(first: int, end: int) -> Column:
    """Whether a trip of the first edition is one of these numbers."""
    ts = f.col(ORDERING)
    return (ts >= _FIRST_TS + first * _TS_STEP) & (ts < _FIRST_TS + end * _TS_STEP)


def stored(session: SparkSession, path: Path, generate: Callable[[], DataFrame]) -> Stored:
    """Rows that are written once and lie there for later runs."""
    if not (path / "_SUCCESS").exists():
        shutil.rmtree(path, ignore_errors=True)
        generate().write.parquet(str(path))
    return Stored(path, session.read.parquet(str(path)))


def _updates(session: SparkSession, *, rows: int, percent: int) -> DataFrame:
    is_chosen = _below(100, f.col("id"), salt=10) < percent
    return _edition(session.range(0, rows, 1, _FILES).where(is_chosen), edition=1)


def _generated(session: SparkSession, first: int, end: int) -> DataFrame:
    return _edition(session.range(first, end, 1, _FILES), edition=0)


def _edition(numbers: DataFrame, *, edition: int) -> DataFrame:
    """The rows of these numbers. Key and city are the same in all editions."""
    number = f.col("id")
    made = number if edition == 0 else number * f.lit(1_000_003) + f.lit(edition)
    return numbers.select(
        _uuid(number).alias(KEY),
        (f.lit(_FIRST_TS + edition * _LATER_MS) + number * _TS_STEP).alias(ORDERING),
        f.format_string("city-%02d", _below(CITIES, number, salt=1)).alias(PARTITION),
        f.format_string("driver-%06d", _below(_DRIVERS, made, salt=2)).alias("driver"),
        f.format_string("rider-%07d", _below(_RIDERS, made, salt=3)).alias("rider"),
        (_below(10_000, made, salt=4) / 100).alias("fare"),
        (_below(50_000, made, salt=5) / 1000).alias("distance"),
        (f.lit(-90.0) + _below(180_000_000, made, salt=6) / 1_000_000).alias("latitude"),
        (f.lit(-180.0) + _below(360_000_000, made, salt=7) / 1_000_000).alias("longitude"),
        _below(6, made, salt=8).cast("int").alias("seats"),
        _below(7200, made, salt=9).cast("int").alias("duration"),
        f.concat(f.lit("payment "), f.substring(f.sha1(made.cast("string")), 1, 12)).alias("note"),
    )


def _uuid(number: Column) -> Column:
    digits = f.md5(number.cast("string"))
    places = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    return f.concat_ws("-", *(f.substring(digits, start, length) for start, length in places))


def _below(bound: int, number: Column, *, salt: int) -> Column:
    return f.pmod(f.xxhash64(number, f.lit(salt)), f.lit(bound))
