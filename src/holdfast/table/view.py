"""The view: which base files a snapshot consists of.

Files are handled as columns, never as one object each: a table may have a
million of them. The order of the listing is used, too: paths come sorted, so
the versions of a file group stand next to each other.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import HoldfastError, SnapshotExpired, TableDamaged
from holdfast.format.commits import decode_file_sizes, decode_replaced_file_ids
from holdfast.format.malformed import Malformed
from holdfast.model.instant import Action, InstantTime
from holdfast.model.names import BASE_FILE_PATTERN, META_FOLDER, in_partition, instant_file
from holdfast.storage.store import Store
from holdfast.timeline.timeline import Timeline, read_all_completed

SLICES = pa.schema(
    [("path", pa.string()), ("partition", pa.string()), ("file_id", pa.string()), ("instant", pa.string())]
)
"""One row per base file."""


@dataclass(frozen=True)
class View:
    """All base files of a table that belong to finished commits, of all versions."""

    timeline: Timeline
    slices: pa.Table
    """What the listing found."""
    named: pa.Table
    """What the commits on the active timeline say they wrote."""
    replaced: dict[str, InstantTime]
    """File group, as `partition/file id` → the replacecommit that hid it."""

    def latest(self, as_of: InstantTime | None = None) -> pa.Table:
        """The newest version of each visible file group, in the order of the paths.

        Never a part of it: if a file that a commit names is gone, that is
        `SnapshotExpired` where a clean explains it, else `TableDamaged`.
        """
        found = self._newest(self.slices, as_of)
        wanted = self._newest(self.named, as_of)
        missing = wanted["path"].filter(pc.invert(pc.is_in(wanted["path"], found["path"].combine_chunks())))
        if len(missing) > 0:
            raise self._incomplete(missing[0].as_py(), as_of)
        return found

    def _newest(self, slices: pa.Table, as_of: InstantTime | None) -> pa.Table:
        if as_of is not None:
            slices = slices.filter(pa.array(_numbers(slices["instant"]) <= _number(as_of)))
        hidden = [group for group, time in self.replaced.items() if as_of is None or time <= as_of]
        if hidden:
            groups = _groups(slices)
            slices = slices.filter(pc.invert(pc.is_in(groups, pa.array(hidden, pa.string()))))
        if slices.num_rows == 0:
            return slices
        return slices.take(pa.array(_newest_of_each_group(slices)))

    def _incomplete(self, path: str, as_of: InstantTime | None) -> HoldfastError:
        cleans = [i for i in self.timeline.instants if i.action is Action.CLEAN and i.is_completed]
        if as_of is not None and cleans:
            return SnapshotExpired(
                "this snapshot was removed by a clean", as_of=as_of, clean=cleans[-1].time, file=path
            )
        return TableDamaged("a data file is missing", file=path)


def load_view(store: Store, timeline: Timeline) -> View:
    """List the table once and keep what the timeline says is committed."""
    slices = _parsed(pa.array(_data_paths(store), pa.string()))
    named, replaced = _said_by_commits(store, timeline)
    return View(timeline, _committed(slices, timeline), named, replaced)


def _data_paths(store: Store) -> list[str]:
    meta = META_FOLDER + "/"
    return [path for path in store.paths("") if not path.startswith(meta)]


def _parsed(paths: pa.Array) -> pa.Table:
    parts = pc.extract_regex(paths, BASE_FILE_PATTERN)
    is_base_file = pc.is_valid(parts)
    paths, parts = paths.filter(is_base_file), parts.filter(is_base_file)
    columns = [paths, *(parts.field(name) for name in ("partition", "file_id", "instant"))]
    return pa.table(columns, schema=SLICES)


def _committed(slices: pa.Table, timeline: Timeline) -> pa.Table:
    first = timeline.first_commit_time
    if first is None:
        return slices.slice(0, 0)
    finished = pa.array([instant.time for instant in timeline.completed_commits], pa.string())
    is_finished = pc.is_in(slices["instant"], finished)
    is_archived = pa.chunked_array([pa.array(_numbers(slices["instant"]) < _number(first))])
    return slices.filter(pc.or_(is_finished, is_archived))


def _said_by_commits(store: Store, timeline: Timeline) -> tuple[pa.Table, dict[str, InstantTime]]:
    """The files commits wrote, sorted by path, and the file groups they replaced."""
    paths: list[pa.Array] = []
    replaced: dict[str, InstantTime] = {}
    for instant, content in read_all_completed(store, timeline.completed_commits):
        try:
            paths.append(pa.array(decode_file_sizes(content), pa.string()))
            ids = decode_replaced_file_ids(content) if instant.action is Action.REPLACECOMMIT else {}
        except Malformed as error:
            file = instant_file(instant.time, instant.action, instant.state)
            raise TableDamaged("commit metadata cannot be read", file=file, cause=error) from error
        for partition, file_ids in ids.items():
            for file_id in file_ids:
                replaced.setdefault(in_partition(partition, file_id), instant.time)
    written = pa.concat_arrays(paths) if paths else pa.array([], pa.string())
    return _parsed(written.take(pc.sort_indices(written))), replaced


def _groups(slices: pa.Table) -> pa.ChunkedArray:
    """`partition/file id`, or the file id alone in the root."""
    joined = pc.binary_join_element_wise(slices["partition"], slices["file_id"], "/")
    return pc.utf8_ltrim(joined, "/")


def _newest_of_each_group(slices: pa.Table) -> npt.NDArray[np.int64]:
    groups = _groups(slices).combine_chunks()
    starts_group = np.ones(len(groups), dtype=bool)
    starts_group[1:] = pc.not_equal(groups[1:], groups[:-1]).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(starts_group)
    times = _numbers(slices["instant"])
    newest = np.maximum.reduceat(times, starts)
    is_newest = times == np.repeat(newest, np.diff(np.append(starts, len(times))))
    rows = np.flatnonzero(is_newest)
    if len(rows) != len(starts):
        doubled = rows[
            np.flatnonzero(
                groups.take(pa.array(rows[1:])).to_numpy(zero_copy_only=False)
                == groups.take(pa.array(rows[:-1])).to_numpy(zero_copy_only=False)
            )[0]
        ]
        raise TableDamaged(
            "a file group has two files of one instant", file=slices["path"][int(doubled)].as_py()
        )
    return rows


def _numbers(instants: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = pc.cast(instants, pa.int64()).to_numpy()
    # Instants of old tables end with the second; they count as its last millisecond.
    return np.where(numbers < 10**14, numbers * 1000 + 999, numbers)


def _number(instant: InstantTime) -> int:
    return int(instant) if len(instant) > 14 else int(instant) * 1000 + 999
