"""Ledger entries as bytes: a digest, one line of facts, and a payload.

    <sha256 of all that follows, hexadecimal>
    {"slot": 7, "kind": "COMMIT", ...}
    <payload, possibly empty>

The digest makes a torn or damaged entry impossible to mistake for a whole
one, and each entry names its predecessor's digest, so the entries form a chain.
"""

import hashlib
from enum import StrEnum
from typing import TypeVar

import msgspec

from holdfast.format.malformed import Malformed
from holdfast.host import Owner
from holdfast.model.instant import Action, InstantTime

T = TypeVar("T")

_DIGEST_CHARS = 64


class EntryKind(StrEnum):
    BEGIN = "BEGIN"
    COMMIT = "COMMIT"
    ABORT = "ABORT"
    REVOKE = "REVOKE"
    SAVEPOINT = "SAVEPOINT"
    RELEASE = "RELEASE"
    CLEAN = "CLEAN"
    ARCHIVE = "ARCHIVE"
    LEASE = "LEASE"
    CREATE = "CREATE"
    DROP = "DROP"


class Revoked(msgspec.Struct, frozen=True):
    """An instant that a REVOKE takes back, committed or not, and the rollback that removes its traces."""

    instant: InstantTime
    action: Action
    rollback: InstantTime


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision of the table's history, in the slot it was created in."""

    slot: int
    previous: str
    kind: EntryKind
    token: str
    """Unique per attempt to append, so that an appender recognises its own entry."""
    instant: InstantTime
    action: Action
    written_at_ms: int
    """For people. Never compared."""
    owner: Owner | None = None
    operation: str = ""
    shared: bool = False
    """BEGIN: whether the writer admits others at the same time."""
    rollback: InstantTime | None = None
    """ABORT: the instant of the rollback that removes the traces; the same for every process that does it."""
    revoked: tuple[Revoked, ...] = ()
    """REVOKE: what is taken back. The entry's own instant is a restore's or, for one commit, a rollback's."""
    restored_to: InstantTime | None = None
    """REVOKE by a restore: the commit that is the newest one afterwards."""
    copied: bool = False
    """REVOKE by a repair that found the ledger newer than the timeline: what it said beyond that is void."""
    archived: InstantTime | None = None
    """The same: the newest commit that has left the timeline, as far as the archives tell."""
    released: tuple[InstantTime, ...] = ()
    """The same: savepoints that the timeline does not show."""
    earliest: InstantTime | None = None
    """CLEAN: the earliest commit that it leaves whole; None if the policy does not go by commits."""
    through: InstantTime | None = None
    """ARCHIVE: the newest rollback or clean that goes, where it is younger than all commits that do.

    REVOKE by a repair of a copy: the newest one that the archives have.
    """
    reason: str = ""
    properties: dict[str, str] | None = None
    """COMMIT of the write that a table comes to be with: the properties it gets."""
    application: str = ""
    """COMMIT: who numbers its writes, if somebody does."""
    number: int = 0
    """The number of this one."""
    zone: str = ""
    """The time zone of the table's instants from here on, in the first entry of a table in local time."""
    lock: str | None = None
    """The lock the table is written under from here on; empty if none, None if that is as before."""


def encode_entry(entry: Entry, payload: bytes = b"") -> bytes:
    body = msgspec.json.encode(entry) + b"\n" + payload
    return _digest(body).encode() + b"\n" + body


def decode_entry(content: bytes) -> tuple[Entry, bytes, str]:
    """The entry, its payload and its digest."""
    stated = content[:_DIGEST_CHARS].decode("ascii", "replace")
    body = content[_DIGEST_CHARS + 1 :]
    if content[_DIGEST_CHARS : _DIGEST_CHARS + 1] != b"\n" or _digest(body) != stated:
        raise Malformed("ledger entry does not match its digest")
    header, _, payload = body.partition(b"\n")
    try:
        return msgspec.json.decode(header, type=Entry), payload, stated
    except msgspec.DecodeError as error:
        raise Malformed(f"ledger entry: {error}") from None


def digest_of(content: bytes) -> str:
    """The digest an encoded entry begins with."""
    return content[:_DIGEST_CHARS].decode("ascii")


def encode_checkpoint(state: object) -> bytes:
    body = msgspec.json.encode(state)
    return _digest(body).encode() + b"\n" + body


def decode_checkpoint(content: bytes, kind: type[T]) -> T:
    body = content[_DIGEST_CHARS + 1 :]
    if _digest(body).encode() != content[:_DIGEST_CHARS]:
        raise Malformed("ledger checkpoint does not match its digest")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Malformed(f"ledger checkpoint: {error}") from None


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
