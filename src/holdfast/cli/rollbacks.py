"""`holdfast rollbacks`: what was rolled back, and rolling back what dead writers left."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import click

from holdfast.cli.arguments import archive_of, archived_option, ask, asking, opened, table_command
from holdfast.cli.output import counted, print_json, print_line, print_table
from holdfast.concurrency.heartbeats import heartbeats
from holdfast.config.write import FailedWritesPolicy
from holdfast.model.instant import Instant
from holdfast.model.reports import RollbackReport
from holdfast.read.history import RollbackRecord, rollback_records
from holdfast.services.rollback import (
    FailedWrite,
    failed_writes,
    plan_rollback,
    roll_back_failed_writes,
    sort_out,
)
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import load_timeline

_ROLLBACKS = (
    "Instant",
    "Rolledback Instant",
    "Total Files Deleted",
    "Time taken in millis",
    "Total Partitions",
)
_PLANNED = ("Instant", "Action", "Owner", "Files")
_FILES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Doomed:
    """A failed write and the files that would go with it."""

    write: FailedWrite
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do."""

    doomed: tuple[Doomed, ...]
    running: tuple[FailedWrite, ...]
    """Writes that may be running; they are left alone."""
    unpublished: tuple[Instant, ...]
    """Commits that are decided and not yet visible; they are made so."""


@click.group
def rollbacks() -> None:
    """Writes that did not finish."""


@rollbacks.command("show")
@table_command
@archived_option
def show(path: str, *, archived: bool, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the completed rollbacks of the table at PATH, newest first.

    \b
    Example: holdfast rollbacks show lake/trips
    """
    table = opened(path, storage_options)
    archive = archive_of(table, archived=archived)
    records = rollback_records(table, load_timeline(table.store), archived=archive)
    rows = [row for record in records for row in _rows(record)]
    if as_json:
        keys = ("instant", "rolled_back", "total_files_deleted", "took_ms", "total_partitions")
        print_json({"rollbacks": [dict(zip(keys, row, strict=True)) for row in rows]})
    elif rows:
        print_table(_ROLLBACKS, rows)
    else:
        print_line("no rollbacks")


@rollbacks.command("run")
@table_command
@asking
def run(path: str, *, yes: bool, dry_run: bool, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Roll back the failed writes of the table at PATH now, instead of at the next write.

    Writes whose process is alive, or that admit others and whose heartbeat has
    not expired, are left alone. Commits that a writer decided and died before
    showing are shown.

    \b
    Example: holdfast rollbacks run lake/trips --dry-run
    """
    table = opened(path, storage_options)
    plan = _plan(table)
    if not as_json:
        _print_plan(plan)
    reports: tuple[RollbackReport, ...] = ()
    if not dry_run:
        if plan.doomed:
            ask(f"Roll back {counted(len(plan.doomed), 'failed write')}?", yes=yes)
        reports = roll_back_failed_writes(table)
    if as_json:
        print_json(_document(plan, reports, is_dry_run=dry_run))
    else:
        print_reports(reports)


def print_reports(reports: Sequence[RollbackReport]) -> None:
    for report in reports:
        files = counted(len(report.deleted), "file")
        print_line(f"rolled back {report.action} {report.rolled_back} with {report.instant}, {files} deleted")


def report_document(report: RollbackReport) -> dict[str, object]:
    return asdict(report)


def _plan(table: OpenTable) -> Plan:
    timeline, state = load_timeline(table.store), table.ledger.read()
    statuses = {status.instant: status for status in heartbeats(table)}
    failed = failed_writes(table, timeline, state)
    abandoned, left = sort_out(table, failed, statuses, policy=FailedWritesPolicy.EAGER)
    return Plan(
        doomed=tuple(
            Doomed(
                write,
                tuple(file for request in plan_rollback(table, write).requests for file in request.files),
            )
            for write in abandoned
        ),
        running=left,
        unpublished=tuple(instant for instant in timeline.pending_writes if instant.time in state.committed),
    )


def _print_plan(plan: Plan) -> None:
    for write in plan.running:
        owner = write.owner or "another program"
        print_line(f"left alone: {write.action} {write.time}, may still be written by {owner}")
    for instant in plan.unpublished:
        print_line(f"to be shown: {instant.action} {instant.time}, committed by a writer that died")
    if not plan.doomed:
        print_line("nothing to roll back")
        return
    print_table(
        _PLANNED,
        [(one.write.time, one.write.action, one.write.owner, len(one.files)) for one in plan.doomed],
    )
    files = [file for one in plan.doomed for file in one.files]
    for file in files[:_FILES_SHOWN]:
        print_line(f"to be deleted: {file}")
    if len(files) > _FILES_SHOWN:
        print_line(f"and {counted(len(files) - _FILES_SHOWN, 'more file')}; --json lists all")


def _document(plan: Plan, reports: Sequence[RollbackReport], *, is_dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": is_dry_run,
        "planned": [_write_document(one.write) | {"files": one.files} for one in plan.doomed],
        "running": [_write_document(write) for write in plan.running],
        "unpublished": [instant.time for instant in plan.unpublished],
        "rolled_back": [report_document(report) for report in reports],
    }


def _write_document(write: FailedWrite) -> dict[str, object]:
    return {
        "instant": write.time,
        "action": write.action,
        "owner": None if write.owner is None else str(write.owner),
    }


def _rows(record: RollbackRecord) -> list[tuple[object, ...]]:
    """One row for each instant that was rolled back."""
    found = record.metadata
    counts = (found.total_files_deleted, found.time_taken_ms, len(found.partitions))
    return [(record.instant.time, time, *counts) for time in found.commits]
