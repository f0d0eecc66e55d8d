"""What one user asks for leaves room for others: places for queries, and memory for bodies and answers."""

import gc
import io
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.push_client import Client, basic, make_table
from holdfast.config.server import Limits, Role, User
from holdfast.push.queries.failures import QueryFailed
from holdfast.server.app import build_app
from holdfast.server.routes import controller_endpoints
from holdfast.server.secrets import hash_secret

SLOW = "SELECT sum(a.id * b.id + c.id) FROM {0} a JOIN {0} b ON a.city = b.city JOIN {0} c ON b.city = c.city"


ANSWER_BYTES = 64 << 20
ANSWERS_BYTES = 4 * ANSWER_BYTES


def users():
    """One hash for all: it takes a while to make."""
    secret_hash = str(hash_secret("pw"))
    roles = {"ana": Role.ADMIN, "reader": Role.READ, "other": Role.READ, "writer": Role.WRITE}
    return tuple(
        User(name=name, secret_hash=secret_hash, is_token=False, roles={"*": role})
        for name, role in roles.items()
    )


def as_user(running, name):
    return Client(running, basic(name, "pw"))


def until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A service with users and little room."""
    from holdfast.server.run import serving
    from server.conftest import settings

    limits = Limits(
        concurrent_queries=2, answer_bytes=ANSWER_BYTES, bodies_bytes=32 << 20, answer_timeout_ms=1500
    )
    with serving(settings(tmp_path_factory.mktemp("service"), limits=limits, users=users())) as running:
        yield running


@pytest.fixture(scope="module")
def large(shared):
    """A table on which a query can take for ever."""
    table = make_table(as_user(shared, "ana"))
    assert table.upload("a", 20_000).status_code == 200
    return table.name


def post(path, length, begun, user="reader"):
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic(user, 'pw')['Authorization']}\r\n"
    )
    return f"{head}Content-Length: {length}\r\n\r\n".encode() + begun


def connect(url):
    host, _, port = url.rpartition("//")[2].partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def test_checking_a_statement_takes_a_place_for_queries(shared):
    """It took one of those for all other requests, which one user could use up with large statements."""
    readers = shared.service.broker._readers
    client = as_user(shared, "reader")
    for pid in readers.pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(8) as threads:
            asked = [
                threads.submit(
                    client.call, "POST", "/query/sql/validateSyntax", broker=True,
                    json={"sql": f"SELECT {number} AS held"},
                )
                for number in range(8)
            ]  # fmt: skip
            until(lambda: shared.service.bounds.queries.busy == 1)
            time.sleep(0.2)
            busy = shared.service.bounds.queries.busy, shared.service.bounds.calls.busy
            for pid in readers.pids:
                os.kill(pid, signal.SIGCONT)
            statuses = {one.result().status_code for one in asked}
    finally:
        for pid in readers.pids:
            os.kill(pid, signal.SIGCONT)

    assert busy == (1, 0)
    assert statuses == {200}


@pytest.mark.parametrize("path", ["/query/sql", "/sql", "/query/sql/validateSyntax"])
def test_a_query_that_waits_until_its_deadline_is_told_then(shared, large, path):
    """It was told when the others were done, however long they took."""
    holders = [as_user(shared, name) for name in ("reader", "other")]
    late = as_user(shared, "writer")
    late.get("/uptime")
    with ThreadPoolExecutor(2) as threads:
        held = [threads.submit(one.sql, SLOW.format(large), queryOptions="timeoutMs=6000") for one in holders]
        until(lambda: shared.service.bounds.queries.busy == 2)
        began = time.monotonic()
        answer = late.call(
            "POST", path, broker=path != "/sql", json={"sql": "SET timeoutMs = 500; SELECT 1 FROM " + large}
        ).json()
        took = time.monotonic() - began
        for one in shared.service.broker.running():
            shared.service.broker.cancel(one["requestId"])
        assert all(one.result()["exceptions"] for one in held)

    code = answer["errorCode"] if "errorCode" in answer else answer["exceptions"][0]["errorCode"]
    assert code == 240
    assert took < 4


def test_only_who_may_write_sends_large_bodies_and_only_lists(shared, large):
    reader, ana, writer = (as_user(shared, name) for name in ("reader", "ana", "writer"))
    body = {"schemaName": "wide", "padding": "x" * (1 << 20)}

    for path in ("/schemas/validate", "/tables/validate", "/schemas", "/tables"):
        for client in (reader, ana):
            answer = client.post(path, body)
            assert answer.status_code == 403 or answer.json()["errorCode"] == "BODY_TOO_LARGE"
    listed = {"segmentsTo": ["b"], "customMap": {"padding": "x" * (4 << 20)}}
    path = f"/segments/{large}/startReplaceSegments"
    assert reader.post(path, listed, type="OFFLINE").status_code == 403
    answer = writer.post(path, listed, type="OFFLINE", dryRun=True)
    assert answer.status_code == 200, answer.text


def test_bodies_under_way_have_so_much_room_together_and_each_user_a_share(shared, large):
    path = f"/segments/{large}/startReplaceSegments?type=OFFLINE"
    piece = b'{"segmentsTo": ["' + b"x" * (15 << 20)
    with connect(shared.controller_url) as held:
        held.sendall(post(path, 16 << 20, piece, user="writer"))
        until(lambda: shared.service.bounds.bodies._left <= 17 << 20)

        own = as_user(shared, "writer").call("POST", path, content=piece)
        others = as_user(shared, "ana").call("POST", path, content=piece)

        assert (own.status_code, own.json()["errorCode"]) == (429, "NO_ROOM")
        assert others.json()["errorCode"] == "BODY_INVALID"
    until(lambda: shared.service.bounds.bodies._left == 32 << 20)


def test_a_body_that_was_refused_leaves_nothing_behind(shared):
    """What it became went in circles with its error, until the collector found it: gigabytes."""
    body = b'{"schemaName": "x", "dimensionFieldSpecs": [' + b"[]," * 300_000 + b"[]]}"
    client = as_user(shared, "reader")
    assert client.call("POST", "/schemas/validate", content=body).status_code == 400
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(3):
            assert client.call("POST", "/schemas/validate", content=body).status_code == 400
        until(lambda: len(gc.get_objects()) < before + 100_000)
    finally:
        gc.enable()


def test_an_answer_is_as_large_as_it_may_be_in_json(shared, large):
    """Control characters take six bytes each in JSON."""
    client = as_user(shared, "reader")
    plain = client.sql(f"SELECT repeat('a', 10000000) FROM {large} LIMIT 1")
    escaped = client.sql(f"SELECT repeat('\x01', 10000000) FROM {large} LIMIT 1")
    listed = client.sql(f"SELECT arrayagg(a.id, 'LONG') FROM {large} a JOIN {large} b ON a.id < b.id + 2")

    assert len(plain["resultTable"]["rows"][0][0]) == 10_000_000
    assert [one["exceptions"][0]["errorCode"] for one in (escaped, listed)] == [245, 245]


def test_a_client_that_does_not_take_its_answer_is_cut_off(shared, large):
    sql = b'{"sql": "SELECT repeat(\'a\', 10000000) FROM ' + large.encode() + b' LIMIT 1"}'
    with connect(shared.broker_url) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(post("/query/sql", len(sql), sql))
        until(lambda: shared.service.bounds.answers._left < ANSWERS_BYTES)
        until(lambda: shared.service.bounds.answers._left == ANSWERS_BYTES)

        received = 0
        try:
            while piece := slow.recv(65536):
                received += len(piece)
        except ConnectionResetError:
            assert received < 10_000_000
            return
    raise AssertionError(f"{received} bytes came, and then an end")


def test_answers_that_nobody_takes_leave_room_for_others(shared, large):
    sql = b'{"sql": "SELECT repeat(\'a\', 20000000) FROM ' + large.encode() + b' LIMIT 1"}'
    held = [connect(shared.broker_url) for _ in range(8)]
    try:
        for one in held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(post("/query/sql", len(sql), sql))
            time.sleep(0.05)
        until(lambda: shared.service.bounds.answers._left < ANSWERS_BYTES)
        least = shared.service.bounds.answers._left
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            least = min(least, shared.service.bounds.answers._left)
            time.sleep(0.01)
        assert as_user(shared, "other").sql("SELECT 1")["exceptions"] == []
    finally:
        for one in held:
            one.close()

    assert least >= ANSWERS_BYTES // 2, "one user has half of the room"


def test_requests_of_one_ipv6_network_have_one_rate(serve):
    app = build_app(
        serve(limits=Limits(requests_per_second=1)).service,
        controller_endpoints(), name="controller", is_broker=False,
    )  # fmt: skip

    async def statuses(hosts):
        found = []
        for host in hosts:
            transport = httpx2.ASGITransport(app=app, client=(host, 1))
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                found.append((await client.get("/health")).status_code)
        return found

    found = anyio.run(statuses, [f"2001:db8::{number}" for number in range(6)] + ["2001:db8:0:1::1"])

    assert 429 in found[:6]
    assert found[6] == 200


@pytest.fixture
def slow_listings(shared, monkeypatch):
    """Listing segments, the call of a reader, waits until the test is over."""
    go = threading.Event()
    monkeypatch.setattr(type(shared.service.controller.views), "select", lambda *_, **__: go.wait(60) and ())
    yield go
    go.set()


def ask_often(threads, shared, table, user, count):
    return [
        threads.submit(as_user(shared, user).call, "GET", f"/segments/{table}", timeout=60)
        for _ in range(count)
    ]


def timed(call):
    began = time.monotonic()
    answer = call()
    return answer.status_code, time.monotonic() - began


def test_one_user_leaves_places_for_the_calls_of_others(shared, large, slow_listings):
    other, anybody = as_user(shared, "other"), Client(shared)
    other.get("/uptime")
    with ThreadPoolExecutor(70) as threads:
        ask_often(threads, shared, large, "reader", 70)
        until(lambda: shared.service.bounds.calls.busy >= 16)
        time.sleep(1)
        busy = shared.service.bounds.calls.busy
        told = timed(lambda: other.call("GET", "/tables", timeout=5))
        health = timed(lambda: anybody.call("GET", "/health", timeout=5))
        slow_listings.set()

    assert busy == 16
    assert told[0] == health[0] == 200
    assert max(told[1], health[1]) < 1


def test_health_waits_for_no_place(shared, large, slow_listings):
    """Several users together can take all of them."""
    anybody = Client(shared)
    with ThreadPoolExecutor(68) as threads:
        for user in ("ana", "reader", "other", "writer"):
            ask_often(threads, shared, large, user, 17)
        until(lambda: shared.service.bounds.calls.busy == 64)
        health = [
            timed(lambda port=port: anybody.call("GET", "/health", broker=port, timeout=5))
            for port in (True, False)
        ]
        slow_listings.set()

    assert [status for status, _ in health] == [200, 200]
    assert max(took for _, took in health) < 1


@pytest.fixture(scope="module")
def largest(shared):
    """A segment that no buffer on the way to a client holds."""
    table = make_table(as_user(shared, "ana"))
    noise = pa.array(np.random.default_rng(1).integers(0, 2**62, 3_000_000))
    rows = pa.table({"city": pa.array(["oslo"] * len(noise)), "id": noise, "at": pa.array([1] * len(noise))})
    pq.write_table(rows, sink := io.BytesIO())
    sent = as_user(shared, "ana").call(
        "POST", "/v2/segments", params={"tableName": table.name}, files={"f": ("big", sink.getvalue())}
    )
    assert sent.status_code == 200, sent.text
    return table.name, len(sink.getvalue())


def begin_download(shared, table, user="reader"):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, _, port = shared.controller_url.rpartition("//")[2].partition(":")
    connection.connect((host, int(port)))
    login = basic(user, "pw")["Authorization"]
    connection.sendall(
        f"GET /segments/{table}/big HTTP/1.1\r\nHost: localhost\r\nAuthorization: {login}\r\n\r\n".encode()
    )
    return connection


def in_deleted_files():
    """Bytes on disk that no listing shows."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += one.stat().st_size if "(deleted)" in os.readlink(one) else 0
    return found


