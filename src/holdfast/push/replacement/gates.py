"""Evaluating gates: what must hold of a new snapshot before queries see it.

A gate asks one number of the hidden snapshot, or compares one with the live
snapshot. Who can answer questions in SQL is given by the caller.
"""

from collections.abc import Callable, Iterable
from typing import assert_never

from holdfast.config.gates import Assertion, Gate, MaxRows, MinRows, NotNull, RowChange, Unique
from holdfast.errors import HoldfastError, InvalidOption
from holdfast.push.state.table_state import GateOutcome

Ask = Callable[[str, frozenset[str]], object]
"""The one value that a query over a table made of these segments gives.

The table is called `snapshot` in the query.
"""


def evaluate(
    gates: Iterable[Gate], *, hidden: frozenset[str], live: frozenset[str], ask: Ask
) -> tuple[GateOutcome, ...]:
    """Every gate's outcome. A question that cannot be answered is a gate that failed."""
    return tuple(_evaluate(gate, hidden, live, ask) for gate in gates)


def _evaluate(gate: Gate, hidden: frozenset[str], live: frozenset[str], ask: Ask) -> GateOutcome:
    try:
        return _ask_gate(gate, hidden, live, ask)
    except HoldfastError as error:
        return GateOutcome(name=_name(gate), passed=False, found=f"no answer: {error}", expected="an answer")


def _ask_gate(gate: Gate, hidden: frozenset[str], live: frozenset[str], ask: Ask) -> GateOutcome:
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
            empty = f"SELECT count(*) FROM snapshot WHERE {_quote(column)} IS NULL"  # noqa: S608
            nulls = _number(ask(empty, hidden))
            return _outcome(gate, nulls == 0, f"{nulls} nulls", "none")
        case Unique(columns=columns):
            keys = ", ".join(map(_quote, columns))
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


def _quote(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
