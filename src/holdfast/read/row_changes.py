"""Row changes: what a range of commits did to each record, with the rows as they were before.

Two settled snapshots are compared, as of the start and as of the end of the
range. Only file groups that differ are read, both versions of each. A row that
is in both, written by the same commit, is the same row. What is left is small,
and is matched by record key:

    snapshot before ─┐                                  ┌─ no match before: insert
                     ├─ rows that are in one alone ─► key ─ match, other values: update_before, update_after
    snapshot after  ─┘                                  └─ no match after: delete

A record is known by its key and its partition. One that moved to another
partition is deleted in the one and inserted in the other. Where a key has
several rows in a partition, they are matched in the order in which they were written.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import TableDamaged
from holdfast.files.equal_rows import find_equal_rows
from holdfast.files.merged_slice import LogMerge
from holdfast.files.meta_columns import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, SEQUENCE
from holdfast.files.picking import pick_rows
from holdfast.format.schemas import META_COLUMNS
from holdfast.model.instant import InstantTime
from holdfast.model.slices import FileSlice
from holdfast.read.arrow_rows import select_schema
from holdfast.read.changes import find_range
from holdfast.read.merged_rows import each_merged_row, may_have_younger_rows
from holdfast.read.prune import each_match
from holdfast.read.snapshot import Moment, Snapshot, take_settled_snapshots
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable
from holdfast.table.view import each_slice

CHANGE_TYPE = "_change_type"
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "insert", "update_before", "update_after", "delete"

_IS_AFTER = "_is_after"
"""Whether a row that is compared is of the later snapshot."""
_IDENTITY = (RECORD_KEY, COMMIT_TIME, SEQUENCE)
"""Names a row for good: a commit gives each of its rows another number."""

_FIRST = InstantTime("19710101000000000")
"""Older than every commit."""
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The two versions of a file group that differs."""

    before: FileSlice | None
    after: FileSlice | None

    @property
    def partition(self) -> str:
        known = self.after or self.before
        assert known is not None, "a file group that differs has a version"
        return known.partition

    @property
    def bytes(self) -> int:
        return sum(each.size or 0 for each in (self.before, self.after) if each is not None)


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What to compare: a value that travels to tasks."""

    schema: pa.Schema | None
    """The data columns as of the end of the range."""
    groups: tuple[GroupChange, ...]
    """Those of a partition stand together."""
    merge_before: LogMerge | None
    merge_after: LogMerge | None

    @property
    def whole_schema(self) -> pa.Schema:
        """The columns that are compared, and the meta columns."""
        return select_schema(self.schema, columns=None, meta_columns=True)

    @property
    def compared_schema(self) -> pa.Schema:
        """As `each_compared_row` gives them."""
        return self.whole_schema.append(pa.field(_IS_AFTER, pa.bool_()))

    def without_files(self) -> "RowChanges":
        """The columns alone, which is all that matching rows needs."""
        return RowChanges(self.schema, (), None, None)

    def by_partition(self) -> list[tuple[GroupChange, ...]]:
        """The file groups of each partition: matches are found within these."""
        return [tuple(groups) for _, groups in groupby(self.groups, key=lambda group: group.partition)]


def row_changes(table: OpenTable, *, since: Moment, until: Moment | None = None) -> RowChanges:
    """What happened to records in (since, until], which is chosen as for `changes`.

    `SnapshotExpired` if a clean has removed one of the two snapshots.
    """
    start, end = find_range(table, since=since, until=until)
    if end is None:
        return RowChanges(None, (), None, None)
    return row_changes_between(table, start, end)


def row_changes_between(table: OpenTable, start: InstantTime, end: InstantTime) -> RowChanges:
    """As `row_changes`, between two times up to which everything is known to be decided."""
    before, after = take_settled_snapshots(table, (max(start, end) if start < _FIRST else start, end))
    if start < _FIRST:
        # No clean can have removed what was there then.
        before = after.only(pa.array(np.zeros(after.slices.num_rows, dtype=np.bool_)))
    is_new = ~_is_among(after, before)
    for number, each in enumerate(each_slice(after.slices)):
        # A log file may have grown: Hudi's older programs append.
        if each.logs and after.merge is not None and not is_new[number]:
            is_new[number] = may_have_younger_rows(each, after.merge, start)
    new = after.only(pa.array(is_new))
    kept = after.only(pa.array(~is_new))
    old = before.only(pa.array(~_is_among(before, kept)))
    slices: dict[tuple[str, str], list[FileSlice | None]] = {}
    for side, found in enumerate((old, new)):
        for each in each_slice(found.slices):
            slices.setdefault((each.partition, each.file_id), [None, None])[side] = each
    groups = tuple(GroupChange(*slices[group]) for group in sorted(slices))
    return RowChanges(after.schema, groups, before.merge, after.merge)


def _is_among(ours: Snapshot, others: Snapshot) -> npt.NDArray[np.bool_]:
    """Which slices consist of the same files in the other snapshot."""
    contents = [_contents(found.slices) for found in (ours, others)]
    found: npt.NDArray[np.bool_] = pc.is_in(contents[0], contents[1]).to_numpy(zero_copy_only=False)
    return found


def _contents(slices: pa.Table) -> pa.Array:
    logs = pc.binary_join(slices["logs"], "\0")
    joined = pc.binary_join_element_wise(pc.fill_null(slices["base"], ""), pc.fill_null(logs, ""), "\0")
    return joined.combine_chunks()


def row_change_schema(
    schema: pa.Schema | None, *, columns: Sequence[str] | None, meta_columns: bool
) -> pa.Schema:
    """As `change_schema`, with what happened in the first column."""
    given = None if columns is None else [name for name in columns if name != CHANGE_TYPE]
    if columns is not None and not given:
        return pa.schema([pa.field(CHANGE_TYPE, pa.string())])
    selected = select_schema(schema, columns=given, meta_columns=meta_columns)
    if COMMIT_TIME not in selected.names:
        selected = selected.insert(0, pa.field(COMMIT_TIME, pa.string()))
    return selected.insert(0, pa.field(CHANGE_TYPE, pa.string()))


def each_row_change(store: Store, changes: RowChanges, schema: pa.Schema) -> Iterator[pa.Table]:
    """The changes of one partition after the other, in a schema made by `row_change_schema`."""
    for groups in changes.by_partition():
        yield match_rows(each_compared_row(store, groups, changes), changes, schema)


def read_row_changes(store: Store, changes: RowChanges, schema: pa.Schema) -> pa.Table:
    """All changes, in a schema made by `row_change_schema`."""
    return pa.concat_tables([schema.empty_table(), *each_row_change(store, changes, schema)])


def each_compared_row(store: Store, groups: Iterable[GroupChange], changes: RowChanges) -> Iterator[pa.Table]:
    """The rows that only one version of their file group has, part by part."""
    schema = changes.whole_schema
    for group in groups:
        sides = ((group.before, changes.merge_before), (group.after, changes.merge_after))
        known = [_read_identities(store, slice_, merge) for slice_, merge in sides]
        for number, (slice_, merge) in enumerate(sides):
            for rows in _each_row(store, slice_, schema, merge):
                own = _identities(rows)
                different = rows.filter(pc.invert(pc.is_in(own, value_set=known[1 - number])))
                if different.num_rows:
                    is_after = pa.array(np.full(different.num_rows, number == 1))
                    yield different.append_column(_IS_AFTER, is_after)


def _each_row(
    store: Store, slice_: FileSlice | None, schema: pa.Schema, merge: LogMerge | None
) -> Iterator[pa.Table]:
    if slice_ is None:
        return
    if slice_.logs:
        assert merge is not None, "the slice has log files"
        parts = each_merged_row(store, slice_, schema, merge)
    else:
        parts = each_match(store, slice_.path, schema)
    for rows in parts:
        if any(rows[name].null_count for name in _IDENTITY):
            raise TableDamaged("a file has rows without meta columns", file=slice_.home)
        yield rows


def _read_identities(store: Store, slice_: FileSlice | None, merge: LogMerge | None) -> pa.Array:
    schema = pa.schema([(name, pa.string()) for name in _IDENTITY])
    chunks = [chunk for rows in _each_row(store, slice_, schema, merge) for chunk in _identities(rows).chunks]
    return pa.concat_arrays([pa.array([], pa.large_string()), *chunks])


def _identities(rows: pa.Table) -> pa.ChunkedArray:
    return _join(rows, _IDENTITY)


def _join(rows: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    columns = (pc.cast(rows[name], pa.large_string()) for name in names)
    return pc.binary_join_element_wise(*columns, pa.scalar("\0", pa.large_string()))


def match_rows(parts: Iterable[pa.Table], changes: RowChanges, schema: pa.Schema) -> pa.Table:
    """The changes that those rows make which were compared; all of a key are among them."""
    rows = pa.concat_tables([changes.compared_schema.empty_table(), *parts])
    after, before = (rows.filter(side) for side in (rows[_IS_AFTER], pc.invert(rows[_IS_AFTER])))
    before, after = _without_moved(before, after)
    pairs_before, pairs_after = _number_pairs(before, after)
    both, at_before, at_after = np.intersect1d(pairs_before, pairs_after, return_indices=True)
    data = [name for name in changes.whole_schema.names if name not in META_COLUMNS]
    are_equal = find_equal_rows(
        pick_rows(before.select(data), at_before), pick_rows(after.select(data), at_after)
    )
    gone = np.setdiff1d(np.arange(before.num_rows), at_before)
    come = np.setdiff1d(np.arange(after.num_rows), at_after)
    at_before, at_after, both = (each[~are_equal] for each in (at_before, at_after, both))
    found = [
        (before, gone, pairs_before[gone], DELETE),
        (before, at_before, both, UPDATE_BEFORE),
        (after, at_after, both, UPDATE_AFTER),
        (after, come, pairs_after[come], INSERT),
    ]
    changed = pa.concat_tables(_of_type(side, at, kind, schema) for side, at, _, kind in found)
    # One key after the other, and what was before what is.
    order = np.argsort(np.concatenate([pairs for _, _, pairs, _ in found]), kind="stable")
    return pick_rows(changed, order)


def _of_type(rows: pa.Table, at: _Numbers, change: str, schema: pa.Schema) -> pa.Table:
    types = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(at), np.int32)), pa.array([change]))
    chosen = pick_rows(rows.select([name for name in schema.names if name != CHANGE_TYPE]), at)
    columns = (types.cast(pa.string()) if name == CHANGE_TYPE else chosen[name] for name in schema.names)
    return pa.table([*columns], schema=schema)


def _without_moved(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Without the rows that only moved to another file group, as they were: clustering does so."""
    names = (PARTITION_PATH, *_IDENTITY)
    ours, theirs = _join(before, names).combine_chunks(), _join(after, names).combine_chunks()
    return (
        before.filter(pc.invert(pc.is_in(ours, value_set=theirs))),
        after.filter(pc.invert(pc.is_in(theirs, value_set=ours))),
    )


def _number_pairs(before: pa.Table, after: pa.Table) -> tuple[_Numbers, _Numbers]:
    """A number for each row; a row before and a row after with one number are versions of one record."""
    rows = pa.concat_tables([each.select([*_IDENTITY, PARTITION_PATH]) for each in (before, after)])
    keys = _join(rows, (PARTITION_PATH, RECORD_KEY)).combine_chunks().dictionary_encode()
    codes: _Numbers = keys.indices.to_numpy().astype(np.int64)
    is_after = np.arange(rows.num_rows) >= before.num_rows
    sides = codes * 2 + is_after
    by = pa.table([pa.array(sides), rows[COMMIT_TIME], rows[SEQUENCE]], names=["side", "time", "number"])
    order = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names]).to_numpy()
    ordered = sides[order]
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    numbers = codes * (int(ranks.max(initial=0)) + 1) + ranks
    return numbers[: before.num_rows], numbers[before.num_rows :]
