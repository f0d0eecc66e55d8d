"""From values to HTML or JSON. Templates only arrange: every word and number is in the values."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from holdfast.model.instant import InstantTime
from holdfast.services.documents import Bytes, Facts, Line, Rows, Warned, iso

_CELL_MAX = 2000


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("holdfast.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {"bytes": _bytes, "moment": moment_text, "number": _number, "cell": cell_text,
                     "took": period_text, "instant": instant_text}  # fmt: skip
    made.tests |= {"line": lambda one: isinstance(one, Line), "warned": lambda one: isinstance(one, Warned),
                   "facts": lambda one: isinstance(one, Facts), "rows": lambda one: isinstance(one, Rows),
                   "numeric": _is_numeric}  # fmt: skip
    made.globals["m"] = made.get_template("macros.html").module
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(values)


def as_json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(_plain(values), allow_nan=False, ensure_ascii=False).encode(errors="replace")


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case Enum():
            return value.value
        case str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case dt.datetime():
            return iso(value) if value.tzinfo else value.isoformat()
        case Bytes():
            return value.count
        case Mapping():
            return {str(name): _plain(one) for name, one in value.items()}
        case Set():
            return sorted(map(str, value))
        case bytes():
            return value.hex()
        case Sequence():
            return [_plain(one) for one in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return str(value)


def cell_text(value: object) -> str:
    """A value in a table."""
    match value:
        case None:
            return "–"
        case dt.datetime():
            return moment_text(value)
        case Enum():
            return str(value.value)
        case bool():
            return "yes" if value else "no"
        case int():
            return _number(value)
        case float():
            return f"{value:,.6g}"
        case bytes():
            return value.hex()
    text = str(value)
    return text if len(text) <= _CELL_MAX else f"{text[:_CELL_MAX]}…"


def moment_text(value: dt.datetime | int | None) -> str:
    """A moment, or milliseconds since the epoch, in UTC."""
    if value is None:
        return "–"
    if isinstance(value, int):
        value = dt.datetime.fromtimestamp(value / 1000, dt.UTC)
    if value.tzinfo is None:
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return f"{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def instant_text(time: InstantTime | str | None) -> str:
    """An instant's time with its parts told apart; the wall clock of the table's zone."""
    if time is None:
        return "–"
    text = str(time)
    if len(text) < 14 or not text.isdigit():
        return text
    parts = f"{text[:4]}-{text[4:6]}-{text[6:8]} {text[8:10]}:{text[10:12]}:{text[12:14]}"
    return f"{parts}.{text[14:]}" if text[14:] else parts


def period_text(ms: int | None) -> str:
    """How long, in the unit that people would choose."""
    if ms is None:
        return "–"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:.1f} {unit}" if ms < 10 * size else f"{ms // size} {unit}"
    return f"{ms} ms"


def _bytes(count: int | None) -> str:
    return "–" if count is None else str(Bytes(count))


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}".replace(",", " ")


def _is_numeric(value: object) -> bool:
    return isinstance(value, int | float | Bytes) and not isinstance(value, bool)
