"""Tables on a local disk.

A new file is written as a draft, synced, and then given its name by a hard
link, which refuses a name that is taken; an overwritten one is moved over the
old. The directory is synced last.
"""

import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import BinaryIO

from holdfast.errors import StorageUnavailable
from holdfast.storage.disk import LOCAL_DISK, Disk, drop_checksum
from holdfast.storage.drafts import Drafts
from holdfast.storage.paths import check_folder, check_path, is_text, prefix_of
from holdfast.storage.refusals import GuardedFile, refusals
from holdfast.storage.store import Folder, StoredFile, read_or_none

STAGING_FOLDER = ".hoodie/.holdfast/staging"

_NO_SUCH_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})
_SINK_BUFFER_BYTES = 1 << 20


class LocalStore:
    """A `Store` in a directory.

    `put`, `replace` and `delete` hold an advisory lock on the file's directory,
    so `replace` can trust the version it has just seen. Where the file system
    cannot lock a directory (NFS), `replace` always fails and the others need no
    lock.
    """

    def __init__(self, root: str, *, disk: Disk = LOCAL_DISK) -> None:
        self._root = os.path.abspath(root)
        self._disk = disk
        self._drafts = Drafts(self._place(STAGING_FOLDER), disk)

    def create(self, path: str, content: bytes) -> bool:
        check_path(path)
        folder = self._folder_of(path)
        with refusals(path), self._drafts.to_publish(folder, path) as draft:
            with refusals(path, is_untouched=True):
                _write_whole(draft.descriptor, content)
                self._drafts.finish(draft, path)
            return self._drafts.publish(draft, folder, path=path)

    def put(self, path: str, content: bytes) -> None:
        check_path(path)
        folder = self._folder_of(path)
        with refusals(path), self._drafts.to_overwrite(path) as draft:
            _write_whole(draft.descriptor, content)
            self._drafts.finish(draft, path)

            def overwrite() -> None:
                with self._disk.locked_folder(folder, path) as (descriptor, _):
                    self._drafts.overwrite(draft, descriptor, path=path)

            self._disk.in_folder(folder, overwrite, path=path)

    def read(self, path: str) -> bytes:
        check_path(path)
        with refusals(path), self._open(path) as file:
            return file.readall()

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        return [read_or_none(self, path) for path in paths]

    def read_version(self, path: str) -> tuple[bytes, str]:
        check_path(path)
        with refusals(path), self._open(path) as file:
            return file.readall(), _version(os.fstat(file.fileno()))

    def replace(self, path: str, content: bytes, version: str) -> bool:
        check_path(path)
        with refusals(path), self._drafts.to_overwrite(path) as draft:
            _write_whole(draft.descriptor, content)
            self._drafts.finish(draft, path)
            try:
                with self._disk.locked_folder(self._folder_of(path), path) as (descriptor, is_locked):
                    if not is_locked:
                        raise StorageUnavailable("the file system cannot lock a directory", path=path)
                    if _version(os.stat(os.path.basename(path), dir_fd=descriptor)) != version:
                        return False
                    self._drafts.overwrite(draft, descriptor, path=path)
                    return True
            except _NO_SUCH_FILE:
                return False

    def stat(self, path: str) -> StoredFile | None:
        check_path(path)
        with refusals(path), suppress(*_NO_SUCH_FILE):
            found = os.stat(self._place(path))
            if stat.S_ISREG(found.st_mode):
                return _stored(path, found)
        return None

    def delete(self, path: str) -> None:
        check_path(path)
        folder = self._folder_of(path)
        with (
            refusals(path),
            suppress(*_NO_SUCH_FILE),
            self._disk.locked_folder(folder, path) as (descriptor, _),
            suppress(*_NO_SUCH_FILE),
        ):
            _unlink(path, descriptor)

    def delete_all(self, paths: Iterable[str]) -> tuple[str, ...]:
        by_folder: dict[str, list[str]] = {}
        for path in paths:
            check_path(path)
            by_folder.setdefault(self._folder_of(path), []).append(path)
        stuck: list[str] = []
        for folder, children in by_folder.items():
            stuck += self._delete_children(folder, children)
        return tuple(stuck)

    def walk(self, folder: str) -> Iterator[StoredFile]:
        check_folder(folder)
        return self._walk(folder)

    def paths(self, folder: str, *, without: str = "") -> list[str]:
        check_folder(folder)
        found: list[str] = []
        self._collect(folder, found, without)
        return found

    def folder(self, path: str, *, after: str = "") -> Folder:
        check_folder(path)
        prefix = prefix_of(path)
        files: list[StoredFile] = []
        folders: list[str] = []
        for key, entry in self._entries(path):
            if entry.name <= after:
                continue
            if key.endswith("/"):
                folders.append(prefix + entry.name)
            else:
                files += _stored_entry(prefix + key, entry)
        return Folder(tuple(files), tuple(sorted(folders)))

    @contextmanager
    def upload(self, path: str) -> Iterator[BinaryIO]:
        check_path(path)
        folder = self._folder_of(path)
        with self._drafts.to_publish(folder, path) as draft:
            file = GuardedFile(draft.descriptor, "wb", path=path, closefd=False)
            sink = io.BufferedWriter(file, _SINK_BUFFER_BYTES)
            try:
                yield sink
                if not sink.closed:
                    sink.flush()
            finally:
                # Once its file is closed, an abandoned sink does not flush when it is collected.
                file.close()
            with refusals(path):
                self._drafts.finish(draft, path)
                is_published = self._drafts.publish(draft, folder, path=path)
        if not is_published:
            raise FileExistsError(errno.EEXIST, "the path is taken", path)

    def open(self, path: str) -> BinaryIO:
        check_path(path)
        with refusals(path):
            return io.BufferedReader(self._open(path))

    def prune(self, folder: str) -> None:
        check_folder(folder)
        place = self._place(folder)
        with refusals(folder):
            if self._prune(place, folder):
                with suppress(FileNotFoundError):
                    self._disk.confirm_folder(os.path.dirname(place), folder)

    def leftovers(self) -> tuple[StoredFile, ...]:
        found: list[StoredFile] = []
        for entry in self._scan(STAGING_FOLDER):
            found += _stored_entry(f"{STAGING_FOLDER}/{entry.name}", entry)
        return tuple(sorted(found, key=lambda file: file.path))

    def sweep_leftovers(self) -> tuple[str, ...]:
        swept = tuple(
            file.path for file in self.leftovers() if self._drafts.sweep(os.path.basename(file.path))
        )
        if swept:
            with refusals(STAGING_FOLDER), suppress(FileNotFoundError):
                self._disk.confirm_folder(self._place(STAGING_FOLDER), STAGING_FOLDER)
        return swept

    def uri(self, path: str) -> str:
        check_folder(path)
        return self._place(path)

    def _place(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root

    def _folder_of(self, path: str) -> str:
        return os.path.dirname(self._place(path))

    def _open(self, path: str) -> GuardedFile:
        try:
            descriptor = os.open(self._place(path), os.O_RDONLY)
            try:
                return GuardedFile(descriptor, "rb", path=path, closefd=True)
            except IsADirectoryError:
                os.close(descriptor)
                raise
        except _NO_SUCH_FILE as error:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from error

    def _delete_children(self, folder: str, children: list[str]) -> list[str]:
        """Remove files of one directory, with one sync; those that would not go."""
        stuck: list[str] = []
        try:
            with self._disk.locked_folder(folder, children[0]) as (descriptor, _):
                for path in children:
                    try:
                        _unlink(path, descriptor)
                    except _NO_SUCH_FILE:
                        continue
                    except OSError:
                        stuck.append(path)
        except _NO_SUCH_FILE:
            return []
        except OSError:
            return children
        return stuck

    def _prune(self, place: str, folder: str) -> bool:
        """Remove the directory and what is empty below it; whether it is gone."""
        try:
            with os.scandir(place) as entries:
                below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return True
        except NotADirectoryError:
            return False
        gone_below = [self._prune(child, folder) for child in below]
        if place != self._root and _removed(place):
            return True
        if any(gone_below):
            with suppress(FileNotFoundError):
                self._disk.confirm_folder(place, folder)
        return False

    def _walk(self, folder: str) -> Iterator[StoredFile]:
        prefix = prefix_of(folder)
        for key, entry in self._entries(folder):
            if key.endswith("/"):
                yield from self._walk(prefix + entry.name)
            else:
                yield from _stored_entry(prefix + key, entry)

    def _collect(self, folder: str, found: list[str], without: str) -> None:
        prefix = prefix_of(folder)
        for key, _ in self._entries(folder):
            if key[-1] == "/":
                if prefix + key[:-1] != without:
                    self._collect(prefix + key[:-1], found, without)
            else:
                found.append(prefix + key)

    def _entries(self, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
        """Files and folders in a folder, by key; a folder's key ends in a slash.

        Taken depth first they are in the order of whole paths: `a-b` comes
        before `a/b`, although `a` comes before `a-b`.
        """
        if folder == STAGING_FOLDER or folder.startswith(f"{STAGING_FOLDER}/"):
            return []
        found: list[tuple[str, os.DirEntry[str]]] = []
        for entry in self._scan(folder):
            if entry.is_dir(follow_symlinks=False):
                found.append((f"{entry.name}/", entry))
            elif entry.is_file(follow_symlinks=False) or os.path.isfile(entry.path):
                found.append((entry.name, entry))
        found.sort(key=itemgetter(0))
        if folder == os.path.dirname(STAGING_FOLDER):
            staging = f"{os.path.basename(STAGING_FOLDER)}/"
            found = [(key, entry) for key, entry in found if key != staging]
        return found

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        """Everything in a directory whose name is text, in no order."""
        with (
            refusals(folder),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(self._place(folder)) as entries,
        ):
            return [entry for entry in entries if is_text(entry.name)]
        return []


def _write_whole(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _unlink(path: str, folder_descriptor: int) -> None:
    name = os.path.basename(path)
    drop_checksum(name, folder_descriptor)
    os.unlink(name, dir_fd=folder_descriptor)


def _removed(folder: str) -> bool:
    """Remove the directory if it is empty; whether it is gone."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in _NOT_EMPTY:
            return False
        raise
    return True


def _stored(path: str, found: os.stat_result) -> StoredFile:
    return StoredFile(path, found.st_size, found.st_mtime_ns // 1_000_000)


def _stored_entry(path: str, entry: os.DirEntry[str]) -> tuple[StoredFile, ...]:
    """The file as it is now; nothing if it was deleted since it was listed."""
    try:
        return (_stored(path, entry.stat()),)
    except FileNotFoundError:
        return ()
    except OSError:
        # Entered only now: there may be many thousands of files.
        with refusals(path):
            raise


def _version(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"
