"""Change read: the rows of one commit of many, against all rows of the table."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import holdfast
from bench.framework import Goal, Scene, Variant, Workload
from bench.workloads.contest import checksum
from bench.workloads.delta import delta_process
from bench.workloads.prepared import Prepared
from bench.workloads.trips import between, trips
from bench.workloads.waiting import WaitingProcess

_NAME = "change read"

_LIMIT = "Holdfast, all rows"
_OURS = "Holdfast, one commit"
_COMMIT_TIME = "_hoodie_commit_time"


def change_read(session: Callable[[], SparkSession], data: Path, *, rows: int, commits: int) -> Workload:
    def set_up(_folder: Path) -> Scene:
        spark = session()
        prepared = _prepared(spark, data, rows=rows, commits=commits)
        asked = commits // 2
        path = str(prepared.holdfast())
        times = [instant.time for instant in holdfast.open_table(path).timeline()]
        since, until = times[asked - 1], times[asked]
        expected = {
            "all": checksum(trips(spark, data, rows=rows)),
            "one": checksum(prepared.parts[asked]),
        }

        def spark_variant(name: str, task: str, read: Callable[[], DataFrame]) -> Variant:
            def run(_output: Path) -> None:
                assert checksum(read()) == expected[task], "a benchmark of a wrong answer says nothing"

            return Variant(name, run)

        def all_rows() -> DataFrame:
            return holdfast.open_table(path).read(spark)

        def changes() -> DataFrame:
            return holdfast.open_table(path).changes(spark, since=since, until=until)

        def filtered() -> DataFrame:
            table = holdfast.open_table(path)
            return table.read(spark, meta_columns=True).where(f.col(_COMMIT_TIME) == until)

        delta = prepared.delta(has_changes=True)
        variants = (
            spark_variant(_LIMIT, "all", all_rows),
            spark_variant(_OURS, "one", changes),
            spark_variant("Spark, filter by commit time", "one", filtered),
            _deltalake("deltalake, all rows", expected["all"][0], "count", delta),
            _deltalake("deltalake, one commit", expected["one"][0], "changes", delta, version=asked),
        )
        return Scene(variants, {"rows": rows, "commits": commits})

    return Workload(name=_NAME, limit=_LIMIT, goals=(Goal(_OURS, 0.1),), set_up=set_up)


def _prepared(session: SparkSession, data: Path, *, rows: int, commits: int) -> Prepared:
    """A table that grew by as many rows with every commit."""
    step = rows // commits
    ends = [*range(step, step * commits, step), rows]
    firsts = [0, *ends[:-1]]
    all_trips = trips(session, data, rows=rows)
    parts = [all_trips.where(between(first, end)) for first, end in zip(firsts, ends, strict=True)]
    return Prepared(data / f"tables-{rows}-commits-{commits}", parts)


def _deltalake(name: str, expected: int, action: str, table: Path, **needs: object) -> Variant:
    """It counts the rows; the process stands ready before the time is taken."""
    ready: list[WaitingProcess] = []

    def prepare(_output: Path) -> None:
        ready.append(delta_process(action, table, **needs))

    def run(_output: Path) -> None:
        assert ready[-1].act() == expected, "a benchmark of a wrong answer says nothing"

    return Variant(name, run, prepare=prepare, finish=lambda _: ready.pop().end())
