"""The overlay of a file slice: what its log files say, with one row or one delete for each key.

It is held in memory whole, and is small as long as slices are rewritten in
time. What it does to the rows of the base file `merged_slice` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.files.log_rows import LogRows, read_log_rows
from holdfast.files.log_scan import select_blocks
from holdfast.files.picking import Positions, pick_rows
from holdfast.format.row_positions import NOWHERE
from holdfast.model.slices import FileSlice
from holdfast.storage.store import Store
from holdfast.table.log_instants import LogInstants

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Overlay:
    """One entry for each key that the logs say something of, in no order."""

    rows: pa.Table
    """In the schema asked for. Where an entry is a delete, all is null, but for key and ordering column."""
    keys: pa.StringArray
    removes: Mask
    """Which entries are deletes."""
    orderings: pa.Array | None
    """By what they compete with rows of the base file, null being the least.

    None where the last write wins.
    """
    wins: Mask
    """Which entries are known to win against whatever the base file holds for their key."""
    positions: Positions
    """The rows of the base file that entries supersede; `NOWHERE` where only the key tells."""

    def __len__(self) -> int:
        return len(self.keys)


def read_overlay(
    store: Store,
    slice_: FileSlice,
    schema: pa.Schema,
    *,
    instants: LogInstants,
    ordering: pa.Field | None,
) -> Overlay:
    """What the log files of a slice say as of a snapshot.

    `schema` has the wanted columns, meta columns too, as the table stores them
    now. `ordering` is the column, as the table stores it now, by which an older
    row may win against a newer one; without one the last write wins.
    `TableDamaged` or `UnsupportedTable` names the file, and the offset of the block,
    that cannot be read.
    """
    blocks = select_blocks(store, slice_.logs, instants)
    found = read_log_rows(blocks, schema, ordering=ordering, base=slice_.instant)
    return fold_log_rows(found, schema, ordering)


def fold_log_rows(found: Sequence[LogRows], schema: pa.Schema, ordering: pa.Field | None) -> Overlay:
    """What remains of log rows, given in the order in which they were written."""
    rows = pa.concat_tables([schema.empty_table(), *(each.rows for each in found)])
    keys = pa.concat_arrays([pa.array([], pa.string()), *(each.keys for each in found)])
    removes = _join([each.removes for each in found], np.bool_)
    is_record = _join([each.is_record for each in found], np.bool_)
    positions = _join([each.positions for each in found], np.int64)
    codes = keys.dictionary_encode()
    numbers = codes.indices.to_numpy().astype(np.int64)
    has_no_order = np.ones(len(keys), dtype=np.bool_)
    orderings = None
    if ordering is None:
        winners = np.zeros(len(codes.dictionary), dtype=np.int64)
        winners[numbers] = np.arange(len(keys))  # Of several for one key numpy keeps the last.
    else:
        orderings = _orderings(found, ordering.type)
        has_no_order = is_record & orderings.is_null().to_numpy(zero_copy_only=False)
        winners = _play(found, numbers, len(codes.dictionary), _ranks(orderings), is_record, has_no_order)
        orderings = orderings.take(pa.array(winners))
    positions = positions[winners]
    return Overlay(
        pick_rows(rows, winners),
        codes.dictionary,
        removes[winners],
        orderings,
        has_no_order[winners] | (positions != NOWHERE),
        positions,
    )


def _play(
    found: Sequence[LogRows],
    numbers: Positions,
    keys: int,
    ranks: Positions,
    is_record: Mask,
    has_no_order: Mask,
) -> Positions:
    """Let the entries come one after the other, those of different keys at once; who is left of each key."""
    left = np.full(keys, NOWHERE, dtype=np.int64)
    start = 0
    for each in found:
        for entries in _turns(numbers[start : start + len(each)]):
            entries = entries + start
            before = left[numbers[entries]]
            is_first = before == NOWHERE
            is_older = ranks[before] > ranks[entries]
            # A row always replaces a delete; and a delete without order is replaced by none.
            loses = np.where(
                is_record[entries],
                np.where(is_record[before], has_no_order[before], is_older) & ~has_no_order[entries],
                is_older & ~is_record[before],
            )
            stays = is_first | ~loses
            left[numbers[entries[stays]]] = entries[stays]
        start += len(each)
    return left


def _turns(numbers: Positions) -> list[Positions]:
    """The entries of one block in turns in which no key comes twice; in most blocks that is one."""
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    starts = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1])) if len(order) else order
    turn = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return [np.sort(order[turn == number]) for number in range(int(turn.max(initial=-1)) + 1)]


def _ranks(orderings: pa.Array) -> Positions:
    """Numbers that compare as the values do: null is the least, and NaN, as in Java, the greatest."""
    ranks: Positions = pc.rank(orderings, tiebreaker="dense").to_numpy().astype(np.int64)
    if pa.types.is_floating(orderings.type):
        ranks[pc.fill_null(pc.is_nan(orderings), False).to_numpy(zero_copy_only=False)] = len(ranks) + 1
    ranks[orderings.is_null().to_numpy(zero_copy_only=False)] = 0
    return ranks


def _orderings(found: Sequence[LogRows], kind: pa.DataType) -> pa.Array:
    """The ordering values of all entries."""
    parts = [pa.nulls(len(each), kind) if each.orderings is None else each.orderings for each in found]
    return pa.concat_arrays([pa.array([], kind), *parts])


def _join(parts: Sequence[npt.NDArray[Any]], kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, dtype=kind), *parts])
