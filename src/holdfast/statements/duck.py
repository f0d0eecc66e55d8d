"""SELECT without Spark: DuckDB over the files of the snapshots.

DuckDB sees the tables that a statement names and nothing else: no file, no network.
"""

from typing import Any

import pyarrow as pa
from sqlglot import exp

from holdfast.errors import InvalidRequest
from holdfast.lake import Table
from holdfast.statements.names import Context, Query
from holdfast.statements.syntax import Call, Describe, ShowTables, parse_statement

_WITHOUT_SPARK = Call | Describe | ShowTables


def run_with_duckdb(context: Context) -> object:
    """As `run_statement`, for statements that change no rows."""
    from holdfast.statements.run import run_statement

    statement = parse_statement(context.text)
    if isinstance(statement, _WITHOUT_SPARK):
        return run_statement(context)
    if not isinstance(statement, exp.Query | exp.Values):
        raise InvalidRequest(
            "DuckDB only reads tables",
            statement=statement.key.upper(),
            hint="leave --engine out: Spark writes",
        )
    query = _DuckQuery(context)
    return query.answer(query.bind(statement))


class _DuckQuery(Query):
    """A query whose tables are read by pyarrow, as far as DuckDB asks for their columns and rows."""

    def answer(self, node: exp.Expr) -> pa.Table:
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise InvalidRequest(
                "a package is not installed", package="duckdb", hint="pip install duckdb"
            ) from error
        with duckdb.connect(config={"enable_external_access": "false"}) as connection:
            for name, rows in self.frames.items():
                connection.register(name, rows)
            connection.execute("SET lock_configuration = true")
            try:
                return connection.sql(node.sql(dialect="duckdb")).to_arrow_table()
            except duckdb.CatalogException as error:
                cause = str(error).partition("\n")[0].removeprefix("Catalog Error: ")
                hint = "tables are named holdfast.`PATH`, or by the names in --catalog FILE"
                raise InvalidRequest("a name is not known", cause=cause, hint=hint) from error
            except duckdb.Error as error:
                cause = str(error).partition("\n")[0]
                raise InvalidRequest("DuckDB cannot run the statement", cause=cause) from error

    def _read(self, table: Table, as_of: str | None) -> Any:
        return table.to_dataset(as_of=as_of)

    def _read_changes(self, table: Table, since: str, until: str | None) -> Any:
        return table.changes_to_arrow(since=since, until=until)
