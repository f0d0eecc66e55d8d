"""Columns as Pinot types them: kinds, what stands for null, and how DuckDB holds them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast.errors import InvalidRequest

SEGMENT_NAME = "$segmentName"

FILLED = "$value."
"""Before a column's name: the column with its default in place of nulls. No schema has such a name."""


class Kind(StrEnum):
    INT = "INT"
    LONG = "LONG"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    BIG_DECIMAL = "BIG_DECIMAL"
    BOOLEAN = "BOOLEAN"
    TIMESTAMP = "TIMESTAMP"
    STRING = "STRING"
    JSON = "JSON"
    BYTES = "BYTES"

    @property
    def is_number(self) -> bool:
        return self in _NUMBERS


_NUMBERS = frozenset({Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE, Kind.BIG_DECIMAL})

DUCKDB_TYPES: Mapping[Kind, str] = {
    Kind.INT: "INTEGER",
    Kind.LONG: "BIGINT",
    Kind.FLOAT: "FLOAT",
    Kind.DOUBLE: "DOUBLE",
    Kind.BIG_DECIMAL: "DECIMAL(38, 10)",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.STRING: "VARCHAR",
    Kind.JSON: "VARCHAR",
    Kind.BYTES: "BLOB",
}

Value = int | float | str | bool | bytes

_DIMENSION_DEFAULTS: Mapping[Kind, Value] = {
    Kind.INT: -(2**31),
    Kind.LONG: -(2**63),
    Kind.FLOAT: -math.inf,
    Kind.DOUBLE: -math.inf,
    Kind.BIG_DECIMAL: 0,
    Kind.BOOLEAN: False,
    Kind.TIMESTAMP: 0,
    Kind.STRING: "null",
    Kind.JSON: "null",
    Kind.BYTES: b"",
}
_METRIC_DEFAULTS: Mapping[Kind, Value] = {
    Kind.INT: 0,
    Kind.LONG: 0,
    Kind.FLOAT: 0.0,
    Kind.DOUBLE: 0.0,
    Kind.BIG_DECIMAL: 0,
    Kind.STRING: "null",
    Kind.BYTES: b"",
}


def default_of(kind: Kind) -> Value:
    """What stands for null where no column says otherwise."""
    return _DIMENSION_DEFAULTS[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    kind: Kind
    is_array: bool = False
    default: Value = "null"
    """What queries see in place of null unless they ask for nulls; of an array column, its one element."""
    is_required: bool = False
    """The schema says that there is no null."""


def columns_of(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns of a Pinot schema, in ascending order of name as `SELECT *` lists them."""
    return tuple(sorted(_columns(schema), key=lambda column: column.name))


def _columns(schema: Mapping[str, Any]) -> Iterator[Column]:
    for spec in schema.get("dimensionFieldSpecs") or ():
        yield _column(spec, _DIMENSION_DEFAULTS)
    for spec in schema.get("metricFieldSpecs") or ():
        yield _column(spec, _METRIC_DEFAULTS)
    for spec in schema.get("dateTimeFieldSpecs") or ():
        yield _column(spec, _DIMENSION_DEFAULTS)
    time_spec = schema.get("timeFieldSpec")
    if time_spec:
        granularity = time_spec.get("outgoingGranularitySpec") or time_spec["incomingGranularitySpec"]
        yield _column(granularity, _DIMENSION_DEFAULTS)


def _column(spec: Mapping[str, Any], defaults: Mapping[Kind, Value]) -> Column:
    name = str(spec["name"])
    kind = _kind(name, str(spec.get("dataType", "STRING")))
    default = defaults.get(kind, _DIMENSION_DEFAULTS[kind])
    given = spec.get("defaultNullValue")
    return Column(
        name=name,
        kind=kind,
        is_array=spec.get("singleValueField", True) is False,
        default=default if given is None else _value(name, kind, given),
        is_required=spec.get("notNull") is True,
    )


_OTHER_NAMES = {"INTEGER": Kind.INT, "VARCHAR": Kind.STRING, "DECIMAL": Kind.BIG_DECIMAL}


def _kind(name: str, text: str) -> Kind:
    try:
        return _OTHER_NAMES.get(text.upper()) or Kind(text.upper())
    except ValueError:
        raise InvalidRequest("the column has an unknown type", column=name, type=text) from None


def _value(name: str, kind: Kind, given: object) -> Value:
    """A default as schemas spell it: as JSON of the type, or as text."""
    text = str(given)
    try:
        match kind:
            case Kind.INT | Kind.LONG | Kind.TIMESTAMP:
                return int(text)
            case Kind.FLOAT | Kind.DOUBLE:
                return float(text)
            case Kind.BIG_DECIMAL:
                return float(text) if "." in text else int(text)
            case Kind.BOOLEAN:
                return text.lower() in ("true", "1")
            case Kind.BYTES:
                return bytes.fromhex(text)
            case Kind.STRING | Kind.JSON:
                return text
    except ValueError:
        raise InvalidRequest(
            "the default of the column is not of its type", column=name, type=kind, default=text
        ) from None
