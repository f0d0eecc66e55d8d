"""The lock file of Hudi's `FileSystemBasedLockProvider`: it is held while the file is there.

Hudi looks at the file's presence and time alone, so its content is Holdfast's
own: who holds it.
"""

from dataclasses import dataclass

import msgspec

from holdfast.concurrency.locks.lease import Lease
from holdfast.concurrency.storage_clock import StorageClock
from holdfast.host import Owner
from holdfast.storage.store import Store

FILE_NAME = "lock"

_RENEW_EVERY_MS = 6_000
"""Ten times within the shortest time, a minute, after which another writer's settings let it expire."""


class _Claim(msgspec.Struct, frozen=True):
    owner: Owner
    sequence: int


@dataclass(frozen=True, slots=True)
class FileForm:
    path: str
    valid_for_ms: int | None = None
    renew_every_ms: int = _RENEW_EVERY_MS

    def claim(self, owner: Owner, sequence: int, storage_clock: StorageClock) -> bytes:
        return msgspec.json.encode(_Claim(owner, sequence))

    def read(self, content: bytes) -> Lease:
        try:
            owner = msgspec.json.decode(content, type=_Claim).owner
        except msgspec.MsgspecError:
            return Lease("a writer that is not Holdfast's", None)
        return Lease(str(owner), owner)

    def give_back(self, store: Store, content: bytes, version: str) -> None:
        store.delete(self.path)
