"""Table schemas: Arrow types on our side, Avro text in commits and footers.

`storable_schema` says what a table keeps of a given Arrow schema; Avro text
is made only from that, and read back into the same.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from holdfast.errors import InvalidRequest, SchemaMismatch, UnsupportedTable
from holdfast.format.malformed import Malformed
from holdfast.model.columns import is_column_name

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
"""The columns that come first in every base file, all of type string."""

_OWN_PREFIX = "_holdfast_"
_Attributes = Mapping[Any, object]

_DECIMAL_DIGITS_MAX = 38
_ARROW_DIGITS_MAX = 76

_PLAIN_AVRO = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}
_LOGICAL_AVRO = {
    pa.date32(): ("int", "date"),
    pa.timestamp("us", tz="UTC"): ("long", "timestamp-micros"),
}

# A timestamp without a zone has the Avro type `local-timestamp-micros`, on which hudi-rs 0.5
# panics. Iceberg's spelling says the same in a property that other readers pass over: they
# show the wall-clock time as if it were UTC.
_ZONELESS = pa.timestamp("us")
_ADJUSTED = "adjust-to-utc"
_ZONELESS_AVRO = {"type": "long", "logicalType": "timestamp-micros", _ADJUSTED: False}

_PLAIN_ARROW = {name: kind for kind, name in _PLAIN_AVRO.items()}
_LOGICAL_ARROW = {
    **{names: kind for kind, names in _LOGICAL_AVRO.items()},
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
}

_NEWER_TYPES = ("vector", "variant", "blob")

_WIDENED = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}


def storable_schema(schema: pa.Schema) -> pa.Schema:
    """What a table stores for rows of this schema, without metadata and nullable throughout.

    Narrow integers, dictionaries and large variants become the plain type
    that holds them; timestamps become microseconds, in UTC if they have a
    zone and as local time if not. `SchemaMismatch` names the first column
    that has no such type or a name that Avro or Hudi would not accept.
    """
    for name in schema.names:
        if name.lower() in META_COLUMNS or name.lower().startswith(_OWN_PREFIX):
            raise SchemaMismatch(
                "a column has a name that Hudi or Holdfast keeps for itself",
                hint="drop or rename the column",
                column=name,
            )
    return pa.schema(_storable_fields(list(schema), path=""))


def without_meta_columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in META_COLUMNS], schema.metadata)


def avro_schema(schema: pa.Schema, *, table_name: str, meta_columns: bool = False) -> str:
    """The Avro text of what is stored for an Arrow schema that has no meta columns itself.

    Names and namespaces are Hudi's. They are unique without further care,
    because each column's path is unique and makes at most one named type.
    """
    name = _sanitise(table_name)
    record = _avro_record(storable_schema(schema), name=f"{name}_record", namespace=f"hoodie.{name}")
    if meta_columns:
        text = ["null", "string"]
        meta = [{"name": column, "type": text, "doc": "", "default": None} for column in META_COLUMNS]
        record["fields"] = meta + record["fields"]
    return json.dumps(record, separators=(",", ":"))


def arrow_schema(avro_json: str) -> pa.Schema:
    """The Arrow schema of an Avro record, nullable throughout.

    Avro's fixed stays `fixed_size_binary`: as plain bytes it would be written
    back under another type, which Avro does not resolve with the old one.
    `Malformed` if the text is not the schema of a record; `UnsupportedTable`
    for legal Avro that has no columnar form: unions of several types,
    recursive records, the type null.
    """
    try:
        avro = _parse_json(avro_json)
        if not isinstance(avro, dict) or avro.get("type") != "record":
            raise Malformed("Avro schema of a table is not a record")
        return pa.schema(list(_AvroTypes().arrow_type(avro, namespace="", path="")))
    except RecursionError as error:
        raise Malformed("Avro schema is nested too deeply") from error
    except UnicodeEncodeError as error:
        raise Malformed("Avro schema has a name that is not Unicode text") from error


def is_list(kind: pa.DataType) -> bool:
    """Whether it is a list, in whichever of Arrow's layouts."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _storable_fields(fields: Iterable[pa.Field], *, path: str) -> list[pa.Field]:
    seen: set[str] = set()
    storable = []
    for field in fields:
        column = path + field.name
        if not is_column_name(field.name):
            raise SchemaMismatch(
                "a column has a name that Avro does not allow",
                hint="rename it with letters, digits and underscores, not beginning with a digit",
                column=column,
            )
        if field.name.lower() in seen:
            raise SchemaMismatch(
                "two columns have the same name but for upper and lower case",
                hint="rename one of them",
                column=column,
            )
        seen.add(field.name.lower())
        storable.append(pa.field(field.name, _storable_type(field.type, path=column)))
    return storable


