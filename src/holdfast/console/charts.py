"""Pictures: values as SVG, made here. Colours and lines are those of the style sheet, by class."""

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

_WIDTH = 1000
_GUTTER = 128
_RIGHT = 16
_LANE = 40
_TOP = 14
_FOOT = 34
_BIN = 15
_TICKS = 7
_STEPS_S = (
    0.001, 0.005, 0.02, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 12 * 3600, 86_400, 7 * 86_400,
    30 * 86_400, 91 * 86_400, 365 * 86_400, 3650 * 86_400,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One thing that happened, on a lane of a timeline."""

    at_ms: float
    lane: str
    shape: str
    state: str
    """`completed`, `pending` or `undone`."""
    label: str
    href: str
    is_chosen: bool = False


def draw_timeline(
    marks: Sequence[Mark], lanes: Mapping[str, str], *, from_ms: float, to_ms: float, zoom: str
) -> Markup:
    """One axis with a lane for each kind. `zoom` is the start of a link to a part of it."""
    span = max(1.0, to_ms - from_ms)
    height = _TOP + _LANE * len(lanes) + _FOOT
    label = f"Timeline of {len(marks)} instants"
    parts = [f'<svg class="timeline" viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="{label}">']
    plot = _WIDTH - _GUTTER - _RIGHT
    places = {lane: _TOP + _LANE * number + _LANE / 2 for number, lane in enumerate(lanes)}
    for number, (lane, name) in enumerate(lanes.items()):
        top, y = _TOP + _LANE * number, places[lane]
        parts.append(
            f'<rect class="lane lane-{number % 2}" x="0" y="{top}" width="{_WIDTH}" height="{_LANE}"/>'
            f'<line class="rail" x1="{_GUTTER}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>'
            f'<text class="lane-name" x="12" y="{y + 4}">{escape(name)}</text>'
        )
    parts += _ticks(from_ms, to_ms, plot, bottom=_TOP + _LANE * len(lanes))
    by_bin: dict[tuple[str, int], list[Mark]] = {}
    for mark in marks:
        x = (mark.at_ms - from_ms) / span * plot
        by_bin.setdefault((mark.lane, int(x // _BIN)), []).append(mark)
    for (lane, _), some in sorted(by_bin.items(), key=lambda item: (item[0][1], item[0][0])):
        y = places[lane]
        x = _GUTTER + (some[0].at_ms - from_ms) / span * plot
        parts.append(_mark(some[0], x, y) if len(some) == 1 else _crowd(some, x, y, zoom))
    parts.append("</svg>")
    return Markup("".join(parts))  # noqa: S704  # every text in it is escaped


def _ticks(from_ms: float, to_ms: float, plot: float, *, bottom: float) -> list[str]:
    span_s = max(0.001, (to_ms - from_ms) / 1000)
    step_s = next((step for step in _STEPS_S if span_s / step <= _TICKS), _STEPS_S[-1])
    found, step_ms = [], step_s * 1000
    first = int(from_ms // step_ms) + 1
    for number in range(first, first + 4 * _TICKS):
        at_ms = number * step_ms
        if at_ms > to_ms - (to_ms - from_ms) * 0.03:
            break  # Its text would be cut off.
        x = round(_GUTTER + (at_ms - from_ms) / (to_ms - from_ms) * plot, 1)
        found.append(
            f'<line class="tick" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}"/>'
            f'<text class="tick-name" x="{x}" y="{bottom + 20}">{escape(_tick_text(at_ms, step_s))}</text>'
        )
    return found


def _tick_text(at_ms: float, step_s: float) -> str:
    moment = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    if step_s < 1:
        return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"
    if step_s < 60:
        return f"{moment:%H:%M:%S}"
    if step_s < 86_400:
        return f"{moment:%d %b %H:%M}"
    return f"{moment:%d %b %Y}" if step_s < 365 * 86_400 else f"{moment:%Y}"


def _mark(mark: Mark, x: float, y: float) -> str:
    x = round(x, 1)
    chosen = ' aria-current="true"' if mark.is_chosen else ""
    halo = f'<circle class="halo" cx="{x}" cy="{y}" r="14"/>' if mark.is_chosen else ""
    strike = _strike(x - 10, y + 9, x + 10, y - 9) if mark.state == "undone" else ""
    return (
        f'<a class="mark {escape(mark.state)} {escape(mark.shape)}" href="{escape(mark.href)}"{chosen} '
        f'aria-label="{escape(mark.label)}"><title>{escape(mark.label)}</title>{halo}'
        f'<circle class="target" cx="{x}" cy="{y}" r="13"/>{_shape(mark.shape, x, y)}{strike}</a>'
    )


_PATHS = {
    "diamond": "M0 -8L8 0L0 8L-8 0Z",
    "triangle": "M0 -7L8 6L-8 6Z",
    "back": "M-9 0L1 -8V-3H9V3H1V8Z",
    "flag": "M-5 9V-9H8L4 -4L8 1H-2V9Z",
    "up": "M0 -9L8 1H3V9H-3V1H-8Z",
    "square": "M-6 -6H6V6H-6Z",
    "bar": "M-3 -9H3V9H-3Z",
}


def _shape(shape: str, x: float, y: float) -> str:
    if shape in _PATHS:
        return f'<path class="shape" d="{_PATHS[shape]}" transform="translate({x} {y})"/>'
    return f'<circle class="shape" cx="{x}" cy="{y}" r="6.5"/>'


def _strike(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="strike" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _crowd(some: Sequence[Mark], x: float, y: float, zoom: str) -> str:
    """Too many to tell apart: how many there are, and the way to see them."""
    first, last = some[0].at_ms, max(mark.at_ms for mark in some)
    room = max(250.0, (last - first) * 0.15)
    href = f"{zoom}from={int(first - room)}&to={int(last + room) + 1}"
    undone = sum(mark.state == "undone" for mark in some)
    label = f"{len(some)} instants, zoom in" + (f"; {undone} of them taken back" if undone else "")
    state = "undone" if undone == len(some) else "completed"
    strike = _strike(x - 11, y + 10, x + 17, y - 10) if undone else ""
    text = str(len(some)) if len(some) < 1000 else f"{len(some) / 1000:.1f}k"
    width = 14 + 7 * len(text)
    return (
        f'<a class="mark crowd {state}" href="{escape(href)}" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>"
        f'<rect class="shape" x="{round(x - 8, 1)}" y="{y - 10}" width="{width}" height="20" rx="10"/>'
        f'<text x="{round(x - 8 + width / 2, 1)}" y="{y + 4}">{text}</text>{strike}</a>'
    )


def draw_shares(parts: Sequence[tuple[str, str, int]], *, label: str) -> Markup:
    """A bar of shares: class, name and size of each."""
    total = sum(size for _, _, size in parts)
    x, found = 0.0, []
    for number, (kind, name, size) in enumerate(parts):
        width = _WIDTH * size / total if total else 0
        if size:
            found.append(
                f'<rect class="share share-{number} {escape(kind)}" x="{round(x, 2)}" y="0" '
                f'width="{round(max(1.5, width), 2)}" height="36"><title>{escape(name)}</title></rect>'
            )
        x += width
    return Markup(  # noqa: S704
        f'<svg class="shares" viewBox="0 0 {_WIDTH} 36" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">'
        f'<rect class="empty" width="{_WIDTH}" height="36"/>{"".join(found)}</svg>'
    )


def draw_bars(
    labels: Sequence[str], values: Sequence[float], *, label: str, chosen: int | None = None
) -> Markup:
    """Columns side by side; one of them may be the chosen one."""
    height, foot, top = 150, 36, 12
    most = max([abs(one) for one in values], default=0) or 1
    step = _WIDTH / max(1, len(values))
    wide = min(60.0, step * 0.7)
    every = -(-len(values) // 14)
    parts = []
    for number, (name, value) in enumerate(zip(labels, values, strict=True)):
        x = step * number + (step - wide) / 2
        size = abs(value) / most * height
        kind = "bar chosen" if number == chosen else "bar below" if value < 0 else "bar"
        parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{top + height - size:.1f}" width="{wide:.1f}" '
            f'height="{max(1.0, size):.1f}" rx="2"><title>{escape(name)}: {value:,.6g}</title></rect>'
        )
        if number % every == 0:
            short = name if len(name) <= 12 else name[:11] + "…"
            parts.append(
                f'<text class="tick-name" x="{x + wide / 2:.1f}" y="{top + height + 24}">'
                f"{escape(short)}</text>"
            )
    floor = top + height
    return Markup(  # noqa: S704
        f'<svg class="bars" viewBox="0 0 {_WIDTH} {floor + foot}" role="img" aria-label="{escape(label)}">'
        f'<line class="rail" x1="0" x2="{_WIDTH}" y1="{floor}" y2="{floor}"/>{"".join(parts)}</svg>'
    )


def draw_chains(
    columns: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], links: Sequence[tuple[str, str]]
) -> Markup:
    """Columns of boxes, and lines between them: where something came from and where it went.

    A box has `id`, `name`, `detail`, `state`, and `href` if it leads anywhere.
    """
    box, gap, top = 46, 14, 40
    wide = _WIDTH / max(1, len(columns))
    places: dict[str, tuple[float, float]] = {}
    parts = []
    for number, (title, boxes) in enumerate(columns):
        x = wide * number + 10
        parts.append(f'<text class="column-name" x="{x}" y="22">{escape(title)}</text>')
        for row, one in enumerate(boxes):
            y = top + row * (box + gap)
            places[one["id"]] = (x, y)
            parts.append(_box(one, x, y, wide - 50, box))
    lines = []
    for start, end in links:
        if start not in places or end not in places:
            continue
        x1, y1 = places[start][0] + wide - 50, places[start][1] + box / 2
        x2, y2 = places[end][0], places[end][1] + box / 2
        half = (x1 + x2) / 2
        curve = f"M{x1:.1f} {y1:.1f}C{half:.1f} {y1:.1f} {half:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        lines.append(f'<path class="link" d="{curve}"/>')
    rows = max(itertools.chain((len(boxes) for _, boxes in columns), (1,)))
    height = top + rows * (box + gap)
    return Markup(  # noqa: S704
        f'<svg class="chains" viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="Lineage">'
        f"{''.join(lines)}{''.join(parts)}</svg>"
    )


def _box(one: Mapping[str, Any], x: float, y: float, wide: float, high: float) -> str:
    room = int(wide / 7.4)
    name = str(one["name"])
    # The end of a name tells more than its beginning: dates and numbers stand there.
    shown = name if len(name) <= room else "…" + name[-(room - 1) :]
    detail = str(one["detail"])[: int(wide / 6.4)]
    inside = (
        f"<title>{escape(name)}: {escape(one['detail'])}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{high}" rx="5"/>'
        f'<text class="box-name" x="{x + 10:.1f}" y="{y + 19}">{escape(shown)}</text>'
        f'<text class="box-detail" x="{x + 10:.1f}" y="{y + 36}">{escape(detail)}</text>'
    )
    if one["state"] == "undone":
        inside += (
            f'<line class="strike" x1="{x + 6:.1f}" y1="{y + 15}" x2="{x + wide - 6:.1f}" y2="{y + 15}"/>'
        )
    if one.get("href"):
        # Its name is what stands in it.
        return f'<a class="box {escape(one["state"])}" href="{escape(one["href"])}">{inside}</a>'
    return f'<g class="box {escape(one["state"])}">{inside}</g>'
