"""What a table has taken in: the files of its sources and the batches of its streams.

The extra metadata of a commit names the sources of its rows. So what was
ingested is exactly what the commits that stand name, archived ones included: a
commit that is rolled back, undone or restored away forgets its files.

    holdfast.source.pipeline   the pipeline's name
    holdfast.source.folder     what the names of the files are relative to
    holdfast.source.files      [["day1.csv", size, modified in ms], ...]
    holdfast.source.rejected   how many of their rows were left out, because they did not fit
    holdfast.source.query      the stream's id, and
    holdfast.source.batch      the number of its micro-batch

A checkpoint under `.hoodie/.holdfast/sources` keeps what many commits named.
It is a copy: without it they are read again.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from holdfast.errors import Conflict, Refused
from holdfast.format.commits import decode_extra_metadata
from holdfast.format.ledger_entries import decode_checkpoint, encode_checkpoint
from holdfast.format.malformed import Malformed, report_damage
from holdfast.jobs.source_files import SourceFile
from holdfast.model.instant import InstantTime, State
from holdfast.model.names import SOURCES_FOLDER, instant_file
from holdfast.storage.store import read_or_none
from holdfast.table.opened import OpenTable
from holdfast.table.stable_read import read_stable
from holdfast.timeline.archived import archive_files, read_archives
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline, read_all_completed
from holdfast.writes.origin import ExtraMetadata, Origin

log = logging.getLogger(__name__)

_PIPELINE = "holdfast.source.pipeline"
_FOLDER = "holdfast.source.folder"
_FILES = "holdfast.source.files"
_REJECTED = "holdfast.source.rejected"
_QUERY = "holdfast.source.query"
_BATCH = "holdfast.source.batch"

_CHECKPOINT_AFTER = 50
_CHECKPOINTS_KEPT = 2

_Listed = tuple[str, int, int]
"""A file as a commit names it: its name in the folder, its size, when it was modified."""
_FILE_LIST = msgspec.json.Decoder(list[_Listed])


class Changed(StrEnum):
    """What a file means that is not as it was when it was ingested."""

    REFUSE = "refuse"
    IGNORE = "ignore"
    INGEST = "ingest"


class Intake(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one commit took in."""

    folder: str = ""
    files: tuple[_Listed, ...] = ()
    query: str = ""
    batch: int = -1

    def sources(self) -> Iterable[SourceFile]:
        for name, size, modified_ms in self.files:
            yield SourceFile(f"{self.folder}/{name}", size, modified_ms)


