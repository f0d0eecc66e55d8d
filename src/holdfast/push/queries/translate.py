"""From an admitted Pinot statement to the DuckDB SQL that answers it.

Here are the clauses of a query and how they nest; what stands in them is the
part of `expressions`, and what names mean, of `scopes`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from holdfast.push.queries.columns import Column
from holdfast.push.queries.dialect import write
from holdfast.push.queries.expressions import Expressions, Query, is_ordinal, whole
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.functions import canonical
from holdfast.push.queries.scopes import (
    Columns,
    Output,
    Scope,
    Source,
    View,
    rename_outputs,
    source_of,
    subquery_source,
    syntax_refusal,
    unknown_column,
)
from holdfast.push.queries.typed import Typed, identifier, leaf, table_alias

DEFAULT_LIMIT = 10

_OPERATORS: Mapping[type[exp.Expr], str] = {
    exp.Add: "plus",
    exp.Sub: "minus",
    exp.Mul: "times",
    exp.Div: "divide",
    exp.Mod: "mod",
    exp.EQ: "equals",
    exp.NEQ: "not_equals",
    exp.LT: "less_than",
    exp.LTE: "less_than_or_equal",
    exp.GT: "greater_than",
    exp.GTE: "greater_than_or_equal",
    exp.And: "and",
    exp.Or: "or",
    exp.DPipe: "concat",
    exp.Like: "like",
}
_NAME_CHARS_MAX = 1000

_Spelling = Callable[[exp.Column], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    sql: str
    outputs: tuple[Output, ...]
    views: tuple[View, ...]
    limit: int


def translate(
    tree: exp.Expr,
    tables: Mapping[str, Sequence[Column]],
    *,
    null_handling: bool,
    default_limit: int = DEFAULT_LIMIT,
) -> Translation:
    """DuckDB's statement for a tree. `tables` holds the columns by the name that the tree uses."""
    work = _Translator(tables, null_handling=null_handling)
    limit = _limit(tree) or default_limit
    query = work.query(tree, Scope())
    bounded = query.tree
    if tree.args.get("limit") is None:
        # Brackets keep a limit that stands inside them.
        bounded = exp.Subquery(this=bounded) if bounded.args.get("limit") else bounded
        bounded.set("limit", _bound(default_limit))
    return Translation(sql=write(bounded), outputs=query.outputs, views=work.views, limit=limit)


