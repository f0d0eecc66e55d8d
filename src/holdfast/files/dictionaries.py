"""Which columns of Parquet files get a dictionary: those whose values repeat."""

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.files.base_file import leaf_columns

_SAMPLE_ROWS = 2048


def repeating_columns(sample: pa.Table | pa.RecordBatch) -> list[str]:
    """Columns with few distinct values, judged by the first rows."""
    head = sample.slice(0, _SAMPLE_ROWS)
    repeating: list[str] = []
    for field, column in zip(head.schema, head.columns, strict=True):
        if pa.types.is_nested(field.type):
            repeating += [path for path, _ in leaf_columns(field.name, field.type)]
        elif pc.count_distinct(column).as_py() * 2 <= len(column):
            repeating.append(field.name)
    return repeating
