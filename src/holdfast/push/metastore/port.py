"""Where the push service keeps its records: a small tree with versions.

Paths begin with `/` and are relative to the cluster. Every change names the
version it replaces, so two controllers that decide on the same state cannot
both win; several records change together or not at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


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
