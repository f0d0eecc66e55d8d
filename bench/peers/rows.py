"""The rows that all peers read: made once, by a Spark of its own, as Parquet files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.workloads.trips import (
    KEY,
    ORDERING,
    PARTITION,
    between,
    city,
    incoming,
    scattered,
    stored,
    trips,
    updates,
)

PERCENTS = (1, 10, 50)
MORE = 4
_COMMITS = 10
_ROUNDS = 10
_ROWS_IN_GROUP = 20
_CITY = city(7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Where the rows lie, as Parquet files that some peer's Spark wrote."""

    count: int
    all: str
    more: str
    """Four times as many; empty if nobody asked for them."""
    incoming: Mapping[int, str]
    """By percent: later editions, and a tenth as many new rows."""
    keys: str
    one_city: str
    parts: Sequence[str]
    """All rows, in as many parts as the change read has commits."""
    groups: str
    """Few rows in very many partitions."""
    tenth: str
    """Later editions of one row in ten: new rows would not lie beside data files."""
    scattered: Sequence[str]
    """Later editions of one row in a hundred, each time others: rounds that follow each other."""


def make_rows(session: SparkSession, data: Path, count: int, *, groups: int, has_more: bool) -> Rows:
    everything = trips(session, data, rows=count)
    if has_more:
        trips(session, data, rows=MORE * count)
    new = {percent: incoming(session, data, rows=count, percent=percent) for percent in PERCENTS}
    some = updates(session, data, rows=count, percent=1).frame
    # Hudi wants the ordering of rows that are deleted, too.
    keys = stored(session, data / f"trips-{count}-deleted", lambda: some.select(KEY, PARTITION, ORDERING))
    every = updates(session, data, rows=count, percent=100).frame
    one_city = stored(
        session, data / f"trips-{count}-{_CITY}", lambda: every.where(f.col(PARTITION) == _CITY)
    )
    return Rows(
        count=count,
        all=str(data / f"trips-{count}"),
        more=str(data / f"trips-{MORE * count}") if has_more else "",
        incoming={percent: str(rows.path) for percent, rows in new.items()},
        keys=str(keys.path),
        one_city=str(one_city.path),
        parts=_parts(session, data, everything, count),
        groups=_groups(session, data, everything, count, groups),
        tenth=str(updates(session, data, rows=count, percent=10).path),
        scattered=[
            str(scattered(session, data, rows=count, number=number).path) for number in range(_ROUNDS)
        ],
    )


def _parts(session: SparkSession, data: Path, everything: DataFrame, count: int) -> list[str]:
    step = count // _COMMITS
    found = []
    for number in range(_COMMITS):
        rows = everything.where(between(number * step, (number + 1) * step))
        path = data / f"trips-{count}-parts" / str(number)
        found.append(str(stored(session, path, partial(rows.coalesce, 2)).path))
    return found


def _groups(session: SparkSession, data: Path, everything: DataFrame, count: int, groups: int) -> str:
    """A few rows for each of many partitions."""
    number = f.pmod(f.xxhash64(f.col(KEY), f.lit(groups)), f.lit(groups))
    few = everything.orderBy(ORDERING).limit(_ROWS_IN_GROUP * groups)
    rows = few.withColumn(PARTITION, f.format_string("city-%04d", number))
    path = data / f"trips-{count}-groups-{groups}"
    return str(stored(session, path, partial(rows.coalesce, 2)).path)