class _Translator:
    """One statement."""

    def __init__(self, tables: Mapping[str, Sequence[Column]], *, null_handling: bool) -> None:
        self._columns = Columns(tables, null_handling=null_handling)
        self._values = Expressions(self._columns, self.query, null_handling=null_handling)
        self._subqueries = 0

    @property
    def views(self) -> tuple[View, ...]:
        return self._columns.views

    def query(self, node: exp.Expr, scope: Scope) -> Query:
        scope, named = self._with(node, scope)
        if isinstance(node, exp.Subquery):
            inner = self.query(node.this, scope)
            tail = self._tail(node, replace(scope, sources=()), _by_name(inner.outputs))
            if named is None and not tail:
                return inner
            return Query(exp.Subquery(this=inner.tree, with_=named, **tail), inner.outputs)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, scope, named)
        if isinstance(node, exp.Select):
            return self._select(node, scope, named)
        raise syntax_refusal(node)

    def _with(self, node: exp.Expr, scope: Scope) -> tuple[Scope, exp.With | None]:
        clause = node.args.get("with_")
        if clause is None:
            return scope, None
        named = dict(scope.named)
        tables: list[exp.CTE] = []
        for cte in clause.expressions:
            inner = self.query(cte.this, replace(scope, named=named))
            outputs = rename_outputs(inner.outputs, [column.name for column in cte.args["alias"].columns])
            # The number keeps it apart from views and from another one of the same name.
            internal = f"cte{len(named)}_{cte.alias}"
            alias = table_alias(internal, (output.name for output in outputs))
            tables.append(exp.CTE(this=inner.tree, alias=alias))
            named[cte.alias.lower()] = subquery_source(internal, outputs)
        return replace(scope, named=named), exp.With(expressions=tables)

    def _set_operation(self, node: exp.SetOperation, scope: Scope, named: exp.With | None) -> Query:
        for part, value in node.args.items():
            if value and part not in ("with_", "this", "expression", "distinct", "order", "limit", "offset"):
                raise syntax_refusal(node)
        left, right = self.query(node.this, scope), self.query(node.expression, scope)
        if len(left.outputs) != len(right.outputs):
            raise QueryFailed(QueryError.QUERY_VALIDATION, "the two sides have different numbers of columns")
        outputs = tuple(
            first if first.kind is second.kind else replace(first, kind=None)
            for first, second in zip(left.outputs, right.outputs, strict=True)
        )
        both = type(node)(
            with_=named,
            # As text: a long row of unions is nested deeper than trees can be written.
            this=exp.Subquery(this=leaf(write(left.tree))),
            expression=exp.Subquery(this=right.tree),
            distinct=node.args.get("distinct", True),
            **self._tail(node, replace(scope, sources=()), _by_name(outputs)),
        )
        return Query(both, outputs)

    def _select(self, node: exp.Select, scope: Scope, named: exp.With | None) -> Query:
        relations, sources = self._from(node, scope)
        inside = Scope(sources, scope.named, outer=scope if scope.sources else scope.outer)
        listed = [item for one in node.expressions for item in self._items(one, inside)]
        if not listed:
            raise QueryFailed(QueryError.SQL_PARSING, "the SELECT list is empty")
        outputs = tuple(Output(name, value.kind, value.is_array) for name, value, _ in listed)
        aliased = replace(
            inside, aliases={name.lower(): value for name, value, is_alias in listed if is_alias}
        )
        select = exp.Select(
            with_=named,
            distinct=self._distinct(node),
            expressions=[exp.Alias(this=value.node, alias=identifier(name)) for name, value, _ in listed],
            **relations,
            where=self._where(node, inside),
            group=self._group(node, aliased),
            having=self._having(node, aliased),
            **self._tail(node, aliased, _by_name(outputs)),
        )
        return Query(select, outputs)

    def _distinct(self, node: exp.Select) -> exp.Distinct | None:
        distinct = node.args.get("distinct")
        if distinct is None:
            return None
        if distinct.args.get("on"):
            raise syntax_refusal(distinct)
        return exp.Distinct()

    def _where(self, node: exp.Select, scope: Scope) -> exp.Where | None:
        where = node.args.get("where")
        return None if where is None else exp.Where(this=self._values.condition(where.this, scope))

    def _having(self, node: exp.Select, scope: Scope) -> exp.Having | None:
        having = node.args.get("having")
        return None if having is None else exp.Having(this=self._values.value(having.this, scope).node)

    def _group(self, node: exp.Select, scope: Scope) -> exp.Group | None:
        group = node.args.get("group")
        if group is None:
            return None
        if any(value for part, value in group.args.items() if part != "expressions"):
            raise syntax_refusal(group)
        return exp.Group(
            expressions=[
                exp.Literal.number(key.name) if is_ordinal(key) else self._values.value(key, scope).node
                for key in group.expressions
            ]
        )

    def _tail(self, node: exp.Expr, scope: Scope, names: Mapping[str, Typed]) -> dict[str, exp.Expr]:
        """ORDER BY, LIMIT and OFFSET."""
        tail: dict[str, exp.Expr] = {}
        order = node.args.get("order")
        if order is not None:
            tail["order"] = self._values.order(order, scope, names)
        limit = _limit(node)
        if limit is not None:
            tail["limit"] = _bound(limit)
        offset = node.args.get("offset")
        if offset is not None:
            tail["offset"] = exp.Offset(expression=exp.Literal.number(whole(offset.expression)))
        return tail

    def _from(self, node: exp.Select, scope: Scope) -> tuple[dict[str, object], tuple[Source, ...]]:
        """FROM and the joins, and what they offer."""
        clause = node.args.get("from_")
        if clause is None:
            return {}, ()
        relation, first = self._relation(clause.this, scope)
        sources, joins = [first], []
        for join in node.args.get("joins") or ():
            joined, source = self._relation(join.this, scope)
            if any(source.alias.lower() == other.alias.lower() for other in sources):
                raise QueryFailed(
                    QueryError.QUERY_VALIDATION,
                    "two tables have the same name; give an alias",
                    alias=source.alias,
                )
            sources.append(source)
            joins.append(self._join(join, joined, Scope(tuple(sources), scope.named, scope.outer)))
        return {"from_": exp.From(this=relation), "joins": joins}, tuple(sources)

    def _join(self, join: exp.Join, joined: exp.Expr, scope: Scope) -> exp.Join:
        side, kind = str(join.side or "").upper(), str(join.kind or "").upper()
        using, on = join.args.get("using"), join.args.get("on")
        if on is None and not using:
            if side or kind not in ("", "CROSS"):
                raise QueryFailed(QueryError.QUERY_VALIDATION, "the join has no condition")
            return exp.Join(this=joined, kind="CROSS")
        if using:
            names = [identifier(self._using_column(one.name, scope)) for one in using]
            return exp.Join(this=joined, side=side, using=names)
        assert on is not None
        return exp.Join(this=joined, side=side, on=self._values.value(on, scope).node)

    def _using_column(self, name: str, scope: Scope) -> str:
        """The column of USING; both sides must have it, and the view must show it."""
        found = [source for source in scope.sources if source.find(name) is not None]
        if len(found) < 2:
            raise unknown_column(name)
        for source in found:
            column = source.find(name)
            if isinstance(column, Column):
                self._columns.use(source, column)
        assert column is not None
        return column.name

    def _relation(self, node: exp.Expr, scope: Scope) -> tuple[exp.Expr, Source]:
        if isinstance(node, exp.Table):
            if node.args.get("joins"):
                raise syntax_refusal(node)
            return self._columns.table(node, scope)
        if isinstance(node, exp.Subquery):
            inner = self.query(node.this, scope)
            self._subqueries += 1
            alias = node.alias or f"subquery{self._subqueries}"
            outputs = rename_outputs(inner.outputs, node.alias_column_names)
            named = table_alias(alias, (output.name for output in outputs))
            return exp.Subquery(this=inner.tree, alias=named), subquery_source(alias, outputs)
        raise syntax_refusal(node)

    # The SELECT list

    def _items(self, node: exp.Expr, scope: Scope) -> Iterable[tuple[str, Typed, bool]]:
        """Name and value of what one item stands for, and whether other clauses may use the name."""
        if isinstance(node, exp.Alias):
            yield node.alias, self._values.value(node.this, scope), True
        elif isinstance(node, exp.Star):
            if not scope.sources:
                raise QueryFailed(QueryError.QUERY_VALIDATION, "there is nothing to take columns from")
            for source in scope.sources:
                yield from self._all(source)
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            yield from self._all(source_of(node.table, scope))
        elif isinstance(node, exp.Column):
            value, name = self._columns.column(node, scope)
            yield name, value, False
        else:
            yield (
                _name_of(node, lambda column: self._columns.column(column, scope)[1]),
                self._values.value(node, scope),
                False,
            )

    def _all(self, source: Source) -> Iterable[tuple[str, Typed, bool]]:
        for name in source.columns:
            yield name, self._columns.reference(source, name), False


