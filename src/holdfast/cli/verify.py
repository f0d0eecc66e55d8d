"""`holdfast verify` and `holdfast repair`: what is wrong with a table, and putting it right."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from holdfast.cli.arguments import PATH, ask, asking, opened, table_command
from holdfast.cli.failures import DONE, EXIT_CODES, FAILED, for_table
from holdfast.cli.output import counted, print_json, print_line, print_table
from holdfast.cli.rollbacks import print_reports, report_document
from holdfast.errors import TableDamaged
from holdfast.model.reports import Finding, RepairReport, Severity, VerifyReport
from holdfast.services.repair_plan import RepairPlan, plan_repair
from holdfast.table.opened import OpenTable

_FINDINGS = ("Severity", "Kind", "Path", "Detail", "Remedy")
_PATHS_SHOWN = 20


@click.command("verify")
@table_command
def verify(path: str, *, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Look for everything that is wrong with the table at PATH. Changes nothing.

    Ends with 5 if something is damaged or missing, with 1 if there are only
    left-overs, and with 0 if there is nothing but work in progress.

    \b
    Example: holdfast verify lake/trips
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.verify import verify as look

    report = look(opened(path, storage_options))
    if as_json:
        print_json(_report_document(report))
    else:
        _print_report(report)
    click.get_current_context().exit(_code(report.findings))


@click.command("repair")
@table_command
@asking
@click.option("--undo", metavar="ID", help="Put back what the repair with this id moved.")
def repair(
    path: str,
    *,
    yes: bool,
    dry_run: bool,
    undo: str | None,
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Move what is nobody's out of the way of the table at PATH, and finish what was decided.

    Files are moved to a quarantine inside the table, from where --undo puts them
    back. What cannot be repaired is listed; then the command ends with 5.

    \b
    Example: holdfast repair lake/trips --dry-run
    """
    table = opened(path, storage_options)
    if undo is None:
        _repair(table, yes=yes, dry_run=dry_run, as_json=as_json)
    else:
        _undo(table, undo, yes=yes, dry_run=dry_run, as_json=as_json)


def _repair(table: OpenTable, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    # Loaded here because they need Arrow, which other commands must not wait for.
    from holdfast.services.repair import repair as mend
    from holdfast.services.verify import verify as look

    report = look(table)
    plan = plan_repair(report.findings)
    if not as_json:
        _print_plan(plan)
    done = RepairReport(quarantine=None, moved=(), rolled_back=(), left=plan.left)
    if not dry_run:
        count = len(plan.moved) + len(plan.finished)
        if count:
            ask(f"Repair {counted(count, 'finding')}?", yes=yes)
        done = mend(table, report)
    if as_json:
        print_json(_repair_document(plan, done, is_dry_run=dry_run))
    elif not dry_run:
        _print_done(done)
    is_damaged = any(finding.severity is Severity.DAMAGE for finding in done.left)
    click.get_current_context().exit(EXIT_CODES[TableDamaged] if is_damaged else DONE)


def _undo(table: OpenTable, quarantine: str, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    from holdfast.services.repair import quarantined, undo_repair

    paths = quarantined(table, quarantine)
    if not as_json:
        _print_paths("to be put back", paths)
    put_back: tuple[str, ...] = ()
    if not dry_run:
        ask(f"Put back {counted(len(paths), 'file')}?", yes=yes)
        put_back = undo_repair(table, quarantine)
    if as_json:
        print_json({"dry_run": dry_run, "quarantine": quarantine, "planned": paths, "put_back": put_back})
    elif not dry_run:
        print_line(f"put back {counted(len(put_back), 'file')}")


def _code(findings: Sequence[Finding]) -> int:
    severities = {finding.severity for finding in findings}
    if Severity.DAMAGE in severities:
        return EXIT_CODES[TableDamaged]
    return FAILED if Severity.WARNING in severities else DONE


def _print_report(report: VerifyReport) -> None:
    _print_findings(report.findings)
    wrong = sum(finding.severity is not Severity.INFO for finding in report.findings)
    verdict = "nothing is wrong" if report.is_clean else counted(wrong, "finding")
    print_line(f"{counted(report.files_checked, 'base file')} checked, {verdict}")


def _print_findings(findings: Sequence[Finding]) -> None:
    path = click.get_current_context().meta[PATH]
    rows = [(f.severity, f.kind, f.path, f.detail, for_table(f.remedy, path)) for f in findings]
    if rows:
        print_table(_FINDINGS, rows)


def _print_plan(plan: RepairPlan) -> None:
    _print_findings(plan.left)
    _print_paths("to be moved", [finding.path for finding in plan.moved])
    for finding in plan.finished:
        print_line(f"to be finished: {finding.path}, {finding.detail}")
    if not plan.moved and not plan.finished:
        print_line("nothing to repair")


def _print_paths(verb: str, paths: Sequence[str]) -> None:
    for path in paths[:_PATHS_SHOWN]:
        print_line(f"{verb}: {path}")
    if len(paths) > _PATHS_SHOWN:
        print_line(f"and {len(paths) - _PATHS_SHOWN} more; --json lists all")


def _print_done(done: RepairReport) -> None:
    print_reports(done.rolled_back)
    if done.quarantine is not None:
        files = counted(len(done.moved), "file")
        print_line(f"moved {files} to quarantine {done.quarantine}; --undo {done.quarantine} puts back")


def _report_document(report: VerifyReport) -> dict[str, object]:
    return {
        "is_clean": report.is_clean,
        "files_checked": report.files_checked,
        "findings": [asdict(finding) for finding in report.findings],
    }


def _repair_document(plan: RepairPlan, done: RepairReport, *, is_dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": is_dry_run,
        "planned": {
            "moved": [asdict(finding) for finding in plan.moved],
            "finished": [asdict(finding) for finding in plan.finished],
        },
        "quarantine": done.quarantine,
        "moved": done.moved,
        "rolled_back": [report_document(report) for report in done.rolled_back],
        "left": [asdict(finding) for finding in done.left],
    }
