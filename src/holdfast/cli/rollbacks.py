"""`holdfast rollbacks`: what was rolled back, and rolling back what dead writers left."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import (
    Mode,
    ShownByDefault,
    archive_of,
    asking,
    include_archived_option,
    table_command,
)
from holdfast.cli.output import show as show_document
from holdfast.cli.plans import carry_out
from holdfast.model.reports import RollbackReport
from holdfast.read.history import RollbackRecord, rollback_records
from holdfast.services.documents import Document, Line, Rows, quantity
from holdfast.services.presentation import show_recovery_plan, show_rollbacks, show_vanishing
from holdfast.services.rehearsals import Rehearsed, rehearse
from holdfast.services.rollback.recovery import RecoveryPlan, execute_recovery, plan_recovery
from holdfast.services.rollback.rollback import roll_back_failed_writes
from holdfast.table.opened import open_at
from holdfast.timeline.timeline import load_timeline

_ROLLBACKS = (
    "Instant",
    "Rolledback Instant",
    "Total Files Deleted",
    "Time taken in millis",
    "Total Partitions",
)


@click.group(cls=ShownByDefault)
def rollbacks() -> None:
    """Writes that did not finish."""


@rollbacks.command("show")
@table_command
@include_archived_option
def show(path: str, *, archived: bool, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the completed rollbacks of the table at PATH, newest first.

    \b
    Example: holdfast rollbacks show lake/trips
    """
    table = open_at(path, storage_options)
    archive = archive_of(table, archived=archived)
    records = rollback_records(table, load_timeline(table.store), archived=archive)
    rows = [row for record in records for row in _rows(record)]
    keys = ("instant", "rolled_back", "total_files_deleted", "took_ms", "total_partitions")
    block = (
        Rows(_ROLLBACKS, rows, ("Time taken in millis", "Total Partitions")) if rows else Line("no rollbacks")
    )
    fields = {"rollbacks": [dict(zip(keys, row, strict=True)) for row in rows]}
    show_document(Document((block,), fields), as_json=as_json)


@rollbacks.command("run")
@table_command
@asking
def run(path: str, *, mode: Mode, storage_options: Mapping[str, str]) -> None:
    """Roll back the failed writes of the table at PATH now, instead of at the next write.

    Writes whose process is alive, or that admit others and whose heartbeat has
    not expired, are left alone. Commits that a writer decided and died before
    showing are shown.

    \b
    Example: holdfast rollbacks run lake/trips --dry-run
    """
    table = open_at(path, storage_options)

    def make() -> tuple[RecoveryPlan, Rehearsed[tuple[RollbackReport, ...]] | None]:
        rehearsed = rehearse(table, roll_back_failed_writes) if mode.lists_files else None
        return plan_recovery(table), rehearsed

    carry_out(
        make,
        lambda made: execute_recovery(table, made[0]),
        show_plan=lambda made: show_recovery_plan(made[0]) + show_vanishing(made[1]),
        question=lambda made: (
            f"Roll back {quantity(len(made[0].doomed), 'failed write')}?" if made[0].doomed else ""
        ),
        show_report=lambda _, reports: show_rollbacks(reports or ()),
        mode=mode,
    )


def _rows(record: RollbackRecord) -> list[tuple[object, ...]]:
    """One row for each instant that was rolled back."""
    found = record.metadata
    counts = (found.total_files_deleted, found.time_taken_ms, len(found.partitions))
    return [(record.instant.time, time, *counts) for time in found.commits]
