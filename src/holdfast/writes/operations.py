"""The writes of a lake table, each from what it is asked to the transaction that does it.

Everything that can be refused is refused before the first byte is written; but
where one pass is all that a write needs, a row that cannot be stored is met in
it, and the write is taken back.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from holdfast.config.write import IndexType, WriteSettings
from holdfast.errors import InvalidOption, InvalidRequest
from holdfast.format.commits import decode_written_files
from holdfast.format.schemas import avro_schema
from holdfast.model.instant import Action, InstantTime
from holdfast.model.reports import Commit
from holdfast.table.opened import OpenTable
from holdfast.table.schema import table_schema
from holdfast.table.steady import read_steadily
from holdfast.table.view import View, load_view
from holdfast.timeline.timeline import Timeline, read_completed
from holdfast.writes.fitting import deletion_schema, fitting_schema
from holdfast.writes.layout import FileGroups, check_index, check_not_bucketed, file_groups
from holdfast.writes.merge_task import MergeRequest
from holdfast.writes.origin import NO_ORIGIN, Origin
from holdfast.writes.rows import Rows, Written
from holdfast.writes.task import TaskRequest
from holdfast.writes.transaction import Contents, WriteRequest, run_write

Replaced = dict[str, list[str]] | None
"""File ids that stop being visible, by partition; None unless the write replaces."""
Act = Callable[[Rows, TaskRequest], tuple[Written, Replaced]]

_REPLACING = ("INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE")
_LAID_OUT_ANEW = ("BULK_INSERT", *_REPLACING)


def bulk_insert(
    table: OpenTable, rows: Rows, settings: WriteSettings, *, origin: Origin = NO_ORIGIN
) -> Commit:
    """Add rows in new file groups, in one pass; keys that exist already are not looked for."""

    def act(rows: Rows, task: TaskRequest) -> tuple[Written, Replaced]:
        if settings.index_type is IndexType.BUCKET:
            return rows.merge(table, _addition(task, _groups(_view(table), settings))), None
        # New file groups need no view of the others, which would list the whole table.
        check_not_bucketed(_newest_file_ids(table), settings)
        return _laid_out_anew(table, rows, task), None

    return _store(table, "BULK_INSERT", rows, settings, act, origin)


def insert(table: OpenTable, rows: Rows, settings: WriteSettings, *, origin: Origin = NO_ORIGIN) -> Commit:
    """Add rows, first to small file groups; keys that exist already are not looked for."""

    def act(rows: Rows, task: TaskRequest) -> tuple[Written, Replaced]:
        return rows.merge(table, _addition(task, _groups(_view(table), settings))), None

    return _store(table, "INSERT", rows, settings, act, origin)


def upsert(table: OpenTable, rows: Rows, settings: WriteSettings, *, origin: Origin = NO_ORIGIN) -> Commit:
    """Replace the rows whose keys exist, add the others."""

    def act(rows: Rows, task: TaskRequest) -> tuple[Written, Replaced]:
        return rows.merge(table, _replacement(_view(table), task, removes=False)), None

    return _store(table, "UPSERT", rows, settings, act, origin)


def insert_overwrite(
    table: OpenTable, rows: Rows, settings: WriteSettings, *, origin: Origin = NO_ORIGIN
) -> Commit:
    """Replace the partitions that the rows are of; the others stay."""

    def act(rows: Rows, task: TaskRequest) -> tuple[Written, Replaced]:
        groups = _groups(_view(table), settings)
        written = _laid_out_anew(table, rows, task)
        return written, _file_ids(groups, {stat.partition_path or "" for stat in written.stats})

    return _store(table, "INSERT_OVERWRITE", rows, settings, act, origin)


def insert_overwrite_table(
    table: OpenTable, rows: Rows, settings: WriteSettings, *, origin: Origin = NO_ORIGIN
) -> Commit:
    """Replace everything in the table by the rows."""

    def act(rows: Rows, task: TaskRequest) -> tuple[Written, Replaced]:
        groups = _groups(_view(table), settings)
        return _laid_out_anew(table, rows, task), _file_ids(groups, set(groups))

    return _store(table, "INSERT_OVERWRITE_TABLE", rows, settings, act, origin)


def delete(table: OpenTable, rows: Rows, settings: WriteSettings, *, origin: Origin = NO_ORIGIN) -> Commit:
    """Remove the rows with these keys. Keys that do not exist are passed over."""
    _check_settings(table, settings)
    by_partition = not settings.index_type.is_global
    named = deletion_schema(rows.schema(), _existing(table), table.settings, by_partition=by_partition)
    prepared = rows.prepared(named, table.settings, by_partition=by_partition)

    def produce(instant: InstantTime) -> Contents:
        schema = _existing(table)
        task = _task(table, instant, Action.COMMIT, schema, settings)
        written = prepared.merge(table, _replacement(_view(table), task, removes=True))
        text = _avro(table, schema)
        return Contents(written=written, schema=text, schema_before=text)

    request = WriteRequest("DELETE", Action.COMMIT, settings, origin)
    return run_write(table, request, produce, cancel=prepared.cancel)


def delete_partitions(table: OpenTable, partitions: Sequence[str], settings: WriteSettings) -> Commit:
    """Remove whole partitions, named by their paths."""
    _check_settings(table, settings)
    if isinstance(partitions, str) or not partitions:
        raise InvalidRequest("name the partitions to delete", given=repr(partitions))
    asked = {path.strip("/") for path in partitions}
    _check_partitions(asked, _groups(_view(table), settings))

    def produce(_: InstantTime) -> Contents:
        replaced = _file_ids(_groups(_view(table), settings), asked)
        text = _avro(table, _existing(table))
        return Contents(written=Written(stats=()), schema=text, schema_before=text, replaced=replaced)

    return run_write(table, WriteRequest("DELETE_PARTITION", Action.REPLACECOMMIT, settings), produce)


def _store(
    table: OpenTable,
    operation: str,
    rows: Rows,
    settings: WriteSettings,
    act: Act,
    origin: Origin,
) -> Commit:
    """Write rows that are to be stored, in what the table's schema becomes with them."""
    _check_settings(table, settings)
    action = Action.REPLACECOMMIT if operation in _REPLACING else Action.COMMIT
    looks_ahead = operation not in _LAID_OUT_ANEW or not _takes_one_pass(settings)
    before = _existing_or_none(table)
    schema, prepared = _fitted(table, rows, before, settings, looks_ahead=looks_ahead)

    def produce(instant: InstantTime) -> Contents:
        # Another write may have changed the schema since.
        now = _existing_or_none(table)
        new_schema, fitted = schema, prepared
        if now != before:
            new_schema, fitted = _fitted(table, rows, now, settings, looks_ahead=looks_ahead)
        task = _task(table, instant, action, new_schema, settings)
        written, replaced = act(fitted, task)
        return Contents(
            written=written,
            schema=_avro(table, new_schema),
            schema_before=None if now is None else _avro(table, now),
            replaced=replaced,
        )

    return run_write(table, WriteRequest(operation, action, settings, origin), produce, cancel=rows.cancel)


