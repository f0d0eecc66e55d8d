"""The lock object of Hudi's `StorageBasedLockProvider`: JSON that says who holds it and until when.

The object stays when the lock is given back. Hudi knows exactly these three
fields, so the owner is written into one of them as text.
"""

from dataclasses import dataclass

import msgspec

from holdfast.concurrency.locks.lease import Lease
from holdfast.concurrency.storage_clock import StorageClock
from holdfast.host import Owner
from holdfast.storage.store import Store

PATH = ".hoodie/.locks/table_lock.json"


class _LockObject(msgspec.Struct, frozen=True):
    expired: bool
    valid_until: int = msgspec.field(name="validUntil")
    owner: str


@dataclass(frozen=True, slots=True)
class StorageForm:
    valid_for_ms: int
    renew_every_ms: int
    path: str = PATH

    def claim(self, owner: Owner, sequence: int, storage_clock: StorageClock) -> bytes:
        until_ms = storage_clock.now_ms() + self.valid_for_ms
        return msgspec.json.encode(_LockObject(False, until_ms, _text_of(owner)))

    def read(self, content: bytes) -> Lease:
        try:
            found = msgspec.json.decode(content, type=_LockObject)
        except msgspec.MsgspecError:
            return Lease("a writer unknown, because the lock is damaged", None)
        owner = _owner_of(found.owner)
        return Lease(
            str(owner) if owner else found.owner, owner, is_released=found.expired, until_ms=found.valid_until
        )

    def give_back(self, store: Store, content: bytes, version: str) -> None:
        held = msgspec.json.decode(content, type=_LockObject)
        store.replace(self.path, msgspec.json.encode(msgspec.structs.replace(held, expired=True)), version)


def _text_of(owner: Owner) -> str:
    return "/".join((owner.host, owner.boot, str(owner.pid), owner.started, owner.namespaces, owner.token))


def _owner_of(text: str) -> Owner | None:
    parts = text.rsplit("/", 5)
    if len(parts) != 6 or not parts[2].isdecimal():
        return None
    host, boot, pid, started, namespaces, token = parts
    return Owner(host, boot, int(pid), started, token, namespaces)
