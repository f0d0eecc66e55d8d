"""A lake table that is pushed to a real service without Spark: every commit and every push by hand."""

import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import holdfast
from harness.push_client import Client, PushedTable, make_table
from holdfast.config.server import Listener, ServerSettings
from holdfast.jobs.lake_pushes import record_push
from holdfast.jobs.service_client import ServiceClient
from holdfast.model.pushes import LAKE_INSTANT, LAKE_TABLE, Push
from holdfast.server.run import serving
from holdfast.table.opened import OpenTable, open_at


@contextmanager
def service(folder: Path):
    settings = ServerSettings(
        store=f"sqlite:///{folder}/push.db",
        deep_store=str(folder / "segments"),
        controller=Listener(port=0),
        broker=Listener(port=0),
    )
    with serving(settings) as running:
        yield running


class PushedLake:
    """Commit n has n rows more than the one before; its push brings the one segment `s<n>`."""

    def __init__(self, folder: Path, running, *, retained: int = 4, **settings) -> None:
        self.path = folder / "orders"
        self.lake = holdfast.create_table(str(self.path), name="orders", record_key="id")
        self.client = ServiceClient(running.controller_url)
        self.served: PushedTable = make_table(
            Client(running), consistent=True, batch={"retainedSnapshots": retained}, **settings
        )
        self.instants: list[str] = []
        self.entries: list[str] = []

    @property
    def opened(self) -> OpenTable:
        return open_at(str(self.path))

    def commit(self) -> str:
        number = len(self.instants) + 1
        self.instants.append(self.lake.insert(pa.table({"id": pa.array([number], pa.int64())})).instant)
        return self.instants[-1]

    def start(self, instant: str, *, source: bool = True) -> Push:
        """A push that is open, its segment uploaded."""
        name = f"s{len(self.entries) + 1}"
        told = {LAKE_TABLE: str(self.path), LAKE_INSTANT: instant} if source else {}
        answer = self.served.client.post(
            f"/segments/{self.served.name}/startReplaceSegments",
            {"segmentsFrom": sorted(self.served.visible()), "segmentsTo": [name], "source": told},
            type="OFFLINE",
        )
        assert answer.status_code == 200, answer.text
        self.entries.append(answer.json()["segmentLineageEntryId"])
        assert self.served.upload(name).status_code == 200
        return Push(
            table=self.served.typed,
            controller=self.client.url,
            entry_id=self.entries[-1],
            instant=instant,
            lake=str(self.path),
            segments=1,
            rows=2,
        )

    def publish(self, push: Push) -> str:
        with record_push(self.opened, push, self.client) as warnings:
            answer = self.served.end(push.entry_id)
            assert answer.status_code == 200, answer.text
        assert warnings == []
        return push.entry_id

    def push(self, instant: str | None = None) -> str:
        """Push a commit, by default the newest, as a job does; the entry."""
        return self.publish(self.start(instant or self.instants[-1]))

    def commit_and_push(self) -> str:
        self.commit()
        return self.push()

    def run_retention(self) -> None:
        answer = self.served.client.post(
            "/periodictask/run", taskname="RetentionManager", tableName=self.served.name, type="OFFLINE"
        )
        assert answer.status_code == 200, answer.text

    def run_retention_until(self, is_done: Callable[[], bool]) -> None:
        """Again and again: files wait until the broker has moved on, and their entry waits for them."""
        for _ in range(100):
            self.run_retention()
            if is_done():
                return
            time.sleep(0.05)
        raise AssertionError("retention has not come so far")
