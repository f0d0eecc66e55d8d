"""Broker: a query through routing, gate, translation and a worker, against DuckDB alone on the same files.

DuckDB alone keeps one instance with a view over the files, which is as little as one can do.
"""

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
from holdfast.push.broker import Broker
from holdfast.push.catalog import Catalog
from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.queries.pool import PoolSettings, WorkerPool
from holdfast.push.routing import Router
from holdfast.storage.store import StoreLocation

_LIMIT = "DuckDB"
_OURS = "Holdfast broker"
_LATE = "DuckDB and 5 ms"
_LONG = ("group by", "filter", "top ten")
_THREADS = 2
_AT_MOST = 1.3
_EXTRA_MS = 5
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
    """One of `QUERIES`, asked many times in a row: at most 30 % or 5 ms more than DuckDB needs."""
    sql = QUERIES[name]

    def set_up(folder: Path) -> Scene:
        files = _written(folder, rows, segments)
        served = _served(folder, files, rows // segments)
        alone = duckdb.connect(":memory:", config={"threads": str(_THREADS)})
        listed = ", ".join(f"'{folder / file}'" for file in files)
        alone.execute(f"CREATE VIEW orders AS SELECT * FROM read_parquet([{listed}])")
        answers: dict[str, Any] = {}

        def ask_broker() -> list[Any]:
            answer = served.answer(sql)
            assert answer["exceptions"] == [], answer["exceptions"]
            rows: list[Any] = answer["resultTable"]["rows"]
            return rows

        def ask_duckdb() -> list[Any]:
            return alone.execute(sql).fetchall()

        def ask_late() -> list[Any]:
            time.sleep(_EXTRA_MS / 1000)
            return ask_duckdb()

        def repeated(variant: str, ask: Callable[[], list[Any]]) -> Variant:
            def run(_: Path) -> None:
                for _ in range(_REPEATS):
                    answers[variant] = ask()

            return Variant(variant, run, check=lambda _: _plain(answers[variant]))

        variants = (repeated(_LIMIT, ask_duckdb), repeated(_OURS, ask_broker), repeated(_LATE, ask_late))
        return Scene(variants, {"rows": rows, "segments": segments, "queries": _REPEATS})

    # A short query has the milliseconds, a long one the share.
    goal = Goal(_OURS, _AT_MOST) if name in _LONG else Goal(_OURS, 1.0, compared_with=_LATE)
    return Workload(name=f"broker, {name}", limit=_LIMIT, goals=(goal,), set_up=set_up)


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
    return Broker(router, pool)
