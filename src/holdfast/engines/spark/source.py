"""The format `holdfast`: tables as a Python data source of Spark (4.0 and newer).

Spark asks for the schema and plans a scan in short-lived processes of its own;
the object that answered first is passed on, so it fixes the instant, and a
DataFrame is one snapshot however often it is used. Spark never says which
columns a query needs: `columns`, or a schema given by the user, prunes them.
Filters arrive from 4.1 on. They are used to leave out row groups and rows, and
Spark applies them again, so that leaving too little out is never wrong.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition

from holdfast.clock import SystemClock
from holdfast.config.datasource import QueryType, SourceRead
from holdfast.engines.spark.filters import conditions
from holdfast.engines.spark.session import own_interpreter
from holdfast.engines.spark.source_writer import begin_write
from holdfast.engines.spark.types import arrow_schema_of, spark_schema_of
from holdfast.errors import InvalidRequest, SchemaMismatch
from holdfast.host import SystemHost
from holdfast.model.instant import InstantTime
from holdfast.read.arrow_rows import selected_schema
from holdfast.read.changes import Changes, change_schema, changes, each_change
from holdfast.read.prune import Condition, each_match
from holdfast.read.snapshot import Snapshot, as_instant, snapshot
from holdfast.storage.open import location_of, open_store
from holdfast.storage.store import StoreLocation
from holdfast.table.opened import OpenTable, open_existing
from holdfast.timeline.timeline import load_timeline

_STORAGE = "storage."
_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def register(session: SparkSession) -> None:
    """Make the format known to the session."""
    if hasattr(DataSourceReader, "pushFilters"):
        session.conf.set(_PUSH_DOWN, "true")
    with own_interpreter(session):
        session.dataSource.register(HoldfastSource)


class HoldfastSource(DataSource):
    """What `spark.read.format("holdfast")` and `df.write.format("holdfast")` stand for."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        given = dict(options)
        path = given.pop("path", "")
        if not path:
            raise InvalidRequest("no table is named", hint="give its path to load or save")
        storage = {name[len(_STORAGE) :]: given.pop(name) for name in options if name.startswith(_STORAGE)}
        self._location = location_of(path, storage)
        self._given = given
        self._newest: InstantTime | None = None
        """The commit that this object reads up to, once it was asked for the schema."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> spark.StructType:
        table = _opened(self._location)
        commits = load_timeline(table.store).completed_commits
        self._newest = commits[-1].time if commits else None
        read = SourceRead.from_options(self._given)
        return spark_schema_of(_found(table, read, self._newest).selected(read))

    def reader(self, schema: spark.StructType) -> DataSourceReader:
        read = SourceRead.from_options(self._given)
        found = _found(_opened(self._location), read, self._newest)
        return _reader(self._location, found, found.declared(schema))

    def writer(self, schema: spark.StructType, overwrite: bool) -> DataSourceWriter:
        return begin_write(self._location, self._given, schema, overwrite=overwrite)


@dataclass(frozen=True)
class _Found:
    """The files and columns of a read."""

    snapshot: Snapshot
    since: InstantTime | None

    def selected(self, read: SourceRead) -> pa.Schema:
        select = selected_schema if self.since is None else change_schema
        return select(self.snapshot.schema, columns=read.columns, meta_columns=read.meta_columns)

    def declared(self, schema: spark.StructType) -> pa.Schema:
        """The columns that Spark expects; `SchemaMismatch` if the table's are of other types."""
        wanted = arrow_schema_of(schema)
        there = selected_schema(self.snapshot.schema, columns=wanted.names or None, meta_columns=False)
        for expected, stored in zip(wanted, arrow_schema_of(spark_schema_of(there)), strict=False):
            if expected.type != stored.type:
                raise SchemaMismatch(
                    "the schema asked for does not fit the table",
                    column=expected.name,
                    found=stored.type,
                    expected=expected.type,
                )
        return wanted


def _found(table: OpenTable, read: SourceRead, newest: InstantTime | None) -> _Found:
    if read.query is QueryType.INCREMENTAL:
        assert read.since is not None, "an incremental read has a beginning"
        since = as_instant(read.since)
        until = read.until if read.until is not None or newest is None else max(newest, since)
        changed = changes(table, since=since, until=until)
        return _Found(changed.snapshot, changed.since)
    is_optimized = read.query is QueryType.READ_OPTIMIZED
    as_of = read.as_of if read.as_of is not None else newest
    return _Found(snapshot(table, as_of=as_of, read_optimized=is_optimized), None)


def _opened(location: StoreLocation) -> OpenTable:
    return open_existing(open_store(location), location, clock=SystemClock(), host=SystemHost())


def _reader(location: StoreLocation, found: _Found, declared: pa.Schema) -> DataSourceReader:
    # Spark 4.0 has no push-down, and newer ones refuse a reader that offers it if it is off.
    has_push_down = hasattr(DataSourceReader, "pushFilters")
    return (_FilteringReader if has_push_down else _Reader)(location, found, declared)


class _Reader(DataSourceReader):
    """Reads one base file per task, as Arrow batches in the declared schema."""

    def __init__(self, location: StoreLocation, found: _Found, declared: pa.Schema) -> None:
        self._location = location
        self._found = found
        self._declared = declared
        self._conditions: tuple[Condition, ...] = ()

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(path) for path in self._found.snapshot.paths]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark gives each task one core; Arrow would start a thread per core of the machine.
        pa.set_cpu_count(1)
        if partition is None or partition.value is None:
            return  # Spark's stand-in for a list without partitions.
        for rows in self._rows(partition.value):
            yield from rows.select(self._declared.names).to_batches()

    def _rows(self, path: str) -> Iterator[pa.Table]:
        store = open_store(self._location)
        if self._found.since is None:
            return each_match(store, path, self._declared, self._conditions)
        file = replace(self._found.snapshot, paths=[path])
        schema = change_schema(self._declared, columns=self._declared.names, meta_columns=False)
        return each_change(store, Changes(self._found.since, file), schema)


class _FilteringReader(_Reader):
    """As the other, told by Spark what the query filters by."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 Spark's name
        self._conditions = conditions(filters, self._declared)
        return filters
