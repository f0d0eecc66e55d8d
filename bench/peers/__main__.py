"""`python -m bench.peers`: Holdfast beside Apache Hudi, Delta Lake and Apache Iceberg on one Spark.

Runs in `.venvs/peers`, which `make bench-peers` makes. What else it needs, it
says when it begins.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import pyspark
from rich.console import Console

from bench.machine import machine_facts
from bench.maven import CannotBeHad, fetched
from bench.peers.contest import Contest, Rounds, Size, UnknownWorkload
from bench.peers.engine import CODEC, FILE_BYTES, Setting, SparkParts, spark_session
from bench.peers.remote import Peer
from bench.peers.rows import MORE, Rows, make_rows
from bench.peers.workloads import (
    DELTA,
    DELTA_VECTORS,
    DELTALAKE,
    HUDI,
    HUDI_BARE,
    HUDI_MERGING,
    ICEBERG,
    ICEBERG_MERGING,
    OURS,
    OURS_MERGING,
    PLAIN,
    Arena,
    bulk_load_name,
)

_HERE = Path(__file__).resolve().parents[1]
_HUDI_JARS = ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",)
_DELTA_JARS = ("io.delta:delta-spark_2.12:3.3.3", "io.delta:delta-storage:3.3.3")
_ICEBERG_JARS = ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",)
Chosen = Mapping[str, tuple[str, Sequence[str]]]
"""A peer's name → its engine and the coordinates of its jars."""

_PEERS: Chosen = {
    OURS: ("holdfast", ()),
    HUDI: ("hudi", _HUDI_JARS),
    HUDI_BARE: ("hudi-bare", _HUDI_JARS),
    DELTA: ("delta", _DELTA_JARS),
    ICEBERG: ("iceberg", _ICEBERG_JARS),
    PLAIN: ("plain", ()),
    DELTALAKE: ("deltalake", ()),
    OURS_MERGING: ("holdfast-merge-on-read", ()),
    HUDI_MERGING: ("hudi-merge-on-read", _HUDI_JARS),
    DELTA_VECTORS: ("delta-deletion-vectors", _DELTA_JARS),
    ICEBERG_MERGING: ("iceberg-merge-on-read", _ICEBERG_JARS),
}
_ALWAYS = (OURS, OURS_MERGING)
_SPARK = "3.5."
_ROWS = 5_000_000
_QUICK_ROWS = 20_000
_SITTINGS, _ROUNDS_OF_SITTING = 4, 3
_GROUPS, _QUICK_GROUPS = 1000, 50
_VERSIONS, _QUICK_VERSIONS = 20, 4
_KILLED_TASKS, _QUICK_KILLED_TASKS = 32, 2
_FILE_WIDTH = 200
_GIGABYTES, _QUICK_GIGABYTES = 35, 1
_JARS_MB = 140
_GIGABYTE = 1_000_000_000
_BLOCK = 512
"""Bytes that the system counts as one block of a file."""
_NOTES = {
    "compression": f"{CODEC} for all",
    "file size": f"{FILE_BYTES >> 20} MB for Holdfast, Hudi and Iceberg; no limit for Delta and plain files",
    "loads": "each by its default: Iceberg shuffles by city, the others write a file per task and city",
    "fsync": "Holdfast syncs every file and folder it relies on; no other does",
    "rows kept": "Holdfast and Hudi store their meta columns and a bloom filter; the others do not",
    "index": "Holdfast and Hudi: SIMPLE; Delta and Iceberg merge by partition and key, copy on write",
    "merge-on-read": "Hudi's log files, Delta's deletion vectors, Iceberg's delete files, by their defaults",
    "caches": "tables are opened anew in every run",
    "old versions": "Delta's vacuum leaves one version, the others two",
    "killed writer": "Delta and Iceberg need no rollback: they remove orphans by a listing",
    "killed files": "Holdfast's are made by hand, as large as the rows; Hudi's by a write that fails",
    "Python": "Spark ends Holdfast's idle Python workers after a minute; starting them anew is timed",
    "rounds": "the first is discarded, but of the largest load; short ones that others disturb are run again",
    "sessions": "new JVMs for each workload, several for short ones, same settings; deltalake has none",
    "listing": "as many tasks as shuffles have, instead of 10,000; Delta's log in as many parts as cores",
    "beside defaults": "Hudi's index in as many tasks as shuffles have, not 100; Delta's vacuum in parallel",
    "old metadata": "Hudi makes its metadata table with the last of the versions to reclaim, whole",
    "many cities": "Iceberg sorts the rows of the table to reclaim: a file open for each needs over 2 GB",
    "Hadoop": "no native library, as pip installs Spark: its files cost a chmod each, Holdfast's do not",
}


