"""Schemas of push tables: Pinot's field specs, read once into typed values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from holdfast.config.push import check_json, check_table_name
from holdfast.errors import InvalidRequest


class DataType(StrEnum):
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


_NUMBERS = frozenset({DataType.INT, DataType.LONG, DataType.FLOAT, DataType.DOUBLE, DataType.BIG_DECIMAL})


class FieldKind(StrEnum):
    DIMENSION = "DIMENSION"
    METRIC = "METRIC"
    DATE_TIME = "DATE_TIME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    type: DataType
    kind: FieldKind
    is_array: bool = False
    default: Any = None
    """What stands for a null where null handling is off; None: the type's own default."""
    format: str = ""
    granularity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    name: str
    fields: Mapping[str, Field]
    """By column, in the order of the schema."""
    primary_key: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The schema as it was sent, unknown keys included."""


_SECTIONS = (
    ("dimensionFieldSpecs", FieldKind.DIMENSION),
    ("metricFieldSpecs", FieldKind.METRIC),
    ("dateTimeFieldSpecs", FieldKind.DATE_TIME),
)
_COLUMN = re.compile(r"[^$\x00-\x20\x7f\ud800-\udfff][^\x00-\x1f\x7f\ud800-\udfff]{0,199}")


def parse_schema(schema: object) -> Schema:
    """The columns of a schema; what is malformed is refused with its place."""
    if not isinstance(schema, Mapping):
        raise _refuse("the schema is not an object", key="")
    name = schema.get("schemaName")
    if not isinstance(name, str) or not name or "__" in name:
        raise _refuse("the schema's name is missing or holds __", key="schemaName", value=repr(name)[:80])
    check_table_name(name)
    check_json(schema)
    fields: dict[str, Field] = {}
    for each in _fields(schema):
        if each.name in fields:
            raise _refuse("a column is defined twice", key=each.name)
        fields[each.name] = each
    if not fields:
        raise _refuse("the schema has no columns", key="dimensionFieldSpecs")
    return Schema(name=name, fields=fields, primary_key=_primary_key(schema, fields), raw=dict(schema))


def incompatibilities(old: Schema, new: Schema) -> tuple[str, ...]:
    """Why segments of the old schema would not fit the new one; empty if they do."""
    reasons = []
    for name, before in old.fields.items():
        after = new.fields.get(name)
        if after is None:
            reasons.append(f"{name} is gone")
        elif (after.type, after.is_array) != (before.type, before.is_array):
            reasons.append(f"{name} was {_shape(before)} and would be {_shape(after)}")
    return tuple(reasons)


def _fields(schema: Mapping[str, Any]) -> list[Field]:
    found = []
    for section, kind in _SECTIONS:
        specs = schema.get(section)
        if specs is None:
            continue
        if not isinstance(specs, list | tuple):
            raise _refuse("a section of the schema is not a list", key=section)
        found += [_field(spec, kind, f"{section}[{at}]") for at, spec in enumerate(specs)]
    time = schema.get("timeFieldSpec")
    if time is not None:
        found.append(_time_field(time))
    return found


def _field(spec: object, kind: FieldKind, place: str) -> Field:
    if not isinstance(spec, Mapping):
        raise _refuse("a field is not an object", key=place)
    name, type_name = spec.get("name"), spec.get("dataType")
    if not isinstance(name, str) or not _COLUMN.fullmatch(name):
        raise _refuse("not a column name", key=place, value=repr(name)[:80])
    single = spec.get("singleValueField", True)
    if not isinstance(single, bool):
        raise _refuse("singleValueField is neither true nor false", key=place)
    if kind is not FieldKind.DIMENSION and not single:
        raise _refuse("only a dimension may hold several values", key=place)
    return Field(
        name=name,
        type=_type(type_name, place),
        kind=kind,
        is_array=not single,
        default=spec.get("defaultNullValue"),
        format=str(spec.get("format") or ""),
        granularity=str(spec.get("granularity") or ""),
    )


def _time_field(spec: object) -> Field:
    """Pinot's former way to name the time column."""
    place = "timeFieldSpec"
    if not isinstance(spec, Mapping):
        raise _refuse("a field is not an object", key=place)
    inner = spec.get("outgoingGranularitySpec") or spec.get("incomingGranularitySpec") or spec
    if not isinstance(inner, Mapping):
        raise _refuse("a field is not an object", key=place)
    time_type = str(inner.get("timeType") or "")
    named = {**inner, "format": f"1:{time_type}:EPOCH" if time_type else ""}
    return _field(named, FieldKind.DATE_TIME, place)


def _type(name: object, place: str) -> DataType:
    text = name.upper() if isinstance(name, str) else ""
    if text not in DataType.__members__:
        raise _refuse("not a data type", key=place, value=repr(name)[:80], known=", ".join(DataType))
    return DataType(text)


def _primary_key(schema: Mapping[str, Any], fields: Mapping[str, Field]) -> tuple[str, ...]:
    columns = schema.get("primaryKeyColumns") or ()
    if not isinstance(columns, list | tuple) or not all(column in fields for column in columns):
        raise _refuse("the primary key names a column that is not there", key="primaryKeyColumns")
    return tuple(columns)


def _shape(each: Field) -> str:
    return f"{each.type}{'_ARRAY' if each.is_array else ''}"


def _refuse(message: str, *, key: str, **facts: object) -> InvalidRequest:
    return InvalidRequest(message, hint="", place=key, **facts, code="INVALID_SCHEMA")
