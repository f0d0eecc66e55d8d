"""Two snapshots of a table side by side: what each holds, and which rows differ.

Only files that one of the two has alone are read, and only if they are not too
large: what is too much to read is told in files and bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.files.open_base_file import open_base_file
from holdfast.model.instant import InstantTime
from holdfast.read.batches import select
from holdfast.read.snapshot import Snapshot, take_settled_snapshot
from holdfast.table.opened import OpenTable
from holdfast.table.view import each_slice

_ROWS_BYTES_MAX = 64 * 1024**2
"""Of files on both sides that differ; more are not read for their rows."""
_FOOTERS_MAX = 500
_BEFORE, _AFTER = "__before", "__after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the snapshots."""

    instant: InstantTime | None
    """None: as of now."""
    files: int
    size_bytes: int
    rows: int | None
    """None if too many files would have to be asked, or rows are in log files."""
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDifference:
    """Which rows differ, by their keys."""

    columns: tuple[str, ...]
    added: int
    removed: int
    changed: int
    sample: tuple[tuple[str, tuple[Any, ...]], ...]
    """`added`, `removed`, `before` or `after`, and the values; rows that changed come as two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    before: Side
    after: Side
    files_left: int
    """Files that both have."""
    emptied: tuple[str, ...]
    """Partitions that only the first has."""
    rows: RowDifference | None
    why_no_rows: str = ""
    paths_after: tuple[str, ...] = ()


def compare_snapshots(
    table: OpenTable, before: InstantTime | None, after: InstantTime | None, *, sample: int = 6
) -> Comparison:
    """As of two commits; None is now, an empty text before the first commit."""
    first, second = _take(table, before), _take(table, after)
    files_first, files_second = _slice_files(first), _slice_files(second)
    gone = first.only(pa.array([files not in set(files_second) for files in files_first], pa.bool_()))
    new = second.only(pa.array([files not in set(files_first) for files in files_second], pa.bool_()))
    rows, why = _difference(table, gone, new, sample=sample)
    sides = _side(table, before, first), _side(table, after, second)
    return Comparison(
        before=sides[0],
        after=sides[1],
        files_left=len(set(files_first) & set(files_second)),
        emptied=tuple(sorted(set(sides[0].partitions) - set(sides[1].partitions))),
        rows=rows,
        why_no_rows=why,
        paths_after=tuple(sorted(second.files)),
    )


def _take(table: OpenTable, time: InstantTime | None) -> Snapshot:
    if time == "":
        found = take_settled_snapshot(table, None)
        return found.only(pa.array(np.zeros(found.slices.num_rows, dtype=np.bool_)))
    return take_settled_snapshot(table, time)


def _slice_files(snapshot: Snapshot) -> list[tuple[str, ...]]:
    return [each.files for each in each_slice(snapshot.slices)]


def _side(table: OpenTable, time: InstantTime | None, snapshot: Snapshot) -> Side:
    slices = list(each_slice(snapshot.slices))
    return Side(
        instant=time,
        files=sum(len(each.files) for each in slices),
        size_bytes=_bytes(table, snapshot),
        rows=_rows(table, snapshot),
        partitions=tuple(sorted({each.partition for each in slices})),
    )


def _bytes(table: OpenTable, snapshot: Snapshot) -> int:
    known = int(pc.sum(snapshot.sizes).as_py() or 0)
    unknown = [each for each in each_slice(snapshot.slices) if each.size is None or each.logs]
    paths = [path for each in unknown for path in (each.files if each.size is None else each.logs)]
    return known + sum(stored.size for stored in map(table.store.stat, paths) if stored is not None)


def _rows(table: OpenTable, snapshot: Snapshot) -> int | None:
    if snapshot.merge is not None or len(snapshot.paths) > _FOOTERS_MAX:
        return None
    return sum(_rows_of(table, path) for path in snapshot.paths)


def _rows_of(table: OpenTable, path: str) -> int:
    with open_base_file(table.store, path) as file:
        return int(file.metadata.num_rows)


def _difference(
    table: OpenTable, gone: Snapshot, new: Snapshot, *, sample: int
) -> tuple[RowDifference | None, str]:
    """The rows that differ, or why they are not known."""
    schema = new.schema or gone.schema
    keys = [] if schema is None else [name for name in table.settings.record_key if name in schema.names]
    if schema is None or not keys or len(keys) < len(table.settings.record_key):
        return None, "the table has no record key"
    if _bytes(table, gone) + _bytes(table, new) > _ROWS_BYTES_MAX:
        return None, "too much differs to read it for this page"
    keys += [name for name in table.settings.partition_by if name in schema.names and name not in keys]
    columns = [name for name in schema.names if gone.schema is None or name in gone.schema.names]
    old, now = _read(table, gone, columns), _read(table, new, columns)
    pairs = _number(old, keys, _BEFORE).join(_number(now, keys, _AFTER), keys, join_type="full outer")
    is_old, is_new = pc.is_valid(pairs[_BEFORE]), pc.is_valid(pairs[_AFTER])
    both = pairs.filter(pc.and_(is_old, is_new))
    left, right = old.take(both[_BEFORE]), now.take(both[_AFTER])
    differs = _differing(left, right)
    removed = old.take(pairs.filter(pc.invert(is_new))[_BEFORE])
    added = now.take(pairs.filter(pc.invert(is_old))[_AFTER])
    left, right = left.filter(differs), right.filter(differs)
    shown = [
        *_sample("added", added, sample),
        *_sample("removed", removed, sample),
        *_interleave(_sample("before", left, sample), _sample("after", right, sample)),
    ]
    return RowDifference(
        columns=tuple(columns), added=added.num_rows, removed=removed.num_rows, changed=left.num_rows,
        sample=tuple(shown),
    ), ""  # fmt: skip


def _read(table: OpenTable, snapshot: Snapshot, columns: Sequence[str]) -> pa.Table:
    if snapshot.schema is None or snapshot.slices.num_rows == 0:
        fields = [] if snapshot.schema is None else [snapshot.schema.field(name) for name in columns]
        return pa.schema(fields).empty_table()
    return select(table.store, snapshot, columns=columns).read()


def _number(rows: pa.Table, keys: Sequence[str], name: str) -> pa.Table:
    return rows.select(list(keys)).append_column(name, pa.array(np.arange(rows.num_rows)))


def _differing(left: pa.Table, right: pa.Table) -> pa.Array:
    differs = np.zeros(left.num_rows, dtype=np.bool_)
    for one, other in zip(left.columns, right.columns, strict=True):
        if pa.types.is_nested(one.type):
            differs |= np.array(
                [a != b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], dtype=np.bool_
            )
            continue
        unequal = pc.fill_null(pc.not_equal(one, other.cast(one.type)), False)
        only_one = pc.xor(pc.is_null(one), pc.is_null(other))
        differs |= pc.or_(unequal, only_one).to_numpy(zero_copy_only=False).astype(np.bool_)
    return pa.array(differs)


def _sample(word: str, rows: pa.Table, count: int) -> list[tuple[str, tuple[Any, ...]]]:
    return [(word, tuple(row.values())) for row in rows.slice(0, count).to_pylist()]


def _interleave(
    first: Sequence[tuple[str, tuple[Any, ...]]], second: Sequence[tuple[str, tuple[Any, ...]]]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for before, after in zip(first, second, strict=True):
        yield before
        yield after
