"""Tables in memory, for tests and simulation."""

import errno
import io
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from holdfast.clock import Clock, SystemClock
from holdfast.storage.paths import check_folder, check_path, outside, prefix_of
from holdfast.storage.store import Folder, StoredFile, read_or_none

_SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class _Entry:
    content: bytes
    version: int
    modified_ms: int


class MemoryStore:
    """A `Store` that lives and dies with the process."""

    def __init__(self, clock: Clock = _SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._writes = 0

    def copy(self) -> "MemoryStore":
        """A store with the same files that goes its own way from here."""
        copied = MemoryStore(self._clock)
        with self._lock:
            copied._entries = self._entries.copy()
            copied._writes = self._writes
        return copied

    def create(self, path: str, content: bytes) -> bool:
        check_path(path)
        with self._lock:
            if path in self._entries:
                return False
            self._write(path, content)
            return True

    def put(self, path: str, content: bytes) -> None:
        check_path(path)
        with self._lock:
            self._write(path, content)

    def read(self, path: str) -> bytes:
        return self._entry(path).content

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        return [read_or_none(self, path) for path in paths]

    def read_version(self, path: str) -> tuple[bytes, str]:
        entry = self._entry(path)
        return entry.content, str(entry.version)

    def replace(self, path: str, content: bytes, version: str) -> bool:
        check_path(path)
        with self._lock:
            entry = self._entries.get(path)
            if entry is None or str(entry.version) != version:
                return False
            self._write(path, content)
            return True

    def stat(self, path: str) -> StoredFile | None:
        check_path(path)
        entry = self._entries.get(path)
        return None if entry is None else _file_of(path, entry)

    def delete(self, path: str) -> None:
        check_path(path)
        with self._lock:
            self._entries.pop(path, None)

    def delete_all(self, paths: Iterable[str]) -> tuple[str, ...]:
        for path in paths:
            self.delete(path)
        return ()

    def walk(self, folder: str) -> Iterator[StoredFile]:
        return iter([_file_of(path, entry) for path, entry in self._below(folder)])

    def paths(self, folder: str, *, without: str = "") -> list[str]:
        return outside(without, [path for path, _ in self._below(folder)])

    def folder(self, path: str, *, after: str = "") -> Folder:
        files: list[StoredFile] = []
        folders: set[str] = set()
        prefix = prefix_of(path)
        for below, entry in self._below(path):
            name, slash, _ = below.removeprefix(prefix).partition("/")
            if name <= after:
                continue
            if slash:
                folders.add(prefix + name)
            else:
                files.append(_file_of(below, entry))
        return Folder(tuple(files), tuple(sorted(folders)))

    @contextmanager
    def upload(self, path: str) -> Iterator[BinaryIO]:
        check_path(path)
        sink = _Sink()
        yield sink
        sink.close()
        if not self.create(path, sink.content):
            raise FileExistsError(errno.EEXIST, "the path is taken", path)

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self._entry(path).content)

    def prune(self, folder: str) -> None:
        """There are no folders apart from the files in them."""
        check_folder(folder)

    def leftovers(self) -> tuple[StoredFile, ...]:
        return ()

    def sweep_leftovers(self) -> tuple[str, ...]:
        return ()

    def uri(self, path: str) -> str:
        check_folder(path)
        return f"memory:///{path}"

    def _write(self, path: str, content: bytes) -> None:
        self._writes += 1
        self._entries[path] = _Entry(bytes(content), self._writes, self._clock.now_ms())

    def _entry(self, path: str) -> _Entry:
        check_path(path)
        entry = self._entries.get(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return entry

    def _below(self, folder: str) -> list[tuple[str, _Entry]]:
        check_folder(folder)
        prefix = prefix_of(folder)
        with self._lock:
            found = [(path, entry) for path, entry in self._entries.items() if path.startswith(prefix)]
        # Text sorts by code point, which is the order of its UTF-8 bytes.
        return sorted(found, key=lambda item: item[0])


class _Sink(io.BytesIO):
    """Keeps its content when the user closes it."""

    content = b""

    def close(self) -> None:
        if not self.closed:
            self.content = self.getvalue()
        super().close()


def _file_of(path: str, entry: _Entry) -> StoredFile:
    return StoredFile(path, len(entry.content), entry.modified_ms)
