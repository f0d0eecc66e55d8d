"""Writes on Spark: rows go through Arrow into Python workers, which write the files.

A bulk insert is one pass, without a shuffle: each task sorts its rows by
partition, looks at them and writes them. Everything that merges counts the
rows of each partition first, and shuffles them once, to the tasks that merge
them. Only statistics come back to the driver, one small record per file.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from holdfast.config.key_generators import PartitionType
from holdfast.config.table import TableSettings
from holdfast.engines.spark.compaction import SparkCompactor
from holdfast.engines.spark.inputs import FAILURES
from holdfast.engines.spark.jobs import Jobs
from holdfast.engines.spark.keys import partition_path_of, quote, says_partition
from holdfast.engines.spark.routing import TASKS_PER_CORE, parallelism, route_rows
from holdfast.engines.spark.session import own_interpreter
from holdfast.engines.spark.tasks import Body, run_tasks
from holdfast.engines.spark.types import arrow_schema_of
from holdfast.engines.spark.write_tasks import KeyedOutput, KeySum, merging, writing
from holdfast.errors import InvalidRequest, RowsChanged, TableDamaged
from holdfast.files.partition_column import partition_column
from holdfast.format.partition_paths import check_partition_path
from holdfast.format.record_keys import text_column
from holdfast.storage.store import Store, StoreLocation
from holdfast.table.opened import OpenTable
from holdfast.writes.gather import BUNDLE
from holdfast.writes.layout import with_sizes
from holdfast.writes.merge_task import REMOVES, MergeRequest
from holdfast.writes.outcome import Written
from holdfast.writes.task import TaskRequest

log = logging.getLogger(__name__)

_SIZED_PARTITIONS = 64


@dataclass(frozen=True, slots=True)
class SparkRows:
    """A Spark DataFrame as rows to be written."""

    frame: DataFrame
    marks_removals: bool = False
    """Whether the frame has the column `REMOVES`, which is not stored: true for keys to be removed."""
    counts: Mapping[str, int] | None = None
    """How many rows there are of each partition, once they are counted."""
    jobs: Jobs = field(default_factory=Jobs, repr=False, compare=False)

    def schema(self) -> pa.Schema:
        return arrow_schema_of((self.frame.drop(REMOVES) if self.marks_removals else self.frame).schema)

    def prepare(
        self,
        schema: pa.Schema,
        table: TableSettings,
        *,
        by_partition: bool = True,
        validate_first: bool = True,
    ) -> "SparkRows":
        kept = [*schema.names, REMOVES] if self.marks_removals else schema.names
        frame = self.frame.select(*(f.col(quote(n)) for n in kept if n in self.frame.columns))
        for name in table.record_key:
            text_column(name, pa.array([], schema.field(name).type))
        if by_partition and table.partition_by:
            partition_column(schema.empty_table(), table)
        if not validate_first or not _may_be_refused(frame, table, by_partition=by_partition):
            return replace(self, frame=frame, counts=None)
        with self.jobs.cancellable(frame.sparkSession):
            counts = _count_partitions(frame, table, by_partition=by_partition)
        return replace(self, frame=frame, counts=counts)

    def write(self, table: OpenTable, request: TaskRequest) -> Written:
        rows = self.frame
        if request.table.partition_by:
            with own_interpreter(rows.sparkSession):
                marks = _partition_marks(rows, request.table)
            # The rows of a partition only have to stand together, and numbers sort faster than text.
            rows = rows.sortWithinPartitions(f.xxhash64(*marks))
        with self.jobs.cancellable(rows.sparkSession):
            written, _ = _run(rows, table.location, writing(request))
            return written

    def merge(self, table: OpenTable, request: MergeRequest) -> Written:
        """The rows are computed more than once. Those that were not the same are kept, and routed again."""
        session = self.frame.sparkSession
        with self.jobs.cancellable(session), own_interpreter(session):
            try:
                return _merge(self.frame, self.counts, table, request)
            except RowsChanged as error:
                log.warning("rows.kept", extra={"table": request.task.table.name, "cause": str(error)})
            with _rows_in_cache(self.frame) as frame:
                return _merge(frame, None, table, request)

    def compactor(self) -> SparkCompactor:
        return SparkCompactor(self.frame.sparkSession)

    def cancel(self) -> None:
        self.jobs.cancel(self.frame.sparkSession)


def _merge(
    rows: DataFrame, counts: Mapping[str, int] | None, table: OpenTable, request: MergeRequest
) -> Written:
    """Count, route and merge the rows; `RowsChanged` if these were not the same rows each time."""
    session = rows.sparkSession
    if counts is None:
        by_partition = says_partition(rows, request.task.table)
        counts = _count_partitions(rows, request.task.table, by_partition=by_partition)
    sized = _with_group_sizes(request, counts, table.store)
    try:
        route = route_rows(rows, counts, table, sized)
    except FAILURES as error:
        _check_undamaged(request, error)
        raise
    with ExitStack() as stack:
        for frame in route.held:
            stack.callback(frame.unpersist)
        tasks = request.task.write.parallelism or min(route.bundles, TASKS_PER_CORE * parallelism(session))
        ordered = route.rows.repartition(max(1, tasks), BUNDLE).sortWithinPartitions(BUNDLE)
        shipped = sized.for_tasks(None if request.task.write.index_type.is_global else counts)
        written, keys = _run(ordered, table.location, merging(shipped))
    if route.keys is not None and keys != route.keys:
        raise RowsChanged(
            "the rows were not the same when they were read again",
            hint="make the DataFrame deterministic, or write it to files first",
        )
    return replace(written, index=route.index + written.index)


@contextmanager
def _rows_in_cache(rows: DataFrame) -> Iterator[DataFrame]:
    """The rows in Spark's cache, in memory or on disk, so that they are computed once."""
    is_cached = rows.storageLevel.useMemory or rows.storageLevel.useDisk
    kept = rows if is_cached else rows.persist()
    try:
        yield kept
    finally:
        if not is_cached:
            kept.unpersist()


