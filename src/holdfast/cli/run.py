"""`holdfast run`: a pipeline, once or again and again."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.arguments import DEBUG, remember_debug
from holdfast.cli.failures import DONE, error_document, exit_code, one_line, printable
from holdfast.cli.output import draw, print_facts, print_json, print_line, print_warning
from holdfast.cli.progress import stage_bars
from holdfast.clock import SystemClock
from holdfast.services.documents import Bytes, Document, quantity
from holdfast.services.presentation import rollback_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.jobs.pipeline import PipelinePlan
    from holdfast.jobs.reports import PipelineReport
    from holdfast.model.reports import Commit

_FILES_SHOWN = 20
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command(short_help="Run a pipeline: source, SQL, table, clean, push.")
@click.argument("pipeline")
@click.option("--once", is_flag=True, help="Run once, which is the default.")
@click.option(
    "--every", "seconds", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="Run again and again, each run this many seconds after the last began.",
)  # fmt: skip
@click.option("--master", default="local[*]", show_default=True, help="The Spark master.")
@click.option("--dry-run", is_flag=True, help="Show what a run would do, without Spark, and stop.")
@click.option("--json", "as_json", is_flag=True, help="Give one JSON document for each run instead of text.")
@click.option("--debug", is_flag=True, expose_value=False, callback=remember_debug, help="Show tracebacks.")
def run(
    pipeline: str, *, once: bool, seconds: float | None, master: str, dry_run: bool, as_json: bool
) -> None:
    """Run the PIPELINE in a YAML file: source, transform, lake table, clean, push.

    Only files that no standing commit has ingested are read. A run that was
    killed is made up for by the next: nothing is ingested twice, nothing is
    left out. With --every a run that fails is reported and the next one tried;
    SIGINT and SIGTERM end it after the run that is under way, a second one at
    once. The exit code is that of the last run.

    \b
    Example: holdfast run trips.yaml --every 60
    """
    if once and seconds is not None:
        raise click.UsageError("--once and --every exclude each other")
    # Loaded here because Arrow is large, and most commands never need it.
    from holdfast.config.pipeline import load_pipeline
    from holdfast.jobs.pipeline import plan_pipeline, run_pipeline

    found = load_pipeline(pipeline)
    if dry_run:
        _show_plan(plan_pipeline(found), as_json=as_json)
        return

    def run_once(spark: SparkSession | None = None) -> None:
        with stage_bars() as announce:
            report = run_pipeline(found, spark=spark, master=master, announce=announce)
        _show_report(report, as_json=as_json)

    if seconds is None:
        run_once()
        return
    from holdfast.jobs.process import spark_session

    # Before the signals are ours: Spark's driver takes SIGINT for itself when it starts.
    session = spark_session(f"holdfast run {found.name}", master)
    code = _run_every(seconds, lambda: run_once(session), as_json=as_json)
    if code != DONE:
        raise click.exceptions.Exit(code)


def _run_every(seconds: float, run_once: Callable[[], None], *, as_json: bool) -> int:
    """Run until a signal comes; the code of the last run that came to an end."""
    clock, stopped = SystemClock(), threading.Event()
    is_debug = bool(click.get_current_context().meta.get(DEBUG))
    code = DONE
    with _signals(stopped), suppress(KeyboardInterrupt):
        while True:
            began_ms = clock.monotonic_ms()
            code = _try_run(run_once, is_debug=is_debug, as_json=as_json)
            took = (clock.monotonic_ms() - began_ms) / 1000
            if stopped.wait(max(0.0, seconds - took)):
                break
    return code


def _try_run(run_once: Callable[[], None], *, is_debug: bool, as_json: bool) -> int:
    try:
        run_once()
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  # the loop that keeps a pipeline running
        if is_debug:
            traceback.print_exc()
        click.echo(printable(f"holdfast: {one_line(error)}"), err=True)
        if as_json:
            print_json(error_document(error))
        return exit_code(error)
    return DONE


@contextmanager
def _signals(stopped: threading.Event) -> Iterator[None]:
    """The first signal lets the run that is under way finish; the second interrupts it."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()
        click.echo("holdfast: stopping when this run is over; once more stops at once", err=True)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_plan(plan: PipelinePlan, *, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": True, **msgspec.to_builtins(plan)})
        return
    print_facts(
        [
            ("pipeline", plan.name),
            ("table", "will be created" if plan.creates_table else "is there"),
            ("new files", f"{len(plan.files)}, {Bytes(plan.size_bytes)}"),
            ("left to later runs", quantity(plan.files_left, "file")),
            ("transform", "is Spark SQL" if plan.is_transform_parsed else None),
            ("to be pushed", _describe_push(plan)),
        ]
    )
    for file in plan.files[:_FILES_SHOWN]:
        print_line(f"  {file.uri}")
    if len(plan.files) > _FILES_SHOWN:
        print_line(f"  and {len(plan.files) - _FILES_SHOWN} more")


def _describe_push(plan: PipelinePlan) -> str:
    if not plan.pushes_to:
        return "nothing: the pipeline has no push"
    if not plan.files and plan.push is None:
        return f"nothing new to {plan.pushes_to}"
    what = "what this run commits" if plan.files else f"commit {plan.push}"
    return f"{what}, to {plan.pushes_to}, after {quantity(plan.gates, 'gate')}"


def _show_report(report: PipelineReport, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(report, enc_hook=dict))
        return
    commits = _commits(report)
    for commit in commits:
        draw(Document(rollback_lines(commit.rolled_back)))
    print_facts(_facts(report, commits))
    for commit in commits:
        for problem in commit.post_commit_errors:
            print_warning(f"commit {commit.instant} stands, but afterwards: {problem}")
    for warning in report.warnings:
        print_warning(warning)


def _facts(report: PipelineReport, commits: list[Commit]) -> Iterator[tuple[str, object]]:
    yield "pipeline", report.name
    if report.files or not commits:
        left = f", {quantity(report.files_left, 'file')} left" if report.files_left else ""
        yield "new files", f"{len(report.files)}{left}"
    if commits:
        yield "commit", ", ".join(commit.instant for commit in commits)
        yield "records written", sum(commit.records_written for commit in commits)
        yield (
            "inserted, updated, deleted",
            ", ".join(
                str(sum(getattr(commit, name) for commit in commits))
                for name in ("records_inserted", "records_updated", "records_deleted")
            ),
        )
        size = sum(commit.bytes_written for commit in commits)
        yield "files written", f"{sum(commit.files_written for commit in commits)}, {Bytes(size)}"
    else:
        yield "commit", "nothing new"
    if report.rejected:
        yield "rejected", f"{quantity(report.rejected, 'row')}, listed in {report.rejects}"
    if report.clean is not None:
        yield "cleaned", f"{quantity(len(report.clean.deleted), 'file')}, {Bytes(report.clean.bytes_freed)}"
    if report.push is not None:
        yield "pushed", f"{report.push.rows} rows in {quantity(len(report.push.segments), 'segment')}"
        yield "gates passed", len(report.push.gates)
        yield "lineage entry", report.push.entry_id or None
    yield "seconds", ", ".join(f"{stage} {took:.1f}" for stage, took in report.seconds.items())


def _commits(report: PipelineReport) -> list[Commit]:
    return [*report.earlier, *([] if report.commit is None else [report.commit])]
