"""Iceberg's metadata, version 2: schemas and bounds as it spells them, manifests and their lists in Avro.

A manifest is a list of data files, each added, still there, or removed by some
snapshot; a snapshot is a list of manifests.
"""

import datetime as dt
import decimal
import hashlib
import io
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa

from holdfast.errors import UnsupportedTable
from holdfast.format.field_ids import META_FIELD_IDS, FieldIds
from holdfast.format.malformed import Malformed

EXISTING, ADDED, DELETED = 0, 1, 2
"""What a manifest says of a file."""
FIRST_PARTITION_ID = 1000
_SYNC_SIZE = 16
_DECIMAL_DIGITS_MAX = 38
_TEXT_MAX = 64
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # without a zone, as values of a column are
_LEAVES = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.time64("us"): "time",
    pa.string(): "string",
    pa.binary(): "binary",
}
_PARTITION_AVRO: Mapping[str, Any] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "string": "string",
    "date": {"type": "int", "logicalType": "date"},
}


def schema_fields(schema: pa.Schema, ids: FieldIds) -> list[dict[str, Any]]:
    """The columns as Iceberg's JSON; `UnsupportedTable` names one that it has no type for."""
    return [_field(field, field.name, ids) for field in schema]


def name_mapping(schema: pa.Schema, ids: FieldIds) -> str:
    """Which column of files without field ids is which; readers want every column of the files in it."""
    meta = [{"field-id": number, "names": [name]} for name, number in META_FIELD_IDS.items()]
    return json.dumps([*meta, *(_mapping(field, field.name, ids) for field in schema)])