def _check_undamaged(request: MergeRequest, error: Exception) -> None:
    """`TableDamaged` if a base file is named in what Spark failed at: it could not look for keys there.

    Releases of Spark say it in different words, but names of base files are like no other text.
    """
    message = str(error)
    paths = (group.home for members in request.groups.values() for group in members)
    for path in paths:
        if path.rpartition("/")[2] in message:
            raise TableDamaged("a data file cannot be read", file=path) from error


def _run(rows: DataFrame, location: StoreLocation, body: Body) -> tuple[Written, KeySum]:
    """Write the rows with one Spark job; what its tasks report, and the keys that came to them."""
    outputs = run_tasks(rows, location, body, KeyedOutput)
    return Written.of(outputs), sum((o.keys for o in outputs if o.keys is not None), KeySum())


def _with_group_sizes(request: MergeRequest, counts: Mapping[str, int], store: Store) -> MergeRequest:
    """The request with the sizes of the file groups that rows come for, unless these are in many partitions.

    Many partitions keep all cores busy, whatever their sizes.
    """
    coming = [path for path in counts if path in request.groups]
    if len(coming) > _SIZED_PARTITIONS:
        return request
    known = {path: with_sizes(store, request.groups[path]) for path in coming}
    return replace(request, groups={**request.groups, **known})


def _partition_marks(rows: DataFrame, table: TableSettings) -> list[Column]:
    """Columns that are equal where partitions are, the cheapest there are."""
    if set(table.partition_types) == {PartitionType.SIMPLE}:
        return [f.col(quote(name)) for name in table.partition_by]
    return [partition_path_of(rows, table)]


def _may_be_refused(rows: DataFrame, table: TableSettings, *, by_partition: bool) -> bool:
    """Whether the types of the columns leave room for a record without a key or an impossible partition."""
    if _bad_key([rows.schema[name] for name in table.record_key]) is not None:
        return True
    kinds = [rows.schema[name].dataType for name in table.partition_by] if by_partition else []
    is_computed = bool(kinds) and set(table.partition_types) != {PartitionType.SIMPLE}
    return is_computed or any(isinstance(kind, spark.StringType) for kind in kinds)


def _count_partitions(rows: DataFrame, table: TableSettings, *, by_partition: bool) -> dict[str, int]:
    """The rows of each partition, counted in one pass that also refuses what cannot be stored.

    Reads the key and partition columns only.
    """
    bad_key = _bad_key([rows.schema[name] for name in table.record_key])
    bad = f.lit(0) if bad_key is None else f.sum(bad_key.cast("int"))
    with own_interpreter(rows.sparkSession):
        path = partition_path_of(rows, table) if by_partition else f.lit("")
        counted = rows.groupBy(path.alias("path")).agg(f.count(f.lit(1)), bad).collect()
    for path_of_rows, _, bad_keys in counted:
        check_partition_path(path_of_rows)
        if bad_keys:
            raise InvalidRequest(
                "a record has no key",
                columns=", ".join(table.record_key),
                hint="every record needs a key that is neither null nor empty",
            )
    return {path_of_rows: count for path_of_rows, count, _ in counted}


def _bad_key(fields: list[spark.StructField]) -> Column | None:
    """True for rows without a key; None if no row can be without one."""
    condition: Column | None = None
    for key in fields:
        column = f.col(quote(key.name))
        is_text = isinstance(key.dataType, spark.StringType)
        if not key.nullable and not is_text:
            return None
        is_absent = column.isNull() | (column == "") if is_text else column.isNull()
        condition = is_absent if condition is None else condition & is_absent
    return condition
