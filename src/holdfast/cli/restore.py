"""`holdfast restore` and `holdfast undo`: going back."""

from collections.abc import Callable, Mapping
from functools import partial

import click

from holdfast.cli.arguments import Mode, asking, table_command
from holdfast.cli.output import print_line
from holdfast.cli.plans import carry_out
from holdfast.cli.with_pushes import ServedCommits, WithPushes, has_reverts, run_reverts, with_pushes_option
from holdfast.jobs.lake_pushes import plan_reverts
from holdfast.model.reports import RestorePlan, RestoreReport, RollbackReport, TakenBack
from holdfast.read.savepoints import LATEST_SAVEPOINT, commit_of_savepoint
from holdfast.services.presentation import (
    show_restore_plan,
    show_restore_report,
    show_rollback,
    show_taken_back,
    show_vanishing,
)
from holdfast.services.rehearsals import Rehearsed, rehearse
from holdfast.table.opened import OpenTable, open_at

_TO = f"A commit's time, a date and time, a savepoint's comment, or {LATEST_SAVEPOINT}."

NOTHING_ROLLED_BACK: Mapping[str, object] = {"planned": None, "rolled_back": None}
"""What the document of a rollback says when there was only something to revert."""


@click.command(short_help="Take a table back to a commit or a savepoint.")
@table_command
@click.option("--to", "to", required=True, metavar="T", help=_TO)
@with_pushes_option
@asking
def restore(
    path: str,
    *,
    to: str,
    with_pushes: WithPushes | None,
    mode: Mode,
    storage_options: Mapping[str, str],
) -> None:
    """Take the table at PATH back to a commit; every younger one is deleted.

    A date and time means the newest commit at or before it. The result is
    proven before the table can be written again; an interrupted restore is
    resumed by the same command.

    \b
    Example: holdfast restore lake/trips --to 20240131093000123 --dry-run
    Example: holdfast restore lake/trips --to "before the import"
    """
    table = open_at(path, storage_options)
    run_restore(table, commit_of_savepoint(table, to), with_pushes=with_pushes, mode=mode)


@click.command
@table_command
@click.option("--to", "to", metavar="T", help=f"Take back all after T, as restore does. {_TO}")
@click.option(
    "--replay",
    is_flag=True,
    help="Of a streamed commit: have its stream, which is stopped, read the batch again.",
)
@click.option(
    "--checkpoint", metavar="DIR", default="", help="With --replay: the stream's checkpoint, if unknown."
)
@with_pushes_option
@asking
def undo(
    path: str,
    *,
    to: str | None,
    replay: bool,
    checkpoint: str,
    with_pushes: WithPushes | None,
    mode: Mode,
    storage_options: Mapping[str, str],
) -> None:
    """Take back the newest commit of the table at PATH.

    An undo that was interrupted is finished instead. With --with-pushes so is
    reverting what is served of commits that were taken back before.

    \b
    Example: holdfast undo lake/trips --dry-run
    Example: holdfast undo lake/trips --to latest-savepoint
    """
    if checkpoint and not replay:
        raise click.UsageError("--checkpoint needs --replay")
    if replay and (to is not None or with_pushes):
        raise click.UsageError("--replay goes with neither --to nor --with-pushes")
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.rollback.plan import plan_undo
    from holdfast.services.rollback.undo import find_interrupted_undo

    table = open_at(path, storage_options)
    if to is not None:
        run_restore(table, commit_of_savepoint(table, to), with_pushes=with_pushes, mode=mode)
        return
    if with_pushes and find_interrupted_undo(table) is None:
        # A repetition of this after a crash means the commit that is gone, not the one before it.
        left = plan_reverts(table)
        if has_reverts(left):
            if not mode.as_json:
                print_line("commits that were taken back before are still served; no other is taken back now")
            run_reverts(table, left, to_empty=with_pushes.to_empty, mode=mode, document=NOTHING_ROLLED_BACK)
            return
    before: Callable[..., None] | None = None
    if replay:
        before = partial(_replay, table, checkpoint, storage_options, mode)
    run_rollback(
        table,
        lambda: plan_undo(table),
        with_pushes=with_pushes,
        mode=mode,
        before=before,
    )


