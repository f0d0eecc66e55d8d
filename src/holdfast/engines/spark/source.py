"""The format `holdfast`: tables as a Python data source of Spark (4.0 and newer).

Spark asks for the schema and plans a scan in short-lived processes of its own;
the object that answered first is passed on, so it fixes the files, and a
DataFrame is one snapshot however often it is used. Spark never says which
columns a query needs: `columns`, or a schema given by the user, prunes them,
and `partitions` leaves out the files of others.

No filter is taken from Spark, which offers them from 4.1 on: it keeps what
one query pushed down with the relation, and every other query of the same
DataFrame would read no more than the first one asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as spark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from holdfast.clock import SystemClock
from holdfast.config.choices import QueryType
from holdfast.config.datasource import SourceRead
from holdfast.config.streams import StreamRead, is_of_stream
from holdfast.engines.spark.session import own_interpreter, spare_archives
from holdfast.engines.spark.source_writer import begin_write
from holdfast.engines.spark.stream_reader import StreamReader, stream_schema
from holdfast.engines.spark.stream_writer import StreamWriter
from holdfast.engines.spark.types import arrow_schema_of, spark_schema_of
from holdfast.errors import InvalidRequest, SchemaMismatch
from holdfast.files.conform import conform_rows
from holdfast.host import SystemHost
from holdfast.model.instant import InstantTime
from holdfast.model.slices import FileSlice
from holdfast.read.arrow_rows import select_schema
from holdfast.read.changes import change_schema, changes, each_younger_row
from holdfast.read.merged_rows import each_merged_row
from holdfast.read.partitions import files_below, is_below, select_partitions
from holdfast.read.prune import each_match
from holdfast.read.row_changes import RowChanges, each_row_change, row_change_schema, row_changes
from holdfast.read.snapshot import Snapshot, as_instant, snapshot
from holdfast.read.tasks import files_of_tasks, slices_of_tasks
from holdfast.storage.open import location_of, open_store
from holdfast.storage.store import StoreLocation
from holdfast.table.opened import OpenTable, open_existing
from holdfast.table.view import SLICES

_STORAGE = "storage."
_OF_CATALOG = frozenset({"provider", "location"})
"""Options that Spark adds when a table of its catalog is made of the format."""


def register(session: SparkSession) -> None:
    """Make the format known to the session."""
    with own_interpreter(session):
        session.dataSource.register(HoldfastSource)


class HoldfastSource(DataSource):
    """What `spark.read.format("holdfast")` and `df.write.format("holdfast")` stand for."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        given = dict(options)
        path = given.pop("path", "")
        if not path or given.keys() >= _OF_CATALOG:
            raise _no_catalog_table()
        storage = {name[len(_STORAGE) :]: given.pop(name) for name in options if name.startswith(_STORAGE)}
        self._location = location_of(path, storage)
        self._given = given
        self._resolved: _ResolvedRead | None = None
        """What this object reads, once it was asked for the schema."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> spark.StructType:
        if is_of_stream(self._given):
            settings = StreamRead.from_options(self._given)
            return spark_schema_of(stream_schema(_open_table(self._location), settings))
        read = SourceRead.from_options(self._given)
        self._resolved = _resolve_read(_open_table(self._location), read)
        return spark_schema_of(self._resolved.schema_of_read(read))

    def reader(self, schema: spark.StructType) -> DataSourceReader:
        read = SourceRead.from_options(self._given)
        resolved = self._resolved or _resolve_read(_open_table(self._location), read)
        return _Reader(self._location, resolved, resolved.schema_of_spark(schema))

    def writer(self, schema: spark.StructType, overwrite: bool) -> DataSourceWriter:
        return begin_write(self._location, self._given, schema, overwrite=overwrite)

    def streamReader(self, schema: spark.StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        return StreamReader(self._location, StreamRead.from_options(self._given), schema)

    def streamWriter(self, schema: spark.StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 Spark's name
        return StreamWriter(self._location, self._given, schema, overwrite=overwrite)


def _no_catalog_table() -> InvalidRequest:
    """Spark asks with no path to read a table of its catalog, and with what the catalog holds to make one."""
    return InvalidRequest(
        "no table is named: the format takes a path, and Spark's catalog does not pass one on",
        hint="use load(path) and save(path) instead of saveAsTable or CREATE TABLE, "
        "and CREATE TEMPORARY VIEW ... USING holdfast OPTIONS (path ...) to give it a name",
    )


@dataclass(frozen=True)
class _ResolvedRead:
    """The files and columns of a read."""

    snapshot: Snapshot
    since: InstantTime | None
    compared: RowChanges | None = None
    """With deletes: what is compared instead of reading the snapshot."""

    def schema_of_read(self, read: SourceRead) -> pa.Schema:
        if self.compared is not None:
            return row_change_schema(
                self.compared.schema, columns=read.columns, meta_columns=read.meta_columns
            )
        select = select_schema if self.since is None else change_schema
        return select(self.snapshot.schema, columns=read.columns, meta_columns=read.meta_columns)

    def schema_of_spark(self, schema: spark.StructType) -> pa.Schema:
        """The columns that Spark expects; `SchemaMismatch` if the table's are of other types."""
        wanted = arrow_schema_of(schema)
        names = wanted.names or None
        if self.compared is None:
            there = select_schema(self.snapshot.schema, columns=names, meta_columns=False)
        else:
            there = row_change_schema(self.compared.schema, columns=names, meta_columns=False)
            there = pa.schema([there.field(name) for name in wanted.names])
        for expected, stored in zip(wanted, arrow_schema_of(spark_schema_of(there)), strict=False):
            if expected.type != stored.type:
                raise SchemaMismatch(
                    "the schema asked for does not fit the table",
                    column=expected.name,
                    found=stored.type,
                    expected=expected.type,
                )
        return wanted


