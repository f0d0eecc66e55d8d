"""Heartbeats: a sign of life for every running write.

A heartbeat says only when it is worth asking whether a writer is gone. It
never decides that: the ledger does. Its age is measured on storage's clock
alone, so that nobody's wrong clock takes a healthy writer for a dead one.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self

import msgspec

from holdfast.clock import Timer
from holdfast.concurrency.storage_clock import storage_now_ms
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS
from holdfast.errors import Fenced
from holdfast.host import Host, Liveness, Owner, heartbeat_thread
from holdfast.model.instant import InstantTime, instant_time
from holdfast.model.names import HEARTBEAT_FOLDER, heartbeat_path
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable
from holdfast.timeline.ledger import Aborted, Ledger

log = logging.getLogger(__name__)

_TICKS = 4
"""How often in an interval a writer looks after its heartbeat."""
_WORKERS_MAX = 8
_STOP_MS = 5_000
_RUN_AGAIN = "nothing of it is visible; run the write again"


class Beat(msgspec.Struct, frozen=True):
    """The content of a heartbeat file; the file's age is what counts."""

    owner: Owner | None
    sequence: int
    """How many beats came before; -1 if somebody else made the file, because there was none."""
    interval_ms: int
    misses: int

    @property
    def timeout_ms(self) -> int:
        return self.interval_ms * self.misses


