"""Picking: the values at some positions of columns that come in many chunks.

Arrow's own `take` puts all chunks together first. That copies the whole column
for a few of its values, and fails where it holds more than 2 GiB of text.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64]

_AT_ONCE = 16_384
_WHOLE_BYTES = 256 * 1024 * 1024
"""What is picked is one chunk up to here: work on few large chunks is faster."""


def pick_rows(rows: pa.Table, positions: Positions) -> pa.Table:
    """The rows at these positions, in this order."""
    return pa.table([pick(column, positions) for column in rows.columns], schema=rows.schema)


def pick(column: pa.ChunkedArray, positions: Positions, *, at_once: int = _AT_ONCE) -> pa.ChunkedArray:
    """The values at these positions, in this order."""
    if column.num_chunks == 1:
        return pa.chunked_array([column.chunk(0).take(pa.array(positions))])
    ends = np.cumsum([len(chunk) for chunk in column.chunks])
    starts = range(0, len(positions), at_once)
    parts = [_pick_few(column, ends, positions[start : start + at_once]) for start in starts]
    if parts and sum(part.nbytes for part in parts) <= _WHOLE_BYTES:
        parts = [pa.concat_arrays(parts)]
    return pa.chunked_array(parts, column.type)


def _pick_few(column: pa.ChunkedArray, ends: Positions, positions: Positions) -> pa.Array:
    """Values from the chunks they are in; `ends` are the positions behind each chunk."""
    order = np.argsort(positions, kind="stable")
    ascending = positions[order]
    cuts = np.searchsorted(ascending, ends)
    parts = [
        chunk.take(pa.array(ascending[first:last] - (end - len(chunk))))
        for chunk, end, first, last in zip(column.chunks, ends, [0, *cuts[:-1]], cuts, strict=True)
        if last > first
    ]
    in_order = pa.concat_arrays(parts)
    if np.all(order[1:] > order[:-1]):
        return in_order
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return in_order.take(pa.array(places))
