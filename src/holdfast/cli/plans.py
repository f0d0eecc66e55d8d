"""From a plan to its report: shown, asked for, carried out; what was not shown is not done."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.cli.arguments import Mode, ask
from holdfast.cli.output import draw, print_json, print_line
from holdfast.errors import PlanOutdated
from holdfast.services.documents import Document

Plan = TypeVar("Plan")
Report = TypeVar("Report")


def carry_out(
    make_plan: Callable[[], Plan],
    execute: Callable[[Plan], Report],
    *,
    show_plan: Callable[[Plan], Document],
    question: Callable[[Plan], str],
    show_report: Callable[[Plan, Report | None], Document],
    mode: Mode,
) -> tuple[Plan, Report | None]:
    """Show the plan, ask, and carry out exactly it; in a dry run only show it.

    If the table has changed meanwhile so that more would be done, the new plan
    is shown and asked about. With --yes there is no one to ask: `PlanOutdated`.
    """
    while True:
        plan = make_plan()
        shown = show_plan(plan)
        if not mode.as_json:
            draw(shown)
        report: Report | None = None
        if mode.dry_run:
            break
        text = question(plan)
        if text:
            ask(text, yes=mode.yes)
        try:
            report = execute(plan)
            break
        except PlanOutdated:
            if mode.yes or not text:
                raise
            print_line("the table changed meanwhile, and nothing was done; the plan is now:")
    reported = show_report(plan, report)
    if mode.as_json:
        print_json({"dry_run": mode.dry_run, **(shown + reported).fields})
    elif report is not None:
        draw(reported)
    return plan, report
