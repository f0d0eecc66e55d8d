"""Touched groups: an upsert that meets one file group of 64, against one that meets all of them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.framework import Goal, Scene, Workload
from bench.workloads.contest import Contest
from bench.workloads.prepared import prepared_trips
from bench.workloads.trips import PARTITION, Stored, city, half, stored, updates
from holdfast import Table

_NAME = "touched groups"

_GROUPS = 64
_LIMIT = "Holdfast, 1 % of all groups"
_ONE = "Holdfast, 1 % of one group"


def touched_groups(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    def set_up(_folder: Path) -> Scene:
        contest = Contest(session(), prepared_trips(session(), data, rows=rows, groups=_GROUPS))
        tasks = {
            "1 % of all groups": updates(session(), data, rows=rows, percent=1),
            "1 % of one group": _of_one_group(session(), data, rows=rows, percent=1),
            "half of one group": _of_one_group(session(), data, rows=rows, percent=50),
        }
        variants = tuple(
            replace(variant, task=task)
            for task, new in tasks.items()
            for variant in (
                contest.holdfast(f"Holdfast, {task}", partial(Table.upsert, rows=new.frame)),
                contest.deltalake(f"deltalake, {task}", "upsert", rows=new.path),
            )
        )
        counts = {f"rows in {task}": new.frame.count() for task, new in tasks.items()}
        return Scene(variants, {"rows": rows, "file groups": _GROUPS, **counts})

    return Workload(name=_NAME, limit=_LIMIT, goals=(Goal(_ONE, 0.15),), set_up=set_up)


def _of_one_group(session: SparkSession, data: Path, *, rows: int, percent: int) -> Stored:
    is_of_group = (f.col(PARTITION) == city(0)) & (half() == 0)
    return stored(
        session,
        data / f"trips-{rows}-updates-{percent}-one-group",
        lambda: updates(session, data, rows=rows, percent=percent).frame.where(is_of_group),
    )
