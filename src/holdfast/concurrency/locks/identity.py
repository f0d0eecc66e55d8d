"""Which lock a table is written under.

Two writers with different locks exclude each other as little as two without
any, and nobody would notice. So the first one records its lock beside the
table, and every later one must have the same.

The ledger says it as well, with the first entry after it. So a record that is
gone is missed: whoever comes without a lock then is refused, and whoever has
the table's lock records it anew. People change the lock by a record that says
that there is none, which no damage makes of another.
"""

import msgspec

from holdfast.config.choices import LockProvider
from holdfast.config.locks import LockSettings
from holdfast.errors import InvalidOption, TableDamaged
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable
from holdfast.timeline.ledger import LedgerState

IDENTITY_FILE = ".hoodie/.aux/lock_identity.json"
RELEASED = b"null"
"""The content of the record when people have taken the table's lock from it."""

_RESET = f"to change the lock, stop all writers and write null into {IDENTITY_FILE}"
_MEND = f"delete {IDENTITY_FILE}, and the next write under the table's lock records it anew"
RECORD_ANEW = f"write once with the options of the table's lock, which records it anew; {_RESET}"


class LockIdentity(msgspec.Struct, frozen=True):
    provider: LockProvider
    place: str
    settings: LockSettings | None = None
    """How the first writer opened it, so that those can who take commits back; not part of the identity."""

    def __str__(self) -> str:
        return f"{self.provider} at {self.place}"

    def is_same(self, other: "LockIdentity") -> bool:
        return (self.provider, self.place) == (other.provider, other.place)


def check_identity(table: OpenTable, identity: LockIdentity | None) -> None:
    """Refuse a lock other than the table's, or none where it has one; record it if it is the first."""
    while not _is_settled(table, identity):
        pass  # Another writer recorded its lock just now.


def _is_settled(table: OpenTable, identity: LockIdentity | None) -> bool:
    recorded, version = _read(table.store)
    known = table.ledger.known
    # Who has read the ledger sees in it what was recorded before; reading it again would cost every write.
    decided = (known if known.slot else table.ledger.read()).lock
    if recorded is None and not version and decided:
        if identity is None:
            raise TableDamaged(
                "the table is written under a lock, and the record of it is missing",
                file=IDENTITY_FILE,
                lock=decided,
                hint=RECORD_ANEW,
            )
        if decided != str(identity):
            raise other_lock(decided, identity)
    if recorded is not None and identity is None:
        raise InvalidOption(
            "the table is written under a lock, and no lock provider is set",
            lock=recorded,
            hint=f"set hoodie.write.lock.provider; {_RESET}",
        )
    if recorded is not None and identity is not None and not recorded.is_same(identity):
        raise other_lock(str(recorded), identity)
    if recorded is None and identity is not None and not _record(table.store, identity, over=version):
        return False
    table.ledger.note_lock("" if identity is None else str(identity), over=decided)
    return True


def other_lock(lock: str, given: LockIdentity) -> InvalidOption:
    return InvalidOption(
        "the table is written under another lock", lock=lock, given=given, hint=f"use it; {_RESET}"
    )


def _record(store: Store, identity: LockIdentity, *, over: str) -> bool:
    """Record the lock where nothing is, or over the version that says there is none; whether that was so."""
    content = msgspec.json.encode(identity)
    return store.replace(IDENTITY_FILE, content, over) if over else store.create(IDENTITY_FILE, content)


def identity_in_use(table: OpenTable) -> LockIdentity | None:
    """The lock the table is written under; None if there is none. `TableDamaged` if its record is gone."""
    recorded, version = _read(table.store)
    if recorded is None and not version:
        wrong = wrong_identity(table.store, table.ledger.read())
        if wrong:
            raise TableDamaged(wrong, file=IDENTITY_FILE, hint=RECORD_ANEW)
    return recorded


def wrong_identity(store: Store, state: LedgerState) -> str:
    """What is wrong with the record, in words; nothing if it is as the ledger says, or says nothing.

    `TableDamaged` if it cannot be read.
    """
    recorded, version = _read(store)
    if recorded is not None and state.lock and str(recorded) != state.lock:
        return f"the record of the table's lock says {recorded}, and the ledger says {state.lock}"
    if recorded is None and not version and state.lock:
        return f"the record of the table's lock is missing, and the ledger says {state.lock}"
    return ""


def read_identity(store: Store) -> LockIdentity | None:
    """The lock that is recorded; None if none is, or people have said that there is none."""
    return _read(store)[0]


def _read(store: Store) -> tuple[LockIdentity | None, str]:
    """What is recorded, and the version of the record; no version if there is no record."""
    try:
        content, version = store.read_version(IDENTITY_FILE)
    except FileNotFoundError:
        return None, ""
    if content.strip() == RELEASED:
        return None, version
    try:
        return msgspec.json.decode(content, type=LockIdentity), version
    except msgspec.MsgspecError as error:
        raise TableDamaged(
            "the record of the table's lock is unreadable", file=IDENTITY_FILE, hint=f"{_MEND}; {_RESET}"
        ) from error
