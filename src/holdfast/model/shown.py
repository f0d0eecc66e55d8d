"""How reports look where somebody types: short in a terminal, a table in a notebook."""

from dataclasses import MISSING, Field, fields
from enum import Enum
from html import escape
from typing import Any

_ITEMS_MAX = 3
_ITEMS_IN_HTML = 20


class Shown:
    """Of a dataclass: only what is not as usual, and of long lists only the beginning."""

    __slots__ = ()

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={_short(value)}" for name, value in _unusual(self))
        return f"{type(self).__name__}({told})"

    def _repr_html_(self) -> str:
        """What notebooks show."""
        rows = [(name.replace("_", " "), _cell(value)) for name, value in _unusual(self)]
        return html_table(type(self).__name__, rows)


def html_table(title: str, rows: list[tuple[str, str]]) -> str:
    """Names with their values; the values are HTML already."""
    lines = (
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{value}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def _unusual(shown: Any) -> list[tuple[str, object]]:
    """The fields that are not as their defaults say."""
    values = [(field, getattr(shown, field.name)) for field in fields(shown)]
    return [(field.name, value) for field, value in values if not _is_default(field, value)]


def _is_default(field: "Field[Any]", value: object) -> bool:
    if field.default is not MISSING:
        return bool(value == field.default)
    return field.default_factory is not MISSING and bool(value == field.default_factory())


def _short(value: object) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    if not isinstance(value, tuple | list) or len(value) <= _ITEMS_MAX:
        return repr(value)
    first = ", ".join(repr(item) for item in value[:_ITEMS_MAX])
    return f"[{first}, and {len(value) - _ITEMS_MAX} more]"


def _cell(value: object) -> str:
    if isinstance(value, Shown):
        return value._repr_html_()
    if not isinstance(value, tuple | list):
        return escape(str(value))
    items = [_cell(item) for item in value[:_ITEMS_IN_HTML]]
    if len(value) > _ITEMS_IN_HTML:
        items.append(f"and {len(value) - _ITEMS_IN_HTML} more")
    return "<br>".join(items) or "none"