@dataclass(frozen=True, slots=True)
class Ingested:
    """What the standing commits of a table took in."""

    files: Mapping[str, SourceFile] = field(default_factory=dict)
    """By address, as the newest commit names each that took it in."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """The newest batch of each query."""


NOTHING_INGESTED = Ingested()


def new_files(listed: Iterable[SourceFile], ingested: Ingested, *, changed: Changed) -> list[SourceFile]:
    """Those of the files that are to be ingested, in the order given."""
    found: list[SourceFile] = []
    for file in listed:
        known = ingested.files.get(address_of(file))
        if known is None:
            found.append(file)
        elif (known.size, known.modified_ms) != (file.size, file.modified_ms):
            if changed is Changed.REFUSE:
                raise Refused(
                    "a file was changed after it was ingested",
                    file=file.uri,
                    size_then=known.size,
                    size_now=file.size,
                    hint="put the rows into a new file, or say `changed: ignore` or `changed: ingest`",
                )
            if changed is Changed.INGEST:
                found.append(file)
    return found


def address_of(file: SourceFile) -> str:
    """What tells one file from another: Spark and others spell addresses in S3 in two ways."""
    return f"s3{file.uri[3:]}" if file.uri.startswith("s3a:") else file.uri


def files_origin(
    register: "Register",
    files: Sequence[SourceFile],
    ingested: Ingested,
    *,
    pipeline: str,
    rejected: int = 0,
) -> Origin:
    """The origin of rows that come from these files, which were new when `ingested` was read."""
    addresses = {address_of(file): file for file in files}
    before = {address: ingested.files.get(address) for address in addresses}

    def check() -> None:
        now = register.read().files
        for address, file in before.items():
            if now.get(address) != file:
                raise _already_ingested(address)

    def conflict(extra_metadata: ExtraMetadata) -> str | None:
        other = decode_intake(extra_metadata)
        taken = next((f.uri for f in other.sources() if f.uri in addresses), None) if other else None
        return None if taken is None else f"both ingested {taken}"

    counted = {_REJECTED: str(rejected)} if rejected else {}
    return Origin(
        extra_metadata={_PIPELINE: pipeline, **_file_facts(addresses), **counted},
        check=check,
        conflict=conflict,
    )


def plain_origin(pipeline: str) -> Origin:
    """The origin of rows that have no identity: they may have been ingested before."""
    return Origin(extra_metadata={_PIPELINE: pipeline})


def batch_origin(register: "Register", query: str, batch: int, *, pipeline: str) -> Origin:
    """The origin of rows that are a micro-batch of a stream."""

    def check() -> None:
        if register.read().batches.get(query, -1) >= batch:
            raise _already_ingested(f"batch {batch} of {query}")

    def conflict(extra_metadata: ExtraMetadata) -> str | None:
        other = decode_intake(extra_metadata)
        is_same = other is not None and other.query == query and other.batch >= batch
        return f"both ingested batch {batch} of {query}" if is_same else None

    extra_metadata = {_PIPELINE: pipeline, _QUERY: query, _BATCH: str(batch)}
    return Origin(extra_metadata=extra_metadata, check=check, conflict=conflict)


def _already_ingested(what: str) -> Conflict:
    return Conflict(
        "another run ingested it first", source=what, hint="run again: what is left is ingested then"
    )


def _file_facts(files: Mapping[str, SourceFile]) -> dict[str, str]:
    addresses = sorted(files)
    folder = _common_folder(addresses)
    listed = [(a[len(folder) + 1 :], files[a].size, files[a].modified_ms) for a in addresses]
    return {_FOLDER: folder, _FILES: msgspec.json.encode(listed).decode()}


def _common_folder(addresses: Sequence[str]) -> str:
    """The deepest folder that all are in. They are sorted, so the first and the last tell."""
    first, last = addresses[0], addresses[-1]
    end = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:end].rpartition("/")[0]


def decode_intake(extra_metadata: ExtraMetadata) -> Intake | None:
    """What was taken in, by the extra metadata; None if nothing. `Malformed` if it cannot be read."""
    files, batch = extra_metadata.get(_FILES), extra_metadata.get(_BATCH)
    if files is None and batch is None:
        return None
    try:
        return Intake(
            folder=extra_metadata.get(_FOLDER) or "",
            files=tuple(_FILE_LIST.decode(files)) if files else (),
            query=extra_metadata.get(_QUERY) or "",
            batch=int(batch) if batch else -1,
        )
    except ValueError as error:
        raise Malformed(f"the sources of a commit cannot be read: {error}") from error


def intake_of(table: OpenTable, time: InstantTime) -> Intake | None:
    """What the commit took in; None if it took in nothing, or has left the timeline."""
    commit = load_timeline(table.store).find(time)
    if commit is None:
        return None
    content = read_or_none(table.store, instant_file(commit.time, commit.action, State.COMPLETED))
    return None if content is None else _read_intake(time, content)


def _read_intake(time: InstantTime, content: bytes) -> Intake | None:
    """What a commit took in, by its own metadata."""
    with report_damage("commit metadata cannot be read", instant=time):
        return decode_intake(decode_extra_metadata(content))


class _Checkpoint(msgspec.Struct, frozen=True):
    intakes: dict[InstantTime, Intake | None]
    """Of every commit that was read; None if it took nothing in."""
    archives: dict[str, int]
    """The archives that were read, and how long they were."""


class Register:
    """What a table has taken in, as far as this process has read it. Every commit is read once."""

    def __init__(self, table: OpenTable, *, checkpoint_after: int = _CHECKPOINT_AFTER) -> None:
        self._table = table
        self._checkpoint_after = checkpoint_after
        self._read: _Checkpoint | None = None
        self._unsaved = 0

    def read(self) -> Ingested:
        """What the commits took in that the timeline shows, or that were archived."""
        timeline = read_stable(self._table.store, self._read_on)
        known = self._checkpoint().intakes
        state = self._table.ledger.read_with_older_aborts()
        return _collect(known[time] for time in _standing(known, timeline, state))

    def checkpoint_if_due(self) -> None:
        """Keep what was read, if that is much; so that the next process need not read it."""
        if self._unsaved < self._checkpoint_after:
            return
        known = self._checkpoint()
        store = self._table.store
        store.create(f"{SOURCES_FOLDER}/{max(known.intakes)}", encode_checkpoint(known))
        self._unsaved = 0
        older = [file.path for file in store.folder(SOURCES_FOLDER).files]
        store.delete_all(older[:-_CHECKPOINTS_KEPT])

    def _checkpoint(self) -> _Checkpoint:
        if self._read is None:
            self._read = _newest_checkpoint(self._table) or _Checkpoint({}, {})
        return self._read

    def _read_on(self, timeline: Timeline) -> Timeline:
        """Read the commits that are not known yet: first of the timeline, then those that left it."""
        known = self._checkpoint()
        unread = [instant for instant in timeline.completed_commits if instant.time not in known.intakes]
        for instant, content in read_all_completed(self._table.store, unread):
            self._remember(instant.time, content)
        while self._read_archives():
            pass
        return timeline

    def _read_archives(self) -> bool:
        """Read the archives that are new or longer; whether there were any, and so may be more."""
        known = self._checkpoint()
        listed = archive_files(self._table.store, self._table.settings.archive_folder).values()
        unread = [file for file in listed if known.archives.get(file.path) != file.size]
        archived = read_archives(self._table.store, [file.path for file in unread])
        for instant in archived.timeline.completed_commits:
            content = archived.content(instant.time, instant.action)
            if instant.time not in known.intakes and content is not None:
                self._remember(instant.time, content)
        known.archives.update((file.path, file.size) for file in unread)
        return bool(unread)

    def _remember(self, time: InstantTime, content: bytes) -> None:
        self._checkpoint().intakes[time] = _read_intake(time, content)
        self._unsaved += 1


def _newest_checkpoint(table: OpenTable) -> _Checkpoint | None:
    for file in reversed(table.store.folder(SOURCES_FOLDER).files):
        content = read_or_none(table.store, file.path)
        try:
            if content is not None:
                return decode_checkpoint(content, _Checkpoint)
        except Malformed as error:
            log.warning(
                "sources.checkpoint_damaged",
                extra={"table": table.store.uri(""), "file": file.path, "cause": str(error)},
            )
    return None


def _standing(times: Iterable[InstantTime], timeline: Timeline, state: LedgerState) -> list[InstantTime]:
    """Those of the commits that have not been taken back since they were read, by whatever program."""
    shown = {commit.time for commit in timeline.completed_commits}
    first = timeline.first_commit_time
    return sorted(
        time
        for time in times
        if not state.is_taken_back(time)
        and (time in shown or state.is_archived(time) or (first is not None and time < first))
    )


def _collect(intakes: Iterable[Intake | None]) -> Ingested:
    files: dict[str, SourceFile] = {}
    batches: dict[str, int] = {}
    for intake in intakes:
        if intake is not None:
            files.update((file.uri, file) for file in intake.sources())
            if intake.query:
                batches[intake.query] = max(intake.batch, batches.get(intake.query, -1))
    return Ingested(files, batches)
