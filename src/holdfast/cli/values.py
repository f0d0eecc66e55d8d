"""Values of rows, as JSON and as people read them.

Dates and times are ISO text, decimals text, bytes hexadecimal; numbers that
JSON does not know (NaN and the infinities) are text, too.
"""

import datetime as dt
import json
import math
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa


def row_documents(rows: pa.Table) -> Iterator[dict[str, object]]:
    """One JSON object for each row."""
    columns = [[plain(value, field.type) for value in rows[field.name].to_pylist()] for field in rows.schema]
    for values in zip(*columns, strict=True):
        yield dict(zip(rows.column_names, values, strict=True))


def plain(value: object, kind: pa.DataType) -> object:
    """A value of an Arrow type as JSON can hold it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _UNKNOWN_TO_JSON.get(value, "NaN")
        case Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case dict():
            return {field.name: plain(value[field.name], field.type) for field in kind}
        case list() if pa.types.is_map(kind):
            return {_key(plain(key, kind.key_type)): plain(item, kind.item_type) for key, item in value}
        case list():
            return [plain(item, kind.value_type) for item in value]
    return str(value)


def cell(value: object) -> object:
    """A plain value as it stands in a table."""
    if value is None:
        return "null"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | dict | list) else value


_UNKNOWN_TO_JSON = {math.inf: "Infinity", -math.inf: "-Infinity"}


def _key(key: object) -> str:
    return key if isinstance(key, str) else json.dumps(key)
