"""Lake tables: the public verbs, each forwarding to the part that does the work.

Everything that needs Arrow or Spark is imported when it is first used: looking
at a timeline must not wait for either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

from holdfast.clock import SystemClock
from holdfast.config.choices import Operation, TableType
from holdfast.config.table import TableSettings, new_table_settings
from holdfast.errors import InvalidOption, InvalidRequest
from holdfast.host import SystemHost
from holdfast.model.instant import Instant
from holdfast.model.reports import (
    ArchiveReport,
    CleanPlan,
    CleanReport,
    Commit,
    Compaction,
    DropPlan,
    DropReport,
    Export,
    RepairReport,
    RestorePlan,
    RestoreReport,
    RollbackReport,
    Savepoint,
    VerifyReport,
)
from holdfast.storage.open import location_of, open_store
from holdfast.table.opened import OpenTable, create_new, is_table, open_at
from holdfast.timeline.timeline import load_timeline

if TYPE_CHECKING:
    import datetime as dt
    from contextlib import AbstractContextManager

    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import Column, DataFrame, SparkSession

    from holdfast.concurrency.heartbeats import HeartbeatStatus
    from holdfast.model.arrow_stream import ArrowStream
    from holdfast.model.pushes import Push
    from holdfast.read.batches import Selection
    from holdfast.read.snapshot import Moment
    from holdfast.services.leases import Lease, LeaseStatus
    from holdfast.services.streams import StreamStatus
    from holdfast.writes.compaction import Compactor
    from holdfast.writes.origin import Origin
    from holdfast.writes.rows import Rows


class _Selected(TypedDict, total=False):
    """What of a table is read, and as of when."""

    as_of: Moment | None
    columns: Sequence[str] | None
    filter: pc.Expression | None
    read_optimized: bool
    meta_columns: bool


Idempotency = tuple[str, int]
"""Who numbers its writes, and the number of this one: a write of that number is committed once."""


def create_table(
    path: str,
    *,
    name: str,
    record_key: str | Sequence[str],
    partition_by: str | Sequence[str] | None = None,
    ordering: str | None = None,
    table_type: str = "COPY_ON_WRITE",
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Make an empty table. `TableExists` if there is one already."""
    settings = new_table_settings(
        name=name,
        record_key=_names(record_key),
        partition_by=_names(partition_by),
        ordering=ordering,
        table_type=table_type,
        properties=properties or {},
    )
    location = location_of(path, storage_options)
    if settings.create_schema is not None:
        _check_schema(settings.create_schema)
    return Table(create_new(open_store(location), location, settings, clock=SystemClock(), host=SystemHost()))


def open_table(path: str, *, storage_options: Mapping[str, str] | None = None) -> Table:
    """Open a table that Holdfast or Apache Hudi made. `TableNotFound` if there is none."""
    return Table(open_at(path, storage_options))


def table_exists(path: str, *, storage_options: Mapping[str, str] | None = None) -> bool:
    """Whether there is a table. One that a write was to make, and did not, is none."""
    location = location_of(path, storage_options)
    return is_table(open_store(location), location, clock=SystemClock(), host=SystemHost())


