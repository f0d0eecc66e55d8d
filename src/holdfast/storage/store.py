"""The one door to storage: every byte of a table passes through a `Store`.

Timeline, ledger, markers and the files that Spark tasks write all use these
verbs. This is where durability is promised, faults are injected in tests and
operations are counted. Paths are relative to the table's root, with `/`
between segments and none at either end; `""` is the root.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class StoredFile:
    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Folder:
    """Direct children of a folder, each in ascending byte order of name."""

    files: tuple[StoredFile, ...]
    folders: tuple[str, ...]  # paths, not names


class Store(Protocol):
    """Files under one table root. Implementations keep these promises:

    1. `create` succeeds for exactly one caller per path; the others get False.
    2. Content is whole or absent: no reader sees a part of a file, whatever
       `create`, `put`, `replace` or `upload` was doing when it was killed.
    3. What was acknowledged survives a power cut.
    4. Whatever returned before a read or a listing began is seen by it.
    5. `replace` succeeds only if the file still has the version given, and for
       at most one of those who give the same version.
    6. `walk` and `paths` go in ascending order of the UTF-8 bytes of the path;
       `folder` likewise among its files and among its folders.
    7. Deleting an absent file succeeds.
    8. An error other than the ones named is `StorageUnavailable` with the path
       as a fact; the change may or may not have happened.
    9. A path with an empty, `.` or `..` segment or a NUL is refused with
       `InvalidRequest`.
    """

    def create(self, path: str, content: bytes) -> bool:
        """Create the file, durable. False if it exists already."""

    def put(self, path: str, content: bytes) -> None:
        """Create or overwrite the file, durable."""

    def read(self, path: str) -> bytes:
        """The whole content. `FileNotFoundError` if absent."""

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """The contents of many files in the order given; None for one that is absent."""

    def read_version(self, path: str) -> tuple[bytes, str]:
        """Content and a version for `replace`. `FileNotFoundError` if absent."""

    def replace(self, path: str, content: bytes, version: str) -> bool:
        """Overwrite the file if it still has `version`. False if it does not."""

    def stat(self, path: str) -> StoredFile | None:
        """Size and time of one file; None if there is no file."""

    def delete(self, path: str) -> None:
        """Remove the file, durable."""

    def delete_all(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Remove many files at the price of few syncs; those that would not go."""

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Every file below `folder`. Nothing if the folder is absent."""

    def paths(self, folder: str, *, without: str = "") -> list[str]:
        """As `walk`, the paths only: cheaper, because nothing is asked of each file.

        `without` names a folder to leave out.
        """

    def folder(self, path: str, *, after: str = "") -> Folder:
        """Direct children whose name is greater than `after`."""

    def upload(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A sink for one data file.

        The file appears, whole and durable, when the block ends normally; if
        the block raises, nothing appears. `FileExistsError` at the end if the
        path is taken.
        """

    def open(self, path: str) -> BinaryIO:
        """A seekable source for one data file. `FileNotFoundError` if absent."""

    def prune(self, folder: str) -> None:
        """Remove empty folders at and below `folder`, where folders exist at all.

        The root stays.
        """

    def leftovers(self) -> tuple[StoredFile, ...]:
        """What killed processes left half-written, outside every listing above."""

    def sweep_leftovers(self) -> tuple[str, ...]:
        """Remove leftovers whose writer is certainly gone; their paths."""

    def uri(self, path: str) -> str:
        """How another program (Spark, hudi-rs) names this file."""


def read_or_none(store: Store, path: str) -> bytes | None:
    """The content of a file that may be absent."""
    try:
        return store.read(path)
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Where a store is: a value that travels to Spark tasks and is opened there."""

    uri: str
    options: Mapping[str, str] = field(repr=False)
    """May hold credentials, so its text form does not show them."""
    is_private: bool = False
    """Whether what is made there, on a local disk, is for the user alone who makes it."""
