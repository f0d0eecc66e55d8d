"""The plan of a write: what is known before it begins, and which file groups its rows go to.

Everything that can be refused is refused before the first byte is written. Where
one pass over the rows is all that a write needs, a row that cannot be stored is
met in that pass, and the write is rolled back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from holdfast.config.choices import IndexType, Operation, TableType
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidOption, InvalidRequest
from holdfast.format.commits import decode_written_files
from holdfast.format.field_ids import FieldIds
from holdfast.format.schemas import avro_schema
from holdfast.model.instant import Action, InstantTime
from holdfast.read.snapshot import table_schema
from holdfast.table.field_ids import assign_field_ids, field_ids
from holdfast.table.log_instants import LogInstants
from holdfast.table.opened import OpenTable
from holdfast.table.pending import groups_to_compact
from holdfast.table.properties_file import has_settings
from holdfast.table.stable_read import read_stable
from holdfast.table.view import View, each_slice, has_logs, load_view
from holdfast.timeline.timeline import Timeline, load_timeline, read_completed
from holdfast.writes.compact_task import CompactRequest, without_log_totals
from holdfast.writes.layout import FileGroups, check_index, check_not_bucketed, file_groups
from holdfast.writes.merge_task import MergeRequest
from holdfast.writes.origin import NO_ORIGIN, Origin
from holdfast.writes.outcome import Written
from holdfast.writes.rows import Rows
from holdfast.writes.schemas import schema_after_write, schema_of_keys
from holdfast.writes.task import TaskRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows:
    """The rows of a write, ready to be stored in the schema that the table has after it."""

    rows: Rows
    schema: pa.Schema
    schema_before: pa.Schema | None
    """The table's schema that this was made for; None if it has none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """A write that nothing known before its beginning speaks against."""

    operation: Operation
    action: Action
    settings: WriteSettings
    origin: Origin = NO_ORIGIN
    rows: Rows | None = None
    """As they came; None if the operation takes none."""
    prepared: PreparedRows | None = None
    partitions: frozenset[str] = frozenset()
    """Those that `DELETE_PARTITION` deletes."""

    def cancel(self) -> None:
        """End the engine's work from another thread."""
        if self.rows is not None:
            self.rows.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDraft:
    """What a write has to commit."""

    written: Written
    schema: str
    """The table's schema after this write, as Avro JSON without meta columns."""
    schema_before: str | None
    """The schema it found; None if the table had none."""
    field_ids: FieldIds
    """Of all columns that the table ever had."""
    replaced: Mapping[str, Sequence[str]] | None = None
    """File ids that stop being visible, by partition; None unless the write replaces."""
    covers: frozenset[str] = frozenset()
    """Partitions that it was asked to replace, whether there was anything in them or not."""


def plan_write(
    table: OpenTable, operation: Operation, rows: Rows, settings: WriteSettings, origin: Origin = NO_ORIGIN
) -> WritePlan:
    """Plan a write of rows; refuses what does not fit the table."""
    return WritePlan(
        operation=operation,
        action=operation.action_on(table.settings.table_type),
        settings=settings,
        origin=origin,
        rows=rows,
        prepared=_prepare(table, operation, rows, settings, before=_schema_or_none(table)),
    )


def plan_partition_delete(table: OpenTable, partitions: Sequence[str], settings: WriteSettings) -> WritePlan:
    """Plan to remove whole partitions; refuses one that is not there."""
    paths = frozenset(path.strip("/") for path in partitions)
    groups = _groups(_newest(table, _base(table)), settings)
    unknown = sorted(paths - set(groups))
    if unknown:
        known = ", ".join(sorted(groups)[:5]) + (", ..." if len(groups) > 5 else "")
        raise InvalidRequest("the table has no such partition", partition=unknown[0], partitions=known)
    return WritePlan(
        operation=Operation.DELETE_PARTITION,
        action=Operation.DELETE_PARTITION.action_on(table.settings.table_type),
        settings=settings,
        partitions=paths,
    )


def check_write_settings(table: OpenTable, settings: WriteSettings) -> None:
    """Refuse a table that cannot be written, and settings that do not fit it."""
    table.settings.check_writable()
    settings.check_fits(table.settings.table_type)
    foreign = [name for name in settings.bucket_columns if name not in table.settings.record_key]
    if foreign:
        raise InvalidOption(
            "a bucket can only depend on columns of the record key",
            option="hoodie.bucket.index.hash.field",
            column=foreign[0],
            record_key=", ".join(table.settings.record_key),
        )


