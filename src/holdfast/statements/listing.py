"""SHOW TABLES and DESCRIBE: what a catalog and a table are, as rows."""

from fnmatch import fnmatch

import pyarrow as pa

from holdfast.lake import Table
from holdfast.read.history import CommitRecord, commit_records
from holdfast.statements.names import Context
from holdfast.statements.syntax import Describe, ShowTables
from holdfast.table.opened import OpenTable

_TEXT, _NUMBER = pa.string(), pa.int64()


def show_tables(context: Context, statement: ShowTables) -> pa.Table:
    patterns = statement.pattern.lower().split("|") if statement.pattern else ["*"]
    names = {
        name: path
        for name, path in context.catalog.names().items()
        if any(fnmatch(name, pattern) for pattern in patterns)
    }
    paths = [""] * len(names) if context.catalog.exclusive else list(names.values())
    return pa.table({"tableName": pa.array(names, _TEXT), "path": pa.array(paths, _TEXT)})


def describe(context: Context, statement: Describe) -> pa.Table:
    opened = context.open(statement.table)
    if statement.style == "HISTORY":
        return history(opened, limit=statement.limit)
    return _columns(opened, is_extended=statement.style == "EXTENDED", hides_path=context.catalog.exclusive)


def _columns(opened: OpenTable, *, is_extended: bool, hides_path: bool) -> pa.Table:
    """The columns with their types and roles; extended, then what else is known of the table."""
    from holdfast.statements.types import sql_type

    settings, schema = opened.settings, Table(opened).schema()
    roles = dict.fromkeys(settings.record_key, "record key")
    roles |= dict.fromkeys(settings.partition_by, "partition")
    if settings.ordering:
        roles.setdefault(settings.ordering, "ordering")
    rows = [(field.name, sql_type(field.type), roles.get(field.name, "")) for field in schema or ()]
    if is_extended:
        rows.append(("", "", ""))
        rows.append(("# Table", "", ""))
        facts = {"Name": settings.name, "Type": settings.table_type.value, "Provider": "holdfast"}
        if not hides_path:
            facts["Location"] = opened.location.uri
        rows += [(name, text, "") for name, text in facts.items()]
        rows += [(name, text, "") for name, text in sorted(settings.properties.items())]
    names, kinds, comments = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "col_name": pa.array(names, _TEXT),
            "data_type": pa.array(kinds, _TEXT),
            "comment": pa.array(comments, _TEXT),
        }
    )


def history(opened: OpenTable, *, limit: int | None = None) -> pa.Table:
    """The commits on the timeline, newest first."""
    return commit_table(list(commit_records(opened, limit=limit)))


def commit_table(records: list[CommitRecord]) -> pa.Table:
    stats = [
        [stat for stats in record.metadata.partition_to_write_stats.values() for stat in stats]
        for record in records
    ]
    return pa.table(
        {
            "commit_time": pa.array([record.instant.time for record in records], _TEXT),
            "action": pa.array([record.instant.action.value for record in records], _TEXT),
            "operation": pa.array([record.metadata.operation_type or "" for record in records], _TEXT),
            "total_bytes_written": pa.array([sum(s.total_write_bytes for s in of) for of in stats], _NUMBER),
            "total_files_written": pa.array([len(of) for of in stats], _NUMBER),
            "total_partitions_written": pa.array(
                [len({s.partition_path for s in of}) for of in stats], _NUMBER
            ),
            "total_records_written": pa.array([sum(s.num_writes for s in of) for of in stats], _NUMBER),
            "total_inserted": pa.array([sum(s.num_inserts for s in of) for of in stats], _NUMBER),
            "total_update_records_written": pa.array(
                [sum(s.num_update_writes for s in of) for of in stats], _NUMBER
            ),
            "total_deleted": pa.array([sum(s.num_deletes for s in of) for of in stats], _NUMBER),
            "total_errors": pa.array([sum(s.total_write_errors for s in of) for of in stats], _NUMBER),
        }
    )
