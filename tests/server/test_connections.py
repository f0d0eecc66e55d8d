"""Clients that send slowly, ambiguously, or too much, on real ports."""

import select
import socket
import ssl
import time

import httpx2
import pytest

from harness.certificates import make_certificate
from harness.push_client import Client
from holdfast.config.server import Limits
from holdfast.server.connections import Connections


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    from holdfast.server.run import serving
    from server.conftest import settings

    limits = Limits(
        header_timeout_ms=1200,
        body_timeout_ms=400,
        connections_per_address=12,
        upload_rate_bytes=100_000,
        handshake_timeout_ms=600,
    )
    with serving(settings(tmp_path_factory.mktemp("service"), limits=limits)) as running:
        yield running


def connect(running, port="broker"):
    host, _, number = getattr(running, f"{port}_url").rpartition("//")[2].partition(":")
    return socket.create_connection((host, int(number)), timeout=10)


def trickle(connection):
    for _ in range(200):
        connection.sendall(b"X: y\r\n")
        time.sleep(0.05)


def received(connection):
    """All that comes until the other side closes."""
    pieces = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


@pytest.mark.parametrize(
    "begun", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "]
)
def test_headers_that_do_not_come_end_the_connection(impatient, begun):
    with connect(impatient) as connection:
        connection.sendall(begun)
        began = time.monotonic()

        assert received(connection) == b""
        assert time.monotonic() - began < 8


def test_headers_that_trickle_in_end_the_connection(impatient):
    with connect(impatient) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            trickle(connection)


def test_a_second_request_on_a_connection_has_its_own_time(impatient):
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(impatient) as connection:
        for _ in range(4):
            time.sleep(0.4)
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"OK"):
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")


def test_a_body_that_does_not_come_is_refused(impatient):
    with connect(impatient) as connection:
        connection.sendall(b"POST /query/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")

        assert received(connection).startswith(b"HTTP/1.1 408")


def drip(connection, piece, seconds):
    """Send so often that no pause is long; False when the other side has had enough."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            connection.sendall(piece)
        except OSError:
            return False
        if select.select([connection], [], [], 0.05)[0]:
            try:
                if not connection.recv(65536):
                    return False
            except OSError:
                return False
    return True


def test_the_rest_of_a_body_that_was_answered_is_not_waited_for(impatient):
    """A route without a body answers at once, and whoever announced one kept the connection."""
    with connect(impatient) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")

        assert not drip(connection, b"x", 10)


def test_a_client_that_still_sends_gets_its_answer_and_may_go_on(impatient):
    with connect(impatient) as connection:
        for _ in range(2):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n")
            answer = b""
            while not answer.endswith(b"OK"):
                answer += connection.recv(65536)
            connection.sendall(b"abc")


@pytest.mark.parametrize("head", [b"Content-Length: 100000", b"Transfer-Encoding: chunked"])
def test_a_body_that_trickles_in_has_a_time_for_all_of_it(impatient, head):
    piece = b" " if b"Length" in head else b"1\r\n \r\n"
    with connect(impatient) as connection:
        connection.sendall(b"POST /query/sql HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")

        assert not drip(connection, piece, 10)


def test_an_upload_that_trickles_in_is_refused_and_one_at_its_pace_is_not(impatient):
    head = (
        b"POST /v2/segments?tableName=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n"
        b"Content-Type: multipart/form-data; boundary=BB\r\n\r\n"
        b'--BB\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
    )
    with connect(impatient, "controller") as slow:
        slow.sendall(head)
        assert not drip(slow, b"x", 10)
    with connect(impatient, "controller") as fast:
        fast.sendall(head)
        assert drip(fast, b"x" * 50_000, 2)


def test_connections_of_one_ipv6_network_are_counted_together(monkeypatch):
    connections = Connections(Limits(connections_per_address=3))
    with socket.socket() as plain:
        port = connections.guard(plain)
    ends, hosts = [], iter([f"2001:db8::{number}" for number in range(5)] + ["2001:db8:0:1::1"])

    def accept(_):
        ours, theirs = socket.socketpair()
        ends.append(theirs)
        return ours, (next(hosts), 1, 0, 0)

    monkeypatch.setattr(socket.socket, "accept", accept)
    held = [port.accept()[0] for _ in range(3)]
    for _ in range(2):
        with pytest.raises(ConnectionAbortedError):
            port.accept()
        assert ends[-1].recv(1) == b"", "it is closed at once"
    held.append(port.accept()[0])
    for one in held:
        one.close()
        one.close()

    assert not connections._by_network
    for one in (port, *ends):
        one.close()


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    from holdfast.server.run import serving
    from server.conftest import settings

    folder = tmp_path_factory.mktemp("service")
    limits = Limits(connections_per_address=5, handshake_timeout_ms=1500)
    with serving(settings(folder, limits=limits, tls=make_certificate(folder))) as running:
        yield running


def test_connections_without_a_handshake_count_and_have_little_time(encrypted):
    held = [connect(encrypted) for _ in range(5)]
    try:
        with connect(encrypted) as late:
            assert received(late) == b""
        began = time.monotonic()
        assert [received(one) for one in held] == [b""] * 5
        assert time.monotonic() - began < 8
    finally:
        for one in held:
            one.close()
    context = ssl.create_default_context(cafile=encrypted.service.settings.tls.certificate)
    with httpx2.Client(verify=context) as client:
        assert client.get(f"{encrypted.broker_url}/health").status_code == 200


def test_an_address_has_its_share_of_the_connections(impatient):
    held = [connect(impatient) for _ in range(12)]
    try:
        time.sleep(0.1)
        with connect(impatient) as late:
            late.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert received(late) == b""
    finally:
        for one in held:
            one.close()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with connect(impatient) as again:
            again.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if received(again).startswith(b"HTTP/1.1 200"):
                return
    raise AssertionError("places that were given back were not given out again")


@pytest.mark.parametrize("port", ["broker", "controller"])
@pytest.mark.parametrize(
    "begun",
    [b"POST /query/sql HTTP/1.1", b"GET /health HTTP/1.1", b"POST /no HTTP/1.1", b"PUT /health HTTP/1.1"],
)
def test_what_follows_a_request_with_two_lengths_is_not_answered(impatient, begun, port):
    """The second request is a part of the first one to a proxy that goes by the length."""
    second = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    chunks = b'b\r\n{"sql":"x"}\r\n0\r\n\r\n' + second
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(chunks)
    with connect(impatient, port) as connection:
        connection.sendall(begun + b"\r\nHost: localhost\r\n" + both + b"\r\n" + chunks)
        answer = received(connection)

    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1, answer
    assert b"connection: close" in answer.lower()


def test_chunks_in_a_request_of_http_1_0_are_refused(impatient):
    """A proxy of that age does not know them."""
    with connect(impatient) as connection:
        connection.sendall(
            b"GET /health HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )

        assert received(connection).startswith(b"HTTP/1.1 400")


def test_a_query_has_a_short_body(client: Client):
    answer = client.call("POST", "/query/sql", broker=True, json={"sql": "SELECT 1 -- " + "x" * 300_000})

    assert answer.status_code == 413
