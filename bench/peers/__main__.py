"""`python -m bench.peers`: Holdfast beside Apache Hudi, Delta Lake and Apache Iceberg on one Spark.

Needs Maven for the jars (140 MB, once), `.venvs/peers` (made by `make
bench-peers`), Java 17, about 2 GB of memory for each peer, 20 GB of disk and
hours; `--quick` takes minutes.
"""

import datetime as dt
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click
import pyspark
from rich.console import Console
from rich.status import Status
from rich.text import Text

from bench.framework import Result, Workload, run_workload, summaries
from bench.machine import machine_facts
from bench.maven import CannotBeHad, fetched
from bench.peers import workloads
from bench.peers.engine import CODEC, FILE_BYTES, Setting, SparkParts, spark_session
from bench.peers.remote import Peer, PeerFailed, ReportedMeter
from bench.peers.rows import MORE, PERCENTS, Rows, make_rows
from bench.peers.workloads import DELTA, DELTALAKE, HUDI, HUDI_BARE, ICEBERG, OURS, PLAIN, Arena
from bench.plots import Bar, plot_bars
from bench.report import print_result, write_results

_HERE = Path(__file__).resolve().parents[1]
_HUDI_JARS = ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",)
Chosen = Mapping[str, tuple[str, Sequence[str]]]
"""A peer's name → its engine and the coordinates of its jars."""
Machine = Mapping[str, str | int]

_PEERS: Chosen = {
    OURS: ("holdfast", ()),
    HUDI: ("hudi", _HUDI_JARS),
    HUDI_BARE: ("hudi-bare", _HUDI_JARS),
    DELTA: ("delta", ("io.delta:delta-spark_2.12:3.3.3", "io.delta:delta-storage:3.3.3")),
    ICEBERG: ("iceberg", ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",)),
    PLAIN: ("plain", ()),
    DELTALAKE: ("deltalake", ()),
}
_SPARK = "3.5."
_ROWS = 5_000_000
_QUICK_ROWS = 20_000
_DISK_MB = 20_000
_QUICK_DISK_MB = 1_000
_NOTES = {
    "compression": f"{CODEC} for all",
    "file size": f"{FILE_BYTES >> 20} MB for Holdfast, Hudi and Iceberg; no limit for Delta and plain files",
    "loads": "each by its default: Iceberg shuffles by city, the others write a file per task and city",
    "fsync": "Holdfast syncs every file and folder it relies on; no other does",
    "rows kept": "Holdfast and Hudi store their meta columns and a bloom filter; the others do not",
    "index": "Holdfast and Hudi: SIMPLE; Delta and Iceberg merge by partition and key, copy on write",
    "caches": "tables are opened anew in every run",
    "old versions": "Delta's vacuum leaves one version, the others two",
    "killed writer": "Delta and Iceberg need no rollback: they remove orphans by a listing",
    "sessions": "one JVM for each peer, same settings; deltalake has none and reads the rows as Arrow",
    "listing": "as many tasks as shuffles have, instead of 10,000; Delta's log in as many parts as cores",
}


@click.command("peers", context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--rounds", type=click.IntRange(min=1), default=3, help="Rounds that count; one more is discarded."
)
@click.option(
    "--only", multiple=True, metavar="NAME", help="Run the workloads whose names begin so. Repeats."
)
@click.option("--peer", multiple=True, metavar="NAME", help="Run these peers, and Holdfast. Repeats.")
@click.option(
    "--rows",
    type=click.IntRange(min=1000),
    help=f"Rows of a table.  [default: {_ROWS:,}, quick {_QUICK_ROWS:,}]",
)
@click.option("--quick", is_flag=True, help="Few rows and file groups: minutes instead of hours.")
@click.option("--memory", default="2g", help="Heap of each JVM.")
@click.option(
    "--data", type=click.Path(path_type=Path), default=_HERE / "data", help="Folder for rows and tables."
)
@click.option(
    "--results", type=click.Path(path_type=Path), default=_HERE / "results", help="Folder for results."
)
def peers(
    *,
    rounds: int,
    only: tuple[str, ...],
    peer: tuple[str, ...],
    rows: int | None,
    quick: bool,
    memory: str,
    data: Path,
    results: Path,
) -> None:
    """Give every peer the same rows and the same tasks, in turn; print, store and draw what it took.

    A goal that is not met is shown and fails nothing.
    """
    count = rows or (_QUICK_ROWS if quick else _ROWS)
    data = data.resolve()
    try:
        chosen = {name: found for name, found in _PEERS.items() if name == OURS or not peer or name in peer}
        jars = _needs(chosen, data, megabytes=_QUICK_DISK_MB if quick else _DISK_MB)
    except CannotBeHad as error:
        sys.exit(f"holdfast: {error}")
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=150)
    for name, note in _NOTES.items():
        console.print(f"[dim]{name}: {note}[/dim]")
    workspace = data / "peers-workspace"
    cores = len(os.sched_getaffinity(0))
    groups, versions, tasks = (50, 4, 2) if quick else (1000, 20, 32)
    plain = Setting(workspace=str(workspace), cores=cores, memory=memory)
    given = _rows(data, count, groups=groups, setting=plain, has_more=not quick)
    with ExitStack() as stack:
        running = []
        for name, (engine, _) in chosen.items():
            log = data / "peers" / "logs" / f"{engine}.log"
            running.append(Peer(name, engine, replace(plain, jars=jars[name]), log=log))
            stack.callback(running[-1].end)
        every = _workloads(
            Arena(running, data, workspace), given, groups=groups, versions=versions, tasks=tasks
        )
        wanted = [workload for workload in every if not only or workload.name.startswith(only)]
        finished = _run(console, wanted, rounds=rounds, workspace=workspace, cores=cores)
    _keep(console, results, finished, machine_facts() | _coordinates(chosen) | _NOTES)


