"""`python -m bench`: measure Holdfast against what the machine can do without it."""

import datetime as dt
import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from bench.framework import Result, Workload, narrowed, run_workload
from bench.machine import machine_facts
from bench.processes import ProcessMeter
from bench.report import print_result, write_results
from bench.workloads.broker import QUERIES, broker
from bench.workloads.bulk_insert import bulk_insert
from bench.workloads.change_read import change_read
from bench.workloads.clean import Versions, clean_deletion, clean_increment, clean_plan
from bench.workloads.control_plane import Size, control_plane
from bench.workloads.delete import delete
from bench.workloads.merge_on_read import MERGING
from bench.workloads.overwrite import overwrite
from bench.workloads.push import push, push_switch
from bench.workloads.rollback import rollback
from bench.workloads.serve import serve
from bench.workloads.snapshot_read import snapshot_read
from bench.workloads.switch import switch
from bench.workloads.touched_groups import touched_groups
from bench.workloads.unpartitioned import PERCENTS as UNPARTITIONED_PERCENTS
from bench.workloads.unpartitioned import unpartitioned
from bench.workloads.upsert import GROUPS, PERCENTS, upsert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = Path(__file__).resolve().parent
_ROWS = 10_000_000
_QUICK_ROWS = 500_000
_BULK_ROWS_MAX = 5_000_000
_BROKER_ROWS_MAX = 2_000_000
_QUICK_GROUPS = (64,)
_COMMITS = 50
_CLEANED = Versions(partitions=100, groups=10_000, versions=100)
_QUICK_CLEANED = Versions(partitions=100, groups=1000, versions=100)
_JVM_MEMORY = "4g"
_ROUNDS = 3
_FILE_WIDTH = 150


@click.command("bench", context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=_ROUNDS,
    help="Rounds that count; one more is discarded.",
)
@click.option(
    "--only", multiple=True, metavar="NAME", help="Run the workloads whose names begin so. Repeats."
)
@click.option(
    "--variant", multiple=True, metavar="NAME", help="Run the variants that begin so, and the limit. Repeats."
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    help=f"Rows of the Spark workloads.  [default: {_ROWS:,}, quick {_QUICK_ROWS:,}]",
)
@click.option("--quick", is_flag=True, help="Fewer rows and file groups: minutes instead of hours.")
@click.option(
    "--data", type=click.Path(path_type=Path), default=_HERE / "data", help="Folder for rows and tables."
)
@click.option(
    "--results", type=click.Path(path_type=Path), default=_HERE / "results", help="Folder for results."
)
def bench(
    *,
    rounds: int,
    only: tuple[str, ...],
    variant: tuple[str, ...],
    rows: int | None,
    quick: bool,
    data: Path,
    results: Path,
) -> None:
    """Run the workloads, print a table for each and store every number.

    A goal that is not met is shown and fails nothing.
    """
    console = _console()
    machine = machine_facts()
    groups = _QUICK_GROUPS if quick else GROUPS
    workloads = _workloads(
        data,
        rows=rows or (_QUICK_ROWS if quick else _ROWS),
        groups=groups,
        cleaned=_QUICK_CLEANED if quick else _CLEANED,
    )
    began = time.monotonic()
    finished: list[Result] = []
    try:
        for workload in _chosen(workloads, only):
            asked = narrowed(workload, variant) if variant else workload
            finished.append(_measured(console, asked, rounds=rounds, workspace=data / "workspace"))
            print_result(console, finished[-1], cores=int(machine["cores"]))
    finally:
        # What was measured is kept, also when a later workload fails.
        if finished:
            path = write_results(results, finished, machine=machine, moment=dt.datetime.now(dt.UTC))
            console.print(f"\n{time.monotonic() - began:.0f} s, all numbers in {path}")


def _chosen(workloads: Sequence[Workload], prefixes: tuple[str, ...]) -> Sequence[Workload]:
    for prefix in prefixes:
        if not any(workload.name.startswith(prefix) for workload in workloads):
            names = ", ".join(workload.name for workload in workloads)
            raise click.UsageError(f"no workload begins with {prefix!r}; there are: {names}")
    return [one for one in workloads if not prefixes or one.name.startswith(prefixes)]


def _measured(console: Console, workload: Workload, *, rounds: int, workspace: Path) -> Result:
    with console.status(workload.name) as status:
        return run_workload(
            workload,
            ProcessMeter(),
            rounds=rounds,
            workspace=workspace,
            settle=os.sync,
            announce=lambda step: status.update(f"{workload.name}: {step}"),
        )


def _console() -> Console:
    """The terminal, or a file that is wide enough for the tables."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH)


def _workloads(data: Path, *, rows: int, groups: Sequence[int], cleaned: Versions) -> tuple[Workload, ...]:
    """The control plane comes first: later there is a JVM beside it."""
    session = _session()
    return (
        control_plane(Size(partitions=1000, commits=1000, files_per_commit=100)),
        rollback(files=10_000, others=100_000),
        clean_plan(cleaned, seconds=20.0),
        clean_increment(few=10, many=1000, groups_per_partition=10),
        clean_deletion(files=10_000),
        serve(),
        switch(segments=100_000),
        push_switch(),
        *(broker(name, rows=min(rows, _BROKER_ROWS_MAX)) for name in QUERIES),
        bulk_insert(session, data, rows=min(rows, _BULK_ROWS_MAX)),
        push(session, data, rows=min(rows, _BULK_ROWS_MAX)),
        snapshot_read(session, data, rows=min(rows, _BULK_ROWS_MAX)),
        *(
            upsert(session, data, rows=rows, percent=percent, groups=number)
            for number in groups
            for percent in PERCENTS
        ),
        *(unpartitioned(session, data, rows=rows, percent=percent) for percent in UNPARTITIONED_PERCENTS),
        touched_groups(session, data, rows=rows),
        delete(session, data, rows=rows),
        overwrite(session, data, rows=rows),
        change_read(session, data, rows=rows, commits=_COMMITS),
        *(act(session, data, rows=rows) for act in MERGING),
    )


def _session() -> "Callable[[], SparkSession]":
    """The one session of the run, started when a workload first asks for it."""

    @cache
    def start() -> "SparkSession":
        # Spark and the JVM are not needed to measure the control plane.
        from holdfast.engines.spark.session import local_session

        # Spark's own joins need more than the gigabyte that is the default.
        os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--driver-memory {_JVM_MEMORY} pyspark-shell")
        return local_session("holdfast-bench")

    return start


if __name__ == "__main__":
    bench()
