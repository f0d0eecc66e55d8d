"""Requests that nobody meant, over real connections: an answer that says what is wrong, or a closed door."""

import re
import select
import socket
import threading
import time

import pytest

from fuzz.inputs import STATEMENTS, changed, how_many
from harness.push_client import Client, make_table, parquet
from holdfast.config.server import Limits
from holdfast.server.run import serving
from server.conftest import settings

THREADS = 4
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    limits = Limits(header_timeout_ms=1000, body_timeout_ms=500, requests_per_second=100_000)
    with serving(settings(tmp_path_factory.mktemp("service"), limits=limits)) as running:
        client = Client(running)
        table = make_table(client)
        yield running, client, table
        client.close()


def requests(table):
    """One of every kind: each verb, bodies with a length, in pieces, of a form."""

    def request(line, body=b"", *headers):
        length = [f"Content-Length: {len(body)}"] if body and not headers else []
        lines = [f"{line} HTTP/1.1", "Host: localhost", "Connection: close", *length, *headers]
        return "\r\n".join((*lines, "", "")).encode() + body

    sql = b'{"sql": "' + STATEMENTS[0].encode() + b'", "queryOptions": "timeoutMs=1000"}'
    replace = b'{"segmentsFrom": [], "segmentsTo": ["b"], "customMap": {"a": "b"}}'
    named = b'Content-Disposition: form-data; name="f"; filename="s.parquet"'
    form = b"--x\r\n" + named + b"\r\n\r\n" + parquet(2) + b"\r\n--x--\r\n"
    of_form = (f"Content-Length: {len(form)}", "Content-Type: multipart/form-data; boundary=x")
    pieces = b"%x\r\n%s\r\n0\r\n\r\n" % (len(sql), sql)
    segments = f"/segments/{table.name}"
    schema = b'{"schemaName": "s", "dimensionFieldSpecs": [{"name": "a", "dataType": "INT"}]}'
    return {
        "broker": [
            request("POST /query/sql", sql),
            request("POST /query", pieces, "Transfer-Encoding: chunked"),
            request("GET /query/sql?sql=SELECT+1+FROM+t"),
            request("GET /health", b"", "Authorization: Basic YTpi", "If-Match: 5", "X-Forwarded-For: ::1"),
        ],
        "controller": [
            request(f"POST {segments}/startReplaceSegments?type=OFFLINE&forceCleanup=false", replace),
            request(f"POST {segments}/endReplaceSegments?segmentLineageEntryId=e1&type=OFFLINE"),
            request(f"POST {segments}/revertReplaceSegments?segmentLineageEntryId=e1&type=OFFLINE"),
            request(f"POST /v2/segments?tableName={table.name}&tableType=OFFLINE", form, *of_form),
            request(f"GET {segments}?type=OFFLINE&excludeReplacedSegments=true"),
            request(f"GET /tables/{table.name}/size?verbose=false"),
            request("POST /schemas", schema),
            request("POST /tables", b'{"tableName": "s", "tableType": "OFFLINE", "segmentsConfig": {}}'),
            request("POST /sql", sql),
            request(f"DELETE {segments}/a?retention=0d"),
        ],
    }


_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def answered(address, content):
    """The status of the answer and its body; None if the connection was closed without one."""
    received = b""
    with socket.create_connection(address, timeout=10) as connection:
        try:
            connection.sendall(content)
            if not select.select([connection], [], [], 0.1)[0]:
                # It waits for more, and is told that there is none.
                connection.shutdown(socket.SHUT_WR)
            while not _is_whole(received) and (piece := connection.recv(65536)):
                received += piece
        except (ConnectionResetError, BrokenPipeError):
            return None, b""
    head, _, body = received.partition(b"\r\n\r\n")
    return (int(head.split(b" ")[1]), body) if head.startswith(b"HTTP/1.1 ") else (None, b"")


def _is_whole(received):
    head, end, body = received.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return bool(end and length and len(body) >= int(length[1]))


class Refused(Exception):
    """The service said no, or closed the connection."""


@pytest.mark.parametrize("port", ["broker", "controller"])
def test_requests(port, service, tally):
    running, _, table = service
    host, _, number = getattr(running, f"{port}_url").rpartition("//")[2].partition(":")

    def ask(content):
        status, body = answered((host, int(number)), content)
        # Pinot answers 500 where a rule forbids something, and so does this; a bug is told apart by its code.
        assert b"INTERNAL" not in body, body
        if status is None or status >= 400:
            raise Refused

    inputs = changed(requests(table)[port], how_many(4000), port)
    tally.feed(f"HTTP, {port}", ask, inputs, (Refused,), seconds_max=6.0)

    assert answered((host, int(number)), HEALTH)[0] == 200


def test_health_answers_while_strange_requests_come(service, tally):
    running, client, table = service
    host, _, number = running.broker_url.rpartition("//")[2].partition(":")
    inputs = list(changed(requests(table)["broker"], how_many(2000), "at once"))

    def send(part):
        for one in part:
            answered((host, int(number)), one)

    threads = [threading.Thread(target=send, args=[inputs[at::THREADS]]) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    slowest_s = 0.0
    while any(thread.is_alive() for thread in threads):
        began = time.monotonic()
        assert client.call("GET", "/health", broker=True).status_code == 200
        slowest_s = max(slowest_s, time.monotonic() - began)
        time.sleep(0.02)
    tally.by_kind["HTTP at once"] = len(inputs)
    tally.inputs += len(inputs)

    assert slowest_s < 1.0
