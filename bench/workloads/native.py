"""Writes by hand on Spark: what a careful engineer gets from Spark's own join and Parquet writer.

No meta columns, no bloom filters, nothing made durable, and no commit: the
result is a new folder that somebody still has to put in the place of the old.
"""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast

from bench.workloads.trips import KEY, PARTITION


def upsert(old: DataFrame, incoming: DataFrame, path: Path) -> None:
    _write(_without(old, incoming).unionByName(incoming), path)


def delete(old: DataFrame, keys: DataFrame, path: Path) -> None:
    _write(_without(old, keys), path)


def overwrite_partitions(path: Path, rows: DataFrame) -> None:
    writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(PARTITION).parquet(str(path))


def _without(old: DataFrame, keys: DataFrame) -> DataFrame:
    # Keys in memory spare a shuffle of the old rows.
    return old.join(broadcast(keys.select(KEY, PARTITION)), [KEY, PARTITION], "left_anti")


def _write(rows: DataFrame, path: Path) -> None:
    rows.write.partitionBy(PARTITION).parquet(str(path))
