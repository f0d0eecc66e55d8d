"""Trips: the rows that the Spark workloads read, about 140 bytes each.

Every value is a function of the row's number, so the same rows come out of
every run. They lie on disk as Parquet, and all variants read the same files.
"""

import shutil
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

CITIES = 32
KEY = "trip_id"
PARTITION = "city"
ORDERING = "ts"

_FILES = 8
_FIRST_TS = 1_700_000_000_000
_DRIVERS = 20_000
_RIDERS = 200_000


def trips(session: SparkSession, folder: Path, *, rows: int) -> DataFrame:
    """The first `rows` trips; written below `folder` unless they lie there from an earlier run."""
    source = folder / f"trips-{rows}"
    if not (source / "_SUCCESS").exists():
        shutil.rmtree(source, ignore_errors=True)
        _generated(session, rows).write.parquet(str(source))
    return session.read.parquet(str(source))


def _generated(session: SparkSession, rows: int) -> DataFrame:
    number = f.col("id")
    return session.range(0, rows, 1, _FILES).select(
        _uuid(number).alias(KEY),
        (f.lit(_FIRST_TS) + number * 37).alias(ORDERING),
        f.format_string("city-%02d", _below(CITIES, number, salt=1)).alias(PARTITION),
        f.format_string("driver-%06d", _below(_DRIVERS, number, salt=2)).alias("driver"),
        f.format_string("rider-%07d", _below(_RIDERS, number, salt=3)).alias("rider"),
        (_below(10_000, number, salt=4) / 100).alias("fare"),
        (_below(50_000, number, salt=5) / 1000).alias("distance"),
        (f.lit(-90.0) + _below(180_000_000, number, salt=6) / 1_000_000).alias("latitude"),
        (f.lit(-180.0) + _below(360_000_000, number, salt=7) / 1_000_000).alias("longitude"),
        _below(6, number, salt=8).cast("int").alias("seats"),
        _below(7200, number, salt=9).cast("int").alias("duration"),
        f.concat(f.lit("payment "), f.substring(f.sha1(number.cast("string")), 1, 12)).alias("note"),
    )


def _uuid(number: Column) -> Column:
    digits = f.md5(number.cast("string"))
    places = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    return f.concat_ws("-", *(f.substring(digits, start, length) for start, length in places))


def _below(bound: int, number: Column, *, salt: int) -> Column:
    return f.pmod(f.xxhash64(number, f.lit(salt)), f.lit(bound))
