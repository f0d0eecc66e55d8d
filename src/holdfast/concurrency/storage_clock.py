"""The time of the storage, on which all processes agree: that of a file written there just now."""

from holdfast.clock import Clock
from holdfast.errors import StorageUnavailable
from holdfast.model.names import CLOCK_FILE
from holdfast.storage.store import Store

_ATTEMPTS = 10
_IS_GOOD_FOR_MS = 60_000


def storage_now_ms(store: Store) -> int:
    """What time it is for storage. Costs a write."""
    for _ in range(_ATTEMPTS):
        store.put(CLOCK_FILE, b"")
        written = store.stat(CLOCK_FILE)
        # None if another process, asking too, has just deleted it.
        if written is not None:
            store.delete(CLOCK_FILE)
            return written.modified_ms
    raise StorageUnavailable("a file that was just written keeps vanishing", file=CLOCK_FILE)


class StorageClock:
    """For callers that ask often: storage is asked once a minute, and this machine counts in between."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._measured: tuple[int, int] | None = None

    def now_ms(self) -> int:
        elapsed = self._clock.monotonic_ms()
        if self._measured is None or elapsed - self._measured[1] > _IS_GOOD_FOR_MS:
            self._measured = (storage_now_ms(self._store), elapsed)
        measured, at = self._measured
        return measured + elapsed - at
