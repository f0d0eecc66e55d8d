"""Results of the peers: one file for all workloads, plots of each and of all, and an overview to quote.

A later run replaces the workloads that it measured and leaves the others, so a
long contest can be run in parts. Each is kept with its moment and its machine:
numbers are compared within a workload only.
"""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.framework import Result, summaries
from bench.plots import Numbers, plot_bars, plot_ratios
from bench.report import as_document

_FILE = "peers.json"
_OVERVIEW = "peers.md"
_PICTURE = "peers.png"
_MEGABYTE = 1_000_000

Kept = dict[str, dict[str, Any]]
"""A workload's name → what was measured of it last."""


def keep(folder: Path, result: Result, *, machine: Mapping[str, str | int], moment: dt.datetime) -> Path:
    """Put a workload in the place of its earlier self; the path of the overview."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _FILE
    kept: Kept = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    measured = {"measured_at": moment, "machine": machine, **as_document(result)}
    # The last measured comes last: after a whole run all stand in its order.
    kept.pop(result.workload, None)
    kept[result.workload] = msgspec.to_builtins(measured)
    # In one step: hours of earlier runs are in this file.
    whole = path.with_suffix(".part")
    whole.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    whole.replace(path)
    name = re.sub(r"[^a-z0-9]+", "-", result.workload).strip("-")
    plot_bars(folder / f"peers-{name}.png", result.workload, _bars(result))
    plot_ratios(folder / _PICTURE, f"time, as a multiple of {result.limit}'s (logarithmic)", _ratios(kept))
    overview = folder / _OVERVIEW
    overview.write_text(_overview(kept))
    return overview


def _overview(kept: Kept) -> str:
    """Seconds and CPU seconds of every workload and peer, as a table in Markdown, and the goals."""
    peers = list(dict.fromkeys(summary["variant"] for one in kept.values() for summary in one["summaries"]))
    lines = [_line(["seconds (CPU seconds)", *peers]), _line(["---"] * (1 + len(peers)))]
    for name, one in kept.items():
        took = {summary["variant"]: _took(summary) for summary in one["summaries"]}
        lines.append(_line([_title(name, one), *(took.get(peer, "") for peer in peers)]))
    lines += ["", _line(["goal", "at most", "reached", ""]), _line(["---"] * 4)]
    lines += [_line(cells) for name, one in kept.items() for cells in _verdicts(name, one)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _title(name: str, one: Mapping[str, Any]) -> str:
    facts = ", ".join(f"{value:,} {what}" for what, value in one["facts"].items())
    return f"{name} ({facts}; {len(one['rounds'])} counted)"


def _took(summary: Mapping[str, Any]) -> str:
    usage = summary["median"]["usage"]
    return f"{usage['seconds']:.2f} ({usage['cpu_seconds']:.1f})"


def _verdicts(name: str, one: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            f"{name}, beside {verdict['goal']['compared_with']}",
            f"{verdict['goal']['at_most']:.2f}",
            f"{verdict['reached']:.2f}",
            "met" if verdict["is_met"] else "not met",
        ]
        for summary in one["summaries"]
        for verdict in summary["verdicts"]
    ]


def _ratios(kept: Kept) -> list[Numbers]:
    return [
        Numbers(name, {summary["variant"]: summary["ratio"] for summary in one["summaries"]})
        for name, one in kept.items()
    ]


def _bars(result: Result) -> list[Numbers]:
    return [
        Numbers(
            summary.variant,
            {
                "seconds": summary.median.usage.seconds,
                "CPU seconds": summary.median.usage.cpu_seconds,
                "peak MB": (
                    summary.median.usage.driver_peak_bytes
                    + summary.median.usage.jvm_peak_bytes
                    + summary.median.usage.workers_peak_bytes
                )
                / _MEGABYTE,
                "files written": summary.median.written.files,
                "MB written": summary.median.written.size_bytes / _MEGABYTE,
            },
        )
        for summary in summaries(result)
    ]
