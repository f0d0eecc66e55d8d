"""Merging rows into one base file: what incoming rows change, and the file's new version.

Two passes, each holding one row group. The first, here, reads keys alone (and
the ordering column where order decides) and finds which rows change; a file
in which nothing changes is not written. The second, in `merged_file`, writes
the file with the changes in place and what is new behind them.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
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
from holdfast.files.overlay import Overlay
from holdfast.files.picking import Positions, pick, pick_rows
from holdfast.format.row_positions import NOWHERE
from holdfast.format.schemas import META_COLUMNS
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
class Order:
    """The columns by which rows of one key compete."""

    decides: str | None = None
    """By which a stored row may win against a later one; None if the later one always does."""
    noted: str | None = None
    """Whose stored values the changes are to tell; None if nobody asks."""


@dataclass(frozen=True, slots=True)
class Winners:
    """The incoming rows that change what a file group holds."""

    sources: Positions
    places: Positions
    """The row of the base file that has the key of each, ascending; then `NOWHERE`, if only logs have it."""
    order: pa.Array | None
    """The noted value of what the group holds for each key; None if none was to be noted, or none won."""

    @property
    def in_logs(self) -> Positions:
        """Those whose key the base file does not have."""
        found: Positions = self.sources[self.places == NOWHERE]
        return found


@dataclass(frozen=True, slots=True)
class Changes:
    row_groups: tuple[RowGroupChanges, ...]
    """What happens to the rows of the base file."""
    found: Positions
    """Incoming rows whose key the file group holds, whether they change it or not."""
    winners: Winners
    """Those of them that are not older than what is held."""
    dead: Positions
    """Incoming rows whose key the base file holds, and the log files take away."""

    @classmethod
    def none(cls, old: "OldVersion") -> Self:
        nothing = Winners(_NONE, _NONE, None)
        return cls((RowGroupChanges(_NONE, _NONE, _NONE),) * old.row_groups, _NONE, nothing, _NONE)

    def count_updates(self, removes: Mask) -> int:
        """How many rows get a new version, given which incoming rows only remove their key."""
        in_base = sum(len(group.updated) for group in self.row_groups)
        return in_base + int((~removes[self.winners.in_logs]).sum())

    def count_removals(self, removes: Mask) -> int:
        in_base = sum(len(group.removed) for group in self.row_groups)
        return in_base + int(removes[self.winners.in_logs].sum())

    def __bool__(self) -> bool:
        return len(self.winners.sources) > 0


class OldVersion:
    """A base file that is about to be replaced, or to get another log file beside it."""

    def __init__(
        self,
        parquet: pq.ParquetFile,
        path: str,
        read_logs: Callable[[], Overlay] | None = None,
        *,
        content: bytes | None = None,
    ) -> None:
        """`content` is that of the file where storage has none."""
        self._parquet = parquet
        self._content = content
        self._read_logs = read_logs
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

    @cached_property
    def overlay(self) -> Overlay | None:
        """What its log files say; None if it has none."""
        overlay = None if self._read_logs is None else self._read_logs()
        return overlay if overlay is not None and len(overlay) > 0 else None

    def key_column(self, number: int) -> pa.Array:
        """The record keys of a row group."""
        return self._column(number, RECORD_KEY)

    def hits(self, keys: pa.StringArray) -> list[Hits]:
        """Where each row group has one of the keys."""
        found: list[list[Hits]] = [[]]
        for number in range(self.row_groups):
            _look_up([(0, self.key_column(number))], keys, found)
        return found[0]

    def covering(self, number: int, hits: Hits, entries: Positions, order: Order) -> Hits:
        """Those of the hits in a row group that count, given the entry of the overlay that each source is.

        A row of a foreign log file may be older than that of the base file.
        """
        positions, sources = hits
        if self.overlay is None or self.overlay.orderings is None or order.decides is None:
            return hits
        stored = self._column(number, order.decides).take(pa.array(positions))
        counts = (entries[sources] == NOWHERE) | _covers(self.overlay, entries[sources], stored)
        return positions[counts], sources[counts]

    def changes(self, hits: Sequence[Hits], incoming: Incoming, order: Order) -> Changes:
        """What the rows change in this file group, given where their keys are in each row group."""
        entries = None if self.overlay is None else _entries_of(self.overlay, incoming.keys)
        groups: list[RowGroupChanges] = []
        parts = [_Met.nothing()]
        first = 0
        for number, (positions, sources) in enumerate(hits):
            met = self._meet(number, positions, sources, incoming, order, entries)
            removes = incoming.removes[met.sources]
            groups.append(
                RowGroupChanges(met.positions[~removes], met.sources[~removes], met.positions[removes])
            )
            parts.append(replace(met, positions=met.positions + first))
            first += self._parquet.metadata.row_group(number).num_rows
        if self.overlay is not None and entries is not None:
            parts.append(_meet_logs_alone(self.overlay, entries, hits, incoming, order))
        return _changes(groups, parts)

    def _meet(
        self,
        number: int,
        positions: Positions,
        sources: Positions,
        incoming: Incoming,
        order: Order,
        entries: Positions | None,
    ) -> "_Met":
        """Compare incoming rows with those that a row group, under its log files, has for their keys."""
        if len(positions) == 0:
            return _Met.nothing()
        at = pa.array(positions)
        noted = None if order.noted is None else self._column(number, order.noted).take(at)
        stored = noted
        if order.decides is not None and order.decides != order.noted:
            stored = self._column(number, order.decides).take(at)
        is_alive = np.ones(len(positions), dtype=np.bool_)
        if entries is not None:
            assert self.overlay is not None, "there are entries"
            covers = _covers(self.overlay, entries[sources], stored if order.decides is not None else None)
            is_alive = ~(covers & self.overlay.removes[entries[sources]])
            noted = _over(self.overlay, order.noted, entries[sources], covers, noted)
            stored = _over(self.overlay, order.decides, entries[sources], covers, stored)
        found, won = sources[is_alive], is_alive
        if order.decides in incoming.rows.column_names:
            assert stored is not None, "what decides was read"
            won = is_alive & find_wins(pick(incoming.rows.column(order.decides), sources), stored)
        return _Met(
            positions[won],
            sources[won],
            found,
            sources[~is_alive],
            None if noted is None else noted.filter(pa.array(won)),
        )

    def new_version(
        self,
        store: Store,
        name: BaseFileName,
        partition: str,
        encoding: Encoding,
        *,
        added: pa.StringArray,
        fixed: Sequence[str],
    ) -> MergedFileWriter:
        """A writer of this file's next version, to which rows with these keys will be added."""
        return MergedFileWriter(
            store,
            name,
            partition,
            encoding,
            old=self._parquet,
            old_path=self.path,
            old_content=self._content,
            fixed=fixed,
            keys=self.keys.with_keys(added),
        )

    def _column(self, number: int, name: str) -> pa.Array:
        if name not in self._parquet.schema_arrow.names:
            return pa.nulls(self._parquet.metadata.row_group(number).num_rows)
        with reading(self.path):
            return self._parquet.read_row_group(number, columns=[name]).column(0).combine_chunks()


