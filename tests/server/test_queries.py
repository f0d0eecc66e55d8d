"""The broker over HTTP: Pinot's requests, and Pinot's own client over the whole service."""

import pinotdb
import pytest
from pinotdb import exceptions
from sqlalchemy import MetaData, Table, create_engine, func, inspect, select

from harness.push_client import Client, make_table, parquet
from holdfast.config.server import Role, User
from holdfast.server.secrets import hash_secret


@pytest.fixture
def pushed(client):
    """Replaced twice and reverted once: queries see the second content, three rows."""
    table = make_table(client)

    def push(segments_from, name, rows):
        entry = table.started(segments_from, [name])
        content = parquet(rows, snapshot=rows)
        client.call("POST", "/v2/segments", params={"tableName": table.name}, files={"f": (name, content)})
        assert table.end(entry, waitForBrokers=True, brokerTimeoutMs=20_000).status_code == 200
        return entry

    push([], "s2", 2)
    push(["s2"], "s3", 3)
    newest = push(["s3"], "s4", 4)
    answer = table.revert(newest)
    assert answer.status_code == 200
    table.epoch = int(answer.headers["x-snapshot-epoch"])
    seen = client.sql(f"SELECT 1 FROM {table.name}", queryOptions=f"minSnapshotEpoch={table.epoch}")
    assert seen["exceptions"] == []
    return table


def test_a_query_is_answered_from_the_snapshot_that_is_seen(pushed, client):
    sql = f"SELECT count(*), max(snapshot) FROM {pushed.name}"

    answer = client.call(
        "POST", "/query/sql", broker=True,
        json={"sql": sql, "queryOptions": f"minSnapshotEpoch={pushed.epoch}"},
    )  # fmt: skip

    assert answer.json()["resultTable"]["rows"] == [[3, 3.0]]
    assert answer.headers["x-pinot-error-code"] == "-1"
    assert int(answer.headers["x-snapshot-epoch"]) == answer.json()["snapshotEpoch"] == pushed.epoch
    for path, broker in (("/query", True), ("/sql", False)):
        asked = client.call("POST", path, broker=broker, json={"sql": sql})
        assert asked.json()["resultTable"]["rows"] == [[3, 3.0]]
        asked = client.call("GET", path, broker=broker, params={"sql": sql})
        assert asked.json()["resultTable"]["rows"] == [[3, 3.0]]


def test_a_query_that_fails_is_200_with_its_reason_or_a_status_on_request(client):
    document = {"sql": "SELECT count(*) FROM nobody"}

    answer = client.call("POST", "/query/sql", broker=True, json=document)
    asked = client.call(
        "POST", "/query/sql", broker=True, json=document, headers={"Pinot-Use-Http-Status-For-Errors": "true"}
    )

    assert (answer.status_code, answer.headers["x-pinot-error-code"]) == (200, "190")
    assert answer.json()["exceptions"][0]["errorCode"] == 190
    assert (asked.status_code, asked.json()["code"]) == (404, 404)
    assert asked.json()["numServersQueried"] == 0


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b'{"sql": 7}', b"[]"])
def test_a_request_that_is_none_is_400_on_the_broker_and_an_exception_on_the_controller(client, body):
    answer = client.call("POST", "/query/sql", broker=True, content=body)

    assert answer.status_code == 400
    assert (answer.json()["numServersQueried"], answer.json()["numServersResponded"]) == (0, 0)
    through = client.call("POST", "/sql", content=body)
    assert (through.status_code, through.json()["exceptions"][0]["errorCode"]) == (200, 100)


def test_options_are_split_as_clients_send_them(pushed, client):
    sql = f"SELECT id FROM {pushed.name} ORDER BY id"

    assert client.sql(sql, queryOptions=";timeoutMs=5000;;unknown=x")["exceptions"] == []
    assert client.sql(sql, queryOptions="novalue")["exceptions"][0]["errorCode"] == 150


def test_syntax_is_checked_without_running_anything(client):
    def check(sql):
        return client.call("POST", "/query/sql/validateSyntax", broker=True, json={"sql": sql}).json()

    assert check("SELECT 1") == {"validationSuccessful": True}
    assert check("SELEC 1")["validationSuccessful"] is False
    assert check("DROP TABLE x")["validationSuccessful"] is False


def test_running_queries_are_listed_and_unknown_ones_cannot_be_cancelled(client):
    assert client.call("GET", "/queries", broker=True).json() == []
    assert client.call("DELETE", "/query/nothing", broker=True).status_code == 404


def _connect(running, **more):
    host, port = running.broker_url.removeprefix("http://").split(":")
    return pinotdb.connect(host=host, port=int(port), path="/query/sql", scheme="http", **more)


def test_pinots_client_sees_one_content_after_two_replacements_and_a_revert(pushed, running):
    cursor = _connect(running).cursor()

    cursor.execute(
        f"SELECT id, city, snapshot FROM {pushed.name} WHERE id < %(most)s ORDER BY id", {"most": 2}
    )

    assert list(cursor) == [[0, "oslo", 3], [1, "bergen", 3]]
    with pytest.raises(exceptions.DatabaseError, match="nobody"):
        cursor.execute("SELECT 1 FROM nobody")


def test_pinots_dialect_reflects_tables_through_the_controller(pushed, running):
    broker = running.broker_url.removeprefix("http://")
    engine = create_engine(f"pinot://{broker}/query/sql?controller={running.controller_url}/")

    assert pushed.name in inspect(engine).get_table_names()
    table = Table(pushed.name, MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        found = connection.execute(select(func.count("*")).select_from(table)).scalar()
    assert found == 3


def test_pinots_client_shows_the_real_reason_when_it_may_not(serve):
    ana = User(name="ana", secret_hash=str(hash_secret("pw")), is_token=False, roles={"orders": Role.READ})
    running = serve(users=(ana,))

    with pytest.raises(exceptions.Error, match="credentials"):
        _connect(running).cursor().execute("SELECT 1 FROM orders")
    with pytest.raises(exceptions.Error, match="TableDoesNotExist"):
        _connect(running, username="ana", password="pw").cursor().execute("SELECT 1 FROM orders")
    client = Client(running)
    assert client.call("POST", "/query/sql", broker=True, json={"sql": "SELECT 1"}).status_code == 401
