"""Overwrite: all rows of one partition of 20 replaced by as many others."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.framework import Scene, Workload
from bench.workloads import native
from bench.workloads.contest import Contest
from bench.workloads.prepared import Prepared
from bench.workloads.trips import PARTITION, city, stored, trips, updates

_NAME = "overwrite"

_PARTITIONS = 20
_CITY = city(7)
_LIMIT = "Spark, dynamic overwrite"


def overwrite(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    def set_up(_folder: Path) -> Scene:
        old = trips(session(), data, rows=rows).where(f.col(PARTITION) < city(_PARTITIONS))
        new = stored(
            session(),
            data / f"trips-{rows}-{_CITY}",
            lambda: updates(session(), data, rows=rows, percent=100).frame.where(f.col(PARTITION) == _CITY),
        )
        contest = Contest(session(), Prepared(data / f"tables-{rows}-{_PARTITIONS}", (old,)))
        variants = (
            contest.by_hand_in_place(_LIMIT, lambda path: native.overwrite_partitions(path, new.frame)),
            contest.holdfast("Holdfast", lambda table: table.insert_overwrite(new.frame)),
            contest.deltalake("deltalake", "overwrite", rows=new.path, partition=_CITY),
        )
        facts = {"rows": old.count(), "partitions": _PARTITIONS, "incoming rows": new.frame.count()}
        return Scene(variants, facts)

    return Workload(name=f"{_NAME} one partition", limit=_LIMIT, set_up=set_up)
