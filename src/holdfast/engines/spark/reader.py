"""Snapshot reads on Spark: its own Parquet scan over an explicit list of files.

File slices with log files are merged by tasks of ours, and their rows put beside.

The schema is given, so planning reads no footer of a commit on the active timeline. Every page is
checked against its checksum.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f

from holdfast.engines.spark.inputs import spark_path, spark_uri
from holdfast.engines.spark.keys import quote
from holdfast.engines.spark.merged_rows import merge_frame
from holdfast.engines.spark.session import listing_few_tasks
from holdfast.engines.spark.types import spark_schema_of, spark_type_of
from holdfast.read.changes import COMMIT_TIME, Changes
from holdfast.read.path_columns import PathColumns
from holdfast.read.scans import Scan, scans
from holdfast.read.snapshot import Snapshot, uris
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable

_VERIFY_CHECKSUMS = "parquet.page.verify-checksum.enabled"
_BASE = "basePath"
"""Spark's option for the folder below which the names of folders tell columns."""


def read_frame(
    session: SparkSession,
    table: OpenTable,
    snapshot: Snapshot,
    schema: pa.Schema,
    *,
    path_columns: PathColumns | None = None,
) -> DataFrame:
    """The rows of a snapshot. Files of an older schema are read in their own and then widened.

    What paths tell Spark takes from them, and opens no file of a partition
    that a query does not ask for.
    """
    frames = _plain_frames(session, table.store, snapshot.plain, schema, path_columns)
    if snapshot.merged:
        frames.append(merge_frame(session, table.location, snapshot, schema))
    return _union(session, frames, schema)


def read_changes_frame(
    session: SparkSession,
    table: OpenTable,
    changes: Changes,
    schema: pa.Schema,
    *,
    path_columns: PathColumns | None = None,
) -> DataFrame:
    """The scan leaves out row groups by their statistics, because the filter stands right above it."""
    found = changes.snapshot
    frames = _plain_frames(session, table.store, found.plain, schema, path_columns)
    if changes.has_older_rows:
        frames = [frame.where(f.col(COMMIT_TIME) > changes.since) for frame in frames]
    if found.merged:
        frames.append(merge_frame(session, table.location, found, schema, since=changes.since))
    return _union(session, frames, schema)


def _union(session: SparkSession, frames: Sequence[DataFrame], schema: pa.Schema) -> DataFrame:
    if not frames:
        return session.createDataFrame([], spark_schema_of(schema))
    # The class to which a frame of Spark Connect belongs is another one in PySpark 3.5.
    return reduce(lambda first, second: first.union(second), frames)


def _plain_frames(
    session: SparkSession,
    store: Store,
    snapshot: Snapshot,
    schema: pa.Schema,
    path_columns: PathColumns | None,
) -> list[DataFrame]:
    """Spark's own scans of the slices that are one base file each."""
    frames: list[DataFrame] = []
    for scan in scans(store, snapshot, schema) if snapshot.paths else ():
        telling, others = ([], scan.paths) if path_columns is None else path_columns.split(scan.paths)
        if telling:
            frames.append(_frame(session, store, replace(scan, paths=telling), schema, by_path=True))
        if others:
            frames.append(_frame(session, store, replace(scan, paths=others), schema))
    return frames


def _frame(
    session: SparkSession, store: Store, scan: Scan, schema: pa.Schema, *, by_path: bool = False
) -> DataFrame:
    files = [spark_path(uri) for uri in uris(store, scan.paths)]
    reader = session.read.schema(spark_schema_of(scan.form)).option(_VERIFY_CHECKSUMS, "true")
    if by_path:
        reader = reader.option(_BASE, spark_uri(store.uri("").rstrip("/")))
    with listing_few_tasks(session):
        frame = _of_files(session, reader, files)
    if by_path:
        # Spark puts what it takes from paths last, also columns that were not asked for.
        frame = frame.select(*(f.col(quote(name)) for name in scan.form.names))
    if scan.form == schema:
        return frame
    return frame.select(
        *(
            _widen(f.col(held.name), held.type, field.type).alias(field.name)
            for held, field in zip(scan.form, schema, strict=True)
        )
    )


def _of_files(session: SparkSession, reader: DataFrameReader, files: Sequence[str]) -> DataFrame:
    """As `reader.parquet(*files)`, with one call of the JVM instead of one for each file."""
    in_jvm: Any = getattr(reader, "_jreader", None)
    if in_jvm is None:  # The session is remote, and sends them together.
        return reader.parquet(*files)
    jvm: Any = session._jvm
    frame: DataFrame = reader._df(
        in_jvm.parquet(jvm.java.util.regex.Pattern.compile("\0").split("\0".join(files)))
    )
    return frame


def _widen(column: Column, held: pa.DataType, kind: pa.DataType) -> Column:
    """A column in a wider type than files hold it in, with the fields that its structs lack as nulls.

    Spark's own scan would give such fields as nulls too; but when a query
    asks for nothing else of a struct, it takes the whole struct for null.
    """
    if held == kind:
        return column
    if pa.types.is_struct(kind):
        fields = [_field(column, held, field).alias(field.name) for field in kind]
        return f.when(column.isNotNull(), f.struct(*fields))
    if pa.types.is_list(kind):
        return f.transform(column, lambda element: _widen(element, held.value_type, kind.value_type))
    if pa.types.is_map(kind):
        return f.transform_values(column, lambda _, value: _widen(value, held.item_type, kind.item_type))
    if pa.types.is_float32(held) and pa.types.is_float64(kind):
        column = column.cast("string")  # As Hudi has it: the double that is written with the same digits.
    return column.cast(spark_type_of(kind))


def _field(column: Column, held: pa.StructType, field: pa.Field) -> Column:
    if held.get_field_index(field.name) < 0:
        return f.lit(None).cast(spark_type_of(field.type))
    return _widen(column.getField(field.name), held.field(field.name).type, field.type)
