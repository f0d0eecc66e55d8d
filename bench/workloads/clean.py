"""Cleaning: planning for very many files, planning for few that changed, and deleting.

Files are empty or small, and commits say what writes would have said. Tables
are made outside the measured time.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.framework import Goal, Scene, Unit, Variant, Workload
from bench.workloads.clean_process import drafted, opened
from bench.workloads.control_plane import commit_files, create_partitions
from bench.workloads.waiting import WaitingProcess
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import instant_file
from holdfast.services.clean.clean import clean
from holdfast.services.clean.execute import carry_out, encode_plan
from holdfast.table.clean_plans import plan_paths

_SCRIPT = Path(__file__).with_name("clean_process.py")

_WALK = "os.walk"
_DRAFT = "draft"
_STORE = "draft and encode"
_EXPLAIN = "plan_clean()"

_FEW = "few partitions"
_MANY = "many partitions"
_WHOLE = "many partitions, whole table"
_REPEATED = 10
"""Plans in one run: a single one is over too soon to be measured."""
_COMMITS_BEFORE = 20
_COMMITS_SINCE = 5
"""Commits to one partition: before the first clean, and between cleans."""

_REMOVE = "os.remove, sync folders"
_REMOVE_ONLY = "os.remove, no sync"
_CLEAN = "carry out"
_CLEAN_TIME = InstantTime("20991231235959000")
_THREADS = 16
_RETAIN_ONE = CleanSettings(commits_retained=1)
_CONTENT = b"\0" * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """So many file groups, evenly over the partitions, each with one version from each commit."""

    partitions: int
    groups: int
    versions: int

    @property
    def files(self) -> int:
        return self.groups * self.versions


def clean_plan(size: Versions, *, seconds: float) -> Workload:
    """Planning for a table that was never cleaned. Each variant runs in a process of its own."""

    def set_up(folder: Path) -> Scene:
        path = str(folder / "table")
        build_versions(path, size)
        doomed = size.groups * (size.versions - CleanSettings().commits_retained - 1)
        variants = (
            _in_process(_WALK, "walk", path, size.files),
            _in_process(_DRAFT, "draft", path, doomed),
            _in_process(_STORE, "store", path, doomed),
            _in_process(_EXPLAIN, "explain", path, doomed),
        )
        facts = {"files": size.files, "file groups": size.groups, "partitions": size.partitions}
        return Scene(variants, {**facts, "doomed": doomed})

    return Workload(
        name="clean plan", limit=_WALK, goals=(Goal(_DRAFT, seconds, Unit.SECONDS),), set_up=set_up
    )


def clean_increment(*, few: int, many: int, groups_per_partition: int) -> Workload:
    """Planning where one partition was written to since the last clean, beside few others and beside many.

    One file group of that partition is as old as the other partitions: what
    wrote them all has to be looked at.
    """

    def set_up(folder: Path) -> Scene:
        paths = {count: str(folder / f"{count}") for count in (few, many)}
        for count, path in paths.items():
            _build_and_touch_one(path, partitions=count, groups_per_partition=groups_per_partition)
        doomed = (groups_per_partition - 1) * _COMMITS_SINCE

        def planning(name: str, partitions: int, *, incremental: bool) -> Variant:
            def run(_: Path) -> None:
                for _repeat in range(_REPEATED):
                    plan = drafted(opened(paths[partitions]), CleanSettings(incremental=incremental))
                    assert plan.decisions.doomed.num_rows == doomed
                    assert plan.is_whole != incremental

            return Variant(name, run)

        variants = (
            planning(_FEW, few, incremental=True),
            planning(_MANY, many, incremental=True),
            planning(_WHOLE, many, incremental=False),
        )
        facts: dict[str, str | int] = {
            "partitions": f"{few:,} and {many:,}",
            "file groups in each": groups_per_partition,
        }
        return Scene(variants, {**facts, "plans": _REPEATED})

    return Workload(name="clean increment", limit=_FEW, goals=(Goal(_MANY, 1.5),), set_up=set_up)


def clean_deletion(*, files: int, partitions: int = 100, versions: int = 10) -> Workload:
    """Carrying out a plan, against as many threads that remove the same files and know them beforehand.

    The limit syncs each folder once at the end: without that a power cut may bring files back.
    """
    size = Versions(partitions=partitions, groups=files // versions, versions=versions + 2)

    def set_up(folder: Path) -> Scene:
        path = str(folder / "table")
        build_versions(path, size)
        plan = drafted(opened(path), _RETAIN_ONE).schema_in_file
        doomed = plan_paths(plan)
        assert len(doomed) == files

        def prepare(folder: Path) -> None:
            build_versions(str(folder / "table"), size, content=_CONTENT)

        def prepare_plan(folder: Path) -> None:
            prepare(folder)
            table = opened(str(folder / "table"))
            requested = instant_file(_CLEAN_TIME, Action.CLEAN, State.REQUESTED)
            assert table.store.create(requested, encode_plan(table, plan))

        def carry(folder: Path) -> None:
            report = carry_out(opened(str(folder / "table")), _CLEAN_TIME, parallelism=_THREADS)
            assert report is not None
            assert len(report.deleted) == files

        variants = (
            Variant(_REMOVE, partial(_remove, doomed, syncs=True), prepare, _left),
            Variant(_REMOVE_ONLY, partial(_remove, doomed, syncs=False), prepare, _left),
            Variant(_CLEAN, carry, prepare_plan, _left),
        )
        return Scene(variants, {"files": files, "partitions": partitions, "threads": _THREADS})

    return Workload(name="clean deletion", limit=_REMOVE, goals=(Goal(_CLEAN, 1.25),), set_up=set_up)


def build_versions(path: str, size: Versions, *, content: bytes = b"") -> None:
    partitions = create_partitions(path, size.partitions)
    groups = [(partitions[group % size.partitions], group) for group in range(size.groups)]
    for number in range(size.versions):
        commit_files(path, number, groups, previous=number - 1 if number else None, content=content)


def _build_and_touch_one(path: str, *, partitions: int, groups_per_partition: int) -> None:
    """Two commits to all partitions, then many to one; a clean that looks at all, and one that does not."""
    build_versions(
        path, Versions(partitions=partitions, groups=partitions * groups_per_partition, versions=2)
    )
    touched = [("region=00000", group * partitions) for group in range(1, groups_per_partition)]
    until = 2
    for count in (_COMMITS_BEFORE, _COMMITS_SINCE):
        since, until = until, until + count
        for number in range(since, until):
            commit_files(path, number, touched, previous=number - 1)
        report = clean(opened(path), WriteSettings())
        assert report is not None
        assert report.deleted
    for number in range(until, until + _COMMITS_SINCE):
        commit_files(path, number, touched, previous=number - 1)


def _in_process(name: str, action: str, table: str, expected: int) -> Variant:
    """The process stands ready before the time is taken."""
    ready: list[WaitingProcess] = []

    def prepare(_output: Path) -> None:
        ready.append(WaitingProcess(_SCRIPT, action=action, table=table))

    def run(_output: Path) -> None:
        assert ready[-1].act() == expected, "a benchmark of a wrong answer says nothing"

    return Variant(name, run, prepare=prepare, finish=lambda _: ready.pop().end())


def _remove(doomed: list[str], folder: Path, *, syncs: bool) -> None:
    paths = [f"{folder}/table/{path}" for path in doomed]
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(os.remove, paths):
            pass
        if syncs:
            for _ in pool.map(_sync, {os.path.dirname(path) for path in paths}):
                pass


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _left(folder: Path) -> int:
    return sum(1 for _ in (folder / "table").glob("region=*/*.parquet"))
