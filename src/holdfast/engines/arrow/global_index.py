"""Global indexes without Spark: where in the whole table each incoming key is.

A key names one record of the table, whichever partition it is in. A record
whose partition column changed either moves there (it is removed where it was)
or is updated where it is.
"""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from holdfast.files.key_footer import Verdict
from holdfast.files.merge import Changes, Incoming, OldVersion, find_changes
from holdfast.files.picking import Positions, pick_rows
from holdfast.model.reports import IndexReport
from holdfast.model.slices import FileSlice
from holdfast.storage.store import Store
from holdfast.writes.layout import insertion_targets
from holdfast.writes.merge_task import (
    OPEN_FILES,
    REMOVES,
    TARGET,
    MergeRequest,
    check_footer,
    incoming_rows,
    newest_of_each_key,
    open_group,
    partition_paths,
)
from holdfast.writes.new_versions import order_of


def locate_globally(store: Store, rows: pa.Table, request: MergeRequest) -> tuple[pa.Table, IndexReport]:
    """The rows with the base file each belongs to, and those that remove what has moved."""
    incoming = newest_of_each_key(incoming_rows(rows, request), request.task.table.ordering)
    partitions = _partitions(incoming, request)
    located = _Located(incoming)
    report = IndexReport()
    groups = [group for members in request.groups.values() for group in members]
    for first in range(0, len(groups), OPEN_FILES):
        report += _look_up(store, groups[first : first + OPEN_FILES], located, partitions, request)
    located.add_new(partitions, request)
    return located.rows(), report


def _look_up(
    store: Store,
    groups: Sequence[FileSlice],
    located: "_Located",
    partitions: pa.Array | None,
    request: MergeRequest,
) -> IndexReport:
    """Note which rows these file groups hold."""
    incoming = located.incoming
    total = IndexReport()
    with ExitStack() as stack:
        may_match: list[tuple[FileSlice, OldVersion]] = []
        for group in groups:
            old = stack.enter_context(open_group(store, group, request))
            verdict, report = check_footer(group, old, incoming.keys, request)
            total += report
            if verdict is Verdict.MAYBE:
                may_match.append((group, old))
        file_changes = find_changes([old for _, old in may_match], incoming, order_of(request.task))
        for (group, _), changes in zip(may_match, file_changes, strict=True):
            located.add(group, changes, partitions, moves=request.task.write.moves_records)
    return total


def _partitions(incoming: Incoming, request: MergeRequest) -> pa.Array | None:
    """The partition of each row; None if the rows do not say, as those of a delete need not."""
    if not request.task.table.partition_by:
        return pa.array([""]).take(pa.array(np.zeros(len(incoming.keys), dtype=np.int64)))
    paths = partition_paths(incoming.rows, request)
    return None if paths is None else paths.dictionary_decode()


class _Located:
    """Pairs of a row and the base file it goes to."""

    def __init__(self, incoming: Incoming) -> None:
        self.incoming = incoming
        self._sources: list[Positions] = []
        self._targets: list[str] = []
        self._removes: list[bool] = []
        self._is_new = ~incoming.removes
        self._is_absent = incoming.removes.copy()

    def add(self, group: FileSlice, changes: Changes, partitions: pa.Array | None, *, moves: bool) -> None:
        """Rows whose key a file group holds."""
        found = changes.found
        self._is_absent[found] = False
        leaves = np.zeros(len(found), dtype=np.bool_)
        if moves and partitions is not None:
            own = partitions.take(pa.array(found)).to_numpy(zero_copy_only=False)
            leaves = (own != group.partition) & ~self.incoming.removes[found]
        self._pair(found[~leaves], group.home, removes=False)
        self._is_new[found[~leaves]] = False
        leaving = found[leaves]
        stays = ~np.isin(leaving, changes.winners.sources)
        self._pair(leaving[~stays], group.home, removes=True)
        # Older than what is stored, it changes nothing there, which the task finds and reports.
        self._pair(leaving[stays], group.home, removes=False)
        self._is_new[leaving[stays]] = False

    def add_new(self, partitions: pa.Array | None, request: MergeRequest) -> None:
        """Rows whose key is nowhere, or leaves its partition."""
        # To no file group: the task reports that the key was looked for.
        self._pair(np.flatnonzero(self._is_absent), "", removes=True)
        new = np.flatnonzero(self._is_new)
        if len(new) == 0:
            return
        assert partitions is not None, "rows to be stored say their partition"
        own = partitions.take(pa.array(new)).dictionary_encode()
        for code, partition in enumerate(own.dictionary.to_pylist()):
            members = new[own.indices.to_numpy() == code]
            groups = request.groups.get(partition, ())
            target = insertion_targets(groups, len(members), request.task.write)[0]
            self._pair(members, target, removes=False)

    def rows(self) -> pa.Table:
        sources = np.concatenate([np.empty(0, dtype=np.int64), *self._sources])
        counts = np.array([len(part) for part in self._sources], dtype=np.int64)
        parts = pa.array(np.repeat(np.arange(len(counts)), counts))
        rows = pick_rows(self.incoming.rows, sources)
        rows = rows.append_column(TARGET, pa.array(self._targets, pa.string()).take(parts))
        return rows.append_column(REMOVES, pa.array(self._removes, pa.bool_()).take(parts))

    def _pair(self, sources: Positions, target: str, *, removes: bool) -> None:
        if len(sources) > 0:
            self._sources.append(sources)
            self._targets.append(target)
            self._removes.append(removes)
