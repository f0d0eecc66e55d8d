"""Statements on Spark: queries over frames, and rows in the types of a table.

A query names frames by placeholders, which Spark's own `sql` resolves: also on
Spark Connect, where a temporary view would have to outlive the frame.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from holdfast.engines.spark.keys import quote
from holdfast.engines.spark.types import arrow_schema_of, spark_schema_of, spark_type_of
from holdfast.errors import InvalidRequest, SchemaMismatch
from holdfast.writes.merge_task import REMOVES

_INTEGERS = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_FLOATS = (spark.FloatType, spark.DoubleType)
_TIMES = (spark.DateType, spark.TimestampType, spark.TimestampNTZType)
_DIGITS: dict[type[spark.DataType], int] = {
    spark.ByteType: 3,
    spark.ShortType: 5,
    spark.IntegerType: 10,
    spark.LongType: 19,
}
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


def run_query(session: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """What the query makes of the frames, which it calls by these names, in backticks."""
    template = text.replace("{", "{{").replace("}", "}}")
    for name in frames:
        template = template.replace(f"`{name}`", f"{{{name}}}")
    try:
        made = session.sql(template, **dict[str, Any](frames)) if frames else session.sql(text)
        # On Spark Connect nothing is looked at before this.
        assert made.columns is not None, "a query has columns"
    except (AnalysisException, ParseException) as error:
        raise InvalidRequest("Spark cannot run the statement", cause=_first_sentence(error)) from error
    return made


def _first_sentence(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].partition(" SQLSTATE:")[0].rstrip("; .")


def frame_of(session: SparkSession, rows: pa.Table) -> DataFrame:
    """A few rows as a DataFrame."""
    return session.createDataFrame(
        [tuple(row.values()) for row in rows.to_pylist()], spark_schema_of(rows.schema)
    )


def collect_rows(frame: DataFrame, limit: int | None) -> pa.Table:
    """The rows, or the first of them, in this process: for people and files to look at."""
    wanted = frame if limit is None else frame.limit(limit)
    if hasattr(wanted, "toArrow"):
        collected: pa.Table = wanted.toArrow()
        return collected
    schema = arrow_schema_of(wanted.schema)
    # PySpark 3.5 gives moments as this machine's clock shows them.
    columns = zip(*wanted.collect(), strict=True)
    arrays = [
        pa.array([_with_zone(value, field.type) for value in column], field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.table(arrays, schema=schema) if arrays else schema.empty_table()


def _with_zone(value: Any, kind: pa.DataType) -> Any:
    return (
        value.astimezone(dt.UTC) if value is not None and pa.types.is_timestamp(kind) and kind.tz else value
    )


def schema_of_types(session: SparkSession, columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """The schema of columns whose types are given in SQL."""
    nulls = [f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in columns]
    return arrow_schema_of(run_query(session, "SELECT " + ", ".join(nulls), {}).schema)


def schema_of_frame(frame: DataFrame) -> pa.Schema:
    return arrow_schema_of(frame.schema)


def replaces_dynamically(session: SparkSession) -> bool:
    """Whether INSERT OVERWRITE replaces only the partitions of its rows, as the session has it."""
    return str(session.conf.get(_OVERWRITE_MODE, "STATIC")).upper() == "DYNAMIC"


def assign_rows(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """The columns of the frame, in their order, as those of the schema."""
    pairs = zip(frame.schema.fields, schema, strict=True)
    # Placeholders, because a query may give two columns one name.
    plain = frame.toDF(*(f"_{number}" for number in range(len(schema))))
    return plain.select(
        *(
            _assign(f.col(f"_{number}"), given.dataType, spark_type_of(wanted.type), wanted.name).alias(
                wanted.name
            )
            for number, (given, wanted) in enumerate(pairs)
        )
    )


def complete_rows(frame: DataFrame, schema: pa.Schema, values: Mapping[str, str | None]) -> DataFrame:
    """The rows with all columns of the schema: those they lack with a value, given as text, or as nulls."""
    columns = []
    for field in schema:
        kind = spark_type_of(field.type)
        if field.name in values:
            column = f.lit(values[field.name]).cast(kind)
        else:
            column = f.col(quote(field.name)) if field.name in frame.columns else f.lit(None).cast(kind)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def empty_frame(session: SparkSession, schema: pa.Schema) -> DataFrame:
    return session.createDataFrame([], spark_schema_of(schema))


def has_lower_value(frame: DataFrame, *, stored: str, column: str, value: str) -> bool:
    """Whether a row's new value is below the one in its struct `stored`; null is the least."""
    before, after = f.col(stored).getField(column), f.col(quote(value))
    return has_rows(frame.where(before.isNotNull() & (after.isNull() | (after < before))))


