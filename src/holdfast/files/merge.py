"""Merging rows into one base file: what incoming rows change, and the file's new version.

Two passes, each holding one row group. The first, here, reads keys alone (and
the ordering column where order decides) and finds which rows change; a file
in which nothing changes is not written. The second, in `merged_file`, writes
the file with the changes in place and what is new behind them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.files.base_file import Encoding
from holdfast.files.key_footer import KeyFooter
from holdfast.files.merged_file import MergedFileWriter, RowGroupChanges
from holdfast.files.meta_columns import COMMIT_TIME, RECORD_KEY
from holdfast.files.open_base_file import hold_base_file, reading
from holdfast.files.picking import Positions, pick, pick_rows
from holdfast.model.names import BaseFileName
from holdfast.storage.store import Store

Mask = npt.NDArray[np.bool_]

Hits = tuple[Positions, Positions]
"""Positions in a row group, and the incoming rows whose keys are there."""

_LOOKED_UP_ROWS = 200_000
_LOOKED_UP_BYTES = 256 * 1024 * 1024
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Incoming:
    """Rows to merge, one per key."""

    rows: pa.Table
    """In the stored schema; of rows that only delete, the columns that are known."""
    keys: pa.StringArray
    removes: Mask
    """Which rows ask for their key to be removed."""

    def only(self, chosen: Positions) -> "Incoming":
        keys = self.keys.take(pa.array(chosen))
        return Incoming(pick_rows(self.rows, chosen), keys, self.removes[chosen])


@dataclass(frozen=True, slots=True)
class Changes:
    row_groups: tuple[RowGroupChanges, ...]
    found: Positions
    """Incoming rows whose key the file holds, whether they change it or not."""
    won: Positions
    """Those of them that are not older than what the file holds."""

    @classmethod
    def none(cls, old: "OldVersion") -> Self:
        return cls((RowGroupChanges(_NONE, _NONE, _NONE),) * old.row_groups, _NONE, _NONE)

    @property
    def updated_rows(self) -> int:
        return sum(len(group.updated) for group in self.row_groups)

    @property
    def removed_rows(self) -> int:
        return sum(len(group.removed) for group in self.row_groups)

    def __bool__(self) -> bool:
        return any(self.row_groups)


class OldVersion:
    """A base file that is about to be replaced."""

    def __init__(self, parquet: pq.ParquetFile, path: str) -> None:
        self._parquet = parquet
        self.path = path
        self.keys = KeyFooter.of_file(parquet.metadata)
        self.rows = parquet.metadata.num_rows
        self.row_groups = parquet.num_row_groups

    @property
    def dictionary_columns(self) -> tuple[str, ...]:
        """Columns that are stored with a dictionary, by their paths in Parquet."""
        if self.row_groups == 0:
            return ()
        first = self._parquet.metadata.row_group(0)
        chunks = [first.column(number) for number in range(first.num_columns)]
        return tuple(chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page)

    def key_column(self, number: int) -> pa.Array:
        """The record keys of a row group."""
        return self._column(number, RECORD_KEY)

    def changes(self, hits: Sequence[Hits], incoming: Incoming, *, ordering: str | None) -> Changes:
        """What the rows change in this file, given where their keys are in each row group."""
        groups: list[RowGroupChanges] = []
        won: list[Positions] = [_NONE]
        for number, (positions, sources) in enumerate(hits):
            if ordering is not None and len(positions) > 0:
                stored = self._column(number, ordering).take(pa.array(positions))
                wins = _wins(pick(incoming.rows.column(ordering), sources), stored)
                positions, sources = positions[wins], sources[wins]
            won.append(sources)
            removes = incoming.removes[sources]
            groups.append(RowGroupChanges(positions[~removes], sources[~removes], positions[removes]))
        found = [_NONE, *(sources for _, sources in hits)]
        return Changes(tuple(groups), *(np.unique(np.concatenate(rows)) for rows in (found, won)))

    def new_version(
        self,
        store: Store,
        name: BaseFileName,
        partition: str,
        encoding: Encoding,
        *,
        added: Incoming,
        fixed: Sequence[str],
    ) -> MergedFileWriter:
        """A writer of this file's next version, to which these rows will be added."""
        return MergedFileWriter(
            store,
            name,
            partition,
            encoding,
            old=self._parquet,
            old_path=self.path,
            fixed=fixed,
            keys=self.keys.with_keys(added.keys),
        )

    def _column(self, number: int, name: str) -> pa.Array:
        if name not in self._parquet.schema_arrow.names:
            return pa.nulls(self._parquet.metadata.row_group(number).num_rows)
        with reading(self.path):
            return self._parquet.read_row_group(number, columns=[name]).column(0).combine_chunks()


@contextmanager
def open_old_version(store: Store, path: str) -> Iterator[OldVersion]:
    with hold_base_file(store, path, dictionaries=(COMMIT_TIME,)) as parquet:
        yield OldVersion(parquet, path)


def find_changes(olds: Sequence[OldVersion], incoming: Incoming, *, ordering: str | None) -> list[Changes]:
    """What the rows change in each of these files.

    With an `ordering` column a row that is older than the stored one loses
    against it; of equals the incoming one wins. A row without that column,
    as a delete may be, always wins.
    """
    hits: list[list[Hits]] = [[] for _ in olds]
    waiting: list[tuple[int, pa.Array]] = []
    # Every look-up hashes the incoming keys anew, so it is given as many stored ones at a time.
    enough = max(_LOOKED_UP_ROWS, len(incoming.keys))
    rows = held = 0
    for file, old in enumerate(olds):
        for number in range(old.row_groups):
            keys = old.key_column(number)
            waiting.append((file, keys))
            rows, held = rows + len(keys), held + keys.nbytes
            if rows >= enough or held >= _LOOKED_UP_BYTES:
                _look_up(waiting, incoming.keys, hits)
                rows = held = 0
    _look_up(waiting, incoming.keys, hits)
    decides = ordering if ordering in incoming.rows.column_names else None
    return [old.changes(found, incoming, ordering=decides) for old, found in zip(olds, hits, strict=True)]


def _look_up(waiting: list[tuple[int, pa.Array]], keys: pa.StringArray, hits: list[list[Hits]]) -> None:
    """Look for the keys in what waits, a row group each, and note for each file where they are."""
    if not waiting:
        return
    matches = pc.index_in(pa.concat_arrays([stored for _, stored in waiting]), value_set=keys)
    positions = np.flatnonzero(matches.is_valid().to_numpy(zero_copy_only=False))
    sources = matches.drop_null().to_numpy().astype(np.int64)
    ends = np.cumsum([len(stored) for _, stored in waiting])
    cuts = np.searchsorted(positions, ends)
    first = 0
    for (file, stored), end, cut in zip(waiting, ends, cuts, strict=True):
        hits[file].append((positions[first:cut] - (end - len(stored)), sources[first:cut]))
        first = cut
    waiting.clear()


def _wins(incoming: pa.ChunkedArray, stored: pa.Array) -> Mask:
    """Where an incoming ordering value is at least the stored one; null is the least of all."""
    if stored.type != incoming.type:
        stored = stored.cast(incoming.type)
    later = pc.fill_null(pc.greater_equal(incoming, stored), False)
    if pa.types.is_floating(incoming.type):
        later = pc.or_(later, pc.fill_null(pc.is_nan(incoming), False))  # as Java orders them
    wins: Mask = pc.or_(later, pc.is_null(stored)).to_numpy()
    return wins
