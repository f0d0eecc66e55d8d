"""Broker: a query through routing, gate, translation and a worker, against DuckDB alone on the same files.

DuckDB alone keeps one instance with a view over the files, which is as little as one can do. A third side
asks `holdfast serve` over HTTP, as clients do.
"""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.framework import Goal, Scene, Variant, Workload
from holdfast.config.push import parse_table
from holdfast.config.push_schema import parse_schema
from holdfast.model.segment import Segment
from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.queries.broker import Broker
from holdfast.push.queries.pool import PoolSettings, WorkerPool
from holdfast.push.queries.readers import StatementReaders
from holdfast.push.queries.routing import Router
from holdfast.push.state.catalog import Catalog
from holdfast.storage.store import StoreLocation

_LIMIT = "DuckDB"
_OURS = "Holdfast broker"
_ALLOWED = "DuckDB and 30 %, or 5 ms"
_HTTP = "Holdfast broker over HTTP"
_THREADS = 2
_EXTRA_SHARE = 0.3
_EXTRA_S = 0.005
_REPEATS = 20
_CITIES = np.array(["Oslo", "Bergen", "Trondheim", "Stavanger", "Tromsø"])
_SCHEMA = {
    "schemaName": "orders",
    "dimensionFieldSpecs": [
        {"name": "id", "dataType": "LONG"},
        {"name": "city", "dataType": "STRING"},
        {"name": "customer", "dataType": "STRING"},
    ],
    "metricFieldSpecs": [{"name": "amount", "dataType": "DOUBLE"}, {"name": "quantity", "dataType": "INT"}],
    "dateTimeFieldSpecs": [
        {"name": "at", "dataType": "TIMESTAMP", "format": "TIMESTAMP", "granularity": "1:MILLISECONDS"}
    ],
}
QUERIES: Mapping[str, str] = {
    "one row": "SELECT city, amount FROM orders WHERE id = 777",
    "count": "SELECT count(*) FROM orders",
    "group by": "SELECT city, count(*), sum(quantity) FROM orders GROUP BY city ORDER BY city",
    "filter": "SELECT count(*), sum(quantity) FROM orders WHERE \"at\" BETWEEN '2022-01-01' AND '2022-01-31'",
    "top ten": "SELECT customer, sum(quantity) q FROM orders GROUP BY customer ORDER BY q DESC, 1 LIMIT 10",
}