def _coordinates(chosen: Chosen) -> dict[str, str]:
    return {name: " ".join(coordinates) for name, (_, coordinates) in chosen.items() if coordinates}


def _needs(chosen: Chosen, data: Path, *, megabytes: int) -> dict[str, list[str]]:
    """The jars of each peer. `CannotBeHad` says in a sentence what is missing."""
    if not pyspark.__version__.startswith(_SPARK):
        found = f"this environment has {pyspark.__version__}"
        raise CannotBeHad(f"the peers need Spark {_SPARK}x and {found}: use make bench-peers")
    data.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(data).free < megabytes << 20:
        raise CannotBeHad(f"{megabytes} MB of free disk are needed below {data}")
    return {
        name: [str(jar) for jar in fetched(coordinates, megabytes=megabytes)]
        for name, (_, coordinates) in chosen.items()
    }


def _rows(data: Path, count: int, *, groups: int, setting: Setting, has_more: bool) -> Rows:
    session = spark_session("rows", setting, SparkParts())
    try:
        return make_rows(session, data, count, groups=groups, has_more=has_more)
    finally:
        session.stop()


def _workloads(arena: Arena, rows: Rows, *, groups: int, versions: int, tasks: int) -> tuple[Workload, ...]:
    return (
        workloads.bulk_load(arena, rows.all, rows.count),
        *([workloads.bulk_load(arena, rows.more, MORE * rows.count)] if rows.more else []),
        *(workloads.upsert(arena, rows, percent) for percent in PERCENTS),
        workloads.delete(arena, rows),
        workloads.overwrite(arena, rows),
        workloads.snapshot_read(arena, rows),
        workloads.change_read(arena, rows),
        workloads.time_travel(arena, rows),
        workloads.undo(arena, rows),
        workloads.reclaim(arena, rows, groups=groups, versions=versions),
        workloads.recovery(arena, rows, tasks=tasks),
    )


def _run(
    console: Console, wanted: Sequence[Workload], *, rounds: int, workspace: Path, cores: int
) -> list[Result]:
    """A workload that a peer cannot do is told, and the others go on."""
    finished: list[Result] = []
    for workload in wanted:
        with console.status(workload.name) as status:

            def announce(step: str, name: str = workload.name, status: Status = status) -> None:
                status.update(f"{name}: {step}")

            try:
                result = run_workload(
                    workload,
                    ReportedMeter(),
                    rounds=rounds,
                    workspace=workspace,
                    settle=os.sync,
                    announce=announce,
                )
            except PeerFailed as error:
                console.print(Text(f"\n{workload.name}: not measured, {error}", style="bold red"))
                continue
        finished.append(result)
        print_result(console, result, cores=cores)
    return finished


def _keep(console: Console, folder: Path, finished: Sequence[Result], machine: Machine) -> None:
    if not finished:
        return
    path = write_results(folder, finished, machine=machine, moment=dt.datetime.now(dt.UTC))
    for result in finished:
        name = re.sub(r"[^a-z0-9]+", "-", result.workload).strip("-")
        plot_bars(path.with_name(f"{path.name[:17]}-peers-{name}.png"), result.workload, _bars(result))
    console.print(f"\nall numbers in {path}, drawn beside it")


def _bars(result: Result) -> list[Bar]:
    return [
        Bar(
            summary.variant,
            {
                "seconds": summary.median.usage.seconds,
                "CPU seconds": summary.median.usage.cpu_seconds,
                "peak MB": (
                    summary.median.usage.driver_peak_bytes
                    + summary.median.usage.jvm_peak_bytes
                    + summary.median.usage.workers_peak_bytes
                )
                / 1e6,
                "files written": summary.median.written.files,
                "MB written": summary.median.written.size_bytes / 1e6,
            },
        )
        for summary in summaries(result)
    ]


if __name__ == "__main__":
    peers()
