"""CALL: Hudi's procedures by their names and arguments, and those of our own.

What looks at a table gives rows; what changes one gives the report of its verb.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa

from holdfast.errors import InvalidRequest
from holdfast.lake import Table
from holdfast.read.compactions import compactions
from holdfast.read.history import clean_records, commit_record, commit_records, rollback_records
from holdfast.read.savepoints import savepoints
from holdfast.services.leases import leases, release_lease, take_lease
from holdfast.services.savepoints import create_savepoint
from holdfast.statements.listing import commit_table
from holdfast.statements.names import Context
from holdfast.statements.syntax import Call
from holdfast.table.archive import read_archive
from holdfast.table.clean_plans import pending_cleans, read_clean_plan
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import load_timeline

_REQUIRED: Final = object()
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Procedure:
    run: Callable[[Context, OpenTable, Arguments], object]
    parameters: Mapping[str, object]
    """Name → default, in the order of positional arguments; the table comes first."""


def call(context: Context, statement: Call) -> object:
    """What a procedure gives: rows as an Arrow table, or a report."""
    procedure = _PROCEDURES.get(statement.procedure)
    if procedure is None:
        near = get_close_matches(statement.procedure, _PROCEDURES, n=1)
        raise InvalidRequest(
            "there is no such procedure", name=statement.procedure,
            hint=f"did you mean {near[0]}?" if near else "CALL help() lists them",
        )  # fmt: skip
    arguments = _arguments(statement, procedure)
    if statement.procedure == "help":
        return _help()
    return procedure.run(context, _table(context, statement, arguments), arguments)


def _arguments(call: Call, procedure: _Procedure) -> dict[str, Any]:
    names = list(procedure.parameters)
    if len(call.positional) > len(names):
        raise InvalidRequest("too many arguments", procedure=call.procedure, takes=", ".join(names))
    given = {**dict(zip(names, call.positional, strict=False)), **call.named}
    for name in given:
        if name not in (*names, "path"):
            raise InvalidRequest(
                "the procedure has no such argument",
                argument=name,
                procedure=call.procedure,
                takes=", ".join(names),
            )
    complete: dict[str, Any] = {}
    for name, default in procedure.parameters.items():
        value = given.get(name)
        if value is None and default is _REQUIRED and not (name == "table" and "path" in given):
            raise InvalidRequest("an argument is missing", argument=name, procedure=call.procedure)
        complete[name] = default if value is None else _conform(value, default, name)
    return complete | ({"path": str(given["path"])} if "path" in given else {})


def _conform(value: object, default: object, name: str) -> object:
    """The value in the type of the default; texts of numbers are numbers, as in Hudi."""
    if isinstance(default, bool):
        if isinstance(value, bool) or str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
    elif isinstance(default, int):
        if str(value).removeprefix("-").isdigit():
            return int(str(value))
    else:
        return str(value)
    kind = "true or false" if isinstance(default, bool) else "a whole number"
    raise InvalidRequest(
        "an argument has a value that cannot be used", argument=name, value=value, wanted=kind
    )


def _table(context: Context, statement: Call, arguments: Arguments) -> OpenTable:
    named = arguments.get("table")
    if named and named is not _REQUIRED:
        return context.open_name(str(named))
    return context.open_name(str(arguments["path"]))


def _help() -> pa.Table:
    rows = [
        (
            name,
            ", ".join(
                parameter if default is _REQUIRED else f"{parameter} => {_spell(default)}"
                for parameter, default in procedure.parameters.items()
            ),
        )
        for name, procedure in sorted(_PROCEDURES.items())
    ]
    return _rows(("procedure", "arguments"), rows)


def _spell(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


def _rows(names: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str] = ()) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table(
        {
            name: pa.array(
                [value if value is None or name in numbers else str(value) for value in column],
                pa.int64() if name in numbers else pa.string(),
            )
            for name, column in zip(names, columns, strict=True)
        }
    )


def _show_commits(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    return commit_table(list(commit_records(table, limit=given["limit"])))


def _show_archived_commits(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    archive = read_archive(table.store, table.settings)
    known = {commit.time for commit in archive.timeline.completed_commits}
    found = [
        record
        for record in commit_records(table, archived=archive)
        if record.instant.time in known
        and (not given["start_ts"] or record.instant.time >= given["start_ts"])
        and (not given["end_ts"] or record.instant.time <= given["end_ts"])
    ]
    return commit_table(found[: given["limit"]])


def _show_commit_files(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    record = commit_record(table, given["instant_time"])
    rows = [
        (
            record.instant.action.value, partition, stat.file_id, stat.prev_commit, stat.num_update_writes,
            stat.num_writes, stat.total_write_bytes, stat.total_write_errors, stat.file_size_in_bytes,
        )
        for partition, stats in record.metadata.partition_to_write_stats.items()
        for stat in stats
    ]  # fmt: skip
    names = (
        "action", "partition_path", "file_id", "previous_commit", "total_records_updated",
        "total_records_written", "total_bytes_written", "total_errors", "file_size",
    )  # fmt: skip
    return _rows(names, rows[: given["limit"]], numbers=names[4:])


def _show_commit_partitions(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    record = commit_record(table, given["instant_time"])
    rows = []
    for partition, stats in sorted(record.metadata.partition_to_write_stats.items()):
        added = sum(stat.num_writes == stat.num_inserts for stat in stats)
        rows.append(
            (
                record.instant.action.value, partition, added, len(stats) - added,
                sum(stat.num_inserts for stat in stats), sum(stat.num_update_writes for stat in stats),
                sum(stat.total_write_bytes for stat in stats), sum(stat.total_write_errors for stat in stats),
            )
        )  # fmt: skip
    names = (
        "action", "partition_path", "total_files_added", "total_files_updated", "total_records_inserted",
        "total_records_updated", "total_bytes_written", "total_errors",
    )  # fmt: skip
    return _rows(names, rows[: given["limit"]], numbers=names[2:])


def _show_rollbacks(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    records = rollback_records(table, load_timeline(table.store))[: given["limit"]]
    rows = [
        (
            record.instant.time, ", ".join(record.metadata.commits), record.metadata.total_files_deleted,
            record.metadata.time_taken_ms, len(record.metadata.partitions),
        )
        for record in records
    ]  # fmt: skip
    names = ("instant", "rollback_instant", "total_files_deleted", "time_taken_in_millis", "total_partitions")
    return _rows(names, rows, numbers=names[2:])


def _show_cleans(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    records = clean_records(table, load_timeline(table.store), limit=given["limit"])
    rows = [
        (
            record.instant.time, record.instant.state.value, "clean", record.metadata.start_time,
            record.metadata.took_ms, record.metadata.deleted_count, record.metadata.earliest,
            record.metadata.last_completed,
        )
        for record in records
    ]  # fmt: skip
    names = (
        "clean_time", "state_transition_time", "action", "start_clean_time", "time_taken_in_millis",
        "total_files_deleted", "earliest_commit_to_retain", "last_completed_commit_timestamp",
    )  # fmt: skip
    return _rows(names, rows, numbers=names[4:6])


def _show_clean_plans(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    timeline = load_timeline(table.store)
    pending = pending_cleans(table.store, timeline, table.ledger.read())
    states = dict.fromkeys(pending, "REQUESTED")
    states |= {instant.time: instant.state.value for instant in timeline.completed_cleans}
    rows = []
    for time in sorted(states, reverse=True)[: given["limit"]]:
        plan = read_clean_plan(table.store, time)
        if plan is not None:
            rows.append(
                (
                    time, states[time], "clean", plan.earliest, plan.last_completed, plan.policy,
                    len(plan.files), len(plan.partitions_to_delete), sum(map(len, plan.files.values())),
                )
            )  # fmt: skip
    names = (
        "plan_instant", "state", "action", "earliest_instant_to_retain", "last_completed_commit_timestamp",
        "policy", "total_partitions_to_clean", "total_partitions_to_delete", "total_files_to_delete",
    )  # fmt: skip
    return _rows(names, rows, numbers=names[6:])


def _show_savepoints(_: Context, table: OpenTable, __: Arguments) -> pa.Table:
    rows = [
        (one.instant, one.user, one.comment, one.created_at.isoformat(), one.files)
        for one in savepoints(table)
    ]
    names = ("savepoint_time", "user", "comments", "created_at", "files")
    return _rows(names, rows, numbers=names[4:])


def _show_compaction(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    found = compactions(table)[::-1][: given["limit"]]
    rows = [(one.instant, one.state.value, one.file_groups, one.log_files, one.log_bytes) for one in found]
    names = ("timestamp", "state", "file_groups", "log_files", "log_bytes")
    return _rows(names, rows, numbers=names[2:])


def _show_table_properties(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    return _rows(("key", "value"), sorted(table.settings.properties.items())[: given["limit"]])


def _show_leases(_: Context, table: OpenTable, __: Arguments) -> pa.Table:
    rows = [
        (one.id, one.owner, one.instant, one.expires_at.isoformat(), str(one.is_expired).lower())
        for one in leases(table)
    ]
    return _rows(("id", "owner", "instant", "expires_at", "is_expired"), rows)


def _run_clean(context: Context, table: OpenTable, given: Arguments) -> object:
    options = {
        option: str(given[name])
        for name, option in (
            ("clean_policy", "hoodie.clean.policy"),
            ("retain_commits", "hoodie.clean.commits.retained"),
            ("hours_retained", "hoodie.clean.hours.retained"),
            ("file_versions_retained", "hoodie.clean.fileversions.retained"),
        )
        if given[name]
    }
    return Table(table).clean({**context.options, **options})


def _plan_clean(context: Context, table: OpenTable, _: Arguments) -> pa.Table:
    plan = Table(table).plan_clean(dict(context.options))
    rows = [(file.path, fate, file.size, file.reason) for fate, of in _fates(plan) for file in of]
    return _rows(("path", "fate", "size", "reason"), rows, numbers=("size",))


def _fates(plan: Any) -> tuple[tuple[str, Any], ...]:
    return ("doomed", plan.doomed), ("kept", plan.kept)


def _archive_commits(context: Context, table: OpenTable, given: Arguments) -> object:
    options = {
        "hoodie.keep.min.commits": str(given["min_commits"]),
        "hoodie.keep.max.commits": str(given["max_commits"]),
        "hoodie.clean.commits.retained": str(given["retain_commits"]),
    }
    return Table(table).archive({**context.options, **options})


def _create_savepoint(_: Context, table: OpenTable, given: Arguments) -> object:
    return create_savepoint(
        table, given["commit_time"] or None, user=given["user"], comment=given["comments"]
    )


def _delete_savepoint(_: Context, table: OpenTable, given: Arguments) -> None:
    Table(table).delete_savepoint(given["instant_time"])


def _rollback_to_savepoint(_: Context, table: OpenTable, given: Arguments) -> object:
    time = given["instant_time"]
    if time not in {one.instant for one in savepoints(table)}:
        raise InvalidRequest(
            "there is no such savepoint", instant=time, hint="CALL show_savepoints lists them"
        )
    return Table(table).restore(time)


def _run_compaction(context: Context, table: OpenTable, given: Arguments) -> object:
    operation, verbs = given["op"].lower(), Table(table)
    if operation == "schedule":
        return verbs.schedule_compaction(dict(context.options))
    if operation == "run":
        return verbs.compact(context.spark, given["timestamp"] or None, options=context.options)
    if operation == "scheduleandexecute":
        return verbs.compact(context.spark, options=context.options)
    raise InvalidRequest("unknown operation", op=given["op"], wanted="run, schedule or scheduleAndExecute")


def _drop_partition(context: Context, table: OpenTable, given: Arguments) -> object:
    return Table(table).delete_partitions(
        given["partition"].split(","), options=context.options, idempotency=context.idempotency
    )


def _verify(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    report = Table(table).verify(given["as_reader"] or None)
    rows = [
        (finding.severity.value, finding.kind.value, finding.path, finding.detail, finding.remedy)
        for finding in report.findings
    ]
    return _rows(("severity", "kind", "path", "detail", "remedy"), rows)


def _plan_restore(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    plan = Table(table).plan_restore(given["to"])
    rows = [
        (one.instant, one.action.value, str(one.is_committed).lower(), one.records, one.files, one.size_bytes)
        for one in plan.instants
    ]
    names = ("instant", "action", "is_committed", "records", "files", "size_bytes")
    return _rows(names, rows, numbers=names[3:])


def _lease(_: Context, table: OpenTable, given: Arguments) -> pa.Table:
    taken = take_lease(table, given["owner"], given["seconds"], as_of=given["instant"] or None)
    facts = {each.name: asdict(taken)[each.name] for each in fields(taken)}
    return _rows(
        ("id", "owner", "instant", "expires_at"),
        [(facts["id"], facts["owner"], facts["instant"], taken.expires_at.isoformat())],
    )


_TABLE: dict[str, object] = {"table": _REQUIRED}
_LIMIT: dict[str, object] = {"limit": 10}
_INSTANT: dict[str, object] = {"instant_time": _REQUIRED}

_PROCEDURES: Mapping[str, _Procedure] = {
    "help": _Procedure(lambda *_: None, {}),
    "show_commits": _Procedure(_show_commits, _TABLE | _LIMIT),
    "show_archived_commits": _Procedure(
        _show_archived_commits, _TABLE | _LIMIT | {"start_ts": "", "end_ts": ""}
    ),
    "show_commit_files": _Procedure(_show_commit_files, _TABLE | _LIMIT | _INSTANT),
    "show_commit_partitions": _Procedure(_show_commit_partitions, _TABLE | _LIMIT | _INSTANT),
    "show_rollbacks": _Procedure(_show_rollbacks, _TABLE | _LIMIT),
    "show_cleans": _Procedure(_show_cleans, _TABLE | _LIMIT),
    "show_clean_plans": _Procedure(_show_clean_plans, _TABLE | _LIMIT),
    "show_savepoints": _Procedure(_show_savepoints, _TABLE),
    "show_compaction": _Procedure(_show_compaction, _TABLE | {"limit": 20}),
    "show_table_properties": _Procedure(_show_table_properties, _TABLE | {"limit": 1000}),
    "show_leases": _Procedure(_show_leases, _TABLE),
    "run_clean": _Procedure(
        _run_clean,
        _TABLE | {"clean_policy": "", "retain_commits": 0, "hours_retained": 0, "file_versions_retained": 0},
    ),
    "plan_clean": _Procedure(_plan_clean, _TABLE),
    "archive_commits": _Procedure(
        _archive_commits, _TABLE | {"min_commits": 20, "max_commits": 30, "retain_commits": 10}
    ),
    "rollback_to_instant": _Procedure(
        lambda _, table, given: Table(table).rollback(given["instant_time"]), _TABLE | _INSTANT
    ),
    "create_savepoint": _Procedure(
        _create_savepoint, _TABLE | {"commit_time": "", "user": "", "comments": ""}
    ),
    "delete_savepoint": _Procedure(_delete_savepoint, _TABLE | _INSTANT),
    "rollback_to_savepoint": _Procedure(_rollback_to_savepoint, _TABLE | _INSTANT),
    "run_compaction": _Procedure(_run_compaction, {"op": _REQUIRED, **_TABLE, "timestamp": ""}),
    "drop_partition": _Procedure(_drop_partition, _TABLE | {"partition": _REQUIRED}),
    "undo": _Procedure(lambda _, table, __: Table(table).undo(), _TABLE),
    "verify": _Procedure(_verify, _TABLE | {"as_reader": ""}),
    "plan_restore": _Procedure(_plan_restore, _TABLE | {"to": _REQUIRED}),
    "restore": _Procedure(
        lambda _, table, given: Table(table).restore(given["to"]), _TABLE | {"to": _REQUIRED}
    ),
    "lease": _Procedure(_lease, _TABLE | {"owner": _REQUIRED, "seconds": 600, "instant": ""}),
    "release_lease": _Procedure(
        lambda _, table, given: release_lease(table, given["id"]), _TABLE | {"id": _REQUIRED}
    ),
}
