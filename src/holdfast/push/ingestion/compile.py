"""The statement that makes the rows of a table of the rows that come in."""

from collections.abc import Collection, Sequence

import pyarrow as pa

from holdfast.config.push_schema import DataType, Field
from holdfast.errors import SchemaMismatch
from holdfast.push.ingestion.complex_types import Value, flat_stages, is_nested
from holdfast.push.ingestion.expressions import ROWS, expression_sql, parse_expression
from holdfast.push.ingestion.program import INPUT, RowProgram
from holdfast.push.ingestion.rules import RowRules, Transform
from holdfast.push.queries.columns import DUCKDB_TYPES, Column
from holdfast.push.queries.typed import Typed, as_text, quote

_RAW = "$raw."
"""Before a column's name: the column as it came, where expressions need it in another form."""
_FILTER = "ingestionConfig.filterConfig.filterFunction"


def row_program(
    rules: RowRules, schema: pa.Schema, fields: Sequence[Field], chosen: Collection[str] = ()
) -> RowProgram:
    """The statement for rows of a schema; `chosen` are the fields to take, or all."""
    wanted = [one for one in fields if not chosen or one.name in chosen]
    names = {one.name for one in wanted} | rules.sources
    used = schema if rules.complex_types else pa.schema([one for one in schema if one.name in names])
    stages = _Stages(used)
    if rules.complex_types is not None:
        for columns in flat_stages(rules.complex_types, used, names):
            stages.add(columns)
    stages.normalise({one.name: one for one in fields})
    for transform in rules.transforms:
        stages.transform(transform)
    where = ""
    if rules.filter:
        skipped = expression_sql(rules.filter, stages.columns(rules.filter, _FILTER), place=_FILTER)
        where = f" WHERE NOT COALESCE(CAST({skipped.sql} AS BOOLEAN), FALSE)"
    stages.select(stages.outputs(wanted))
    return RowProgram(stages.sql + where, tuple(used.names))


class _Stages:
    """The statement so far, and the columns that it has."""

    def __init__(self, schema: pa.Schema) -> None:
        self.sql = f"FROM {INPUT}"
        self._types: dict[str, pa.DataType] = {one.name: one.type for one in schema}
        self._columns: dict[str, Column] = {}
        self._raw: set[str] = set()
        self._computed: set[str] = set()
        self._missing: dict[str, Column] = {}
        """Columns of the table that the input lacks."""

    def select(self, listed: str) -> None:
        """Make the columns of these; names are quoted, and expressions are the translator's."""
        self.sql = f"SELECT {listed} FROM ({self.sql}) AS {ROWS}"  # noqa: S608

    def add(self, columns: Sequence[Value]) -> None:
        listed = ", ".join(f"{one.sql} AS {quote(one.name)}" for one in columns)
        self.select(listed)
        self._types = {one.name: one.type for one in columns}

    def normalise(self, fields: dict[str, Field]) -> None:
        """Give every column the type that expressions know, and keep it as it came where that is another."""
        listed: list[str] = []
        for name, kind in self._types.items():
            sql, column = _column(name, kind)
            listed.append(f"{sql} AS {quote(name)}")
            if sql != quote(name):
                listed.append(f"{quote(name)} AS {quote(_RAW + name)}")
                self._raw.add(name)
            self._columns[name] = column
        self._missing = {
            name: Column(name=name, kind=one.type, is_array=one.is_array)
            for name, one in fields.items()
            if name not in self._columns
        }
        self.select(", ".join(listed))

    def transform(self, one: Transform) -> None:
        """A column is computed where it is null, or not there; a nested one always, as in Pinot."""
        value = expression_sql(one.expression, self.columns(one.expression, one.place), place=one.place)
        held = self._columns.get(one.column)
        if held is not None and not held.is_array and not is_nested(self._types.get(one.column, pa.null())):
            value = _or_else(Typed(f"{ROWS}.{quote(one.column)}", held.kind), value)
        others = f" EXCLUDE ({quote(one.column)})" if held is not None else ""
        self.select(f"*{others}, {value.sql} AS {quote(one.column)}")
        self._columns[one.column] = Column(
            name=one.column, kind=value.kind or DataType.STRING, is_array=value.is_array
        )
        self._computed.add(one.column)

    def columns(self, expression: str, place: str) -> list[Column]:
        """The columns that an expression may read. Those of the table that the input lacks are null."""
        known = self._columns
        for name in parse_expression(expression, place).columns:
            if name not in known and name in self._missing:
                column = self._missing[name]
                kind = DUCKDB_TYPES[column.kind] + ("[]" if column.is_array else "")
                self.select(f"*, CAST(NULL AS {kind}) AS {quote(name)}")
                known[name] = column
            elif name not in known:
                raise SchemaMismatch(
                    "the input has no such column", column=name, setting=place, columns=", ".join(known)
                )
        return list(known.values())

    def outputs(self, wanted: Sequence[Field]) -> str:
        listed = []
        for one in wanted:
            is_computed = one.name in self._computed
            if not is_computed and (one.name not in self._columns or one.name in self._missing):
                continue
            if is_computed or one.name not in self._raw:
                listed.append(quote(one.name))
                continue
            # Nested values are JSON where the table keeps text.
            keeps = one.is_array or not is_nested(self._types[one.name])
            listed.append(f"{quote(_RAW + one.name if keeps else one.name)} AS {quote(one.name)}")
        if not listed:
            raise SchemaMismatch(
                "the input has no column of the table",
                columns=", ".join(self._columns),
                wanted=", ".join(one.name for one in wanted),
            )
        return ", ".join(listed)


def _or_else(held: Typed, value: Typed) -> Typed:
    """What came, and where it is null, what is computed; in one type."""
    if held.kind is value.kind:
        return Typed(f"COALESCE({held.sql}, {value.sql})", value.kind)
    return Typed(f"COALESCE({as_text(held)}, {as_text(value)})", DataType.STRING)


def _column(name: str, kind: pa.DataType) -> tuple[str, Column]:
    """The column in the form that expressions know, and what it is to them."""
    plain = quote(name)
    if pa.types.is_dictionary(kind):
        sql, column = _column(name, kind.value_type)
        return f"CAST({plain} AS {DUCKDB_TYPES[column.kind]})" if sql == plain else sql, column
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = None if is_nested(kind.value_type) else _kind(kind.value_type)
        if found is not None and found is not DataType.TIMESTAMP:
            return plain, Column(name=name, kind=found, is_array=True)
    if is_nested(kind):
        return f"CAST(to_json({plain}) AS VARCHAR)", Column(name=name, kind=DataType.JSON)
    found = _kind(kind)
    column = Column(name=name, kind=found)
    if found is DataType.TIMESTAMP:
        has_zone = pa.types.is_timestamp(kind) and kind.tz is not None
        local = f"timezone('UTC', {plain})" if has_zone else plain
        return f"CAST({local} AS TIMESTAMP)", column
    return plain, column


def _kind(kind: pa.DataType) -> DataType:
    types = pa.types
    if types.is_boolean(kind):
        return DataType.BOOLEAN
    if types.is_integer(kind):
        return DataType.LONG if kind.bit_width > 32 or kind == pa.uint32() else DataType.INT
    if types.is_floating(kind):
        return DataType.DOUBLE if kind.bit_width > 32 else DataType.FLOAT
    if types.is_decimal(kind):
        return DataType.BIG_DECIMAL
    if types.is_timestamp(kind) or types.is_date(kind):
        return DataType.TIMESTAMP
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return DataType.BYTES
    return DataType.STRING
