"""`holdfast cleans`: which old versions of files went, and deleting those that may."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

import click

from holdfast.cleaner import clean_settings
from holdfast.cli.arguments import Mode, ShownByDefault, archive_of, conf_option, limit_option, table_command
from holdfast.cli.output import show as show_document
from holdfast.cli.plans import carry_out
from holdfast.model.reports import CleanPlan, CleanReport
from holdfast.read.history import CleanRecord, clean_record, clean_records
from holdfast.services.documents import Block, Document, Line, Rows, quantity
from holdfast.services.presentation import show_clean_plan, show_clean_report
from holdfast.table.clean_plans import pending_cleans
from holdfast.table.opened import open_at
from holdfast.timeline.timeline import load_timeline

# Hudi-cli's columns, with its spelling.
_CLEANS = ("CleanTime", "EarliestCommandRetained", "Total Files Deleted", "Total Time Taken")
_PARTITIONS = (
    "Partition Path",
    "Cleaning policy",
    "Total Files Successfully Deleted",
    "Total Failed Deletions",
)


@click.group(cls=ShownByDefault)
def cleans() -> None:
    """Cleans: old versions of files that are not needed."""


@cleans.command("show")
@table_command
@limit_option("Show at most N cleans.")
def show(path: str, *, limit: int | None, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the cleans of the table at PATH, newest first, archived ones included.

    \b
    Example: holdfast cleans show lake/trips
    """
    table = open_at(path, storage_options)
    timeline = load_timeline(table.store)
    records = clean_records(table, timeline, limit=limit)
    if limit is None or len(records) < limit:
        archive = archive_of(table, archived=True)
        records = clean_records(table, timeline, limit=limit, archived=archive)
    pending = pending_cleans(table.store, timeline, table.ledger.read())
    rows = [_row(record) for record in records]
    blocks: list[Block] = [Line(f"not finished: {time}") for time in pending]
    if rows or not pending:
        blocks.append(Rows(_CLEANS, rows, ("Total Time Taken",)) if rows else Line("no cleans"))
    keys = ("instant", "earliest_commit_to_retain", "total_files_deleted", "took_ms")
    fields = {"cleans": [dict(zip(keys, row, strict=True)) for row in rows], "pending": pending}
    show_document(Document(tuple(blocks), fields), as_json=as_json)


@cleans.command("showpartitions")
@table_command
@click.option("--clean", "time", required=True, metavar="T", help="The clean's time.")
def showpartitions(path: str, *, time: str, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show what a clean of the table at PATH deleted in each partition.

    \b
    Example: holdfast cleans showpartitions lake/trips --clean 20240131093000123
    """
    record = clean_record(open_at(path, storage_options), time)
    found = sorted(record.metadata.partitions, key=lambda one: one.partition)
    rows = [(one.partition, one.policy, len(one.deleted), len(one.failed)) for one in found]
    block = Rows(_PARTITIONS, rows, ("Cleaning policy",)) if rows else Line("nothing was deleted")
    fields = {"clean": record.instant.time, "partitions": [asdict(one) for one in found]}
    show_document(Document((block,), fields), as_json=as_json)


@cleans.command("run")
@table_command
@conf_option(
    "An option of cleaning, such as hoodie.clean.commits.retained=10. Repeats.",
    "--hoodie-conf",
    "--hoodieConfigs",
)
@click.option(
    "--props", "--propsFilePath", "props", metavar="FILE", help="A properties file with such options."
)
@click.option("--explain", is_flag=True, help="Say of every file why it goes or stays.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and stop.")
@click.option("--yes", is_flag=True, help="Do not ask; only a terminal is asked.")
def run(
    path: str,
    *,
    conf: Mapping[str, str],
    props: str | None,
    explain: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Delete the versions of files of the table at PATH that are not needed any more.

    What savepoints, leases and the policy keep stays. An interrupted clean is
    finished; failed writes whose heartbeat has expired are rolled back.

    \b
    Example: holdfast cleans run lake/trips --hoodie-conf hoodie.clean.commits.retained=10 --dry-run
    """
    # Loaded here because they need Arrow, which other commands must not wait for.
    from holdfast.services.clean.clean import clean as clean_table
    from holdfast.services.clean.clean import execute_clean, plan_clean

    settings = clean_settings(conf, props)
    table = open_at(path, storage_options)
    # A script that cleans every hour need not answer; a person sees what goes.
    asks = not (yes or dry_run or as_json) and sys.stdin.isatty()

    def execute(plan: CleanPlan | None) -> CleanReport:
        with _progress() as progress:
            if plan is None:
                return clean_table(table, settings, progress=progress)
            return execute_clean(table, plan, settings, progress=progress)

    def show_report(plan: CleanPlan | None, report: CleanReport | None) -> Document:
        document = show_clean_report(report)
        is_news = report is not None and (report.instant is not None or plan is None or plan.vanishing)
        return document if is_news else Document(fields=document.fields)

    carry_out(
        lambda: plan_clean(table, settings) if explain or dry_run or asks else None,
        execute,
        show_plan=lambda plan: show_clean_plan(plan, is_explained=explain),
        question=lambda plan: (
            f"Delete {quantity(len(plan.vanishing), 'file')}?" if plan is not None and plan.vanishing else ""
        ),
        show_report=show_report,
        mode=Mode(not asks, dry_run, as_json),
    )


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Something to tell how many of how many files were dealt with; a terminal shows it as a bar."""
    with ExitStack() as stack:
        bars: list[Any] = []

        def report(done: int, total: int) -> None:
            if not bars and sys.stderr.isatty():
                bar = click.progressbar(length=total, label="deleting", file=sys.stderr)
                bars.append(stack.enter_context(bar))
            for bar in bars:
                bar.update(done - bar.pos)

        yield report


def _row(record: CleanRecord) -> tuple[object, ...]:
    found = record.metadata
    return record.instant.time, found.earliest, found.deleted_count, found.took_ms
