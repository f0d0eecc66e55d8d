"""The writes of a lake table, each from what it is asked to the transaction that does it.

Everything that can be refused is refused before the first byte is written.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from holdfast.config.write import IndexType, WriteSettings
from holdfast.errors import InvalidOption, InvalidRequest
from holdfast.format.schemas import avro_schema
from holdfast.model.instant import Action, InstantTime
from holdfast.model.reports import Commit
from holdfast.table.opened import OpenTable
from holdfast.table.schema import table_schema
from holdfast.table.view import View, load_view
from holdfast.timeline.timeline import load_timeline
from holdfast.write.fitting import deletion_schema, fitting_schema
from holdfast.write.layout import FileGroups, check_index, file_groups
from holdfast.write.merge_task import MergeRequest
from holdfast.write.rows import Rows, Written
from holdfast.write.task import TaskRequest
from holdfast.write.transaction import WriteRequest, run_write

Produce = Callable[[TaskRequest], Written]


def bulk_insert(table: OpenTable, rows: Rows, settings: WriteSettings) -> Commit:
    """Add rows in new file groups, in one pass; keys that exist already are not looked for."""
    schema, prepared = _fitted(table, rows, settings)
    return _run(
        table, "BULK_INSERT", schema, settings, lambda task: _added(table, prepared, task, fills_small=False)
    )


def insert(table: OpenTable, rows: Rows, settings: WriteSettings) -> Commit:
    """Add rows, first to small file groups; keys that exist already are not looked for."""
    schema, prepared = _fitted(table, rows, settings)
    return _run(
        table, "INSERT", schema, settings, lambda task: _added(table, prepared, task, fills_small=True)
    )


def upsert(table: OpenTable, rows: Rows, settings: WriteSettings) -> Commit:
    """Replace the rows whose keys exist, add the others."""
    schema, prepared = _fitted(table, rows, settings)

    def produce(task: TaskRequest) -> Written:
        return prepared.merge(table, _replacement(table, task, removes=False))

    return _run(table, "UPSERT", schema, settings, produce)


def delete(table: OpenTable, rows: Rows, settings: WriteSettings) -> Commit:
    """Remove the rows with these keys. Keys that do not exist are passed over."""
    schema = _existing_schema(table, settings)
    by_partition = not settings.index_type.is_global
    named = deletion_schema(rows.schema(), schema, table.settings, by_partition=by_partition)
    prepared = rows.prepared(named, table.settings, by_partition=by_partition)

    def produce(task: TaskRequest) -> Written:
        return prepared.merge(table, _replacement(table, task, removes=True))

    return _run(table, "DELETE", schema, settings, produce)


def insert_overwrite(table: OpenTable, rows: Rows, settings: WriteSettings) -> Commit:
    """Replace the partitions that the rows are of; the others stay."""
    schema, prepared = _fitted(table, rows, settings)

    def produce(task: TaskRequest) -> Written:
        groups = _current_groups(table, settings)
        written = _laid_out_anew(table, prepared, task)
        return _replacing(written, groups, {stat.partition_path or "" for stat in written.stats})

    return _run(table, "INSERT_OVERWRITE", schema, settings, produce, action=Action.REPLACECOMMIT)


def insert_overwrite_table(table: OpenTable, rows: Rows, settings: WriteSettings) -> Commit:
    """Replace everything in the table by the rows."""
    schema, prepared = _fitted(table, rows, settings)

    def produce(task: TaskRequest) -> Written:
        groups = _current_groups(table, settings)
        return _replacing(_laid_out_anew(table, prepared, task), groups, set(groups))

    return _run(table, "INSERT_OVERWRITE_TABLE", schema, settings, produce, action=Action.REPLACECOMMIT)


def delete_partitions(table: OpenTable, partitions: Sequence[str], settings: WriteSettings) -> Commit:
    """Remove whole partitions, named by their paths."""
    schema = _existing_schema(table, settings)
    if isinstance(partitions, str) or not partitions:
        raise InvalidRequest("name the partitions to delete", given=repr(partitions))
    asked = {path.strip("/") for path in partitions}
    _check_partitions(asked, _current_groups(table, settings))

    def produce(task: TaskRequest) -> Written:
        return _replacing(Written(stats=()), _current_groups(table, settings), asked)

    return _run(table, "DELETE_PARTITION", schema, settings, produce, action=Action.REPLACECOMMIT)


def _fitted(table: OpenTable, rows: Rows, settings: WriteSettings) -> tuple[pa.Schema, Rows]:
    """The schema the table has after the write, and the rows ready for it."""
    _check_settings(table, settings)
    existing = table_schema(table, load_timeline(table.store))
    schema = fitting_schema(
        rows.schema(), existing, table.settings, fill_missing=settings.fills_missing_columns
    )
    return schema, rows.prepared(schema, table.settings)


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


def _existing_schema(table: OpenTable, settings: WriteSettings) -> pa.Schema:
    _check_settings(table, settings)
    schema = table_schema(table, load_timeline(table.store))
    if schema is None:
        raise InvalidRequest("nothing was written to this table yet", table=table.settings.name)
    return schema


def _run(
    table: OpenTable,
    operation: str,
    schema: pa.Schema,
    settings: WriteSettings,
    produce: Produce,
    *,
    action: Action = Action.COMMIT,
) -> Commit:
    request = WriteRequest(
        operation=operation,
        action=action,
        schema=avro_schema(schema, table_name=table.settings.name),
        settings=settings,
    )

    def produce_at(instant: InstantTime) -> Written:
        return produce(
            TaskRequest(instant=instant, action=action, schema=schema, table=table.settings, write=settings)
        )

    return run_write(table, request, produce_at)


def _added(table: OpenTable, rows: Rows, task: TaskRequest, *, fills_small: bool) -> Written:
    """Rows beside those there are."""
    groups = _current_groups(table, task.write)
    if fills_small or task.write.index_type is IndexType.BUCKET:
        return rows.merge(table, _addition(task, groups))
    return _laid_out_anew(table, rows, task)


def _laid_out_anew(table: OpenTable, rows: Rows, task: TaskRequest) -> Written:
    """Rows in file groups of their own, as if the table were empty."""
    if task.write.combines_inserts or task.write.index_type is IndexType.BUCKET:
        return rows.merge(table, _addition(task, {}))
    return rows.write(table, task)


def _addition(task: TaskRequest, groups: FileGroups) -> MergeRequest:
    return MergeRequest(
        task=task, groups=groups, looks_up=False, combines=task.write.combines_inserts, removes=False
    )


def _replacement(table: OpenTable, task: TaskRequest, *, removes: bool) -> MergeRequest:
    view = load_view(table.store, load_timeline(table.store))
    return MergeRequest(
        task=task,
        groups=_checked_groups(view, task.write),
        looks_up=True,
        combines=True,
        removes=removes,
        written_with=view.schemas,
    )


def _replacing(written: Written, groups: FileGroups, partitions: set[str]) -> Written:
    replaced = {
        partition: [group.file_id for group in groups[partition]]
        for partition in sorted(partitions)
        if partition in groups
    }
    return Written(stats=written.stats, index=written.index, replaced=replaced)


def _current_groups(table: OpenTable, settings: WriteSettings) -> FileGroups:
    return _checked_groups(load_view(table.store, load_timeline(table.store)), settings)


def _checked_groups(view: View, settings: WriteSettings) -> FileGroups:
    groups = file_groups(view.latest())
    check_index(groups, settings)
    return groups


def _check_partitions(asked: set[str], groups: FileGroups) -> None:
    unknown = sorted(asked - set(groups))
    if unknown:
        known = ", ".join(sorted(groups)[:5]) + (", ..." if len(groups) > 5 else "")
        raise InvalidRequest("the table has no such partition", partition=unknown[0], partitions=known)
