"""Pinot's own Python client, unchanged, over real HTTP: its DB-API and its SQLAlchemy dialect."""

import datetime as dt
import decimal
import socket
import threading
import time

import pinotdb
import pyarrow as pa
import pytest
import uvicorn
from pinotdb import exceptions
from sqlalchemy import MetaData, Table, create_engine, func, select, text
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route

from harness.serving import Tables, orders
from holdfast.model.lineage import EntryState
from holdfast.push.queries.broker import Broker
from holdfast.push.queries.options import split_options
from holdfast.push.queries.pool import PoolSettings, WorkerPool
from holdfast.push.queries.routing import Router
from holdfast.storage.store import StoreLocation

TRIPS = {
    "schemaName": "trips",
    "dimensionFieldSpecs": [
        {"name": "id", "dataType": "LONG"},
        {"name": "n", "dataType": "INT"},
        {"name": "city", "dataType": "STRING"},
        {"name": "paid", "dataType": "BOOLEAN"},
        {"name": "raw", "dataType": "BYTES"},
        {"name": "document", "dataType": "JSON"},
        {"name": "exact", "dataType": "BIG_DECIMAL"},
        {"name": "tags", "dataType": "STRING", "singleValueField": False},
    ],
    "metricFieldSpecs": [{"name": "fare", "dataType": "DOUBLE"}, {"name": "tip", "dataType": "FLOAT"}],
    "dateTimeFieldSpecs": [
        {"name": "at", "dataType": "TIMESTAMP", "format": "TIMESTAMP", "granularity": "1:MILLISECONDS"}
    ],
}
AT = dt.datetime(2024, 2, 29, 13, 47, 5, 120_000)


def trips() -> pa.Table:
    return pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "n": pa.array([7, 8], pa.int32()),
            "city": pa.array(["Oslo", "L'Aquila"], pa.string()),
            "paid": pa.array([True, False], pa.bool_()),
            "raw": pa.array([b"\x01\xff", b""], pa.binary()),
            "document": pa.array(['{"a": [1]}', "{}"], pa.string()),
            "exact": pa.array([decimal.Decimal("1.50"), decimal.Decimal(2)], pa.decimal128(10, 2)),
            "tags": pa.array([["x", "y"], ["z"]], pa.list_(pa.string())),
            "fare": pa.array([10.5, 20.0], pa.float64()),
            "tip": pa.array([0.5, 0.1], pa.float32()),
            "at": pa.array([AT, dt.datetime(1970, 1, 1)], pa.timestamp("ms")),
        }
    )


@pytest.fixture(scope="module")
def service(tmp_path_factory, readers):
    """A broker and the two routes of a controller that the dialect asks for, on a free port."""
    folder = tmp_path_factory.mktemp("deep_store")
    tables = Tables(folder)
    pool = WorkerPool(StoreLocation(str(folder), {}), PoolSettings(workers=2, spares=1, threads=1))
    pool.start()
    router = Router(tables.catalog, broker="Broker_localhost_8099")
    router.start()
    broker = Broker(router, pool, readers=readers)

    async def query(request):
        body = await request.json()
        options = split_options(body.get("queryOptions") or "")
        answer = await run_in_threadpool(
            broker.answer, body["sql"], options, database=request.headers.get("database")
        )
        return JSONResponse(answer)

    def list_tables(_request):
        return JSONResponse({"tables": [table.removesuffix("_OFFLINE") for table in tables.catalog.tables()]})

    def schema(request):
        return JSONResponse(dict(tables.catalog.schema(request.path_params["table"]).raw))

    app = Starlette(
        routes=[
            Route("/query/sql", query, methods=["POST"]),
            Route("/tables", list_tables),
            Route("/tables/{table}/schema", schema),
        ]
    )
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    tables.port = listener.getsockname()[1]
    tables.router = router
    yield tables
    server.should_exit = True
    thread.join()
    router.close()
    pool.close()


@pytest.fixture(scope="module", autouse=True)
def filled(service):
    trips_table = service.create(TRIPS)
    service.upload(trips_table, {"trips_0": trips()})
    orders_table = service.create()
    service.push(orders_table, [], {"v1": orders([1], snapshot=1)})
    service.push(orders_table, ["v1"], {"v2": orders([1, 2], snapshot=2)})
    last = service.push(orders_table, ["v2"], {"v3": orders([1, 2, 3], snapshot=3)})
    service.turn((orders_table, last, EntryState.REVERTED))
    service.router.refresh()