def _storable_type(kind: pa.DataType, *, path: str) -> pa.DataType:
    kind = _plain_type(kind)
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            raise _unstorable(kind, path=path, hint="a struct needs at least one field")
        return pa.struct(_storable_fields(kind, path=f"{path}."))
    if is_list(kind):
        return _storable_list(kind, path=path)
    if pa.types.is_map(kind):
        if _storable_leaf(_plain_type(kind.key_type)) != pa.string():
            raise _unstorable(kind, path=path, hint="cast the keys of the map to strings")
        return pa.map_(pa.string(), _storable_type(kind.item_type, path=f"{path}.value"))
    leaf = _storable_leaf(kind)
    if leaf is None:
        raise _unstorable(kind, path=path, hint=_way_out(kind))
    return leaf


def _storable_list(kind: pa.DataType, *, path: str) -> pa.DataType:
    element = _storable_type(kind.value_type, path=f"{path}.element")
    if pa.types.is_struct(element) and [field.name for field in element] == ["element"]:
        # Avro readers of Parquet would take this struct for the list's own wrapping.
        raise _unstorable(kind, path=path, hint="rename the only field of the list's structs")
    return pa.list_(pa.field("element", element))


def _storable_leaf(kind: pa.DataType) -> pa.DataType | None:
    """The type in which values of a flat type are stored; None if there is none."""
    if kind in _PLAIN_AVRO or kind in _LOGICAL_AVRO:
        return kind
    if kind in _WIDENED:
        return _WIDENED[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if (
        pa.types.is_decimal(kind)
        and kind.precision <= _DECIMAL_DIGITS_MAX
        and 0 <= kind.scale <= kind.precision
    ):
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width > 0:
        return kind
    return None


def _plain_type(kind: pa.DataType) -> pa.DataType:
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def _unstorable(kind: pa.DataType, *, path: str, hint: str) -> SchemaMismatch:
    return SchemaMismatch(
        "a column has a type that a table cannot store", hint=hint, column=path, type=str(kind)
    )


def _way_out(kind: pa.DataType) -> str:
    if pa.types.is_uint64(kind):
        return "cast it to int64, or to decimal128(20, 0) to keep every value"
    if pa.types.is_float16(kind):
        return "cast it to float32"
    if pa.types.is_null(kind):
        return "cast it to the type its values will have"
    if pa.types.is_decimal(kind):
        return f"use at most {_DECIMAL_DIGITS_MAX} digits, and a scale from 0 to the number of digits"
    if pa.types.is_temporal(kind):
        return "cast it to int64 or string"
    return "cast it to a type that Avro knows"


def _sanitise(table_name: str) -> str:
    if not table_name:
        raise InvalidRequest("a table needs a name")
    return re.sub(r"^[0-9]|[^A-Za-z0-9_]", "__", table_name)


def _avro_record(fields: Iterable[pa.Field], *, name: str, namespace: str) -> dict[str, Any]:
    inside = f"{namespace}.{name}"
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [
            {
                "name": field.name,
                "type": ["null", _avro_type(field.type, name=field.name, namespace=inside)],
                "default": None,
            }
            for field in fields
        ],
    }


def _avro_type(kind: pa.DataType, *, name: str, namespace: str) -> str | dict[str, Any]:
    """The Avro type of a storable type; a named type in it is called after its column."""
    if kind in _PLAIN_AVRO:
        return _PLAIN_AVRO[kind]
    if kind == _ZONELESS:
        return _ZONELESS_AVRO
    if kind in _LOGICAL_AVRO:
        base, logical = _LOGICAL_AVRO[kind]
        return {"type": base, "logicalType": logical}
    if pa.types.is_struct(kind):
        return _avro_record(kind, name=name, namespace=namespace)
    if pa.types.is_list(kind):
        return {
            "type": "array",
            "items": ["null", _avro_type(kind.value_type, name=name, namespace=namespace)],
        }
    if pa.types.is_map(kind):
        return {"type": "map", "values": ["null", _avro_type(kind.item_type, name=name, namespace=namespace)]}
    fixed = {"type": "fixed", "name": "fixed", "namespace": f"{namespace}.{name}"}
    if pa.types.is_decimal(kind):
        digits = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {**fixed, "size": _decimal_size(kind.precision), **digits}
    assert pa.types.is_fixed_size_binary(kind), f"not a storable type: {kind}"
    return {**fixed, "size": kind.byte_width}


def _decimal_size(precision: int) -> int:
    """Bytes that hold every signed number of this many digits."""
    largest: int = 10**precision - 1
    return largest.bit_length() // 8 + 1


def _parse_json(avro_json: str) -> object:
    try:
        return json.loads(avro_json)
    except ValueError as error:
        raise Malformed(f"Avro schema is not JSON: {error}") from error


