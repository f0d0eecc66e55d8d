"""The audit: who changed what in a table, as records that can only be added to.

Each record holds the digest of the one before, and the table's state holds the
digest of the newest, so a record that was changed, or left out between two
others, is noticed. Old records go from the beginning, by number and by age; up
to which number is written down before, so that no others are missed unnoticed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.errors import TableDamaged
from holdfast.push.calls import (
    Caller,
    Changes,
)
from holdfast.push.metastore.port import Create, Metastore, Remove, Replace
from holdfast.push.state.table_state import PushState

_FIRST = ""
_DIGITS = 12
_NAMES = 20
"""Names that are kept of each list, at most; their number is kept, too."""
_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    number: int
    previous: str
    """Digest of the record before it."""
    at_ms: int
    actor: str
    operation: str
    address: str = ""
    request_id: str = ""
    epoch_before: int = 0
    epoch_after: int = 0
    entries: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The state of every lineage entry that changed; empty text: it went."""
    facts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def next_record(
    push: PushState,
    changes: Changes,
    *,
    operation: str,
    by: Caller,
    at_ms: int,
    facts: Mapping[str, str] | None = None,
) -> AuditRecord:
    """The next record after what `push` knows as the newest."""
    entries = {entry.id: "" for entry in changes.entries_before}
    entries |= {entry.id: str(entry.state) for entry in changes.entries_after}
    lists = {
        name: _summarize(value)
        for name in ("shown", "hidden", "removed")
        if (value := getattr(changes, name))
    }
    return AuditRecord(
        number=push.audit_count + 1,
        previous=push.audit_head,
        at_ms=at_ms,
        actor=by.actor,
        operation=operation,
        address=by.address,
        request_id=by.request_id,
        epoch_before=changes.epoch_before,
        epoch_after=changes.epoch_after,
        entries=entries,
        facts=lists | dict(facts or {}),
    )


def audit_path(table: str) -> str:
    return f"/PROPERTYSTORE/LINEAGE_AUDIT/{table}"


def creation(table: str, record: AuditRecord) -> tuple[Create, str]:
    """The change that adds the record, and the record's digest."""
    content = msgspec.json.encode(_plain(record), order="sorted")
    path = f"{audit_path(table)}/{record.number:0{_DIGITS}}"
    return Create(path, content), sha256(content).hexdigest()


def newest_audit(metastore: Metastore, table: str) -> tuple[int, str]:
    """Number and digest of the newest record."""
    for name in reversed(metastore.children(audit_path(table))):
        versioned = metastore.read(f"{audit_path(table)}/{name}")
        if versioned is not None:
            return _decode(table, name, versioned.data).number, sha256(versioned.data).hexdigest()
    return 0, _FIRST


def read_audit(
    metastore: Metastore, table: str, *, since_ms: int = 0, limit: int = 100
) -> tuple[AuditRecord, ...]:
    """The newest records first."""
    found: list[AuditRecord] = []
    for name in reversed(metastore.children(audit_path(table))):
        versioned = metastore.read(f"{audit_path(table)}/{name}")
        if versioned is None:
            continue
        record = _decode(table, name, versioned.data)
        if record.at_ms < since_ms or len(found) >= limit:
            break
        found.append(record)
    return tuple(found)


def epoch_at(metastore: Metastore, table: str, at_ms: int, *, current: int) -> int | None:
    """The epoch that queries saw at a moment; None if the audit does not tell for certain.

    Uploads into what queries see may raise the epoch without a record: where
    two records do not join, or the newest and the `current` epoch, the time
    between them is unknown.
    """
    next_epoch = current
    for name in reversed(metastore.children(audit_path(table))):
        versioned = metastore.read(f"{audit_path(table)}/{name}")
        if versioned is None:
            return None  # Trimmed this moment, and with it everything older.
        record = _decode(table, name, versioned.data)
        if record.at_ms <= at_ms:
            return record.epoch_after if record.epoch_after == next_epoch else None
        next_epoch = record.epoch_before
    return None


def check_chain(metastore: Metastore, table: str, push: PushState) -> int:
    """How many records there are; `TableDamaged` if one was changed, or one is missing."""
    names = metastore.children(audit_path(table))
    trimmed = _last_trimmed(metastore, table)
    if names and int(names[0]) > trimmed + 1:
        raise TableDamaged("the oldest records of the audit are missing", table=table, first=names[0])
    expected: str | None = None
    for name in names:
        versioned = metastore.read(f"{audit_path(table)}/{name}")
        if versioned is None:
            continue  # Trimmed this moment.
        record = _decode(table, name, versioned.data)
        if expected is not None and record.previous != expected:
            raise TableDamaged("the audit's chain is broken", table=table, record=name)
        expected = sha256(versioned.data).hexdigest()
    if push.audit_count and expected != push.audit_head:
        raise TableDamaged("the audit's newest record is not the one the table knows", table=table)
    return len(names)


def trim_audit(metastore: Metastore, table: str, *, keep: int, oldest_ms: int) -> int:
    """Remove the oldest records beyond `keep`, and those before `oldest_ms`; how many went.

    The newest stays, whatever its age.
    """
    names = metastore.children(audit_path(table))
    surplus = list(names[: max(0, len(names) - keep)])
    for name in names[len(surplus) : -1]:
        versioned = metastore.read(f"{audit_path(table)}/{name}")
        if versioned is not None and _decode(table, name, versioned.data).at_ms >= oldest_ms:
            break
        surplus.append(name)
    if surplus:
        _note_trimmed(metastore, table, int(surplus[-1]))
    for at in range(0, len(surplus), _BATCH):
        _remove(metastore, [f"{audit_path(table)}/{name}" for name in surplus[at : at + _BATCH]])
    return len(surplus)


def trim_mark_path(table: str) -> str:
    """Where the number of the last record stands that was removed for its age."""
    return f"/PROPERTYSTORE/LINEAGE_AUDIT_TRIMMED/{table}"


def _last_trimmed(metastore: Metastore, table: str) -> int:
    found = metastore.read(trim_mark_path(table))
    try:
        return 0 if found is None else int(found.data)
    except ValueError as error:
        raise TableDamaged("the beginning of the audit cannot be read", table=table) from error


def _note_trimmed(metastore: Metastore, table: str, number: int) -> None:
    """It only rises: of two that trim at once, the later may find less to remove."""
    path, content = trim_mark_path(table), b"%d" % number
    found = metastore.read(path)
    if found is None:
        metastore.write([Create(path, content)])
    elif int(found.data) < number:
        metastore.write([Replace(path, content, found.version)])


def _remove(metastore: Metastore, paths: Iterable[str]) -> None:
    wanted = list(paths)
    found = zip(wanted, metastore.read_all(wanted), strict=True)
    removals = [Remove(path, record.version) for path, record in found if record is not None]
    if removals:
        metastore.write(removals)


def _decode(table: str, name: str, content: bytes) -> AuditRecord:
    try:
        return msgspec.json.decode(content, type=AuditRecord)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise TableDamaged(
            "an audit record cannot be read", table=table, record=name, cause=str(error)
        ) from error


def _plain(record: AuditRecord) -> dict[str, Any]:
    plain = {name: getattr(record, name) for name in AuditRecord.__dataclass_fields__}
    return plain | {"entries": dict(record.entries), "facts": dict(record.facts)}


def _summarize(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{len(names)}: {', '.join(names[:_NAMES])}{more}"
