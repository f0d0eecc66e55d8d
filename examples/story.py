"""Holdfast in a minute, by running it: five beats, and every claim is checked.

`make run` runs this. The commands that are shown are run, Spark writes the
table, a run is killed in the middle of its write, a service answers queries,
and other engines read the result. A claim that does not hold is marked red,
and the story ends with 1. `make tour` is the long story, with all output.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiTableBuilder
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid
from stage import (
    COMMAND,
    LAKE,
    ROOT,
    Figures,
    Ports,
    data_files,
    figures,
    kill_a_run_while_it_writes,
    later,
    served_figures,
    service,
    set_stage,
    table_figures,
    wait_until_served,
)
from trips import at_fare, deliver, trips, withdraw

import holdfast
from holdfast.cli.main import cli
from holdfast.engines.spark.session import local_session
from holdfast.errors import HoldfastError

SERVE = [*COMMAND, "serve", "--config", "serve.yaml"]
MONDAY, WEDNESDAY = 120_000, 240_000

console = Console(highlight=False, width=None if sys.stdout.isatty() else 80)


def main(home: Path) -> int:
    began = time.monotonic()
    ports = set_stage(home)
    story = Story(ports)
    console.print("[bold]Holdfast[/]: lakehouse tables that you can always take back.")
    console.print("Everything below runs on this machine now, and each ✓ is checked.", style="dim")
    with console.status("starting Spark ..."):
        spark = local_session("holdfast-story")
    try:
        story.load()
        story.kill_and_recover()
        with service(ports, SERVE):
            story.stop_at_a_gate()
            story.take_back_a_bad_publish()
        story.ask_other_engines()
    except (CommandFailed, HoldfastError, OSError, SystemExit) as failure:
        console.print(f"   [red]✗ {escape(str(failure))}[/]", soft_wrap=True)
        story.claims.append(False)
    finally:
        spark.stop()
    return farewell(ports, story.claims, time.monotonic() - began)


class CommandFailed(Exception):
    """A command did not end as it should; the rest would make no sense."""


class Story:
    def __init__(self, ports: Ports) -> None:
        self.claims: list[bool] = []
        self._ports = ports
        self._monday = trips(0, MONDAY, day=0)
        self._wednesday = trips(MONDAY, WEDNESDAY, day=2)
        self._good: Figures = figures(pa.concat_tables([self._monday, self._wednesday]))
        """What everything must say from the second beat on."""

    def load(self) -> None:
        self._begin(1, "Files become a table")
        deliver(Path("inbox"), "monday", self._monday)
        self._run("holdfast run ingest.yaml")
        self._claim(
            f"4 CSV files are the table {LAKE}: {MONDAY:,} trips, the same fares",
            found=table_figures(), expected=figures(self._monday),
        )  # fmt: skip
        self._run("holdfast run ingest.yaml")
        commits = len(holdfast.open_table(LAKE).timeline())
        self._claim("run again, it finds nothing new: still one commit", found=commits, expected=1)

    def kill_and_recover(self) -> None:
        self._begin(2, "A run is killed in the middle of its write")
        deliver(Path("inbox"), "wednesday", self._wednesday)
        self._show("holdfast run ingest.yaml &   # killed with SIGKILL")
        left = kill_a_run_while_it_writes(lambda: console.status("another process writes ..."))
        unfinished = [one for one in holdfast.open_table(LAKE).timeline() if not one.is_completed]
        self._claim(
            f"it leaves {len(left)} data files and an unfinished instant",
            found=len(unfinished), expected=1,
        )  # fmt: skip
        self._claim("readers see nothing of it", found=table_figures(), expected=figures(self._monday))
        self._run("holdfast run ingest.yaml")
        self._claim("the next run removes its files", found=left & data_files(), expected=set())
        self._claim(
            f"and takes in every trip once: {MONDAY + WEDNESDAY:,}",
            found=(table_figures(), distinct_trips()), expected=(self._good, MONDAY + WEDNESDAY),
        )  # fmt: skip

    def stop_at_a_gate(self) -> None:
        self._begin(3, "A gate stops a bad batch")
        self._show("holdfast serve --config serve.yaml &")
        self._run("holdfast run publish.yaml")
        self._claim(
            f"the table is served: queries count {MONDAY + WEDNESDAY:,} trips",
            found=served_figures(self._ports), expected=self._good,
        )  # fmt: skip
        negative = later(at_fare(self._monday.slice(0, 3_000), -1.0))
        deliver(Path("inbox"), "thursday", negative)
        said = self._run("holdfast run publish.yaml", exits=3)
        self._claim(
            "the gate 'no negative fare' stops 3,000 fares of -1.00 (exit code 3)",
            found="gate: no negative fare" in said, expected=True,
        )  # fmt: skip
        self._claim("queries see no row of it", found=served_figures(self._ports), expected=self._good)
        self._take_back("thursday")

    def take_back_a_bad_publish(self) -> None:
        self._begin(4, "A bad publish passes the gates, and is taken back in one call")
        mistaken = later(at_fare(self._monday, pc.multiply(self._monday["fare"], 10.0)))
        bad = figures(pa.concat_tables([mistaken, self._wednesday]))
        deliver(Path("inbox"), "friday", mistaken)
        before = served_figures(self._ports)
        self._run("holdfast run publish.yaml   # Monday's fares, ten times too high")
        published = served_figures(self._ports)
        self._run(f"holdfast push revert trips --yes{self._ports.controller_option}")
        reverted, took_s = wait_until_served(self._ports, self._good)
        console.print(grid_of_fares({"before": before, "bad publish": published, "reverted": reverted}))
        self._claim("queries saw all of the bad publish at once", found=published, expected=bad)
        self._claim(
            f"and all of the good figures again, {1000 * took_s:.0f} ms after the revert",
            found=reverted, expected=self._good,
        )  # fmt: skip
        self._take_back("friday")

    def ask_other_engines(self) -> None:
        self._begin(5, "Other engines agree")
        hudi = HudiTableBuilder.from_base_uri(str(Path(LAKE).resolve())).build()
        read = pa.Table.from_batches(hudi.read()).select(["city", "fare"])
        self._claim(
            "Apache Hudi's Rust reader finds the same trips and fares",
            found=figures(read),
            expected=self._good,
        )
        files = [str(Path(LAKE) / one.base_file_relative_path()) for one in hudi.get_file_slices()]
        self._claim("and DuckDB in the files", found=duckdb_figures(files), expected=self._good)

    # How it is told

    def _begin(self, number: int, title: str) -> None:
        console.print(f"\n[bold cyan]{number}  {title}[/]")

    def _show(self, command: str) -> None:
        words, hash_sign, comment = command.partition("   #")
        console.print(f"   [dim]$[/] [bold]{words}[/][dim]{hash_sign}{comment}[/]", soft_wrap=True)
        sys.stdout.flush()

    def _run(self, command: str, *, exits: int = 0) -> str:
        """Run a command as a user would, in this process, which has Spark running. What it printed."""
        self._show(command)
        printed, code = io.StringIO(), 0
        with (
            console.status("..."),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            try:
                cli.main(shlex.split(command, comments=True)[1:])
            except SystemExit as ended:
                code = int(ended.code or 0)
        if code != exits:
            raise CommandFailed(f"exit code {code} instead of {exits}: {printed.getvalue().strip()}")
        return printed.getvalue()

    def _take_back(self, day: str) -> None:
        """Undo the newest commit, and take the files that made it out of the inbox."""
        self._run(f"holdfast undo {LAKE} --yes")
        withdraw(Path("inbox"), day)
        self._claim(
            f"{day.title()}'s commit is gone from the table, too", found=table_figures(), expected=self._good
        )

    def _claim(self, text: str, *, found: object, expected: object) -> None:
        holds = found == expected
        self.claims.append(holds)
        mark = "[green]✓[/]" if holds else "[red]✗[/]"
        console.print(
            f"   {mark} {escape(text)}" if holds else f"   {mark} [red]{escape(text)}[/]", soft_wrap=True
        )
        if not holds:
            console.print(f"     [red]expected {escape(str(expected))}[/]", soft_wrap=True)
            console.print(f"     [red]found    {escape(str(found))}[/]", soft_wrap=True)


def distinct_trips() -> int:
    identifiers = holdfast.open_table(LAKE).to_arrow(columns=["trip_id"])["trip_id"]
    return int(pc.count_distinct(identifiers).as_py())


def duckdb_figures(files: list[str]) -> Figures:
    query = "SELECT city, count(*), round(sum(fare), 2) FROM read_parquet($files) GROUP BY city ORDER BY city"
    found = duckdb.execute(query, {"files": files}).fetchall()
    return {city: (count, fares) for city, count, fares in found}


def grid_of_fares(columns: dict[str, Figures]) -> Grid:
    grid = Grid(box=None, padding=(0, 0, 0, 3), header_style="dim")
    grid.add_column("fares of", min_width=12)
    for name in columns:
        grid.add_column(name, justify="right", style="red" if name == "bad publish" else "")
    for city in next(iter(columns.values())):
        grid.add_row(city, *(f"{found[city][1]:,.2f}" for found in columns.values()))
    return grid


def farewell(ports: Ports, claims: list[bool], seconds: float) -> int:
    held = sum(claims)
    console.print()
    if held < len(claims):
        console.print(
            f"[bold red]✗ {len(claims) - held} of {len(claims)} claims did not hold[/], {seconds:.0f} s"
        )
        return 1
    command, table = (
        os.path.relpath(path, ROOT)
        for path in (Path(sys.executable).with_name("holdfast"), Path(LAKE).resolve())
    )
    console.print(f"[bold green]✓ All {held} claims held[/], in {seconds:.0f} s. To go on:")
    console.print(f"   {command} timeline {table}\n   make tour", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT / "build" / "story"))
