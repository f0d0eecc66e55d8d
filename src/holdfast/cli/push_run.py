"""`holdfast push run`: a push job, from its file to what queries see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.arguments import pairs, remember_debug
from holdfast.cli.output import print_facts, print_json, print_table, print_warning
from holdfast.cli.progress import stage_bars
from holdfast.model.pushes import source_text
from holdfast.services.documents import Bytes, quantity

if TYPE_CHECKING:
    from holdfast.jobs.push.plan import PushPlan
    from holdfast.jobs.reports import PushReport

_GATES_HEADER = ("Gate", "Expected", "Found")


@click.command("run")
@click.argument("job")
@click.option(
    "--values", multiple=True, callback=pairs, metavar="NAME=VALUE",
    help="What ${NAME} in the job file stands for. Repeats.",
)  # fmt: skip
@click.option("--master", default="local[*]", show_default=True, help="The Spark master.")
@click.option("--dry-run", is_flag=True, help="Show what the job would do, without Spark, and stop.")
@click.option("--json", "as_json", is_flag=True, help="Give one JSON document instead of text.")
@click.option("--debug", is_flag=True, expose_value=False, callback=remember_debug, help="Show tracebacks.")
def push_run(job: str, *, values: Mapping[str, str], master: str, dry_run: bool, as_json: bool) -> None:
    """Push rows as the JOB file says: Pinot's job specification, in YAML or JSON.

    Segments are built by Spark in the deep store. Queries see the old rows
    until all of them are there and every gate has passed, then the new ones.
    A job that fails or is interrupted takes back what it began; a job that was
    killed is cleaned up after by the next. A gate that fails ends the job with
    exit code 3.

    \b
    Example: holdfast push run orders.yaml --values day=2026-11-16
    """
    # Loaded here because Arrow is large, and most commands never need it.
    from holdfast.config.push_job import load_push_job
    from holdfast.jobs.push.run import plan_push_job, run_push_job

    found = load_push_job(job, values)
    if dry_run:
        _show_plan(plan_push_job(found), as_json=as_json)
        return
    with stage_bars() as announce:
        report = run_push_job(found, announce=announce, master=master)
    _show_report(report, as_json=as_json)


def _show_plan(plan: PushPlan, *, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": True, **msgspec.to_builtins(plan, enc_hook=dict)})
        return
    print_facts(
        [
            ("table", plan.table),
            ("the push", plan.mode.value),
            ("from", source_text(plan.source) or "a DataFrame"),
            ("to be stored", f"about {Bytes(plan.expected_bytes)}" if plan.expected_bytes else "unknown"),
            ("segments replaced", len(plan.replaced)),
            ("named like", plan.example),
            ("built in", plan.deep_store),
            ("gates", len(plan.gates)),
        ]
    )
    for warning in plan.warnings:
        print_warning(warning)


def _show_report(report: PushReport, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(report, enc_hook=dict))
        return
    print_facts(_facts(report))
    if report.gates:
        print_table(_GATES_HEADER, [(one.name, one.expected, one.found) for one in report.gates])
    for warning in report.warnings:
        print_warning(warning)


def _facts(report: PushReport) -> Iterator[tuple[str, object]]:
    yield "table", report.table
    yield "pushed", f"{report.rows} rows in {quantity(len(report.segments), 'segment')}"
    yield "size", Bytes(report.bytes)
    yield "replaced", quantity(len(report.replaced), "segment")
    if source_text(report.source):
        yield "from", source_text(report.source)
    yield "lineage entry", report.entry_id or None
    yield "epoch", report.epoch
    yield "seconds", ", ".join(f"{stage} {took:.1f}" for stage, took in report.seconds.items())