def _by_name(outputs: Iterable[Output]) -> Mapping[str, Typed]:
    """The columns of an answer, as ORDER BY may name them."""
    return {output.name.lower(): Typed(identifier(output.name), output.kind) for output in outputs}


def _limit(node: exp.Expr) -> int | None:
    clause = node.args.get("limit")
    if clause is None:
        return None
    if not isinstance(clause, exp.Limit) or clause.args.get("expressions") or clause.args.get("offset"):
        raise syntax_refusal(clause)
    return whole(clause.expression)


def _bound(rows: int) -> exp.Limit:
    return exp.Limit(expression=exp.Literal.number(rows))


def _name_of(node: exp.Expr, spelling: _Spelling) -> str:
    """What a column of the answer is called when the statement does not say.

    It is the lower-case text of the expression, calls and operators alike: `sum(amount)`, `plus(a,b)`.

    `spelling` gives columns the name that they have in the schema.
    """
    return _spell(node, spelling)[:_NAME_CHARS_MAX]


def _spell(node: exp.Expr, spelling: _Spelling) -> str:
    match node:
        case exp.Anonymous():
            return f"{canonical(str(node.this))}({_spell_all(node.expressions, spelling)})"
        case exp.Distinct():
            return f"distinct {_spell_all(node.expressions, spelling)}"
        case exp.Star():
            return "*"
        case exp.Column():
            return spelling(node)
        case exp.Literal():
            return f"'{node.name}'" if node.is_string else node.name
        case exp.Null():
            return "null"
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Paren():
            return _spell(node.this, spelling)
        case exp.Neg():
            return f"-{_spell(node.this, spelling)}"
        case exp.Not():
            return f"not({_spell(node.this, spelling)})"
        case exp.Cast():
            return f"cast({_spell(node.this, spelling)},'{node.to.this.name}')"
        case exp.Extract():
            return f"extract({node.name.lower()},{_spell(node.expression, spelling)})"
        case exp.Filter() | exp.Window():
            return _spell(node.this, spelling)
        case exp.Case():
            return "case"
        case exp.Subquery() | exp.Select():
            return "subquery"
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        return f"{operator}({_spell(node.this, spelling)},{_spell(node.expression, spelling)})"
    return type(node).__name__.lower()


def _spell_all(nodes: Sequence[exp.Expr], spelling: _Spelling) -> str:
    return ",".join(_spell(node, spelling) for node in nodes)
