"""`holdfast restore` and `holdfast undo`: going back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import click

from holdfast.cli.arguments import ask, asking, opened, table_command
from holdfast.cli.output import Bytes, counted, print_json, print_line, print_table
from holdfast.cli.rollbacks import print_reports, report_document
from holdfast.errors import Conflict
from holdfast.model.instant import InstantTime
from holdfast.model.reports import RestorePlan, RestoreReport, RollbackReport, TakenBack
from holdfast.table.opened import OpenTable

_HEADER = ("Instant", "Action", "State", "Records", "Files", "Size")


@click.command
@table_command
@click.option("--to", "to", required=True, metavar="T", help="A commit's time, or a date and time.")
@asking
def restore(
    path: str, *, to: str, yes: bool, dry_run: bool, as_json: bool, storage_options: Mapping[str, str]
) -> None:
    """Take the table at PATH back to a commit; every younger one is deleted.

    A date and time means the newest commit at or before it. The result is
    proven before the table can be written again; an interrupted restore is
    resumed by the same command.

    \b
    Example: holdfast restore lake/trips --to 20240131093000123 --dry-run
    """
    run_restore(opened(path, storage_options), to, yes=yes, dry_run=dry_run, as_json=as_json)


@click.command
@table_command
@asking
def undo(path: str, *, yes: bool, dry_run: bool, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Take back the newest commit of the table at PATH.

    An undo that was interrupted is finished instead.

    \b
    Example: holdfast undo lake/trips --dry-run
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.previews import preview_undo
    from holdfast.services.undo import roll_back_instant

    table = opened(path, storage_options)
    # Not whatever is the newest after the question, but the commit that was shown.
    run_rollback(
        preview_undo(table),
        lambda planned: roll_back_instant(table, planned),
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
    )


def run_rollback(
    planned: TakenBack,
    carry_out: Callable[[InstantTime], RollbackReport],
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show what one rollback takes, ask, and roll back."""
    if not as_json:
        _print_instants([planned])
    report: RollbackReport | None = None
    if not dry_run:
        ask(f"Take back {planned.action} {planned.instant}?", yes=yes)
        report = carry_out(planned.instant)
    if as_json:
        rolled_back = None if report is None else report_document(report)
        print_json({"dry_run": dry_run, "planned": asdict(planned), "rolled_back": rolled_back})
    elif report is not None:
        print_reports([report])


def run_restore(table: OpenTable, to: str, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Show what a restore takes, ask, and restore."""
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.restore import restore as restore_table
    from holdfast.services.restore_plan import plan_restore

    plan = plan_restore(table, to)
    if not as_json:
        _print_plan(plan)
    report: RestoreReport | None = None
    if not dry_run:
        if plan.instants or plan.resumes:
            ask(f"Restore the table to {plan.target}?", yes=yes)
        if not yes and plan_restore(table, to) != plan:
            raise Conflict("the table changed after the plan was shown", hint="look at the plan again")
        report = restore_table(table, plan.target)
    if as_json:
        print_json(_document(plan, report, is_dry_run=dry_run))
    elif report is not None:
        _print_report(report)


def _print_plan(plan: RestorePlan) -> None:
    if plan.resumes is not None:
        print_line(f"restore {plan.resumes} was begun and is to be finished")
    if not plan.instants:
        print_line(f"nothing to take back: {plan.target} is the newest commit")
        return
    _print_instants(plan.instants)
    print_line(f"to be deleted: {counted(plan.files, 'file')}, {Bytes(plan.size_bytes)}")


def _print_instants(instants: Sequence[TakenBack]) -> None:
    print_table(_HEADER, [_row(one) for one in instants])


def _row(one: TakenBack) -> tuple[object, ...]:
    state = "committed" if one.is_committed else f"unfinished, by {one.owner or 'another program'}"
    return one.instant, one.action, state, one.records, one.files, Bytes(one.size_bytes)


def _print_report(report: RestoreReport) -> None:
    for one in report.rolled_back:
        print_line(f"took back {one.action} {one.rolled_back}, {counted(len(one.deleted), 'file')} deleted")
    if report.instant is not None:
        print_line(f"restored the table to {report.target} with {report.instant}")


def _document(plan: RestorePlan, report: RestoreReport | None, *, is_dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": is_dry_run,
        "planned": asdict(plan) | {"files": plan.files, "size_bytes": plan.size_bytes},
        "restored": None if report is None else asdict(report),
    }
