"""Table configurations and schemas as Pinot keeps them in its property store.

A configuration is a ZNRecord with every section as JSON text under its key; a
schema is one text, `schemaJSON`.
"""

import json
from collections.abc import Mapping
from typing import Any

from holdfast.format.malformed import Malformed
from holdfast.format.znode import ZNRecord

_SCHEMA = "schemaJSON"
_TEXTS = frozenset({"tableName", "tableType"})
"""Kept as they are. All the others are JSON, a flag included."""


def table_config_record(table: str, config: Mapping[str, Any]) -> ZNRecord:
    return ZNRecord(
        id=table,
        simple={key: value if key in _TEXTS else _json(value) for key, value in config.items()},
    )


def table_config_of(record: ZNRecord) -> dict[str, Any]:
    return {key: value if key in _TEXTS else _section(key, value) for key, value in record.simple.items()}


def schema_record(name: str, schema: Mapping[str, Any]) -> ZNRecord:
    return ZNRecord(id=name, simple={_SCHEMA: _json(schema)})


def schema_of(record: ZNRecord) -> dict[str, Any]:
    try:
        schema = json.loads(record.simple[_SCHEMA])
    except (KeyError, ValueError, RecursionError) as error:
        raise Malformed("the record holds no schema") from error
    if not isinstance(schema, dict):
        raise Malformed("the schema is not an object")
    return schema


def _section(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{key} is not JSON") from error


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
