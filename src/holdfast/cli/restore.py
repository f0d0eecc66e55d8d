"""`holdfast restore` and `holdfast undo`: going back."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from holdfast.cli.arguments import ask, asking, opened, table_command
from holdfast.cli.output import Bytes, counted, print_json, print_line, print_table
from holdfast.cli.rollbacks import print_reports, report_document
from holdfast.cli.with_pushes import ServedCommits, has_reverts, run_reverts, with_pushes_option
from holdfast.errors import Conflict
from holdfast.jobs.published import plan_reverts
from holdfast.model.reports import RestorePlan, RestoreReport, RollbackReport, TakenBack
from holdfast.table.opened import OpenTable

NOTHING_ROLLED_BACK: Mapping[str, object] = {"planned": None, "rolled_back": None}
"""What the document of a rollback says when there was only something to revert."""

_HEADER = ("Instant", "Action", "State", "Records", "Files", "Size")


@click.command
@table_command
@click.option("--to", "to", required=True, metavar="T", help="A commit's time, or a date and time.")
@with_pushes_option
@asking
def restore(
    path: str,
    *,
    to: str,
    with_pushes: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Take the table at PATH back to a commit; every younger one is deleted.

    A date and time means the newest commit at or before it. The result is
    proven before the table can be written again; an interrupted restore is
    resumed by the same command.

    \b
    Example: holdfast restore lake/trips --to 20240131093000123 --dry-run
    """
    table = opened(path, storage_options)
    run_restore(table, to, with_pushes=with_pushes, yes=yes, dry_run=dry_run, as_json=as_json)


@click.command
@table_command
@with_pushes_option
@asking
def undo(
    path: str,
    *,
    with_pushes: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Take back the newest commit of the table at PATH.

    An undo that was interrupted is finished instead. With --with-pushes so is
    reverting what is served of commits that were taken back before.

    \b
    Example: holdfast undo lake/trips --dry-run
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.previews import preview_undo
    from holdfast.services.undo import interrupted_undo

    table = opened(path, storage_options)
    if with_pushes and interrupted_undo(table) is None:
        # Whoever repeats this after a crash means the commit that is gone, not the one before it.
        left = plan_reverts(table)
        if has_reverts(left):
            if not as_json:
                print_line("commits that were taken back before are still served; no other is taken back now")
            run_reverts(table, left, yes=yes, dry_run=dry_run, as_json=as_json, document=NOTHING_ROLLED_BACK)
            return
    run_rollback(
        table, preview_undo(table), with_pushes=with_pushes, yes=yes, dry_run=dry_run, as_json=as_json
    )


def run_rollback(
    table: OpenTable, planned: TakenBack, *, with_pushes: bool, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Show what one rollback takes, ask, and roll back."""
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.undo import roll_back_instant

    served = ServedCommits(table, [planned.instant], with_pushes=with_pushes)
    if not as_json:
        _print_instants([planned])
        served.print_plan()
    report: RollbackReport | None = None
    if not dry_run:
        ask(f"Take back {planned.action} {planned.instant}?", yes=yes)
        # Not whatever is the newest after the question, but the commit that was shown.
        report = roll_back_instant(table, planned.instant)
        served.revert()
    if as_json:
        rolled_back = None if report is None else report_document(report)
        document = {"dry_run": dry_run, "planned": asdict(planned), "rolled_back": rolled_back}
        print_json(document | served.document(is_done=not dry_run))
    elif report is not None:
        print_reports([report])
        served.print_report()


def run_restore(
    table: OpenTable, to: str, *, with_pushes: bool, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Show what a restore takes, ask, and restore."""
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.restore import restore as restore_table
    from holdfast.services.restore_plan import plan_restore

    plan = plan_restore(table, to)
    served = ServedCommits(table, [one.instant for one in plan.instants], with_pushes=with_pushes)
    if not as_json:
        _print_plan(plan)
        served.print_plan()
    report: RestoreReport | None = None
    if not dry_run:
        if plan.instants or plan.resumes or served.has_reverts:
            ask(f"Restore the table to {plan.target}?", yes=yes)
        if not yes and plan_restore(table, to) != plan:
            raise Conflict("the table changed after the plan was shown", hint="look at the plan again")
        report = restore_table(table, plan.target)
        served.revert()
    if as_json:
        print_json(_document(plan, report, is_dry_run=dry_run) | served.document(is_done=not dry_run))
    elif report is not None:
        _print_report(report)
        served.print_report()


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
