"""Gates: what must hold of a new snapshot before queries see it, as tables and jobs write it down."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.config.values import suggest_name
from holdfast.errors import InvalidOption

GATE_KINDS = ("min_rows", "max_rows", "row_change", "not_null", "unique", "sql")

MOST_GATES = 50
"""In one list. Each asks the engine a question of its own."""

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_.$-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class MinRows:
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxRows:
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """The number of rows against the live snapshot, in percent of it; an empty live snapshot allows any."""

    least_percent: float
    most_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNull:
    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """A query over `snapshot` whose one value must be true."""

    name: str
    sql: str


Gate = MinRows | MaxRows | RowChange | NotNull | Unique | Assertion


def parse_gates(specs: object) -> tuple[Gate, ...]:
    """Gates as a job or a table configuration writes them: a list of one-key objects."""
    if not isinstance(specs, Sequence) or isinstance(specs, str | bytes):
        raise InvalidOption("gates are not a list", type=type(specs).__name__, code="INVALID_GATE")
    if len(specs) > MOST_GATES:
        raise InvalidOption("too many gates", limit=MOST_GATES, found=len(specs), code="INVALID_GATE")
    return tuple(parse_gate(spec) for spec in specs)


def parse_gate(spec: object) -> Gate:
    if not isinstance(spec, Mapping) or len(spec) != 1:
        raise _invalid("a gate is an object with one key", spec)
    ((kind, value),) = spec.items()
    match kind:
        case "min_rows":
            return MinRows(rows=_rows(value, spec))
        case "max_rows":
            return MaxRows(rows=_rows(value, spec))
        case "row_change":
            return _parse_change(value, spec)
        case "not_null":
            return NotNull(column=_column(value, spec))
        case "unique":
            columns = [value] if isinstance(value, str) else value
            if not isinstance(columns, Sequence) or not columns:
                raise _invalid("unique takes a column or a list of columns", spec)
            return Unique(columns=tuple(_column(column, spec) for column in columns))
        case "sql":
            return _parse_assertion(value, spec)
        case _:
            raise _invalid("the gate is not known", spec, hint=suggest_name(str(kind), GATE_KINDS))


def gate_spec(spec: Any) -> dict[str, Any]:
    """A gate as it is written, refused unless it can be parsed."""
    parse_gate(spec)
    return dict(spec)


def _parse_change(value: Any, spec: object) -> RowChange:
    bounds = value if isinstance(value, Mapping) else {}
    least, most = bounds.get("min_percent", -100), bounds.get("max_percent", float("inf"))
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (least, most))
    if not bounds or set(bounds) - {"min_percent", "max_percent"} or not numbers or least > most:
        raise _invalid("row_change takes min_percent and max_percent", spec)
    return RowChange(least_percent=float(least), most_percent=float(most))


def _parse_assertion(value: Any, spec: object) -> Assertion:
    if isinstance(value, str) and value.strip():
        return Assertion(name="sql", sql=value)
    if isinstance(value, Mapping) and set(value) <= {"name", "query"}:
        query, name = value.get("query"), value.get("name", "sql")
        if isinstance(query, str) and query.strip() and isinstance(name, str) and name:
            return Assertion(name=name, sql=query)
    raise _invalid("sql takes a query, or its name and a query", spec)


def _rows(value: Any, spec: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _invalid("the number of rows is not a whole number", spec)
    return value


def _column(value: Any, spec: object) -> str:
    if not isinstance(value, str) or not _COLUMN.fullmatch(value):
        raise _invalid("not a column name", spec)
    return value


def _invalid(message: str, spec: object, *, hint: str = "") -> InvalidOption:
    return InvalidOption(message, hint=hint, gate=repr(spec)[:200], code="INVALID_GATE")
