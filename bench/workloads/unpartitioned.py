"""Upsert without partitions: one task could not hold the table, so keys are looked for before rows travel."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from bench.framework import Goal, Scene, Workload
from bench.workloads.contest import Contest
from bench.workloads.prepared import prepared_without_partitions
from bench.workloads.trips import incoming

PERCENTS = (1, 10)

_GROUPS = 64
_SIMPLE = "Holdfast SIMPLE"
_BLOOM = "Holdfast BLOOM"
_BUCKET = "Holdfast BUCKET"


def unpartitioned(session: Callable[[], SparkSession], data: Path, *, rows: int, percent: int) -> Workload:
    def set_up(_folder: Path) -> Scene:
        new = incoming(session(), data, rows=rows, percent=percent).frame
        prepared = prepared_without_partitions(session(), data, rows=rows, groups=_GROUPS)
        contest = Contest(session(), prepared)
        bloom, buckets = {"hoodie.index.type": "BLOOM"}, prepared.bucket_options
        variants = (
            contest.holdfast(_SIMPLE, lambda table: table.upsert(new)),
            contest.holdfast(_BLOOM, lambda table: table.upsert(new, options=bloom)),
            contest.holdfast_buckets(_BUCKET, lambda table: table.upsert(new, options=buckets)),
        )
        return Scene(variants, {"rows": rows, "file groups": _GROUPS, "incoming rows": new.count()})

    return Workload(
        name=f"unpartitioned upsert {percent} %",
        limit=_SIMPLE,
        goals=(Goal(_BUCKET, 0.85),),
        set_up=set_up,
    )
