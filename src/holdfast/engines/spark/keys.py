"""Record keys and partition paths as Spark columns, spelled exactly as tasks spell them.

Spark's own expressions where they give the same text; elsewhere the code that
tasks run, as a function over whole columns.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark
from pyspark.sql.pandas.functions import pandas_udf

from holdfast.config.key_generators import PartitionType
from holdfast.config.table import TableSettings
from holdfast.config.write import WriteSettings
from holdfast.engines.spark.types import arrow_schema_of
from holdfast.files.partition_column import partition_column
from holdfast.format.partition_paths import DEFAULT_PARTITION
from holdfast.writes.merge_task import bucket_column
from holdfast.writes.task import require_keys

_NATIVE = (
    spark.StringType,
    spark.ByteType,
    spark.ShortType,
    spark.IntegerType,
    spark.LongType,
    spark.BooleanType,
    spark.DateType,
    spark.TimestampType,
)
"""Types whose text is the same in Spark, timestamps taken as microseconds."""

_ZONELESS_MICROS = "timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {})"


def says_partition(rows: DataFrame, table: TableSettings) -> bool:
    """Whether the rows have the columns that say their partition."""
    return set(table.partition_by) <= set(rows.columns)


def partition_path_of(rows: DataFrame, table: TableSettings) -> Column:
    """The partition path of each row."""
    if not table.partition_by:
        return f.lit("")
    is_simple = set(table.partition_types) == {PartitionType.SIMPLE} and not table.url_encode
    if not is_simple or not _are_native(rows, table.partition_by):
        return _column_of_function(
            rows,
            table.partition_by,
            "string",
            lambda data: partition_column(data, table).dictionary_decode().to_numpy(zero_copy_only=False),
        )
    segments = []
    for name in table.partition_by:
        text = _text(rows, name)
        value = f.when(text == "", None).otherwise(text)
        segment = f.coalesce(value, f.lit(DEFAULT_PARTITION))
        segments.append(f.concat(f.lit(f"{name}="), segment) if table.hive_style else segment)
    return f.concat_ws("/", *segments)


def record_key_of(rows: DataFrame, table: TableSettings) -> Column:
    """The record key of each row; null or any text for a row that has none."""
    if not _are_native(rows, table.record_key):
        return _column_of_function(
            rows,
            table.record_key,
            "string",
            lambda data: require_keys(data, table).to_numpy(zero_copy_only=False),
        )
    if not table.has_complex_keys:
        return _text(rows, table.record_key[0])
    parts = []
    for name in table.record_key:
        text = f.coalesce(_text(rows, name), f.lit("__null__"))
        parts.append(f.concat(f.lit(f"{name}:"), f.when(text == "", f.lit("__empty__")).otherwise(text)))
    return f.concat_ws(",", *parts)


def bucket_of_row(rows: DataFrame, table: TableSettings, write: WriteSettings) -> Column:
    return _column_of_function(rows, table.record_key, "long", lambda data: bucket_column(data, table, write))


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _are_native(rows: DataFrame, names: Sequence[str]) -> bool:
    return all(type(rows.schema[name].dataType) in _NATIVE for name in names)


def _text(rows: DataFrame, name: str) -> Column:
    column = f.col(quote(name))
    kind = rows.schema[name].dataType
    if isinstance(kind, spark.TimestampType):
        column = f.unix_micros(column)
    elif isinstance(kind, spark.TimestampNTZType):
        column = f.expr(_ZONELESS_MICROS.format(quote(name)))
    return column.cast("string")


def _column_of_function(
    rows: DataFrame, names: Sequence[str], kind: str, compute: Callable[[pa.Table], npt.NDArray[Any]]
) -> Column:
    """A function over whole columns. They travel as texts and are given their types back.

    Large integers beside nulls would not survive the way through pandas.
    """
    # Takes as long to import as all else together, and few tables need it.
    import pandas as pd

    schema = arrow_schema_of(spark.StructType([rows.schema[name] for name in names]))

    def function(*columns: pd.Series) -> pd.Series:
        texts = (pa.array(column, pa.string(), from_pandas=True) for column in columns)
        typed = [_with_types(text, field.type) for text, field in zip(texts, schema, strict=True)]
        return pd.Series(compute(pa.table(typed, schema=schema)))

    called: Any = pandas_udf(function, kind)  # type: ignore[call-overload]  # its types know no *args
    column: Column = called(*(_text(rows, name) for name in names))
    return column


def _with_types(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return texts.cast(pa.int64()).cast(kind)
    return texts.cast(kind)
