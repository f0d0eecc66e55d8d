"""The view: which base files a snapshot consists of.

Files are handled as columns, never as one object each: a table may have a
million of them. What a commit on the active timeline wrote is what it says it
wrote; files of older instants were committed and archived, and only the
listing knows them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import HoldfastError, SnapshotExpired, TableDamaged
from holdfast.format.commits import (
    Writes,
    WrittenFile,
    decode_replaced_file_ids,
    decode_writes,
    decode_writes_in,
)
from holdfast.format.malformed import Malformed
from holdfast.format.restores import RestoreMetadata, decode_restore_metadata
from holdfast.format.rollbacks import RollbackMetadata, decode_rollback_metadata
from holdfast.model.instant import Action, Instant, InstantTime, end_of
from holdfast.model.names import BASE_FILE_PATTERN, META_FOLDER, in_partition, instant_file
from holdfast.storage.store import Store
from holdfast.table.archive import read_archive
from holdfast.table.given_up import clean_that_names
from holdfast.table.in_place import Said
from holdfast.timeline.archived import NO_ARCHIVE, ArchivedTimeline
from holdfast.timeline.timeline import Timeline, read_all_completed

_BASE_FILE_SUFFIX = ".parquet"
_UNDOING: Mapping[Action, Callable[[bytes], RollbackMetadata | RestoreMetadata]] = {
    Action.ROLLBACK: decode_rollback_metadata,
    Action.RESTORE: decode_restore_metadata,
}

SLICES = pa.schema(
    [
        ("path", pa.string()),
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("instant", pa.string()),
        ("size", pa.int64()),  # null where only the listing knows the file
        ("previous", pa.string()),  # the instant of the version this one replaced; null if there is none
    ]
)
"""One row per base file."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What commits say."""

    slices: pa.Table
    replaced: dict[str, InstantTime]
    schemas: dict[InstantTime, str]
    in_place: dict[InstantTime, frozenset[InstantTime]]


@dataclass(frozen=True)
class View:
    """All base files of a table that belong to finished commits, of all versions."""

    timeline: Timeline
    slices: pa.Table
    """In the order of their paths, so the versions of a file group stand together."""
    listed: pa.Array
    """The paths of all files there are."""
    replaced: dict[str, InstantTime]
    """File group, as `partition/file id` → the replacecommit that hid it."""
    schemas: dict[InstantTime, str]
    """Commit → the Avro schema its files were written with, where the active timeline tells."""
    store: Store | None = None
    """Where the plans of cleans are, which say why a file is missing."""
    has_archived: bool = False
    """Whether the timeline has those commits, too, that were archived."""
    said_in_place: Said = field(default_factory=dict)
    """Commits of the timeline that say that the rows they wrote lie in the partitions these name."""

    def latest(self, as_of: InstantTime | None = None) -> pa.Table:
        """The newest version of each visible file group, in the order of the paths.

        Never a part of it: if a file is gone that the snapshot consists of,
        that is `SnapshotExpired` where a clean explains it, else `TableDamaged`.
        """
        view = self.reaching(as_of)
        if view is not self:
            return view.latest(as_of)
        newest = self.newest(as_of)
        # Looked for among the few that are newest, not among all there are.
        there = self.listed.filter(pc.is_in(self.listed, newest["path"].combine_chunks())).unique()
        if len(there) < len(newest):
            absent = newest["path"].filter(pc.invert(pc.is_in(newest["path"], there)))
            raise self._incomplete(absent[0].as_py(), as_of)
        if as_of is not None:
            self._check_superseded(as_of)
        return newest

    def reaching(self, as_of: InstantTime | None) -> "View":
        """A view that knows the commits around a moment: with the archived ones, if it is that old."""
        first = self.timeline.first_commit_time
        if as_of is None or first is None or as_of >= first or self.has_archived or self.store is None:
            return self
        archived = read_archive(self.store)
        if not archived.is_whole:
            raise TableDamaged(
                "the archived timeline cannot be read, which tells what the table was then", as_of=as_of
            )
        view = view_of(self.store, archived.with_active(self.timeline), self.listed, archived=archived)
        return replace(view, has_archived=True)

    def newest(self, as_of: InstantTime | None = None) -> pa.Table:
        """As `latest`, whether the files are there or not."""
        slices = self.slices
        if as_of is not None:
            slices = slices.filter(pa.array(instant_numbers(slices["instant"]) <= int(as_of)))
        hidden = [group for group, time in self.replaced.items() if as_of is None or time <= as_of]
        if hidden:
            slices = slices.filter(pc.invert(pc.is_in(groups_of(slices), pa.array(hidden, pa.string()))))
        return slices.take(pa.array(_newest_of_each_group(slices), pa.int64()))

    def _check_superseded(self, as_of: InstantTime) -> None:
        """Look for versions that served at `as_of`, were replaced since, and are gone."""
        commits = self.timeline.completed_commits
        if commits and as_of < commits[0].time and self._cleans():
            raise self._incomplete("unknown, before the timeline", as_of)
        then = pc.less_equal(pc.cast(self.slices["previous"], pa.int64()), int(as_of))
        since = pa.chunked_array([pa.array(instant_numbers(self.slices["instant"]) > int(as_of))])
        later = self.slices.filter(pc.fill_null(pc.and_(then, since), False))
        served = pc.binary_join_element_wise(groups_of(later), later["previous"], "@")
        kept = pc.binary_join_element_wise(groups_of(self.slices), self.slices["instant"], "@")
        gone = served.filter(pc.invert(pc.is_in(served, kept.combine_chunks())))
        known = set(groups_of(self.slices).unique().to_pylist()) if self.replaced else set()
        lost = [group for group, time in self.replaced.items() if time > as_of and group not in known]
        if len(gone) > 0 or lost:
            raise self._incomplete(gone[0].as_py() if len(gone) > 0 else lost[0], as_of)

    def _incomplete(self, missing: str, as_of: InstantTime | None) -> HoldfastError:
        clean = None if self.store is None else clean_that_names(self.store, missing)
        if clean is None and as_of is not None:
            # Its plan is archived, or cannot be read.
            clean = max(self._cleans(), default=None)
        if clean is None:
            return TableDamaged("a data file is missing", file=missing)
        return SnapshotExpired(
            "this snapshot was removed by a clean", as_of=as_of or "now", clean=clean, file=missing
        )

    def _cleans(self) -> list[InstantTime]:
        return [i.time for i in self.timeline.instants if i.action is Action.CLEAN and i.is_completed]