class _AvroTypes:
    """Arrow types by the Avro names defined so far; None while inside the definition."""

    def __init__(self) -> None:
        self._known: dict[str, pa.DataType | None] = {}

    def arrow_type(self, avro: object, *, namespace: str, path: str) -> pa.DataType:
        match avro:
            case str():
                return self._type_of_name(avro, namespace=namespace, path=path)
            case list():
                return self._union(avro, namespace=namespace, path=path)
            case {"type": str(kind), **attributes}:
                _refuse_newer_type(attributes, path)
                return self._complex(kind, attributes, namespace=namespace, path=path)
            case {"type": dict() | list() as inner}:
                return self.arrow_type(inner, namespace=namespace, path=path)
            case _:
                raise Malformed(f"Avro schema has no type at {path!r}")

    def _type_of_name(self, name: str, *, namespace: str, path: str) -> pa.DataType:
        if name in _PLAIN_ARROW:
            return _PLAIN_ARROW[name]
        if name == "null":
            raise UnsupportedTable("a column of the table has no type but null", column=path)
        full_name = _full_name(name, namespace=namespace)
        if full_name not in self._known:
            raise Malformed(f"Avro schema does not define {full_name!r}, used at {path!r}")
        known = self._known[full_name]
        if known is None:
            raise UnsupportedTable("a column of the table contains itself", column=path)
        return known

    def _union(self, branches: list[object], *, namespace: str, path: str) -> pa.DataType:
        if any(isinstance(branch, list) for branch in branches):
            raise Malformed(f"Avro schema has a union within a union at {path!r}")
        present = [branch for branch in branches if branch != "null"]
        if len(present) > 1:
            raise UnsupportedTable("a column of the table has several types at once", column=path)
        return self.arrow_type(present[0] if present else "null", namespace=namespace, path=path)

    def _complex(self, kind: str, avro: _Attributes, *, namespace: str, path: str) -> pa.DataType:
        match kind:
            case "array":
                element = self.arrow_type(avro.get("items"), namespace=namespace, path=f"{path}.element")
                return pa.list_(pa.field("element", element))
            case "map":
                value = self.arrow_type(avro.get("values"), namespace=namespace, path=f"{path}.value")
                return pa.map_(pa.string(), value)
            case "record" | "enum" | "fixed":
                return self._definition(kind, avro, namespace=namespace, path=path)
            case _:
                logical = _logical_type(kind, avro)
                return logical or self._type_of_name(kind, namespace=namespace, path=path)

    def _definition(self, kind: str, avro: _Attributes, *, namespace: str, path: str) -> pa.DataType:
        name, own_namespace = avro.get("name"), avro.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(own_namespace, str):
            raise Malformed(f"Avro schema has a {kind} without a name at {path!r}")
        full_name = _full_name(name, namespace=own_namespace)
        self._known[full_name] = None
        if kind == "record":
            inside = full_name.rpartition(".")[0]
            defined = pa.struct(self._fields(avro.get("fields"), namespace=inside, path=path))
        elif kind == "enum":
            defined = pa.string()
        else:
            defined = _type_of_fixed(avro, path=path)
        self._known[full_name] = defined
        return defined

    def _fields(self, avro: object, *, namespace: str, path: str) -> list[pa.Field]:
        if not isinstance(avro, list):
            raise Malformed(f"Avro schema has a record without fields at {path!r}")
        fields: dict[str, pa.Field] = {}
        for entry in avro:
            match entry:
                case {"name": str(name), "type": kind} if name not in fields:
                    column = f"{path}.{name}" if path else name
                    fields[name] = pa.field(name, self.arrow_type(kind, namespace=namespace, path=column))
                case _:
                    raise Malformed(
                        f"Avro schema has a field without a name of its own or a type in {path!r}"
                    )
        return list(fields.values())


def _refuse_newer_type(avro: _Attributes, path: str) -> None:
    """Refuse what Hudi from 1.2 on means by an annotation, and stores in a form of its own."""
    logical = avro.get("logicalType")
    if isinstance(logical, str) and logical.lower() in _NEWER_TYPES:
        raise UnsupportedTable(
            "a column of the table has a type that is not supported", column=path, type=logical.upper()
        )


def _full_name(name: str, *, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _logical_type(base: str, avro: _Attributes) -> pa.DataType | None:
    """The type that the annotation asks for. Unknown and invalid ones count as none, as Avro demands."""
    logical = avro.get("logicalType")
    if not isinstance(logical, str):
        return None
    if logical == _ZONELESS_AVRO["logicalType"] and avro.get(_ADJUSTED) is False:
        return _ZONELESS
    if logical != "decimal" or base not in ("bytes", "fixed"):
        return _LOGICAL_ARROW.get((base, logical))
    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if (
        not isinstance(precision, int)
        or not isinstance(scale, int)
        or not 0 <= scale <= precision
        or not precision
    ):
        return None
    if precision > _ARROW_DIGITS_MAX:
        raise UnsupportedTable("a column of the table has too many decimal digits", precision=precision)
    return (
        pa.decimal128(precision, scale)
        if precision <= _DECIMAL_DIGITS_MAX
        else pa.decimal256(precision, scale)
    )


def _type_of_fixed(avro: _Attributes, *, path: str) -> pa.DataType:
    size = avro.get("size")
    if not isinstance(size, int) or not 0 < size < 1 << 31:
        raise Malformed(f"Avro schema has a fixed of size {size!r} at {path!r}")
    return _logical_type("fixed", avro) or pa.binary(size)
