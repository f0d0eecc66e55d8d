"""Errors of the operating system, said in the words of the port.

`FileNotFoundError` and `FileExistsError` are named by the port and pass; every
other `OSError` becomes `StorageUnavailable`.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.errors import StorageUnavailable


@contextmanager
def refusals(path: str) -> Iterator[None]:
    """Translate what the operating system refuses in this block."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise StorageUnavailable("storage refused", path=path, cause=error.strerror or error) from error


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