def load_view(store: Store, timeline: Timeline) -> View:
    """List the table once and read what the commits of the active timeline say."""
    return view_of(store, timeline, pa.array(store.paths("", without=META_FOLDER), pa.string()))


def view_of(
    store: Store, timeline: Timeline, listed: pa.Array, *, archived: ArchivedTimeline = NO_ARCHIVE
) -> View:
    """The view of a table that was listed before. `archived` tells of what is only in archives."""
    # A few at a time: together they may be larger than all that is made of them.
    read = archived.read_completed if archived.files else read_all_completed
    said = _said_by_commits(read(store, timeline.completed_commits))
    return _view_of(store, timeline, listed, said, archived=archived)


def view_of_some(store: Store, timeline: Timeline, listed: pa.Array, partitions: Collection[str]) -> View:
    """The view of a few partitions, whose files are `listed`; in a large table it costs little.

    It knows no schemas, and none of the files that are not there.
    """
    instants = set(parsed_names(listed)["instant"].unique().to_pylist())
    commits = timeline.completed_commits
    asked = [c for c in commits if c.time in instants or c.action is Action.REPLACECOMMIT]
    said = _said_by_commits(read_all_completed(store, asked), partitions=partitions)
    return _view_of(store, timeline, listed, said)


def _view_of(
    store: Store,
    timeline: Timeline,
    listed: pa.Array,
    said: _Said,
    *,
    archived: ArchivedTimeline = NO_ARCHIVE,
) -> View:
    unnamed = listed.filter(pc.invert(pc.is_in(listed, said.slices["path"].combine_chunks())))
    older = without_rolled_back(store, timeline, _archived(unnamed, timeline), archived=archived)
    slices = pa.concat_tables([said.slices, older])
    slices = slices.take(pc.sort_indices(slices["path"]))
    return View(timeline, slices, listed, said.replaced, said.schemas, store, said_in_place=said.in_place)


def _said_by_commits(
    commits: Iterable[tuple[Instant, bytes]], *, partitions: Collection[str] | None = None
) -> _Said:
    """The base files commits wrote, the file groups they replaced, and what they say of both.

    If partitions are given, only the files in those, and nothing else.
    """
    tables: list[pa.Table] = [SLICES.empty_table()]
    replaced: dict[str, InstantTime] = {}
    schemas: dict[InstantTime, str] = {}
    in_place: dict[InstantTime, frozenset[InstantTime]] = {}
    for instant, content in commits:
        try:
            if partitions is None:
                said = decode_writes(content)
            else:
                said = Writes(decode_writes_in(content, partitions), None, are_in_place=False)
            ids = decode_replaced_file_ids(content) if instant.action is Action.REPLACECOMMIT else {}
        except Malformed as error:
            file = instant_file(instant.time, instant.action, instant.state)
            raise TableDamaged("commit metadata cannot be read", file=file, cause=error) from error
        tables.append(_slices(said.files, instant.time))
        if said.are_in_place:
            in_place[instant.time] = said.built_on
        if said.schema is not None:
            schemas[instant.time] = said.schema
        for partition, file_ids in ids.items():
            for file_id in file_ids:
                replaced.setdefault(in_partition(partition, file_id), instant.time)
    return _Said(pa.concat_tables(tables), replaced, schemas, in_place)


