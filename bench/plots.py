"""Plots: what was measured, as PNG files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

_INCHES = 4.5
_PIXELS_PER_INCH = 110


@dataclass(frozen=True, slots=True)
class Curve:
    panel: str
    label: str
    points: Sequence[tuple[float, float]]
    """Size and seconds."""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    values: Mapping[str, float]
    """One number for each panel; one that was not measured is left out."""


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


def plot_bars(path: Path, title: str, bars: Sequence[Bar]) -> None:
    """One panel for each quantity, one bar for each variant."""
    panels = list(dict.fromkeys(panel for bar in bars for panel in bar.values))
    height = 1.2 + 0.35 * len(bars)
    figure = Figure(figsize=(_INCHES * len(panels), height), layout="constrained")
    figure.suptitle(title)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        shown = [bar for bar in bars if panel in bar.values]
        drawn = axes.barh([bar.label for bar in shown], [bar.values[panel] for bar in shown])
        axes.bar_label(drawn, fmt="%.3g", padding=3, fontsize=8)
        axes.set(xlabel=panel)
        axes.invert_yaxis()
        axes.margins(x=0.2)
    figure.savefig(path, dpi=_PIXELS_PER_INCH)
