"""The partition path of every row, computed once per distinct value."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.table import TableSettings
from holdfast.format.partition_paths import check_partition_path, partition_path
from holdfast.format.record_keys import text_column


def partition_column(rows: pa.RecordBatch, settings: TableSettings) -> pa.DictionaryArray:
    """Partition paths as a dictionary; `InvalidRequest` names a value that cannot be a path."""
    encoded = [
        pc.dictionary_encode(text_column(name, rows.column(name)), null_encoding="encode")
        for name in settings.partition_by
    ]
    # Number the combinations of values; each is one mixed-radix number of its columns' codes.
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for column in encoded:
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    _, first_rows, indices = np.unique(codes, return_index=True, return_inverse=True)
    paths = [_path([column[int(row)].as_py() for column in encoded], settings) for row in first_rows]
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(paths, pa.string()))


def _path(values: list[str | None], settings: TableSettings) -> str:
    path = partition_path(
        settings.partition_by, values, hive_style=settings.hive_style, url_encode=settings.url_encode
    )
    check_partition_path(path)
    return path
