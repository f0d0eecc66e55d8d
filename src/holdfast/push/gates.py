"""Gates: what must hold of a new snapshot before queries see it.

A gate asks one number of the hidden snapshot, or compares one with the live
snapshot. Who can answer questions in SQL is given by the caller.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from holdfast.errors import HoldfastError, InvalidOption
from holdfast.push.state import GateOutcome

Ask = Callable[[str, frozenset[str]], object]
"""The one value that a query over a table made of these segments gives.

The table is called `snapshot` in the query.
"""

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
    return tuple(_parse(spec) for spec in specs)


def evaluate(
    gates: Iterable[Gate], *, hidden: frozenset[str], live: frozenset[str], ask: Ask
) -> tuple[GateOutcome, ...]:
    """Every gate's outcome. A question that cannot be answered is a gate that failed."""
    return tuple(_evaluate(gate, hidden, live, ask) for gate in gates)


def _evaluate(gate: Gate, hidden: frozenset[str], live: frozenset[str], ask: Ask) -> GateOutcome:
    try:
        return _answered(gate, hidden, live, ask)
    except HoldfastError as error:
        return GateOutcome(name=_name(gate), passed=False, found=f"no answer: {error}", expected="an answer")


def _answered(gate: Gate, hidden: frozenset[str], live: frozenset[str], ask: Ask) -> GateOutcome:
    match gate:
        case MinRows(rows=rows):
            count = _count(ask, hidden)
            return _outcome(gate, count >= rows, f"{count} rows", f"at least {rows}")
        case MaxRows(rows=rows):
            count = _count(ask, hidden)
            return _outcome(gate, count <= rows, f"{count} rows", f"at most {rows}")
        case RowChange():
            return _row_change(gate, _count(ask, hidden), _count(ask, live))
        case NotNull(column=column):
            empty = f"SELECT count(*) FROM snapshot WHERE {_quoted(column)} IS NULL"  # noqa: S608
            nulls = _number(ask(empty, hidden))
            return _outcome(gate, nulls == 0, f"{nulls} nulls", "none")
        case Unique(columns=columns):
            keys = ", ".join(map(_quoted, columns))
            twice = f"SELECT count(*) FROM (SELECT {keys} FROM snapshot GROUP BY {keys} HAVING count(*) > 1)"  # noqa: S608
            repeated = _number(ask(twice, hidden))
            return _outcome(gate, repeated == 0, f"{repeated} keys twice or more", "none")
        case Assertion(sql=sql):
            value = ask(sql, hidden)
            return _outcome(gate, value is True, repr(value), "true")
        case _:
            assert_never(gate)


def _row_change(gate: RowChange, count: int, before: int) -> GateOutcome:
    expected = f"{gate.least_percent:+g} % to {gate.most_percent:+g} %"
    if before == 0:
        return _outcome(gate, True, f"{count} rows, none before", expected)
    change = 100 * (count - before) / before
    passed = gate.least_percent <= change <= gate.most_percent
    return _outcome(gate, passed, f"{change:+.2f} % ({before} to {count} rows)", expected)


def _outcome(gate: Gate, passed: bool, found: str, expected: str) -> GateOutcome:
    return GateOutcome(name=_name(gate), passed=passed, found=found, expected=expected)


def _name(gate: Gate) -> str:
    match gate:
        case MinRows():
            return "min_rows"
        case MaxRows():
            return "max_rows"
        case RowChange():
            return "row_change"
        case NotNull(column=column):
            return f"not_null({column})"
        case Unique(columns=columns):
            return f"unique({', '.join(columns)})"
        case Assertion(name=name):
            return name
        case _:
            assert_never(gate)


def _count(ask: Ask, segments: frozenset[str]) -> int:
    return _number(ask("SELECT count(*) FROM snapshot", segments)) if segments else 0


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption("the gate's query did not give a number", value=repr(value), code="GATE_FAILED")
    return value


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _parse(spec: object) -> Gate:
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
            raise _invalid("the gate is not known", spec)


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


def _invalid(message: str, spec: object) -> InvalidOption:
    return InvalidOption(message, gate=repr(spec)[:200], code="INVALID_GATE")
