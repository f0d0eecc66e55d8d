"""The five columns Hudi puts before the data columns, built without touching rows one by one."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.format.schemas import META_COLUMNS
from holdfast.model.instant import InstantTime

_CONSTANT = pa.dictionary(pa.int32(), pa.string())
META_FIELDS = tuple(
    pa.field(name, _CONSTANT if constant else pa.string())
    for name, constant in zip(META_COLUMNS, (True, False, False, True, True), strict=True)
)
"""As written: constant columns are dictionaries of one value, which cost almost nothing."""


def meta_columns(
    keys: pa.ChunkedArray,
    *,
    instant: InstantTime,
    task: int,
    first_row: int,
    partition: str,
    file_name: str,
) -> list[pa.Array]:
    """The meta columns of `len(keys)` new rows that start at `first_row` of their file."""
    count = len(keys)
    return [
        _constant(instant, count),
        _sequence_numbers(f"{instant}_{task}_", first_row, count),
        keys,
        _constant(partition, count),
        _constant(file_name, count),
    ]


def _constant(value: str, count: int) -> pa.Array:
    indices = pa.array(np.zeros(count, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


def _sequence_numbers(prefix: str, first: int, count: int) -> pa.Array:
    digits = pc.cast(pa.array(np.arange(first, first + count)), pa.string())
    return pc.binary_join_element_wise(prefix, digits, "")