def write_files(plan: WritePlan, table: OpenTable, instant: InstantTime) -> CommitDraft:
    """Write the data files of an instant. Everything they are built on is read in this call.

    This is where rows are handed to the engine, and what it wrote comes back.
    """
    if plan.rows is None:
        groups = _groups(_newest(table, _base(table, instant)), plan.settings)
        schema = _avro(table, _require_schema(table, _schema_or_none(table, instant)))
        return CommitDraft(
            written=Written(stats=()),
            schema=schema,
            schema_before=schema,
            field_ids=read_stable(table.store, lambda now: field_ids(table.store, _before(now, instant))),
            replaced=_file_ids(groups, plan.partitions),
            covers=plan.partitions,
        )
    prepared = _prepare_for(plan, plan.rows, table, instant)
    is_typed_anew = _changes_types(prepared.schema_before, prepared.schema)
    task = TaskRequest(
        instant=instant,
        action=plan.action,
        schema=prepared.schema,
        field_ids=_assign_field_ids(table, prepared, instant),
        table=table.settings,
        write=plan.settings,
        compacting=_groups_to_compact(table),
        appends=table.settings.table_type is TableType.MERGE_ON_READ and not is_typed_anew,
    )
    request, groups = _route(plan.operation, table, task)
    if isinstance(request, MergeRequest):
        written = prepared.rows.merge(table, request)
    else:
        written = prepared.rows.write(table, request)
    replaced = _file_ids_to_hide(plan.operation, groups, written)
    if is_typed_anew and not task.appends:
        written = _settle_logs(table, plan.rows, task, written, replaced or {})
    return CommitDraft(
        written=written,
        schema=_avro(table, prepared.schema),
        schema_before=None if prepared.schema_before is None else _avro(table, prepared.schema_before),
        field_ids=task.field_ids,
        replaced=replaced,
    )


def _assign_field_ids(table: OpenTable, prepared: PreparedRows, instant: InstantTime) -> FieldIds:
    def assign(now: Timeline) -> FieldIds:
        # The columns that are there come first, as any other writer would number them.
        return assign_field_ids(table.store, _before(now, instant), prepared.schema_before, prepared.schema)

    return read_stable(table.store, assign)


def _changes_types(before: pa.Schema | None, after: pa.Schema) -> bool:
    """Whether columns that are there have other types from now on."""
    return before is not None and any(after.field(field.name).type != field.type for field in before)


def _settle_logs(
    table: OpenTable, rows: Rows, task: TaskRequest, written: Written, replaced: Mapping[str, Sequence[str]]
) -> Written:
    """Rewrite the base files of all other file groups that have log files, whose columns have older types.

    hudi-rs does not read a log file that has a column in another type than the
    table, once it lacks a column, too.
    """
    if table.settings.table_type is not TableType.MERGE_ON_READ:
        return written
    view = _base(table, task.instant)
    newest = _newest(table, view)
    gone = {(partition, file_id) for partition, file_ids in replaced.items() for file_id in file_ids}
    gone |= {(stat.partition_path or "", stat.file_id) for stat in written.stats}
    slices = [each for each in each_slice(newest) if each.logs and (each.partition, each.file_id) not in gone]
    if not slices:
        return written
    instants = view.log_instants(newest)
    request = CompactRequest(task=task, slices=tuple(slices), log_instants=instants, attempt=0)
    settled = rows.compactor().compact(table, request)
    return replace(written, stats=[*written.stats, *map(without_log_totals, settled.stats)])


def _groups_to_compact(table: OpenTable) -> frozenset[str]:
    if table.settings.table_type is not TableType.MERGE_ON_READ or table.is_new:
        return frozenset()
    return groups_to_compact(table.store, load_timeline(table.store))


def _file_ids_to_hide(
    operation: Operation, groups: FileGroups, written: Written
) -> dict[str, list[str]] | None:
    if operation is Operation.INSERT_OVERWRITE_TABLE:
        return _file_ids(groups, frozenset(groups))
    if operation is Operation.INSERT_OVERWRITE:
        return _file_ids(groups, frozenset(stat.partition_path or "" for stat in written.stats))
    return None


def _prepare_for(plan: WritePlan, rows: Rows, table: OpenTable, instant: InstantTime) -> PreparedRows:
    """The prepared rows, made anew if another write has changed the schema since."""
    assert plan.prepared is not None, "rows are prepared when they are planned"
    now = _schema_or_none(table, instant)
    if now == plan.prepared.schema_before:
        return plan.prepared
    return _prepare(table, plan.operation, rows, plan.settings, before=now)


