"""What a lock is to those who use it.

Holdfast's own writers are safe without one, because the ledger decides. A
lock keeps *foreign* writers out, who do not know the ledger, and spares
Holdfast's writers some retries.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from holdfast.errors import Fenced, LockTimeout


class Hold(Protocol):
    """A lock while it is held."""

    def refuse_if_lost(self) -> None:
        """Raise `Fenced` unless the lock is certainly still held."""


class Lock(Protocol):
    """Implementations keep these promises:

    1. At most one hold exists at a time, among all who use the same lock, while
       no hold is paused for longer than its lock is valid.
    2. A hold whose process died ends by itself, where the lock can expire.
    3. Ending a hold never ends another's.
    4. A hold that was lost is logged once as `lock.lost`. Only `refuse_if_lost`
       raises because of it.
    """

    def hold(self) -> AbstractContextManager[Hold]:
        """Hold the lock while the block runs. `LockTimeout` if it is not granted in time."""


class _NoLock:
    @contextmanager
    def hold(self) -> Iterator[Hold]:
        yield self

    def refuse_if_lost(self) -> None:
        """There is nothing to lose."""


NO_LOCK: Lock = _NoLock()
"""Keeps nobody out."""


def lock_timeout(place: str, *, holder: str, age_ms: int | None, waited_ms: int, hint: str) -> LockTimeout:
    age = {} if age_ms is None else {"age_ms": age_ms}
    return LockTimeout(
        "the lock was not granted in time", lock=place, holder=holder, **age, waited_ms=waited_ms, hint=hint
    )


def lock_loss(place: str) -> Fenced:
    return Fenced(
        "the lock was lost while it was held", lock=place, hint="nothing was decided; repeat the operation"
    )
