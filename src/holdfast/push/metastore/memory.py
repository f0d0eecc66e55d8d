"""Records in memory, for tests and simulation."""

import threading
from collections.abc import Callable, Mapping, Sequence

from holdfast.push.metastore.notifier import Notifier
from holdfast.push.metastore.port import (
    RECORD_BYTES_MAX,
    Change,
    Check,
    Create,
    Remove,
    Replace,
    Versioned,
    check_changes,
    check_record,
    version_conflict,
)


class _Tree:
    """What all connections share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.records: dict[str, Versioned] = {}
        self.announcements: dict[str, MemoryMetastore] = {}
        self.claims: dict[str, tuple[MemoryMetastore, str]] = {}
        self.sessions: list[MemoryMetastore] = []
        self.writes = 0


class MemoryMetastore:
    """A `Metastore` that lives and dies with the process."""

    def __init__(self, *, record_bytes_max: int = RECORD_BYTES_MAX, tree: _Tree | None = None) -> None:
        self._record_bytes_max = record_bytes_max
        self._tree = _Tree() if tree is None else tree
        self._notifier = Notifier("holdfast-metastore-memory")
        with self._tree.lock:
            self._tree.sessions.append(self)

    def connect(self) -> "MemoryMetastore":
        """Another connection to the same records, as another process would have."""
        return MemoryMetastore(record_bytes_max=self._record_bytes_max, tree=self._tree)

    def read(self, path: str) -> Versioned | None:
        return self.read_all([path])[0]

    def read_all(self, paths: Sequence[str]) -> list[Versioned | None]:
        with self._tree.lock:
            return [self._tree.records.get(path) for path in paths]

    def children(self, path: str) -> tuple[str, ...]:
        prefix = f"{path.rstrip('/')}/"
        with self._tree.lock:
            below = [each for each in self._tree.records if each.startswith(prefix)]
        return tuple(sorted({each[len(prefix) :].partition("/")[0] for each in below}))

    def read_children(self, path: str) -> Mapping[str, Versioned]:
        found = {name: self.read(f"{path.rstrip('/')}/{name}") for name in self.children(path)}
        return {name: record for name, record in found.items() if record is not None}

    def write(self, changes: Sequence[Change]) -> None:
        check_changes(changes, self._record_bytes_max)
        tree = self._tree
        with tree.lock:
            for change in changes:
                self._expect(change)
            for change in changes:
                self._apply(change)
        self._tell([change.path for change in changes if not isinstance(change, Check)])

    def watch(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        return self._notifier.watch(path, changed)

    def announce(self, path: str, data: bytes) -> None:
        check_record(path, data, self._record_bytes_max)
        with self._tree.lock:
            self._put(path, data)
            self._tree.announcements[path] = self
        self._tell([path])

    def withdraw(self, path: str) -> None:
        with self._tree.lock:
            if self._tree.announcements.get(path) is not self:
                return
            del self._tree.announcements[path]
            del self._tree.records[path]
        self._tell([path])

    def claim(self, name: str, owner: str) -> bool:
        with self._tree.lock:
            return self._tree.claims.setdefault(name, (self, owner)) == (self, owner)

    def is_connected(self) -> bool:
        return self in self._tree.sessions

    def close(self) -> None:
        tree = self._tree
        with tree.lock:
            if self not in tree.sessions:
                return
            tree.sessions.remove(self)
            gone = [path for path, session in tree.announcements.items() if session is self]
            for path in gone:
                del tree.announcements[path]
                tree.records.pop(path, None)
            tree.claims = {name: held for name, held in tree.claims.items() if held[0] is not self}
        self._tell(gone)
        self._notifier.close()

    def _expect(self, change: Change) -> None:
        found = self._tree.records.get(change.path)
        version = None if found is None else found.version
        expected = None if isinstance(change, Create) else change.version
        if version != expected:
            raise version_conflict(change.path, expected=expected, found=version)

    def _apply(self, change: Change) -> None:
        match change:
            case Create() | Replace():
                self._put(change.path, change.data)
            case Remove():
                del self._tree.records[change.path]
                self._tree.announcements.pop(change.path, None)
            case Check():
                pass

    def _put(self, path: str, data: bytes) -> None:
        self._tree.writes += 1
        self._tree.records[path] = Versioned(bytes(data), self._tree.writes)

    def _tell(self, paths: Sequence[str]) -> None:
        for session in tuple(self._tree.sessions):
            session._notifier.tell(paths)
