"""A client for tests: Pinot's calls over real HTTP, and what is in the store behind them."""

import base64
import io
import itertools
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.server.run import Running

_numbers = itertools.count(1)


def parquet(rows: int, *, first: int = 0, **columns: Any) -> bytes:
    """A segment's file: a key, a city and the number of the snapshot it belongs to."""
    table = pa.table(
        {
            "id": pa.array(range(first, first + rows), pa.int64()),
            "city": [("oslo", "bergen")[number % 2] for number in range(rows)],
            **{name: pa.array([value] * rows) for name, value in columns.items()},
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def basic(name: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


@dataclass
class Client:
    running: Running
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._http = httpx2.Client(timeout=60, headers=self.headers)

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, *, broker: bool = False, **more: Any) -> httpx2.Response:
        base = self.running.broker_url if broker else self.running.controller_url
        return self._http.request(method, base + path, **more)

    def get(self, path: str, **params: Any) -> httpx2.Response:
        return self.call("GET", path, params=params)

    def post(self, path: str, json: Any = None, headers: dict[str, str] | None = None, **params: Any):
        more = {} if json is None else {"json": json}
        return self.call("POST", path, params=params, headers=headers or {}, **more)

    def delete(self, path: str, headers: dict[str, str] | None = None, **params: Any) -> httpx2.Response:
        return self.call("DELETE", path, params=params, headers=headers or {})

    def sql(self, statement: str, **more: Any) -> dict[str, Any]:
        answer = self.call("POST", "/query/sql", broker=True, json={"sql": statement, **more})
        return answer.json()

    def records(self) -> dict[str, bytes]:
        """What the store holds, but for announcements and refused calls, to see what a call changed."""
        metastore = self.running.service.catalog.metastore
        found: dict[str, bytes] = {}
        waiting = ["/IDEALSTATES", "/EXTERNALVIEW", "/PROPERTYSTORE"]
        while waiting:
            path = waiting.pop()
            record = metastore.read(path)
            if record is not None:
                found[path] = record.data
            waiting += [
                f"{path}/{name}"
                for name in metastore.children(path)
                if name not in ("BROKER_EPOCHS", "REFUSED_CALLS")
            ]
        return found


@dataclass
class PushedTable:
    """A table of its own for one test."""

    client: Client
    name: str

    @property
    def typed(self) -> str:
        return f"{self.name}_OFFLINE"

    def records(self) -> dict[str, bytes]:
        """What the store holds of this table; others change in the background."""
        return {path: data for path, data in self.client.records().items() if self.typed in path.split("/")}

    def upload(self, segment: str, rows: int = 2, headers: dict[str, str] | None = None, **params: Any):
        return self.client.call(
            "POST", "/v2/segments", params={"tableName": self.name, **params}, headers=headers or {},
            files={"file": (segment, parquet(rows, snapshot=params.get("snapshot", 0)))},
        )  # fmt: skip

    def start(self, segments_from=(), segments_to=(), *, precise: bool = True, headers=None, **params: Any):
        return self.client.post(
            f"/segments/{self.name}/startReplaceSegments",
            {"segmentsFrom": list(segments_from), "segmentsTo": list(segments_to)},
            headers={**({"X-Lineage-Status": "precise"} if precise else {}), **(headers or {})},
            **{"type": "OFFLINE", **params},
        )

    def started(self, segments_from=(), segments_to=(), **params: Any) -> str:
        answer = self.start(segments_from, segments_to, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()["segmentLineageEntryId"]

    def end(self, entry: str | None, body: Any = None, *, precise: bool = True, **params: Any):
        more = {} if entry is None else {"segmentLineageEntryId": entry}
        return self.client.post(
            f"/segments/{self.name}/endReplaceSegments", body,
            headers={"X-Lineage-Status": "precise"} if precise else {},
            **{"type": "OFFLINE", "onlineTimeoutMs": 500, **more, **params},
        )  # fmt: skip

    def revert(self, entry: str, *, force: bool = False, precise: bool = True, **params: Any):
        return self.client.post(
            f"/segments/{self.name}/revertReplaceSegments",
            headers={"X-Lineage-Status": "precise"} if precise else {},
            **{"type": "OFFLINE", "segmentLineageEntryId": entry, "forceRevert": force, **params},
        )

    def push(self, segments_from, segments_to, **params: Any) -> str:
        """A whole push: start, uploads, end."""
        entry = self.started(segments_from, segments_to, **params)
        for segment in segments_to:
            answer = self.upload(segment)
            assert answer.status_code == 200, answer.text
        answer = self.end(entry)
        assert answer.status_code == 200, answer.text
        return entry

    def entries(self) -> dict[str, dict[str, Any]]:
        answer = self.client.get(f"/segments/{self.name}/lineage", type="OFFLINE")
        assert answer.status_code == 200, answer.text
        return answer.json()["lineageEntries"]

    def states(self) -> list[str]:
        return [one["state"] for one in self.entries().values()]

    def segments(self) -> set[str]:
        return set(self.client.get(f"/segments/{self.name}", type="OFFLINE").json()[0]["OFFLINE"])

    def visible(self) -> set[str]:
        answer = self.client.get(f"/segments/{self.name}", type="OFFLINE", excludeReplacedSegments=True)
        return set(answer.json()[0]["OFFLINE"])

    def delete(self, *segments: str, precise: bool = True):
        return self.client.delete(
            f"/segments/{self.name}", headers={"X-Lineage-Status": "precise"} if precise else {},
            type="OFFLINE", segments=list(segments),
        )  # fmt: skip


def schema(name: str) -> dict[str, Any]:
    return {
        "schemaName": name,
        "dimensionFieldSpecs": [
            {"name": "id", "dataType": "LONG"},
            {"name": "city", "dataType": "STRING"},
        ],
        "metricFieldSpecs": [{"name": "snapshot", "dataType": "LONG"}],
    }


def config(
    name: str,
    *,
    kind: str = "REFRESH",
    consistent: bool = False,
    segments: Any = None,
    batch: Any = None,
    **more: Any,
) -> dict[str, Any]:
    return {
        "tableName": name, "tableType": "OFFLINE",
        "segmentsConfig": {"replication": "1", "schemaName": name, **(segments or {})},
        "tenants": {}, "tableIndexConfig": {"loadMode": "MMAP"}, "metadata": {"customConfigs": {}},
        "ingestionConfig": {
            "batchIngestionConfig": {
                "segmentIngestionType": kind, "consistentDataPush": consistent, **(batch or {}),
            }
        },
        **more,
    }  # fmt: skip


def make_table(client: Client, name: str | None = None, **settings: Any) -> PushedTable:
    name = name or f"orders{next(_numbers)}"
    answer = client.post("/schemas", schema(name))
    assert answer.status_code == 200, answer.text
    answer = client.post("/tables", config(name, **settings))
    assert answer.status_code == 200, answer.text
    return PushedTable(client, name)


def make_events(client: Client) -> PushedTable:
    """A table with a time column to which pushes add."""
    name = f"events{next(_numbers)}"
    fields = {
        "dimensionFieldSpecs": [{"name": "city", "dataType": "STRING"}, {"name": "run", "dataType": "INT"}],
        "dateTimeFieldSpecs": [{"name": "at", "dataType": "LONG", "format": "1:MILLISECONDS:EPOCH"}],
    }
    assert client.post("/schemas", {"schemaName": name, **fields}).status_code == 200
    settings = config(
        name, kind="APPEND", segments={"timeColumnName": "at", "deletedSegmentsRetentionPeriod": "0d"}
    )
    assert client.post("/tables", settings).status_code == 200
    return PushedTable(client, name)
