"""Errors of the operating system, said in the words of the port.

`FileNotFoundError` and `FileExistsError` are named by the port and pass; every
other `OSError` becomes `StorageUnavailable`.
"""

import errno
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from holdfast.errors import StorageRefused, StorageUnavailable

_SINK_BUFFER_BYTES = 1 << 20
_MAKE_ROOM = "make room, then run the same again"
_PERMIT = "check the permissions there"
_HINTS = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EACCES: _PERMIT,
    errno.EPERM: _PERMIT,
    errno.EROFS: _PERMIT,
}


@contextmanager
def refusals(path: str, *, is_untouched: bool = False) -> Iterator[None]:
    """Translate what the operating system refuses in this block.

    `is_untouched`: nothing in it can be seen by anybody.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        kind = StorageRefused if is_untouched else StorageUnavailable
        hint = _HINTS.get(error.errno or 0, "")
        raise kind("storage refused", path=path, cause=error.strerror or error, hint=hint) from error


class GuardedFile(io.FileIO):
    """A descriptor whose reads and writes fail with the port's errors.

    Callers hold it for long, outside any block of ours. Closing it leaves the
    descriptor open if `closefd` says so.
    """

    def __init__(self, descriptor: int, mode: str, *, path: str, closefd: bool) -> None:
        super().__init__(descriptor, mode, closefd=closefd)
        self._path = path

    def readinto(self, buffer: Any) -> int | None:
        with refusals(self._path):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with refusals(self._path):
            return super().readall() or b""

    def write(self, content: Any) -> int:
        with refusals(self._path):
            return super().write(content) or 0


@contextmanager
def open_sink(descriptor: int, path: str) -> Iterator[BinaryIO]:
    """What is written to it is in the file of the descriptor when the block ends, unless that fails."""
    file = GuardedFile(descriptor, "wb", path=path, closefd=False)
    sink = io.BufferedWriter(file, _SINK_BUFFER_BYTES)
    try:
        yield sink
        if not sink.closed:
            sink.flush()
    finally:
        # Once its file is closed, an abandoned sink does not flush when it is collected.
        file.close()
