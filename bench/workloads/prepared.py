"""Prepared tables: the same rows as a Holdfast, a Delta and a plain Parquet table.

They are made when first asked for and stay for later runs. A run gets a copy
whose data files are hard links: nobody writes into a data file that is there.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import holdfast
from bench.workloads.delta import delta
from bench.workloads.trips import CITIES, KEY, ORDERING, PARTITION, half, trips

_TASKS = 4


@dataclass(frozen=True, slots=True)
class Prepared:
    """The rows come in parts; each part is one commit and adds one file group to each city."""

    folder: Path
    parts: Sequence[DataFrame]
    groups_without_cities: int = 0
    """Above 0: the table has no partitions, and each part adds so many file groups."""

    def plain(self) -> Path:
        def build(path: Path) -> None:
            for part in self.parts:
                _by_city(part).write.mode("append").partitionBy(PARTITION).parquet(str(path))

        return _once(self.folder / "plain", build)

    def delta(self, *, has_changes: bool = False) -> Path:
        def build(path: Path) -> None:
            folder = path.with_name("delta-rows")
            commits = [folder / str(number) for number in range(len(self.parts))]
            for part, rows in zip(self.parts, commits, strict=True):
                part.write.mode("overwrite").parquet(str(rows))
            delta("append", path, commits=[str(rows) for rows in commits], has_changes=has_changes)
            shutil.rmtree(folder)

        return _once(self.folder / "delta", build)

    def holdfast(self) -> Path:
        def build(path: Path) -> None:
            table = new_trips_table(path, partition_by=self._partition)
            for part in self.parts:
                table.bulk_insert(self._spread(part))

        return _once(self.folder / "holdfast", build)

    def merge_on_read(self) -> Path:
        """As `holdfast`, in a table that writes log files."""

        def build(path: Path) -> None:
            table = new_trips_table(path, partition_by=self._partition, table_type="MERGE_ON_READ")
            for part in self.parts:
                table.bulk_insert(self._spread(part))

        return _once(self.folder / "holdfast-merge-on-read", build)

    def buckets(self) -> Path:
        """As `holdfast`, with as many buckets as file groups."""

        def build(path: Path) -> None:
            table = new_trips_table(path, partition_by=self._partition)
            for part in self.parts:
                table.upsert(part, options=self.bucket_options)

        return _once(self.folder / "holdfast-buckets", build)

    @property
    def bucket_options(self) -> dict[str, str]:
        return {
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": str(len(self.parts) * (self.groups_without_cities or 1)),
        }

    @property
    def _partition(self) -> str | None:
        return None if self.groups_without_cities else PARTITION

    def _spread(self, part: DataFrame) -> DataFrame:
        return part.repartition(self.groups_without_cities) if self.groups_without_cities else _by_city(part)


def prepared_trips(session: SparkSession, data: Path, *, rows: int, groups: int) -> Prepared:
    """The trips in one or two file groups for each city."""
    folder, all_trips = data / f"tables-{rows}-{groups}", trips(session, data, rows=rows)
    match groups / CITIES:
        case 1:
            return Prepared(folder, (all_trips,))
        case 2:
            return Prepared(folder, tuple(all_trips.where(half() == number) for number in (0, 1)))
        case _:
            raise ValueError(f"{groups} file groups cannot be made of {CITIES} cities")


def prepared_without_partitions(session: SparkSession, data: Path, *, rows: int, groups: int) -> Prepared:
    parts = (trips(session, data, rows=rows),)
    return Prepared(data / f"tables-{rows}-{groups}-unpartitioned", parts, groups_without_cities=groups)


def new_trips_table(
    path: Path, *, partition_by: str | None = PARTITION, table_type: str = "COPY_ON_WRITE"
) -> holdfast.Table:
    return holdfast.create_table(
        str(path),
        name="trips",
        record_key=KEY,
        partition_by=partition_by,
        ordering=ORDERING,
        table_type=table_type,
    )


def link_copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copyfile(source, target)


def _by_city(rows: DataFrame) -> DataFrame:
    return rows.repartition(_TASKS, PARTITION)


def _once(path: Path, build: Callable[[Path], None]) -> Path:
    """Build under another name first: what lies at `path` is whole."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        build(draft)
        draft.rename(path)
    return path
