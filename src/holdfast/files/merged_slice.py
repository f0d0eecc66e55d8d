"""The rows of a file slice with its log files: those of the base file that stand, then those of the logs.

The base file is read row group by row group, and what its logs say is held
beside it. Rows that logs supersede are found by their positions where blocks
tell these, else by their keys. No row is left out for any other reason before
that: one that a filter would drop may be what supersedes another.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import TableDamaged
from holdfast.files.conform import conform_rows
from holdfast.files.merge import Mask, find_wins
from holdfast.files.meta_columns import RECORD_KEY
from holdfast.files.open_base_file import open_base_file
from holdfast.files.overlay import Overlay, read_overlay
from holdfast.files.picking import Positions, pick_rows
from holdfast.format.malformed import Malformed
from holdfast.format.row_positions import NOWHERE
from holdfast.model.slices import FileSlice
from holdfast.storage.store import Store
from holdfast.table.log_instants import LogInstants


@dataclass(frozen=True)
class LogMerge:
    """How the log files of a snapshot are read: a value that travels to tasks."""

    instants: LogInstants
    ordering: pa.Field | None = None
    """The column by which an older row may win against a newer one; without one the last write wins."""


def each_merged(
    store: Store, slice_: FileSlice, schema: pa.Schema, merge: LogMerge, *, with_base: bool = True
) -> Iterator[pa.Table]:
    """The rows of a slice part by part, in that schema, at most one row group and the logs in memory.

    Without `with_base` the rows of log files alone; of the base file no more is read than decides on them.
    """
    overlay = read_overlay(store, slice_, schema, instants=merge.instants, ordering=merge.ordering)
    contest = Contest(overlay, merge.ordering)
    if slice_.base is not None and with_base:
        yield from _standing_rows(store, slice_.base, schema, contest)
    elif slice_.base is not None and not overlay.wins.all():
        for _ in _standing_rows(store, slice_.base, pa.schema([]), contest):
            pass
    added = contest.find_added()
    if len(added):
        yield pick_rows(overlay.rows, added)


def _standing_rows(store: Store, path: str, schema: pa.Schema, contest: "Contest") -> Iterator[pa.Table]:
    first = 0
    with open_base_file(store, path) as file:
        wanted = {*schema.names, *contest.columns}
        present = [name for name in file.schema_arrow.names if name in wanted]
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, columns=present)
            count = file.metadata.row_group(number).num_rows
            stays = ~contest.find_superseded(rows, first, count)
            first += count
            if not stays.all():
                rows = rows.filter(pa.array(stays))
            if stays.any():
                yield _conform(rows, schema, int(stays.sum()))
    contest.refuse_beyond(first, path)


def _conform(rows: pa.Table, schema: pa.Schema, count: int) -> pa.Table:
    """As `conform_rows`, also where the file has none of the columns."""
    if rows.num_columns:
        return conform_rows(rows, schema)
    return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)


class Contest:
    """The entries of an overlay against the rows of a base file, which come in their order."""

    def __init__(self, overlay: Overlay, ordering: pa.Field | None) -> None:
        self._overlay = overlay
        self._ordering = ordering
        is_placed = overlay.positions != NOWHERE
        self._positions = np.sort(overlay.positions[is_placed])
        self._by_key = np.flatnonzero(~is_placed)
        self._keys = overlay.keys.take(pa.array(self._by_key))
        self._has_lost = np.zeros(len(overlay), dtype=np.bool_)

    @property
    def columns(self) -> list[str]:
        """The columns of the base file that decide."""
        if len(self._by_key) == 0:
            return []
        return [RECORD_KEY] if self._ordering is None else [RECORD_KEY, self._ordering.name]

    def find_superseded(self, rows: pa.Table, first: int, count: int) -> Mask:
        """Which of these rows, the next of the base file from its row `first` on, stand no more."""
        gone = np.zeros(count, dtype=np.bool_)
        start, end = np.searchsorted(self._positions, [first, first + count])
        gone[self._positions[start:end] - first] = True
        if len(self._by_key) == 0:
            return gone
        if RECORD_KEY not in rows.column_names:
            raise Malformed("the file has no record keys")
        found = pc.index_in(rows.column(RECORD_KEY), value_set=self._keys)
        hits = np.flatnonzero(found.is_valid().to_numpy())
        entries = self._by_key[found.drop_null().to_numpy()]
        has_won = self._overlay.wins[entries]
        if not has_won.all():
            has_won = has_won | self._wins_by_order(rows, hits, entries)
        self._has_lost[entries[~has_won]] = True
        gone[hits[has_won]] = True
        return gone

    def find_added(self) -> Positions:
        """The entries that are rows of the slice, once all rows of the base file have come."""
        return np.flatnonzero(~self._overlay.removes & ~self._has_lost)

    def refuse_beyond(self, rows: int, path: str) -> None:
        """`TableDamaged` if an entry supersedes a row that a base file of so many does not have."""
        if len(self._positions) and self._positions[-1] >= rows:
            raise TableDamaged(
                "log files supersede a row that the base file does not have",
                file=path,
                row=int(self._positions[-1]),
                rows=rows,
            )

    def _wins_by_order(self, rows: pa.Table, hits: Positions, entries: Positions) -> Mask:
        assert self._ordering is not None, "without order every entry wins"
        assert self._overlay.orderings is not None, "the overlay has them where order decides"
        if self._ordering.name not in rows.column_names:
            return np.ones(len(hits), dtype=np.bool_)  # Null is the least of all.
        held = conform_rows(rows.select([self._ordering.name]), pa.schema([self._ordering]))
        stored = held.column(0).take(pa.array(hits)).combine_chunks()
        return find_wins(pa.chunked_array([self._overlay.orderings.take(pa.array(entries))]), stored)
