"""`python -m bench`: measure Holdfast against what the machine can do without it."""

import datetime as dt
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from bench.framework import Result, Workload, run_workload
from bench.machine import machine_facts
from bench.processes import ProcessMeter
from bench.report import print_result, write_results
from bench.workloads import bulk_insert as bulk_insert_workload
from bench.workloads import control_plane as control_plane_workload
from bench.workloads import snapshot_read as snapshot_read_workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = Path(__file__).resolve().parent
_ROWS = 5_000_000
_QUICK_ROWS = 500_000
_ROUNDS = 3
_FILE_WIDTH = 120
_NAMES = (control_plane_workload.NAME, bulk_insert_workload.NAME, snapshot_read_workload.NAME)


@click.command("bench", context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=_ROUNDS,
    help="Rounds that count; one more is discarded.",
)
@click.option("--only", multiple=True, type=click.Choice(_NAMES), help="Run this workload only. Repeats.")
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    help=f"Rows of the Spark workloads.  [default: {_ROWS:,}, quick {_QUICK_ROWS:,}]",
)
@click.option("--quick", is_flag=True, help="Fewer rows: about two minutes instead of ten.")
@click.option(
    "--data", type=click.Path(path_type=Path), default=_HERE / "data", help="Folder for rows and tables."
)
@click.option(
    "--results", type=click.Path(path_type=Path), default=_HERE / "results", help="Folder for results."
)
def bench(
    *, rounds: int, only: tuple[str, ...], rows: int | None, quick: bool, data: Path, results: Path
) -> None:
    """Run the workloads, print a table for each and store every number.

    A goal that is not met is shown and fails nothing.
    """
    console = _console()
    machine = machine_facts()
    rows = rows or (_QUICK_ROWS if quick else _ROWS)
    began = time.monotonic()
    finished: list[Result] = []
    try:
        for workload in _workloads(data, rows=rows):
            if only and workload.name not in only:
                continue
            finished.append(_measured(console, workload, rounds=rounds, workspace=data / "workspace"))
            print_result(console, finished[-1], cores=int(machine["cores"]))
    finally:
        # What was measured is kept, also when a later workload fails.
        if finished:
            path = write_results(results, finished, machine=machine, moment=dt.datetime.now(dt.UTC))
            console.print(f"\n{time.monotonic() - began:.0f} s, all numbers in {path}")


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


def _workloads(data: Path, *, rows: int) -> tuple[Workload, ...]:
    """The control plane comes first: later there is a JVM beside it."""
    size = control_plane_workload.Size(partitions=1000, commits=1000, files_per_commit=100)
    session = _session()
    return (
        control_plane_workload.control_plane(size),
        bulk_insert_workload.bulk_insert(session, data, rows=rows),
        snapshot_read_workload.snapshot_read(session, data, rows=rows),
    )


def _session() -> "Callable[[], SparkSession]":
    """The one session of the run, started when a workload first asks for it."""

    @cache
    def start() -> "SparkSession":
        # Spark and the JVM are not needed to measure the control plane.
        from holdfast.engines.spark.session import local_session

        return local_session("holdfast-bench")

    return start


if __name__ == "__main__":
    bench()
