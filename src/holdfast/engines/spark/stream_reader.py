"""Streams that read a table: `readStream.format("holdfast")`.

An offset names the commit up to which the stream has read, and the stream. The
range between two offsets is read as `changes` reads it, each row as it stands
at the end, or with `deletes` as what became of each record. Before Spark is
told of an offset, the snapshot that it names is held.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from holdfast.clock import SystemClock
from holdfast.config.streams import MAX_COMMITS, StreamRead
from holdfast.engines.spark.session import spare_archives
from holdfast.engines.spark.types import arrow_schema_of, spark_schema_of
from holdfast.errors import InvalidOption, InvalidRequest, SchemaMismatch, UnsupportedTable
from holdfast.files.conform import conform_rows
from holdfast.files.merged_slice import LogMerge
from holdfast.format.schemas import META_COLUMNS
from holdfast.host import SystemHost
from holdfast.model.instant import InstantTime
from holdfast.model.slices import FileSlice
from holdfast.read.arrow_rows import select_schema
from holdfast.read.changes import change_schema, changes, each_younger_row
from holdfast.read.merged_rows import each_merged_row
from holdfast.read.partitions import files_below, is_below
from holdfast.read.row_changes import (
    CHANGE_TYPE,
    RowChanges,
    each_row_change,
    row_change_schema,
    row_changes_between,
)
from holdfast.read.snapshot import as_instant, snapshot
from holdfast.read.tasks import files_of_tasks, slices_of_tasks
from holdfast.services.leases import hold_for_stream, leases, release_stream
from holdfast.services.streams import find_position, refuse_if_taken_back
from holdfast.storage.open import open_store
from holdfast.storage.store import StoreLocation
from holdfast.table.opened import OpenTable, open_existing
from holdfast.timeline.layout import layout_of

_INSTANT, _STREAM, _IS_START = "instant", "stream", "start"
_RENEWALS = 10
"""How often a lease is renewed in the time it lives, while the stream has nothing to read."""

Offset = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Share:
    """What one task reads."""

    since: InstantTime
    files: tuple[str, ...] = ()
    slices: tuple[FileSlice, ...] = ()
    merge: LogMerge | None = None
    compared: RowChanges | None = None


def stream_schema(table: OpenTable, settings: StreamRead) -> pa.Schema:
    """The columns of a stream as of now. `InvalidRequest` if the table has none yet."""
    found = snapshot(table).schema
    if found is None:
        raise InvalidRequest(
            "nothing was written to this table yet, so a stream of it has no columns",
            table=table.settings.name,
            hint="write to the table first, or create it with hoodie.table.create.schema",
        )
    return _schema_of(found, settings)


def _schema_of(found: pa.Schema | None, settings: StreamRead) -> pa.Schema:
    select = row_change_schema if settings.read.deletes else select_schema
    return select(found, columns=settings.read.columns, meta_columns=settings.read.meta_columns)


class StreamReader(DataSourceStreamReader):
    """One stream; Spark asks it in one process of its driver, and ships it to tasks."""

    def __init__(self, location: StoreLocation, settings: StreamRead, schema: spark.StructType) -> None:
        if settings.max_commits is not None and not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
            raise InvalidOption(
                "this PySpark cannot bound the batches of a stream", option=MAX_COMMITS,
                hint="leave it out, or use PySpark 4.2 or newer",
            )  # fmt: skip
        self._location = location
        self._settings = settings
        self._declared = arrow_schema_of(schema)
        self._name = settings.query or str(uuid.uuid4())
        self._held: set[InstantTime] | None = None
        self._held_at_ms = 0
        self._others: dict[str, str] = {}
        """End of a range → the name under which the range before it was held, where that was another."""

    def initialOffset(self) -> Offset:  # noqa: N802 Spark's name
        table = self._open()
        if self._settings.begins_at_newest:
            newest = find_position(table)
            if newest is not None:
                self._hold(table, newest.time)
                return self._offset(newest.time)
        since = self._settings.read.since
        assert since is not None, "a stream has a beginning"
        return {**self._offset(as_instant(table, since)), _IS_START: True}

    def latestOffset(self, start: Offset | None = None, limit: object = None) -> Offset:  # noqa: N802 Spark's name
        table = self._open()
        after = None if start is None else _instant_of(start)
        newest = find_position(table, after=after, most=self._settings.max_commits)
        since = self._settings.read.since
        assert since is not None, "a stream has a beginning"
        beginning = as_instant(table, since)
        if newest is None or newest.time <= beginning:
            return {**self._offset(beginning), _IS_START: True}
        self._hold(table, newest.time)
        return self._offset(newest.time)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        since, until = _instant_of(start), _instant_of(end)
        table = self._open()
        if not start.get(_IS_START) and not self._settings.continues_after_undo:
            refuse_if_taken_back(table, since)
        if start.get(_STREAM) != end.get(_STREAM):
            self._others[str(until)] = str(start.get(_STREAM))
        if until <= since:
            return []
        shares = self._shares_of_changes(table, since, until) if self._settings.read.deletes else None
        return [InputPartition(share) for share in shares or self._shares_of_rows(table, since, until)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark gives each task one core; Arrow would start a thread per core of the machine.
        pa.set_cpu_count(1)
        spare_archives()
        share = None if partition is None else partition.value
        if share is None:
            return
        for rows in self._rows(share):
            yield from conform_rows(rows, self._declared).to_batches()

    def commit(self, end: Offset) -> None:
        """Let go of what is older than what the stream goes on from."""
        until = _instant_of(end)
        table = self._open()
        held = self._read_held(table)
        if held - {until} and until in held:
            self._put(table, {time for time in held if time >= until})
        other = self._others.pop(str(until), None)
        if other is not None and not self._settings.query:
            release_stream(table, other)

    def _open(self) -> OpenTable:
        store = open_store(self._location)
        table = open_existing(store, self._location, clock=SystemClock(), host=SystemHost())
        if layout_of(store).has_completion_times:
            raise UnsupportedTable(
                "tables of this version are not read as a stream: it would have to keep its place in them",
                table=table.settings.name,
                hint="read its changes with table.changes, or convert it",
            )
        return table

    def _offset(self, instant: InstantTime) -> Offset:
        return {_INSTANT: str(instant), _STREAM: self._name}

    def _hold(self, table: OpenTable, instant: InstantTime) -> None:
        """Hold one more snapshot, and renew the lease from time to time."""
        held = self._read_held(table)
        is_old = SystemClock().monotonic_ms() - self._held_at_ms > self._settings.lease_ms // _RENEWALS
        if instant not in held or is_old:
            self._put(table, held | {instant})

    def _put(self, table: OpenTable, instants: set[InstantTime]) -> None:
        began_ms = SystemClock().monotonic_ms()
        hold_for_stream(table, self._name, sorted(instants), self._settings.lease_ms)
        self._held, self._held_at_ms = instants, began_ms

    def _read_held(self, table: OpenTable) -> set[InstantTime]:
        """What is held, by whichever run of the stream."""
        if self._held is None:
            known = [each for each in leases(table) if each.stream == self._name]
            self._held = {time for each in known for time in (each.instant, each.newest) if time is not None}
        return self._held

    def _shares_of_rows(self, table: OpenTable, since: InstantTime, until: InstantTime) -> list[_Share]:
        found = changes(table, since=since, until=until).snapshot
        self._check_schema(found.schema)
        if self._settings.read.partitions is not None:
            found = files_below(found, self._settings.read.partitions)
        plain = found.plain
        files = [_Share(since, files=tuple(each)) for each in files_of_tasks(plain.paths, plain.sizes)]
        slices = [
            _Share(since, slices=tuple(each), merge=found.merge) for each in slices_of_tasks(found.merged)
        ]
        return [*files, *slices]

    def _shares_of_changes(self, table: OpenTable, since: InstantTime, until: InstantTime) -> list[_Share]:
        """The partitions that differ, each a task: a record is matched within its partition."""
        found = row_changes_between(table, since, until)
        self._check_schema(found.schema)
        # A range that is read again may be older than the newest columns.
        there = found.schema if found.schema is not None else pa.schema([])
        known = {*there.names, *META_COLUMNS, CHANGE_TYPE}
        schema = pa.schema([*there, *(field for field in self._declared if field.name not in known)])
        wanted = self._settings.read.partitions
        return [
            _Share(since, compared=replace(found, groups=groups, schema=schema))
            for groups in found.by_partition()
            if wanted is None or is_below(groups[0].partition, wanted)
        ]

    def _check_schema(self, found: pa.Schema | None) -> None:
        """`SchemaMismatch` if the table has other columns by now than when the stream was loaded."""
        now = arrow_schema_of(spark_schema_of(_schema_of(found, self._settings)))
        declared = {field.name: field.type for field in self._declared}
        for field in now:
            if declared.get(field.name) != field.type:
                raise SchemaMismatch(
                    "the table's columns have changed since the stream was loaded",
                    column=field.name,
                    found=field.type,
                    expected=declared.get(field.name, "no such column"),
                    hint="load the stream again and start it with the same checkpoint: it goes on with the "
                    "columns of now; or name those it wants in the option columns",
                )

    def _rows(self, share: _Share) -> Iterator[pa.Table]:
        store = open_store(self._location)
        if share.compared is not None:
            schema = row_change_schema(
                share.compared.schema, columns=self._declared.names, meta_columns=False
            )
            yield from each_row_change(store, share.compared, schema)
            return
        schema = change_schema(self._declared, columns=self._declared.names, meta_columns=False)
        yield from each_younger_row(store, share.files, schema, since=share.since)
        for slice_ in share.slices:
            assert share.merge is not None, "the slice has log files"
            yield from each_merged_row(store, slice_, schema, share.merge, since=share.since)


def _instant_of(offset: Offset) -> InstantTime:
    return InstantTime(str(offset[_INSTANT]))
