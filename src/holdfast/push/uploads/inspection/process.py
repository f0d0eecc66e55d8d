"""A process that inspects uploaded files: it gets them opened, and can open nothing itself."""

import os
import resource
import socket
import sys

import msgspec

from holdfast.errors import InvalidRequest
from holdfast.push.queries import wire
from holdfast.push.queries.confine import confine, limit_memory
from holdfast.push.uploads.archives import RoomNeeded
from holdfast.push.uploads.inspection.inspect import InspectedSegment, Question, inspect


class Setup(msgspec.Struct, frozen=True):
    """The first message."""

    memory_bytes: int
    unpacked_bytes: int
    """How large the Parquet file of an archive may be."""


class Refusal(msgspec.Struct, frozen=True):
    """An `InvalidRequest`."""

    message: str
    hint: str
    facts: dict[str, str | int]


class Inspection(msgspec.Struct, frozen=True):
    """The answer: one of these."""

    found: list[InspectedSegment] | None = None
    refusal: Refusal | None = None
    room_needed: int | None = None


def answer(source: int, columns: int, question: Question) -> Inspection:
    """Inspect the file behind a descriptor, whatever is in it. Both descriptors are closed."""
    with open(source, "rb") as file, open(columns, "r+b") as target:
        try:
            return Inspection(found=inspect(file, target, question))
        except RoomNeeded as needed:
            return Inspection(room_needed=needed.size)
        except InvalidRequest as refused:
            facts = {name: v if isinstance(v, int) else str(v) for name, v in refused.facts.items()}
            return Inspection(refusal=Refusal(refused.message, refused.hint, facts))


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    try:
        setup, _ = wire.receive(channel, Setup)
        confined = confine((), network=False)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (setup.unpacked_bytes, setup.unpacked_bytes))
        limit_memory(setup.memory_bytes)
        wire.send(channel, wire.Ready(confined))
        while True:
            question, (source, columns) = wire.receive_with_files(channel, Question, count=2)
            wire.send(channel, answer(source, columns, question))
    except (EOFError, ConnectionError):
        os._exit(0)  # The service is gone.
    except MemoryError:
        os._exit(1)  # The service reports it, and starts another.


if __name__ == "__main__":
    main()
