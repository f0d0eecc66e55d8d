"""Tables to look at through the command line, and ways to run it."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import holdfast
from holdfast.cli.main import cli
from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.format.ledger_entries import EntryKind
from holdfast.host import SystemHost, heartbeat_thread
from holdfast.model.instant import Action, InstantTime
from holdfast.table.opened import open_at
from holdfast.timeline.ledger import Decision
from holdfast.writes import operations


class Crash(BaseException):
    """The writer died here."""


class DyingRows(ArrowRows):
    """Rows whose writer dies when all files are written and nothing is decided."""

    def prepare(self, schema, table, **how):
        return DyingRows(super().prepare(schema, table, **how).table)

    def merge(self, table, request):
        super().merge(table, request)
        raise Crash


@pytest.fixture
def trips() -> Callable[[int, int], pa.Table]:
    """Rows with consecutive keys, in two cities by turns."""

    def trips(first: int, count: int) -> pa.Table:
        numbers = range(first, first + count)
        return pa.table(
            {
                "trip_id": pa.array(numbers, pa.int64()),
                "city": [("paris", "rome")[number % 2] for number in numbers],
                "ts": pa.array(numbers, pa.int64()),
                "fare": [number / 4 for number in numbers],
            }
        )

    return trips


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run a command in this process."""
    return lambda *arguments: CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def run_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in a process of its own."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    return run


@pytest.fixture
def empty_table(tmp_path: Path) -> Path:
    path = tmp_path / "trips"
    holdfast.create_table(str(path), name="trips", record_key="trip_id", partition_by="city", ordering="ts")
    return path


@pytest.fixture
def table(empty_table: Path, trips: Callable[[int, int], pa.Table]) -> Path:
    """Two commits: trips 0 to 9, then 10 to 15."""
    lake = holdfast.open_table(str(empty_table))
    lake.insert(trips(0, 10))
    lake.bulk_insert(trips(10, 6))
    return empty_table


@pytest.fixture
def times(table: Path) -> list[str]:
    """The times of the two commits, older first."""
    return [instant.time for instant in holdfast.open_table(str(table)).timeline()]


@pytest.fixture
def failed_write(table: Path, trips: Callable[[int, int], pa.Table]) -> str:
    """The instant of a write that died before it was decided; its files are there."""
    with pytest.raises(Crash):
        operations.write(open_at(str(table), {}), Operation.INSERT, DyingRows(trips(90, 4)), WriteSettings())
    return holdfast.open_table(str(table)).timeline()[-1].time


@pytest.fixture
def begin(table: Path) -> Callable[..., str]:
    """Put BEGIN for a new write into the ledger, by this process or by one that is gone."""

    def begin(token: str, *, is_gone: bool = False) -> str:
        owner = SystemHost().owner(token)
        owner = replace(owner, started="0") if is_gone else owner
        time = InstantTime("20991231235959000")
        decision = Decision(kind=EntryKind.BEGIN, instant=time, action=Action.COMMIT, owner=owner)
        open_at(str(table), {}).ledger.append(lambda _state: decision)
        return time

    return begin


@pytest.fixture
def running_write(begin: Callable[..., str]) -> Iterator[str]:
    """The instant of a write whose process, this one, is alive."""
    is_over = threading.Event()
    beating = threading.Thread(target=is_over.wait, name=heartbeat_thread("running"), daemon=True)
    beating.start()
    yield begin("running")
    is_over.set()
    beating.join()


@pytest.fixture
def truncated() -> Callable[[Path], None]:
    def truncate(file: Path) -> None:
        os.truncate(file, file.stat().st_size // 2)

    return truncate
