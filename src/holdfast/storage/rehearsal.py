"""A store on which a run can be tried: what it changes is seen by it alone, and nothing happens.

A dry run that is computed beside the run misses what the run does on its way.
So it is the run itself, on this store, and afterwards the store tells what
would be gone.
"""

import errno
import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from holdfast.clock import Clock
from holdfast.model.names import CLOCK_FILE
from holdfast.storage.local import STAGING_FOLDER, LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.paths import check_path, outside
from holdfast.storage.store import Folder, Store, StoredFile


class Rehearsal:
    """A `Store` over another, to which nothing is written but the file that tells its time.

    What is written is held in memory, so it is for runs that write little. Who is
    alive is judged by the clock of the store beneath, as in the run itself.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._local = store if isinstance(store, LocalStore) else None
        self._made = MemoryStore(clock)
        self._hidden: set[str] = set()
        """What was deleted; some of it may have been made anew."""
        self._thinned: set[str] = set()
        """The folders above what was deleted."""
        self._pruned: set[str] = set()

    def deletions(self) -> tuple[StoredFile, ...]:
        """The files that are in the store and would not be there any more, by path."""
        made = set(self._made.paths(""))
        going = self._hidden - made
        touched = self._hidden | made if self._local is not None else going
        by_folder: dict[str, set[str]] = {}
        for path in touched:
            by_folder.setdefault(path.rpartition("/")[0], set()).add(path)
        found: list[StoredFile] = []
        for folder, paths in by_folder.items():
            names = paths & going
            if self._local is not None:
                # Hadoop's checksum of a file goes before the file does, or is overwritten.
                names |= {f"{folder}/.{path.rpartition('/')[2]}.crc".lstrip("/") for path in paths}
            listed = self._store.leftovers() if folder == STAGING_FOLDER else self._store.folder(folder).files
            found += [file for file in listed if file.path in names]
        return tuple(sorted(found, key=lambda file: file.path))

    def create(self, path: str, content: bytes) -> bool:
        return self.stat(path) is None and self._made.create(path, content)

    def put(self, path: str, content: bytes) -> None:
        self._writer_of(path).put(path, content)

    def read(self, path: str) -> bytes:
        return self._holder(path).read(path)

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        beneath = [path for path in paths if path not in self._hidden and self._made.stat(path) is None]
        found = dict(zip(beneath, self._store.read_all(beneath), strict=True))
        return [
            found.get(path, content) for path, content in zip(paths, self._made.read_all(paths), strict=True)
        ]

    def read_version(self, path: str) -> tuple[bytes, str]:
        return self._holder(path).read_version(path)

    def replace(self, path: str, content: bytes, version: str) -> bool:
        try:
            if self._holder(path).read_version(path)[1] != version:
                return False
        except FileNotFoundError:
            return False
        self._made.put(path, content)
        return True

    def stat(self, path: str) -> StoredFile | None:
        found = self._made.stat(path)
        return self._store.stat(path) if found is None and path not in self._hidden else found

    def delete(self, path: str) -> None:
        self._writer_of(path).delete(path)
        if path != CLOCK_FILE:
            self._hide(path)

    def delete_all(self, paths: Iterable[str]) -> tuple[str, ...]:
        for path in paths:
            self.delete(path)
        return ()

    def walk(self, folder: str) -> Iterator[StoredFile]:
        made = list(self._made.walk(folder))
        covered = self._hidden.union(file.path for file in made)
        beneath = (file for file in self._store.walk(folder) if file.path not in covered)
        return heapq.merge(beneath, made, key=lambda file: file.path)

    def paths(self, folder: str, *, without: str = "") -> list[str]:
        made = outside(without, self._made.paths(folder))
        beneath = set(self._store.paths(folder, without=without)) - self._hidden
        return sorted(beneath.union(made))

    def folder(self, path: str, *, after: str = "") -> Folder:
        beneath, made = self._store.folder(path, after=after), self._made.folder(path, after=after)
        files = {file.path: file for file in beneath.files if file.path not in self._hidden}
        files |= {file.path: file for file in made.files}
        folders = {below for below in beneath.folders if self._is_left(below)}
        return Folder(
            tuple(files[name] for name in sorted(files)), tuple(sorted(folders.union(made.folders)))
        )

    @contextmanager
    def upload(self, path: str) -> Iterator[BinaryIO]:
        with self._made.upload(path) as sink:
            yield sink
            if self.stat(path) is not None:
                raise FileExistsError(errno.EEXIST, "the path is taken", path)

    def open(self, path: str) -> BinaryIO:
        return self._holder(path).open(path)

    def prune(self, folder: str) -> None:
        self._pruned.add(folder)

    def leftovers(self) -> tuple[StoredFile, ...]:
        return tuple(file for file in self._store.leftovers() if file.path not in self._hidden)

    def sweep_leftovers(self) -> tuple[str, ...]:
        swept = () if self._local is None else self._local.list_abandoned()
        for path in swept:
            self._hide(path)
        return swept

    def uri(self, path: str) -> str:
        return self._store.uri(path)

    def _writer_of(self, path: str) -> Store:
        return self._store if path == CLOCK_FILE else self._made

    def _holder(self, path: str) -> Store:
        """Who has the file."""
        check_path(path)
        return self._made if path in self._hidden or self._made.stat(path) is not None else self._store

    def _hide(self, path: str) -> None:
        self._hidden.add(path)
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            if folder in self._thinned:
                break
            self._thinned.add(folder)

    def _is_left(self, folder: str) -> bool:
        """Whether a folder beneath is still there: a local one stays until it is pruned."""
        is_pruned = self._is_pruned(folder)
        if not is_pruned and (self._local is not None or folder not in self._thinned):
            return True
        return any(path not in self._hidden for path in self._store.paths(folder))

    def _is_pruned(self, folder: str) -> bool:
        return any(folder == one or folder.startswith(f"{one}/") for one in self._pruned if one)
