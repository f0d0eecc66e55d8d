"""Segments on Spark: each task builds its rows into files of the deep store.

Rows are not shuffled: Spark's own cut of the input decides which task gets
which, and a task starts another segment when one is full. Where every file is
to be a segment, Spark is made to cut at files, and nowhere else.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from holdfast.config.push_schema import Field
from holdfast.engines.spark.jobs import Jobs
from holdfast.engines.spark.keys import quote
from holdfast.engines.spark.tasks import run_tasks
from holdfast.engines.spark.types import arrow_schema_of
from holdfast.push.ingestion.program import RowProgram
from holdfast.push.ingestion.rules import RowRules
from holdfast.push.segments.build import (
    FILE_HASH,
    FILE_NAME,
    BuiltSegment,
    SegmentRequest,
    build_by_file,
    build_segments,
)
from holdfast.push.segments.conversions import check_fields, select_fields
from holdfast.storage.store import Store, StoreLocation
from holdfast.writes.task import TaskIdentity

_LARGEST_PART = "spark.sql.files.maxPartitionBytes"
_COST_OF_FILE = "spark.sql.files.openCostInBytes"
_WHOLE_FILES = 1 << 44
"""No file is that large, so none is cut; and each costs as much to open, so no two share a task."""
_ROW_IN_TASK = (1 << 33) - 1
"""The lower bits of Spark's row numbers; the others tell the task."""


def fit_frame(
    frame: DataFrame,
    fields: Sequence[Field],
    *,
    columns: Collection[str] = (),
    separator: str,
    by_file: bool = False,
) -> DataFrame:
    """Those columns of the frame that the table has, checked before a row is read.

    Nested values become JSON where the table keeps text, and texts are cut at
    the separator where it keeps several values. With `by_file` two further
    columns tell the file of each row.
    """
    wanted = select_fields(fields, frame.columns, columns)
    told = _columns_of_file() if by_file else ()
    rows = frame.select(*(_column(frame, field, separator).alias(field.name) for field in wanted), *told)
    check_fields(arrow_schema_of(rows.schema), wanted)
    return rows


def frame_program(
    frame: DataFrame,
    rules: RowRules,
    fields: Sequence[Field],
    *,
    columns: Collection[str] = (),
    separator: str,
    by_file: bool = False,
) -> tuple[DataFrame, RowProgram]:
    """The columns of the frame that the rules of the table need, and what they make of them; both checked."""
    # Loaded here: it parses SQL, which few tables need.
    from holdfast.push.ingestion.compile import row_program

    arrays = {field.name: field for field in fields if field.is_array}
    split = frame.select(
        *(
            _column(frame, arrays[name], separator).alias(name) if name in arrays else f.col(quote(name))
            for name in frame.columns
        ),
        *(_columns_of_file() if by_file else ()),
    )
    schema = arrow_schema_of(split.schema)
    held = pa.schema([one for one in schema if one.name not in (FILE_NAME, FILE_HASH)])
    program = row_program(rules, held, fields, columns)
    check_fields(program.output(held), fields)
    told = (FILE_NAME, FILE_HASH) if by_file else ()
    return split.select(*(quote(name) for name in (*program.columns, *told))), program


def _columns_of_file() -> tuple[Column, ...]:
    """The address where a file begins, for a text in every row would be most of the work; a number in all."""
    is_first = f.monotonically_increasing_id().bitwiseAND(f.lit(_ROW_IN_TASK)) == 0
    return (
        f.when(is_first, f.input_file_name()).alias(FILE_NAME),
        f.xxhash64(f.input_file_name()).alias(FILE_HASH),
    )


def build_on_spark(
    rows: DataFrame, request: SegmentRequest, location: StoreLocation, *, tasks: int, jobs: Jobs
) -> list[BuiltSegment]:
    """Build the rows into segments, in one Spark job; they come in the order of their sequence."""

    def body(
        store: Store, identity: TaskIdentity, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[BuiltSegment]:
        if request.files:
            return build_by_file(store, request, attempt=identity.attempt, batches=batches)
        return build_segments(store, request, task=identity.task, attempt=identity.attempt, batches=batches)

    cut = rows.coalesce(tasks) if tasks else rows
    session = rows.sparkSession
    with jobs.cancellable(session), _cutting_at_files(session) if request.files else nullcontext():
        built = run_tasks(cut, location, body, BuiltSegment)
    return sorted(built, key=lambda one: one.sequence) if request.files else built


@contextmanager
def _cutting_at_files(session: SparkSession) -> Iterator[None]:
    """Let Spark make a task of every file while the block runs."""
    wanted = {_LARGEST_PART: str(_WHOLE_FILES - 1), _COST_OF_FILE: str(_WHOLE_FILES)}
    before = {name: session.conf.get(name) or "" for name in wanted}
    for name in wanted:
        session.conf.set(name, wanted[name])
    try:
        yield
    finally:
        for name in wanted:
            session.conf.set(name, before[name])


def _column(frame: DataFrame, field: Field, separator: str) -> Column:
    kind = frame.schema[field.name].dataType
    column = f.col(quote(field.name))
    if field.is_array and isinstance(kind, spark.StringType):
        # One character in brackets stands for itself, whatever it means in a pattern.
        return f.split(column, f"[{separator}]" if separator not in "^\\[]" else f"\\{separator}")
    if not field.is_array and isinstance(kind, spark.StructType | spark.MapType | spark.ArrayType):
        return f.to_json(column)
    return column