def _fitted(
    table: OpenTable, rows: Rows, existing: pa.Schema | None, settings: WriteSettings, *, looks_ahead: bool
) -> tuple[pa.Schema, Rows]:
    """The schema the table has after the write, and the rows ready for it."""
    schema = fitting_schema(
        rows.schema(), existing, table.settings, fill_missing=settings.fills_missing_columns
    )
    return schema, rows.prepared(schema, table.settings, looks_ahead=looks_ahead)


def _check_settings(table: OpenTable, settings: WriteSettings) -> None:
    table.settings.check_writable()
    foreign = [name for name in settings.bucket_columns if name not in table.settings.record_key]
    if foreign:
        raise InvalidOption(
            "a bucket can only depend on columns of the record key",
            option="hoodie.bucket.index.hash.field",
            column=foreign[0],
            record_key=", ".join(table.settings.record_key),
        )


def _existing_or_none(table: OpenTable) -> pa.Schema | None:
    return read_steadily(table.store, lambda timeline: table_schema(table, timeline))


def _existing(table: OpenTable) -> pa.Schema:
    schema = _existing_or_none(table)
    if schema is None:
        raise InvalidRequest("nothing was written to this table yet", table=table.settings.name)
    return schema


def _avro(table: OpenTable, schema: pa.Schema) -> str:
    return avro_schema(schema, table_name=table.settings.name)


def _task(
    table: OpenTable, instant: InstantTime, action: Action, schema: pa.Schema, settings: WriteSettings
) -> TaskRequest:
    return TaskRequest(instant=instant, action=action, schema=schema, table=table.settings, write=settings)


def _laid_out_anew(table: OpenTable, rows: Rows, task: TaskRequest) -> Written:
    """Rows in file groups of their own, as if the table were empty."""
    if _takes_one_pass(task.write):
        return rows.write(table, task)
    return rows.merge(table, _addition(task, {}))


def _takes_one_pass(settings: WriteSettings) -> bool:
    """Whether new file groups can take the rows as they come."""
    return not settings.combines_inserts and settings.index_type is not IndexType.BUCKET


def _addition(task: TaskRequest, groups: FileGroups) -> MergeRequest:
    return MergeRequest(
        task=task, groups=groups, looks_up=False, combines=task.write.combines_inserts, removes=False
    )


def _replacement(view: View, task: TaskRequest, *, removes: bool) -> MergeRequest:
    return MergeRequest(
        task=task,
        groups=_groups(view, task.write),
        looks_up=True,
        combines=True,
        removes=removes,
        written_with=view.schemas,
    )


def _view(table: OpenTable) -> View:
    return read_steadily(table.store, lambda timeline: load_view(table.store, timeline))


def _groups(view: View, settings: WriteSettings) -> FileGroups:
    groups = file_groups(view.latest())
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

    return read_steadily(table.store, read)


def _file_ids(groups: FileGroups, partitions: set[str]) -> Replaced:
    return {
        partition: [group.file_id for group in groups[partition]]
        for partition in sorted(partitions)
        if partition in groups
    }


def _check_partitions(asked: set[str], groups: FileGroups) -> None:
    unknown = sorted(asked - set(groups))
    if unknown:
        known = ", ".join(sorted(groups)[:5]) + (", ..." if len(groups) > 5 else "")
        raise InvalidRequest("the table has no such partition", partition=unknown[0], partitions=known)
