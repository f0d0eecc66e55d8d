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

from holdfast.files.equal_rows import find_equal_rows
from holdfast.files.open_base_file import open_base_file
from holdfast.model.instant import InstantTime
from holdfast.read.arrow_rows import read_rows, select_schema
from holdfast.read.snapshot import Snapshot, take_settled_snapshot
from holdfast.table.opened import OpenTable
from holdfast.table.view import each_slice

_ROWS_BYTES_MAX = 64 * 1024**2
"""Of files on both sides that differ; more are not read for their rows."""
_FOOTERS_MAX = 500
_BEFORE, _AFTER = "__before", "__after"
_KEYS = ["_hoodie_record_key", "_hoodie_partition_path"]


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
    kept = set(files_first) & set(files_second)
    gone = first.only(pa.array([files not in kept for files in files_first], pa.bool_()))
    new = second.only(pa.array([files not in kept for files in files_second], pa.bool_()))
    # Columns only come and widen: the younger snapshot has room for the rows of both.
    is_first_younger = before is None or (after is not None and before > after)
    younger, older = (first, second) if is_first_younger else (second, first)
    rows, why = _difference(table, gone, new, younger.schema or older.schema, sample=sample)
    sides = _side(table, before, first), _side(table, after, second)
    return Comparison(
        before=sides[0],
        after=sides[1],
        files_left=len(kept),
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
    table: OpenTable, gone: Snapshot, new: Snapshot, schema: pa.Schema | None, *, sample: int
) -> tuple[RowDifference | None, str]:
    """The rows that differ, or why they are not known."""
    if schema is None or not table.settings.populates_meta_columns:
        return None, "the rows of the table do not say their keys"
    if _bytes(table, gone) + _bytes(table, new) > _ROWS_BYTES_MAX:
        return None, "too much differs to read it for this page"
    old, now = _read(table, gone, schema), _read(table, new, schema)
    pairs = _number(old, _BEFORE).join(_number(now, _AFTER), _KEYS, join_type="full outer")
    is_old, is_new = pc.is_valid(pairs[_BEFORE]), pc.is_valid(pairs[_AFTER])
    both = pairs.filter(pc.and_(is_old, is_new))
    removed = old.take(pairs.filter(pc.invert(is_new))[_BEFORE])
    added = now.take(pairs.filter(pc.invert(is_old))[_AFTER])
    left, right = old.take(both[_BEFORE]), now.take(both[_AFTER])
    differs = pa.array(~find_equal_rows(left.select(schema.names), right.select(schema.names)))
    left, right = left.filter(differs), right.filter(differs)
    shown = [
        *_sample("added", added, schema, sample),
        *_sample("removed", removed, schema, sample),
        *_interleave(_sample("before", left, schema, sample), _sample("after", right, schema, sample)),
    ]
    return RowDifference(
        columns=tuple(schema.names), added=added.num_rows, removed=removed.num_rows, changed=left.num_rows,
        sample=tuple(shown),
    ), ""  # fmt: skip


def _read(table: OpenTable, snapshot: Snapshot, schema: pa.Schema) -> pa.Table:
    whole = select_schema(schema, columns=None, meta_columns=True)
    if snapshot.slices.num_rows == 0:
        return whole.empty_table()
    return read_rows(table.store, snapshot, whole)


def _number(rows: pa.Table, name: str) -> pa.Table:
    """Keys and partitions, which are never null in these columns, and the rows' numbers."""
    return rows.select(_KEYS).append_column(name, pa.array(np.arange(rows.num_rows)))


def _sample(word: str, rows: pa.Table, schema: pa.Schema, count: int) -> list[tuple[str, tuple[Any, ...]]]:
    return [(word, tuple(row.values())) for row in rows.select(schema.names).slice(0, count).to_pylist()]


def _interleave(
    first: Sequence[tuple[str, tuple[Any, ...]]], second: Sequence[tuple[str, tuple[Any, ...]]]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for before, after in zip(first, second, strict=True):
        yield before
        yield after
