"""The story of one table, told by running it: files, a pipeline, a served snapshot, and every way back.

`make run` runs this. Everything is real: the commands that are shown are run,
Spark writes the table, a run is killed in the middle of its write, a service
answers queries, and Apache Hudi's Rust reader is asked for its opinion.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hudi import HudiTableBuilder
from rich.console import Console
from rich.panel import Panel
from rich.table import Table as Grid
from trips import at_fare, deliver, trips, withdraw

import holdfast
from holdfast.cli.main import cli
from holdfast.engines.spark.session import local_session

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT / "build" / "story"
LAKE = "lake/trips"
CONTROLLER, BROKER = 9000, 8099
COMMAND = [sys.executable, "-m", "holdfast"]
BY_CITY = (
    "SELECT city, count(*) AS trips, round(sum(fare), 2) AS fares FROM trips GROUP BY city ORDER BY city"
)

INGEST = """\
name: trips
source: {format: csv, path: inbox/*.csv, options: {header: true}}
transform: SELECT trip_id, city, ts, km, fare FROM source WHERE km > 0
table: {path: lake/trips, record_key: trip_id, partition_by: city, ordering: ts, operation: upsert}
"""
PUSH = """\
push:
  table: trips
  controller: http://127.0.0.1:CONTROLLER
  create: true
  gates:
    - min_rows: 1000
    - not_null: fare
    - sql: {name: no negative fare, query: SELECT min(fare) >= 0 FROM snapshot}
"""
SERVE = """\
controller: {port: CONTROLLER}
broker: {port: BROKER}
store: sqlite:///served/push.db
deep_store: served/segments
"""

console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def main() -> None:
    began = time.monotonic()
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    os.chdir(HOME)
    ports = settle()
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
    kill_a_run_while_it_writes()
    run(f"holdfast timeline show {LAKE}")
    look("the last instant is not completed, so no reader sees anything of it")
    assert rows() == 140_000

    chapter("The next run removes what the dead one left, and takes in every file once")
    run("holdfast run ingest.yaml")
    assert rows() == 540_000

    with service(ports):
        chapter("The table is served: gates look at a snapshot before queries see it")
        run("holdfast run publish.yaml")
        look("there was nothing new to write, so the newest commit was pushed")
        query(ports)

        chapter("A bad batch: a gate stops it")
        deliver(Path("inbox"), "thursday", later(at_fare(trips(0, 3_000, day=3), -1.0)))
        run("holdfast run publish.yaml", exits=3)
        look("queries still see the snapshot from before; the commit can go, too")
        run(f"holdfast undo {LAKE} --yes")
        withdraw(Path("inbox"), "thursday")

        chapter("A batch that passes the gates and is wrong all the same: taken back in one call")
        doubled = trips(0, 30_000, day=4)
        deliver(Path("inbox"), "friday", at_fare(doubled, pc.multiply(doubled["fare"], 10.0)))
        run("holdfast run publish.yaml")
        query(ports)
        run(f"holdfast push revert trips --controller {ports.controller_url} --yes")
        query(ports)
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
        query(ports)
        assert rows() == 540_000

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


class Ports:
    """Where the service listens: the usual ports, or free ones if somebody has these."""

    def __init__(self) -> None:
        self.controller, self.broker = free_port(CONTROLLER), free_port(BROKER)

    @property
    def controller_url(self) -> str:
        return f"http://127.0.0.1:{self.controller}"

    @property
    def broker_url(self) -> str:
        return f"http://127.0.0.1:{self.broker}"

    def fill(self, text: str) -> str:
        return text.replace("CONTROLLER", str(self.controller)).replace("BROKER", str(self.broker))


def settle() -> Ports:
    """Write the files that the story runs, and that stay for whoever goes on from here."""
    ports = Ports()
    Path("ingest.yaml").write_text(INGEST)
    Path("publish.yaml").write_text(INGEST + ports.fill(PUSH))
    Path("serve.yaml").write_text(ports.fill(SERVE))
    return ports


def free_port(wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("there is no free port on 127.0.0.1")


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


def query(ports: Ports) -> None:
    run(f"holdfast query {shlex.quote(BY_CITY)} --broker {ports.broker_url}")


def rows() -> int:
    return holdfast.open_table(LAKE).to_arrow(columns=["trip_id"]).num_rows


def later(rows: pa.Table) -> pa.Table:
    """The same trips, reported a week later, so that they count."""
    return rows.set_column(rows.column_names.index("ts"), "ts", pc.add(rows["ts"], 7 * 86_400))


@contextlib.contextmanager
def service(ports: Ports) -> Iterator[None]:
    """`holdfast serve` in a process of its own, until the block ends."""
    console.print("\n[bold green]$[/] [bold]holdfast serve --config serve.yaml &[/]")
    with open("serve.log", "wb") as log:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--config", "serve.yaml"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_for(ports.controller_url, process)
        wait_for(ports.broker_url, process)
        yield
    finally:
        process.terminate()
        process.wait(30)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health"):
            return
        time.sleep(0.05)
    raise SystemExit("the service did not start; see serve.log")


def kill_a_run_while_it_writes() -> None:
    """Start another process on the same files, wait for its first data files, and kill it."""
    console.print("\n[bold green]$[/] [bold]holdfast run ingest.yaml &[/]")
    finished = data_files()
    with console.status("another process begins a large write ..."), open("killed.log", "wb") as log:
        process = subprocess.Popen(
            [*COMMAND, "run", "ingest.yaml"], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        while data_files() < finished + 2:
            if process.poll() is not None:
                raise SystemExit("the run ended before it could be killed; see killed.log")
            time.sleep(0.005)
        kill_session(process.pid)
        process.wait()
    left = data_files() - finished
    console.print(f"killed with SIGKILL; it left [red]{left} data files[/] and an unfinished instant")


def data_files() -> int:
    return len(list(Path(LAKE).glob("*/*.parquet")))


def kill_session(session: int) -> None:
    """Kill the process and everything it started: the JVM and its Python workers."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)


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
    at_controller = "" if ports.controller == CONTROLLER else f" --controller {ports.controller_url}"
    at_broker = "" if ports.broker == BROKER else f" --broker {ports.broker_url}"
    for further in (
        f"timeline show {LAKE}",
        f"show {LAKE}",
        "serve --config serve.yaml",
        f'query "{BY_CITY}"{at_broker}',
        f"push snapshots trips{at_controller}",
    ):
        console.print(f"  {command} {further}", style="dim", soft_wrap=True)


if __name__ == "__main__":
    main()
