"""`holdfast cleans` and `holdfast clean`: which old versions of files went, and deleting those that may."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

import click

from holdfast.cleaner import clean_settings
from holdfast.cli.arguments import archive_of, ask, limit_option, opened, pairs, table_command
from holdfast.cli.output import Bytes, counted, print_json, print_line, print_table
from holdfast.model.reports import CleanFile, CleanPlan, CleanReport
from holdfast.read.history import CleanRecord, clean_record, clean_records
from holdfast.timeline.cleans import pending_cleans
from holdfast.timeline.timeline import load_timeline

# Hudi-cli's columns, with its spelling.
_CLEANS = ("CleanTime", "EarliestCommandRetained", "Total Files Deleted", "Total Time Taken")
_PARTITIONS = (
    "Partition Path",
    "Cleaning policy",
    "Total Files Successfully Deleted",
    "Total Failed Deletions",
)
_FILES = ("File", "Size", "Fate", "Reason")
_FORECAST = ("Commits Retained", "Files", "Size")
_FILES_SHOWN = 20


@click.group
def cleans() -> None:
    """Cleans: old versions of files that nobody needs."""


@click.group
def clean() -> None:
    """One clean of a table."""


@cleans.command("show")
@table_command
@limit_option("Show at most N cleans.")
def show(path: str, *, limit: int | None, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the cleans of the table at PATH, newest first, archived ones included.

    \b
    Example: holdfast cleans show lake/trips
    """
    table = opened(path, storage_options)
    timeline = load_timeline(table.store)
    records = clean_records(table, timeline, limit=limit)
    if limit is None or len(records) < limit:
        archive = archive_of(table, archived=True)
        records = clean_records(table, timeline, limit=limit, archived=archive)
    pending = pending_cleans(table.store, timeline, table.ledger.read())
    if as_json:
        print_json({"cleans": [_record_document(one) for one in records], "pending": pending})
        return
    for time in pending:
        print_line(f"not finished: {time}")
    if records:
        print_table(_CLEANS, [_row(one) for one in records])
    elif not pending:
        print_line("no cleans")


@clean.command("showpartitions")
@table_command
@click.option("--clean", "time", required=True, metavar="T", help="The clean's time.")
def showpartitions(path: str, *, time: str, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show what a clean of the table at PATH deleted in each partition.

    \b
    Example: holdfast clean showpartitions lake/trips --clean 20240131093000123
    """
    record = clean_record(opened(path, storage_options), time)
    found = sorted(record.metadata.partitions, key=lambda one: one.partition)
    if as_json:
        print_json({"clean": record.instant.time, "partitions": [asdict(one) for one in found]})
    elif found:
        print_table(
            _PARTITIONS, [(one.partition, one.policy, len(one.deleted), len(one.failed)) for one in found]
        )
    else:
        print_line("nothing was deleted")


@cleans.command("run")
@table_command
@click.option(
    "--hoodie-conf",
    "--hoodieConfigs",
    "conf",
    multiple=True,
    callback=pairs,
    metavar="KEY=VALUE",
    help="An option of cleaning, such as hoodie.clean.commits.retained=10. Repeats.",
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
    """Delete the versions of files of the table at PATH that nobody needs any more.

    What savepoints, leases and the policy keep stays. An interrupted clean is
    finished; failed writes whose heartbeat has expired are rolled back.

    \b
    Example: holdfast cleans run lake/trips --hoodie-conf hoodie.clean.commits.retained=10 --dry-run
    """
    # Loaded here because they need Arrow, which other commands must not wait for.
    from holdfast.services.clean import clean_by_hand
    from holdfast.services.clean_plan import plan_clean

    settings = clean_settings(conf, props)
    table = opened(path, storage_options)
    # A script that cleans every hour need not answer; a person sees what goes.
    asks = not (yes or dry_run or as_json) and sys.stdin.isatty()
    plan = plan_clean(table, settings.clean) if explain or dry_run or asks else None
    if plan is not None and not as_json:
        _print_plan(plan, is_explained=explain)
    report: CleanReport | None = None
    if not dry_run:
        if plan is not None and plan.doomed:
            ask(f"Delete {counted(len(plan.doomed), 'file')}?", yes=not asks)
        with _progress() as progress:
            report = clean_by_hand(table, settings, progress=progress)
    if as_json:
        print_json(_document(plan, report, is_dry_run=dry_run))
    elif report is not None and (report.instant is not None or plan is None or plan.doomed):
        _print_report(report)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Something to tell how many of how many files were dealt with; a terminal shows it as a bar."""
    with ExitStack() as stack:
        bars: list[Any] = []

        def told(done: int, total: int) -> None:
            if not bars and sys.stderr.isatty():
                bar = click.progressbar(length=total, label="deleting", file=sys.stderr)
                bars.append(stack.enter_context(bar))
            for bar in bars:
                bar.update(done - bar.pos)

        yield told


def _print_plan(plan: CleanPlan, *, is_explained: bool) -> None:
    if plan.why_nothing:
        print_line(f"nothing to clean: {plan.why_nothing}")
    if plan.earliest_commit_to_retain is not None:
        print_line(f"earliest commit that stays readable: {plan.earliest_commit_to_retain}")
    if is_explained:
        print_table(_FILES, [*_file_rows(plan.doomed, "deleted"), *_file_rows(plan.kept, "kept")])
    else:
        for file in plan.doomed[:_FILES_SHOWN]:
            print_line(f"to be deleted: {file.path}")
        if len(plan.doomed) > _FILES_SHOWN:
            print_line(f"and {counted(len(plan.doomed) - _FILES_SHOWN, 'more file')}; --explain lists all")
    print_line(f"to be deleted in all: {counted(len(plan.doomed), 'file')}, {Bytes(plan.bytes_freed)}")
    if is_explained:
        print_line("with other numbers of commits retained:")
        rows = [(one.commits_retained, one.files, Bytes(one.size_bytes)) for one in plan.forecast]
        print_table(_FORECAST, rows)


def _file_rows(files: Sequence[CleanFile], fate: str) -> list[tuple[object, ...]]:
    return [(file.path, Bytes(file.size), fate, file.reason) for file in files]


def _print_report(report: CleanReport) -> None:
    if report.instant is None:
        print_line(f"nothing to clean: {report.why_nothing}")
        return
    for one in (*report.resumed, report):
        print_line(
            f"cleaned with {one.instant}: {counted(len(one.deleted), 'file')} deleted,"
            f" {Bytes(one.bytes_freed)} freed"
        )
        for path in one.failed:
            print_line(f"not deleted, the next clean tries again: {path}")


def _row(record: CleanRecord) -> tuple[object, ...]:
    found = record.metadata
    return record.instant.time, found.earliest, found.deleted_count, found.took_ms


def _record_document(record: CleanRecord) -> dict[str, object]:
    keys = ("instant", "earliest_commit_to_retain", "total_files_deleted", "took_ms")
    return dict(zip(keys, _row(record), strict=True))


def _document(plan: CleanPlan | None, report: CleanReport | None, *, is_dry_run: bool) -> dict[str, object]:
    planned = None if plan is None else asdict(plan) | {"bytes_freed": plan.bytes_freed}
    return {
        "dry_run": is_dry_run,
        "planned": planned,
        "cleaned": None if report is None else asdict(report),
    }
