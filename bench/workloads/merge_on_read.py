"""Merge-on-read: upserts of few rows in all file groups, beside a copy-on-write table of the same rows.

The same upserts, the same upserts with a read after each, and one read after all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.framework import Goal, Scene, Variant, Workload
from bench.workloads.contest import Contest, opened
from bench.workloads.prepared import prepared_trips
from bench.workloads.trips import PARTITION, Stored, scattered, updates
from holdfast import Table

_NAME = "merge-on-read"
_GROUPS = 64
_ROUNDS = 10
_COPYING = "copy-on-write"
_MERGING = "merge-on-read"
_READ_COLUMNS = (PARTITION, "duration", "seats", "distance")
_KEEPS_LOGS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "1000"}


def scattered_upsert(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    """One row in a hundred changes."""

    def set_up(_folder: Path) -> Scene:
        new = scattered(session(), data, rows=rows, number=0)
        contest = _contest(session(), data, rows)
        variants = _both(contest, partial(Table.upsert, rows=new.frame))
        return Scene(variants, {"rows": rows, "file groups": _GROUPS, "incoming rows": new.frame.count()})

    return Workload(name=f"{_NAME} upsert 1 %", limit=_COPYING, goals=(Goal(_MERGING, 0.5),), set_up=set_up)


def rounds_of_upserts(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    """Ten times one row in a hundred changes, and all are read."""

    def set_up(_folder: Path) -> Scene:
        changes = _rounds(session(), data, rows)

        def act(table: Table) -> None:
            for new in changes:
                table.upsert(new.frame)
                _read(table, session())

        variants = _both(_contest(session(), data, rows), act)
        return Scene(variants, {"rows": rows, "file groups": _GROUPS, "rounds": len(changes)})

    return Workload(name=f"{_NAME} rounds of upsert 1 % and read", limit=_COPYING, set_up=set_up)


def worn_read(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    """A read after ten upserts of one row in a hundred each."""

    def set_up(_folder: Path) -> Scene:
        changes = _rounds(session(), data, rows)

        def wear(table: Table) -> None:
            for new in changes:
                table.upsert(new.frame)

        variants = _both(_contest(session(), data, rows), lambda table: _read(table, session()), before=wear)
        return Scene(variants, {"rows": rows, "file groups": _GROUPS, "upserts": len(changes)})

    return Workload(
        name=f"{_NAME} read after ten upserts", limit=_COPYING, goals=(Goal(_MERGING, 1.2),), set_up=set_up
    )


def compaction(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    """A compaction of log files with a tenth of the rows, beside a copy-on-write upsert of the same."""

    def set_up(_folder: Path) -> Scene:
        new = updates(session(), data, rows=rows, percent=10)
        contest = _contest(session(), data, rows)

        def act(table: Table) -> None:
            assert table.compact(session()) is not None, "there are log files"

        compact = contest.merge_on_read(_MERGING, act)
        variants = (
            contest.holdfast(_COPYING, partial(Table.upsert, rows=new.frame)),
            _after(compact, lambda table: table.upsert(new.frame, options=_KEEPS_LOGS)),
        )
        return Scene(variants, {"rows": rows, "file groups": _GROUPS, "rows in logs": new.frame.count()})

    return Workload(name=f"{_NAME} compaction of 10 %", limit=_COPYING, set_up=set_up)


MERGING = (scattered_upsert, rounds_of_upserts, worn_read, compaction)


def _contest(session: SparkSession, data: Path, rows: int) -> Contest:
    return Contest(session, prepared_trips(session, data, rows=rows, groups=_GROUPS))


def _rounds(session: SparkSession, data: Path, rows: int) -> Sequence[Stored]:
    return [scattered(session, data, rows=rows, number=number) for number in range(_ROUNDS)]


def _both(
    contest: Contest, act: Callable[[Table], object], *, before: Callable[[Table], object] | None = None
) -> tuple[Variant, ...]:
    """The same in a table of either type; `before` is not timed."""
    variants = (contest.holdfast(_COPYING, act), contest.merge_on_read(_MERGING, act))
    return variants if before is None else tuple(_after(variant, before) for variant in variants)


def _after(variant: Variant, act: Callable[[Table], object]) -> Variant:
    def prepare(output: Path) -> None:
        variant.prepare(output)
        act(opened(output))

    return replace(variant, prepare=prepare)


def _read(table: Table, session: SparkSession) -> None:
    """Columns are named, because Spark cannot tell which it needs of rows that are merged."""
    rows = table.read(session, columns=list(_READ_COLUMNS))
    rows.groupBy(PARTITION).agg(f.count("*"), f.sum("duration"), f.sum("seats"), f.max("distance")).collect()