def decode_beat(content: bytes) -> Beat | None:
    """What a heartbeat file says; None if another program wrote it, which says nothing."""
    try:
        return msgspec.json.decode(content, type=Beat)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class Heartbeat:
    """Beats for one write while its block runs.

    The block begins before the write has an instant: while its thread runs,
    this process counts as alive. The file stays; whoever decides the instant
    removes it.

    The thread never waits for storage: each beat and each question to the
    ledger has a worker of its own, and one that hangs delays no other. The
    write is lost when the ledger says so, or, where heartbeats can expire, when
    no beat has succeeded for as long as others wait before they take the writer
    for dead. From then on
    there are no beats, and `on_lost` is called in the background at every tick
    until the block ends: work that is between two jobs misses the first call.
    """

    def __init__(
        self,
        table: OpenTable,
        owner: Owner,
        *,
        interval_ms: int,
        misses: int,
        on_lost: Callable[[], None],
        expires: bool = True,
    ) -> None:
        """`expires`: whether others may take the writer for dead because of its heartbeat alone."""
        self._store = table.store
        self._clock = table.clock
        # One of its own: the write's is not made for two threads.
        self._ledger = Ledger(table.store, table.clock)
        self._owner = owner
        self._interval_ms = interval_ms
        self._misses = misses
        self._on_lost = on_lost
        self._expires = expires
        self._instant: InstantTime | None = None
        self._sequence = itertools.count()
        self._lock = threading.Lock()
        self._beaten_ms = 0
        self._lost: Fenced | None = None
        self._is_stopped = False
        self._timer: Timer | None = None
        self._workers: list[threading.Thread] = []
        self._worker_began_ms = 0
        self._canceller: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._timer = self._clock.every_ms(
            self._tick_ms, self._tick, name=heartbeat_thread(self._owner.token)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def beat_for(self, instant: InstantTime) -> None:
        """Make the first beat here and now: no instant is ever seen without a heartbeat."""
        self._beat(instant)
        self._instant = instant

    def refuse_if_lost(self) -> None:
        """`Fenced` if the write has lost its right to commit."""
        if self._lost is not None:
            raise self._lost

    def stop(self) -> None:
        """Beat no more, and wait a little for a beat under way.

        One that hangs may still come later; the file it leaves is swept.
        """
        self._is_stopped = True
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        # Those before the newest hang already.
        for worker in self._workers[-1:]:
            worker.join(min(self._tick_ms, _STOP_MS) / 1000)
        self._workers = []

    @property
    def _tick_ms(self) -> int:
        return self._interval_ms // _TICKS

    def _tick(self) -> None:
        """Start what is to be done now, and wait for nothing."""
        if self._instant is None:
            return
        now_ms = self._clock.monotonic_ms()
        if self._expires:
            self._lose_if_expired(self._instant, now_ms)
        if self._lost is None:
            self._tend(now_ms)
        elif self._canceller is None or not self._canceller.is_alive():
            self._canceller = self._start_worker(self._on_lost)

    def _tend(self, now_ms: int) -> None:
        """Start a worker, unless the newest still has time or too many hang."""
        if self._workers and self._workers[-1].is_alive():
            # A worker has one whole tick. That it hangs is found out at the next, within half an interval.
            if now_ms - self._worker_began_ms < self._tick_ms:
                return
            self._log_missed("storage does not answer")
        self._workers = [worker for worker in self._workers if worker.is_alive()]
        if len(self._workers) < _WORKERS_MAX:
            self._worker_began_ms = now_ms
            self._workers.append(self._start_worker(self._beat_if_due, self._ask_ledger))

    def _start_worker(self, *steps: Callable[[], None]) -> threading.Thread:
        name = f"holdfast-beat-{self._owner.token}"
        worker = threading.Thread(target=self._work, args=steps, name=name, daemon=True)
        worker.start()
        return worker

    def _work(self, *steps: Callable[[], None]) -> None:
        for step in steps:
            try:
                step()
            except Exception as error:  # noqa: BLE001  # whatever it was, the next tick tries again
                self._log_missed(error)

    def _beat_if_due(self) -> None:
        """Beat if the next tick would be too late. With one tolerable miss, twice in an interval."""
        pace_ms = min(self._interval_ms, self._interval_ms * self._misses // 2)
        age_ms = self._clock.monotonic_ms() - self._beaten_ms
        if self._instant is not None and not self._is_stopped and age_ms + self._tick_ms > pace_ms:
            self._beat(self._instant)

    def _beat(self, instant: InstantTime) -> None:
        began_ms = self._clock.monotonic_ms()
        beat = Beat(self._owner, next(self._sequence), self._interval_ms, self._misses)
        self._store.put(heartbeat_path(instant), msgspec.json.encode(beat))
        with self._lock:
            self._beaten_ms = max(self._beaten_ms, began_ms)

    def _ask_ledger(self) -> None:
        aborted = None if self._instant is None else _find_abort(self._ledger, self._instant)
        if aborted is not None:
            self._lose(
                Fenced(
                    "this write was rolled back by another process",
                    instant=self._instant,
                    reason=aborted.reason,
                    hint=_RUN_AGAIN,
                )
            )

    def _lose_if_expired(self, instant: InstantTime, now_ms: int) -> None:
        age_ms = now_ms - self._beaten_ms
        timeout_ms = self._interval_ms * self._misses
        if age_ms > timeout_ms:
            self._lose(
                Fenced(
                    "the heartbeat of this write has expired",
                    instant=instant,
                    age_ms=age_ms,
                    timeout_ms=timeout_ms,
                    hint=f"the process was suspended, or storage did not answer; {_RUN_AGAIN}",
                )
            )

    def _lose(self, reason: Fenced) -> None:
        with self._lock:
            is_known = self._lost is not None
            self._lost = self._lost or reason
        if not is_known:
            log.warning(
                "heartbeat.lost",
                extra={"table": self._store.uri(""), "instant": self._instant, "cause": str(reason)},
            )

    def _log_missed(self, cause: object) -> None:
        log.warning(
            "heartbeat.missed",
            extra={"table": self._store.uri(""), "instant": self._instant, "cause": str(cause)},
        )


class HeartbeatState(StrEnum):
    ALIVE = "alive"
    EXPIRED = "expired"
    """No beat for too long, or the process is certainly gone."""
    MISSING = "missing"
    """There is no heartbeat, which proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatStatus:
    instant: InstantTime
    owner: Owner | None
    """None if another program began the write."""
    age_ms: int | None
    state: HeartbeatState
    sequence: int | None


def judge(
    table: OpenTable, suspects: Mapping[InstantTime, Owner | None], *, timeout_ms: int
) -> dict[InstantTime, HeartbeatStatus]:
    """As `look_at`. A heartbeat that is missing is made, for this writer or nobody, and ages from now on."""
    judged = look_at(table, suspects, timeout_ms=timeout_ms)
    for status in judged.values():
        if status.state is HeartbeatState.MISSING:
            placeholder = Beat(status.owner, sequence=-1, interval_ms=0, misses=0)
            table.store.create(heartbeat_path(status.instant), msgspec.json.encode(placeholder))
    return judged


def look_at(
    table: OpenTable, suspects: Mapping[InstantTime, Owner | None], *, timeout_ms: int
) -> dict[InstantTime, HeartbeatStatus]:
    """Whether the writers of undecided instants are gone, as far as heartbeats tell. Changes nothing.

    A heartbeat expires when it is older than `timeout_ms` and older than its
    writer allows, by the storage's clock.
    """
    if not suspects:
        return {}
    now_ms = storage_now_ms(table.store)
    found = _read_beats(table.store, suspects)
    return {
        time: _status(table.host, time, owner, found.get(time), now_ms=now_ms, timeout_ms=timeout_ms)
        for time, owner in suspects.items()
    }


def heartbeats(table: OpenTable) -> list[HeartbeatStatus]:
    """Every heartbeat, and every undecided instant without one, oldest first. Changes nothing.

    For people: ages are measured on this machine's clock.
    """
    owners: dict[InstantTime, Owner | None] = {
        time: begun.owner for time, begun in table.ledger.read().begun.items()
    }
    found = _read_beats(table.store, None)
    now_ms, timeout_ms = table.clock.now_ms(), HEARTBEAT_TIMEOUT_MS
    return [
        _status(table.host, time, owners.get(time), found.get(time), now_ms=now_ms, timeout_ms=timeout_ms)
        for time in sorted({*owners, *found})
    ]


@dataclass(frozen=True, slots=True)
class _Found:
    modified_ms: int
    beat: Beat | None


def _status(
    host: Host,
    time: InstantTime,
    owner: Owner | None,
    found: _Found | None,
    *,
    now_ms: int,
    timeout_ms: int,
) -> HeartbeatStatus:
    beat = None if found is None else found.beat
    owner = owner or (None if beat is None else beat.owner)
    age_ms = None if found is None else max(0, now_ms - found.modified_ms)
    tolerated_ms = timeout_ms if beat is None else max(timeout_ms, beat.timeout_ms)
    if owner is not None and host.liveness(owner) is Liveness.GONE:
        state = HeartbeatState.EXPIRED
    elif age_ms is None:
        state = HeartbeatState.MISSING
    else:
        state = HeartbeatState.EXPIRED if age_ms > tolerated_ms else HeartbeatState.ALIVE
    return HeartbeatStatus(
        instant=time,
        owner=owner,
        age_ms=age_ms,
        state=state,
        sequence=None if beat is None else beat.sequence,
    )


def _read_beats(store: Store, wanted: Iterable[InstantTime] | None) -> dict[InstantTime, _Found]:
    """The heartbeats in storage of the wanted instants, or all."""
    names = None if wanted is None else frozenset(wanted)
    files = [
        (time, file)
        for file in store.folder(HEARTBEAT_FOLDER).files
        if (time := _instant_of(file.path)) is not None and (names is None or time in names)
    ]
    contents = store.read_all([file.path for _, file in files])
    return {
        time: _Found(file.modified_ms, None if content is None else decode_beat(content))
        for (time, file), content in zip(files, contents, strict=True)
    }


def _instant_of(path: str) -> InstantTime | None:
    """The instant a heartbeat is of; None for other files, such as the checksums Hadoop leaves."""
    try:
        return instant_time(path.rpartition("/")[2])
    except ValueError:
        return None


def _find_abort(ledger: Ledger, instant: InstantTime) -> Aborted | None:
    """What the ledger says of a write that was aborted, however long ago; None if it was not."""
    state = ledger.read()
    if instant in state.begun or instant in state.committed or instant in state.aborted:
        return state.aborted.get(instant)
    return ledger.read_with_older_aborts().aborted.get(instant)