def broker(name: str, *, rows: int, segments: int = 8) -> Workload:
    """One of `QUERIES`, asked many times in a row: at most 30 % or 5 ms, whichever is more, above DuckDB."""
    sql = QUERIES[name]

    def set_up(folder: Path) -> Scene:
        files = _written(folder, rows, segments)
        served = _served(folder, files, rows // segments)
        alone = duckdb.connect(":memory:", config={"threads": str(_THREADS)})
        listed = ", ".join(f"'{folder / file}'" for file in files)
        alone.execute(f"CREATE VIEW orders AS SELECT * FROM read_parquet([{listed}])")
        service = _Service(folder, files)
        answers: dict[str, Any] = {}

        def ask_broker() -> list[Any]:
            answer = served.answer(sql)
            assert answer["exceptions"] == [], answer["exceptions"]
            rows: list[Any] = answer["resultTable"]["rows"]
            return rows

        def ask_duckdb() -> list[Any]:
            return alone.execute(sql).fetchall()

        def ask_allowed() -> list[Any]:
            began_s = time.perf_counter()
            rows = ask_duckdb()
            took_s = time.perf_counter() - began_s
            # A short query has the milliseconds, a long one the share.
            time.sleep(max(_EXTRA_S, _EXTRA_SHARE * took_s))
            return rows

        def repeated(variant: str, ask: Callable[[], list[Any]]) -> Variant:
            def run(_: Path) -> None:
                for _number in range(_REPEATS):
                    answers[variant] = ask()

            return Variant(variant, run, check=lambda _: _plain(answers[variant]))

        over_http = repeated(_HTTP, lambda: service.ask(sql))
        variants = (
            repeated(_LIMIT, ask_duckdb),
            repeated(_OURS, ask_broker),
            replace(over_http, prepare=service.start, finish=service.stop),
            repeated(_ALLOWED, ask_allowed),
        )
        return Scene(variants, {"rows": rows, "segments": segments, "queries": _REPEATS})

    goals = tuple(Goal(side, 1.0, compared_with=_ALLOWED) for side in (_OURS, _HTTP))
    return Workload(name=f"broker, {name}", limit=_LIMIT, goals=goals, set_up=set_up)


class _Service:
    """`holdfast serve` with the same segments, in a process of its own while it is asked."""

    def __init__(self, folder: Path, files: list[str]) -> None:
        self._segments = [folder / file for file in files]
        self._process: subprocess.Popen[bytes] | None = None
        self._controller = self._broker = 0

    def start(self, folder: Path) -> None:
        self._controller, self._broker = _free_port(), _free_port()
        settings = {
            "store": f"sqlite:///{folder}/push.db", "deep_store": str(folder / "segments"),
            "controller": {"port": self._controller}, "broker": {"port": self._broker},
            "limits": {"concurrent_queries": _THREADS, "requests_per_second": 1_000_000},
        }  # fmt: skip
        (folder / "serve.yaml").write_text(json.dumps(settings))
        command = [
            sys.executable,
            "-m",
            "holdfast",
            "serve",
            "--json",
            "--config",
            str(folder / "serve.yaml"),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._connection = http.client.HTTPConnection("127.0.0.1", self._broker)
        try:
            self._fill()
        except BaseException:
            self.stop(folder)
            raise

    def _fill(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.readline()  # It prints where it listens once it does.
        table = {"tableName": "orders", "tableType": "OFFLINE", "segmentsConfig": {"replication": "1"}}
        for path, document in (("/schemas", _SCHEMA), ("/tables", table)):
            _post(self._controller, path, json.dumps(document).encode())
        for segment in self._segments:
            _upload(self._controller, segment)
        # The broker hears of the table, and of each segment, a moment after the controller.
        while self._answer("SELECT count(*) FROM orders").get("numSegmentsQueried", 0) < len(self._segments):
            time.sleep(0.05)

    def ask(self, sql: str) -> list[Any]:
        answer = self._answer(sql)
        assert answer["exceptions"] == [], answer["exceptions"]
        rows: list[Any] = answer["resultTable"]["rows"]
        return rows

    def _answer(self, sql: str) -> dict[str, Any]:
        body = json.dumps({"sql": sql})
        self._connection.request("POST", "/query/sql", body, {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(self._connection.getresponse().read())
        return answer

    def stop(self, _: Path) -> None:
        assert self._process is not None
        self._connection.close()
        self._process.terminate()
        self._process.wait()


def _plain(rows: list[Any]) -> list[Any]:
    """Pinot's sums are doubles."""
    return [[float(one) if isinstance(one, int | float) else one for one in row] for row in rows]


def _written(folder: Path, rows: int, segments: int) -> list[str]:
    chance = np.random.default_rng(7)
    size = rows // segments
    names = []
    for number in range(segments):
        table = pa.table(
            {
                "id": np.arange(size) + number * size,
                "city": pa.array(_CITIES[chance.integers(0, len(_CITIES), size)]),
                "customer": pa.array([f"customer {one}" for one in chance.integers(0, 50_000, size)]),
                "amount": chance.random(size) * 100,
                "quantity": chance.integers(0, 100, size).astype(np.int32),
                "at": pa.array(
                    chance.integers(1_600_000_000_000, 1_700_000_000_000, size), pa.timestamp("ms")
                ),
            }
        )
        names.append(f"segment_{number}.parquet")
        pq.write_table(table, folder / names[-1])
    return names


def _served(folder: Path, files: list[str], docs: int) -> Broker:
    catalog = Catalog(MemoryMetastore())
    catalog.create_schema(parse_schema(_SCHEMA))
    catalog.create_table(
        parse_table({"tableName": "orders", "tableType": "OFFLINE", "segmentsConfig": {"replication": "1"}})
    )
    state = catalog.load("orders_OFFLINE")
    added = {
        file: Segment(name=file, crc=0, docs=docs, size_bytes=(folder / file).stat().st_size, uri=file)
        for file in files
    }
    catalog.save(state, replace(state, segments=frozenset(added)), added=added)
    pool = WorkerPool(StoreLocation(str(folder), {}), PoolSettings(workers=2, threads=_THREADS))
    pool.start()
    router = Router(catalog, broker="Broker_localhost_8099")
    router.start()
    readers = StatementReaders()
    readers.start()
    return Broker(router, pool, readers=readers)


def _upload(port: int, segment: Path) -> None:
    line = f'Content-Disposition: form-data; name="file"; filename="{segment.name}"'
    body = f"--segment\r\n{line}\r\n\r\n".encode() + segment.read_bytes() + b"\r\n--segment--\r\n"
    _post(port, "/v2/segments?tableName=orders", body, "multipart/form-data; boundary=segment")


def _post(port: int, path: str, body: bytes, kind: str = "application/json") -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("POST", path, body, {"Content-Type": kind})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
    finally:
        connection.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
