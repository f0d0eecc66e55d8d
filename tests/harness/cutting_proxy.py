"""A door to a service at which every call can be watched, held, or left without an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_DROPPED = frozenset({"transfer-encoding", "connection", "content-length"})


class Cut(Exception):
    """The answer gets lost."""


@dataclass(frozen=True)
class Call:
    name: str
    """The last part of the path; a dry run is called `dry start…`."""
    moment: str
    """`before` the service got it, or `after` it has answered."""


Watch = Callable[[Call], None]


class CuttingProxy:
    """Passes calls on to a service. `watch` sees each twice and may raise `Cut`, or hold it."""

    def __init__(self, target: str, watch: Watch = lambda _: None) -> None:
        self.watch = watch
        self.calls: list[str] = []
        place = urlsplit(target)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._pass_on()

            def do_POST(self) -> None:
                self._pass_on()

            def log_message(self, *_: object) -> None:
                """Nothing: pytest shows what failed."""

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                name = _name(self.path)
                proxy.calls.append(name)
                try:
                    proxy.watch(Call(name, "before"))
                    connection = HTTPConnection(place.hostname or "", place.port, timeout=120)
                    headers = {key: value for key, value in self.headers.items() if key.lower() != "host"}
                    connection.request(self.command, self.path, body, headers)
                    answer = connection.getresponse()
                    content = answer.read()
                    connection.close()
                    proxy.watch(Call(name, "after"))
                    self._answer(answer, content)
                except (Cut, BrokenPipeError):
                    self.close_connection = True  # Lost on the way, or nobody lives to hear it.

            def _answer(self, answer: HTTPResponse, content: bytes) -> None:
                self.send_response(answer.status)
                for key, value in answer.getheaders():
                    if key.lower() not in _DROPPED:
                        self.send_header(key, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> CuttingProxy:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _name(path: str) -> str:
    parts = urlsplit(path)
    is_dry = parse_qs(parts.query).get("dryRun") == ["true"]
    return ("dry " if is_dry else "") + parts.path.rpartition("/")[2]
