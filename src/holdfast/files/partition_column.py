"""The partition path of every row, computed once per distinct value."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.key_generators import PartitionType
from holdfast.config.table import TableSettings
from holdfast.format.partition_paths import check_partition_path, partition_path
from holdfast.format.record_keys import text_column
from holdfast.format.timestamp_paths import timestamp_texts

_PATHS = pa.dictionary(pa.int32(), pa.string())


def partition_column(rows: pa.RecordBatch | pa.Table, settings: TableSettings) -> pa.DictionaryArray:
    """Partition paths as a dictionary of distinct paths.

    `InvalidRequest` names a column of a type that cannot make a path, also
    without rows, and a value that cannot be one.
    """
    if isinstance(rows, pa.RecordBatch):
        return _batch_column(rows, settings)
    batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    columns = [_batch_column(batch, settings) for batch in batches]
    return pa.chunked_array(columns, _PATHS).unify_dictionaries().combine_chunks()


def _batch_column(rows: pa.RecordBatch, settings: TableSettings) -> pa.DictionaryArray:
    encoded = [
        _encode(name, rows.column(name), kind, settings)
        for name, kind in zip(settings.partition_by, settings.partition_types, strict=True)
    ]
    # Number the combinations of values, one column after the other.
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for column in encoded:
        combined = codes * len(column.dictionary) + column.indices.to_numpy()
        codes = pc.dictionary_encode(pa.array(combined)).indices.to_numpy()
    first_rows = np.zeros(codes.max(initial=-1) + 1, dtype=np.int64)
    first_rows[codes[::-1]] = np.arange(rows.num_rows)[::-1]
    paths = [_path([column[int(row)].as_py() for column in encoded], settings) for row in first_rows]
    # Different values may make one path: null and empty text do.
    distinct = pc.dictionary_encode(pa.array(paths, pa.string()))
    return pa.DictionaryArray.from_arrays(distinct.indices.take(pa.array(codes)), distinct.dictionary)


def _encode(name: str, column: pa.Array, kind: PartitionType, settings: TableSettings) -> pa.DictionaryArray:
    if kind is PartitionType.TIMESTAMP:
        return timestamp_texts(name, column, settings.timestamps)
    return pc.dictionary_encode(text_column(name, column), null_encoding="encode")


def _path(values: list[str | None], settings: TableSettings) -> str:
    path = partition_path(
        settings.partition_by, values, hive_style=settings.hive_style, url_encode=settings.url_encode
    )
    check_partition_path(path)
    return path
