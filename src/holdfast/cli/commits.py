"""`holdfast commits` and `holdfast commit`: what commits wrote, in hudi-cli's columns."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

import click

from holdfast.cli.arguments import (
    Mode,
    ShownByDefault,
    archive_of,
    asking,
    include_archived_option,
    limit_option,
    table_command,
)
from holdfast.cli.output import show as show_document
from holdfast.cli.restore import NOTHING_ROLLED_BACK, run_rollback
from holdfast.cli.with_pushes import WithPushes, run_reverts, with_pushes_option
from holdfast.errors import UnknownInstant
from holdfast.format.commits import NO_PREVIOUS_COMMIT, WriteStat
from holdfast.jobs.lake_pushes import plan_reverts
from holdfast.read.history import CommitRecord, Totals, commit_record, commit_records, totals
from holdfast.services.documents import Bytes, Document, Line, Rows
from holdfast.table.opened import open_at

_COMMITS = (
    "CommitTime",
    "Total Bytes Written",
    "Total Files Added",
    "Total Files Updated",
    "Total Partitions Written",
    "Total Records Written",
    "Total Update Records Written",
    "Total Errors",
)
_PARTITIONS = (
    "Partition Path",
    "Total Files Added",
    "Total Files Updated",
    "Total Records Inserted",
    "Total Records Updated",
    "Total Bytes Written",
    "Total Errors",
)
_FILES = (
    "Partition Path",
    "File ID",
    "Previous Commit",
    "Total Records Updated",
    "Total Records Written",
    "Total Bytes Written",
    "Total Errors",
    "File Size",
)
_SPARE = (
    "Total Errors",
    "Total Partitions Written",
    "Total Files Updated",
    "Total Files Added",
    "Total Update Records Written",
    "Total Records Updated",
    "Previous Commit",
    "Total Bytes Written",
)


@click.group(cls=ShownByDefault)
def commits() -> None:
    """The commits of a table."""


@commits.command("show")
@table_command
@limit_option("Show only the newest N commits.")
@include_archived_option
def show(
    path: str, *, limit: int | None, archived: bool, as_json: bool, storage_options: Mapping[str, str]
) -> None:
    """Show the completed commits of the table at PATH, newest first.

    \b
    Example: holdfast commits show lake/trips --limit 10
    """
    table = open_at(path, storage_options)
    records = commit_records(table, limit=limit, archived=archive_of(table, archived=archived))
    rows = [_commit_row(record) for record in records]
    block = Rows(_COMMITS, rows, _SPARE) if rows else Line("no commits yet")
    fields = {"commits": [_commit_document(record) for record in records]}
    show_document(Document((block,), fields), as_json=as_json)


@commits.command("showpartitions")
@table_command
@click.option("--commit", "time", required=True, metavar="T", help="The commit's time.")
def showpartitions(path: str, *, time: str, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show what one commit wrote into each partition of the table at PATH.

    \b
    Example: holdfast commits showpartitions lake/trips --commit 20240131093000123
    """
    record = commit_record(open_at(path, storage_options), time)
    by_partition = record.metadata.partition_to_write_stats
    sums = {partition: totals(by_partition[partition]) for partition in sorted(by_partition)}
    partitions = [{"partition_path": name, **_total_document(sums[name])} for name in sums]
    rows = [_partition_row(name, found) for name, found in sums.items()]
    fields = {"commit_time": time, "partitions": partitions}
    show_document(Document((Rows(_PARTITIONS, rows, _SPARE),), fields), as_json=as_json)


@commits.command("showfiles")
@table_command
@click.option("--commit", "time", required=True, metavar="T", help="The commit's time.")
def showfiles(path: str, *, time: str, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the files that one commit wrote into the table at PATH.

    \b
    Example: holdfast commits showfiles lake/trips --commit 20240131093000123
    """
    record = commit_record(open_at(path, storage_options), time)
    by_partition = record.metadata.partition_to_write_stats
    found = [(partition, stat) for partition in sorted(by_partition) for stat in by_partition[partition]]
    fields = {"commit_time": time, "files": [_file_document(*one) for one in found]}
    show_document(
        Document((Rows(_FILES, [_file_row(*one) for one in found], _SPARE),), fields), as_json=as_json
    )


@commits.command("rollback")
@table_command
@click.option("--commit", "time", required=True, metavar="T", help="The commit's time.")
@with_pushes_option
@asking
def rollback(
    path: str,
    *,
    time: str,
    with_pushes: WithPushes | None,
    mode: Mode,
    storage_options: Mapping[str, str],
) -> None:
    """Take back the newest commit of the table at PATH, or roll back a write that did not finish.

    \b
    Example: holdfast commits rollback lake/trips --commit 20240131093000123
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.rollback.plan import plan_rollback_of
    from holdfast.services.targets import exact_instant

    table = open_at(path, storage_options)
    instant = exact_instant(table, time)
    try:
        plan_rollback_of(table, instant)
    except UnknownInstant:
        # It is gone already; its pushes may not be, if the command died in between.
        left = plan_reverts(table) if with_pushes else []
        if with_pushes is None or not any(
            push.instant == instant for plan in left if plan.reverted for push in plan.pushes
        ):
            raise
        run_reverts(table, left, to_empty=with_pushes.to_empty, mode=mode, document=NOTHING_ROLLED_BACK)
    else:
        run_rollback(
            table,
            lambda: plan_rollback_of(table, instant),
            with_pushes=with_pushes,
            mode=mode,
        )


def _stats(record: CommitRecord) -> Iterable[WriteStat]:
    return (stat for stats in record.metadata.partition_to_write_stats.values() for stat in stats)


def _commit_row(record: CommitRecord) -> tuple[object, ...]:
    found = totals(_stats(record))
    return (
        record.instant.time,
        Bytes(found.bytes_written),
        found.files_added,
        found.files_updated,
        len(record.metadata.partition_to_write_stats),
        found.records_written,
        found.records_updated,
        found.errors,
    )


def _commit_document(record: CommitRecord) -> dict[str, object]:
    return {
        "commit_time": record.instant.time,
        "action": record.instant.action,
        "operation": record.metadata.operation_type,
        "total_partitions_written": len(record.metadata.partition_to_write_stats),
        **_total_document(totals(_stats(record))),
    }


def _total_document(found: Totals) -> dict[str, object]:
    return {f"total_{name}": value for name, value in asdict(found).items()}


def _partition_row(partition: str, found: Totals) -> tuple[object, ...]:
    return (
        partition,
        found.files_added,
        found.files_updated,
        found.records_inserted,
        found.records_updated,
        Bytes(found.bytes_written),
        found.errors,
    )


def _file_row(partition: str, stat: WriteStat) -> tuple[object, ...]:
    return (
        partition,
        stat.file_id,
        stat.prev_commit,
        stat.num_update_writes,
        stat.num_writes,
        Bytes(stat.total_write_bytes),
        stat.total_write_errors,
        Bytes(stat.file_size_in_bytes),
    )


def _file_document(partition: str, stat: WriteStat) -> dict[str, object]:
    is_new = stat.prev_commit == NO_PREVIOUS_COMMIT
    return {
        "partition_path": partition,
        "file_id": stat.file_id,
        "path": stat.path,
        "previous_commit": None if is_new else stat.prev_commit,
        "total_records_updated": stat.num_update_writes,
        "total_records_written": stat.num_writes,
        "total_bytes_written": stat.total_write_bytes,
        "total_errors": stat.total_write_errors,
        "file_size": stat.file_size_in_bytes,
    }
