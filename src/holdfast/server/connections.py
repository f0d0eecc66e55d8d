"""Connections: a request must arrive in time, its answer must be taken, and no client may hold all places.

uvicorn waits for the headers of a request, for the rest of a body that no one
wants and for a client that does not read as long as the client likes. Here
each of them is cut off. Connections are counted when they are accepted, before
TLS is agreed on, by the network that they come from.
"""

import asyncio
import logging
import socket
import struct
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.config.server import Limits
from holdfast.server.limits import network_of

log = logging.getLogger(__name__)

_LINGER_SECONDS = 5.0
"""How long the rest of a body is still taken after the answer: who sends it may not have looked yet."""

_NO_LINGER = struct.pack("ii", 1, 0)


class Connections:
    """Those of both ports, by the network they come from. Lives on the event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_network: Counter[str] = Counter()

    def protocol(self) -> Any:
        """What uvicorn makes for each connection."""
        return partial(_GuardedConnection, self)

    def guard(self, port: socket.socket) -> socket.socket:
        """The same port, which accepts only what may come in. The one given is closed by this."""
        return _Port(self, port)

    @property
    def header_seconds(self) -> float:
        return self._limits.header_timeout_ms / 1000

    @property
    def linger_seconds(self) -> float:
        return min(_LINGER_SECONDS, self.header_seconds)

    @property
    def answer_seconds(self) -> float:
        return self._limits.answer_timeout_ms / 1000

    def admit(self, network: str) -> bool:
        """Whether the network may have one more."""
        if self._by_network[network] >= self._limits.connections_per_address:
            log.warning("http.connections_used_up", extra={"client": network})
            return False
        self._by_network[network] += 1
        return True

    def release(self, network: str) -> None:
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]


class _Port(socket.socket):
    """A listening socket that closes at once what it may not accept."""

    def __init__(self, connections: Connections, port: socket.socket) -> None:
        super().__init__(port.family, port.type, port.proto, fileno=port.detach())
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        network = network_of(str(address[0]))
        if not self._connections.admit(network):
            accepted.close()
            # To the event loop it is a client that went away again, which is no error.
            raise ConnectionAbortedError
        return _Accepted(self._connections, network, accepted), address


class _Accepted(socket.socket):
    """A connection that counts until it is closed, whatever became of it."""

    def __init__(self, connections: Connections, network: str, accepted: socket.socket) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._connections: Connections | None = connections
        self._network = network

    def close(self) -> None:
        super().close()
        if self._connections is not None:
            self._connections.release(self._network)
            self._connections = None


class _Timeout:
    """One thing that is waited for at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cut_off: Callable[[], None]) -> None:
        self._loop = loop
        self._cut_off = cut_off
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def start(self, seconds: float) -> None:
        self.stop()
        self._handle = self._loop.call_later(seconds, self._run)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        self._cut_off()


class _Requests(h11.Connection):
    """Refuses a request whose end two readers would see in two places: what follows may be of somebody else.

    h11 passes over the length where there are chunks, as a proxy in front may not.
    """

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            named = {name for name, _ in event.headers}
            if b"transfer-encoding" in named and (b"content-length" in named or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("the end of the request is ambiguous")
        return event


class _GuardedConnection(H11Protocol):
    def __init__(self, connections: Connections, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # What it raises, uvicorn answers with 400, and closes the connection.
        self.conn = _Requests(h11.SERVER)
        self._guard = connections
        self._headers = _Timeout(self.loop, self._cut_off_headers)
        self._rest = _Timeout(self.loop, self._cut_off_rest)
        self._answer = _Timeout(self.loop, self._cut_off_answer)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._headers.start(self._guard.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        for one in (self._headers, self._rest, self._answer):
            one.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self._headers.is_running and self.conn.their_state is h11.IDLE:
            # From the first byte on, whatever trickles in afterwards.
            self._headers.start(self._guard.header_seconds)
        if not self.flow.write_paused:
            # The next request: its answer has a time of its own.
            self._answer.stop()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._headers.stop()

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and not self._rest.is_running:
            # Closing at once would take the answer from a client that is still sending.
            self._rest.start(self._guard.linger_seconds)
        if not self._answer.is_running and self.transport.get_write_buffer_size():
            self._answer.start(self._guard.answer_seconds)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        # A piece of an answer waits here, and the client is to take it in this time.
        self._answer.start(self._guard.answer_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._answer.stop()
        if self.cycle is not None and self.cycle.response_complete and self.transport.get_write_buffer_size():
            self._answer.start(self._guard.answer_seconds)

    def _cut_off_headers(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self.transport.abort()

    def _cut_off_rest(self) -> None:
        """Of a body that was answered already, unless the next request is being answered."""
        if self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self.transport.abort()

    def _cut_off_answer(self) -> None:
        if self.transport.get_write_buffer_size():
            # Otherwise the kernel goes on offering what it has of the answer.
            port = self.transport.get_extra_info("socket")
            port.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.transport.abort()
