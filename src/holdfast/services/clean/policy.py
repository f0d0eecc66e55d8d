"""Which versions of files a clean may delete, and why the others stay.

Pure, and in columns: a table may have a million files. A version is a file
slice: a base file with its log files, or log files alone. It serves readers
from its own commit until the next version of its file group, or the
replacement of the group; so it is superseded by the age of what came after it,
not by its own age.
"""

import datetime as dt
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.model.instant import Instant, InstantTime, end_of, time_at
from holdfast.table.pending import NO_SERVICES, PendingServices
from holdfast.table.view import (
    data_files,
    file_paths,
    instant_numbers,
    parse_data_files,
    slice_groups,
    slice_keys,
)

_FOREVER = np.iinfo(np.int64).max
_NOTHING = pa.array([], pa.string())


class Fate(StrEnum):
    KEPT = "kept"
    DOOMED = "doomed"


class Reason(StrEnum):
    """Why a file has its fate. Of several reasons to keep one, the first of these is given."""

    LATEST = "latest"
    """The newest version of its file group."""
    WINDOW = "window"
    """Written by a commit that is retained."""
    WINDOW_START = "needed-at-window-start"
    """Older than the commits retained, and not yet superseded when they began."""
    VERSION_COUNT = "version-count"
    """One of as many newest versions as are retained."""
    SAVEPOINT = "savepoint"
    LEASE = "lease"
    """A reader holds a lease on a snapshot that consists of it."""
    PENDING_SERVICE = "pending-service"
    """A write or a table service that is not finished builds on it."""
    REPLACED = "replaced"
    """Its file group was replaced, and no reader may need it any more."""
    SUPERSEDED = "superseded"
    """A newer version took its place, and no reader may need it any more."""


