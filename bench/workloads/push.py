"""Push: a push job, from the rows to what queries see, against Spark's own Parquet write of the same rows.

Spark's write makes no record durable, and nobody can query it; a push is built,
made durable, registered, and switched, and the broker answers from it when it
is over. The second workload is the switch alone: from `end` to the first answer
out of the new snapshot.
"""

import atexit
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from bench.framework import Goal, Scene, Unit, Variant, Workload
from bench.workloads.trips import trips
from holdfast.config.push_job import PushJob
from holdfast.config.server import Limits, Listener, ServerSettings
from holdfast.jobs.push.replacement import Opening, Replacement, RetryPolicy, open_target, visible_segments
from holdfast.jobs.push.run import run_push_job
from holdfast.jobs.service_client import ServiceClient
from holdfast.server.run import Running, serving

_LIMIT = "Spark, plain Parquet"
_OURS = "Holdfast push"
_AT_MOST = 1.3
_SWITCH = "end to answer"
_QUERY = "query"
_SWITCH_SECONDS = 0.5
_TABLE = "trips"
_PINOT = {
    spark.StringType: "STRING", spark.LongType: "LONG", spark.IntegerType: "INT", spark.DoubleType: "DOUBLE",
}  # fmt: skip


def push(session: Callable[[], SparkSession], data: Path, *, rows: int) -> Workload:
    def set_up(folder: Path) -> Scene:
        frame = trips(session(), data, rows=rows)
        service = _Service(folder / "service")
        service.create({field.name: _PINOT[type(field.dataType)] for field in frame.schema.fields})
        variants = (
            Variant(_LIMIT, lambda output: frame.write.parquet(str(output / "plain"))),
            Variant(_OURS, lambda _: _pushed(service, frame, rows), finish=lambda _: service.tidy()),
        )
        return Scene(variants, {"rows": rows, "tasks": frame.rdd.getNumPartitions()})

    return Workload(name="push", limit=_LIMIT, goals=(Goal(_OURS, _AT_MOST),), set_up=set_up)


def push_switch(*, rows: int = 1000) -> Workload:
    """The last step of a push, until the broker answers from it."""

    def set_up(folder: Path) -> Scene:
        service = _Service(folder / "service")
        service.create({"id": "LONG", "number": "LONG"})
        prepared: list[Replacement] = []
        numbers = iter(range(1, 1 << 31))
        current = [0]

        def prepare(_: Path) -> None:
            current[0] = next(numbers)
            prepared.append(service.uploaded(current[0], rows))

        def switch(_: Path) -> None:
            prepared.pop().end()
            while service.number() != current[0]:
                time.sleep(0.001)

        variants = (
            Variant(_QUERY, lambda _: service.number(), task=_QUERY),
            Variant(_SWITCH, switch, prepare, finish=lambda _: service.tidy(), task=_SWITCH),
        )
        return Scene(variants, {"rows": rows})

    goal = Goal(_SWITCH, _SWITCH_SECONDS, Unit.SECONDS)
    return Workload(name="push, switch", limit=_QUERY, goals=(goal,), set_up=set_up)


class _Service:
    """A service of its own in this process, until the process ends."""

    def __init__(self, folder: Path) -> None:
        settings = ServerSettings(
            store=f"sqlite:///{folder}/push.db",
            deep_store=str(folder / "segments"),
            controller=Listener(port=0),
            broker=Listener(port=0),
            limits=Limits(requests_per_second=1_000_000),
        )
        stack = ExitStack()
        self.running: Running = stack.enter_context(serving(settings))
        atexit.register(stack.close)
        self.client = ServiceClient(self.running.controller_url)
        self._broker = ServiceClient(self.running.broker_url)
        self.job = PushJob(table=_TABLE, controllers=(self.running.controller_url,))

    def create(self, columns: dict[str, str]) -> None:
        fields = [{"name": name, "dataType": kind} for name, kind in columns.items()]
        self.client.post("/schemas", {"schemaName": _TABLE, "dimensionFieldSpecs": fields})
        batch = {"segmentIngestionType": "REFRESH", "consistentDataPush": True}
        config = {
            "tableName": _TABLE,
            "tableType": "OFFLINE",
            "segmentsConfig": {"replication": "1", "deletedSegmentsRetentionPeriod": "0d"},
            "ingestionConfig": {"batchIngestionConfig": batch},
        }
        self.client.post("/tables", config)
        while self._asked(f"SELECT count(*) FROM {_TABLE}")["exceptions"]:
            time.sleep(0.01)  # The broker has not heard of the table yet.

    def tidy(self) -> None:
        """Delete what the next run would otherwise have beside it."""
        for _ in range(3):
            self.running.service.controller.upkeep.run_retention(f"{_TABLE}_OFFLINE")

    def uploaded(self, number: int, rows: int) -> Replacement:
        """A push that only has to be ended, of rows that all say the number."""
        target = open_target(self.running.controller_url, "", _TABLE, RetryPolicy())
        name = f"{_TABLE}_{number}"
        opening = Opening(
            segments_from=visible_segments(target), segments_to=(name,), is_whole=True, has_gates=False,
            lease_ms=60_000,
        )  # fmt: skip
        replacement = Replacement(target, opening, run=f"bench{number}")
        replacement.start(expected_bytes=0)
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": range(rows), "number": [number] * rows}), sink)
        self.client.upload(
            "/v2/segments", name, sink.getvalue().to_pybytes(), tableName=_TABLE,
            headers={"X-Lease-Token": replacement.lease_token},
        )  # fmt: skip
        return replacement

    def number(self) -> int:
        """The number that the broker answers with; 0 if there are no rows yet."""
        return int(self._value(f"SELECT coalesce(max(number), 0) FROM {_TABLE}"))

    def count(self) -> int:
        return int(self._value(f"SELECT count(*) FROM {_TABLE}"))

    def _value(self, sql: str) -> Any:
        answer = self._asked(sql)
        assert answer["exceptions"] == [], answer["exceptions"]
        return answer["resultTable"]["rows"][0][0]

    def _asked(self, sql: str) -> Any:
        return self._broker.post("/query/sql", {"sql": sql, "queryOptions": "enableNullHandling=true"})


def _pushed(service: _Service, frame: DataFrame, rows: int) -> None:
    report = run_push_job(service.job, frame=frame)
    assert report.rows == service.count() == rows, "a benchmark of a wrong answer says nothing"
