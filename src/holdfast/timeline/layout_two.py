"""Layout 2 of the timeline, of table versions 8 and 9, shown as layout 1.

Instant files lie in a folder of their own, a completed one is named
`<requested>_<completed>.<action>`, commits are Avro, clustering has an action
of its own until it is completed, and what is archived lies in Parquet files
that a manifest lists. This program writes none of it.
"""

from __future__ import annotations

import datetime as dt
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NoReturn

import msgspec

from holdfast.config.table import TableSettings, not_written
from holdfast.errors import TableDamaged
from holdfast.format.archive import ArchivedFile, commit_text
from holdfast.format.avro import decode_container
from holdfast.format.commits import remove_digest
from holdfast.format.malformed import Malformed, report_damage
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, State, moment_of
from holdfast.model.names import META_FOLDER, SHOWN_AS, instant_file, parse_instant_file
from holdfast.storage.store import Folder, Store, StoredFile
from holdfast.timeline.archived import ArchivedTimeline

_AVRO = b"Obj\x01"
_OWN_FOLDER = f"{META_FOLDER}/.holdfast"
_COMPLETED = re.compile(r"([0-9]{14}(?:[0-9]{3})?)_([0-9]{14}(?:[0-9]{3})?)\.([a-z]+)")
_CLUSTERING = re.compile(r"([0-9]+)\.clustering\.(requested|inflight)")
_VERSION_FILE = "_version_"
_HISTORY_TIMES = ("instantTime", "completionTime", "action")
_JSON_STATES = (State.INFLIGHT, State.COMPLETED)