def test_downloads_that_nobody_takes_fill_no_disk_and_are_so_many(shared, largest):
    table, size = largest
    before = in_deleted_files()
    held = [begin_download(shared, table) for _ in range(16)]
    try:
        until(lambda: shared.service.bounds.downloads._left == 48)
        one_more = as_user(shared, "reader").get(f"/segments/{table}/big")
        others = as_user(shared, "other").get(f"/segments/{table}/big")
        health = timed(lambda: Client(shared).get("/health"))
        taken = in_deleted_files() - before
    finally:
        for one in held:
            one.close()

    assert (one_more.status_code, one_more.json()["errorCode"]) == (429, "TOO_MANY_AT_ONCE")
    assert others.status_code == 200
    assert len(others.content) > size // 2
    assert health[0] == 200
    assert health[1] < 1
    assert taken < size, "the archives wait on disk"
    until(lambda: shared.service.bounds.downloads._left == 64)


GATES = [{"sql": {"name": f"g{at}", "query": "SELECT count(*) >= 0 FROM snapshot"}} for at in range(51)]


def test_a_call_brings_so_many_gates(shared):
    table = make_table(as_user(shared, "ana"))
    entry = table.started([], ["a"])
    table.upload("a")
    path = f"/segments/{table.name}/validateReplaceSegments"

    refused = as_user(shared, "writer").post(path, {"gates": GATES}, segmentLineageEntryId=entry)
    answered = as_user(shared, "writer").post(path, {"gates": GATES[:3]}, segmentLineageEntryId=entry)

    assert (refused.status_code, refused.json()["errorCode"]) == (400, "INVALID_GATE")
    assert answered.json()["passed"]