def _resolve_read(table: OpenTable, read: SourceRead) -> _ResolvedRead:
    if read.query is QueryType.INCREMENTAL:
        assert read.since is not None, "an incremental read has a beginning"
        since = as_instant(table, read.since)
        if read.deletes:
            return _resolve_row_changes(table, since, read)
        changed = changes(table, since=since, until=read.until)
        if read.partitions is not None:
            # A partition in which nothing changed is there nevertheless.
            select_partitions(snapshot(table, as_of=read.until), read.partitions)
            changed = replace(changed, snapshot=files_below(changed.snapshot, read.partitions))
        return _ResolvedRead(changed.snapshot, changed.since)
    is_optimized = read.query is QueryType.READ_OPTIMIZED
    whole = snapshot(table, as_of=read.as_of, read_optimized=is_optimized)
    return _ResolvedRead(
        whole if read.partitions is None else select_partitions(whole, read.partitions), None
    )


def _resolve_row_changes(table: OpenTable, since: InstantTime, read: SourceRead) -> _ResolvedRead:
    compared = row_changes(table, since=since, until=read.until)
    wanted = read.partitions
    if wanted is not None:
        select_partitions(snapshot(table, as_of=read.until), wanted)
        compared = replace(
            compared, groups=tuple(each for each in compared.groups if is_below(each.partition, wanted))
        )
    return _ResolvedRead(Snapshot(compared.schema, SLICES.empty_table()), since, compared)


def _open_table(location: StoreLocation) -> OpenTable:
    return open_existing(open_store(location), location, clock=SystemClock(), host=SystemHost())


class _Reader(DataSourceReader):
    """Reads a few files or slices per task, as Arrow batches in the declared schema."""

    def __init__(self, location: StoreLocation, read: _ResolvedRead, declared_columns: pa.Schema) -> None:
        self._location = location
        self._resolved = read
        self._declared = declared_columns

    def partitions(self) -> list[InputPartition]:
        if self._resolved.compared is not None:
            # A record is matched within its partition: without a shuffle one task reads all of it.
            compared = self._resolved.compared
            return [InputPartition(replace(compared, groups=each)) for each in compared.by_partition()]
        found = self._resolved.snapshot
        plain = found.plain
        files = files_of_tasks(plain.paths, plain.sizes)
        return [InputPartition(share) for share in (*files, *slices_of_tasks(found.merged))]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark gives each task one core; Arrow would start a thread per core of the machine.
        pa.set_cpu_count(1)
        spare_archives()
        if partition is None or partition.value is None:
            return  # Spark's stand-in for a list without partitions.
        if isinstance(partition.value, RowChanges):
            yield from self._each_change(partition.value)
            return
        for rows in self._rows(partition.value):
            yield from rows.select(self._declared.names).to_batches()

    def _each_change(self, compared: RowChanges) -> Iterator[pa.RecordBatch]:
        schema = row_change_schema(compared.schema, columns=self._declared.names, meta_columns=False)
        for rows in each_row_change(open_store(self._location), compared, schema):
            yield from conform_rows(rows.select(self._declared.names), self._declared).to_batches()

    def _rows(self, share: list[str] | list[FileSlice]) -> Iterator[pa.Table]:
        """The rows of base files, or of slices with log files."""
        store, since, schema = open_store(self._location), self._resolved.since, self._declared
        if since is not None:
            schema = change_schema(self._declared, columns=self._declared.names, meta_columns=False)
        for one in share:
            if isinstance(one, FileSlice):
                merge = self._resolved.snapshot.merge
                assert merge is not None, "the slice has log files"
                yield from each_merged_row(store, one, schema, merge, since=since)
            elif since is None:
                yield from each_match(store, one, schema)
            else:
                yield from each_younger_row(store, [one], schema, since=since)
