"""A file slice as one base file: what its log files say goes into the rows of a new one.

What a write changes in the same file group goes with it. Without a write it is
what a compaction does. Rows that only the logs changed keep the commit that
wrote them.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.files.conform import conform_rows
from holdfast.files.merge import Changes, Incoming, Mask, OldVersion, Order
from holdfast.files.merged_file import OWN_META, RowGroupChanges
from holdfast.files.overlay import Overlay
from holdfast.files.picking import Positions, pick_rows
from holdfast.format.row_positions import NOWHERE


@dataclass(frozen=True, slots=True)
class SettledSlice:
    """What becomes of a base file's rows, and what follows them."""

    row_groups: tuple[RowGroupChanges, ...]
    sources: pa.Table
    """The rows that replace others."""
    behind: pa.Table
    """New rows: those of the write, and those of log files whose keys the base file does not have."""
    behind_keys: pa.StringArray


def settle_slice(
    old: OldVersion, incoming: Incoming, changes: Changes, added: Positions, schema: pa.Schema, order: Order
) -> SettledSlice:
    """What a new base file consists of; `schema` are its data columns, `added` the new rows it takes."""
    overlay = old.overlay
    rows = conform_rows(incoming.rows, schema)
    if overlay is None:
        keys = incoming.keys.take(pa.array(added))
        return SettledSlice(changes.row_groups, rows, pick_rows(rows, added), keys)
    winners = np.unique(changes.winners.sources)
    rest = _entries_left(overlay, incoming.keys.take(pa.array(winners)))
    keys = pa.concat_arrays([incoming.keys.take(pa.array(winners)), overlay.keys.take(pa.array(rest))])
    removes = np.concatenate([incoming.removes[winners], overlay.removes[rest]])
    entries = np.concatenate([np.full(len(winners), NOWHERE, dtype=np.int64), rest])
    sources = pa.concat_tables(
        [_with_own_meta(pick_rows(rows, winners), schema), _own_rows(overlay, rest, schema)]
    )
    is_alone = ~removes
    row_groups: list[RowGroupChanges] = []
    for number, hits in enumerate(old.hits(keys)):
        is_alone[hits[1]] = False
        row_groups.append(_replace(*old.covering(number, hits, entries, order), removes))
    alone = np.flatnonzero(is_alone)
    behind = pa.concat_tables([pick_rows(sources, alone), _with_own_meta(pick_rows(rows, added), schema)])
    behind_keys = pa.concat_arrays([keys.take(pa.array(alone)), incoming.keys.take(pa.array(added))])
    return SettledSlice(tuple(row_groups), sources, behind, behind_keys)


def _replace(positions: Positions, sources: Positions, removes: Mask) -> RowGroupChanges:
    gone = removes[sources]
    return RowGroupChanges(positions[~gone], sources[~gone], positions[gone])


def _entries_left(overlay: Overlay, keys: pa.StringArray) -> Positions:
    """The entries of the overlay that the write does not replace."""
    return np.flatnonzero(pc.invert(pc.is_in(overlay.keys, value_set=keys)).to_numpy(zero_copy_only=False))


def _with_own_meta(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of the write, which get their meta columns where they are stored."""
    return conform_rows(rows, pa.schema([*OWN_META, *schema]))


def _own_rows(overlay: Overlay, entries: Positions, schema: pa.Schema) -> pa.Table:
    return pick_rows(conform_rows(overlay.rows, pa.schema([*OWN_META, *schema])), entries)
