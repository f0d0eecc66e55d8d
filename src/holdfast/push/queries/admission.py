"""Admission: which statements are answered at all.

Only trees made of the nodes listed here pass, so whatever the grammar learns
to read later stays outside until it is listed.
"""

from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from holdfast.push.queries.dialect import Pinot
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.functions import is_known

MAX_NODES = 20_000

_CACHED_STATEMENTS = 256

_ALLOWED: frozenset[type[exp.Expr]] = frozenset(
    {
        # Queries
        exp.Select, exp.Union, exp.Intersect, exp.Except, exp.Subquery, exp.With, exp.CTE, exp.From,
        exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset,
        exp.Distinct, exp.Table, exp.TableAlias, exp.Alias, exp.Exists,
        # Values
        exp.Column, exp.Identifier, exp.Star, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Tuple,
        exp.Cast, exp.DataType, exp.DataTypeParam, exp.Case, exp.If, exp.Anonymous, exp.Extract, exp.Var,
        exp.Filter, exp.Window, exp.WindowSpec,
        # Operators
        exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In,
        exp.Like, exp.Escape, exp.Is, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.DPipe,
    }
)  # fmt: skip

_SELECT_PARTS = frozenset(
    {
        "with_",
        "expressions",
        "distinct",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "order",
        "limit",
        "offset",
    }
)
_TABLE_PARTS = frozenset({"this", "db", "alias", "joins"})
_JOIN_PARTS = frozenset({"this", "on", "using", "side", "kind", "method"})
_JOIN_KINDS = frozenset({"", "INNER", "OUTER", "CROSS", "LEFT", "RIGHT", "FULL"})
_QUERIES = (exp.Select, exp.SetOperation, exp.Subquery)


@dataclass(frozen=True, slots=True)
class Admitted:
    """An allowed statement. The tree is shared: copy it before changing anything."""

    tree: exp.Expr
    tables: tuple[str, ...]
    """The tables it reads, as they are spelled, common table expressions left out."""


@lru_cache(maxsize=_CACHED_STATEMENTS)
def admit(sql: str) -> Admitted:
    """Parse a statement and refuse all but what is listed here."""
    tree = _parse(sql)
    if not isinstance(tree, _QUERIES):
        raise _refusal("only queries are answered", type(tree).__name__)
    for number, node in enumerate(tree.walk()):
        if number > MAX_NODES:
            raise _refusal("the statement has too many parts", str(MAX_NODES))
        _check(node)
    return Admitted(tree, _tables(tree))


def _tables(tree: exp.Expr) -> tuple[str, ...]:
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found: dict[str, None] = {}
    for table in tree.find_all(exp.Table):
        if table.db or table.name.lower() not in named:
            found[full_name(table)] = None
    return tuple(found)


def full_name(table: exp.Table) -> str:
    """The name with its database, where one is given that is not the default."""
    database = table.db
    return f"{database}.{table.name}" if database and database.lower() != "default" else table.name


def _parse(sql: str) -> exp.Expr:
    try:
        trees = sqlglot.parse(sql, read=Pinot)
    except (ParseError, TokenError) as error:
        raise QueryFailed(QueryError.SQL_PARSING, _first_problem(error)) from error
    except RecursionError:
        raise QueryFailed(QueryError.SQL_PARSING, "the statement is nested too deeply") from None
    if len(trees) != 1 or trees[0] is None:
        raise QueryFailed(QueryError.SQL_PARSING, "exactly one statement is answered")
    return trees[0]


def _first_problem(error: Exception) -> str:
    """The parser's own description and place, without the text it underlines."""
    if isinstance(error, ParseError) and error.errors:
        first = error.errors[0]
        return f"{first.get('description')} at line {first.get('line')}, column {first.get('col')}"
    return "the statement cannot be read"


def _check(node: exp.Expr) -> None:
    kind = type(node)
    if kind not in _ALLOWED:
        raise _refusal("this syntax is not supported", kind.__name__)
    if kind is exp.Anonymous and not is_known(str(node.this)):
        raise _refusal("this function is not supported", str(node.this)[:80])
    if kind is exp.Table:
        _check_parts(node, _TABLE_PARTS)
        if not isinstance(node.this, exp.Identifier):
            raise _refusal("a table must be a name", node.this.__class__.__name__)
    elif kind is exp.Select:
        _check_parts(node, _SELECT_PARTS)
    elif kind is exp.Join:
        _check_parts(node, _JOIN_PARTS)
        if not {str(node.args.get(part) or "").upper() for part in ("side", "kind")} <= _JOIN_KINDS:
            raise _refusal("this join is not supported", str(node.args.get("kind")))
        if node.args.get("method"):
            raise _refusal("this join is not supported", str(node.args["method"]))
    elif kind is exp.Column and (node.args.get("db") or node.args.get("catalog")):
        raise _refusal("a column is named by itself or with its table", node.name)
    elif kind is exp.Star and (
        node.args.get("except_") or node.args.get("replace") or node.args.get("rename")
    ):
        raise _refusal("this syntax is not supported", "Star")
    elif kind is exp.With and node.args.get("recursive"):
        raise _refusal("recursion is not supported", "WITH RECURSIVE")


def _check_parts(node: exp.Expr, parts: frozenset[str]) -> None:
    for part, value in node.args.items():
        if value and part not in parts:
            raise _refusal("this syntax is not supported", part.rstrip("_").upper())


def _refusal(message: str, what: str) -> QueryFailed:
    return QueryFailed(QueryError.SQL_PARSING, message, found=what)
