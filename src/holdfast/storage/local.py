"""Tables on a local disk.

A new file is written as a draft, synced, and then given its name by a hard
link, which refuses a name that is taken; an overwritten one is moved over the
old. The directory is synced last.

A folder that is a symbolic link is none of the table's: nothing in it is
listed, and nothing is written to it or deleted from it.
"""

import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import itemgetter
from typing import BinaryIO

from holdfast.errors import StorageUnavailable
from holdfast.storage.disk import LOCAL_DISK, Disk, drop_checksum, open_folder_in
from holdfast.storage.drafts import Drafts
from holdfast.storage.paths import check_folder, check_path, is_text, prefix_of
from holdfast.storage.refusals import GuardedFile, open_sink, refusals
from holdfast.storage.store import Folder, StoredFile, read_or_none

STAGING_FOLDER = ".hoodie/.holdfast/staging"

_NO_SUCH_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.ENOTDIR})


class LocalStore:
    """A `Store` in a directory.

    `put`, `replace` and `delete` hold an advisory lock on the file's directory,
    so `replace` can trust the version it has just seen. Where the file system
    cannot lock a directory (NFS), `replace` always fails and the others need no
    lock.
    """

    def __init__(self, root: str, *, disk: Disk = LOCAL_DISK) -> None:
        self._root = os.path.abspath(root)
        self._disk = replace(disk, root=self._root)
        self._drafts = Drafts(self._place(STAGING_FOLDER), self._disk)

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
                with self._disk.lock_folder(folder, path) as (descriptor, _):
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
                with self._disk.lock_folder(self._folder_of(path), path) as (descriptor, is_locked):
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
        with (
            refusals(path),
            suppress(*_NO_SUCH_FILE),
            self._disk.hold_folder(self._folder_of(path)) as folder,
        ):
            found = os.stat(os.path.basename(path), dir_fd=folder)
            if stat.S_ISREG(found.st_mode):
                return _file_of(path, found)
        return None

    def delete(self, path: str) -> None:
        check_path(path)
        folder = self._folder_of(path)
        with (
            refusals(path),
            suppress(*_NO_SUCH_FILE),
            self._disk.lock_folder(folder, path) as (descriptor, _),
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
        for key, found in self._entries(path, after=after):
            if key.endswith("/"):
                folders.append(prefix + key[:-1])
            else:
                files += _file_if_there(prefix + key, found)
        return Folder(tuple(files), tuple(sorted(folders)))

    @contextmanager
    def upload(self, path: str) -> Iterator[BinaryIO]:
        check_path(path)
        folder = self._folder_of(path)
        with self._drafts.to_publish(folder, path) as draft:
            with open_sink(draft.descriptor, path) as sink:
                yield sink
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
        with refusals(folder), suppress(*_NO_SUCH_FILE):
            if not folder:
                with self._disk.hold_folder(self._root) as root:
                    self._prune_below(root, folder)
                return
            with self._disk.hold_folder(self._folder_of(folder)) as parent:
                if self._prune(parent, os.path.basename(folder), folder):
                    self._disk.confirm(parent, folder)

    def leftovers(self) -> tuple[StoredFile, ...]:
        found: list[StoredFile] = []
        for name, stored in self._scan(STAGING_FOLDER, is_stat_wanted=True):
            found += _file_if_there(f"{STAGING_FOLDER}/{name}", stored)
        return tuple(sorted(found, key=lambda file: file.path))

    def list_abandoned(self) -> tuple[str, ...]:
        """What `sweep_leftovers` would remove now."""
        paths = (file.path for file in self.leftovers())
        return tuple(path for path in paths if self._drafts.is_abandoned(os.path.basename(path)))

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
            with self._disk.hold_folder(self._folder_of(path)) as folder:
                descriptor = os.open(os.path.basename(path), os.O_RDONLY, dir_fd=folder)
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
            with self._disk.lock_folder(folder, children[0]) as (descriptor, _):
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

    def _prune(self, parent: int, name: str, folder: str) -> bool:
        """Remove a directory in an open one, with what is empty below it; whether it is gone."""
        try:
            descriptor = open_folder_in(parent, name)
        except FileNotFoundError:
            return True
        except NotADirectoryError:
            return False
        try:
            return self._prune_below(descriptor, folder, as_name=(parent, name))
        finally:
            os.close(descriptor)

    def _prune_below(self, descriptor: int, folder: str, *, as_name: tuple[int, str] | None = None) -> bool:
        """Remove what is empty below an open directory, then itself by its name; whether it is gone."""
        with os.scandir(descriptor) as entries:
            below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        gone_below = [self._prune(descriptor, child, folder) for child in below]
        if as_name is not None and _remove_folder(*as_name):
            return True
        if any(gone_below):
            self._disk.confirm(descriptor, folder)
        return False

    def _walk(self, folder: str) -> Iterator[StoredFile]:
        prefix = prefix_of(folder)
        for key, found in self._entries(folder):
            if key.endswith("/"):
                yield from self._walk(prefix + key[:-1])
            else:
                yield from _file_if_there(prefix + key, found)

    def _collect(self, folder: str, found: list[str], without: str) -> None:
        prefix = prefix_of(folder)
        for key, _ in self._entries(folder, is_stat_wanted=False):
            if key[-1] == "/":
                if prefix + key[:-1] != without:
                    self._collect(prefix + key[:-1], found, without)
            else:
                found.append(prefix + key)

    def _entries(
        self, folder: str, *, after: str = "", is_stat_wanted: bool = True
    ) -> list[tuple[str, os.stat_result | None]]:
        """Files and folders in a folder, by key; a folder's key ends in a slash.

        Taken depth first they are in the order of whole paths: `a-b` comes
        before `a/b`, although `a` comes before `a-b`.
        """
        if folder == STAGING_FOLDER or folder.startswith(f"{STAGING_FOLDER}/"):
            return []
        found = self._scan(folder, after=after, is_stat_wanted=is_stat_wanted)
        found.sort(key=itemgetter(0))
        if folder == os.path.dirname(STAGING_FOLDER):
            staging = f"{os.path.basename(STAGING_FOLDER)}/"
            found = [(key, entry) for key, entry in found if key != staging]
        return found

    def _scan(
        self, folder: str, *, after: str = "", is_stat_wanted: bool
    ) -> list[tuple[str, os.stat_result | None]]:
        """As `_entries`, in no order; a file that was deleted since it was listed has no status.

        By descriptor: a link that is put in the place of the folder now leads nowhere else.
        """
        found: list[tuple[str, os.stat_result | None]] = []
        with (
            refusals(folder),
            suppress(FileNotFoundError, NotADirectoryError),
            self._disk.hold_folder(self._place(folder)) as descriptor,
            os.scandir(descriptor) as entries,
        ):
            for entry in entries:
                name = entry.name
                if name <= after or not is_text(name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found.append((f"{name}/", None))
                elif _is_file(entry):
                    # Only while the folder is open: the entry asks by its descriptor.
                    found.append((name, _status(entry) if is_stat_wanted else None))
        return found


def _write_whole(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _unlink(path: str, folder_descriptor: int) -> None:
    name = os.path.basename(path)
    drop_checksum(name, folder_descriptor)
    os.unlink(name, dir_fd=folder_descriptor)


def _remove_folder(parent: int, name: str) -> bool:
    """Remove the directory if it is empty; whether it is gone."""
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in _NOT_EMPTY:
            return False
        raise
    return True


def _file_of(path: str, found: os.stat_result) -> StoredFile:
    return StoredFile(path, found.st_size, found.st_mtime_ns // 1_000_000)


def _file_if_there(path: str, found: os.stat_result | None) -> tuple[StoredFile, ...]:
    return () if found is None else (_file_of(path, found),)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, or a link to one."""
    try:
        return entry.is_file()
    except OSError:
        return False  # A link that leads nowhere, or in a circle.


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None if the file was deleted since it was listed."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None


def _version(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"
