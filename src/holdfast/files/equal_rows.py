"""Which rows of two tables are equal, value by value, also inside of structs, lists and maps.

Arrow compares plain columns only. Nulls are equal here, and so is what is no number.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.files.merge import Mask
from holdfast.files.picking import pick_rows


def find_equal_rows(left: pa.Table, right: pa.Table) -> Mask:
    """True where the rows at one position are equal; both tables have the same schema and length."""
    are_equal = np.ones(left.num_rows, dtype=np.bool_)
    for name in left.column_names:
        # Only what is equal so far needs to be looked at.
        rows = np.flatnonzero(are_equal)
        first, second = (pick_rows(table.select([name]), rows)[name] for table in (left, right))
        are_equal[rows] = _find_equal(first.combine_chunks(), second.combine_chunks())
    return are_equal


def _find_equal(left: pa.Array, right: pa.Array) -> Mask:
    is_there = left.is_valid().to_numpy(zero_copy_only=False)
    are_equal: Mask = is_there == right.is_valid().to_numpy(zero_copy_only=False)
    both = np.flatnonzero(is_there & are_equal)
    if len(both) == 0:
        return are_equal
    first, second = left.take(pa.array(both)), right.take(pa.array(both))
    kind = first.type
    if pa.types.is_struct(kind):
        values = np.ones(len(both), dtype=np.bool_)
        for number in range(kind.num_fields):
            values &= _find_equal(first.field(number), second.field(number))
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = _find_equal_lists(_as_list(first), _as_list(second))
    else:
        values = pc.equal(first, second).to_numpy(zero_copy_only=False).copy()
        if pa.types.is_floating(kind):
            values |= (pc.and_(pc.is_nan(first), pc.is_nan(second))).to_numpy(zero_copy_only=False)
    are_equal[both] = values
    return are_equal


def _find_equal_lists(first: pa.Array, second: pa.Array) -> Mask:
    lengths = pc.list_value_length(first).to_numpy()
    are_equal: Mask = lengths == pc.list_value_length(second).to_numpy()
    alike = np.flatnonzero(are_equal)
    elements = [lists.take(pa.array(alike)).flatten() for lists in (first, second)]
    owners = np.repeat(alike, lengths[alike])
    are_equal[owners[~_find_equal(*elements)]] = False
    return are_equal


def _as_list(values: pa.Array) -> pa.Array:
    """A map as the list of its entries; none of the values is null."""
    if not pa.types.is_map(values.type):
        return values
    entries = pa.StructArray.from_arrays([values.keys, values.items], names=["key", "value"])
    return pa.ListArray.from_arrays(values.offsets, entries)
