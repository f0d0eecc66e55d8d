"""The long story of one table, told by running it, with all that the commands print.

`make tour` runs this. Everything is real: the commands that are shown are run,
Spark writes the table, a run is killed in the middle of its write, a service
answers queries, and Apache Hudi's Rust reader is asked for its opinion. What
queries see is asserted at every turn; `make run` tells the short story.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiTableBuilder
from rich.console import Console
from rich.panel import Panel
from rich.table import Table as Grid
from stage import (
    BY_CITY,
    COMMAND,
    LAKE,
    ROOT,
    Figures,
    Ports,
    kill_a_run_while_it_writes,
    later,
    rows,
    service,
    set_stage,
    table_figures,
    wait_until_served,
)
from trips import at_fare, deliver, trips, withdraw

import holdfast
from holdfast.cli.main import cli
from holdfast.engines.spark.session import local_session

HOME = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT / "build" / "tour"

console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def main() -> None:
    began = time.monotonic()
    ports = set_stage(HOME)
    console.print(
        Panel.fit("[bold]Holdfast[/]  lakehouse tables that you can always take back", style="cyan")
    )
    with console.status("starting Spark on this machine ..."):
        spark = local_session("holdfast-story")

    chapter("Trips arrive as files, and a pipeline writes them into a table")
    monday = trips(0, 120_000, day=0)
    deliver(Path("inbox"), "monday", monday)
    run("holdfast run ingest.yaml")

    chapter("Tuesday corrects some of them and brings more; only the new files are read")
    tuesday = pa.concat_tables([at_fare(monday.slice(110_000), 9.9), trips(120_000, 20_000, day=1)])
    deliver(Path("inbox"), "tuesday", later(tuesday))
    run("holdfast run ingest.yaml")
    look("the second commit updated 10,000 trips and added 20,000")

    chapter("Wednesday's run is killed in the middle of its write")
    deliver(Path("inbox"), "wednesday", trips(140_000, 400_000, day=2))
    kill()
    run(f"holdfast timeline show {LAKE}")
    look("the last instant is not completed, so no reader sees anything of it")
    assert rows() == 140_000

    chapter("The next run removes what the dead one left, and takes in every file once")
    run("holdfast run ingest.yaml")
    assert rows() == 540_000
    good = table_figures()

    with serve(ports):
        chapter("The table is served: gates look at a snapshot before queries see it")
        run("holdfast run publish.yaml")
        look("there was nothing new to write, so the newest commit was pushed")
        query(ports, good)
        look("round(x, 2) is to a multiple of 2 in Pinot's dialect; roundDecimal(x, 2) is to two places")

        chapter("A bad batch: a gate stops it")
        deliver(Path("inbox"), "thursday", later(at_fare(trips(0, 3_000, day=3), -1.0)))
        run("holdfast run publish.yaml", exits=3)
        query(ports, good)
        look("queries still see the snapshot from before; the commit can go, too")
        run(f"holdfast undo {LAKE} --yes")
        withdraw(Path("inbox"), "thursday")

        chapter("A batch that passes the gates and is wrong all the same: taken back in one call")
        doubled = trips(0, 30_000, day=4)
        deliver(Path("inbox"), "friday", at_fare(doubled, pc.multiply(doubled["fare"], 10.0)))
        run("holdfast run publish.yaml")
        query(ports, table_figures())
        run(f"holdfast push revert trips --controller {ports.controller_url} --yes")
        query(ports, good)
        run(f"holdfast push snapshots trips --controller {ports.controller_url}")
        look("what was reverted stays for a day, should the revert be wrong")

        chapter("Far back: a savepoint, two bad days, and a restore that takes the served rows along")
        run(f"holdfast undo {LAKE} --yes")
        withdraw(Path("inbox"), "friday")
        run(f"holdfast savepoint create {LAKE} --user story --comments 'before the import'")
        kept = holdfast.open_table(LAKE).savepoints()[-1].instant
        for day, name, pipeline in ((5, "saturday", "ingest.yaml"), (6, "sunday", "publish.yaml")):
            deliver(Path("inbox"), name, trips(0, 60_000, day=day, seed=1))
            run(f"holdfast run {pipeline}")
        run(f"holdfast restore {LAKE} --to {kept} --with-pushes --yes")
        for day in ("saturday", "sunday"):
            withdraw(Path("inbox"), day)
        query(ports, good)
        assert table_figures() == good

    chapter("Old versions go when nobody needs them, and each says why")
    run(f"holdfast savepoint delete {LAKE} --commit {kept} --yes")
    run(f"holdfast cleans run {LAKE} --hoodie-conf hoodie.clean.commits.retained=1 --explain --yes")
    run(f"holdfast verify {LAKE}")

    chapter("A second opinion: Apache Hudi's own Rust reader")
    seen = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(HOME / LAKE)).build().read()).num_rows
    console.print(f"hudi-rs opens the same folder and counts {seen:,} trips")
    assert seen == rows() == 540_000
    spark.stop()
    farewell(ports, time.monotonic() - began)


def chapter(title: str) -> None:
    global _chapters
    _chapters += 1
    console.print()
    console.rule(f"[bold]{_chapters}  {title}", align="left", style="dim")


_chapters = 0


def run(command: str, *, exits: int = 0) -> None:
    """Run a command as a user would, in this process, which has Spark running."""
    console.print(f"\n[bold green]$[/] [bold]{command}[/]")
    sys.stdout.flush()
    try:
        cli.main(shlex.split(command)[1:])
    except SystemExit as ended:
        if ended.code != exits:
            raise SystemExit(f"{command} exited {ended.code}, not {exits}") from None
    if exits:
        console.print(f"exit code {exits}", style="dim")


def look(text: str) -> None:
    console.print(f"[cyan]►[/] {text}")


def query(ports: Ports, expected: Figures) -> None:
    """Show what queries see. It must be what is expected."""
    found, _ = wait_until_served(ports, expected)
    if found != expected:
        console.print(f"[red]✗ queries see {found}\n  instead of {expected}[/]")
        raise SystemExit(1)
    run(f"holdfast query {shlex.quote(BY_CITY)} --broker {ports.broker_url}")


@contextlib.contextmanager
def serve(ports: Ports) -> Iterator[None]:
    console.print("\n[bold green]$[/] [bold]holdfast serve --config serve.yaml &[/]")
    with service(ports, [*COMMAND, "serve", "--config", "serve.yaml"]):
        yield


def kill() -> None:
    console.print("\n[bold green]$[/] [bold]holdfast run ingest.yaml &[/]")
    left = kill_a_run_while_it_writes(lambda: console.status("another process begins a large write ..."))
    console.print(f"killed with SIGKILL; it left [red]{len(left)} data files[/] and an unfinished instant")


def farewell(ports: Ports, seconds: float) -> None:
    here = os.path.relpath(HOME, ROOT)
    command = os.path.relpath(Path(sys.executable).with_name("holdfast"), HOME)
    grid = Grid(box=None, padding=(0, 2), show_header=False)
    for what, how in (
        ("the table, a real Apache Hudi table", f"{here}/{LAKE}"),
        ("the pipeline files", f"{here}/ingest.yaml, publish.yaml"),
        ("the service and its data", f"{here}/serve.yaml, served/"),
    ):
        grid.add_row(what, how)
    console.print()
    console.print(Panel.fit(grid, title=f"everything held, in {seconds:.0f} s", style="green"))
    console.print(f"Go on from here:  [bold]cd {here}[/]")
    for further in (
        f"timeline show {LAKE}",
        f"show {LAKE}",
        "serve --config serve.yaml",
        f'query "{BY_CITY}"{ports.broker_option}',
        f"push snapshots trips{ports.controller_option}",
    ):
        console.print(f"  {command} {further}", style="dim", soft_wrap=True)


if __name__ == "__main__":
    main()