class Table:
    """One table. Made by `create_table` and `open_table`.

    Verbs that write take a Spark DataFrame, or whatever offers its rows as an Arrow stream.
    Each takes `idempotency=(application, number)`. If a write of
    that application with this number, or a greater one, is committed and stands, nothing is
    written, and the answer is that commit, with `repeated` true.
    """

    def __init__(self, opened: OpenTable) -> None:
        self._opened = opened

    def __repr__(self) -> str:
        return f"Table({self.path!r}, name={self.settings.name!r}, type={self.settings.table_type.value})"

    def _repr_html_(self) -> str:
        """What notebooks show."""
        from holdfast.services.table_html import table_html

        return table_html(self._opened)

    @property
    def path(self) -> str:
        return self._opened.location.uri

    @property
    def settings(self) -> TableSettings:
        return self._opened.settings

    def bulk_insert(
        self,
        rows: DataFrame | ArrowStream,
        *,
        options: Mapping[str, str] | None = None,
        idempotency: Idempotency | None = None,
    ) -> Commit:
        """Add rows in one pass, without a shuffle: the way to load much data."""
        return self._write(Operation.BULK_INSERT, rows, options, idempotency)

    def insert(
        self,
        rows: DataFrame | ArrowStream,
        *,
        options: Mapping[str, str] | None = None,
        idempotency: Idempotency | None = None,
    ) -> Commit:
        """Add rows, first to small file groups. As in Hudi, keys that exist already are not looked for."""
        return self._write(Operation.INSERT, rows, options, idempotency)

    def upsert(
        self,
        rows: DataFrame | ArrowStream,
        *,
        options: Mapping[str, str] | None = None,
        idempotency: Idempotency | None = None,
    ) -> Commit:
        """Replace the rows whose keys exist, add the others.

        Of rows with one key the greatest in the ordering column counts. A row
        whose column `_hoodie_is_deleted` is true removes its key.
        """
        return self._write(Operation.UPSERT, rows, options, idempotency)

    def delete(
        self,
        rows: DataFrame | ArrowStream,
        *,
        options: Mapping[str, str] | None = None,
        idempotency: Idempotency | None = None,
    ) -> Commit:
        """Remove the rows with these keys; the key columns suffice, and those of the partition.

        With the ordering column a delete that is older than the stored row
        loses against it.
        """
        return self._write(Operation.DELETE, rows, options, idempotency)

    def insert_overwrite(
        self,
        rows: DataFrame | ArrowStream,
        *,
        options: Mapping[str, str] | None = None,
        idempotency: Idempotency | None = None,
    ) -> Commit:
        """Replace the partitions that the rows are of; the others stay."""
        return self._write(Operation.INSERT_OVERWRITE, rows, options, idempotency)

    def insert_overwrite_table(
        self,
        rows: DataFrame | ArrowStream,
        *,
        options: Mapping[str, str] | None = None,
        idempotency: Idempotency | None = None,
    ) -> Commit:
        """Replace everything in the table by the rows."""
        return self._write(Operation.INSERT_OVERWRITE_TABLE, rows, options, idempotency)

    def delete_partitions(
        self,
        partitions: Sequence[str],
        *,
        options: Mapping[str, str] | None = None,
        idempotency: Idempotency | None = None,
    ) -> Commit:
        """Remove whole partitions, named by their paths."""
        from holdfast.config.write import WriteSettings
        from holdfast.writes.operations import delete_partitions

        settings = WriteSettings.from_options(options).with_number(idempotency)
        return delete_partitions(self._opened, partitions, settings)

    def apply_changes(
        self,
        source: DataFrame,
        *,
        keys: str | Sequence[str],
        sequence_by: str,
        scd: int = 1,
        deletes: Column | str | None = None,
        options: Mapping[str, str] | None = None,
        idempotency: Idempotency | None = None,
    ) -> Commit:
        """Apply a feed of changes, in the order of `sequence_by`, whatever order they come in.

        Type 1 (`scd=1`) keeps the newest row of each key, type 2 every version, in the columns
        `valid_from` and `valid_to`. `deletes`, a condition as a column or as SQL, tells which changes
        delete. `Refused` if the table's record key or order is not the one that this type needs.
        """
        from holdfast.config.write import WriteSettings
        from holdfast.writes.change_feeds import change_feed

        if scd not in (1, 2):
            raise InvalidRequest("there are changes of type 1 and of type 2", scd=scd)
        if not hasattr(source, "mapInArrow"):
            raise InvalidRequest(
                "a feed of changes is a Spark DataFrame", given=type(source).__name__,
                hint="of type 1, upsert does the same with a column _hoodie_is_deleted",
            )  # fmt: skip
        from holdfast.engines.spark.change_feeds import apply_history, apply_newest

        settings = WriteSettings.from_options(options).with_number(idempotency)
        apply = apply_newest if scd == 1 else apply_history
        return apply(self._opened, source, change_feed(keys, sequence_by), deletes, settings)

    def read(
        self,
        spark: SparkSession,
        *,
        as_of: Moment | None = None,
        columns: Sequence[str] | None = None,
        read_optimized: bool = False,
        meta_columns: bool = False,
    ) -> DataFrame:
        """The table as of now, or as of an instant, a moment or its ISO text.

        A moment that a write may still change is waited for, then `WriterActive`.
        `read_optimized` leaves out what is only in the log files of a merge-on-read table.
        """
        from holdfast.engines.spark.reader import read_frame
        from holdfast.read.arrow_rows import select_schema
        from holdfast.read.path_columns import path_columns
        from holdfast.read.snapshot import snapshot

        found = snapshot(self._opened, as_of=as_of, read_optimized=read_optimized)
        schema = select_schema(found.schema, columns=columns, meta_columns=meta_columns)
        columns_in_paths = path_columns(self._opened, found, schema)
        return read_frame(spark, self._opened, found, schema, path_columns=columns_in_paths)

    def to_arrow(
        self,
        *,
        as_of: Moment | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  # the word of pyarrow
        read_optimized: bool = False,
        meta_columns: bool = False,
    ) -> pa.Table:
        """As `read`, without Spark, into memory; with a filter only the rows for which it is true.

        A filter is a pyarrow expression, such as `pyarrow.compute.field("city") == "oslo"`.
        """
        return self._select(
            as_of=as_of,
            columns=columns,
            filter=filter,
            read_optimized=read_optimized,
            meta_columns=meta_columns,
        ).read()

    def to_batches(self, **selected: Unpack[_Selected]) -> pa.RecordBatchReader:
        """As `to_arrow`, in batches, while they are read; at most one row group of one file is in memory."""
        return self._select(**selected).stream()

    def to_dataset(self, **selected: Unpack[_Selected]) -> ds.Dataset:
        """As `to_arrow`, for engines that choose columns and rows of a pyarrow dataset by themselves."""
        from holdfast.read.dataset import TableDataset

        return TableDataset(self._select(**selected))

    def to_pandas(self, **selected: Unpack[_Selected]) -> pd.DataFrame:
        """As `to_arrow`, as a DataFrame of pandas."""
        _check_package("pandas")
        return self._select(**selected).read().to_pandas()

    def to_polars(self, **selected: Unpack[_Selected]) -> pl.DataFrame:
        """As `to_arrow`, as a DataFrame of Polars."""
        _check_package("polars")
        import polars

        return polars.DataFrame(self._select(**selected).read())

    def to_duckdb(self, connection: DuckDBPyConnection, **selected: Unpack[_Selected]) -> DuckDBPyRelation:
        """As `to_arrow`, as a relation of that connection.

        It is read anew by each query, of the columns and rows that the query needs,
        always as of the snapshot that was chosen here.
        """
        if not hasattr(connection, "from_arrow"):
            raise InvalidRequest(
                "not a connection of DuckDB", given=type(connection).__name__,
                hint="pip install duckdb, and give duckdb.connect()",
            )  # fmt: skip
        return connection.from_arrow(self.to_dataset(**selected))

    def changes(
        self,
        spark: SparkSession,
        *,
        since: Moment,
        until: Moment | None = None,
        deletes: bool = False,
        meta_columns: bool = False,
    ) -> DataFrame:
        """The rows that commits in (since, until] wrote, each as it stood at `until`.

        The commit that wrote a row is in the column `_hoodie_commit_time`.
        With `deletes` what became of each record instead: the column `_change_type` has
        insert, update_before, update_after or delete, and a record that is as it was is left out.
        Both snapshots must be there for that, else `SnapshotExpired`.
        """
        if deletes:
            from holdfast.engines.spark.row_changes import read_row_changes_frame
            from holdfast.read.row_changes import row_change_schema, row_changes

            compared = row_changes(self._opened, since=since, until=until)
            schema = row_change_schema(compared.schema, columns=None, meta_columns=meta_columns)
            return read_row_changes_frame(spark, self._opened.location, compared, schema)
        from holdfast.engines.spark.reader import read_changes_frame
        from holdfast.read.changes import change_schema, changes
        from holdfast.read.path_columns import path_columns

        found = changes(self._opened, since=since, until=until)
        schema = change_schema(found.snapshot.schema, columns=None, meta_columns=meta_columns)
        columns_in_paths = path_columns(self._opened, found.snapshot, schema)
        return read_changes_frame(spark, self._opened, found, schema, path_columns=columns_in_paths)

    def changes_to_arrow(
        self,
        *,
        since: Moment,
        until: Moment | None = None,
        columns: Sequence[str] | None = None,
        deletes: bool = False,
        meta_columns: bool = False,
    ) -> pa.Table:
        """As `changes`, without Spark, into memory."""
        if deletes:
            from holdfast.read.row_changes import read_row_changes, row_change_schema, row_changes

            compared = row_changes(self._opened, since=since, until=until)
            schema = row_change_schema(compared.schema, columns=columns, meta_columns=meta_columns)
            return read_row_changes(self._opened.store, compared, schema)
        from holdfast.read.changes import change_schema, changes, read_changes

        found = changes(self._opened, since=since, until=until)
        schema = change_schema(found.snapshot.schema, columns=columns, meta_columns=meta_columns)
        return read_changes(self._opened.store, found, schema)

    def files(self, as_of: Moment | None = None, *, read_optimized: bool = False) -> list[str]:
        """The files a snapshot consists of, each as a path any reader can open.

        Of a merge-on-read table each base file is followed by the log files of
        its slice, in the order in which they apply; `read_optimized` leaves these out.
        """
        from holdfast.read.snapshot import snapshot, uris

        found = snapshot(self._opened, as_of=as_of, read_optimized=read_optimized)
        return uris(self._opened.store, found.files)

    def schema(self) -> pa.Schema | None:
        """The data columns; None before the first write of a table without a schema."""
        from holdfast.read.snapshot import table_schema

        return table_schema(self._opened, load_timeline(self._opened.store))

    def timeline(self, *, archived: bool = False) -> list[Instant]:
        """The instants of the active timeline, or those that were archived, too; oldest first."""
        active = load_timeline(self._opened.store)
        if not archived:
            return list(active.instants)
        from holdfast.table.archive import read_archive

        older = read_archive(self._opened.store, self.settings)
        return list(older.with_active(active).instants)

    def roll_back_failed_writes(self) -> list[RollbackReport]:
        """Remove what dead writers left, now instead of at the next write."""
        from holdfast.services.rollback.rollback import roll_back_failed_writes

        return list(roll_back_failed_writes(self._opened))

    def rollback(self, instant: Moment) -> RollbackReport:
        """Roll back one pending write, or take back the newest commit.

        `Refused` if commits, a savepoint or a plan stand in the way, `WriterActive`
        if the write may be running.
        """
        from holdfast.services.rollback.undo import roll_back_instant
        from holdfast.services.targets import exact_instant

        return roll_back_instant(self._opened, exact_instant(self._opened, instant))

    def undo(self, *, replay: bool = False, checkpoint: str = "") -> RollbackReport:
        """Take back the newest commit: readers see the table as it was before it.

        With `replay`, if it is a batch of a stream, the stream's checkpoint forgets the batch, so that
        it is read again when the query, which must not run now, is started. `checkpoint` is its
        `checkpointLocation`, if the commit does not say. `Refused` if that is not possible.
        """
        from holdfast.services.rollback.undo import undo

        if replay:
            from holdfast.services.rollback.plan import plan_undo
            from holdfast.services.rollback.replay import execute_replay, plan_replay
            from holdfast.services.rollback.undo import execute_rollback

            plan = plan_undo(self._opened)
            execute_replay(plan_replay(self._opened, plan.instant, plan.action, checkpoint))
            return execute_rollback(self._opened, plan)
        return undo(self._opened)

    def savepoint(self, instant: Moment | None = None, *, user: str = "", comment: str = "") -> Savepoint:
        """Keep the files of a commit, by default the newest, so that the table can be restored to it.

        `WriterActive` if an older write is not decided yet, after a few seconds:
        the snapshot would still change.
        """
        from holdfast.services.savepoints import create_savepoint

        return create_savepoint(self._opened, instant, user=user, comment=comment)

    def savepoints(self) -> list[Savepoint]:
        """All savepoints, oldest first."""
        from holdfast.read.savepoints import savepoints

        return savepoints(self._opened)

    def delete_savepoint(self, instant: Moment) -> None:
        """Let the files of a savepointed commit go when a clean wants them."""
        from holdfast.services.savepoints import delete_savepoint
        from holdfast.services.targets import exact_instant

        delete_savepoint(self._opened, exact_instant(self._opened, instant))

    def plan_restore(self, to: Moment) -> RestorePlan:
        """What `restore` would take back, and every file that would be gone. Changes nothing."""
        from holdfast.services.restore.restore import rehearse_restore

        return rehearse_restore(self._opened, to)

    def restore(self, to: Moment) -> RestoreReport:
        """Take the table back to a commit, or to the newest one at or before a date and time.

        Everything younger is deleted, and the result is proven before the table
        is open for writes again. If it was interrupted, the same call resumes it.
        """
        from holdfast.services.restore.restore import restore

        return restore(self._opened, to)

    def lease(
        self, owner: str, ttl: dt.timedelta | float, *, as_of: Moment | None = None
    ) -> AbstractContextManager[Lease]:
        """Hold the snapshot of a commit while a `with` block runs.

        By default the newest that stays as it is: older than every write that is
        not decided yet.
        No clean, undo or restore removes its files meanwhile. Read the table as
        of the lease's `instant`. `ttl`, in seconds or as a timedelta, is how
        long the lease outlives a process that dies; one that lives renews it.
        """
        from holdfast.services.leases import lease

        return lease(self._opened, owner, ttl, as_of=as_of)

    def leases(self) -> list[LeaseStatus]:
        """Who holds which snapshot, oldest first; those that have expired and were not removed yet, too."""
        from holdfast.services.leases import leases

        return leases(self._opened)

    def streams(self) -> list[StreamStatus]:
        """The streams that read the table, how far they are, and those that number their writes."""
        from holdfast.services.streams import streams

        return streams(self._opened)

    def plan_clean(self, options: Mapping[str, str] | None = None) -> CleanPlan:
        """What `clean` would delete and leave, and why, of every data file; `vanishing` is all that would go.

        Changes nothing.
        """
        from holdfast.config.write import WriteSettings
        from holdfast.services.clean.clean import plan_clean

        return plan_clean(self._opened, WriteSettings.from_options(options))

    def clean(self, options: Mapping[str, str] | None = None) -> CleanReport:
        """Delete the versions of files that nobody needs any more.

        What dead writers left is rolled back before, and cleans that were
        interrupted are finished. Savepoints and leases keep what they name.
        """
        from holdfast.config.write import WriteSettings
        from holdfast.services.clean.clean import clean

        return clean(self._opened, WriteSettings.from_options(options))

    def archive(self, options: Mapping[str, str] | None = None) -> ArchiveReport:
        """Take the oldest instants from the active timeline, if enough commits have gathered.

        Nothing is archived that a savepoint, a lease, a clean or something
        unfinished needs; the report says what was in the way.
        """
        from holdfast.config.write import WriteSettings
        from holdfast.services.archive.archive import archive_instants

        return archive_instants(self._opened, WriteSettings.from_options(options))

    def schedule_compaction(self, options: Mapping[str, str] | None = None) -> str | None:
        """Plan a compaction of a merge-on-read table; its instant, or None if there are no log files.

        Until it is carried out by `compact`, writes rewrite the base files that
        it is about. `WriterActive` while another write is undecided.
        """
        from holdfast.config.write import WriteSettings
        from holdfast.writes.compaction import schedule_compaction

        return schedule_compaction(self._opened, WriteSettings.from_options(options))

    def compact(
        self,
        spark: SparkSession | None = None,
        instant: Moment | None = None,
        *,
        options: Mapping[str, str] | None = None,
    ) -> Commit | None:
        """Make base files of the slices with log files; on Spark, or without a session in this process.

        Carries out the planned compaction of `instant`, by default the oldest,
        or plans one. None if there is nothing to compact.
        """
        from holdfast.config.write import WriteSettings
        from holdfast.services.targets import exact_instant
        from holdfast.writes.compaction import compact

        planned = None if instant is None else exact_instant(self._opened, instant)
        return compact(self._opened, WriteSettings.from_options(options), _compactor(spark), planned)

    def unschedule_compaction(self, instant: Moment) -> None:
        """Take a planned compaction away. `Refused` if rows were written that rely on it."""
        from holdfast.services.targets import exact_instant
        from holdfast.writes.compaction import unschedule_compaction

        unschedule_compaction(self._opened, exact_instant(self._opened, instant))

    def compactions(self) -> list[Compaction]:
        """The compactions on the timeline, oldest first: pending ones, and those that are done."""
        from holdfast.read.compactions import compactions

        return compactions(self._opened)

    def exports(self) -> list[Export]:
        """The other formats that the table is kept in: how far each is, and where."""
        from holdfast.exports.manage import exports

        return exports(self._opened)

    def set_exports(self, formats: Sequence[str]) -> list[Export]:
        """Keep the table readable in these formats, `delta` or `iceberg`, and in no others.

        Every commit is shown in them from now on, and taken back in them. The data
        files stay the same. What a format had that is not among them is deleted.
        """
        from holdfast.exports.manage import set_exports

        return set_exports(self._opened, formats)

    def export(self, *, merge: bool = False) -> list[Export]:
        """Bring the exports to the newest commit, if something kept them from following it.

        They have what is in base files. With `merge` the log files of a merge-on-read
        table are compacted before.
        """
        from holdfast.config.write import WriteSettings
        from holdfast.exports.manage import export
        from holdfast.writes.compaction import compact

        if merge and self.settings.table_type is TableType.MERGE_ON_READ:
            compact(self._opened, WriteSettings.from_options(None), _compactor(None), None)
        return export(self._opened)

    def pushes(self) -> list[Push]:
        """What was pushed from this table to the push service, oldest first."""
        from holdfast.services.pushes import pushes

        return pushes(self._opened)

    def heartbeats(self) -> list[HeartbeatStatus]:
        """The signs of life of writes that are not finished, oldest first."""
        from holdfast.concurrency.heartbeats import heartbeats

        return heartbeats(self._opened)

    def verify(self, as_reader: str | None = None) -> VerifyReport:
        """Look for what does not belong together, each finding with its remedy. Changes nothing.

        With `as_reader`, such as `hudi-1.2`, `hudi-0.15` or `hudi-rs`, also for
        rows that this reader of a merge-on-read table would see otherwise.
        """
        from holdfast.services.verify.verify import verify

        return verify(self._opened, as_reader)

    def repair(self, report: VerifyReport) -> RepairReport:
        """Finish what was decided, and move what nothing refers to into quarantine."""
        from holdfast.services.repair.repair import repair

        return repair(self._opened, report)

    def undo_repair(self, quarantine: str) -> list[str]:
        """Put everything back that a repair moved away; the paths."""
        from holdfast.services.repair.repair import undo_repair

        return list(undo_repair(self._opened, quarantine))

    def plan_drop(self) -> DropPlan:
        """What `drop` would delete and leave, and who uses the table. Changes nothing."""
        from holdfast.services.drop import plan_drop

        return plan_drop(self._opened)

    def drop(self, *, force: bool = False) -> DropReport:
        """Remove the table and everything that belongs to it. It cannot be taken back.

        `WriterActive` if a write may be running and `Refused` if somebody holds
        a lease, unless `force`. A drop that died is finished by `holdfast drop`.
        """
        from holdfast.services.drop import drop

        return drop(self._opened, force=force)

    def _select(
        self,
        *,
        as_of: Moment | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  # the word of pyarrow
        read_optimized: bool = False,
        meta_columns: bool = False,
    ) -> Selection:
        from holdfast.read.batches import select
        from holdfast.read.snapshot import snapshot

        found = snapshot(self._opened, as_of=as_of, read_optimized=read_optimized)
        return select(self._opened.store, found, columns=columns, filter=filter, meta_columns=meta_columns)

    def _write(
        self,
        operation: Operation,
        rows: DataFrame | ArrowStream,
        options: Mapping[str, str] | None,
        idempotency: Idempotency | None,
        origin: Origin | None = None,
    ) -> Commit:
        from holdfast.config.write import WriteSettings
        from holdfast.writes.operations import write
        from holdfast.writes.origin import NO_ORIGIN

        settings = WriteSettings.from_options(options).with_number(idempotency)
        return write(self._opened, operation, _rows(rows), settings, origin=origin or NO_ORIGIN)


