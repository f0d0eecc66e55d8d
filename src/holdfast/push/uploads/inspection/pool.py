"""Inspecting uploaded files in processes of their own: the service's side of `process`."""

import time
from collections.abc import Callable
from typing import BinaryIO

from holdfast.errors import Conflict, InvalidRequest
from holdfast.push.queries.engine import Cancellation
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.processes import ProcessPool
from holdfast.push.uploads.archives import ArchiveLimits, RoomNeeded
from holdfast.push.uploads.inspection.inspect import InspectedSegment, Question
from holdfast.push.uploads.inspection.process import Inspection, Setup

Inspect = Callable[[BinaryIO, BinaryIO, Question], list[InspectedSegment]]
"""As `inspect.inspect`, which is used where no stranger uploads anything."""

_PROGRAM = "holdfast.push.uploads.inspection.process"
_PROCESSES = 2
_MEMORY_BYTES = 512 << 20
_WITHIN_S = 10.0
_BYTES_A_SECOND = 20 << 20
"""Of the file as it was sent, at least, beyond those seconds."""
_WAIT_S = 60.0
_ANYTHING = ("",)


class InspectionPool:
    """Processes that inspect uploads. Every method may be called from any thread."""

    def __init__(self, limits: ArchiveLimits, *, within_s: float = _WITHIN_S) -> None:
        self._processes = ProcessPool(_PROGRAM, Setup(_MEMORY_BYTES, limits.expanded_bytes), _PROCESSES)
        self._within_s = within_s

    def start(self) -> None:
        self._processes.start()

    @property
    def pids(self) -> tuple[int, ...]:
        return self._processes.pids

    def close(self) -> None:
        self._processes.close()

    def inspect(self, source: BinaryIO, columns: BinaryIO, question: Question) -> list[InspectedSegment]:
        """As `inspect.inspect`, within bounds of memory and time."""
        never = Cancellation()
        try:
            process = self._processes.take(
                _ANYTHING, deadline_s=time.monotonic() + _WAIT_S, cancellation=never
            )
        except QueryFailed as failed:
            raise Conflict("other uploads are being looked at", hint="try again in a minute") from failed
        size = source.seek(0, 2)
        source.seek(0)
        is_reusable = False
        try:
            within_s = self._within_s + size / _BYTES_A_SECOND
            reply, _ = process.ask(
                question,
                Inspection,
                deadline_s=time.monotonic() + within_s,
                cancellation=never,
                files=(source.fileno(), columns.fileno()),
            )
            is_reusable = True
        except QueryFailed as failed:
            raise _too_much(failed, within_s) from failed
        finally:
            if is_reusable:
                self._processes.give_back(process)
            else:
                self._processes.replace(process)
        if reply.refusal is not None:
            raise InvalidRequest(reply.refusal.message, hint=reply.refusal.hint, **reply.refusal.facts)
        if reply.room_needed is not None:
            raise RoomNeeded(reply.room_needed)
        assert reply.found is not None
        return reply.found


def _too_much(failed: QueryFailed, within_s: float) -> InvalidRequest:
    if failed.code is QueryError.EXECUTION_TIMEOUT:
        return InvalidRequest(
            "the file takes too long to look at", limit_seconds=round(within_s), code="INVALID_SEGMENT"
        )
    return InvalidRequest(
        "the file takes too much memory to look at", limit_bytes=_MEMORY_BYTES, code="INVALID_SEGMENT"
    )
