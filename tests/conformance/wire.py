"""A very small object server that shows what a client sends, and can misbehave.

It speaks just enough of the wire protocols of S3, Google and Azure for single
objects. The real S3 server of the suite is another one.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Wire:
    endpoint: str = ""
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)  # content and generation
    conditions: list[tuple[str, str]] = field(default_factory=list)
    errors_after_success: int = 0
    generation: int = 0


@contextmanager
def wire_server() -> Iterator[Wire]:
    wire = Wire()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            _, generation = wire.objects.get(self.path, (b"", 0))
            if not self._allows(generation):
                return self._answer(412)
            wire.generation += 1
            wire.objects[self.path] = (content, wire.generation)
            if wire.errors_after_success:
                wire.errors_after_success -= 1
                return self._answer(500)
            return self._answer(201, generation=wire.generation)

        def do_GET(self) -> None:
            if self.path not in wire.objects:
                return self._answer(404)
            content, generation = wire.objects[self.path]
            if self.headers["Range"] is None:
                return self._answer(200, content, generation=generation)
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            bounds = f"bytes {first}-{last}/{len(content)}"
            return self._answer(206, content[first : last + 1], generation=generation, bounds=bounds)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _allows(self, generation: int) -> bool:
            """Whether the object, at this generation, meets the conditions of the request."""
            meets = {
                "If-None-Match": lambda value: generation == 0,
                "If-Match": lambda value: value == f'"tag-{generation}"',
                "x-goog-if-generation-match": lambda value: value == str(generation),
            }
            given = {name: self.headers[name] for name in meets if self.headers[name] is not None}
            wire.conditions.extend(given.items())
            return all(meets[name](value) for name, value in given.items())

        def _answer(
            self, status: int, content: bytes = b"", *, generation: int = 0, bounds: str = ""
        ) -> None:
            self.send_response(status)
            if bounds:
                self.send_header("Content-Range", bounds)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Last-Modified", "Mon, 05 Jan 2026 10:00:00 GMT")
            self.send_header("ETag", f'"tag-{generation}"')
            self.send_header("x-goog-generation", str(generation))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    wire.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield wire
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
