"""One worker: a process that runs one query at a time.

Three walls stand around a query. The broker only sends statements that it
wrote itself from an admitted tree. DuckDB is locked: no settings, no
extensions, no files beside the segments of the query, and nothing left behind
for the next one (`instances`). And the process may write nothing and connect to
nothing (`confine`). Where the kernel does not help with the last, segments are
handed over as Arrow datasets and DuckDB may open no file at all, which is
slower.
"""

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable

from holdfast.push.queries import wire
from holdfast.push.queries.confine import confine, limit_files, limit_memory

_INTERRUPT_EVERY_S = 0.05
_QUIET_S = 0.02
_STACK_BYTES = 8 << 20
"""Of a thread; it counts as memory of the process, whether it is used or not."""


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    control = socket.socket(fileno=int(sys.argv[2]))
    try:
        setup, _ = wire.receive(channel, wire.Setup)
    except (EOFError, ConnectionError):
        return  # The broker ended while this process started.
    # Before anything starts a thread: the restriction binds only later ones.
    confined = setup.confine and confine(setup.readable, network=setup.network)
    _serve(channel, control, setup, confined=confined)


def _serve(channel: socket.socket, control: socket.socket, setup: wire.Setup, *, confined: bool) -> None:
    # DuckDB and Arrow start threads, so they are loaded only now.
    from holdfast.push.queries.duck import Runner
    from holdfast.push.queries.instances import INSTANCES_MAX
    from holdfast.push.queries.segment_files import open_segments

    runner = Runner(open_segments(setup, native=confined and not setup.network), setup)
    limit_files()
    limit_memory(setup.memory_bytes * 2 + INSTANCES_MAX * setup.threads * _STACK_BYTES)
    threading.Thread(target=_obey, args=(control, runner.interrupt), daemon=True).start()
    try:
        wire.send(channel, wire.Ready(confined))
        while True:
            task, _ = wire.receive(channel, wire.Task)
            failure, body = runner.run(task)
            wire.send(channel, wire.Answer(task.number, failure), body)
            if not _is_asked_again(channel):
                runner.prepare()
    except (EOFError, ConnectionError):
        os._exit(0)  # At once, as `_obey` does: whichever of the two notices first that the broker is gone.


def _is_asked_again(channel: socket.socket) -> bool:
    """Whether the next query comes at once. It should not wait for what can be done later."""
    readable, _, _ = select.select([channel], [], [], _QUIET_S)
    return bool(readable)


def _obey(control: socket.socket, interrupt: Callable[[int], bool]) -> None:
    """Stop a task when told to, and end when the broker is gone."""
    while True:
        try:
            order = control.recv(wire.INTERRUPT.size, socket.MSG_WAITALL)
        except OSError:
            order = b""
        if len(order) < wire.INTERRUPT.size:
            os._exit(0)
        (number,) = wire.INTERRUPT.unpack(order)
        # An interrupt before the statement began would be lost, so it is repeated.
        while interrupt(number):
            time.sleep(_INTERRUPT_EVERY_S)


if __name__ == "__main__":
    main()