@click.command("peers", context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    help="Rounds that count; one more is discarded, but of a load of minutes.",
)
@click.option(
    "--sittings",
    type=click.IntRange(min=1),
    default=_SITTINGS,
    help=f"How often tasks of a second begin anew, with new JVMs and {_ROUNDS_OF_SITTING} rounds "
    "that count, unless quick.",
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
@click.option(
    "--groups",
    type=click.IntRange(min=1),
    help=f"File groups to reclaim old versions of.  [default: {_GROUPS:,}, quick {_QUICK_GROUPS}]",
)
@click.option(
    "--versions",
    type=click.IntRange(min=3),
    help=f"Versions of each of them.  [default: {_VERSIONS}, quick {_QUICK_VERSIONS}]",
)
@click.option("--prepare", is_flag=True, help="Make the rows and tables for a later run; measure nothing.")
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
    sittings: int,
    only: tuple[str, ...],
    peer: tuple[str, ...],
    rows: int | None,
    groups: int | None,
    versions: int | None,
    prepare: bool,
    quick: bool,
    memory: str,
    data: Path,
    results: Path,
) -> None:
    """Give every peer the same rows and the same tasks, in turn; print, store and draw what it took.

    A goal that is not met is shown and fails nothing. Results of an earlier
    run stay for the workloads that this one leaves out.
    """
    count = rows or (_QUICK_ROWS if quick else _ROWS)
    data = data.resolve()
    for name in peer:
        if name not in _PEERS:
            raise click.UsageError(f"no peer is called {name!r}; there are: {', '.join(_PEERS)}")
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH)
    chosen = {name: found for name, found in _PEERS.items() if name in _ALWAYS or not peer or name in peer}
    gigabytes, time = (_QUICK_GIGABYTES, "some minutes") if quick else (_GIGABYTES, "some hours")
    console.print(
        f"[dim]needs Maven for jars ({_JARS_MB} MB, once), {gigabytes} GB of disk, "
        f"{memory} of heap for each of {len(chosen)} peers, and {time}[/dim]"
    )
    try:
        jars = _needs(chosen, data, gigabytes=gigabytes)
    except CannotBeHad as error:
        sys.exit(f"holdfast: {error}")
    for name, note in _NOTES.items():
        console.print(f"[dim]{name}: {note}[/dim]")
    workspace = data / "peers-workspace"
    plain = Setting(workspace=str(workspace), cores=len(os.sched_getaffinity(0)), memory=memory)
    size = Size(
        rows=count,
        has_more=not quick and bulk_load_name(MORE * count).startswith(only or ("",)),
        groups=groups or (_QUICK_GROUPS if quick else _GROUPS),
        versions=versions or (_QUICK_VERSIONS if quick else _VERSIONS),
        killed_tasks=_QUICK_KILLED_TASKS if quick else _KILLED_TASKS,
    )
    given = _rows(data, size, plain)
    with ExitStack() as stack:
        running = []
        for name, (engine, _) in chosen.items():
            log = data / "peers" / "logs" / f"{engine}.log"
            running.append(Peer(name, engine, replace(plain, jars=jars[name]), log=log))
            stack.callback(running[-1].end)
        contest = Contest(console, Arena(running, data, workspace), given, size)
        machine = machine_facts() | _coordinates(chosen) | _NOTES
        sittings = 1 if quick else sittings
        counted = Rounds(all=rounds, short=1 if quick else sittings * _ROUNDS_OF_SITTING, sittings=sittings)
        act = contest.prepare if prepare else partial(contest.measure, counted, results, machine)
        try:
            names = contest.names(only)
        except UnknownWorkload as error:
            raise click.UsageError(str(error)) from None
        # All are begun, and then it is told whether all came to an end.
        ended = [contest.run(name, act) for name in names]
    sys.exit(0 if all(ended) else 1)


def _coordinates(chosen: Chosen) -> dict[str, str]:
    return {name: " ".join(coordinates) for name, (_, coordinates) in chosen.items() if coordinates}


def _needs(chosen: Chosen, data: Path, *, gigabytes: int) -> dict[str, list[str]]:
    """The jars of each peer. `CannotBeHad` says in a sentence what is missing."""
    if not pyspark.__version__.startswith(_SPARK):
        found = f"this environment has {pyspark.__version__}"
        raise CannotBeHad(f"the peers need Spark {_SPARK}x and {found}: use make bench-peers")
    data.mkdir(parents=True, exist_ok=True)
    missing = gigabytes * _GIGABYTE - shutil.disk_usage(data).free
    # Tables of an earlier run have a part of it already.
    if missing > 0 and bytes_below(data) < missing:
        raise CannotBeHad(
            f"{gigabytes} GB of disk are needed for {data}, {missing:,} bytes more than are free"
        )
    return {
        name: [str(jar) for jar in fetched(coordinates, megabytes=_JARS_MB)]
        for name, (_, coordinates) in chosen.items()
    }


def bytes_below(folder: Path) -> int:
    """What it takes on the disk; a file that has several names is there once."""
    found = (path.lstat() for path in folder.rglob("*"))
    return sum({(one.st_dev, one.st_ino): one.st_blocks * _BLOCK for one in found}.values())


def _rows(data: Path, size: Size, setting: Setting) -> Rows:
    session = spark_session("rows", setting, SparkParts())
    try:
        return make_rows(session, data, size.rows, groups=size.groups, has_more=size.has_more)
    finally:
        session.stop()


if __name__ == "__main__":
    peers()
