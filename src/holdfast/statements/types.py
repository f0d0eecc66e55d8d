"""Types of columns as SQL spells them."""

import pyarrow as pa

_PLAIN = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}


def sql_type(kind: pa.DataType) -> str:
    """The type as Spark's SQL has it."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{sql_type(field.type)}' for field in kind)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    return _PLAIN.get(kind, str(kind))