def assign_actions(
    frame: DataFrame,
    schema: pa.Schema,
    *,
    action: str,
    values: Mapping[int, Mapping[str, str]],
    removals: Sequence[int],
    stored: str,
    kept: Sequence[str],
    partitions: Sequence[str],
    leaving: Sequence[int],
) -> DataFrame:
    """What each action makes of its row, and in the column `REMOVES` whether that removes the row's key.

    `values` says for each action which column of the frame goes into a column
    of the table; what it leaves out stays as it is in the struct `stored`.
    Removals have the columns `kept` alone. A row of an action that is
    `leaving` may get another partition: then it is removed from its own, too.
    """
    kinds = {each.name: each.dataType for each in frame.schema.fields}
    columns = {}
    for field in schema:
        wanted = spark_type_of(field.type)
        before = f.col(stored).getField(field.name)
        value = f.when(f.col(action).isin(*removals), before) if removals and field.name in kept else None
        for number, sources in values.items():
            source = sources.get(field.name)
            given = (
                before if source is None else _assign(f.col(quote(source)), kinds[source], wanted, field.name)
            )
            is_mine = f.col(action) == number
            value = f.when(is_mine, given) if value is None else value.when(is_mine, given)
        columns[field.name] = (f.lit(None) if value is None else value).cast(wanted).alias(field.name)
    acting = frame.where(f.col(action).isNotNull())
    removes = f.col(action).isin(*removals) if removals else f.lit(False)
    rows = acting.select(*columns.values(), removes.alias(REMOVES))
    if not partitions or not leaving:
        return rows
    stays = reduce(
        lambda first, second: first & second,
        (columns[name].eqNullSafe(f.col(stored).getField(name)) for name in partitions),
    )
    moved = acting.where(f.col(action).isin(*leaving) & ~stays).select(
        *(
            (f.col(stored).getField(field.name) if field.name in kept else f.lit(None))
            .cast(spark_type_of(field.type))
            .alias(field.name)
            for field in schema
        ),
        f.lit(True).alias(REMOVES),
    )
    return rows.union(moved)


def has_rows(frame: DataFrame) -> bool:
    return bool(frame.limit(1).count())


def find_twin(frame: DataFrame, names: Sequence[str]) -> bool:
    """Whether two rows agree in these columns."""
    return has_rows(frame.groupBy(*(f.col(quote(name)) for name in names)).count().where("count > 1"))


def check_same_key(given: pa.DataType, wanted: pa.DataType, column: str) -> None:
    """Refuse a value that would be stored as another one than was compared."""
    ours, theirs = spark_type_of(given), spark_type_of(wanted)
    if not _is_upcast(ours, theirs) and not (isinstance(ours, _INTEGERS) and isinstance(theirs, _INTEGERS)):
        raise SchemaMismatch(
            "ON compares a column with a value of another type",
            column=column,
            found=ours.simpleString(),
            expected=theirs.simpleString(),
            hint="cast it in the source: CAST(... AS type)",
        )


def _assign(value: Column, given: spark.DataType, wanted: spark.DataType, name: str) -> Column:
    """The value in the type of a column, by Spark's ANSI store assignment; nothing becomes null unseen."""
    if _is_upcast(given, wanted):
        return value if given == wanted else value.cast(wanted)
    if isinstance(wanted, _FLOATS) and _is_number(given):
        return value.cast(wanted)
    if _is_number(given) and _is_number(wanted):
        told = f.concat(
            f.lit(f"a value does not fit column {name} of type {wanted.simpleString()}: "),
            value.cast("string"),
        )
        # Where Spark is not in its ANSI mode a plain cast would wrap around, or give a null.
        least, most = _bounds(wanted)
        fits = (value >= f.lit(least)) & (value <= f.lit(most))
        return f.when(value.isNull() | fits, value.cast(wanted)).otherwise(f.raise_error(told).cast(wanted))
    if isinstance(given, _TIMES) and isinstance(wanted, _TIMES):
        return value.cast(wanted)
    if isinstance(wanted, spark.StringType) and not isinstance(
        given, spark.ArrayType | spark.MapType | spark.StructType | spark.BinaryType
    ):
        return value.cast(wanted)
    raise SchemaMismatch(
        "a value of this type cannot be stored in the column",
        column=name,
        found=given.simpleString(),
        expected=wanted.simpleString(),
        hint=f"write CAST(... AS {wanted.simpleString()})",
    )


def _bounds(kind: spark.DataType) -> tuple[Any, Any]:
    if isinstance(kind, spark.DecimalType):
        whole = "9" * (kind.precision - kind.scale) or "0"
        text = f"{whole}.{'9' * kind.scale}" if kind.scale else whole
        most = f.lit(text).cast(kind)
        return -most, most
    bits = 63 if isinstance(kind, spark.LongType) else {3: 7, 5: 15}.get(_DIGITS[type(kind)], 31)
    return -(1 << bits), (1 << bits) - 1


def _is_number(kind: spark.DataType) -> bool:
    return isinstance(kind, (*_INTEGERS, *_FLOATS, spark.DecimalType))


def _is_upcast(given: spark.DataType, wanted: spark.DataType) -> bool:
    """Whether every value of the one type is, as it is, one of the other."""
    if given == wanted or isinstance(given, spark.NullType):
        return True
    match given, wanted:
        case spark.ArrayType(), spark.ArrayType():
            return _is_upcast(given.elementType, wanted.elementType)
        case spark.MapType(), spark.MapType():
            return _is_upcast(given.keyType, wanted.keyType) and _is_upcast(given.valueType, wanted.valueType)
        case spark.StructType(), spark.StructType():
            return given.names == wanted.names and all(
                _is_upcast(ours.dataType, theirs.dataType)
                for ours, theirs in zip(given.fields, wanted.fields, strict=True)
            )
        case spark.FloatType(), spark.DoubleType():
            return True
        case ((spark.CharType() | spark.VarcharType()), spark.StringType()):
            return True
        case spark.DecimalType(), spark.DecimalType():
            whole = given.precision - given.scale
            return wanted.scale >= given.scale and wanted.precision - wanted.scale >= whole
    digits: int = _DIGITS.get(type(given), 0)
    if isinstance(given, _INTEGERS) and isinstance(wanted, spark.DecimalType):
        return wanted.precision - wanted.scale >= digits
    if isinstance(given, _INTEGERS) and isinstance(wanted, _INTEGERS):
        return digits <= _DIGITS[type(wanted)]
    return isinstance(given, spark.IntegerType | spark.ShortType | spark.ByteType) and isinstance(
        wanted, spark.DoubleType
    )
