"""What the story and the tour are played with: a folder, a service, and a run that is killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import holdfast

ROOT = Path(__file__).resolve().parent.parent
LAKE = "lake/trips"
CONTROLLER, BROKER = 9000, 8099
COMMAND = [sys.executable, "-m", "holdfast"]

# In Pinot's dialect `round(x, 2)` rounds to a multiple of 2; `roundDecimal(x, 2)` rounds to two places.
BY_CITY = (
    "SELECT city, count(*) AS trips, roundDecimal(sum(fare), 2) AS fares "
    "FROM trips GROUP BY city ORDER BY city"
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

Figures = dict[str, tuple[int, float]]
"""The trips of each city, and the sum of their fares to the cent."""


class Ports:
    """Where the service listens: the usual ports, or free ones if these are taken."""

    def __init__(self) -> None:
        self.controller, self.broker = _free_port(CONTROLLER), _free_port(BROKER)

    @property
    def controller_url(self) -> str:
        return f"http://127.0.0.1:{self.controller}"

    @property
    def broker_url(self) -> str:
        return f"http://127.0.0.1:{self.broker}"

    @property
    def controller_option(self) -> str:
        return "" if self.controller == CONTROLLER else f" --controller {self.controller_url}"

    @property
    def broker_option(self) -> str:
        return "" if self.broker == BROKER else f" --broker {self.broker_url}"

    def fill(self, text: str) -> str:
        return text.replace("CONTROLLER", str(self.controller)).replace("BROKER", str(self.broker))


def set_stage(home: Path) -> Ports:
    """Empty the folder, go there, and write the files that the commands read. They stay when it is over."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    os.chdir(home)
    ports = Ports()
    Path("ingest.yaml").write_text(INGEST)
    Path("publish.yaml").write_text(INGEST + ports.fill(PUSH))
    Path("serve.yaml").write_text(ports.fill(SERVE))
    return ports


def _free_port(wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("there is no free port on 127.0.0.1")


# The table and the service, asked through their public doors


def rows() -> int:
    return holdfast.open_table(LAKE).to_arrow(columns=["trip_id"]).num_rows


def table_figures() -> Figures:
    return figures(holdfast.open_table(LAKE).to_arrow(columns=["city", "fare"]))


def figures(trips: pa.Table) -> Figures:
    grouped = trips.group_by("city").aggregate([([], "count_all"), ("fare", "sum")])
    return {
        one["city"]: (one["count_all"], round(one["fare_sum"], 2))
        for one in grouped.sort_by("city").to_pylist()
    }


def served_figures(ports: Ports) -> Figures:
    """What queries see now."""
    body = json.dumps({"sql": BY_CITY}).encode()
    request = urllib.request.Request(f"{ports.broker_url}/query/sql", data=body)
    with urllib.request.urlopen(request, timeout=30) as answer:
        document = json.load(answer)
    if document.get("exceptions"):
        raise SystemExit(f"the broker refused a query: {document['exceptions']}")
    return {city: (count, round(float(fares), 2)) for city, count, fares in document["resultTable"]["rows"]}


def wait_until_served(ports: Ports, expected: Figures, *, patience_s: float = 10.0) -> tuple[Figures, float]:
    """What queries see as soon as it is what is expected, or when patience is over; and after how long."""
    began = time.monotonic()
    while True:
        found = served_figures(ports)
        took = time.monotonic() - began
        if found == expected or took > patience_s:
            return found, took
        time.sleep(0.01)


def later(trips: pa.Table) -> pa.Table:
    """The same trips, reported a week later, so that they count."""
    return trips.set_column(trips.column_names.index("ts"), "ts", pc.add(trips["ts"], 7 * 86_400))


# Processes


@contextlib.contextmanager
def service(ports: Ports, command: list[str]) -> Iterator[None]:
    """The service in a process of its own, until the block ends."""
    with open("serve.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        for url in (ports.controller_url, ports.broker_url):
            _wait_for(url, process)
        yield
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health"):
            return
        time.sleep(0.05)
    raise SystemExit("the service did not start; see serve.log")


def kill_a_run_while_it_writes(wait: Callable[[], contextlib.AbstractContextManager[object]]) -> set[Path]:
    """Start a run in another process, kill it after its first data files, and say which files it leaves."""
    before = data_files()
    with wait(), open("killed.log", "wb") as log:
        process = subprocess.Popen(
            [*COMMAND, "run", "ingest.yaml"], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        while len(data_files() - before) < 2:
            if process.poll() is not None:
                raise SystemExit("the run ended before it could be killed; see killed.log")
            time.sleep(0.005)
        _kill_session(process.pid)
        process.wait()
    return data_files() - before


def data_files() -> set[Path]:
    return set(Path(LAKE).glob("*/*.parquet"))


def _kill_session(session: int) -> None:
    """Kill the process and everything it started: the JVM and its Python workers."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
