"""Segments on Spark: each task builds its rows into files of the deep store.

Rows are not shuffled: Spark's own cut of the input decides which task gets
which, and a task starts another segment when one is full.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from holdfast.config.push_schema import Field
from holdfast.engines.spark.jobs import Jobs
from holdfast.engines.spark.keys import quote
from holdfast.engines.spark.tasks import run_tasks
from holdfast.engines.spark.types import arrow_schema_of
from holdfast.push.segments.build import BuiltSegment, SegmentRequest, build_segments
from holdfast.push.segments.conversions import check_convertible, select_fields
from holdfast.storage.store import Store, StoreLocation
from holdfast.writes.task import TaskIdentity


def fit_frame(
    frame: DataFrame, fields: Sequence[Field], *, columns: Collection[str] = (), separator: str
) -> DataFrame:
    """Those columns of the frame that the table has, checked before a row is read.

    Nested values become JSON where the table keeps text, and texts are cut at
    the separator where it keeps several values.
    """
    wanted = select_fields(fields, frame.columns, columns)
    rows = frame.select(*(_column(frame, field, separator).alias(field.name) for field in wanted))
    for field, held in zip(wanted, arrow_schema_of(rows.schema), strict=True):
        check_convertible(held.type, field)
    return rows


def build_on_spark(
    rows: DataFrame, request: SegmentRequest, location: StoreLocation, *, tasks: int, jobs: Jobs
) -> list[BuiltSegment]:
    """Build the rows into segments, in one Spark job; they come in the order of their tasks."""

    def body(
        store: Store, identity: TaskIdentity, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[BuiltSegment]:
        return build_segments(store, request, task=identity.task, attempt=identity.attempt, batches=batches)

    cut = rows.coalesce(tasks) if tasks else rows
    with jobs.cancellable(rows.sparkSession):
        return run_tasks(cut, location, body, BuiltSegment)


def _column(frame: DataFrame, field: Field, separator: str) -> Column:
    kind = frame.schema[field.name].dataType
    column = f.col(quote(field.name))
    if field.is_array and isinstance(kind, spark.StringType):
        # One character in brackets stands for itself, whatever it means in a pattern.
        return f.split(column, f"[{separator}]" if separator not in "^\\[]" else f"\\{separator}")
    if not field.is_array and isinstance(kind, spark.StructType | spark.MapType | spark.ArrayType):
        return f.to_json(column)
    return column
