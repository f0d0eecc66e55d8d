"""The two ports: one event loop in a thread of its own, which stops when it is told to."""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from holdfast.clock import Clock, Timer
from holdfast.config.server import Listener, Tls
from holdfast.errors import InvalidRequest, StorageUnavailable

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

    def __init__(self, served: Sequence[tuple[ASGIApp, Bound]], *, tls: Tls, clock: Clock) -> None:
        self._served = served
        self._tls = tls
        self._clock = clock
        self._servers = [uvicorn.Server(_config(app, tls)) for app, _ in served]
        self._thread = threading.Thread(target=self._run, name="holdfast-http", daemon=True)
        self._failure: BaseException | None = None
        self._certificates: Timer | None = None

    def start(self) -> None:
        """Returns when every port answers."""
        self._thread.start()
        deadline = self._clock.elapsed_ms() + _START_SECONDS * 1000
        waiting = threading.Event()
        while not all(server.started for server in self._servers):
            if not self._thread.is_alive() or self._clock.elapsed_ms() > deadline:
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
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            log.exception("http.stopped")
            raise

    async def _serve(self) -> None:
        # Outside the main thread these servers leave signals alone.
        await asyncio.gather(
            *(
                server.serve(sockets=[bound.socket])
                for server, (_, bound) in zip(self._servers, self._served, strict=True)
            )
        )


def _config(app: ASGIApp, tls: Tls) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
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
    assert tls.certificate is not None, "TLS is configured"
    certificate, key = tls.certificate, tls.key
    seen = os.stat(certificate).st_mtime_ns

    def look() -> None:
        nonlocal seen
        found = os.stat(certificate).st_mtime_ns
        if found == seen:
            return
        for server in servers:
            if server.config.ssl is not None:
                server.config.ssl.load_cert_chain(certificate, key)
        seen = found
        log.info("tls.renewed")

    return clock.every_ms(_CERTIFICATE_CHECK_MS, look, name="holdfast-certificate")