def _slices(files: list[WrittenFile], instant: InstantTime) -> pa.Table:
    """Base files of one commit; log files are not among them."""
    base = [file for file in files if file.path is not None and file.path.endswith(_BASE_FILE_SUFFIX)]
    columns = [
        pa.array([file.path for file in base], pa.string()),
        pa.array([file.partition_path or "" for file in base], pa.string()),
        pa.array([file.file_id for file in base], pa.string()),
        pa.array([instant], pa.string()).take(pa.array(np.zeros(len(base), dtype=np.int64))),
        pa.array([file.file_size_in_bytes for file in base], pa.int64()),
        pa.array([file.previous for file in base], pa.string()),
    ]
    return pa.table(columns, schema=SLICES)


def _archived(unnamed: pa.Array, timeline: Timeline) -> pa.Table:
    """Files older than the active timeline; those of writes that are still pending are not among them."""
    first = timeline.first_commit_time
    if first is None:
        return SLICES.empty_table()
    found = parsed_names(unnamed)
    pending = pa.array([i.time for i in timeline.instants if not i.is_completed], pa.string())
    is_older = pa.chunked_array([pa.array(instant_numbers(found["instant"]) < int(end_of(first)))])
    return found.filter(pc.and_(is_older, pc.invert(pc.is_in(found["instant"], pending))))


def without_rolled_back(
    store: Store, timeline: Timeline, slices: pa.Table, *, archived: ArchivedTimeline = NO_ARCHIVE
) -> pa.Table:
    """Leave out what a task wrote after its write had been rolled back."""
    if slices.num_rows == 0:
        return slices
    undoing = [i for i in timeline.instants if i.action in _UNDOING and i.is_completed]
    undone: list[str] = []
    for instant, content in archived.read_completed(store, undoing):
        try:
            undone += _UNDOING[instant.action](content).commits
        except Malformed as error:
            file = instant_file(instant.time, instant.action, instant.state)
            raise TableDamaged("what was rolled back cannot be read", file=file, cause=error) from error
    return slices.filter(pc.invert(pc.is_in(slices["instant"], pa.array(undone, pa.string()))))


def parsed_names(paths: pa.Array) -> pa.Table:
    """What the names of base files say, as rows of `SLICES`; strangers are left out."""
    parts = pc.extract_regex(paths, BASE_FILE_PATTERN)
    names = [parts.field(name) for name in ("partition", "file_id", "instant")]
    unknown = pa.nulls(len(paths), pa.int64()), pa.nulls(len(paths), pa.string())
    return pa.table([paths, *names, *unknown], schema=SLICES).filter(pc.is_valid(parts))


def groups_of(slices: pa.Table) -> pa.ChunkedArray:
    """The file group of each row: `partition/file id`, or the file id alone in the root."""
    joined = pc.binary_join_element_wise(slices["partition"], slices["file_id"], "/")
    return pc.utf8_ltrim(joined, "/")


def _newest_of_each_group(slices: pa.Table) -> npt.NDArray[np.int64]:
    if slices.num_rows == 0:
        return np.empty(0, dtype=np.int64)
    groups = groups_of(slices).combine_chunks()
    starts_group = np.ones(len(groups), dtype=bool)
    starts_group[1:] = pc.not_equal(groups[1:], groups[:-1]).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(starts_group)
    times = instant_numbers(slices["instant"])
    newest = np.maximum.reduceat(times, starts)
    rows = np.flatnonzero(times == np.repeat(newest, np.diff(np.append(starts, len(times)))))
    if len(rows) != len(starts):
        owner = np.searchsorted(starts, rows, side="right")
        doubled = rows[np.flatnonzero(owner[1:] == owner[:-1])[0]]
        raise TableDamaged(
            "a file group has two files of one instant", file=slices["path"][int(doubled)].as_py()
        )
    return rows


def instant_numbers(instants: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Instants as numbers that can be compared, to the millisecond."""
    numbers: npt.NDArray[np.int64] = pc.cast(instants, pa.int64()).to_numpy()
    # Instants of old tables end with the second; they count as its last millisecond.
    return np.where(numbers < 10**14, numbers * 1000 + 999, numbers)