def _replay(
    table: OpenTable,
    checkpoint: str,
    storage_options: Mapping[str, str],
    mode: Mode,
    plan: TakenBack,
    *,
    is_done: bool,
) -> None:
    """Check that the batch can be read again, and, once that is agreed, have it read again."""
    from holdfast.services.rollback.replay import execute_replay, plan_replay

    found = plan_replay(table, plan.instant, plan.action, checkpoint, storage_options)
    if is_done:
        execute_replay(found, storage_options)
    if not mode.as_json:
        verb = "is read again" if is_done else "would be read again"
        print_line(
            f"batch {found.batch.number} of the stream {found.batch.query} {verb} when it is started;"
            " it must not run now"
        )


def run_rollback(
    table: OpenTable,
    make_plan: Callable[[], TakenBack],
    *,
    with_pushes: WithPushes | None,
    mode: Mode,
    before: Callable[..., None] | None = None,
) -> None:
    """Show what one rollback takes, ask, and roll back."""
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.rollback.undo import execute_rollback, roll_back_instant

    def make() -> tuple[TakenBack, Rehearsed[RollbackReport] | None, ServedCommits]:
        plan = make_plan()
        if before is not None:
            before(plan, is_done=False)
        is_shown = mode.lists_files
        rehearsed = rehearse(table, lambda one: roll_back_instant(one, plan.instant)) if is_shown else None
        return plan, rehearsed, ServedCommits(table, [plan.instant], with_pushes=with_pushes)

    def execute(
        planned: tuple[TakenBack, Rehearsed[RollbackReport] | None, ServedCommits],
    ) -> RollbackReport:
        plan, _, served = planned
        if before is not None:
            before(plan, is_done=True)
        # Not whatever is the newest after the question, but the commit that was shown.
        report = execute_rollback(table, plan)
        served.revert()
        return report

    def question(planned: tuple[TakenBack, Rehearsed[RollbackReport] | None, ServedCommits]) -> str:
        planned[2].check_to_empty()
        return f"Take back {planned[0].action} {planned[0].instant}?"

    carry_out(
        make,
        execute,
        show_plan=lambda made: show_taken_back(made[0]) + show_vanishing(made[1]) + made[2].show_plan(),
        question=question,
        show_report=lambda made, report: (
            show_rollback(report) + made[2].show_report(is_done=not mode.dry_run)
        ),
        mode=mode,
    )


def run_restore(table: OpenTable, to: str, *, with_pushes: WithPushes | None, mode: Mode) -> None:
    """Show what a restore takes, ask, and restore."""
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.restore.plan import plan_restore
    from holdfast.services.restore.restore import execute_restore, rehearse_restore

    def make() -> tuple[RestorePlan, ServedCommits]:
        plan = rehearse_restore(table, to) if mode.lists_files else plan_restore(table, to)
        return plan, ServedCommits(table, [one.instant for one in plan.instants], with_pushes=with_pushes)

    def execute(planned: tuple[RestorePlan, ServedCommits]) -> RestoreReport:
        plan, served = planned
        report = execute_restore(table, plan)
        served.revert()
        return report

    def question(planned: tuple[RestorePlan, ServedCommits]) -> str:
        plan, served = planned
        served.check_to_empty()
        is_asked = plan.instants or plan.resumes or served.has_reverts
        return f"Restore the table to {plan.target}?" if is_asked else ""

    carry_out(
        make,
        execute,
        show_plan=lambda made: show_restore_plan(made[0]) + made[1].show_plan(),
        question=question,
        show_report=lambda made, report: (
            show_restore_report(report) + made[1].show_report(is_done=not mode.dry_run)
        ),
        mode=mode,
    )
