"""MERGE INTO as an upsert: what a statement costs beside the verb, on the same rows."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast
from bench.framework import Goal, Scene, Workload
from bench.workloads.contest import Contest
from bench.workloads.prepared import prepared_trips
from bench.workloads.trips import KEY, PARTITION, incoming
from holdfast import Table

PERCENT = 1

_GROUPS = 64
_UPSERT = "Holdfast upsert"
_MERGE = "Holdfast MERGE INTO"
_SOURCE = "incoming_trips"


def merge(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    def set_up(_folder: Path) -> Scene:
        new = incoming(session(), data, rows=rows, percent=PERCENT).frame
        new.createOrReplaceTempView(_SOURCE)
        contest = Contest(session(), prepared_trips(session(), data, rows=rows, groups=_GROUPS))
        variants = (
            contest.holdfast(_UPSERT, lambda table: table.upsert(new)),
            contest.holdfast(_MERGE, lambda table: _merge(session(), table)),
        )
        return Scene(variants, {"rows": rows, "file groups": _GROUPS, "incoming rows": new.count()})

    return Workload(
        name=f"merge into {PERCENT} %",
        limit=_UPSERT,
        goals=(Goal(_MERGE, round(1 / 1.15, 2)),),
        set_up=set_up,
    )


def _merge(session: SparkSession, table: Table) -> object:
    return holdfast.sql(
        session,
        f"MERGE INTO holdfast.`{table.path}` t USING {_SOURCE} s"
        f" ON t.{KEY} = s.{KEY} AND t.{PARTITION} = s.{PARTITION}"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )
