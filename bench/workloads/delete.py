"""Delete: the keys of one row in a hundred, in all file groups."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from bench.framework import Scene, Workload
from bench.workloads import native
from bench.workloads.contest import Contest
from bench.workloads.prepared import prepared_trips
from bench.workloads.trips import KEY, PARTITION, stored, updates

_NAME = "delete 1 %"

_GROUPS = 64
_LIMIT = "Spark, anti join"


def delete(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    def set_up(_folder: Path) -> Scene:
        keys = stored(
            session(),
            data / f"trips-{rows}-keys-1",
            lambda: updates(session(), data, rows=rows, percent=1).frame.select(KEY, PARTITION),
        )
        contest = Contest(session(), prepared_trips(session(), data, rows=rows, groups=_GROUPS))
        buckets = contest.prepared.bucket_options
        variants = (
            contest.by_hand(_LIMIT, lambda old, path: native.delete(old, keys.frame, path)),
            contest.holdfast("Holdfast SIMPLE", lambda table: table.delete(keys.frame)),
            contest.holdfast_buckets(
                "Holdfast BUCKET", lambda table: table.delete(keys.frame, options=buckets)
            ),
            contest.deltalake("deltalake", "delete", rows=keys.path),
        )
        return Scene(variants, {"rows": rows, "file groups": _GROUPS, "keys": keys.frame.count()})

    return Workload(name=_NAME, limit=_LIMIT, set_up=set_up)
