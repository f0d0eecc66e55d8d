"""Which lock a table is written under.

Two writers with different locks exclude each other as little as two without
any, and nobody would notice. So the first one records its lock beside the
table, and every later one must have the same.
"""

import msgspec

from holdfast.config.locks import LockProvider, LockSettings
from holdfast.errors import InvalidOption, TableDamaged
from holdfast.storage.store import Store, read_or_none

IDENTITY_FILE = ".hoodie/.aux/lock_identity.json"

_RESET = f"to change the lock, stop all writers and delete {IDENTITY_FILE}"


class LockIdentity(msgspec.Struct, frozen=True):
    provider: LockProvider
    place: str
    settings: LockSettings | None = None
    """How the first writer opened it, so that those can who take commits back; not part of the identity."""

    def __str__(self) -> str:
        return f"{self.provider} at {self.place}"

    def is_same(self, other: "LockIdentity") -> bool:
        return (self.provider, self.place) == (other.provider, other.place)


def check_identity(store: Store, identity: LockIdentity | None) -> None:
    """Refuse a lock other than the table's, or none where it has one; record it if it is the first."""
    if identity is not None and store.create(IDENTITY_FILE, msgspec.json.encode(identity)):
        return
    recorded = recorded_identity(store)
    if recorded is None:
        return
    if identity is None:
        raise InvalidOption(
            "the table is written under a lock, and no lock provider is set",
            lock=recorded,
            hint=f"set hoodie.write.lock.provider; {_RESET}",
        )
    if not recorded.is_same(identity):
        raise InvalidOption(
            "the table is written under another lock", lock=recorded, given=identity, hint=f"use it; {_RESET}"
        )


def recorded_identity(store: Store) -> LockIdentity | None:
    """The lock the table is written under; None if nobody has recorded one."""
    content = read_or_none(store, IDENTITY_FILE)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=LockIdentity)
    except msgspec.MsgspecError as error:
        raise TableDamaged(
            "the record of the table's lock is unreadable", file=IDENTITY_FILE, hint=_RESET
        ) from error
