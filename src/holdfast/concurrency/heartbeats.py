"""Heartbeats: a sign of life for every running write.

A heartbeat says only when it is worth asking whether a writer is gone. It
never decides that: the ledger does.
"""

import logging
from types import TracebackType
from typing import Self

import msgspec

from holdfast.clock import Timer
from holdfast.errors import HoldfastError
from holdfast.host import Owner, heartbeat_thread
from holdfast.model.instant import InstantTime
from holdfast.model.names import heartbeat_path
from holdfast.table.opened import OpenTable

log = logging.getLogger(__name__)


class Beat(msgspec.Struct, frozen=True):
    """The content of a heartbeat file, for people and tools; a reader judges by its age."""

    owner: Owner
    sequence: int
    interval_ms: int


class Heartbeat:
    """Beats for one write while its block runs.

    The block begins before the write has an instant: while its thread runs,
    this process counts as alive. The file stays; whoever decides the instant
    removes it.
    """

    def __init__(self, table: OpenTable, owner: Owner, *, interval_ms: int) -> None:
        self._store = table.store
        self._clock = table.clock
        self._owner = owner
        self._interval_ms = interval_ms
        self._path: str | None = None
        self._sequence = 0
        self._timer: Timer | None = None

    def __enter__(self) -> Self:
        self._timer = self._clock.every_ms(
            self._interval_ms, self._beat_or_log, name=heartbeat_thread(self._owner.token)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def beat_for(self, instant: InstantTime) -> None:
        """Make the first beat here and now: no instant is ever seen without a heartbeat."""
        self._beat(heartbeat_path(instant))
        self._path = heartbeat_path(instant)

    def stop(self) -> None:
        """Beat no more; when this returns, no beat is under way."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _beat(self, path: str) -> None:
        beat = Beat(self._owner, self._sequence, self._interval_ms)
        self._store.put(path, msgspec.json.encode(beat))
        self._sequence += 1

    def _beat_or_log(self) -> None:
        # A beat that fails must not end the beating: the next one may succeed.
        if self._path is None:
            return
        try:
            self._beat(self._path)
        except HoldfastError as error:
            log.warning("heartbeat.missed", extra={"file": self._path, "cause": str(error)})
