"""Reports: a table for the terminal, and a file with every number."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.framework import DISTURBED, Result, Summary, Unit, Verdict, disturbance_of, summaries

_MEGABYTE = 1_000_000


def print_result(console: Console, result: Result, *, cores: int) -> None:
    facts = ", ".join(f"{_number(value)} {name}" for name, value in result.facts.items())
    rounds = f"{len(result.counted)} rounds" + (
        f" in {result.sittings} sittings" if result.sittings > 1 else ""
    )
    console.print()
    console.print(Text.assemble((result.workload, "bold"), (f"  {facts}; {rounds}", "dim")))
    has_written = any(run.written.files for one in result.rounds for run in one.values())
    table = _empty_table(has_written=has_written)
    found = summaries(result)
    for summary in sorted(found, key=lambda summary: summary.variant != result.limit):
        table.add_row(*_row(summary, result.limit, has_written=has_written))
    console.print(table)
    told = "; ".join(_disturbed(result, cores=cores))
    if told:
        console.print(Text(f"other programs took a part of the machine: {told}", style="yellow"))
    if result.replaced:
        console.print(Text(f"disturbed rounds that others replace: {len(result.replaced)}", style="dim"))


def _disturbed(result: Result, *, cores: int) -> Iterator[str]:
    for number, runs in enumerate(result.counted, start=1):
        worst = disturbance_of(runs, cores=cores)
        if worst is not None and worst.share > DISTURBED:
            yield f"{worst.share:.0%} during {worst.variant}, round {number}"


def write_results(
    folder: Path,
    results: Sequence[Result],
    *,
    machine: Mapping[str, str | int],
    moment: dt.datetime,
) -> Path:
    """Store everything that was measured as one JSON file; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    # A file name has no room for the whole names of all workloads.
    names = "+".join(dict.fromkeys(result.workload.split()[0] for result in results))
    path = folder / f"{moment:%Y-%m-%dT%H%M%S}-{names}.json"
    document = {
        "measured_at": moment,
        "machine": machine,
        "workloads": [as_document(result) for result in results],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    return path


def as_document(result: Result) -> dict[str, object]:
    """Everything that was measured of a workload, for a file."""
    return {
        "name": result.workload,
        "limit": result.limit,
        "facts": result.facts,
        "sittings": result.sittings,
        "goals": result.goals,
        "summaries": summaries(result),
        "discarded_rounds": result.rounds[: result.discarded],
        "rounds": result.counted,
        "replaced_rounds": result.replaced,
    }


def _empty_table(*, has_written: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("variant", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("ratio", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    for name in ("CPU s", "ratio", *(("files", "MB") if has_written else ())):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("peak MB: driver, JVM, workers", no_wrap=True)
    return table


def _row(summary: Summary, limit: str, *, has_written: bool) -> list[str | Text]:
    usage, written = summary.median.usage, summary.median.written
    is_limit = summary.variant == limit
    ratio = "1.00 limit" if is_limit else f"{summary.ratio:.2f} "
    spread = "" if is_limit else f"({summary.least_ratio:.2f}–{summary.greatest_ratio:.2f})"
    row: list[str | Text] = [
        summary.variant,
        _seconds(usage.seconds),
        Text.assemble(ratio, (spread, "dim")),
        Text("\n").join(_verdict(verdict) for verdict in summary.verdicts),
        _seconds(usage.cpu_seconds),
        "" if is_limit or summary.cpu_ratio is None else f"{summary.cpu_ratio:.2f}",
    ]
    if has_written:
        row += [f"{written.files:,}", f"{written.size_bytes / _MEGABYTE:,.0f}"]
    peaks = (usage.driver_peak_bytes, usage.jvm_peak_bytes, usage.workers_peak_bytes)
    row.append(" ".join(f"{peak / _MEGABYTE:>6,.0f}" if peak else f"{'–':>6}" for peak in peaks))
    return row


def _verdict(verdict: Verdict) -> Text:
    goal = verdict.goal
    wanted = f"≤ {goal.at_most:g}" + (" s" if goal.unit is Unit.SECONDS else "")
    if goal.compared_with:
        wanted += f" × {goal.compared_with}: {verdict.reached:.2f}"
    if verdict.is_met:
        return Text(f"{wanted} met", style="green")
    return Text(f"{wanted} not met", style="bold red")


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def _number(value: str | int) -> str:
    return f"{value:,}" if isinstance(value, int) else value