_REASONS = tuple(Reason)
_DOOMED = (Reason.REPLACED, Reason.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class Window:
    """The commits that stay readable."""

    earliest: InstantTime | None = None
    """The first of them; None if nothing can be cleaned, or if versions are counted."""
    start: InstantTime | None = None
    """What was superseded before it may go: `earliest`, or just after it on an idle table."""
    blocked_by: str = ""
    """Why nothing can be cleaned; empty if something can."""


@dataclass(frozen=True)
class FileDecisions:
    """What becomes of each file that was looked at."""

    window: Window
    table: pa.Table
    """One row per file: path, partition, file_id, instant, size, fate, reason; in the order given."""

    @property
    def earliest(self) -> InstantTime | None:
        return self.window.earliest

    @cached_property
    def doomed(self) -> pa.Table:
        return self.table.filter(pc.equal(self.table["fate"], Fate.DOOMED))

    @cached_property
    def kept(self) -> pa.Table:
        return self.table.filter(pc.equal(self.table["fate"], Fate.KEPT))

    @property
    def bytes_freed(self) -> int:
        """Files whose size is not known count nothing."""
        return pc.sum(self.doomed["size"]).as_py() or 0

    @property
    def emptied(self) -> tuple[str, ...]:
        """Partitions none of whose files is kept; the root is never among them."""
        doomed = pc.unique(self.doomed["partition"])
        emptied = doomed.filter(pc.invert(pc.is_in(doomed, pc.unique(self.kept["partition"]))))
        return tuple(sorted(partition for partition in emptied.to_pylist() if partition))

    @property
    def blocked_by(self) -> str:
        """Why nothing is doomed; empty if something is."""
        if self.doomed.num_rows > 0:
            return ""
        return self.window.blocked_by or "every file is still needed"


def earliest_to_retain(
    commits: Sequence[Instant],
    *,
    settings: CleanSettings,
    now_ms: int,
    zone: dt.tzinfo,
    first_pending: InstantTime | None = None,
    previous: InstantTime | None = None,
) -> Window:
    """How far a clean may reach.

    `commits` are the completed ones of the active timeline, ascending, on the
    clock of the table's zone;
    `first_pending` is the first write or table service that is not finished;
    `previous` is what the last clean retained. The window never passes a
    pending instant, for that may yet become a commit inside of it, and never
    goes back.
    """
    if not commits:
        return Window(blocked_by="the table has no commit")
    if settings.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS:
        return Window()
    times = [end_of(commit.time) for commit in commits]
    first = _first_retained(commits, settings, now_ms, zone)
    if isinstance(first, str):
        return Window(blocked_by=first)
    if first_pending is not None:
        older = bisect_left(times, end_of(first_pending))
        if older == 0:
            return Window(blocked_by=f"{first_pending} is pending and older than every commit")
        if older < len(times):
            first = min(first, older - 1)
    if previous is not None and _is_known(previous, times):
        reached = bisect_left(times, end_of(previous))
        if settings.max_commits_to_clean:
            first = min(first, reached + settings.max_commits_to_clean)
        if first < reached:
            return Window(blocked_by=f"a clean has reached {previous} before, which now would be retained")
    if first == len(times):
        return Window(commits[-1].time, InstantTime(str(int(times[-1]) + 1)))
    return Window(commits[first].time, commits[first].time)


def decide_files(
    slices: pa.Table,
    window: Window,
    *,
    settings: CleanSettings,
    replaced: Mapping[str, InstantTime],
    saved_files: pa.Array = _NOTHING,
    leased: Iterable[InstantTime] = (),
    claimed: Iterable[InstantTime] = (),
    services: PendingServices = NO_SERVICES,
    late: Mapping[InstantTime, InstantTime] | None = None,
    partitions: Iterable[str] | None = None,
) -> FileDecisions:
    """The fate of each file, with the reason; all files of a slice have the same.

    `slices` are those that are there, with their log files: a version that is
    gone must not count. `replaced` says which commit replaced a file group.
    `saved_files` are the paths that savepoints name. Every file stays of the
    snapshots in `leased`, and of those in `claimed`, which pending writes
    build on; and what table services need that are not finished. What
    superseded a version counts as of the commit that `late` says, if it was
    shown only after newer ones. Only `partitions` are looked at, if given.
    """
    if partitions is not None:
        wanted = pa.array(partitions, pa.string())
        slices = slices.filter(pc.is_in(slices["partition"], wanted))
    paths, rows = data_files(slices)
    versions = _versions(slices, replaced, services, late or {})
    needed = slice_keys(parse_data_files(pa.array(services.needed_files, pa.string()))).combine_chunks()
    is_needed = versions.are_needed_since | pc.is_in(slice_keys(slices), needed).to_numpy()
    reasons = np.select(
        [
            *_policy_masks(versions, window, settings),
            versions.with_any(rows[pc.is_in(paths, saved_files).to_numpy()]),
            versions.serve_any(leased),
            is_needed | versions.serve_any(claimed),
            versions.is_replaced,
        ],
        [_REASONS.index(reason) for reason in _REASONS[:-1]],
        default=_REASONS.index(Reason.SUPERSEDED),
    )
    reasons = reasons[rows]
    is_doomed = reasons >= _REASONS.index(_DOOMED[0])
    table = _files(slices, paths, rows)
    table = table.append_column("fate", _names_of(is_doomed, (Fate.KEPT, Fate.DOOMED)))
    return FileDecisions(window, table.append_column("reason", _names_of(reasons, _REASONS)))


def serving_files(
    slices: pa.Table,
    snapshots: Iterable[InstantTime],
    *,
    replaced: Mapping[str, InstantTime],
    services: PendingServices = NO_SERVICES,
) -> pa.Array:
    """The paths of the slices, of those given, that any of the snapshots consists of."""
    is_any = _versions(slices, replaced, services, {}).serve_any(snapshots)
    return file_paths(slices.filter(pa.array(is_any))).combine_chunks()


def _files(slices: pa.Table, paths: pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> pa.Table:
    """The files of the slices; the size of a log file only storage knows: it may have grown."""
    files = slices.select(["partition", "file_id", "instant", "size"]).take(pa.array(rows))
    is_base = pa.array(np.arange(len(paths)) < slices.num_rows - slices["base"].null_count)
    sizes = pc.if_else(is_base, files["size"], pa.scalar(None, pa.int64()))
    return files.set_column(3, "size", sizes).add_column(0, "path", paths)


def select_partitions(partitions: Iterable[str], settings: CleanSettings) -> list[str]:
    """Those of the partitions that the settings let be cleaned."""
    if settings.partitions_selected:
        return [partition for partition in partitions if partition in settings.partitions_selected]
    pattern = re.compile(settings.partition_pattern or ".*", re.DOTALL)
    return [partition for partition in partitions if pattern.fullmatch(partition)]


def _first_retained(
    commits: Sequence[Instant], settings: CleanSettings, now_ms: int, zone: dt.tzinfo
) -> int | str:
    """The index of the first commit that the policy retains, or why it retains all.

    As many as there are commits means none of them: only the latest versions.
    """
    count = len(commits)
    if settings.policy is CleanPolicy.KEEP_LATEST_COMMITS:
        if count > settings.commits_retained:
            return count - settings.commits_retained
        return f"the table has {count} commits on its timeline, and {settings.commits_retained} are retained"
    since_ms = now_ms - settings.hours_retained * 3_600_000
    young = (index for index, commit in enumerate(commits) if _is_since(commit, since_ms, zone))
    first = next(young, count)
    if first == count and not settings.cleans_idle_tables:
        return f"the table has no commit in the last {settings.hours_retained} hours"
    return first


def _is_since(commit: Instant, since_ms: int, zone: dt.tzinfo) -> bool:
    """Whether readers may have seen the table without the commit since then.

    They see it when it is completed, which may be long after it was requested.
    """
    if commit.completed_at is not None and commit.completed_at.timestamp() * 1000 >= since_ms:
        return True
    return end_of(commit.time) >= time_at(since_ms, zone)


def _is_known(previous: InstantTime, times: Sequence[InstantTime]) -> bool:
    """Whether the commit that a clean retained is there, or archived; a restore takes it away."""
    return end_of(previous) <= times[0] or end_of(previous) in times


@dataclass(frozen=True)
class _Versions:
    """When each slice serves readers, as columns in the order of the rows."""

    since: npt.NDArray[np.int64]
    until: npt.NDArray[np.int64]
    """The commit that superseded or replaced it; `_FOREVER` if none did."""
    newer: npt.NDArray[np.int64]
    """How many newer versions its file group has."""
    is_replaced: npt.NDArray[np.bool_]
    are_needed_since: npt.NDArray[np.bool_]
    """Whether a compaction is to merge it, or what it continues."""
    slice_numbers: npt.NDArray[np.int64]
    """Which rows are one slice: more than one only if it has two base files, which is damage."""

    def serve_any(self, snapshots: Iterable[InstantTime]) -> npt.NDArray[np.bool_]:
        """Whether any of the snapshots consists of it."""
        times = np.array(sorted(int(end_of(time)) for time in snapshots), dtype=np.int64)
        begun = np.searchsorted(times, self.since, side="left")
        is_any: npt.NDArray[np.bool_] = begun < np.searchsorted(times, self.until, side="left")
        return is_any

    def with_any(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether each slice is one of these, or the same."""
        is_any = np.zeros(len(self.slice_numbers), dtype=bool)
        is_any[self.slice_numbers[rows]] = True
        return is_any[self.slice_numbers]


def _versions(
    rows: pa.Table,
    replaced: Mapping[str, InstantTime],
    services: PendingServices,
    late: Mapping[InstantTime, InstantTime],
) -> _Versions:
    encoded = pc.dictionary_encode(slice_groups(rows).combine_chunks())
    groups = encoded.indices.to_numpy().astype(np.int64)
    times = instant_numbers(rows["instant"])
    order = np.lexsort((times, groups))
    begins_slice = _differ_from_previous(groups[order]) | _differ_from_previous(times[order])
    numbers = np.empty_like(groups)
    numbers[order] = np.cumsum(begins_slice) - 1
    first = order[begins_slice]
    has_base = np.zeros(len(first), dtype=bool)
    has_base[numbers[pc.is_valid(rows["base"]).to_numpy()]] = True
    slices = _Slices(groups[first], times[first], has_base)
    pending = np.array([int(end_of(time)) for time in services.compactions], dtype=np.int64)
    is_needed = slices.times >= _times_of(encoded.dictionary, services.needed_since)[slices.groups]
    replaced = {group: late.get(time, time) for group, time in replaced.items()}
    ends = _times_of(encoded.dictionary, replaced)[slices.groups]
    until = slices.until(~np.isin(slices.times, pending))
    for commit, seen in late.items():
        until[until == int(end_of(commit))] = int(end_of(seen))
    until = np.minimum(until, ends)
    return _Versions(
        times,
        until[numbers],
        slices.newer(is_needed)[numbers],
        (ends < _FOREVER)[numbers],
        is_needed[numbers],
        numbers,
    )


@dataclass(frozen=True)
class _Slices:
    """Slices, as columns, sorted by file group and time.

    Two base files of one instant in one file group are one slice: neither supersedes the other.
    """

    groups: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    has_base: npt.NDArray[np.bool_]

    def until(self, is_finished: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The time of the slice that supersedes each; `_FOREVER` if there is none.

        Readers that do not look at log files read one with a base file until
        the next one with a base file. So do the others while the next is that of
        a compaction that is not finished: it only continues the one before.
        """
        return np.where(self.has_base, self._next(self.has_base), self._next(is_finished))

    def newer(self, is_needed: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """How many newer ones there are of each group; those that are needed, the newest, count as one."""
        begins_group = _differ_from_previous(self.groups)
        begins_version = begins_group | ~(is_needed & np.append(False, is_needed[:-1]))
        rank = np.cumsum(begins_version)
        highest = rank[np.append(begins_group[1:], True)[: len(rank)]]
        newer: npt.NDArray[np.int64] = highest[np.cumsum(begins_group) - 1] - rank
        return newer

    def _next(self, which: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The time of the next such slice of the same file group."""
        count = len(self.times)
        positions = np.where(which, np.arange(count), count)
        following = np.append(np.minimum.accumulate(positions[::-1])[::-1], count)[1:]
        is_same = np.append(self.groups, -1)[following] == self.groups
        return np.where(is_same, np.append(self.times, _FOREVER)[following], _FOREVER)


def _differ_from_previous(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    differ = np.ones(len(numbers), dtype=bool)
    differ[1:] = numbers[1:] != numbers[:-1]
    return differ


def _times_of(groups: pa.Array, known: Mapping[str, InstantTime]) -> npt.NDArray[np.int64]:
    """What is known of each of the file groups; `_FOREVER` if nothing is."""
    found = np.full(len(groups), _FOREVER, dtype=np.int64)
    if known:
        at = pc.index_in(groups, pa.array(known.keys(), pa.string()))
        times = np.array([int(end_of(time)) for time in known.values()], dtype=np.int64)
        found[at.is_valid().to_numpy(zero_copy_only=False)] = times[at.drop_null().to_numpy()]
    return found


def _policy_masks(
    versions: _Versions, window: Window, settings: CleanSettings
) -> list[npt.NDArray[np.bool_]]:
    """Whether each slice is kept as LATEST, as WINDOW, as WINDOW_START and as VERSION_COUNT."""
    is_latest = versions.until == _FOREVER
    nothing = np.zeros_like(is_latest)
    if window.blocked_by:
        return [is_latest, ~nothing, nothing, nothing]
    if settings.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS:
        is_counted = (versions.newer < settings.versions_retained) & ~versions.is_replaced
        is_counted &= ~versions.are_needed_since
        return [is_latest, nothing, nothing, is_counted]
    assert window.start is not None, "commits are retained from somewhere on"
    start = int(end_of(window.start))
    # A replaced file group takes its versions along, also those of commits that are retained.
    is_needed = versions.until >= start
    return [is_latest, is_needed & (versions.since >= start), is_needed, nothing]


def _names_of(codes: npt.NDArray[np.integer] | npt.NDArray[np.bool_], names: Sequence[StrEnum]) -> pa.Array:
    return pa.array([name.value for name in names], pa.string()).take(pa.array(codes.astype(np.int64)))
