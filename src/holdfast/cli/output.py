"""Output: one JSON document for programs, aligned columns for people.

Times are shown in UTC. On a terminal, short lists are laid out by rich; in a
pipe every row is one line, whatever its length.
"""

import datetime as dt
import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence

import click

from holdfast.cli.failures import printable
from holdfast.host import Liveness
from holdfast.model.instant import State
from holdfast.services.documents import Bytes, Document, Facts, Line, Rows, Warned

# Rich takes about a millisecond per row; a long timeline must not wait for it.
_RICH_ROWS_MAX = 200

_STYLES: dict[object, str] = {
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
            case Rows(header, rows):
                print_table(header, rows)


def print_json(document: object) -> None:
    click.echo(json.dumps(document, allow_nan=False))


def print_line(text: str = "") -> None:
    click.echo(printable(text))


def print_warning(text: str) -> None:
    click.secho(printable(f"warning: {text}"), fg="yellow")


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Names and values, one to a line, the values aligned."""
    shown = [(name, _text(value)) for name, value in facts]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {value}".rstrip())


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under a header; numbers stand at the right of their column."""
    right = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(header))]
    if sys.stdout.isatty() and len(rows) <= _RICH_ROWS_MAX:
        _print_rich(header, rows, right=right)
    else:
        _print_plain(header, rows, right=right)


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


def _print_plain(header: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[bool]) -> None:
    lines = [list(header), *([_text(value) for value in row] for row in rows)]
    widths = [max(_width(line[at]) for line in lines) for at in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    click.echo("\n".join("  ".join(map(_pad, line, widths, right)).rstrip() for line in lines))


def _pad(text: str, width: int, is_right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if is_right else text + blanks


def _width(text: str) -> int:
    """How many places the text takes in a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


def _print_rich(header: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[bool]) -> None:
    # Loaded here because in a pipe nothing of it is needed.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_right in zip(header, right, strict=True):
        table.add_column(name, justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_text(value), style=_STYLES.get(value, "")) for value in row))
    Console().print(table)
