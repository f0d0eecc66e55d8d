"""The deep store: the files of all segments, and for a while those of deleted ones.

A segment's file is `<table>/<encoded segment>__<token>.parquet`. The token is
new for every upload, so a path never means two contents: who holds a path reads
what it meant, and who deletes one deletes nothing newer. A deleted file moves
to `Deleted_Segments/<table>/`, where its name tells until when it stays.
`Push_Runs/<table>/` holds the records of push jobs that are under way.
"""

import datetime as dt
import hashlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import unquote, unquote_plus

from holdfast.config.push import raw_name
from holdfast.errors import InvalidRequest
from holdfast.push.segments.names import (
    check_segment_name,
    url_encode_name,
)
from holdfast.storage.store import Store, StoredFile

DELETED = "Deleted_Segments"
RUNS = "Push_Runs"

_UNTIL = "__RETENTION_UNTIL__"
_MINUTE = "%Y%m%d%H%M"
_MINUTE_MS = 60_000
_LAST_MINUTE_MS = 253_402_300_740_000
"""The end of the year 9999, the last that a calendar has."""
_TOKEN = re.compile(r"[A-Za-z0-9-]{1,64}")
_ENDING = re.compile(r"(?P<segment>.+)__(?P<token>[A-Za-z0-9-]{1,64})\.(?:parquet|tar\.gz)")
_DELETED_NAME = re.compile(rf".+{_UNTIL}(?P<until>[0-9]{{12}})")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file that is whole and durable in the deep store."""

    path: str
    size_bytes: int
    digest: str
    """SHA-256, in hexadecimal."""


class DeepStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    def put(
        self,
        table: str,
        segment: str,
        source: "os.PathLike[str] | BinaryIO | bytes",
        *,
        token: str,
        is_opaque: bool = False,
    ) -> SegmentFile:
        """Keep a segment's bytes, durable when it returns. `token` must be new for every call."""
        path = segment_path(table, segment, token=token, ending="tar.gz" if is_opaque else "parquet")
        with _open_source(source) as content, self._store.upload(path) as sink:
            size, digest = _copy(content, sink)
        return SegmentFile(path, size, digest)

    def open(self, path: str) -> BinaryIO:
        """A seekable source. `FileNotFoundError` if the file is gone."""
        return self._store.open(path)

    def stat(self, path: str) -> StoredFile | None:
        return self._store.stat(path)

    def uri(self, path: str) -> str:
        """How another program names the file."""
        return self._store.uri(path)

    def path_of(self, uri: str) -> str | None:
        """The path of the file that another program names so; None if it is not in the deep store."""
        place = unquote(uri.removeprefix("file://")) if uri.startswith("file:///") else uri
        root = self._store.uri("_").removesuffix("_")
        return place.removeprefix(root) if place.startswith(root) else None

    def retire(self, path: str, *, until_ms: int | None) -> None:
        """Take a file out of its table: into the deleted area until then, or away if None.

        Repeating it is safe; so is a crash in between, after which the file is
        in both places.
        """
        table, slash, name = path.partition("/")
        if not slash or "/" in name or table == DELETED:
            raise InvalidRequest("not the file of a segment", path=path)
        if until_ms is not None:
            self._copy_to(f"{DELETED}/{table}/{name}{_UNTIL}{_minute(until_ms)}", path)
        self._store.delete(path)

    def files(self, table: str) -> Iterator[StoredFile]:
        """Every file of a table, whether or not a record names it; the deleted area is not in it."""
        return self._store.walk(raw_name(table))

    def files_in_deleted_area(self, table: str) -> Iterator[StoredFile]:
        return self._store.walk(f"{DELETED}/{raw_name(table)}")

    def tables_with_deleted_files(self) -> tuple[str, ...]:
        return tuple(path.rpartition("/")[2] for path in self._store.folder(DELETED).folders)

    def list_expired(self, table: str, *, now_ms: int, limit: int = 1000) -> tuple[str, ...]:
        """Files of the deleted area whose time has come, oldest names first."""
        found = []
        for file in self.files_in_deleted_area(table):
            match = _DELETED_NAME.fullmatch(file.path)
            if match is not None and _minute_ms(match["until"]) <= now_ms:
                found.append(file.path)
                if len(found) == limit:
                    break
        return tuple(found)

    def remove_deleted(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Delete files of the deleted area for good; those that would not go."""
        for path in paths:
            if not path.startswith(f"{DELETED}/"):
                raise InvalidRequest("not a file of the deleted area", path=path)
        return self._store.delete_all(paths)

    def remove_runs(self, table: str, *, before_ms: int) -> None:
        """Forget the push jobs whose records are older."""
        files = self._store.walk(runs_folder(table))
        self._store.delete_all([file.path for file in files if file.modified_ms < before_ms])

    def sweep_leftovers(self) -> tuple[str, ...]:
        """Remove what killed uploads left half-written."""
        return self._store.sweep_leftovers()

    def _copy_to(self, target: str, path: str) -> None:
        try:
            with self._store.open(path) as source, self._store.upload(target) as sink:
                _copy(source, sink)
        except FileExistsError:
            return  # An earlier attempt died before it could delete the original.
        except FileNotFoundError:
            return


def segment_path(table: str, segment: str, *, token: str, ending: str = "parquet") -> str:
    """Where a segment's file is. `token` must be new for every file."""
    check_segment_name(segment)
    assert _TOKEN.fullmatch(token), "a token is a short plain word"
    return f"{raw_name(table)}/{url_encode_name(segment)}__{token}.{ending}"


def runs_folder(table: str) -> str:
    return f"{RUNS}/{raw_name(table)}"


def run_path(table: str, run: str) -> str:
    """Where the record of a push job is."""
    return f"{runs_folder(table)}/{run}.json"


def segment_of_file(path: str) -> str | None:
    """The segment a file belongs to, by its name; None if it is none of a segment."""
    match = _ENDING.fullmatch(path.rpartition("/")[2])
    if match is None:
        return None
    name = unquote_plus(match["segment"])
    return name if url_encode_name(name) == match["segment"] else None


def is_file_of(table: str, path: str) -> bool:
    """Whether a path names a file of one of the table's segments, and nothing beside or above them."""
    folder, _, name = path.rpartition("/")
    return folder == raw_name(table) and segment_of_file(name) is not None


def is_in_deep_store(table: str, uri: str) -> bool:
    """Whether the deep store holds a segment's file; one that was pushed by address is not ours."""
    return "://" not in uri and uri.startswith(f"{raw_name(table)}/")


@contextmanager
def _open_source(source: "os.PathLike[str] | BinaryIO | bytes") -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
    elif isinstance(source, os.PathLike):
        with open(source, "rb") as file:
            yield file
    else:
        yield source


def _copy(source: BinaryIO, sink: BinaryIO) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
        sink.write(chunk)
    return size, digest.hexdigest()


def _minute(until_ms: int) -> str:
    """The first whole minute that is not before; names say no more than minutes."""
    rounded = min(-(-until_ms // _MINUTE_MS) * _MINUTE_MS, _LAST_MINUTE_MS)
    return dt.datetime.fromtimestamp(rounded / 1000, dt.UTC).strftime(_MINUTE)


def _minute_ms(text: str) -> int:
    try:
        moment = dt.datetime.strptime(text, _MINUTE).replace(tzinfo=dt.UTC)
    except ValueError:
        # Not a moment, so not a name that retention gave: the file stays.
        return 1 << 62
    return int(moment.timestamp()) * 1000
