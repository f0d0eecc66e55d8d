"""Push jobs for tests: rows that say which run they belong to, and jobs in processes of their own.

python -m harness.push_jobs CONTROLLER TABLE NUMBER [OPTIONS]     pushes the rows of a number
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.cutting_proxy import Call
from harness.push_client import PushedTable
from holdfast.config.push_job import PushJob, SegmentSizing
from holdfast.jobs.push.run import run_push_job
from holdfast.jobs.reports import PushReport

_TESTS = Path(__file__).resolve().parent.parent

ROWS = 6
SEGMENT_ROWS = 2


def rows_of(number: int, rows: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "city": ["oslo"] * rows,
            "snapshot": pa.array([number] * rows, pa.int64()),
        }
    )


def job_of(controller: str, table: str, **options: Any) -> PushJob:
    given = {"sizing": SegmentSizing(rows=SEGMENT_ROWS), "attempts": 3, "retry_ms": 10, **options}
    return PushJob(table=table, controllers=(controller,), **given)


def push(controller: str, table: str, number: int, rows: int = ROWS, **options: Any) -> PushReport:
    """The whole job, on rows in memory."""
    return run_push_job(job_of(controller, table, **options), frame=rows_of(number, rows))


def seen(table: PushedTable) -> list[tuple[int, int]]:
    """What queries see: the snapshots there are, each with its number of rows."""
    answer = table.client.sql(f"SELECT snapshot, count(*) FROM {table.name} GROUP BY snapshot LIMIT 100")
    assert not answer["exceptions"], answer["exceptions"]
    return sorted((int(number), int(count)) for number, count in answer["resultTable"]["rows"])


def stored_files(table: PushedTable) -> list[str]:
    """The files of the table in the deep store, and the records of its runs."""
    root = Path(table.client.running.service.controller.views.deep_store_uri)
    found = [*(root / table.name).glob("*"), *(root / "Push_Runs" / table.name).glob("*")]
    return sorted(path.name for path in found)


def retention(table: PushedTable) -> None:
    """Retention, until all that may go has gone: files wait until the broker has moved on."""
    task = {"taskname": "RetentionManager", "tableName": table.name, "type": "OFFLINE"}
    controller = table.client.running.service.controller
    for number in range(100):
        answer = table.client.post("/periodictask/run", **task)
        assert answer.status_code == 200, answer.text
        if number > 2 and not controller.views.state(table.typed).push.deletions:
            return
        time.sleep(0.05)
    raise AssertionError("files still wait for the broker")


class JobProcess:
    """A job in a process of its own."""

    def __init__(self, controller: str, table: str, number: int, **options: Any) -> None:
        command = [sys.executable, "-m", "harness.push_jobs", controller, table, str(number)]
        self._process = subprocess.Popen(
            [*command, json.dumps(options)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(_TESTS), *sys.path])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()

    def ended(self) -> tuple[int, str, str]:
        """The exit code and what it said."""
        out, err = self._process.communicate(timeout=60)
        return self._process.returncode, out, err


class Holder:
    """Holds the first call of a name, before or after the service has it, until it is let go."""

    def __init__(self, name: str, moment: str) -> None:
        self._wanted = Call(name, moment)
        self.reached = threading.Event()
        self._released = threading.Event()

    def __call__(self, call: Call) -> None:
        if call == self._wanted and not self.reached.is_set():
            self.reached.set()
            self._released.wait(60)

    def wait(self) -> None:
        assert self.reached.wait(60), f"nobody called {self._wanted}"

    def release(self) -> None:
        self._released.set()


def main() -> None:
    # A shell that runs the tests in the background makes everything below it ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    controller, table, number, options = sys.argv[1:]
    report = push(controller, table, int(number), **json.loads(options))
    sys.stdout.write(json.dumps({"entry": report.entry_id, "rows": report.rows}))


if __name__ == "__main__":
    main()
