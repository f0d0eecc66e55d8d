"""Upload locks: of two uploads that protect the same segment, one is refused, as in Pinot."""

from collections.abc import Collection, Sequence
from contextlib import suppress

import msgspec

from holdfast.clock import Clock
from holdfast.errors import Conflict, HoldfastError, LineageChanged
from holdfast.push.metastore.port import Change, Create, Metastore, Remove, Replace, Versioned

_LOCK_MS = 600_000
_BATCH = 500


def upload_locks_path(table: str) -> str:
    return f"/PROPERTYSTORE/SEGMENT_UPLOADS/{table}"


def lock_uploads(
    metastore: Metastore, clock: Clock, table: str, names: Collection[str]
) -> tuple[Remove, ...]:
    """Lock these segments, or refuse if another upload has locked one; the changes that unlock them."""
    now_ms = clock.now_ms()
    content = msgspec.json.encode({"at_ms": now_ms, "token": clock.unique()})
    changes: list[Change] = []
    for name in names:
        path = _lock_path(table, name)
        found = metastore.read(path)
        if found is None:
            changes.append(Create(path, content))
            continue
        if _is_held(found, now_ms):
            raise _upload_in_progress(name)
        changes.append(Replace(path, content, found.version))
    try:
        metastore.write(changes)
    except LineageChanged as error:
        raise _upload_in_progress(", ".join(names)) from error
    records = metastore.read_all([change.path for change in changes])
    return tuple(
        Remove(change.path, record.version)
        for change, record in zip(changes, records, strict=True)
        if record is not None
    )


def unlock_uploads(metastore: Metastore, locks: Sequence[Remove]) -> None:
    for lock in locks:
        with suppress(HoldfastError):  # If another upload has it now, it keeps it; a lost lock expires.
            metastore.write([lock])


def trim_upload_locks(metastore: Metastore, table: str, *, now_ms: int) -> int:
    """Remove the locks that have expired; how many went.

    An upload that died leaves its lock, and no other upload gets the same name.
    """
    expired = [
        Remove(_lock_path(table, name), record.version)
        for name, record in metastore.read_children(upload_locks_path(table)).items()
        if not _is_held(record, now_ms)
    ]
    removed = 0
    for at in range(0, len(expired), _BATCH):
        batch = expired[at : at + _BATCH]
        with suppress(LineageChanged):  # Another upload took one of them over.
            metastore.write(batch)
            removed += len(batch)
    return removed


def _lock_path(table: str, segment: str) -> str:
    return f"{upload_locks_path(table)}/{segment}"


def _is_held(lock: Versioned, now_ms: int) -> bool:
    return bool(msgspec.json.decode(lock.data)["at_ms"] > now_ms - _LOCK_MS)


def _upload_in_progress(name: str) -> Conflict:
    return Conflict(
        "somebody else is uploading the segment",
        segment=name,
        code="UPLOAD_IN_PROGRESS",
        hint="try again later",
    )
