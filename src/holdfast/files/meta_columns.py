"""The five columns Hudi puts before the data columns, built without touching rows one by one."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.format.schemas import META_COLUMNS
from holdfast.model.instant import InstantTime

COMMIT_TIME, SEQUENCE, RECORD_KEY, PARTITION_PATH, FILE_NAME = META_COLUMNS
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
        constant_column(instant, count),
        sequence_column(f"{instant}_{task}_", np.arange(first_row, first_row + count)),
        keys,
        constant_column(partition, count),
        constant_column(file_name, count),
    ]


def replace_at(column: pa.Array, positions: npt.NDArray[np.int64], values: pa.Array) -> pa.Array:
    """The column with these values at these positions."""
    if len(positions) == 0:
        return column
    choice = np.arange(len(column))
    choice[positions] = np.arange(len(column), len(column) + len(values))
    return pa.concat_arrays([column, values]).take(pa.array(choice))


def constant_column(value: str, count: int) -> pa.Array:
    """One value in every row, as a dictionary."""
    indices = pa.array(np.zeros(count, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


def sequence_column(prefix: str, numbers: npt.NDArray[np.int64]) -> pa.Array:
    """The numbers as texts behind a prefix."""
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(numbers), pa.string()), "")
