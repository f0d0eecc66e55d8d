"""Filters that Spark pushes down, as conditions on stored columns.

Only those that mean the same in Arrow are taken. Floating-point columns are
left to Spark: there NaN equals itself and is greater than every number, and
statistics do not mention it.
"""

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.read.prune import Condition

_COMPARISONS: dict[str, Callable[[pc.Expression, Any], pc.Expression]] = {
    "EqualTo": lambda column, value: column == value,
    "GreaterThan": lambda column, value: column > value,
    "GreaterThanOrEqual": lambda column, value: column >= value,
    "LessThan": lambda column, value: column < value,
    "LessThanOrEqual": lambda column, value: column <= value,
}


def conditions(filters: Iterable[Any], schema: pa.Schema) -> tuple[Condition, ...]:
    """Those of the filters, of which every row fulfils all, that can be tested on stored rows."""
    found = (_condition(one, schema) for one in filters)
    return tuple(condition for condition in found if condition is not None)


def _condition(one: Any, schema: pa.Schema) -> Condition | None:
    # By name: PySpark 4.0, in which this is tested too, has none of the classes.
    kind = type(one).__name__
    if kind == "Not":
        inner = _condition(one.child, schema)
        return None if inner is None else Condition(inner.column, ~inner.test)
    if len(one.attribute) != 1 or one.attribute[0] not in schema.names:
        return None
    field = schema.field(one.attribute[0])
    column = pc.field(field.name)
    if kind == "IsNull":
        return Condition(field.name, column.is_null())
    if kind == "IsNotNull":
        return Condition(field.name, column.is_valid())
    if kind == "In":
        if any(_literal(value, field.type) is None for value in one.value):
            return None
        return Condition(field.name, column.isin(pa.array(one.value, field.type)))
    literal = _literal(getattr(one, "value", None), field.type)
    if kind not in _COMPARISONS or literal is None:
        return None
    return Condition(field.name, _COMPARISONS[kind](column, literal))


def _literal(value: object, kind: pa.DataType) -> pa.Scalar | None:
    """The value in the column's type; None if it has none there, or not surely the same."""
    is_same = (
        (pa.types.is_integer(kind) and isinstance(value, int) and not isinstance(value, bool))
        or (pa.types.is_boolean(kind) and isinstance(value, bool))
        or (pa.types.is_string(kind) and isinstance(value, str))
        or (pa.types.is_date(kind) and isinstance(value, dt.date) and not isinstance(value, dt.datetime))
        or (
            pa.types.is_timestamp(kind)
            and isinstance(value, dt.datetime)
            and (kind.tz is None) == (value.tzinfo is None)
        )
    )
    if not is_same:
        return None
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError):
        return None
