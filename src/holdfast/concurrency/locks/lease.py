"""A lock that is a small file: taken by creating it or by replacing a free one, renewed while held.

Either way of taking it succeeds for one writer only, because the store grants
`create` once per path and `replace` once per version. What the file looks like
and when it is free is the provider's `LeaseForm`.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from holdfast.clock import Clock
from holdfast.concurrency.locks.lock import Hold, lock_loss, lock_timeout
from holdfast.concurrency.storage_clock import StorageClock
from holdfast.errors import HoldfastError, LockTimeout
from holdfast.host import Host, Liveness, Owner, heartbeat_thread
from holdfast.storage.store import Store

DRIFT_MS = 500
"""How far clocks may differ without a lock being taken for expired while it is held."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """What a lock file says."""

    holder: str
    owner: Owner | None
    """None if the holder is not a Holdfast writer."""
    is_released: bool = False
    until_ms: int | None = None
    """When it ends on the storage's clock; None if that follows from the time of the file."""


class LeaseForm(Protocol):
    """The lock file of one provider."""

    @property
    def path(self) -> str: ...

    @property
    def valid_for_ms(self) -> int | None:
        """How long a lock is valid without being renewed; None if for ever."""

    @property
    def renew_every_ms(self) -> int: ...

    def claim(self, owner: Owner, sequence: int, storage_clock: StorageClock) -> bytes:
        """What the owner writes to take or renew the lock; it differs from all that was ever written."""

    def read(self, content: bytes) -> Lease: ...

    def give_back(self, store: Store, content: bytes, version: str) -> None:
        """Free the lock; `content` is the owner's own, as it was just read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWait:
    """How long to wait for a lock, and how often to look."""

    total_ms: int
    pause_ms: int
    pause_ms_max: int
    report_every_ms: int
    wait: Callable[[float], None] = time.sleep


class LeaseLock:
    def __init__(
        self,
        store: Store,
        form: LeaseForm,
        *,
        place: str,
        clock: Clock,
        host: Host,
        patience: LockWait,
        table: str = "",
    ) -> None:
        """`table` is what log lines call the table that the lock is of."""
        self._store = store
        self._form = form
        self._place = place
        self._clock = clock
        self._host = host
        self._patience = patience
        self._table = table

    @contextmanager
    def hold(self) -> Iterator[Hold]:
        contender = _Contender(
            self._store,
            self._form,
            place=self._place,
            clock=self._clock,
            host=self._host,
            table=self._table,
        )
        # While its thread runs, an owner of this process counts as alive, and nobody takes what it
        # created; so the thread starts first and stops last.
        timer = self._clock.every_ms(
            self._form.renew_every_ms, contender.renew_or_log, name=heartbeat_thread(contender.owner.token)
        )
        try:
            contender.acquire(self._patience)
            yield contender
        finally:
            contender.release()
            timer.stop()


class _Contender:
    """One owner that wants the lock, then has it; the thread that renews it knows nobody else."""

    def __init__(
        self, store: Store, form: LeaseForm, *, place: str, clock: Clock, host: Host, table: str
    ) -> None:
        self.owner = host.owner(clock.unique())
        self._store = store
        self._form = form
        self._place = place
        self._clock = clock
        self._host = host
        self._table = table
        self._storage_clock = StorageClock(store, clock)
        self._guard = threading.Lock()
        self._sequence = 0
        self._renewed_at = 0
        self._is_held = False
        self._is_lost = False

    def acquire(self, patience: LockWait) -> None:
        started = reported = self._clock.monotonic_ms()
        pause_ms = patience.pause_ms
        seen: bytes | None = None
        while True:
            content, version = self._read()
            if self._is_free(content, is_known=content == seen) and self._take(version):
                return
            now = self._clock.monotonic_ms()
            left_ms = started + patience.total_ms - now
            if left_ms <= 0:
                raise self._timeout(content, waited_ms=now - started)
            if now - reported >= patience.report_every_ms:
                reported = now
                log.warning(
                    "lock.waiting",
                    extra={"table": self._table, "lock": self._place, "waited_ms": now - started},
                )
            # A lock that changes hands is worth asking for soon again.
            pause_ms = min(pause_ms * 2, patience.pause_ms_max) if content == seen else patience.pause_ms
            seen = content
            patience.wait(min(pause_ms * self._chance(), left_ms) / 1000)

    def renew_or_log(self) -> None:
        # A renewal that fails must not end the renewing: the next one may succeed.
        with self._guard:
            if not self._is_held or self._is_lost:
                return
            try:
                content, version = self._read()
                if not (self._is_own(content) and self._take(version)):
                    self._lose()
            except HoldfastError as error:
                log.warning(
                    "lock.not_renewed", extra={"table": self._table, "lock": self._place, "cause": str(error)}
                )

    def refuse_if_lost(self) -> None:
        with self._guard:
            valid_for_ms = self._form.valid_for_ms
            is_over = valid_for_ms is not None and self._is_silent_for(valid_for_ms - DRIFT_MS)
            if not self._is_lost and (is_over or not self._is_own(self._read()[0])):
                self._lose()
            if self._is_lost:
                raise lock_loss(self._place)

    def release(self) -> None:
        """Give back what is still held. A failure is only logged: the work under the lock is done."""
        with self._guard:
            was_held = self._is_held and not self._is_lost
            try:
                # Also when it is not known to be held: a create that failed may have taken effect.
                if not self._give_back() and was_held:
                    self._lose()
            except HoldfastError as error:
                log.warning(
                    "lock.not_released",
                    extra={"table": self._table, "lock": self._place, "cause": str(error)},
                )
            finally:
                self._is_held = False

    def _read(self) -> tuple[bytes | None, str]:
        try:
            return self._store.read_version(self._form.path)
        except FileNotFoundError:
            return None, ""

    def _is_own(self, content: bytes | None) -> bool:
        return content is not None and self._form.read(content).owner == self.owner

    def _is_free(self, content: bytes | None, *, is_known: bool) -> bool:
        if content is None:
            return True
        lease = self._form.read(content)
        if lease.is_released or (lease.owner and self._host.liveness(lease.owner) is Liveness.GONE):
            return True
        # Asking for the storage's time costs a write: a lock just met is given the time to be given back.
        return is_known and self._is_expired(lease)

    def _is_expired(self, lease: Lease) -> bool:
        until_ms = lease.until_ms
        if until_ms is None:
            file = self._store.stat(self._form.path)
            if self._form.valid_for_ms is None or file is None:
                return False
            until_ms = file.modified_ms + self._form.valid_for_ms
        return self._storage_clock.now_ms() > until_ms + DRIFT_MS

    def _take(self, version: str) -> bool:
        """Write the own claim over the version just read, or where nothing was; whether it stands."""
        asked_at = self._clock.monotonic_ms()
        claim = self._form.claim(self.owner, self._sequence, self._storage_clock)
        self._sequence += 1
        if version:
            is_taken = self._store.replace(self._form.path, claim, version)
        else:
            is_taken = self._store.create(self._form.path, claim)
        # An object store may deny one's own success, when the client repeated the request.
        if is_taken or self._read()[0] == claim:
            self._is_held, self._renewed_at = True, asked_at
            return True
        return False

    def _is_silent_for(self, limit_ms: int) -> bool:
        return self._clock.monotonic_ms() - self._renewed_at >= limit_ms

    def _give_back(self) -> bool:
        content, version = self._read()
        if (
            self._is_own(content)
            and self._form.valid_for_ms
            and self._is_silent_for(self._form.valid_for_ms // 2)
        ):
            # Others may soon take it as expired. Whoever wins the file again may safely remove it.
            self._take(version)
            content, version = self._read()
        if content is None or not self._is_own(content):
            return False
        self._form.give_back(self._store, content, version)
        return True

    def _lose(self) -> None:
        self._is_lost = True
        log.warning("lock.lost", extra={"table": self._table, "lock": self._place, "owner": str(self.owner)})

    def _chance(self) -> float:
        """Between a half and one, so that writers that met once do not meet for ever."""
        return 0.5 + int(self._clock.unique()[-8:], 16) / (1 << 33)

    def _timeout(self, content: bytes | None, *, waited_ms: int) -> LockTimeout:
        file = self._store.stat(self._form.path)
        return lock_timeout(
            self._place,
            holder=self._form.read(content).holder if content is not None else "another writer",
            age_ms=self._storage_clock.now_ms() - file.modified_ms if file else None,
            waited_ms=waited_ms,
            hint=f"repeat the call later; if the holder is gone for good, delete {self._place}",
        )
