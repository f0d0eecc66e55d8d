"""Upsert: later editions of some rows in all file groups, and a tenth as many new rows."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.framework import Goal, Scene, Variant, Workload
from bench.workloads import native
from bench.workloads.contest import Contest
from bench.workloads.prepared import prepared_trips
from bench.workloads.trips import incoming

_NAME = "upsert"
PERCENTS = (1, 10, 50)
GROUPS = (32, 64)

_LIMIT = "Spark, anti join"
_SIMPLE = "Holdfast SIMPLE"
_BUCKET = "Holdfast BUCKET"
_DELTALAKE = "deltalake"
_LOOK_UPS = ("SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM")
_WITH_GOALS = (1, 10)


def upsert(
    session: Callable[[], SparkSession], data: Path, *, rows: int, percent: int, groups: int
) -> Workload:
    def set_up(_folder: Path) -> Scene:
        new = incoming(session(), data, rows=rows, percent=percent)
        contest = Contest(session(), prepared_trips(session(), data, rows=rows, groups=groups))
        buckets = contest.prepared.bucket_options
        variants = (
            contest.by_hand(_LIMIT, lambda old, path: native.upsert(old, new.frame, path)),
            *(_with_index(contest, new.frame, index) for index in _LOOK_UPS),
            contest.holdfast_buckets(_BUCKET, lambda table: table.upsert(new.frame, options=buckets)),
            contest.deltalake(_DELTALAKE, "upsert", rows=new.path),
        )
        return Scene(variants, {"rows": rows, "file groups": groups, "incoming rows": new.frame.count()})

    return Workload(
        name=f"{_NAME} {percent} % in {groups} groups", limit=_LIMIT, goals=_goals(percent), set_up=set_up
    )


def _with_index(contest: Contest, frame: DataFrame, index: str) -> Variant:
    options = {"hoodie.index.type": index}
    return contest.holdfast(f"Holdfast {index}", lambda table: table.upsert(frame, options=options))


def _goals(percent: int) -> tuple[Goal, ...]:
    if percent not in _WITH_GOALS:
        return ()
    return (
        Goal(_SIMPLE, 0.4),
        Goal(_SIMPLE, 1.2, compared_with=_DELTALAKE),
        Goal(_BUCKET, 0.85, compared_with=_SIMPLE),
    )
