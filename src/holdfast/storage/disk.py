"""The local disk: directories, their locks, and changes that are confirmed.

The calls that a test must watch, or see fail, are fields of `Disk`.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from holdfast.errors import StorageUnavailable

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_NO_SUCH_NAME = frozenset({errno.ENOENT, errno.ENAMETOOLONG, errno.EISDIR})
_NO_FOLDER_LOCKS = frozenset({errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
_ATTEMPTS = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    sync: Callable[[int], None] = os.fsync
    lock: Callable[[int, int], None] = fcntl.flock
    link: Callable[..., None] = os.link
    has_nameless_files: bool = hasattr(os, "O_TMPFILE")
    file_mode: int = 0o666
    folder_mode: int = 0o777
    """Of what is made here, before the umask takes its part."""
    root: str = ""
    """Below it no symbolic link is followed to a folder: what lies behind one is not the table's."""

    def confirm(self, descriptor: int, path: str) -> None:
        """Wait until the disk has every change of the file or directory.

        A failure is final: the kernel forgets the pages it could not write, and
        a second sync would succeed without them.
        """
        try:
            self.sync(descriptor)
        except OSError as error:
            cause = error.strerror or error
            raise StorageUnavailable("storage did not confirm a change", path=path, cause=cause) from error

    def confirm_folder(self, folder: str, path: str) -> None:
        with self.hold_folder(folder) as descriptor:
            self.confirm(descriptor, path)

    @contextmanager
    def hold_folder(self, folder: str) -> Iterator[int]:
        descriptor = self._open_folder(folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open_folder(self, folder: str) -> int:
        """`NotADirectoryError` if a name below the root is a symbolic link."""
        names = self._names_below(folder)
        if names is None:
            return os.open(folder, _OPEN_FOLDER)
        descriptor = os.open(self.root, _OPEN_FOLDER)
        for name in names:
            try:
                inner = open_folder_in(descriptor, name)
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor

    def _names_below(self, folder: str) -> list[str] | None:
        """The names that lead from the root to a folder below it; None for any other."""
        if not self.root or not folder.startswith(self.root.rstrip("/") + "/"):
            return None
        return os.path.relpath(folder, self.root).split("/")

    @contextmanager
    def lock_folder(self, folder: str, path: str) -> Iterator[tuple[int, bool]]:
        """The directory, and whether it could be locked; what the block changed is confirmed after it.

        The lock ends before the change is confirmed: a process that is stopped
        while the disk works must not keep everybody else waiting.
        """
        with self.hold_folder(folder) as descriptor:
            is_locked = self._lock(descriptor)
            try:
                yield descriptor, is_locked
            finally:
                if is_locked:
                    self.lock(descriptor, fcntl.LOCK_UN)
            self.confirm(descriptor, path)

    def in_folder(self, folder: str, act: Callable[[], T], *, path: str) -> T:
        """Do `act`, making the folder first if it is absent or was pruned in the meantime."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                return act()
            with suppress(FileNotFoundError):
                self._make_folder(folder, path)
        raise StorageUnavailable("the folder keeps vanishing", path=path)

    def _make_folder(self, folder: str, path: str) -> None:
        names = self._names_below(folder)
        if names is None:
            self._make_root(folder, path)
            return
        if not os.path.isdir(self.root):
            self._make_root(self.root, path)
        descriptor = os.open(self.root, _OPEN_FOLDER)
        try:
            for number, name in enumerate(names, 1):
                inner = self._open_or_make(name, descriptor, path, is_last=number == len(names))
                os.close(descriptor)
                descriptor = inner
        finally:
            os.close(descriptor)

    def _open_or_make(self, name: str, parent: int, path: str, *, is_last: bool) -> int:
        if not is_last:
            with suppress(FileNotFoundError):
                return open_folder_in(parent, name)
        with suppress(FileExistsError):
            os.mkdir(name, self.folder_mode, dir_fd=parent)
        # Also when somebody else made it: they may not have come to this line yet.
        self.confirm(parent, path)
        return open_folder_in(parent, name)

    def _make_root(self, folder: str, path: str) -> None:
        """The root and what is above it, where links are the business of their makers."""
        parent = os.path.dirname(folder)
        if not os.path.isdir(parent):
            self._make_root(parent, path)
        with suppress(FileExistsError):
            os.mkdir(folder, self.folder_mode)
        with _descriptor_of(parent) as descriptor:
            self.confirm(descriptor, path)

    def _lock(self, descriptor: int) -> bool:
        try:
            self.lock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in _NO_FOLDER_LOCKS:
                return False
            raise
        return True


def open_folder_in(parent: int, name: str) -> int:
    """A descriptor of a folder in an open one. `NotADirectoryError` if it is a symbolic link."""
    return os.open(name, _OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=parent)


@contextmanager
def _descriptor_of(folder: str) -> Iterator[int]:
    descriptor = os.open(folder, _OPEN_FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def drop_checksum(name: str, folder_descriptor: int) -> None:
    """Remove the checksum that Hadoop's local file system keeps beside a file that it wrote.

    Hadoop refuses a file that contradicts its checksum, and takes one without it
    as it is. So before a file is overwritten or deleted, its checksum goes.
    """
    try:
        os.unlink(f".{name}.crc", dir_fd=folder_descriptor)
    except OSError as error:
        if error.errno not in _NO_SUCH_NAME:
            raise


LOCAL_DISK = Disk()
PRIVATE_DISK = replace(LOCAL_DISK, file_mode=0o600, folder_mode=0o700)
"""What only the user of this process can read."""