def _prepare(
    table: OpenTable, operation: Operation, rows: Rows, settings: WriteSettings, *, before: pa.Schema | None
) -> PreparedRows:
    if operation is Operation.DELETE:
        by_partition = not settings.index_type.is_global
        existing = _require_schema(table, before)
        named = schema_of_keys(rows.schema(), existing, table.settings, by_partition=by_partition)
        prepared = rows.prepare(named, table.settings, by_partition=by_partition)
        return PreparedRows(rows=prepared, schema=existing, schema_before=existing)
    schema = schema_after_write(
        rows.schema(), before, table.settings, fill_missing=settings.fills_missing_columns
    )
    takes_one_pass = _makes_new_groups(operation) and _takes_one_pass(settings)
    prepared = rows.prepare(schema, table.settings, validate_first=not takes_one_pass)
    return PreparedRows(rows=prepared, schema=schema, schema_before=before)


def _route(
    operation: Operation, table: OpenTable, task: TaskRequest
) -> tuple[TaskRequest | MergeRequest, FileGroups]:
    """What the engine is to do with the rows, and the file groups there were."""
    settings = task.write
    if operation is Operation.BULK_INSERT and settings.index_type is not IndexType.BUCKET:
        # New file groups need no view of the others, which would list the whole table.
        check_not_bucketed(_newest_file_ids(table), settings)
        return _new_groups(task), {}
    view = _base(table, task.instant)
    newest = _newest(table, view)
    groups = _groups(newest, settings)
    if operation.is_overwrite:
        return _new_groups(task), groups
    log_instants = view.log_instants(newest) if has_logs(newest) else None
    if operation in (Operation.INSERT, Operation.BULK_INSERT):
        return _addition(task, groups, log_instants), groups
    request = MergeRequest(
        task=task,
        groups=groups,
        looks_up=True,
        combines=True,
        removes=operation is Operation.DELETE,
        log_instants=log_instants,
        written_with=view.schemas,
    )
    return request, groups


def _new_groups(task: TaskRequest) -> TaskRequest | MergeRequest:
    """Rows go to file groups of their own, as if the table were empty."""
    return task if _takes_one_pass(task.write) else _addition(task, {})


def _addition(task: TaskRequest, groups: FileGroups, log_instants: LogInstants | None = None) -> MergeRequest:
    return MergeRequest(
        task=task,
        groups=groups,
        looks_up=False,
        combines=task.write.combines_inserts,
        removes=False,
        log_instants=log_instants,
    )


def _makes_new_groups(operation: Operation) -> bool:
    return operation is Operation.BULK_INSERT or operation.is_overwrite


def _takes_one_pass(settings: WriteSettings) -> bool:
    """Whether new file groups can take the rows as they come."""
    return not settings.combines_inserts and settings.index_type is not IndexType.BUCKET


def _schema_or_none(table: OpenTable, instant: InstantTime | None = None) -> pa.Schema | None:
    if table.is_new and not has_settings(table.store):
        return table_schema(table, Timeline(()))
    return read_stable(table.store, lambda now: table_schema(table, _before(now, instant)))


def _require_schema(table: OpenTable, schema: pa.Schema | None) -> pa.Schema:
    if schema is None:
        raise InvalidRequest("nothing was written to this table yet", table=table.settings.name)
    return schema


def _avro(table: OpenTable, schema: pa.Schema) -> str:
    return avro_schema(schema, table_name=table.settings.name)


def _base(table: OpenTable, instant: InstantTime | None = None) -> View:
    """What the write of an instant builds on."""
    return read_stable(table.store, lambda now: load_view(table.store, _before(now, instant)))


def _before(timeline: Timeline, instant: InstantTime | None) -> Timeline:
    """The timeline without commits that are younger than the instant, if one is given.

    Such a commit may be shown already. A reader of the table as of the instant
    does not see it, so nothing of the instant may follow from it.
    """
    if instant is None:
        return timeline
    younger = {commit for commit in timeline.completed_commits if commit.time > instant}
    return Timeline(tuple(i for i in timeline.instants if i not in younger)) if younger else timeline


def _newest(table: OpenTable, view: View) -> pa.Table:
    """The newest slices. Of copy-on-write tables no program reads log files, whatever lies about."""
    return view.latest(base_only=table.settings.table_type is TableType.COPY_ON_WRITE)


def _groups(newest: pa.Table, settings: WriteSettings) -> FileGroups:
    groups = file_groups(newest)
    check_index(groups, settings)
    return groups


def _newest_file_ids(table: OpenTable) -> list[str]:
    """The file groups of the newest commit that wrote any."""

    def read(timeline: Timeline) -> list[str]:
        for instant in reversed(timeline.completed_commits):
            written = decode_written_files(read_completed(table.store, instant))
            if written:
                return [file.file_id for file in written]
        return []

    return read_stable(table.store, read)


def _file_ids(groups: FileGroups, partitions: frozenset[str]) -> dict[str, list[str]]:
    return {
        partition: [group.file_id for group in groups[partition]]
        for partition in sorted(partitions)
        if partition in groups
    }
