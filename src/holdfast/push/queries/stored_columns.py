"""From a column as a file stores it to one of the type that the schema gives it, as DuckDB's SQL."""

from collections.abc import Callable

import pyarrow as pa

from holdfast.config.push_schema import DataType
from holdfast.push.queries import wire
from holdfast.push.queries.columns import DUCKDB_TYPES, FILLED
from holdfast.push.queries.typed import quote

IsPlain = Callable[[pa.DataType, DataType], bool]
"""Whether a stored type is read as exactly the type of the kind."""


def column_sql(
    stored: pa.Schema, column: wire.ColumnTask, *, without_nulls: frozenset[str], is_plain: IsPlain
) -> str:
    """A stored column in the type that the schema gives it, with its default where it may be null."""
    name = _name_in_file(stored, column.name)
    if name is None:
        return column.default or f"CAST(NULL AS {type_of(column)})"
    sql = _convert_column(stored.field(name).type, quote(name), column, is_plain)
    if column.default is None or name in without_nulls:
        return sql
    return f"COALESCE({sql}, {column.default})"


def name_in_statement(column: wire.ColumnTask) -> str:
    """The name under which the statement knows the column."""
    return column.name if column.default is None else FILLED + column.name


def type_of(column: wire.ColumnTask) -> str:
    return DUCKDB_TYPES[column.kind] + ("[]" if column.is_array else "")


def is_same(stored: pa.DataType, kind: DataType) -> bool:
    """Whether both are the same type everywhere; for timestamps it depends on who reads them."""
    types = pa.types
    match kind:
        case DataType.INT:
            return bool(types.is_int32(stored))
        case DataType.LONG:
            return bool(types.is_int64(stored))
        case DataType.FLOAT:
            return bool(types.is_float32(stored))
        case DataType.DOUBLE:
            return bool(types.is_float64(stored))
        case DataType.BIG_DECIMAL:
            return bool(types.is_decimal(stored))
        case DataType.BOOLEAN:
            return bool(types.is_boolean(stored))
        case DataType.STRING | DataType.JSON:
            return bool(types.is_string(stored) or types.is_large_string(stored))
        case DataType.BYTES:
            return bool(types.is_binary(stored) or types.is_large_binary(stored))
        case DataType.TIMESTAMP:
            return False


def _name_in_file(stored: pa.Schema, name: str) -> str | None:
    names = stored.names
    if name in names:
        return name
    return next((one for one in names if one.lower() == name.lower()), None)


def _convert_column(kind: pa.DataType, sql: str, column: wire.ColumnTask, is_plain: IsPlain) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if column.is_array:
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        items = sql if is_list else f"[{sql}]"
        is_right = is_list and is_plain(kind.value_type, column.kind)
        return items if is_right else f"CAST({items} AS {type_of(column)})"
    return sql if is_plain(kind, column.kind) else _convert_value(sql, kind, column.kind)


def _convert_value(sql: str, stored: pa.DataType, kind: DataType) -> str:
    types = pa.types
    if kind is DataType.TIMESTAMP and types.is_integer(stored):
        return f"epoch_ms(CAST({sql} AS BIGINT))"
    if kind in (DataType.LONG, DataType.INT) and (types.is_timestamp(stored) or types.is_date(stored)):
        return f"CAST(epoch_ms(CAST({sql} AS TIMESTAMP)) AS {DUCKDB_TYPES[kind]})"
    if kind in (DataType.STRING, DataType.JSON):
        if types.is_binary(stored) or types.is_large_binary(stored):
            return f"decode({sql})"
        if types.is_nested(stored):
            return f"CAST(to_json({sql}) AS VARCHAR)"
    if kind is DataType.BYTES and (types.is_string(stored) or types.is_large_string(stored)):
        return f"encode({sql})"
    return f"CAST({sql} AS {DUCKDB_TYPES[kind]})"
