"""Plots: what was measured, as PNG files."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

_INCHES = 4.5
_PIXELS_PER_INCH = 110
_MARKERS = "oDs^vP"
_WHOLE = 100
"""From here on numbers are shown without decimals."""


@dataclass(frozen=True, slots=True)
class Curve:
    panel: str
    label: str
    points: Sequence[tuple[float, float]]
    """Size and seconds."""


@dataclass(frozen=True, slots=True)
class Numbers:
    label: str
    values: Mapping[str, float]
    """By what they are of; one that was not measured is left out."""


def plot_growth(path: Path, curves: Sequence[Curve]) -> None:
    """One panel for each thing that grew, both scales logarithmic: a straight line is a power."""
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    figure = Figure(figsize=(_INCHES * len(panels), _INCHES), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for curve in curves:
            if curve.panel == panel:
                sizes, seconds = zip(*curve.points, strict=True)
                axes.plot(sizes, seconds, marker="o", label=curve.label)
        axes.set(xscale="log", yscale="log", xlabel=panel, ylabel="CPU seconds")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.15))
    figure.savefig(path, dpi=_PIXELS_PER_INCH)


def plot_bars(path: Path, title: str, variants: Sequence[Numbers]) -> None:
    """One panel for each quantity, one bar for each variant."""
    panels = _columns(variants)
    height = 1.2 + 0.35 * len(variants)
    figure = Figure(figsize=(_INCHES * len(panels), height), layout="constrained")
    figure.suptitle(title)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        shown = [variant for variant in variants if panel in variant.values]
        drawn = axes.barh([variant.label for variant in shown], [variant.values[panel] for variant in shown])
        axes.bar_label(drawn, fmt=_short, padding=3, fontsize=8)
        axes.set(xlabel=panel)
        axes.invert_yaxis()
        axes.margins(x=0.2)
    figure.savefig(path, dpi=_PIXELS_PER_INCH)


def plot_ratios(path: Path, title: str, tasks: Sequence[Numbers]) -> None:
    """One line for each task, one mark for each variant; the scale is logarithmic, and a line stands at 1."""
    figure = Figure(figsize=(2 * _INCHES, 1.6 + 0.35 * len(tasks)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(1, color="black", linewidth=1)
    for variant, marker in zip(_columns(tasks), itertools.cycle(_MARKERS), strict=False):
        shown = [task for task in tasks if variant in task.values]
        ratios = [task.values[variant] for task in shown]
        places = [tasks.index(task) for task in shown]
        axes.plot(ratios, places, marker, label=variant, markersize=8, alpha=0.8)
    axes.set(xscale="log", xlabel=title, yticks=range(len(tasks)), yticklabels=[task.label for task in tasks])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.grid(alpha=0.3)
    axes.invert_yaxis()
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=_PIXELS_PER_INCH)


def _columns(rows: Sequence[Numbers]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row.values))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= _WHOLE else f"{value:.3g}"
