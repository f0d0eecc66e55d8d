"""Snapshot read: an aggregation over a table, against Spark reading the same files without a table."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

import holdfast
from bench.framework import Goal, Scene, Variant, Workload
from bench.workloads.prepared import new_trips_table
from bench.workloads.trips import PARTITION, trips

_NAME = "snapshot read"

_LIMIT = "Spark, files and schema given"
_OURS = "Holdfast"


def snapshot_read(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    def set_up(folder: Path) -> Scene:
        spark = session()
        table = new_trips_table(folder / "table")
        table.bulk_insert(trips(spark, data, rows=rows))
        files = table.files()
        schema = table.read(spark).schema
        expected = _answer(table.read(spark))

        def ask(frame: DataFrame) -> None:
            assert _answer(frame) == expected, "a benchmark of a wrong answer says nothing"

        variants = (
            Variant(_LIMIT, lambda _: ask(spark.read.schema(schema).parquet(*files))),
            Variant(_OURS, lambda _: ask(holdfast.open_table(table.path).read(spark))),
            Variant("Spark, pattern", lambda _: ask(spark.read.parquet(f"{table.path}/*/*.parquet"))),
        )
        return Scene(variants, {"rows": rows, "files": len(files)})

    return Workload(name=_NAME, limit=_LIMIT, goals=(Goal(_OURS, 1.1),), set_up=set_up)


def _answer(frame: DataFrame) -> list[Row]:
    # Sums of whole numbers: those of doubles depend on the order in which tasks finish.
    grouped = frame.groupBy(PARTITION).agg(
        f.count("*"),
        f.sum("duration"),
        f.sum((f.col("fare") * 100).cast("long")),
        f.max("distance"),
        f.min("latitude"),
        f.max("longitude"),
        f.max("ts"),
        f.countDistinct("driver"),
    )
    return sorted(grouped.collect())