@pytest.mark.parametrize("how", ["end", "job", "group"])
def test_an_end_evaluates_gates_in_the_share_of_its_user(shared, monkeypatch, how):
    """As many ends as there are places for calls asked the engine at once, beside the places for queries."""
    ana = as_user(shared, "ana")
    table = make_table(ana, gates=[{"min_rows": 1}])
    entry = table.started([], ["a"])
    table.upload("a")
    busy, ask = [], shared.service.broker.ask

    def asked(*arguments, **named):
        busy.append((shared.service.bounds.queries.busy, list(shared.service.bounds.queries._by_caller)))
        return ask(*arguments, **named)

    monkeypatch.setattr(shared.service.broker, "ask", asked)
    if how == "group":
        path, body = "/lineage/group/end", [{"table": table.name, "segmentLineageEntryId": entry}]
        assert ana.post(path, body).status_code == 200
    else:
        assert table.end(entry, **({"async": "true"} if how == "job" else {})).status_code == 200
    until(lambda: table.visible() == {"a"})

    assert busy == [(1, ["ana"])]


def test_the_gates_of_one_call_have_one_deadline(shared, large, monkeypatch):
    hasty = replace(shared.service.broker._settings, max_timeout_ms=300)
    monkeypatch.setattr(shared.service.broker, "_settings", hasty)
    ask = shared.service.broker.asking(f"{large}_OFFLINE")
    assert ask("SELECT 1 FROM snapshot LIMIT 1", frozenset({"a"})) == 1
    time.sleep(0.4)

    with pytest.raises(QueryFailed):
        ask("SELECT 1 FROM snapshot LIMIT 1", frozenset({"a"}))