class LayoutTwo:
    has_completion_times = True

    def __init__(self, settings: TableSettings, zone: dt.tzinfo) -> None:
        timeline, history = settings.timeline_folders
        self.folder = f"{META_FOLDER}/{timeline}"
        self.history = f"{self.folder}/{history}"
        self._zone = zone

    def instants(self, store: Store) -> Iterator[Instant]:
        assert isinstance(store, ReadOnlyStore), "only this store has the layout"
        return iter(store.instants())

    def parse(self, name: str) -> Instant | None:
        """What the name of a file says; None if it is not an instant file."""
        match = _COMPLETED.fullmatch(name)
        if match is not None and match[3] in tuple(Action):
            time, completion = InstantTime(match[1]), InstantTime(match[2])
            return Instant(
                time, Action(match[3]), State.COMPLETED, moment_of(completion, self._zone), completion
            )
        match = _CLUSTERING.fullmatch(name)
        if match is not None:
            return Instant(InstantTime(match[1]), Action.REPLACECOMMIT, State(match[2].upper()))
        parsed = parse_instant_file(name)
        if parsed is None:
            return None
        if parsed[2] is State.COMPLETED:
            raise TableDamaged(
                "a completed instant does not say when it was completed",
                file=f"{self.folder}/{name}",
                hint="copy the timeline again from where the table came from",
            )
        return Instant(*parsed)

    def read_archive(self, store: Store, folder: str, zone: dt.tzinfo) -> ArchivedTimeline:
        """All that is archived, with what it says."""
        files: dict[tuple[InstantTime, Action, State], ArchivedFile] = {}
        for row in self._history_rows(store, None):
            time, completion, action = _times_of(row)
            moment = moment_of(completion, self._zone)
            for state, content in ((State.COMPLETED, row["metadata"]), (State.REQUESTED, row["plan"])):
                if state is State.COMPLETED:
                    shown = as_layout_one(content or b"", action, state)
                    files[time, action, state] = ArchivedFile(time, action, state, shown, moment, completion)
                elif content:
                    # What became a commit and has a plan is a compaction.
                    begun = Action.COMPACTION if action is Action.COMMIT else action
                    files[time, action, state] = ArchivedFile(time, begun, state, content)
        return ArchivedTimeline(files)

    def completions_in_archive(self, store: Store) -> dict[InstantTime, InstantTime]:
        """When each archived write was completed."""
        rows = self._history_rows(store, _HISTORY_TIMES)
        found = {}
        for time, completion, action in map(_times_of, rows):
            if action in COMMIT_ACTIONS:
                found[time] = completion
        return found

    def _history_rows(self, store: Store, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        paths = self._history_files(store)
        for path, content in zip(paths, store.read_all(paths), strict=True):
            if content is None:
                raise TableDamaged("a file of the archived timeline is missing", file=path)
            try:
                rows = pq.read_table(io.BytesIO(content), columns=None if columns is None else list(columns))
                found = rows.to_pylist()
            except (pa.ArrowException, OSError) as error:
                raise TableDamaged(
                    "a file of the archived timeline cannot be read", file=path, cause=error
                ) from error
            with report_damage("a file of the archived timeline cannot be read", file=path):
                _check_rows(found)
            yield from found

    def _history_files(self, store: Store) -> list[str]:
        """The Parquet files of the newest manifest; none before anything was archived."""
        listed = [file.path.rpartition("/")[2] for file in store.folder(self.history).files]
        if _VERSION_FILE not in listed:
            if any(name.endswith(".parquet") for name in listed):
                raise TableDamaged(
                    "the archived timeline does not say which of its files count",
                    file=f"{self.history}/{_VERSION_FILE}",
                )
            return []
        version_path = f"{self.history}/{_VERSION_FILE}"
        version = store.read(version_path).decode(errors="replace").strip()
        manifest = f"{self.history}/manifest_{version}"
        try:
            names = msgspec.json.decode(store.read(manifest), type=_Manifest).files
        except FileNotFoundError as error:
            raise TableDamaged("the manifest of the archived timeline is missing", file=manifest) from error
        except ValueError as error:
            raise TableDamaged(
                "the manifest of the archived timeline cannot be read", file=manifest, cause=error
            ) from error
        return [f"{self.history}/{each.file_name}" for each in names]


class _HistoryFile(msgspec.Struct, rename="camel"):
    file_name: str


class _Manifest(msgspec.Struct):
    files: list[_HistoryFile]


def _check_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        _times_of(row)


def _times_of(row: Mapping[str, Any]) -> tuple[InstantTime, InstantTime, Action]:
    """Request, completion and action of a row of the history, as layout 1 would name them."""
    try:
        action = "replacecommit" if row["action"] == "clustering" else row["action"]
        found = Action(action)
        return (
            InstantTime(row["instantTime"]),
            InstantTime(row["completionTime"] or ""),
            SHOWN_AS.get(found, found),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise Malformed(f"a row is not an archived instant: {error}") from error


def as_layout_one(content: bytes, action: Action, state: State) -> bytes:
    """What layout 1 has in the file of an instant: JSON where layout 2 has Avro.

    Of commits that this program made before Hudi upgraded the table, Hudi wrote the text anew: their
    digests are of another one.
    """
    if action not in COMMIT_ACTIONS or state not in _JSON_STATES:
        return content
    try:
        text = commit_text(decode_container(content)) if content.startswith(_AVRO) else content
    except Malformed:
        return content  # The reader of it reports that.
    return remove_digest(text)


class ReadOnlyStore:
    """The storage of a table whose timeline has layout 2: its instants as of layout 1; nothing is written.

    What this program kept beside the table before Hudi upgraded it, the ledger above all, is not
    shown: it knows nothing of what Hudi has done since, and would call its archives and cleans damage.
    """

    def __init__(self, store: Store, layout: LayoutTwo, settings: TableSettings) -> None:
        self.beneath = store
        self.layout = layout
        self._settings = settings
        self._names: dict[str, str] = {}
        """Path in layout 1 → the file that is there, as of the last listing."""

    def read(self, path: str) -> bytes:
        found = self.read_all([path])[0]
        if found is None:
            raise FileNotFoundError(path)
        return found

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        places = [self._place(path) for path in paths]
        contents = self.beneath.read_all(places)
        return [
            None
            if _is_ours(path)
            else content
            if content is None or place == path
            else _translate(path, content)
            for path, place, content in zip(paths, places, contents, strict=True)
        ]

    def read_version(self, path: str) -> tuple[bytes, str]:
        if _is_ours(path):
            raise FileNotFoundError(path)
        return self.beneath.read_version(path)

    def stat(self, path: str) -> StoredFile | None:
        if _is_ours(path):
            return None
        found = self.beneath.stat(self._place(path))
        return None if found is None else StoredFile(path, found.size, found.modified_ms)

    def walk(self, folder: str) -> Iterator[StoredFile]:
        return self.beneath.walk(folder)

    def paths(self, folder: str, *, without: str = "") -> list[str]:
        return self.beneath.paths(folder, without=without)

    def folder(self, path: str, *, after: str = "") -> Folder:
        if _is_ours(path):
            return Folder((), ())
        beneath = self.beneath.folder(path, after=after)
        if path != META_FOLDER:
            return beneath
        shown = {
            file.path: file
            for file in beneath.files
            if parse_instant_file(file.path.rpartition("/")[2]) is None
        }
        for file, _ in self._list():
            if file.path.rpartition("/")[2] > after:
                shown[file.path] = file
        folders = tuple(one for one in beneath.folders if not _is_ours(one))
        return Folder(tuple(shown[name] for name in sorted(shown)), folders)

    def open(self, path: str) -> BinaryIO:
        return self.beneath.open(path)

    def leftovers(self) -> tuple[StoredFile, ...]:
        return self.beneath.leftovers()

    def uri(self, path: str) -> str:
        return self.beneath.uri(path)

    def instants(self) -> list[Instant]:
        return [instant for _, instant in self._list()]

    def _list(self) -> list[tuple[StoredFile, Instant]]:
        """Each instant file as layout 1 has it, and what it says."""
        names: dict[str, str] = {}
        shown: list[tuple[StoredFile, Instant]] = []
        for file in self.beneath.folder(self.layout.folder).files:
            instant = self.layout.parse(file.path.rpartition("/")[2])
            if instant is None:
                continue
            path = instant_file(instant.time, instant.action, instant.state)
            if path in names:
                raise TableDamaged("an instant was completed twice", file=file.path, other=names[path])
            names[path] = file.path
            moment = instant.completed_at
            modified = file.modified_ms if moment is None else round(moment.timestamp() * 1000)
            shown.append((StoredFile(path, file.size, modified), instant))
        self._names = names
        return shown

    def _place(self, path: str) -> str:
        """Where the file really is."""
        parent, _, name = path.rpartition("/")
        if parent != META_FOLDER or parse_instant_file(name) is None:
            return path
        if path not in self._names:
            self._list()
        return self._names.get(path, path)

    def create(self, path: str, content: bytes) -> NoReturn:
        self._refuse()

    def put(self, path: str, content: bytes) -> NoReturn:
        self._refuse()

    def replace(self, path: str, content: bytes, version: str) -> NoReturn:
        self._refuse()

    def delete(self, path: str) -> NoReturn:
        self._refuse()

    def delete_all(self, paths: Iterable[str]) -> NoReturn:
        self._refuse()

    def upload(self, path: str) -> AbstractContextManager[BinaryIO]:
        self._refuse()

    def prune(self, folder: str) -> NoReturn:
        self._refuse()

    def sweep_leftovers(self) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise not_written(self._settings.version)


def _translate(path: str, content: bytes) -> bytes:
    parsed = parse_instant_file(path.rpartition("/")[2])
    assert parsed is not None, "only instant files lie elsewhere"
    return as_layout_one(content, parsed[1], parsed[2])


def _is_ours(path: str) -> bool:
    return path == _OWN_FOLDER or path.startswith(f"{_OWN_FOLDER}/")
