"""Columns as Pinot types them: kinds, what stands for null, and how DuckDB holds them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.config.push_schema import DataType
from holdfast.errors import InvalidRequest

SEGMENT_NAME = "$segmentName"

FILLED = "$value."
"""Before a column's name: the column with its default in place of nulls. No schema has such a name."""


DUCKDB_TYPES: Mapping[DataType, str] = {
    DataType.INT: "INTEGER",
    DataType.LONG: "BIGINT",
    DataType.FLOAT: "FLOAT",
    DataType.DOUBLE: "DOUBLE",
    DataType.BIG_DECIMAL: "DECIMAL(38, 10)",
    DataType.BOOLEAN: "BOOLEAN",
    DataType.TIMESTAMP: "TIMESTAMP",
    DataType.STRING: "VARCHAR",
    DataType.JSON: "VARCHAR",
    DataType.BYTES: "BLOB",
}

Value = int | float | str | bool | bytes

_DIMENSION_DEFAULTS: Mapping[DataType, Value] = {
    DataType.INT: -(2**31),
    DataType.LONG: -(2**63),
    DataType.FLOAT: -math.inf,
    DataType.DOUBLE: -math.inf,
    DataType.BIG_DECIMAL: 0,
    DataType.BOOLEAN: False,
    DataType.TIMESTAMP: 0,
    DataType.STRING: "null",
    DataType.JSON: "null",
    DataType.BYTES: b"",
}
_METRIC_DEFAULTS: Mapping[DataType, Value] = {
    DataType.INT: 0,
    DataType.LONG: 0,
    DataType.FLOAT: 0.0,
    DataType.DOUBLE: 0.0,
    DataType.BIG_DECIMAL: 0,
    DataType.STRING: "null",
    DataType.BYTES: b"",
}


def default_of(kind: DataType) -> Value:
    """What stands for null where no column says otherwise."""
    return _DIMENSION_DEFAULTS[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    kind: DataType
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


def _column(spec: Mapping[str, Any], defaults: Mapping[DataType, Value]) -> Column:
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


_OTHER_NAMES = {"INTEGER": DataType.INT, "VARCHAR": DataType.STRING, "DECIMAL": DataType.BIG_DECIMAL}


def _kind(name: str, text: str) -> DataType:
    try:
        return _OTHER_NAMES.get(text.upper()) or DataType(text.upper())
    except ValueError:
        raise InvalidRequest("the column has an unknown type", column=name, type=text) from None


def _value(name: str, kind: DataType, given: object) -> Value:
    """A default as schemas spell it: as JSON of the type, or as text."""
    text = str(given)
    try:
        match kind:
            case DataType.INT | DataType.LONG | DataType.TIMESTAMP:
                return int(text)
            case DataType.FLOAT | DataType.DOUBLE:
                return float(text)
            case DataType.BIG_DECIMAL:
                return float(text) if "." in text else int(text)
            case DataType.BOOLEAN:
                return text.lower() in ("true", "1")
            case DataType.BYTES:
                return bytes.fromhex(text)
            case DataType.STRING | DataType.JSON:
                return text
    except ValueError:
        raise InvalidRequest(
            "the default of the column is not of its type", column=name, type=kind, default=text
        ) from None
