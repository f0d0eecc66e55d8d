"""Output: one JSON document for programs, aligned columns for people.

Times are shown in UTC. On a terminal, what is too wide is laid out so that no
instant and no file's name is broken, unless --wide is given; in a pipe every
row is one line, whatever its length.
"""

import datetime as dt
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from holdfast.cli.failures import printable
from holdfast.cli.layout import GAP, Column, fit_columns, pad, width_of, wrap
from holdfast.host import Liveness
from holdfast.model.instant import State
from holdfast.services.documents import Bytes, Document, Facts, Line, Rows, Warned

WIDE = "holdfast.wide"
"""Where a context remembers that nothing is to be left out or broken."""

_COLOURS: Mapping[object, str] = {
    State.COMPLETED: "green",
    State.INFLIGHT: "yellow",
    State.REQUESTED: "yellow",
    Liveness.ALIVE: "green",
    Liveness.GONE: "red",
    Liveness.UNKNOWN: "yellow",
}


def show(document: Document, *, as_json: bool) -> None:
    """The whole document for programs, or its blocks for people."""
    if as_json:
        print_json(document.fields)
    else:
        draw(document)


def draw(document: Document) -> None:
    for block in document.blocks:
        match block:
            case Line(text):
                print_line(text)
            case Warned(text):
                print_warning(text)
            case Facts(facts):
                print_facts(facts)
            case Rows(header, rows, spare):
                print_table(header, rows, spare=spare)


def print_json(document: object) -> None:
    click.echo(json.dumps(document, allow_nan=False))


def print_line(text: str = "") -> None:
    click.echo("\n".join(_wrap_to_screen(printable(text))))


def print_warning(text: str) -> None:
    click.secho("\n".join(_wrap_to_screen(printable(f"warning: {text}"))), fg="yellow")


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Names and values, one to a line, the values aligned."""
    shown = [(name, _text(value)) for name, value in facts]
    width = max((len(name) for name, _ in shown), default=0)
    screen = screen_width()
    for name, value in shown:
        label = click.style(name.ljust(width), bold=True)
        if screen is None or width + GAP + width_of(value) <= screen:
            click.echo(f"{label}  {value}".rstrip())
            continue
        lines = wrap(value, screen - width - GAP)
        if max(map(width_of, lines)) + width + GAP <= screen:
            click.echo(f"{label}  " + ("\n" + " " * (width + GAP)).join(lines))
        else:
            click.echo("\n".join([label.rstrip(), *wrap("  " + value, screen, indent="  ")]))


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, spare: Sequence[str] = ()
) -> None:
    """Rows under a header; numbers stand at the right of their column.

    `spare` are columns that a narrow screen does without, the least needed first.
    """
    columns = [_column(at, name, [row[at] for row in rows]) for at, name in enumerate(header)]
    screen = screen_width()
    if screen is None:
        _print_columns(columns, [one.full_width for one in columns], rows)
        return
    fit = fit_columns(columns, spare, screen)
    if fit is None:
        _print_records(header, rows)
        return
    kept, widths = fit
    _print_columns(kept, widths, rows)
    left_out = [one.name for one in columns if one not in kept]
    if left_out:
        click.secho(
            "\n".join(_wrap_to_screen(f"not shown: {', '.join(left_out)}; --wide shows all")), dim=True
        )


def screen_width() -> int | None:
    """The columns of the terminal; None if lines may have any length."""
    context = click.get_current_context(silent=True)
    is_wide = context is not None and bool(context.meta.get(WIDE))
    return None if is_wide or not sys.stdout.isatty() else shutil.get_terminal_size().columns


def _wrap_to_screen(text: str) -> list[str]:
    screen = screen_width()
    return [text] if screen is None else wrap(text, screen, indent="  ")


def _column(place: int, name: str, values: Sequence[object]) -> Column:
    return Column(
        place,
        name,
        [_text(value) for value in values],
        is_right=bool(values) and all(map(_is_number, values)),
        is_text=any(isinstance(value, str) and " " in value for value in values),
    )


def _print_columns(
    columns: Sequence[Column], widths: Sequence[int], rows: Sequence[Sequence[object]]
) -> None:
    names = [wrap(one.name, width) for one, width in zip(columns, widths, strict=True)]
    bold = {"bold": True} if sys.stdout.isatty() else {}
    lines = _row_lines(names, columns, widths, [bold] * len(columns))
    lines.append("  ".join("-" * width for width in widths))
    for number, row in enumerate(rows):
        cells = [
            wrap(one.cells[number], width) if one.is_text else [one.cells[number]]
            for one, width in zip(columns, widths, strict=True)
        ]
        lines += _row_lines(cells, columns, widths, [_style(row[one.place]) for one in columns])
    click.echo("\n".join(lines))


def _row_lines(
    cells: Sequence[Sequence[str]],
    columns: Sequence[Column],
    widths: Sequence[int],
    styles: Sequence[Mapping[str, Any]],
) -> list[str]:
    """The lines of one row, whose cells may have several."""
    lines = []
    for number in range(max(map(len, cells), default=0)):
        parts = [
            pad(cell[number] if number < len(cell) else "", width, is_right=column.is_right, style=style)
            for cell, column, width, style in zip(cells, columns, widths, styles, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def _style(value: object) -> Mapping[str, Any]:
    is_styled = isinstance(value, State | Liveness) and sys.stdout.isatty()
    return {"fg": _COLOURS[value]} if is_styled else {}


def _print_records(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """The rows one below the other, each as names and values."""
    for number, row in enumerate(rows):
        if number:
            click.echo()
        print_facts(zip(header, row, strict=True))


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, dt.datetime):
        return f"{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d}"
    if isinstance(value, Liveness):
        return value.value
    return printable(str(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Bytes) and not isinstance(value, bool)