def bound_bytes(value: Any, kind: pa.DataType, *, is_upper: bool) -> bytes | None:
    """A bound as Iceberg spells it; None if it is better left out, as it is of fractions.

    The greatest value of a footer is not that of readers to whom NaN is greater.
    """
    if isinstance(value, bool):
        return bytes([value]) if pa.types.is_boolean(kind) else None
    if isinstance(value, int) and pa.types.is_integer(kind):
        return struct.pack("<q" if kind == pa.int64() else "<i", value)
    if isinstance(value, str) and pa.types.is_string(kind):
        if is_upper and len(value) > _TEXT_MAX:
            return None
        return value[:_TEXT_MAX].encode()
    if isinstance(value, dt.datetime) and pa.types.is_timestamp(kind):
        plain = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        return struct.pack("<q", (plain - _EPOCH) // dt.timedelta(microseconds=1))
    if isinstance(value, dt.date) and pa.types.is_date(kind):
        return struct.pack("<i", (value - _EPOCH.date()).days)
    if isinstance(value, decimal.Decimal) and pa.types.is_decimal(kind):
        unscaled = int(value.scaleb(kind.scale))
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return unscaled.to_bytes(size, "big", signed=True)
    return None


def encode_manifest(
    entries: Iterable[Mapping[str, Any]],
    *,
    schema: Mapping[str, Any],
    spec_id: int,
    partition_fields: Sequence[Mapping[str, Any]],
) -> bytes:
    """A manifest of files of one partition spec; equal input gives equal bytes."""
    metadata = {
        "schema": json.dumps(schema),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": json.dumps(partition_fields),
        "partition-spec-id": str(spec_id),
        "format-version": "2",
        "content": "data",
    }
    kinds = {field["id"]: field["type"] for field in schema["fields"]}
    return _encode(_manifest_schema(partition_fields, kinds), entries, metadata)


def encode_manifest_list(manifests: Iterable[Mapping[str, Any]], *, snapshot: Mapping[str, Any]) -> bytes:
    metadata = {
        "snapshot-id": str(snapshot["snapshot-id"]),
        "parent-snapshot-id": str(snapshot.get("parent-snapshot-id", "null")),
        "sequence-number": str(snapshot["sequence-number"]),
        "format-version": "2",
    }
    return _encode(_MANIFEST_LIST, manifests, metadata)


def decode_records(content: bytes) -> list[dict[str, Any]]:
    """The entries of a manifest, or of a list of manifests."""
    try:
        return [record for record in fastavro.reader(io.BytesIO(content)) if isinstance(record, dict)]
    except Exception as error:  # fastavro says by many types that bytes make no sense
        raise Malformed(f"not a manifest: {error}") from error


def id_map(values: Mapping[int, Any]) -> list[dict[str, Any]]:
    """Field id → value, as the records of a manifest have it."""
    return [{"key": key, "value": value} for key, value in values.items()]


def _encode(
    schema: Mapping[str, Any], records: Iterable[Mapping[str, Any]], metadata: Mapping[str, str]
) -> bytes:
    rows = list(records)
    buffer = io.BytesIO()
    mark = hashlib.sha256(repr((rows, metadata)).encode()).digest()[:_SYNC_SIZE]
    fastavro.writer(buffer, dict(schema), rows, codec="deflate", metadata=dict(metadata), sync_marker=mark)
    return buffer.getvalue()


def _field(field: pa.Field, path: str, ids: FieldIds) -> dict[str, Any]:
    # Files of older schemas lack newer columns, so any may be null.
    return {
        "id": ids[path],
        "name": field.name,
        "required": False,
        "type": _type(field.type, path, ids),
    }


def _type(kind: pa.DataType, path: str, ids: FieldIds) -> Any:
    if kind in _LEAVES:
        return _LEAVES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS_MAX:
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_struct(kind):
        fields = [_field(field, f"{path}.{field.name}", ids) for field in kind]
        return {"type": "struct", "fields": fields}
    if pa.types.is_list(kind):
        inner = f"{path}.element"
        element = {"element-id": ids[inner], "element": _type(kind.value_type, inner, ids)}
        return {"type": "list", **element, "element-required": False}
    if pa.types.is_map(kind):
        key, value = f"{path}.key", f"{path}.value"
        return {
            "type": "map",
            "key-id": ids[key],
            "key": _type(kind.key_type, key, ids),
            "value-id": ids[value],
            "value": _type(kind.item_type, value, ids),
            "value-required": False,
        }
    raise UnsupportedTable(
        "Iceberg has no type for a column",
        column=path,
        type=kind,
        hint="do not export this table to iceberg, or store the column as another type",
    )


def _mapping(field: pa.Field, path: str, ids: FieldIds) -> dict[str, Any]:
    name = path.rpartition(".")[2]
    children: list[dict[str, Any]] = []
    if pa.types.is_struct(field.type):
        children = [_mapping(child, f"{path}.{child.name}", ids) for child in field.type]
    elif pa.types.is_list(field.type):
        children = [_mapping(field.type.value_field, f"{path}.element", ids)]
    elif pa.types.is_map(field.type):
        pair = ((field.type.key_field, "key"), (field.type.item_field, "value"))
        children = [_mapping(child, f"{path}.{part}", ids) for child, part in pair]
    mapped: dict[str, Any] = {"field-id": ids[path], "names": [name]}
    return {**mapped, "fields": children} if children else mapped


def _avro(number: int, name: str, kind: Any, *, optional: bool = False) -> dict[str, Any]:
    field = {"name": name, "type": ["null", kind] if optional else kind, "field-id": number}
    return {**field, "default": None} if optional else field


def _avro_map(number: int, name: str, key_id: int, value: str) -> dict[str, Any]:
    """A map whose keys are numbers is an array of pairs."""
    record = f"k{key_id}_v{key_id + 1}"
    pair = {
        "type": "record",
        "name": record,
        "fields": [_avro(key_id, "key", "int"), _avro(key_id + 1, "value", value)],
    }
    return _avro(number, name, {"type": "array", "items": pair, "logicalType": "map"}, optional=True)


def _manifest_schema(
    partition_fields: Sequence[Mapping[str, Any]], kinds: Mapping[int, Any]
) -> dict[str, Any]:
    partition = [
        _avro(field["field-id"], field["name"], _PARTITION_AVRO[kinds[field["source-id"]]], optional=True)
        for field in partition_fields
    ]
    data_file = [
        _avro(134, "content", "int"),
        _avro(100, "file_path", "string"),
        _avro(101, "file_format", "string"),
        _avro(102, "partition", {"type": "record", "name": "r102", "fields": partition}),
        _avro(103, "record_count", "long"),
        _avro(104, "file_size_in_bytes", "long"),
        _avro_map(109, "value_counts", 119, "long"),
        _avro_map(110, "null_value_counts", 121, "long"),
        _avro_map(125, "lower_bounds", 126, "bytes"),
        _avro_map(128, "upper_bounds", 129, "bytes"),
        _avro(140, "sort_order_id", "int", optional=True),
    ]
    fields = [
        _avro(0, "status", "int"),
        _avro(1, "snapshot_id", "long", optional=True),
        _avro(3, "sequence_number", "long", optional=True),
        _avro(4, "file_sequence_number", "long", optional=True),
        _avro(2, "data_file", {"type": "record", "name": "r2", "fields": data_file}),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


_MANIFEST_LIST: Mapping[str, Any] = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _avro(500, "manifest_path", "string"),
        _avro(501, "manifest_length", "long"),
        _avro(502, "partition_spec_id", "int"),
        _avro(517, "content", "int"),
        _avro(515, "sequence_number", "long"),
        _avro(516, "min_sequence_number", "long"),
        _avro(503, "added_snapshot_id", "long"),
        _avro(504, "added_files_count", "int"),
        _avro(505, "existing_files_count", "int"),
        _avro(506, "deleted_files_count", "int"),
        _avro(512, "added_rows_count", "long"),
        _avro(513, "existing_rows_count", "long"),
        _avro(514, "deleted_rows_count", "long"),
    ],
}
