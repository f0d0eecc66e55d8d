"""Drafts: files that are being written and have no place in the table yet.

A draft is nameless where the file system allows it, so that a killed process
leaves nothing. Otherwise, and to overwrite a file, it lies in the staging
folder under a name that says whose it is:

    <host>~<boot id>~<process id>~<unique>
"""

import errno
import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from holdfast.host import boot_id
from holdfast.storage.disk import Disk, drop_checksum
from holdfast.storage.refusals import refusals

_OWN_DESCRIPTORS = "/proc/self/fd"
# The last is what ext4 says of a directory that is being removed.
_NO_NAMELESS_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.EPERM})


@dataclass(frozen=True, slots=True)
class Draft:
    """A file open for writing."""

    descriptor: int
    staged: "_Staged | None" = None
    """Where it lies; None if it is nameless."""


@dataclass(frozen=True, slots=True)
class _Staged:
    """A name in the staging folder, which is kept open: its path may lead elsewhere in the next moment."""

    folder: int
    name: str


class Drafts:
    def __init__(self, staging: str, disk: Disk) -> None:
        self._staging = staging
        self._disk = disk

    @contextmanager
    def to_publish(self, folder: str, path: str) -> Iterator[Draft]:
        """A draft for a new file in `folder`."""
        with refusals(path, is_untouched=True):
            descriptor = self._open_nameless(folder, path)
        if descriptor is None:
            with self.to_overwrite(path) as draft:
                yield draft
            return
        try:
            yield Draft(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def to_overwrite(self, path: str) -> Iterator[Draft]:
        """A draft with a name, which is what it takes to get the place of another file."""
        with refusals(path, is_untouched=True):
            descriptor, staged = self._disk.in_folder(self._staging, self._open_staged, path=path)
        try:
            yield Draft(descriptor, staged)
        finally:
            # Closing ends the lock that says the writer lives, so the name goes first.
            with suppress(FileNotFoundError):
                os.unlink(staged.name, dir_fd=staged.folder)
            os.close(descriptor)
            os.close(staged.folder)

    def finish(self, draft: Draft, path: str) -> None:
        """Make the draft's content durable."""
        # The kernel stamps files by a coarse tick, so two files that get the same inode number in turn
        # could have the same version.
        now_ns = time.time_ns()
        os.utime(draft.descriptor, ns=(now_ns, now_ns))
        self._disk.confirm(draft.descriptor, path)

    def publish(self, draft: Draft, folder: str, *, path: str) -> bool:
        """Give the finished draft its name in `folder`, durable. False if the name is taken."""
        return self._disk.in_folder(folder, lambda: self._link(draft, folder, path), path=path)

    def overwrite(self, draft: Draft, folder_descriptor: int, *, path: str) -> None:
        """Let the finished draft take the place of the file in the open folder."""
        staged = draft.staged
        assert staged is not None, "only a draft with a name can take the place of a file"
        name = os.path.basename(path)
        drop_checksum(name, folder_descriptor)
        os.replace(staged.name, name, src_dir_fd=staged.folder, dst_dir_fd=folder_descriptor)

    def sweep(self, name: str) -> bool:
        """Remove a staged draft if its writer is certainly gone.

        A writer holds a lock on its draft, and the kernel that both share ends
        the lock with the writer. About another machine's writers nothing is known.
        """
        return self._is_swept(name, os.unlink)

    def is_abandoned(self, name: str) -> bool:
        """Whether `sweep` would remove it now."""
        return self._is_swept(name, lambda _name, *, dir_fd: None)

    def _is_swept(self, name: str, unlink: Callable[..., None]) -> bool:
        if not _is_of_this_machine(name):
            return False
        try:
            with self._disk.hold_folder(self._staging) as folder:
                descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    self._disk.lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    unlink(name, dir_fd=folder)
                finally:
                    os.close(descriptor)
        except OSError:
            return False
        return True

    def _open_nameless(self, folder: str, path: str) -> int | None:
        if not self._disk.has_nameless_files:
            return None

        def open_nameless() -> int:
            with self._disk.hold_folder(folder) as parent:
                return os.open(".", os.O_TMPFILE | os.O_WRONLY, self._disk.file_mode, dir_fd=parent)

        try:
            descriptor = self._disk.in_folder(folder, open_nameless, path=path)
        except OSError as error:
            if error.errno in _NO_NAMELESS_FILES:
                return None
            raise
        if not os.path.lexists(_link_to(descriptor)):
            os.close(descriptor)
            return None
        return descriptor

    def _open_staged(self) -> tuple[int, _Staged]:
        """A new file in the staging folder; the caller closes it and the folder."""
        while True:
            with self._disk.hold_folder(self._staging) as open_nameless:
                name, folder = _draft_name(), os.dup(open_nameless)
            try:
                descriptor = os.open(
                    name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, self._disk.file_mode, dir_fd=folder
                )
            except OSError:
                os.close(folder)
                raise
            with suppress(OSError):  # Where nothing can be locked, nothing is swept either.
                self._disk.lock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor, _Staged(folder, name)
            os.close(descriptor)  # It was swept before it was locked.
            os.close(folder)

    def _link(self, draft: Draft, folder: str, path: str) -> bool:
        staged = draft.staged
        source = _link_to(draft.descriptor) if staged is None else staged.name
        with self._disk.hold_folder(folder) as descriptor:
            try:
                # Only the call with directory descriptors follows the link in /proc to the file.
                self._disk.link(
                    source,
                    os.path.basename(path),
                    src_dir_fd=descriptor if staged is None else staged.folder,
                    dst_dir_fd=descriptor,
                    follow_symlinks=True,
                )
                is_ours = True
            except FileExistsError:
                # When a reply is lost, NFS repeats the call and finds what the first one made.
                names = os.fstat(draft.descriptor).st_nlink
                is_ours = names == (1 if staged is None else 2)
            # Also when another was first: the caller builds on a file whose writer may not have synced yet.
            self._disk.confirm(descriptor, path)
        return is_ours


def _link_to(descriptor: int) -> str:
    return f"{_OWN_DESCRIPTORS}/{descriptor}"


def _draft_name() -> str:
    return "~".join((_host(), boot_id(), str(os.getpid()), uuid.uuid4().hex))


def _is_of_this_machine(name: str) -> bool:
    """Whether the kernel that knows the draft's writer runs here, or did before this machine restarted."""
    parts = name.split("~")
    if len(parts) != 4:
        return False
    host, boot, _, _ = parts
    return host == _host() or (boot != "" and boot == boot_id())


def _host() -> str:
    return os.uname().nodename.replace("~", "-").replace("/", "-")
