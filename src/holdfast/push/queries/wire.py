"""What the broker and its worker processes say to each other.

A message is its lengths, a header in MessagePack and, after an answer, the rows
as an Arrow stream. Nothing in it is code.
"""

import socket
import struct
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from holdfast.config.push_schema import DataType

_LENGTHS = struct.Struct("!IQ")
_MAX_HEADER = 256 * 1024 * 1024
_PIECE = 1 << 20

INTERRUPT = struct.Struct("!Q")
"""On the control channel: stop the task of this number."""


class Setup(msgspec.Struct, frozen=True):
    """The first message to a worker."""

    deep_store: str
    """The address below which relative paths lie."""
    deep_store_options: dict[str, str]
    readable: list[str]
    network: bool
    memory_bytes: int
    threads: int
    confine: bool = True


class Ready(msgspec.Struct, frozen=True):
    confined: bool


class ColumnTask(msgspec.Struct, frozen=True, array_like=True):
    name: str
    kind: DataType
    is_array: bool
    default: str | None = None
    """What stands for null, in SQL; None: the column is read as it is stored."""


class ViewTask(msgspec.Struct, frozen=True):
    name: str
    columns: list[ColumnTask]
    segments: list[str]
    files: list[str]
    """In the order of the segments: paths below the deep store, or addresses."""
    has_segment_names: bool


class Task(msgspec.Struct, frozen=True):
    number: int
    sql: str
    views: list[ViewTask]
    max_rows: int
    max_bytes: int


class Failure(msgspec.Struct, frozen=True):
    code: int
    message: str
    segment: str = ""


class Answer(msgspec.Struct, frozen=True):
    number: int
    failure: Failure | None = None


Message = TypeVar("Message", bound=msgspec.Struct)


def send(channel: socket.socket, message: msgspec.Struct, body: bytes | memoryview = b"") -> None:
    header = msgspec.msgpack.encode(message)
    channel.sendall(_LENGTHS.pack(len(header), len(body)) + header)
    if body:
        channel.sendall(body)


def send_with_files(channel: socket.socket, message: msgspec.Struct, files: Sequence[int]) -> None:
    """A message, and before it descriptors that the other side gets as its own."""
    socket.send_fds(channel, [b"\0"], list(files))
    send(channel, message)


def receive_with_files(
    channel: socket.socket, kind: type[Message], *, count: int
) -> tuple[Message, list[int]]:
    """What `send_with_files` sent; the caller closes the descriptors."""
    content, files, _, _ = socket.recv_fds(channel, 1, count)
    if not content:
        raise EOFError
    message, _ = receive(channel, kind)
    return message, list(files)


def receive(channel: socket.socket, kind: type[Message], *, max_body: int = 0) -> tuple[Message, bytearray]:
    """The next message. `EOFError` or `ConnectionError` if the other side is gone."""
    header_length, body_length = _LENGTHS.unpack(_exactly(channel, _LENGTHS.size))
    if header_length > _MAX_HEADER or body_length > max_body:
        raise ValueError(f"a message of {header_length} and {body_length} bytes")
    header = msgspec.msgpack.decode(_exactly(channel, header_length), type=kind)
    return header, _exactly(channel, body_length)


def _exactly(channel: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    view = memoryview(content)
    at = 0
    while at < size:
        received = channel.recv_into(view[at : at + _PIECE])
        if not received:
            raise EOFError
        at += received
    return content
