"""What every metastore asks of the changes it is given."""

import re
from collections.abc import Sequence

from holdfast.errors import InvalidRequest, LineageChanged
from holdfast.push.metastore.port import Change, Create, Replace

RECORD_BYTES_MAX = 64 << 20
"""Where the store itself has no such limit: far above any table, far below a mistake."""

# What ZooKeeper takes; a record must be able to move there.
_PATH = re.compile(r"(/[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")


def check_path(path: str) -> None:
    if not _PATH.fullmatch(path) or not {".", ".."}.isdisjoint(path.split("/")):
        raise InvalidRequest("not a path of a record", path=repr(path))


def check_record(path: str, data: bytes, limit: int) -> None:
    check_path(path)
    if not data:
        raise InvalidRequest("a record is empty", path=path)
    if len(data) > limit:
        raise too_large(path, size_bytes=len(data), limit_bytes=limit)


def check_changes(changes: Sequence[Change], limit: int) -> None:
    """Refuse what no state of the store could make right."""
    for change in changes:
        if isinstance(change, Create | Replace):
            check_record(change.path, change.data, limit)
        else:
            check_path(change.path)
    if len({change.path for change in changes}) < len(changes):
        raise InvalidRequest("one record is changed twice in one write")


def too_large(path: str, *, size_bytes: int, limit_bytes: int, hint: str = "") -> InvalidRequest:
    return InvalidRequest(
        "the record is too large for the store",
        path=path,
        size_bytes=size_bytes,
        limit_bytes=limit_bytes,
        code="RECORD_TOO_LARGE",
        hint=hint or "use fewer, larger segments, or let retention remove old snapshots first",
    )


def lost_race(path: str, *, expected: int | None, found: int | None) -> LineageChanged:
    return LineageChanged(
        "a record changed in the meantime",
        path=path,
        expected="absent" if expected is None else expected,
        found="absent" if found is None else found,
        hint="read it again and decide again",
    )
