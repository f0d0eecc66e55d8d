"""`holdfast.sql`: one statement, parsed, and run by the verb that does what it says."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from holdfast.errors import InvalidRequest
from holdfast.lake import Idempotency
from holdfast.statements.catalog import Catalog, open_catalog
from holdfast.statements.definitions import alter, create, drop
from holdfast.statements.listing import describe, show_tables
from holdfast.statements.merge import merge
from holdfast.statements.names import Context, Query
from holdfast.statements.procedures import call
from holdfast.statements.rows import delete, insert, truncate_table, update
from holdfast.statements.syntax import Call, Describe, ShowTables, parse_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CatalogLike = Catalog | Mapping[str, str] | str | os.PathLike[str]


def sql(
    spark: "SparkSession",
    text: str,
    *,
    catalog: CatalogLike | None = None,
    options: Mapping[str, str] | None = None,
    idempotency: Idempotency | None = None,
) -> object:
    """Run one statement: a DataFrame for what gives rows, the report of its verb for what changes a table.

    A table is a name of the catalog, a YAML file or names with their paths, or
    of `register`; or it is named by its path, as ``holdfast.`lake/trips` ``.
    `options` and `idempotency` are those of the statement's write, if it is one.
    """
    context = Context(
        text=text,
        catalog=open_catalog(catalog),
        spark=spark,
        options=dict(options or {}),
        idempotency=idempotency,
    )
    answer = run_statement(context)
    if isinstance(answer, pa.Table):
        from holdfast.engines.spark.statements import frame_of

        return frame_of(spark, answer)
    return answer


def run_statement(context: Context) -> object:
    """As `sql`; a few rows that need no Spark are an Arrow table."""
    statement = parse_statement(context.text)
    match statement:
        case ShowTables():
            return show_tables(context, statement)
        case Describe():
            return describe(context, statement)
        case Call():
            return call(context, statement)
    if context.spark is None:
        return _dispatch(context, statement)
    # Loaded here because only statements on Spark can fail as Spark does.
    from holdfast.engines.spark.failures import spark_failures_as_ours

    with spark_failures_as_ours():
        return _dispatch(context, statement)


def _dispatch(context: Context, statement: exp.Expr) -> object:
    match statement:
        case exp.Query() | exp.Values():
            return query(context, statement)
        case exp.Insert():
            return insert(context, statement)
        case exp.Update():
            return update(context, statement)
        case exp.Delete():
            return delete(context, statement)
        case exp.Merge():
            return merge(context, statement)
        case exp.Create():
            return create(context, statement)
        case exp.Drop():
            return drop(context, statement)
        case exp.Alter():
            return alter(context, statement)
        case exp.TruncateTable():
            return truncate_table(context, statement)
    raise InvalidRequest("this statement is not supported", statement=statement.key.upper())


def query(context: Context, statement: exp.Expr) -> "DataFrame":
    """SELECT, with or without WITH."""
    bound = Query(context)
    return bound.run(bound.bind(statement))


__all__ = ["CatalogLike", "run_statement", "sql"]
