"""The view: which file slices a snapshot consists of.

Slices are rows of columns, never one object each: a table may have a million
of them. What a commit on the active timeline wrote is what it says it wrote;
files of older instants were committed and archived, and only the listing knows
them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat

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
from holdfast.format.malformed import report_damage
from holdfast.format.restores import RestoreMetadata, decode_restore_metadata
from holdfast.format.rollbacks import RollbackMetadata, decode_rollback_metadata
from holdfast.model.instant import Action, Instant, InstantTime, end_of
from holdfast.model.names import (
    BASE_FILE_PATTERN,
    LOG_CENTURY,
    LOG_FILE_PATTERN,
    LOG_VERSIONS,
    META_FOLDER,
    OUR_LOG_PATTERN,
    in_partition,
    instant_path,
)
from holdfast.model.slices import FileSlice
from holdfast.storage.store import Store
from holdfast.table.archive import read_archive
from holdfast.table.clean_plans import find_deleting_clean
from holdfast.table.log_instants import LogInstants, WrittenLog
from holdfast.table.log_placement import place_logs
from holdfast.table.row_placement import RowPlacement
from holdfast.table.undone import Undone, read_undone
from holdfast.timeline.archived import NO_ARCHIVE, ArchivedTimeline
from holdfast.timeline.layout import completion_of, layout_of
from holdfast.timeline.timeline import Timeline, read_all_completed

_BASE_FILE_SUFFIX = ".parquet"
_LOG = ".log."
"""In the name of every log file."""
_LOG_ORDER = r"\.log\.(?P<version>[0-9]+)(?:_(?P<token>[^_/.]*))?"
_UNDOING: Mapping[Action, Callable[[bytes], RollbackMetadata | RestoreMetadata]] = {
    Action.ROLLBACK: decode_rollback_metadata,
    Action.RESTORE: decode_restore_metadata,
}

SLICES = pa.schema(
    [
        ("base", pa.string()),  # the path of the base file; null for a slice of log files alone
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("instant", pa.string()),
        ("size", pa.int64()),  # of the base file; null where only the listing knows it
        ("previous", pa.string()),  # the instant of the version this one replaced; null if there is none
        ("logs", pa.list_(pa.string())),  # the paths of the log files; empty in a copy-on-write table
    ]
)
"""One row per file slice: what is kept or deleted together, and makes one version of a file group."""

WRITTEN_LOGS = pa.schema(
    [
        *((name, pa.string()) for name in ("path", "partition", "file_id", "instant")),
        ("size", pa.int64()),
        ("commit", pa.string()),
    ]
)
"""One row per log file that a commit wrote to. `instant` is that of the slice."""

DATA_FILES = pa.schema([(name, pa.string()) for name in ("path", "partition", "file_id", "instant")])
"""One row per data file, base files and log files, with the slice that it is of."""


@dataclass(frozen=True, slots=True)
class _CommitFacts:
    """What commits say."""

    slices: pa.Table
    replaced: dict[str, InstantTime]
    schemas: dict[InstantTime, str]
    placement: RowPlacement
    logs: pa.Table


@dataclass(frozen=True)
class View:
    """All file slices of a table that belong to finished commits, of all versions."""

    timeline: Timeline
    slices: pa.Table
    """Those with a base file, as rows of `SLICES` in the order of the paths; log files are not among them.

    So the versions of a file group stand together. `with_logs` and `latest` add the log files.
    """
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
    placement_by_commit: RowPlacement = field(default_factory=dict)
    """Commits of the timeline that say that the rows they wrote lie in the partitions these name."""
    written_logs: pa.Table | None = None
    """The log files that commits of the timeline name, as rows of `WRITTEN_LOGS`; None if not known."""
    archived: ArchivedTimeline = NO_ARCHIVE

    def latest(self, as_of: InstantTime | None = None, *, base_only: bool = False) -> pa.Table:
        """The newest version of each visible file group, with its log files; one group after the other.

        Never a part of it: if a file is gone that the snapshot consists of,
        that is `SnapshotExpired` where a clean explains it, else `TableDamaged`.
        With `base_only` the newest base file of each, whatever logs say: what
        a read-optimized query sees.
        """
        view = self.reaching(as_of)
        if view is not self:
            return view.latest(as_of, base_only=base_only)
        newest = self.newest(as_of, base_only=base_only)
        bases = newest["base"].drop_null()
        # Looked for among the few that are newest, not among all there are.
        there = self.listed.filter(pc.is_in(self.listed, bases.combine_chunks())).unique()
        if len(there) < len(bases):
            absent = bases.filter(pc.invert(pc.is_in(bases, there)))
            raise self._incomplete(absent[0].as_py(), as_of)
        if not base_only:
            self._check_logs(newest, as_of)
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

    def newest(self, as_of: InstantTime | None = None, *, base_only: bool = False) -> pa.Table:
        """As `latest`, whether the files are there or not."""
        slices = self.slices if base_only else self.all_slices
        if as_of is not None:
            slices = slices.filter(pa.array(instant_numbers(slices["instant"]) <= int(as_of)))
        hidden = [group for group, time in self.replaced.items() if as_of is None or time <= as_of]
        if hidden:
            slices = slices.filter(pc.invert(pc.is_in(slice_groups(slices), pa.array(hidden, pa.string()))))
        newest = _newest_of_each_group(slices)
        if base_only or slices is self.slices:
            return slices.take(pa.array(newest, pa.int64()))
        return self._without_strange_logs(continue_slices(slices, newest, self.compactions), as_of)

    def _without_strange_logs(self, slices: pa.Table, as_of: InstantTime | None) -> pa.Table:
        """The slices without the log files that are known to have no block that counts.

        Of what Hudi's programs left, that did not become commits, only the blocks tell.
        """
        logs = pc.list_flatten(slices["logs"]).combine_chunks()
        if len(logs) == 0:
            return slices
        instants = self._instants_until(as_of)
        written = self.written_logs if self.written_logs is not None else WRITTEN_LOGS.empty_table()
        oldest = written.group_by("path").aggregate([("commit", "min")])
        commits = oldest["commit_min"].take(pc.index_in(logs, oldest["path"].combine_chunks()))
        own = _writers_in_names(logs)
        writers = pc.coalesce(own, commits.combine_chunks()).dictionary_encode()
        counts = pa.array([instants.counts(writer) for writer in writers.dictionary.to_pylist()], pa.bool_())
        is_kept = pc.fill_null(counts.take(writers.indices), True)
        if pc.all(is_kept).as_py():
            return slices
        owners = pc.list_parent_indices(slices["logs"].combine_chunks()).filter(is_kept).to_numpy()
        at = slices.schema.get_field_index("logs")
        return slices.set_column(
            at, SLICES.field("logs"), _lists(logs.filter(is_kept), owners, slices.num_rows)
        )

    @cached_property
    def all_slices(self) -> pa.Table:
        """The slices of finished commits and pending compactions, whether their base files are there or not.

        With their log files, in an order in which those of a file group stand together.
        """
        logs = _find_shown_logs(self, self.compactions)
        if logs.num_rows == 0:
            return self.slices
        slices = _add_logs(self.slices, logs)
        numbers = pa.array(instant_numbers(slices["instant"]))
        keys = pa.table([slices["partition"], slices["file_id"], numbers], names=["partition", "id", "time"])
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
        return slices.take(order)

    @property
    def compactions(self) -> frozenset[InstantTime]:
        """Those that are pending: log files that carry their instants continue the slices before."""
        instants = self.timeline.instants
        return frozenset(i.time for i in instants if i.action is Action.COMPACTION and not i.is_completed)

    def log_instants(self, slices: pa.Table, as_of: InstantTime | None = None) -> LogInstants:
        """Which blocks of the log files of these slices, which `latest` gave, are part of the snapshot."""
        written = self._facts_of_logs(pc.list_flatten(slices["logs"]), as_of)
        return replace(self._instants_until(as_of), written=written)

    def _instants_until(self, as_of: InstantTime | None) -> LogInstants:
        until = None if as_of is None else end_of(as_of)
        commits = [commit.time for commit in self.timeline.completed_commits]
        pending = [i.time for i in self.timeline.instants if not i.is_completed]
        undone, stretches = self._taken_back
        return LogInstants(
            completed=frozenset(time for time in commits if until is None or end_of(time) <= until),
            first=self.timeline.first_commit_time,
            undone=frozenset((*pending, *undone)),
            stretches=stretches,
            as_of=as_of,
        )

    @cached_property
    def _taken_back(self) -> tuple[list[str], Undone]:
        return _undone(self.store, self.timeline, self.archived)

    def log_sizes(self, slices: pa.Table) -> dict[str, int]:
        """How long the log files of these slices are, as far as commits of the timeline tell."""
        if not has_logs(slices):
            return {}
        facts = self._facts_of_logs(pc.list_flatten(slices["logs"]), None)
        return {path: written.size for path, written in facts.items()}

    def _facts_of_logs(self, paths: pa.ChunkedArray, as_of: InstantTime | None) -> dict[str, WrittenLog]:
        """What commits of the timeline until then say of log files."""
        written = self._logs_written(as_of)
        if written is None:
            return {}
        chosen = written.filter(pc.is_in(written["path"], paths.combine_chunks()))
        longest = chosen.group_by("path").aggregate([("size", "max"), ("commit", "max")])
        columns = (longest[name].to_pylist() for name in ("path", "size_max", "commit_max"))
        return {path: WrittenLog(size, commit) for path, size, commit in zip(*columns, strict=True)}

    def _logs_written(self, as_of: InstantTime | None) -> pa.Table | None:
        if self.written_logs is None or as_of is None:
            return self.written_logs
        is_then = instant_numbers(self.written_logs["commit"]) <= int(end_of(as_of))
        return self.written_logs.filter(pa.array(is_then))

    def _check_logs(self, newest: pa.Table, as_of: InstantTime | None) -> None:
        """Look for log files that commits wrote to these slices, or later ones, and that are not of them."""
        lost = self.find_lost_logs(newest, as_of)
        if self.store is not None and layout_of(self.store).has_completion_times:
            # Their names do not tell of which slice they are; one that was replaced since may not be read.
            lost = lost.filter(pc.invert(pc.is_in(lost, self.listed)))
        if len(lost) == 0:
            return
        path = lost[0].as_py()
        if not pc.any(pc.equal(self.listed, path)).as_py():
            raise self._incomplete(path, as_of)
        raise TableDamaged(
            "a log file of a commit belongs to a file slice that no commit and no plan knows",
            file=path,
            hint="a compaction was taken back after rows had been written to its file slices",
        )

    def find_lost_logs(self, newest: pa.Table, as_of: InstantTime | None = None) -> pa.ChunkedArray:
        """The log files that commits wrote to these slices, or later ones, and that are not of them."""
        written = self._logs_written(as_of)
        if written is None or written.num_rows == 0:
            return pa.chunked_array([], pa.string())
        at = pc.index_in(slice_groups(written), slice_groups(newest).combine_chunks())
        is_visible = at.is_valid()
        written = written.filter(is_visible)
        serving = newest["instant"].take(at.drop_null())
        is_serving = instant_numbers(written["instant"]) >= instant_numbers(serving)
        is_read = pc.is_in(written["path"], pc.list_flatten(newest["logs"]).combine_chunks())
        return written.filter(pc.and_(pa.array(is_serving), pc.invert(is_read)))["path"]

    def find_written_into_the_past(self) -> str | None:
        """A file that was built on a version with a later time; None if there is none, as it should be.

        It finds most of what `find_hidden` does, and costs little.
        """
        updates = self.slices.filter(pc.is_valid(self.slices["previous"]))
        is_behind = instant_numbers(updates["previous"]) > instant_numbers(updates["instant"])
        return updates["base"][int(is_behind.argmax())].as_py() if is_behind.any() else None

    def find_hidden(self) -> pa.Table:
        """Versions that a newer one hides without having been built on them: their rows are never read.

        The clock of a writer went back then, and it wrote into the past. Only
        the commits of copy-on-write tables tell.
        """
        slices, first = self.slices, self.timeline.first_commit_time
        if first is None:
            return slices.slice(0, 0)
        groups, times = slice_groups(slices), instant_numbers(slices["instant"])
        has_previous = pc.is_valid(slices["previous"]).to_numpy()
        is_after = np.zeros(len(times), dtype=bool)
        is_after[has_previous] = instant_numbers(slices["previous"].drop_null()) < times[has_previous]
        built_on = _slice_keys(groups, slices["previous"]).filter(pa.array(is_after))
        is_built_on = pc.is_in(_slice_keys(groups, slices["instant"]), built_on.combine_chunks())
        # Of files that no commit of the timeline names, it is not known who built on them.
        is_hidden = (
            (times >= int(end_of(first))) & pc.is_valid(slices["size"]).to_numpy() & ~is_built_on.to_numpy()
        )
        is_hidden[_newest_of_each_group(slices)] = False
        return slices.filter(pc.and_(pa.array(is_hidden), pc.is_in(slices["base"], self.listed)))

    def _check_superseded(self, as_of: InstantTime) -> None:
        """Look for versions that served at `as_of`, were replaced since, and are gone."""
        commits = self.timeline.completed_commits
        if commits and as_of < commits[0].time and self.timeline.completed_cleans:
            raise self._incomplete("unknown, before the timeline", as_of)
        was_then = pc.less_equal(pc.cast(self.slices["previous"], pa.int64()), int(as_of))
        is_since = pa.chunked_array([pa.array(instant_numbers(self.slices["instant"]) > int(as_of))])
        later = self.slices.filter(pc.fill_null(pc.and_(was_then, is_since), False))
        served = _slice_keys(slice_groups(later), later["previous"])
        kept = slice_keys(self.all_slices)
        gone = served.filter(pc.invert(pc.is_in(served, kept.combine_chunks())))
        known = set(slice_groups(self.all_slices).unique().to_pylist()) if self.replaced else set()
        lost = [group for group, time in self.replaced.items() if time > as_of and group not in known]
        if len(gone) > 0 or lost:
            raise self._incomplete(gone[0].as_py() if len(gone) > 0 else lost[0], as_of)

    def _incomplete(self, missing: str, as_of: InstantTime | None) -> HoldfastError:
        clean = None if self.store is None else find_deleting_clean(self.store, missing)
        if clean is None and as_of is not None:
            # Its plan is archived, or cannot be read.
            clean = max((each.time for each in self.timeline.completed_cleans), default=None)
        if clean is None:
            return TableDamaged("a data file is missing", file=missing)
        return SnapshotExpired(
            "this snapshot was removed by a clean", as_of=as_of or "now", clean=clean, file=missing
        )


def load_view(store: Store, timeline: Timeline) -> View:
    """List the table once and read what the commits of the active timeline say."""
    return view_of(store, timeline, pa.array(store.paths("", without=META_FOLDER), pa.string()))


def view_of(
    store: Store, timeline: Timeline, listed: pa.Array, *, archived: ArchivedTimeline = NO_ARCHIVE
) -> View:
    """The view of a table that was listed before. `archived` tells of what is only in archives."""
    # A few at a time: together they may be larger than all that is made of them.
    read = archived.read_completed if archived.files else read_all_completed
    facts = _read_facts(read(store, timeline.completed_commits))
    return _view_of(store, timeline, listed, facts, archived=archived)


def view_of_some(store: Store, timeline: Timeline, listed: pa.Array, partitions: Collection[str]) -> View:
    """The view of a few partitions, whose files are `listed`; in a large table it costs little.

    It knows no schemas, and none of the files that are not there.
    """
    instants = set(parse_base_files(listed)["instant"].unique().to_pylist())
    commits = timeline.completed_commits
    relevant = [c for c in commits if c.time in instants or c.action is Action.REPLACECOMMIT]
    facts = _read_facts(read_all_completed(store, relevant), partitions=partitions)
    return _view_of(store, timeline, listed, facts)


def _view_of(
    store: Store,
    timeline: Timeline,
    listed: pa.Array,
    facts: _CommitFacts,
    *,
    archived: ArchivedTimeline = NO_ARCHIVE,
) -> View:
    unnamed = listed.filter(pc.invert(pc.is_in(listed, facts.slices["base"].combine_chunks())))
    older = _of_archived_commits(store, timeline, parse_base_files(unnamed), archived=archived)
    slices = pa.concat_tables([facts.slices, older])
    slices = slices.take(pc.sort_indices(slices["base"]))
    return View(
        timeline,
        slices,
        listed,
        facts.replaced,
        facts.schemas,
        store,
        placement_by_commit=facts.placement,
        written_logs=facts.logs,
        archived=archived,
    )


def _read_facts(
    commits: Iterable[tuple[Instant, bytes]], *, partitions: Collection[str] | None = None
) -> _CommitFacts:
    """The slices that commits wrote, the file groups they replaced, and what they say of both.

    If partitions are given, only the slices in those, and nothing else.
    """
    tables: list[pa.Table] = [SLICES.empty_table()]
    logs: list[pa.Table] = [WRITTEN_LOGS.empty_table()]
    replaced: dict[str, InstantTime] = {}
    schemas: dict[InstantTime, str] = {}
    placement: dict[InstantTime, frozenset[InstantTime]] = {}
    for instant, content in commits:
        with report_damage("commit metadata cannot be read", file=instant_path(instant)):
            if partitions is None:
                writes = decode_writes(content)
            else:
                writes = Writes(decode_writes_in(content, partitions), None, are_in_place=False)
            ids = decode_replaced_file_ids(content) if instant.action is Action.REPLACECOMMIT else {}
        tables.append(_slices_of_commit(writes.files, instant.time))
        logs.append(_logs_of_commit(writes.files, instant.time))
        if writes.are_in_place:
            placement[instant.time] = writes.built_on
        if writes.schema is not None:
            schemas[instant.time] = writes.schema
        for partition, file_ids in ids.items():
            for file_id in file_ids:
                replaced.setdefault(in_partition(partition, file_id), instant.time)
    return _CommitFacts(pa.concat_tables(tables), replaced, schemas, placement, pa.concat_tables(logs))


def _slices_of_commit(files: list[WrittenFile], instant: InstantTime) -> pa.Table:
    """The base files that one commit wrote, as rows of `SLICES`."""
    base = [file for file in files if file.path is not None and file.path.endswith(_BASE_FILE_SUFFIX)]
    columns = [
        pa.array([file.path for file in base], pa.string()),
        pa.array([file.partition_path or "" for file in base], pa.string()),
        pa.array([file.file_id for file in base], pa.string()),
        pa.array([instant], pa.string()).take(pa.array(np.zeros(len(base), dtype=np.int64))),
        pa.array([file.file_size_in_bytes for file in base], pa.int64()),
        pa.array([file.previous for file in base], pa.string()),
        without_logs(len(base)),
    ]
    return pa.table(columns, schema=SLICES)


def _logs_of_commit(files: list[WrittenFile], instant: InstantTime) -> pa.Table:
    """The log files that one commit wrote, as rows of `WRITTEN_LOGS`."""
    sizes = {file.path: file.file_size_in_bytes for file in files if file.path and _LOG in file.path}
    if not sizes:
        return WRITTEN_LOGS.empty_table()
    logs = parse_log_files(pa.array(sizes, pa.string()))
    columns = [
        *logs.columns,
        pa.array([sizes[path] for path in logs["path"].to_pylist()], pa.int64()),
        pa.array([instant] * logs.num_rows, pa.string()),
    ]
    return pa.table(columns, schema=WRITTEN_LOGS)


def _of_archived_commits(
    store: Store | None, timeline: Timeline, rows: pa.Table, *, archived: ArchivedTimeline = NO_ARCHIVE
) -> pa.Table:
    """The rows, of slices or of files, that are older than the timeline and were not rolled back.

    Those of writes that are still pending are not among them. Nor is what a
    task wrote after its write had been rolled back, however long ago.
    """
    first = timeline.first_commit_time
    if first is None:
        return rows.slice(0, 0)
    pending = pa.array([i.time for i in timeline.instants if not i.is_completed], pa.string())
    is_older = pa.chunked_array([pa.array(instant_numbers(rows["instant"]) < int(end_of(first)))])
    older = rows.filter(pc.and_(is_older, pc.invert(pc.is_in(rows["instant"], pending))))
    if older.num_rows == 0:
        return older
    undone, stretches = _undone(store, timeline, archived)
    older = older.filter(pc.invert(pc.is_in(older["instant"], pa.array(undone, pa.string()))))
    is_undone = stretches.covers(instant_numbers(older["instant"]))
    return older.filter(pa.array(~is_undone)) if is_undone.any() else older


def _undone(store: Store | None, timeline: Timeline, archived: ArchivedTimeline) -> tuple[list[str], Undone]:
    """The writes that were rolled back, as far as the timeline tells, and when none stands that is older."""
    undoing = [i for i in timeline.instants if i.action in _UNDOING and i.is_completed]
    undone: list[str] = []
    if store is None:
        return undone, Undone()
    for instant, content in archived.read_completed(store, undoing):
        with report_damage("what was rolled back cannot be read", file=instant_path(instant)):
            undone += _UNDOING[instant.action](content).commits
    return undone, read_undone(store)


def with_logs(view: View, compactions: Collection[InstantTime]) -> pa.Table:
    """The slices that are there and that readers know, each with its log files.

    Readers know the slices of commits, and those of `compactions` that are
    pending: what is written meanwhile goes to log files that carry their
    instants.
    """
    base = view.slices.filter(pc.is_in(view.slices["base"], view.listed))
    return _add_logs(base, _find_shown_logs(view, compactions))


def _find_shown_logs(view: View, compactions: Collection[InstantTime]) -> pa.Table:
    """The log files of slices that readers know, as rows of `DATA_FILES`, each behind those it follows."""
    logs = parse_log_files(view.listed)
    if logs.num_rows == 0 or view.timeline.first_commit_time is None:
        return logs.slice(0, 0)
    shown = [commit.time for commit in view.timeline.completed_commits]
    is_shown = pc.is_in(logs["instant"], pa.array([*shown, *compactions], pa.string()))
    older = logs.filter(pc.invert(is_shown))
    older = _of_archived_commits(view.store, view.timeline, older, archived=view.archived)
    found = pa.concat_tables([logs.filter(is_shown), older])
    if view.store is not None and layout_of(view.store).has_completion_times:
        return place_logs(found, view.slices, _completions(view.store, view.timeline, found))
    return _sort_logs(found)


def _completions(store: Store, timeline: Timeline, logs: pa.Table) -> dict[InstantTime, InstantTime]:
    """When the writes of these log files were completed; the archive is asked for what left the timeline."""
    known = {commit.time: completion_of(commit) for commit in timeline.completed_commits}
    if pc.all(pc.is_in(logs["instant"], pa.array(list(known), pa.string())), min_count=0).as_py():
        return known
    return layout_of(store).archived_completions(store) | known


def _sort_logs(logs: pa.Table) -> pa.Table:
    """By version, which is a number, then by the token of the attempt."""
    parts = pc.extract_regex(logs["path"], _LOG_ORDER)
    versions = pc.cast(pc.struct_field(parts, "version"), pa.int64())
    keys = pa.table([versions, pc.struct_field(parts, "token")], names=["version", "token"])
    order = pc.sort_indices(keys, sort_keys=[("version", "ascending"), ("token", "ascending")])
    return logs.take(order)


def continue_slices(
    slices: pa.Table, newest: npt.NDArray[np.int64], compactions: Collection[InstantTime]
) -> pa.Table:
    """The newest slices; those of pending compactions with the slices before, which they continue."""
    chosen = slices.take(pa.array(newest, pa.int64()))
    is_waiting = pc.is_in(chosen["instant"], pa.array(list(compactions), pa.string())).to_numpy()
    is_waiting &= pc.is_null(chosen["base"]).to_numpy()
    groups = slice_groups(slices).combine_chunks()
    before = newest - 1
    has_before = before >= 0
    same = pc.equal(groups.take(pa.array(newest)), groups.take(pa.array(np.maximum(before, 0))))
    is_waiting &= has_before & same.to_numpy(zero_copy_only=False)
    if not is_waiting.any():
        return chosen
    continued = slices.take(pa.array(np.where(is_waiting, before, newest), pa.int64()))
    own = chosen["logs"].combine_chunks()
    earlier = pc.if_else(pa.array(is_waiting), continued["logs"].combine_chunks(), without_logs(len(own)))
    at = slices.schema.get_field_index("logs")
    return continued.set_column(at, SLICES.field("logs"), _join_lists(earlier, own))


def _join_lists(first: pa.ListArray, second: pa.ListArray) -> pa.ListArray:
    """For each row the values of both."""
    values = pa.concat_arrays([pc.list_flatten(first), pc.list_flatten(second)])
    owners = np.concatenate([pc.list_parent_indices(each).to_numpy() for each in (first, second)])
    order = np.argsort(owners, kind="stable")
    return _lists(values.take(pa.array(order)), owners, len(first))


def _writers_in_names(logs: pa.Array) -> pa.Array:
    """The write that made each log file, if the name tells; null otherwise."""
    parts = pc.extract_regex(logs, OUR_LOG_PATTERN)
    versions, marks = (pc.cast(pc.struct_field(parts, name), pa.int64()) for name in ("version", "mark"))
    whole = pc.subtract(versions, pc.multiply(pc.divide(versions, LOG_VERSIONS), LOG_VERSIONS))
    times = pc.binary_join_element_wise(
        LOG_CENTURY, pc.struct_field(parts, "date"), pc.struct_field(parts, "time"), ""
    )
    return pc.if_else(pc.equal(whole, marks), times, None)


def _lists(values: pa.Array, owners: npt.NDArray[np.int64], count: int) -> pa.ListArray:
    """The values, which come in the order of the rows that own them, as one list for each row."""
    ends = np.cumsum(np.bincount(owners, minlength=count))
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]).astype(np.int32)), values)


def _add_logs(slices: pa.Table, logs: pa.Table) -> pa.Table:
    """The slices with these log files; those of log files alone come last."""
    if logs.num_rows == 0:
        return slices
    grouping = logs.group_by(["partition", "file_id", "instant"], use_threads=False)
    grouped = grouping.aggregate([("path", "list")])
    # Of two base files of one instant, which are damage, one has the log files.
    at = pc.index_in(slice_keys(grouped), slice_keys(slices).combine_chunks())
    has_base = pc.is_valid(at).to_numpy()
    numbers = np.full(slices.num_rows, -1, dtype=np.int64)
    numbers[at.drop_null().to_numpy()] = np.flatnonzero(has_base)
    lists = grouped["path_list"].combine_chunks()
    taken = lists.take(pa.array(numbers, mask=numbers < 0))
    with_base = slices.set_column(
        slices.schema.get_field_index("logs"),
        SLICES.field("logs"),
        pc.coalesce(taken, without_logs(len(taken))),
    )
    alone = grouped.filter(pa.array(~has_base))
    columns = [alone[name] for name in ("partition", "file_id", "instant")]
    nulls = [pa.nulls(alone.num_rows, SLICES.field(name).type) for name in ("base", "size", "previous")]
    columns = [nulls[0], *columns, *nulls[1:], alone["path_list"]]
    return pa.concat_tables([with_base, pa.table(columns, schema=SLICES)])


def without_logs(count: int) -> pa.Array:
    """The column `logs` of slices without log files."""
    return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, dtype=np.int32)), pa.array([], pa.string()))


def has_logs(slices: pa.Table) -> bool:
    return len(pc.list_flatten(slices["logs"])) > 0


def data_files(slices: pa.Table) -> tuple[pa.ChunkedArray, npt.NDArray[np.int64]]:
    """The paths of all files of the slices, base files first, and the row of the slice of each."""
    rows = np.flatnonzero(pc.is_valid(slices["base"]).to_numpy())
    if not has_logs(slices):
        return slices["base"].drop_null(), rows
    of_logs = pc.list_parent_indices(slices["logs"].combine_chunks()).to_numpy()
    logs = pc.list_flatten(slices["logs"].combine_chunks())
    paths = pa.chunked_array([*slices["base"].drop_null().chunks, logs], pa.string())
    return paths, np.concatenate([rows, of_logs])


def file_paths(slices: pa.Table) -> pa.ChunkedArray:
    """The paths of all files of the slices, base files first."""
    return data_files(slices)[0]


def each_slice(slices: pa.Table) -> Iterator[FileSlice]:
    """The slices one at a time."""
    names = ("partition", "file_id", "instant", "base", "size")
    logs = map(tuple, slices["logs"].to_pylist()) if has_logs(slices) else repeat((), slices.num_rows)
    columns = (slices[name].to_pylist() for name in names)
    return (FileSlice(*values) for values in zip(*columns, logs, strict=True))


def slice_table(slices: Sequence[FileSlice]) -> pa.Table:
    """Slices as rows of `SLICES`, in their order. What they were built on is not known any more."""
    columns = [
        pa.array([getattr(each, name) for each in slices], SLICES.field(name).type)
        for name in ("base", "partition", "file_id", "instant", "size")
    ]
    logs = pa.array([each.logs for each in slices], SLICES.field("logs").type)
    return pa.table([*columns, pa.nulls(len(slices), pa.string()), logs], schema=SLICES)


def parse_base_files(paths: pa.Array) -> pa.Table:
    """The slices of base files by their names, as rows of `SLICES`; other files are left out."""
    files = _parse_names(paths, BASE_FILE_PATTERN)
    unknown = pa.nulls(files.num_rows, pa.int64()), pa.nulls(files.num_rows, pa.string())
    return pa.table([*files.columns, *unknown, without_logs(files.num_rows)], schema=SLICES)


def parse_log_files(paths: pa.Array) -> pa.Table:
    """Log files by their names, as rows of `DATA_FILES`; other files are left out."""
    return _parse_names(paths.filter(pc.match_substring(paths, _LOG)), LOG_FILE_PATTERN)


def parse_data_files(paths: pa.Array) -> pa.Table:
    """Data files by their names, as rows of `DATA_FILES`; other files are left out."""
    return pa.concat_tables([_parse_names(paths, BASE_FILE_PATTERN), parse_log_files(paths)])


def _parse_names(paths: pa.Array, pattern: str) -> pa.Table:
    parts = pc.extract_regex(paths, pattern)
    names = [parts.field(name) for name in DATA_FILES.names[1:]]
    return pa.table([paths, *names], schema=DATA_FILES).filter(pc.is_valid(parts))


def slice_groups(rows: pa.Table) -> pa.ChunkedArray:
    """The file group of each row: `partition/file id`, or the file id alone in the root."""
    joined = pc.binary_join_element_wise(rows["partition"], rows["file_id"], "/")
    return pc.utf8_ltrim(joined, "/")


def slice_keys(rows: pa.Table) -> pa.ChunkedArray:
    """The slice of each row, of slices or of files: `partition/file id@instant`."""
    return _slice_keys(slice_groups(rows), rows["instant"])


def _slice_keys(groups: pa.ChunkedArray, instants: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(groups, instants, "@")


def _newest_of_each_group(slices: pa.Table) -> npt.NDArray[np.int64]:
    if slices.num_rows == 0:
        return np.empty(0, dtype=np.int64)
    groups = slice_groups(slices).combine_chunks()
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
            "a file group has two files of one instant", file=slices["base"][int(doubled)].as_py()
        )
    return rows


def instant_numbers(instants: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Instants as numbers that can be compared, to the millisecond."""
    numbers: npt.NDArray[np.int64] = pc.cast(instants, pa.int64()).to_numpy()
    # Instants of old tables end with the second; they count as its last millisecond.
    return np.where(numbers < 10**14, numbers * 1000 + 999, numbers)
