"""Pieces of DuckDB SQL that know which Pinot type they have."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from holdfast.config.push_schema import DataType
from holdfast.push.queries.columns import DUCKDB_TYPES, Column, Value
from holdfast.push.queries.dialect import write
from holdfast.push.queries.failures import QueryError, QueryFailed

_INT_MAX = 2**31
_LONG_MAX = 2**63


@dataclass(frozen=True, slots=True)
class Typed:
    form: str | exp.Expr
    """DuckDB's text of a function's value, or the tree of an operator's."""
    kind: DataType | None
    """None where it is not known before the query runs."""
    is_array: bool = False
    literal: int | float | str | None = None
    """The value, if it was written in the statement."""

    @property
    def is_number(self) -> bool:
        return self.kind is not None and self.kind.is_number

    @property
    def is_text(self) -> bool:
        return self.kind in (DataType.STRING, DataType.JSON)

    @property
    def sql(self) -> str:
        return self.form if isinstance(self.form, str) else write(self.form)

    @property
    def node(self) -> exp.Expr:
        """The value in a tree for an engine; text is a leaf that is written as it stands."""
        return leaf(self.form) if isinstance(self.form, str) else self.form


def leaf(sql: str) -> exp.Var:
    """Text that is written as it stands."""
    return exp.Var(this=sql)


def identifier(name: str) -> exp.Identifier:
    """A name in a tree for an engine."""
    return exp.to_identifier(name, quoted=True)


def table_alias(name: str, columns: Iterable[str] = ()) -> exp.TableAlias:
    return exp.TableAlias(this=identifier(name), columns=[identifier(column) for column in columns])


def quote(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    if "\0" in text:
        raise QueryFailed(QueryError.SQL_PARSING, "a text holds the character NUL")
    return "'" + text.replace("'", "''") + "'"


def list_literal(texts: Iterable[str]) -> str:
    return f"[{', '.join(text_literal(text) for text in texts)}]"


def text(value: str) -> Typed:
    return Typed(text_literal(value), DataType.STRING, literal=value)


def number(digits: str) -> Typed:
    """A number as it is written. One with a point or an exponent is a double, as in Pinot."""
    if digits.isdigit():
        value = int(digits)
        if value > _LONG_MAX:
            raise QueryFailed(QueryError.QUERY_VALIDATION, "the number is too large", number=digits[:40])
        return Typed(digits, DataType.INT if value < _INT_MAX else DataType.LONG, literal=value)
    try:
        real = float(digits)
    except ValueError:
        raise QueryFailed(QueryError.SQL_PARSING, "not a number", number=digits[:40]) from None
    return Typed(digits if "e" in digits.lower() else f"{digits}e0", DataType.DOUBLE, literal=real)


def constant(value: Value, kind: DataType) -> str:
    """A value of exactly the type that a column of the kind has."""
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if kind is DataType.TIMESTAMP:
        return f"epoch_ms(CAST({value} AS BIGINT))"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return f"CAST({text_literal(str(value))} AS {DUCKDB_TYPES[kind]})"


def default_sql(column: Column) -> str:
    """What stands for null in a column."""
    default = constant(column.default, column.kind)
    return f"[{default}]" if column.is_array else default


def as_double(value: Typed) -> str:
    if value.kind is DataType.TIMESTAMP:
        return f"CAST(epoch_ms({value.sql}) AS DOUBLE)"
    return value.sql if value.kind is DataType.DOUBLE else f"CAST({value.sql} AS DOUBLE)"


def as_long(value: Typed) -> str:
    """Whole numbers as they are; others cut off, as Java does and DuckDB's cast does not."""
    if value.kind is DataType.TIMESTAMP:
        return f"epoch_ms({value.sql})"
    if value.kind is DataType.LONG:
        return value.sql
    if value.kind in (DataType.INT, DataType.BOOLEAN):
        return f"CAST({value.sql} AS BIGINT)"
    if value.is_text:
        return f"CAST({value.sql} AS BIGINT)"
    return f"CAST(trunc({value.sql}) AS BIGINT)"


def as_text(value: Typed) -> str:
    if value.is_text:
        return value.sql
    if value.kind is DataType.BYTES:
        return f"lower(hex({value.sql}))"
    if value.kind is DataType.TIMESTAMP:
        written = f"strftime({value.sql}, '%Y-%m-%d %H:%M:%S.%f')"
        return f"regexp_replace({written}, '(\\.\\d+?)0*$', '\\1')"
    return f"CAST({value.sql} AS VARCHAR)"


def as_millis(value: Typed) -> str:
    """Milliseconds since the epoch, from a timestamp, a number of them, or a text that reads as a time."""
    if value.is_text:
        return f"epoch_ms({as_timestamp(value)})"
    return as_long(value)


def as_timestamp(value: Typed) -> str:
    if value.kind is DataType.TIMESTAMP:
        return value.sql
    if value.is_text:
        if isinstance(value.literal, str) and value.literal.lstrip("-").isdigit():
            return f"epoch_ms(CAST({value.literal} AS BIGINT))"
        return f"CAST({value.sql} AS TIMESTAMP)"
    return f"epoch_ms({as_long(value)})"


def cast(value: Typed, kind: DataType) -> Typed:
    """Pinot's CAST."""
    match kind:
        case DataType.LONG:
            return Typed(as_long(value), kind)
        case DataType.INT:
            return Typed(f"CAST({as_long(value)} AS INTEGER)", kind)
        case DataType.TIMESTAMP:
            return Typed(as_timestamp(value), kind)
        case DataType.STRING | DataType.JSON:
            return Typed(as_text(value), kind)
        case DataType.FLOAT | DataType.DOUBLE | DataType.BIG_DECIMAL if value.kind is DataType.TIMESTAMP:
            return Typed(f"CAST(epoch_ms({value.sql}) AS {DUCKDB_TYPES[kind]})", kind)
        case DataType.BYTES if value.is_text:
            return Typed(f"from_hex({value.sql})", kind)
        case _:
            return Typed(f"CAST({value.sql} AS {DUCKDB_TYPES[kind]})", kind)