@pytest.fixture
def cursor(service):
    connection = pinotdb.connect(host="127.0.0.1", port=service.port, path="/query/sql", scheme="http")
    return connection.cursor()


def test_every_type_arrives_as_the_client_knows_it(cursor):
    cursor.execute(
        "SELECT id, n, city, paid, raw, document, tags, fare, tip, at FROM trips ORDER BY id LIMIT 1"
    )

    assert cursor.fetchone() == [
        1,
        7,
        "Oslo",
        True,
        "01ff",
        {"a": [1]},
        ["x", "y"],
        10.5,
        0.5,
        AT,
    ]
    assert cursor.fetchone() is None


def test_parameters_are_bound_and_quoted(cursor):
    cursor.execute(
        "SELECT id FROM trips WHERE city = %(city)s AND n IN (%(first)s, %(second)s)",
        {"city": "L'Aquila", "first": 8, "second": 9},
    )

    assert cursor.fetchall() == [[2]]
    assert [column[0] for column in cursor.description] == ["id"]


def test_a_table_that_was_replaced_twice_and_reverted_once_shows_the_second_snapshot(cursor):
    cursor.execute("SELECT snapshot, count(*) FROM orders GROUP BY snapshot")

    assert cursor.fetchall() == [[2, 2]]


def test_no_rows_is_a_result_and_not_an_error(cursor):
    cursor.execute("SELECT id, city FROM trips WHERE id = 99")

    assert cursor.fetchall() == []
    assert [column[0] for column in cursor.description] == ["id", "city"]


def test_an_error_reaches_the_client_with_its_reason(cursor):
    with pytest.raises(exceptions.DatabaseError, match="there is no such table"):
        cursor.execute("SELECT * FROM nowhere")
    with pytest.raises(exceptions.DatabaseError, match="there is no such column"):
        cursor.execute("SELECT nothing FROM trips")
    with pytest.raises(exceptions.DatabaseError, match="SQLParsingError"):
        cursor.execute("DROP TABLE trips")


def test_options_of_the_connection_are_understood(service):
    """The client sends them with a leading semicolon, and appends OPTION(...) for `preserve_types`."""
    connection = pinotdb.connect(
        host="127.0.0.1",
        port=service.port,
        path="/query/sql",
        scheme="http",
        preserve_types=True,
        use_multistage_engine=True,
    )
    cursor = connection.cursor()

    cursor.execute("SELECT sum(fare) FROM trips", queryOptions="timeoutMs=5000")

    assert cursor.fetchall() == [[30.5]]


@pytest.fixture(scope="module")
def engine(service):
    address = f"pinot://127.0.0.1:{service.port}/query/sql?controller=http://127.0.0.1:{service.port}/"
    return create_engine(address)


def test_the_dialect_lists_tables_and_reflects_columns(engine):
    trips_table = Table("trips", MetaData(), autoload_with=engine)

    assert {"id", "city", "fare", "at"} <= set(trips_table.columns.keys())


def test_the_dialect_selects_groups_and_orders(engine):
    trips_table = Table("trips", MetaData(), autoload_with=engine)
    columns = trips_table.columns

    with engine.connect() as connection:
        counted = connection.execute(select(func.count()).select_from(trips_table)).scalar()
        grouped = connection.execute(
            select(columns.city, func.sum(columns.fare).label("total"))
            .where(columns.fare > 1)
            .group_by(columns.city)
            .order_by(func.sum(columns.fare).desc())
            .limit(5)
        ).fetchall()
        by_text = connection.execute(text("SELECT max(n) FROM trips")).scalar()

    assert counted == 2
    assert [tuple(row) for row in grouped] == [("L'Aquila", 20.0), ("Oslo", 10.5)]
    assert by_text == 8.0


def test_the_time_grains_of_dashboards_are_answered(cursor):
    grain = "CAST(DATE_TRUNC('day', CAST(at AS TIMESTAMP)) AS TIMESTAMP)"

    cursor.execute(
        f"SELECT {grain} AS __timestamp, count(*) AS n FROM trips WHERE at >= '2024-01-01 00:00:00.000000' "
        f"GROUP BY {grain} ORDER BY n DESC LIMIT 10000"
    )

    assert cursor.fetchall() == [[dt.datetime(2024, 2, 29), 1]]
