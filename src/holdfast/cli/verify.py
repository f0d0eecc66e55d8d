"""`holdfast verify` and `holdfast repair`: what is wrong with a table, and putting it right."""

from collections.abc import Mapping, Sequence

import click

from holdfast.cli.arguments import PATH, Mode, asking, table_command
from holdfast.cli.failures import DONE, EXIT_CODES, FAILED, for_table
from holdfast.cli.output import show
from holdfast.cli.plans import carry_out
from holdfast.errors import TableDamaged
from holdfast.jobs.lake_pushes import ask_services
from holdfast.model.reports import Finding, FindingKind, RepairReport, Severity, VerifyReport
from holdfast.services.documents import Document, Line, quantity
from holdfast.services.presentation import (
    show_quarantine,
    show_repair_plan,
    show_repair_report,
    show_vanishing,
    show_verify_report,
)
from holdfast.services.pushes import push_records, without_settled
from holdfast.services.rehearsals import Rehearsed
from holdfast.services.repair.plan import RepairPlan, plan_repair
from holdfast.table.opened import OpenTable, open_at


@click.command("verify", short_help="Look for everything that is wrong with a table.")
@table_command
@click.option(
    "--as",
    "as_reader",
    type=click.Choice(["hudi-1.2", "hudi-0.15", "hudi-rs"]),
    help="Say also what this reader would see otherwise; that is about merge-on-read tables.",
)
def verify(path: str, *, as_reader: str | None, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Look for everything that is wrong with the table at PATH. Changes nothing.

    Ends with 5 if something is damaged or missing, with 1 if there are only
    left-overs, and with 0 if there is nothing but work in progress.

    \b
    Example: holdfast verify lake/trips
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.verify.verify import verify as look

    table = open_at(path, storage_options)
    report = look(table, as_reader)
    if any(finding.kind is FindingKind.PUSH for finding in report.findings):
        known = push_records(table).pushes
        report = without_settled(report, known, ask_services(known))
    show(show_verify_report(report, _for_this_table), as_json=as_json)
    click.get_current_context().exit(_code(report.findings))


@click.command("repair", short_help="Move stray files away, finish what was decided.")
@table_command
@asking
@click.option("--undo", metavar="ID", help="Put back what the repair with this id moved.")
def repair(
    path: str,
    *,
    undo: str | None,
    mode: Mode,
    storage_options: Mapping[str, str],
) -> None:
    """Move what belongs to no write out of the way of the table at PATH, and finish what was decided.

    Files are moved to a quarantine inside the table, from where --undo puts them
    back. What cannot be repaired is listed; then the command ends with 5.

    \b
    Example: holdfast repair lake/trips --dry-run
    """
    table = open_at(path, storage_options)
    if undo is None:
        _repair(table, mode=mode)
    else:
        _undo(table, undo, mode=mode)


def _repair(table: OpenTable, *, mode: Mode) -> None:
    # Loaded here because they need Arrow, which other commands must not wait for.
    from holdfast.services.repair.repair import rehearse_repair
    from holdfast.services.repair.repair import repair as mend
    from holdfast.services.verify.verify import verify as look

    def make() -> tuple[VerifyReport, RepairPlan, Rehearsed[object] | None]:
        report = look(table)
        rehearsed = rehearse_repair(table, report.findings) if mode.lists_files else None
        return report, plan_repair(report.findings), rehearsed

    def show_plan(made: tuple[VerifyReport, RepairPlan, Rehearsed[object] | None]) -> Document:
        _, plan, rehearsed = made
        moved = [finding.path for finding in plan.moved]
        return show_repair_plan(plan, _for_this_table) + show_vanishing(rehearsed, leave_out=moved)

    def question(made: tuple[VerifyReport, RepairPlan, Rehearsed[object] | None]) -> str:
        plan = made[1]
        count = len(plan.moved) + len(plan.finished) + len(plan.taken_back)
        return f"Repair {quantity(count, 'finding')}?" if count else ""

    (_, plan, _), report = carry_out(
        make,
        lambda made: mend(table, made[0]),
        show_plan=show_plan,
        question=question,
        show_report=lambda made, done: show_repair_report(done or _nothing_done(made[1])),
        mode=mode,
    )
    done = report or _nothing_done(plan)
    is_damaged = any(finding.severity is Severity.DAMAGE for finding in done.left)
    click.get_current_context().exit(EXIT_CODES[TableDamaged] if is_damaged else DONE)


def _nothing_done(plan: RepairPlan) -> RepairReport:
    return RepairReport(quarantine=None, moved=(), rolled_back=(), left=plan.left)


def _undo(table: OpenTable, quarantine: str, *, mode: Mode) -> None:
    from holdfast.services.repair.repair import files_in_quarantine, quarantine_files, undo_repair

    carry_out(
        lambda: files_in_quarantine(table, quarantine),
        lambda _: undo_repair(table, quarantine),
        show_plan=lambda paths: show_quarantine(quarantine, paths, quarantine_files(table, quarantine)),
        question=lambda paths: f"Put back {quantity(len(paths), 'file')}?",
        show_report=lambda _, put_back: Document(
            (Line(f"put back {quantity(len(put_back or ()), 'file')}"),), {"put_back": put_back or ()}
        ),
        mode=mode,
    )


def _code(findings: Sequence[Finding]) -> int:
    severities = {finding.severity for finding in findings}
    if Severity.DAMAGE in severities:
        return EXIT_CODES[TableDamaged]
    return FAILED if Severity.WARNING in severities else DONE


def _for_this_table(remedy: str) -> str:
    return for_table(remedy, click.get_current_context().meta[PATH])
