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
from holdfast.files.merged_file import MergedFileWriter, Positions, RowGroupChanges
from holdfast.files.meta_columns import COMMIT_TIME, RECORD_KEY
from holdfast.files.open_base_file import held_base_file, reading
from holdfast.model.names import BaseFileName
from holdfast.storage.store import Store

Mask = npt.NDArray[np.bool_]

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
        picked = pa.array(chosen)
        return Incoming(self.rows.take(picked), self.keys.take(picked), self.removes[chosen])


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
    def updated(self) -> int:
        return sum(len(group.updated) for group in self.row_groups)

    @property
    def removed(self) -> int:
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

    def changes(self, incoming: Incoming, *, ordering: str | None) -> Changes:
        """What the rows change in this file.

        With an `ordering` column a row that is older than the stored one loses
        against it; of equals the incoming one wins. A row without that column,
        as a delete may be, always wins.
        """
        groups: list[RowGroupChanges] = []
        found: list[Positions] = [_NONE]
        won: list[Positions] = [_NONE]
        decides = ordering if ordering in incoming.rows.column_names else None
        for number in range(self.row_groups):
            hits = pc.index_in(self._column(number, RECORD_KEY), value_set=incoming.keys)
            positions = np.flatnonzero(hits.is_valid().to_numpy(zero_copy_only=False))
            sources = hits.drop_null().to_numpy().astype(np.int64)
            found.append(sources)
            if decides is not None and len(positions) > 0:
                stored = self._column(number, decides).take(pa.array(positions))
                wins = _wins(incoming.rows.column(decides).take(pa.array(sources)), stored)
                positions, sources = positions[wins], sources[wins]
            won.append(sources)
            removes = incoming.removes[sources]
            groups.append(RowGroupChanges(positions[~removes], sources[~removes], positions[removes]))
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
        with reading(self.path):
            return self._parquet.read_row_group(number, columns=[name]).column(0).combine_chunks()


@contextmanager
def opened_old_version(store: Store, path: str) -> Iterator[OldVersion]:
    with held_base_file(store, path, dictionaries=(COMMIT_TIME,)) as parquet:
        yield OldVersion(parquet, path)


def _wins(incoming: pa.ChunkedArray, stored: pa.Array) -> Mask:
    """Where an incoming ordering value is at least the stored one; null is the least of all."""
    if stored.type != incoming.type:
        stored = stored.cast(incoming.type)
    later = pc.fill_null(pc.greater_equal(incoming, stored), False)
    if pa.types.is_floating(incoming.type):
        later = pc.or_(later, pc.fill_null(pc.is_nan(incoming), False))  # as Java orders them
    wins: Mask = pc.or_(later, pc.is_null(stored)).to_numpy()
    return wins