@contextmanager
def open_old_version(
    store: Store, path: str, *, read_logs: Callable[[], Overlay] | None = None
) -> Iterator[OldVersion]:
    """The base file of a group, with what its log files say, which are read when that is asked for."""
    with hold_base_file(store, path, dictionaries=(COMMIT_TIME,)) as parquet:
        yield OldVersion(parquet, path, read_logs)


@contextmanager
def open_without_base_file(
    schema: pa.Schema, path: str, read_logs: Callable[[], Overlay]
) -> Iterator[OldVersion]:
    """A file group of log files alone, the first of them at `path`, as one with an empty base file."""
    sink = io.BytesIO()
    columns = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *schema])
    pq.ParquetWriter(sink, columns).close()  # Without a row group, even an empty one.
    with pq.ParquetFile(pa.BufferReader(sink.getvalue())) as parquet:
        yield OldVersion(parquet, path, read_logs, content=sink.getvalue())


def find_changes(olds: Sequence[OldVersion], incoming: Incoming, order: Order) -> list[Changes]:
    """What the rows change in each of these file groups.

    Where order decides, a row that is older than the stored one loses against
    it; of equals the incoming one wins. A row without that column, as a delete
    may be, always wins.
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
    return [old.changes(found, incoming, order) for old, found in zip(olds, hits, strict=True)]


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


def find_wins(incoming: pa.ChunkedArray, stored: pa.Array) -> Mask:
    """Where an incoming ordering value is at least the stored one; null is the least of all."""
    if stored.type != incoming.type:
        stored = stored.cast(incoming.type)
    later = pc.fill_null(pc.greater_equal(incoming, stored), False)
    if pa.types.is_floating(incoming.type):
        later = pc.or_(later, pc.fill_null(pc.is_nan(incoming), False))  # as Java orders them
    is_later: Mask = pc.or_(later, pc.is_null(stored)).to_numpy()
    return is_later


@dataclass(frozen=True, slots=True)
class _Met:
    """Incoming rows that met what a part of a file group holds for their keys."""

    positions: Positions
    """The rows of the base file that the winners change."""
    sources: Positions
    """The winners."""
    found: Positions
    dead: Positions
    order: pa.Array | None

    @classmethod
    def nothing(cls) -> Self:
        return cls(_NONE, _NONE, _NONE, _NONE, None)


def _changes(groups: Sequence[RowGroupChanges], parts: Sequence[_Met]) -> Changes:
    """The changes of a file group, from those of its parts."""
    columns = ([getattr(part, name) for part in parts] for name in ("positions", "sources", "found", "dead"))
    places, sources, found, dead = map(np.concatenate, columns)
    orders = [part.order for part in parts if part.order is not None]
    winners = Winners(sources, places, pa.concat_arrays(orders) if orders else None)
    return Changes(tuple(groups), np.unique(found), winners, np.unique(dead))


def _entries_of(overlay: Overlay, keys: pa.StringArray) -> Positions:
    """For each key, where the overlay says something of it, or `NOWHERE`."""
    entries: Positions = pc.fill_null(pc.index_in(keys, value_set=overlay.keys), NOWHERE).to_numpy()
    return entries.astype(np.int64)


def _covers(overlay: Overlay, entries: Positions, stored: pa.Array | None) -> Mask:
    """Where the entry of the overlay, if there is one, counts, and not the row of the base file."""
    has_entry: Mask = entries != NOWHERE
    if stored is None or overlay.orderings is None:
        return has_entry
    later: Mask = overlay.wins[entries] | find_wins(
        pa.chunked_array([_take_entries(overlay.orderings, entries)]), stored
    )
    covers: Mask = has_entry & later
    return covers


def _over(
    overlay: Overlay, name: str | None, entries: Positions, covers: Mask, stored: pa.Array | None
) -> pa.Array | None:
    """The values of a column as the file group has them now, given those of the base file."""
    if name is None or stored is None:
        return stored
    over = _take_entries(_one(overlay.rows.column(name)), entries)
    stored = stored if stored.type == over.type else stored.cast(over.type)
    return pc.if_else(pa.array(covers), over, stored)


def _meet_logs_alone(
    overlay: Overlay, entries: Positions, hits: Sequence[Hits], incoming: Incoming, order: Order
) -> _Met:
    """Compare incoming rows with those of log files whose keys the base file does not have."""
    is_there = entries != NOWHERE
    for _, sources in hits:
        is_there[sources] = False
    sources = np.flatnonzero(is_there)
    sources = sources[~overlay.removes[entries[sources]]]
    found = sources
    if len(sources) > 0 and order.decides in incoming.rows.column_names:
        stored = _take_entries(_one(overlay.rows.column(order.decides)), entries[sources])
        sources = sources[find_wins(pick(incoming.rows.column(order.decides), sources), stored)]
    noted = (
        None
        if order.noted is None
        else _take_entries(_one(overlay.rows.column(order.noted)), entries[sources])
    )
    return _Met(np.full(len(sources), NOWHERE, dtype=np.int64), sources, found, _NONE, noted)


def _take_entries(values: pa.Array, entries: Positions) -> pa.Array:
    """The values of these entries; null where there is none."""
    return values.take(pa.array(entries, mask=entries == NOWHERE))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
