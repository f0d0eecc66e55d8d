"""Where the push service keeps its records: a small tree with versions.

Paths begin with `/` and are relative to the cluster. Every change names the
version it replaces, so two controllers that decide on the same state cannot
both win; several records change together or not at all.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import InvalidRequest, LineageChanged


@dataclass(frozen=True, slots=True)
class Versioned:
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """The record must be absent."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Replace:
    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Remove:
    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """The record must have this version; None: it must be absent."""

    path: str
    version: int | None


Change = Create | Replace | Remove | Check


class Metastore(Protocol):
    """Implementations keep these promises:

    1. `write` makes all changes or none, durable when it returns. If any
       version does not match it raises `LineageChanged` and nothing changed.
       If it cannot be known whether they happened it raises `OutcomeUnknown`.
    2. A version is never given twice to one path between creation and removal,
       and grows with every change.
    3. A record read after `write` returned is at least as new, for the same
       process. Another process may lag; its watches tell it to look again.
    4. A record that is too large is `InvalidRequest` with both sizes, and the
       old one stays. So is an empty one: nothing but folders are empty.
    """

    def read(self, path: str) -> Versioned | None: ...

    def read_all(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Many records, read one after the other in the order given; not one moment for all of them."""

    def children(self, path: str) -> tuple[str, ...]:
        """Names directly below, sorted; empty if there is none."""

    def read_children(self, path: str) -> Mapping[str, Versioned]:
        """The records directly below by name."""

    def write(self, changes: Sequence[Change]) -> None: ...

    def watch(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` soon after the record or one directly below it changes, from another thread.

        Changes may be merged into one call, and a call may come without a
        change. Returns what ends the watch.
        """

    def announce(self, path: str, data: bytes) -> None:
        """Create or overwrite a record that lives as long as this process keeps its connection."""

    def withdraw(self, path: str) -> None:
        """Take an announcement of this process back."""

    def claim(self, name: str, owner: str) -> bool:
        """Become or stay the one `owner` of `name` among all processes; False if another is."""

    def is_connected(self) -> bool:
        """Whether the others certainly still see what this process announced and claimed.

        Who gets False must count as gone: what it reads may be deleted.
        """

    def close(self) -> None: ...


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


def version_conflict(path: str, *, expected: int | None, found: int | None) -> LineageChanged:
    return LineageChanged(
        "a record changed in the meantime",
        path=path,
        expected="absent" if expected is None else expected,
        found="absent" if found is None else found,
        hint="read it again and decide again",
    )
