"""What every peer can be asked to do with a table of trips, and how Spark is set up for all of them."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.workloads.trips import CITIES, KEY, ORDERING, PARTITION

CODEC = "snappy"
FILE_BYTES = 120 * 1024 * 1024
LONG_AGO_S = 30 * 24 * 3600
"""Before now: files that old are orphans to everybody, whatever they wait for by default."""

Version = Any
"""What an engine calls a state of a table; something JSON knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How Spark is started, alike for all."""

    workspace: str
    """Every table lies below it."""
    cores: int
    memory: str
    jars: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Rows on their way into a table."""

    path: str
    tasks_by_city: int = 0
    """Above 0: all rows of a city in one task, of so many; else as the files are split."""
    tasks: int = 0
    """Above 0: so many tasks, each with rows of all cities."""
    later_ms: int = 0
    """Added to the ordering of every row."""
    keeps_changes: bool = False
    """Whether changes of the new table will be asked for: some must know it beforehand."""
    has_many_cities: bool = False
    """Whether there are too many to keep a file open for each of them."""
    keeps_logs: bool = False
    """Whether what changes is to lie beside the base files, however much it is: it will be compacted."""
    more_follow: bool = False
    """Whether further versions come before anything is timed: what only the last needs can wait for it."""

    def frame(self, session: SparkSession) -> DataFrame:
        rows = session.read.parquet(self.path)
        if self.later_ms:
            rows = rows.withColumn(ORDERING, f.col(ORDERING) + f.lit(self.later_ms))
        if self.tasks_by_city:
            return rows.repartition(self.tasks_by_city, PARTITION)
        return rows.repartition(self.tasks) if self.tasks else rows

    def arrow(self) -> pa.Table:
        """The rows without Spark: in memory, whatever the tasks."""
        rows = pq.read_table(self.path)
        later = pc.add(rows[ORDERING], self.later_ms)
        return rows.set_column(rows.schema.get_field_index(ORDERING), ORDERING, later)


class Engine(Protocol):
    """A peer. `table` is the path of a table; `rows` what comes into it."""

    def ready(self, table: str) -> None:
        """Untimed: forget what was cached of a table that lay at this path, and know the one there now."""

    def load(self, table: str, rows: Load) -> None:
        """A new table with these rows, one partition for each city."""

    def append(self, table: str, rows: Load) -> None: ...

    def upsert(self, table: str, rows: Load) -> None: ...

    def delete(self, table: str, rows: Load) -> None: ...

    def overwrite(self, table: str, rows: Load) -> None:
        """Replace the partitions that the rows are of."""

    def read(self, table: str, version: Version = None) -> "Digest": ...

    def changes(self, table: str, since: Version, until: Version) -> "Digest":
        """The rows that came after one version, up to another."""

    def versions(self, table: str) -> list[Version]:
        """Oldest first."""

    def undo(self, table: str, newest: Version, before: Version) -> None:
        """Take the newest version back, to the one before it."""

    def reclaim(self, table: str) -> None:
        """Delete the files of versions older than the newest, or the one before it."""

    def compact(self, table: str) -> None:
        """Put into the data files what lies beside them."""

    def fail(self, table: str, rows: Load) -> None:
        """Leave what a writer leaves that is killed when all its files are there."""

    def recover(self, table: str) -> None:
        """Remove what `fail` left."""


Digest = list[list[int | float | str]]
"""One line for each city: what any engine can compute exactly, whatever the order of rows."""


DIGESTED = {
    PARTITION: "",
    ORDERING: "sum",
    "duration": "sum",
    "seats": "sum",
    "distance": "max",
    "latitude": "min",
    "longitude": "max",
    KEY: "min",
}
"""Column → what is taken of it; the rows of each partition are counted, too."""


def digest(rows: DataFrame) -> Digest:
    taken = [getattr(f, how)(name) for name, how in DIGESTED.items() if how]
    grouped = rows.groupBy(PARTITION).agg(f.count("*"), *taken)
    return sorted([list(row) for row in grouped.collect()])


def arrow_digest(rows: pa.Table) -> Digest:
    taken = [(name, how) for name, how in DIGESTED.items() if how]
    found = rows.group_by(PARTITION).aggregate([([], "count_all"), *taken])
    columns = [PARTITION, "count_all", *(f"{name}_{how}" for name, how in taken)]
    return sorted([list(row.values()) for row in found.select(columns).to_pylist()])


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkParts:
    """What an engine adds to the settings that all share."""

    extensions: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


def spark_session(name: str, setting: Setting, parts: SparkParts) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": setting.memory,
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffles(setting)),
        # By default 10,000 tasks, of which Delta starts every one to list a handful of folders.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(shuffles(setting)),
        "spark.sql.parquet.compression.codec": CODEC,
        # By default each JVM collects all garbage once in half an hour, whatever is being timed then.
        "spark.cleaner.periodicGC.interval": "24h",
        "spark.sql.warehouse.dir": f"{setting.workspace}/warehouse",
        **parts.settings,
    }
    if setting.jars:
        settings["spark.jars"] = ",".join(setting.jars)
    if parts.extensions:
        settings["spark.sql.extensions"] = parts.extensions
    builder = SparkSession.builder.master(f"local[{setting.cores}]").appName(f"peers-{name}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def shuffles(setting: Setting) -> int:
    """Into how many parts rows are shuffled, whoever does it."""
    return 8 * setting.cores


def leave_orphans(table: str, write: Callable[[], None]) -> None:
    """Let data files be written that no version names, so old that a sweep by age finds them."""
    before = set(Path(table).rglob("*.parquet"))
    write()
    for path in set(Path(table).rglob("*.parquet")) - before:
        moment = path.stat().st_mtime - LONG_AGO_S
        os.utime(path, (moment, moment))


def write_plain(rows: DataFrame, folder: str) -> None:
    rows.write.mode("append").partitionBy(PARTITION).parquet(folder)
    (Path(folder) / "_SUCCESS").unlink(missing_ok=True)


def city_names() -> list[str]:
    return [f"{PARTITION}=city-{number:02d}" for number in range(CITIES)]
