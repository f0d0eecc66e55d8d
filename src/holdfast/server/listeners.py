"""The two ports: one event loop in a thread of its own, which stops on request."""

import asyncio
import logging
import os
import socket
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from holdfast.clock import Clock, Timer
from holdfast.config.server import Limits, Listener, Tls
from holdfast.errors import HoldfastError, InvalidRequest, StorageUnavailable
from holdfast.server.connections import Connections
from holdfast.server.tls import check_tls

log = logging.getLogger(__name__)

_START_SECONDS = 30
_GRACEFUL_SECONDS = 30
_CONNECTIONS_MAX = 1000
_CERTIFICATE_CHECK_MS = 60_000


@dataclass(frozen=True, slots=True)
class Bound:
    """An open port."""

    socket: socket.socket
    url: str


def bind(listener: Listener, *, name: str, is_tls: bool) -> Bound:
    """Take the port before anything else is started; 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    # The protocol is named because asyncio sends small answers at once only on sockets that say TCP.
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((listener.host, listener.port))
    except OSError as error:
        taken.close()
        raise InvalidRequest(
            "the port cannot be had", option=f"{name}.port", host=listener.host, port=listener.port,
            cause=error.strerror, hint="stop what listens there, or configure another port",
        ) from error  # fmt: skip
    host = f"[{listener.host}]" if family == socket.AF_INET6 else listener.host
    return Bound(taken, f"{'https' if is_tls else 'http'}://{host}:{taken.getsockname()[1]}")


class Listeners:
    """Serves applications on ports until `stop`."""

    def __init__(
        self, served: Sequence[tuple[ASGIApp, Bound]], *, tls: Tls, limits: Limits, clock: Clock
    ) -> None:
        self._served = served
        self._tls = tls
        self._clock = clock
        self._limits = limits
        self._connections = Connections(limits)
        self._servers = [uvicorn.Server(_config(app, tls, self._connections)) for app, _ in served]
        self._thread = threading.Thread(target=self._run, name="holdfast-http", daemon=True)
        self._failure: BaseException | None = None
        self._certificates: Timer | None = None

    def start(self) -> None:
        """Returns when every port answers."""
        self._thread.start()
        deadline = self._clock.monotonic_ms() + _START_SECONDS * 1000
        waiting = threading.Event()
        while not all(server.started for server in self._servers):
            if not self._thread.is_alive() or self._clock.monotonic_ms() > deadline:
                raise StorageUnavailable("the ports do not answer", cause=str(self._failure))
            waiting.wait(0.01)
        if self._tls.certificate is not None:
            self._certificates = _watch_certificate(self._servers, self._tls, self._clock)

    def stop(self) -> None:
        """Take no new requests, finish those under way, close the ports."""
        if self._certificates is not None:
            self._certificates.stop()
        for server in self._servers:
            server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            make_loop = partial(_Loop, self._limits.handshake_timeout_ms / 1000)
            with asyncio.Runner(loop_factory=make_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
            log.exception("http.stopped")
            raise

    async def _serve(self) -> None:
        # Outside the main thread these servers leave signals alone.
        await asyncio.gather(
            *(
                server.serve(sockets=[self._connections.guard(bound.socket)])
                for server, (_, bound) in zip(self._servers, self._served, strict=True)
            )
        )


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers do not wait long for TLS, neither at the start nor at the end.

    uvicorn leaves both times at asyncio's own, which are a minute and half a minute.
    """

    def __init__(self, handshake_seconds: float) -> None:
        super().__init__()
        self._handshake_seconds = handshake_seconds

    async def create_server(self, *arguments: Any, **named: Any) -> asyncio.Server:
        if named.get("ssl") is not None:
            named["ssl_handshake_timeout"] = self._handshake_seconds
            named["ssl_shutdown_timeout"] = self._handshake_seconds
        return await super().create_server(*arguments, **named)


def _config(app: ASGIApp, tls: Tls, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=connections.protocol(),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=_GRACEFUL_SECONDS,
        ssl_certfile=tls.certificate,
        ssl_keyfile=tls.key,
    )


def _watch_certificate(servers: Sequence[uvicorn.Server], tls: Tls, clock: Clock) -> Timer:
    """New connections use a renewed certificate without a restart."""
    renewed = Renewal(tls, [server.config.ssl for server in servers if server.config.ssl is not None])
    return clock.every_ms(_CERTIFICATE_CHECK_MS, renewed.look, name="holdfast-certificate")


class Renewal:
    """Loads a certificate and its key anew when one of the files has changed, if both are in order."""

    def __init__(self, tls: Tls, contexts: Sequence[ssl.SSLContext]) -> None:
        self._tls = tls
        self._contexts = contexts
        self._seen = self._times()

    def look(self) -> None:
        found = self._times()
        if found == self._seen:
            return
        try:
            check_tls(self._tls)
        except HoldfastError as error:
            # The old one goes on to be used; the next look may find the files complete.
            log.error("tls.not_renewed", extra={"cause": str(error)})
            return
        assert self._tls.certificate is not None, "TLS is configured"
        for context in self._contexts:
            context.load_cert_chain(self._tls.certificate, self._tls.key)
        self._seen = found
        log.info("tls.renewed")

    def _times(self) -> list[int | None]:
        return [_mtime_ns(path) for path in (self._tls.certificate, self._tls.key) if path is not None]


def _mtime_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None
