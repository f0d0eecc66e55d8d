"""Rows of other libraries: whatever offers them as an Arrow stream, as pandas, Polars and DuckDB do."""

import re

import pyarrow as pa

from holdfast.errors import HoldfastError, InvalidRequest

_ROW_LABELS = re.compile(r"__index_level_\d+__")
"""How pandas calls an index without a name, such as a filter leaves behind."""


def read_stream(rows: object) -> pa.Table:
    """The rows in memory. A stream that can be read once is used up."""
    if isinstance(rows, pa.Table):
        return rows
    if not hasattr(rows, "__arrow_c_stream__"):
        raise InvalidRequest(
            "rows must be a Spark DataFrame, a pyarrow Table, or offer an Arrow stream",
            given=type(rows).__name__,
            hint="pandas, Polars and DuckDB do; for Python's own values: pyarrow.Table.from_pylist",
        )
    try:
        found = pa.RecordBatchReader.from_stream(rows).read_all()
    except HoldfastError:
        raise
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        raise InvalidRequest(
            "the rows cannot be read as Arrow", given=type(rows).__name__, cause=error
        ) from error
    return _without_row_labels(found)


def _without_row_labels(rows: pa.Table) -> pa.Table:
    """What pandas calls rows by is no column, unless somebody gave it a name."""
    if b"pandas" not in (rows.schema.metadata or {}):
        return rows
    return rows.select([name for name in rows.column_names if not _ROW_LABELS.fullmatch(name)])
