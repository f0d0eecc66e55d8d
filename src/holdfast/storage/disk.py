"""The local disk: directories, their locks, and changes that are confirmed.

The calls that a test must watch, or see fail, are fields of `Disk`.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
        with self.opened_folder(folder) as descriptor:
            self.confirm(descriptor, path)

    @contextmanager
    def opened_folder(self, folder: str) -> Iterator[int]:
        descriptor = os.open(folder, _OPEN_FOLDER)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def locked_folder(self, folder: str, path: str) -> Iterator[tuple[int, bool]]:
        """The directory, and whether it could be locked; what the block changed is confirmed after it.

        The lock ends before the change is confirmed: a process that is stopped
        while the disk works must not keep everybody else waiting.
        """
        with self.opened_folder(folder) as descriptor:
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
        parent = os.path.dirname(folder)
        if not os.path.isdir(parent):
            self._make_folder(parent, path)
        with suppress(FileExistsError):
            os.mkdir(folder)
        # Also when somebody else made it: they may not have come to this line yet.
        self.confirm_folder(parent, path)

    def _lock(self, descriptor: int) -> bool:
        try:
            self.lock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in _NO_FOLDER_LOCKS:
                return False
            raise
        return True


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
