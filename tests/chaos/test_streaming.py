"""Streams between tables whose application is killed again and again lose nothing and double nothing.

Meanwhile others write to the tables that they read, and clean these as hard as
they can. In the end each target is what a batch of the same input would make it.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

import holdfast
from chaos.streaming import COPY, EVENTS, MIRROR, STATE
from harness.checker import check_at_rest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        int(pyspark.__version__.split(".")[0]) < 4, reason="PySpark 4.0 has the first Python data sources"
    ),
]

SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
SECONDS = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", "20"))
PROGRAM = Path(__file__).with_name("streaming.py")
HARD = {"hoodie.cleaner.commits.retained": "1"}
CITIES = ("oslo", "rome")


class Application:
    """The process that is killed, with all that it starts."""

    def __init__(self, folder: Path, mode: str) -> None:
        (folder / "started").unlink(missing_ok=True)
        self.folder = folder
        self.log = (folder / "application.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), mode],
            stdout=self.log, stderr=self.log, start_new_session=True,
        )  # fmt: skip

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    @property
    def has_started(self) -> bool:
        assert self.process.poll() is None, (self.folder / "application.log").read_text()[-5000:]
        return (self.folder / "started").exists()

    def finish(self) -> None:
        code = self.process.wait(timeout=600)
        self.log.close()
        assert code == 0, (self.folder / "application.log").read_text()[-5000:]


class Input:
    """Writes events that are never twice, and a state that changes, as one batch would have them."""

    def __init__(self, folder: Path) -> None:
        self.random = random.Random(SEED)
        self.tables = {
            name: holdfast.create_table(str(folder / name), name=name, record_key="id", partition_by="city")
            for name in (EVENTS, COPY, STATE, MIRROR)
        }
        self.events = 0
        self.writes = 0
        self.write()

    def write(self) -> None:
        count = self.random.randint(1, 5)
        ids = [f"e{number}" for number in range(self.events, self.events + count)]
        self.events += count
        self.tables[EVENTS].insert(self._rows(ids))
        keys = self.random.sample([f"k{number}" for number in range(12)], count)
        self.tables[STATE].upsert(self._rows(keys), options=HARD)
        if self.writes % 3 == 2:
            self.tables[STATE].delete(self._rows(keys[:2]).select(["id", "city"]), options=HARD)
        self.writes += 1

    def _rows(self, ids):
        cities = [CITIES[int(one[1:]) % 2] for one in ids]
        values = [self.random.randrange(1000) for _ in ids]
        return pa.table({"id": ids, "city": cities, "value": values})


def content(table):
    rows = table.to_arrow(columns=["id", "city", "value"]).to_pylist()
    return Counter((row["id"], row["city"], row["value"]) for row in rows)


def test_streams_that_are_killed_at_random_moments_lose_and_double_nothing(tmp_path, request):
    chance = random.Random(SEED)
    source = Input(tmp_path)
    kills = 0
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline or kills < 2:
        application = Application(tmp_path, "run")
        while not application.has_started:
            time.sleep(0.1)
        until = time.monotonic() + chance.uniform(0.5, 8)
        while time.monotonic() < until:
            source.write()
            time.sleep(chance.uniform(0, 0.3))
        application.kill()
        kills += 1
        source.write()

    Application(tmp_path, "finish").finish()
    # What was committed while the first of two was read is left by the end of the second.
    Application(tmp_path, "finish").finish()

    tables = source.tables
    assert content(tables[COPY]) == content(tables[EVENTS])
    assert len(content(tables[COPY])) == source.events
    assert content(tables[MIRROR]) == content(tables[STATE])
    for name in (COPY, MIRROR):
        check_at_rest(holdfast.open_table(tables[name].path)._opened)
    request.config.summary_lines.append(
        f"streams: seed {SEED}, {kills} kills, {source.writes} writes, {source.events} events,"
        f" batches {[each.batch for name in (COPY, MIRROR) for each in tables[name].streams()]}"
    )
