"""Tables in an object store: S3, Google Cloud Storage, Azure.

The service itself keeps most promises of the port: an object appears whole and
durable, and reads and listings are fresh. Conditions on the request give
`create` and `replace`.
"""

import errno
import io
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore

from holdfast.errors import InvalidRequest, StorageUnavailable
from holdfast.storage.paths import check_folder, check_path, outside, prefix_of
from holdfast.storage.refusals import open_sink, refusals
from holdfast.storage.store import Folder, StoredFile, read_or_none

if TYPE_CHECKING:
    from obstore import ObjectMeta, UpdateVersion
    from obstore.store import ObjectStore as Objects

_PAGE = 1000
_PARALLEL_DELETES = 16
_PARALLEL_READS = 16
_SOURCE_BUFFER_BYTES = 1 << 20


class ObjectStore:
    """A `Store` in a bucket or container.

    What a caller must know beyond the port:

    - A request that the service answered with an error may be repeated by the
      client although it took effect. `create` and `replace` can therefore
      answer False about one's own success; a caller that must know compares content.
    - S3 computes the version from the content. `replace` by equal content
      leaves the version as it is, so content that is replaced must always
      differ, for example by a unique part.
    - `upload` spools to an unnamed file in the local temporary folder and sends
      it from there in one request: S3 takes at most 5 GiB, and the whole request
      must end within the client's `timeout`.
    - A path with a control character is refused with `InvalidRequest`.
    - The object that Hadoop leaves for an empty folder is listed by `walk` and
      `paths` as an empty file, because its name loses its last slash.
    """

    def __init__(self, objects: "Objects", base_uri: str) -> None:
        self._objects = objects
        self._base_uri = base_uri.rstrip("/")

    def create(self, path: str, content: bytes) -> bool:
        check_path(path)
        return self._create(path, content)

    def put(self, path: str, content: bytes) -> None:
        check_path(path)
        with _answers(path):
            obstore.put(self._objects, path, content, use_multipart=False)

    def read(self, path: str) -> bytes:
        content, _ = self._get(path)
        return content

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        with ThreadPoolExecutor(max_workers=_PARALLEL_READS) as readers:
            return list(readers.map(lambda path: read_or_none(self, path), paths))

    def read_version(self, path: str) -> tuple[bytes, str]:
        content, meta = self._get(path)
        return content, _version(meta)

    def replace(self, path: str, content: bytes, version: str) -> bool:
        check_path(path)
        with _answers(path):
            try:
                obstore.put(self._objects, path, content, mode=_condition(version))
            except (PreconditionError, FileNotFoundError):
                return False
        return True

    def stat(self, path: str) -> StoredFile | None:
        check_path(path)
        with _answers(path), suppress(FileNotFoundError):
            return _file_of(obstore.head(self._objects, path))
        return None

    def delete(self, path: str) -> None:
        check_path(path)
        with _answers(path), suppress(FileNotFoundError):
            obstore.delete(self._objects, path)

    def delete_all(self, paths: Iterable[str]) -> tuple[str, ...]:
        doomed = list(paths)
        for path in doomed:
            check_path(path)
        stuck: list[str] = []
        for start in range(0, len(doomed), _PAGE):
            stuck += self._delete_page(doomed[start : start + _PAGE])
        return tuple(stuck)

    def walk(self, folder: str) -> Iterator[StoredFile]:
        return iter([_file_of(meta) for meta in self._below(folder)])

    def paths(self, folder: str, *, without: str = "") -> list[str]:
        return outside(without, [meta["path"] for meta in self._below(folder)])

    def folder(self, path: str, *, after: str = "") -> Folder:
        check_folder(path)
        tail = self._flat_tail(path, after) if after else None
        if tail is not None:
            return Folder(_in_order(tail), ())
        with _answers(path):
            listed = obstore.list_with_delimiter(self._objects, path or None)
        first = prefix_of(path) + after
        return Folder(
            _in_order(meta for meta in listed["objects"] if meta["path"] > first),
            tuple(sorted(folder for folder in listed["common_prefixes"] if folder > first)),
        )

    @contextmanager
    def upload(self, path: str) -> Iterator[BinaryIO]:
        check_path(path)
        with ExitStack() as closing:
            with refusals(path):
                spool = closing.enter_context(tempfile.TemporaryFile(buffering=0))
            with open_sink(spool.fileno(), path) as sink:
                yield sink
            is_created = self._create(path, _map_file(spool.fileno(), path))
            is_ours = is_created or self._has_content(path, spool.fileno())
        if not is_ours:
            raise FileExistsError(errno.EEXIST, "the path is taken", path)

    def open(self, path: str) -> BinaryIO:
        found = self.stat(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return io.BufferedReader(_Ranges(self._objects, found), _SOURCE_BUFFER_BYTES)

    def prune(self, folder: str) -> None:
        """There are no folders apart from the objects in them."""
        check_folder(folder)

    def leftovers(self) -> tuple[StoredFile, ...]:
        """None: every object is sent in one request."""
        return ()

    def sweep_leftovers(self) -> tuple[str, ...]:
        return ()

    def uri(self, path: str) -> str:
        check_folder(path)
        return f"{self._base_uri}/{path}" if path else self._base_uri

    def _has_content(self, path: str, spool: int) -> bool:
        """Whether the object is the one just sent: a repeated request may meet its own success."""
        found = self.stat(path)
        if found is None or found.size != os.fstat(spool).st_size:
            return False
        return found.size == 0 or self.read(path) == _map_file(spool, path)[:]

    def _create(self, path: str, content: bytes | mmap.mmap) -> bool:
        with _answers(path):
            try:
                obstore.put(self._objects, path, content, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def _get(self, path: str) -> "tuple[bytes, ObjectMeta]":
        check_path(path)
        with _answers(path), suppress(FileNotFoundError):
            answer = obstore.get(self._objects, path)
            return answer.bytes().to_bytes(), answer.meta
        raise FileNotFoundError(errno.ENOENT, "no such object", path)

    def _delete_page(self, paths: list[str]) -> list[str]:
        try:
            obstore.delete(self._objects, paths)
        except (BaseError, OSError):
            # One refusal or, except on S3, one absent object fails the whole page without saying which.
            with ThreadPoolExecutor(_PARALLEL_DELETES) as pool:
                gone = pool.map(self._is_deleted, paths)
            return [path for path, is_gone in zip(paths, gone, strict=True) if not is_gone]
        return []

    def _is_deleted(self, path: str) -> bool:
        try:
            self.delete(path)
        except StorageUnavailable:
            return False
        return True

    def _below(self, folder: str) -> "list[ObjectMeta]":
        """Every object below the folder, in order of path."""
        check_folder(folder)
        with _answers(folder):
            found = obstore.list(self._objects, folder or None, chunk_size=_PAGE).collect()
        return sorted(_without_folders(found, folder), key=lambda meta: meta["path"])

    def _flat_tail(self, folder: str, after: str) -> "list[ObjectMeta] | None":
        """The objects in `folder` after a name, if certainly no folder is among them.

        Long flat folders are read from their end again and again; this costs
        what is new in them, not what they hold.
        """
        if isinstance(self._objects, AzureStore):
            return None  # It lists from the beginning anyway, and here with all that lies deeper.
        prefix = prefix_of(folder)
        tail: list[ObjectMeta] = []
        with _answers(folder):
            for page in obstore.list(self._objects, folder or None, offset=prefix + after, chunk_size=_PAGE):
                if any(meta["size"] == 0 or "/" in meta["path"].removeprefix(prefix) for meta in page):
                    return None
                tail += page
        return tail


class _Ranges(io.RawIOBase):
    """An object as a file: every read is a request for a range."""

    def __init__(self, objects: "Objects", file: StoredFile) -> None:
        super().__init__()
        self._objects = objects
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        if start + offset < 0:
            raise ValueError(f"negative position: {start + offset}")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the caller is a BufferedReader
        length = min(len(buffer), self._file.size - self._position)
        if length <= 0:
            return 0
        with _answers(self._file.path):
            content = obstore.get_range(self._objects, self._file.path, start=self._position, length=length)
        buffer[: len(content)] = memoryview(content)
        self._position += len(content)
        return len(content)


@contextmanager
def _answers(path: str) -> Iterator[None]:
    """Translate what the service answers in this block."""
    try:
        yield
    except (BaseError, OSError) as error:
        cause = str(error).partition("\n")[0]
        raise StorageUnavailable("storage refused", path=path, cause=cause) from error
    except ValueError as error:
        # The client refuses control characters before it sends anything.
        cause = str(error).partition("\n")[0]
        raise InvalidRequest("not a path for an object store", path=repr(path), cause=cause) from error


def _map_file(descriptor: int, path: str) -> bytes | mmap.mmap:
    """The file as memory that the system may drop and read again, however large it is.

    Given the file itself, the client would copy it into memory as a whole.
    """
    with refusals(path):
        if os.fstat(descriptor).st_size == 0:
            return b""
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


def _version(meta: "ObjectMeta") -> str:
    """Entity tag and generation: Google conditions a write on the latter, others on the former."""
    return f"{meta['e_tag'] or ''}\n{meta['version'] or ''}"


def _condition(version: str) -> "UpdateVersion":
    tag, _, generation = version.partition("\n")
    condition: UpdateVersion = {"e_tag": tag}
    if generation:
        condition["version"] = generation
    return condition


def _without_folders(found: "Sequence[ObjectMeta]", folder: str) -> "Iterator[ObjectMeta]":
    """The listed objects but for those that Hadoop leaves to stand for a folder.

    They are empty and their name ended in a slash, which the client removes.
    """
    folders = {folder}
    if any(meta["size"] == 0 for meta in found):
        for parent in {meta["path"].rpartition("/")[0] for meta in found}:
            while parent not in folders:
                folders.add(parent)
                parent = parent.rpartition("/")[0]
    return (meta for meta in found if meta["size"] or meta["path"] not in folders)


def _in_order(found: "Iterable[ObjectMeta]") -> tuple[StoredFile, ...]:
    return tuple(sorted(map(_file_of, found), key=lambda file: file.path))


def _file_of(meta: "ObjectMeta") -> StoredFile:
    return StoredFile(meta["path"], meta["size"], round(meta["last_modified"].timestamp() * 1000))
