"""`holdfast archive`: keep the active timeline short."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli.arguments import opened, pairs, table_command
from holdfast.cli.output import counted, iso, print_json, print_line, print_table
from holdfast.config.write import WriteSettings
from holdfast.model.instant import COMMIT_ACTIONS, Instant
from holdfast.model.reports import ArchiveReport

if TYPE_CHECKING:
    from holdfast.services.archive_plan import Plan

_INSTANTS = ("Instant", "Action", "Completed Time (UTC)")


@click.group
def archive() -> None:
    """Old instants: the part of the timeline that no query needs."""


@archive.command("run")
@table_command
@click.option(
    "--hoodie-conf",
    "conf",
    multiple=True,
    callback=pairs,
    metavar="KEY=VALUE",
    help="An option of archiving, such as hoodie.keep.min.commits=20. Repeats.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and stop.")
def run(
    path: str, *, conf: Mapping[str, str], dry_run: bool, as_json: bool, storage_options: Mapping[str, str]
) -> None:
    """Take the oldest instants of the table at PATH from its timeline, if enough commits have gathered.

    No query gives another result afterwards. `timeline show --archived` shows
    them. What savepoints, leases, cleans or unfinished writes need stays.

    \b
    Example: holdfast archive run lake/trips --hoodie-conf hoodie.keep.max.commits=50 --dry-run
    """
    # Loaded here because they need Arrow, which other commands must not wait for.
    from holdfast.services.archive import archive_by_hand, plan_next_archive

    settings = WriteSettings.from_options(conf)
    table = opened(path, storage_options)
    if dry_run:
        plan = plan_next_archive(table, settings.archive)
        if as_json:
            print_json(_plan_document(plan))
        else:
            _print_plan(plan)
        return
    report = archive_by_hand(table, settings)
    if as_json:
        print_json(_report_document(report))
    else:
        _print_report(report)


def _print_plan(plan: "Plan") -> None:
    if plan.instants:
        print_table(_INSTANTS, [(i.time, i.action, i.completed_at) for i in plan.instants])
    else:
        print_line("nothing to archive")
    if plan.held_back:
        print_line(f"not more, because {plan.held_back}")


def _print_report(report: ArchiveReport) -> None:
    if report.resumed:
        print_line(f"finished what was begun: {_counts(report.resumed)}")
    if report.archived:
        print_line(f"archived {_counts(report.archived)} in {report.file}")
        print_line(f"{counted(report.commits_left, 'commit')} left on the timeline")
    elif not report.resumed:
        print_line("nothing to archive")
    if report.held_back:
        print_line(f"not more, because {report.held_back}")


def _counts(instants: tuple[Instant, ...]) -> str:
    commits = sum(instant.action in COMMIT_ACTIONS for instant in instants)
    others = len(instants) - commits
    text = counted(commits, "commit")
    return f"{text} and {counted(others, 'other instant')}" if others else text


def _plan_document(plan: "Plan") -> dict[str, object]:
    return {
        "dry_run": True,
        "archived": [_instant_document(instant) for instant in plan.instants],
        "held_back": plan.held_back,
    }


def _report_document(report: ArchiveReport) -> dict[str, object]:
    document = asdict(report)
    for name in ("archived", "resumed"):
        document[name] = [_instant_document(instant) for instant in getattr(report, name)]
    return {"dry_run": False, **document}


def _instant_document(instant: Instant) -> dict[str, object]:
    return {"instant": instant.time, "action": instant.action, "completed_at": iso(instant.completed_at)}