def write_rows(
    table: Table,
    operation: Operation,
    rows: DataFrame | ArrowStream,
    *,
    options: Mapping[str, str] | None = None,
    idempotency: Idempotency | None = None,
    origin: Origin | None = None,
) -> Commit:
    """The verb of a table that stands for the operation, which is one that takes rows."""
    return table._write(operation, rows, options, idempotency, origin)


def _rows(rows: DataFrame | ArrowStream) -> Rows:
    if hasattr(rows, "mapInArrow"):
        from holdfast.engines.spark.writer import SparkRows

        return SparkRows(cast("DataFrame", rows))
    from holdfast.engines.arrow.rows import ArrowRows
    from holdfast.engines.arrow.streams import read_stream

    return ArrowRows(read_stream(rows))


def _check_package(name: str) -> None:
    if find_spec(name) is None:
        raise InvalidRequest("a package is not installed", package=name, hint=f"pip install {name}")


def _compactor(spark: SparkSession | None) -> Compactor:
    if spark is None:
        from holdfast.engines.arrow.compaction import ArrowCompactor

        return ArrowCompactor()
    from holdfast.engines.spark.compaction import SparkCompactor

    return SparkCompactor(spark)


def _names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)


def _check_schema(avro: str) -> None:
    from holdfast.format.malformed import Malformed
    from holdfast.format.schemas import arrow_schema

    try:
        arrow_schema(avro)
    except Malformed as error:
        name = "hoodie.table.create.schema"
        raise InvalidOption("property is not an Avro schema", property=name, cause=error) from error
