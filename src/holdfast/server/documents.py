"""Answers, made and sent piece by piece, so that a large one keeps no other caller waiting.

While the interpreter makes one large text it does nothing else, whichever
thread asked for it; and what is given to a connection in one piece is copied
there. A file is read, and packed, as its client takes it.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

_ROWS_AT_ONCE = 100
_PIECE_BYTES = 256 * 1024
_RESULT = "resultTable"
_encoder = msgspec.json.Encoder()


class Document(Response):
    """An answer in JSON."""

    media_type = "application/json"

    def __init__(self, document: Any, status: int, *, headers: Mapping[str, str]) -> None:
        super().__init__(memoryview(encode_document(document)), status, headers=headers)
        self.on_sent: Callable[[], None] | None = None
        """Called when the client has it, or is gone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            for at in range(0, max(1, len(self.body)), _PIECE_BYTES):
                piece = bytes(self.body[at : at + _PIECE_BYTES])
                is_last = at + _PIECE_BYTES >= len(self.body)
                await send({"type": "http.response.body", "body": piece, "more_body": not is_last})
        finally:
            if self.on_sent is not None:
                self.on_sent()


class Download(StreamingResponse):
    """A file, read in threads that are there for files alone."""

    def __init__(
        self, pieces: Iterator[bytes], status: int, *, headers: Mapping[str, str], media_type: str
    ) -> None:
        super().__init__(self._read_pieces(pieces), status, headers=headers, media_type=media_type)
        self._pieces = pieces
        self.readers: anyio.CapacityLimiter | None = None
        self.on_sent: Callable[[], None] | None = None
        """Called when the client has it, or is gone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            close = getattr(self._pieces, "close", None)
            if close is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(close, limiter=self.readers)
            if self.on_sent is not None:
                self.on_sent()

    async def _read_pieces(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        while True:
            piece = await anyio.to_thread.run_sync(next, pieces, None, limiter=self.readers)
            if piece is None:
                return
            yield piece


def encode_document(document: Any) -> bytearray:
    """The document as JSON; the rows of a query's answer some at a time."""
    written = bytearray()
    table = document.get(_RESULT) if isinstance(document, dict) else None
    if table is None or len(table["rows"]) <= _ROWS_AT_ONCE:
        _encoder.encode_into(document, written)
        return written
    rest = {name: value for name, value in document.items() if name != _RESULT}
    rows = table["rows"]
    _encoder.encode_into(rest, written)
    # In the place of the last bracket.
    written[-1:] = b',"' + _RESULT.encode() + b'":'
    _encoder.encode_into({name: value for name, value in table.items() if name != "rows"}, written, -1)
    written[-1:] = b',"rows":['
    for at in range(0, len(rows), _ROWS_AT_ONCE):
        start = len(written)
        _encoder.encode_into(rows[at : at + _ROWS_AT_ONCE], written, -1)
        written[start : start + 1] = b"," if at else b""
        del written[-1]
    written += b"]}}"
    return written
