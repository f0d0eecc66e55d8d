"""Expressions of Pinot's ingestion settings: parsed as those of queries, with the same functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from holdfast.errors import InvalidRequest
from holdfast.push.queries.admission import admit
from holdfast.push.queries.columns import Column
from holdfast.push.queries.expressions import Expressions, Query
from holdfast.push.queries.failures import QueryFailed
from holdfast.push.queries.functions import is_aggregate
from holdfast.push.queries.scopes import Columns, Scope, syntax_refusal
from holdfast.push.queries.typed import Typed

ROWS = "rows"
"""What the statement calls the rows that an expression is about."""
_NOT_OF_ONE_ROW = (exp.Select, exp.Subquery, exp.Exists, exp.Window, exp.Filter, exp.Star, exp.Alias)


@dataclass(frozen=True, slots=True)
class Expression:
    tree: exp.Expr
    """Shared: copy it before changing anything."""
    columns: tuple[str, ...]


@lru_cache(maxsize=1024)
def parse_expression(text: str, place: str = "") -> Expression:
    """The value that one row gives; `InvalidRequest` names the setting, if it is none."""
    try:
        tree = admit(f"SELECT {text} FROM {ROWS}").tree  # noqa: S608  # parsed, and never run as it is
    except QueryFailed as error:
        raise _refuse(text, place, str(error)) from error
    clauses = [name for name, value in tree.args.items() if value and name not in ("expressions", "from_")]
    from_rows = isinstance(tree, exp.Select) and tree.args["from_"].this.name == ROWS
    if not from_rows or clauses or len(tree.expressions) != 1:
        raise _refuse(text, place, "it is not one value")
    value = tree.expressions[0]
    for node in value.walk():
        if isinstance(node, _NOT_OF_ONE_ROW) or (
            isinstance(node, exp.Anonymous) and is_aggregate(str(node.this))
        ):
            raise _refuse(text, place, "it takes more than one row")
    return Expression(value, tuple(dict.fromkeys(column.name for column in value.find_all(exp.Column))))


def expression_sql(text: str, columns: Sequence[Column], *, place: str) -> Typed:
    """The expression in DuckDB's SQL, about the columns of `rows`. What is null stays null."""
    names = Columns({ROWS: columns}, null_handling=True)
    values = Expressions(names, _no_query, null_handling=True)
    tables: Mapping[str, exp.Table] = {ROWS: exp.to_table(ROWS)}
    _, source = names.table(tables[ROWS], Scope())
    try:
        return values.value(parse_expression(text, place).tree, Scope((source,)))
    except QueryFailed as error:
        raise _refuse(text, place, str(error)) from error


def _no_query(node: exp.Expr, _scope: Scope) -> Query:
    raise syntax_refusal(node)


def _refuse(text: str, place: str, cause: str) -> InvalidRequest:
    return InvalidRequest(
        "an expression cannot be used for rows that come in",
        setting=place,
        found=text[:200],
        cause=cause,
        code="UNSUPPORTED_SETTING",
        hint="or make such rows before the push: in the SQL of a pipeline",
    )
