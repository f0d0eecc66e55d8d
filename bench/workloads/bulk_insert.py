"""Bulk insert: rows into a new partitioned table, against Spark's own partitioned Parquet write.

Spark's write makes no record durable and adds no meta columns; Holdfast's does both.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.framework import Goal, Scene, Variant, Workload
from bench.workloads.prepared import new_trips_table
from bench.workloads.trips import PARTITION, trips

_NAME = "bulk insert"

_LIMIT = "Spark, partitioned"
_DEFAULT = "Holdfast"
_CODEC = "hoodie.parquet.compression.codec"


def bulk_insert(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    def set_up(_folder: Path) -> Scene:
        frame = trips(session(), data, rows=rows)
        variants = (
            Variant(_LIMIT, lambda output: _write_partitioned(frame, output)),
            Variant(_DEFAULT, lambda output: _insert(frame, output, rows=rows)),
            Variant("Holdfast, snappy", lambda output: _insert(frame, output, {_CODEC: "snappy"}, rows=rows)),
            Variant("Spark, flat", lambda output: frame.write.parquet(str(output / "flat"))),
        )
        return Scene(variants, {"rows": rows, "tasks": frame.rdd.getNumPartitions()})

    return Workload(name=_NAME, limit=_LIMIT, goals=(Goal(_DEFAULT, 1.0),), set_up=set_up)


def _write_partitioned(frame: DataFrame, output: Path) -> None:
    frame.write.partitionBy(PARTITION).parquet(str(output / "plain"))


def _insert(frame: DataFrame, output: Path, options: Mapping[str, str] | None = None, *, rows: int) -> None:
    commit = new_trips_table(output / "table").bulk_insert(frame, options=options)
    assert commit.records_written == rows, "a benchmark of a wrong answer says nothing"
