"""From an admitted Pinot statement to the DuckDB SQL that answers it.

Names are resolved here against the columns of the routed tables, so DuckDB is
only ever given views that the broker made, under names that the broker chose.
Null handling is written into the statement: where it is off, a column reads as
its default wherever it is null, and filters keep the form that the Parquet
reader can use to skip row groups.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from holdfast.push.queries import functions, times
from holdfast.push.queries.columns import FILLED, SEGMENT_NAME, Column, Kind, Value
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.functions import Context
from holdfast.push.queries.gate import full_name
from holdfast.push.queries.naming import name_of
from holdfast.push.queries.typed import (
    Typed,
    as_text,
    as_timestamp,
    cast,
    number,
    quoted,
    text,
)

DEFAULT_LIMIT = 10


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the answer."""

    name: str
    kind: Kind | None
    is_array: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a query reads of one table: DuckDB knows it under `name`."""

    name: str
    table: str
    columns: tuple[Column, ...]
    """Read as they are stored."""
    filled: tuple[Column, ...] = ()
    """Read with the default in place of nulls, under the name with `FILLED` before it."""
    has_segment_names: bool = False


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
    max_rows: int,
    default_limit: int = DEFAULT_LIMIT,
) -> Translation:
    """DuckDB's statement for a tree. `tables` holds the columns by the name that the tree uses."""
    work = _Translator(tables, null_handling=null_handling)
    limit = _limit(tree) or default_limit
    if limit > max_rows:
        raise QueryFailed(
            QueryError.QUERY_VALIDATION,
            "the limit exceeds what this broker returns",
            limit=limit,
            most=max_rows,
        )
    query = work.query(tree, _Scope())
    bounded = query.sql if _has_limit(tree) else f"{query.sql} LIMIT {default_limit}"
    return Translation(sql=bounded, outputs=query.outputs, views=work.views, limit=limit)


@dataclass(frozen=True, slots=True)
class _Query:
    sql: str
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """Something in FROM: a table, a common table expression or a subquery."""

    alias: str
    columns: Mapping[str, Output | Column]
    """By name, in the order `*` gives them."""
    view: str | None = None
    """The name of the view, if it is a table."""

    def find(self, name: str) -> Output | Column | None:
        exact = self.columns.get(name)
        if exact is not None:
            return exact
        lowered = name.lower()
        return next((column for key, column in self.columns.items() if key.lower() == lowered), None)


@dataclass(frozen=True, slots=True)
class _Scope:
    sources: tuple[_Source, ...] = ()
    named: Mapping[str, _Source] = field(default_factory=dict)
    """Common table expressions, by lower-case name."""
    outer: "_Scope | None" = None
    aliases: Mapping[str, Typed] = field(default_factory=dict)
    """Names that the SELECT list gives, by lower-case name, where they may be used."""


_COMPARISONS: Mapping[type[exp.Expr], tuple[str, Callable[..., bool]]] = {
    exp.EQ: ("=", operator.eq),
    exp.NEQ: ("<>", operator.ne),
    exp.LT: ("<", operator.lt),
    exp.LTE: ("<=", operator.le),
    exp.GT: (">", operator.gt),
    exp.GTE: (">=", operator.ge),
}
_MIRRORED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_ARITHMETIC: Mapping[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_SET_OPERATIONS: Mapping[type[exp.Expr], str] = {
    exp.Union: "UNION",
    exp.Intersect: "INTERSECT",
    exp.Except: "EXCEPT",
}
_UNIT_FIRST = frozenset({"timestampadd", "dateadd", "timestampdiff", "datediff"})
_KINDS: Mapping[object, Kind] = {
    exp.DataType.Type.INT: Kind.INT,
    exp.DataType.Type.BIGINT: Kind.LONG,
    exp.DataType.Type.FLOAT: Kind.FLOAT,
    exp.DataType.Type.DOUBLE: Kind.DOUBLE,
    exp.DataType.Type.DECIMAL: Kind.BIG_DECIMAL,
    exp.DataType.Type.BOOLEAN: Kind.BOOLEAN,
    exp.DataType.Type.TIMESTAMP: Kind.TIMESTAMP,
    exp.DataType.Type.TEXT: Kind.STRING,
    exp.DataType.Type.VARCHAR: Kind.STRING,
    exp.DataType.Type.CHAR: Kind.STRING,
    exp.DataType.Type.JSON: Kind.JSON,
    exp.DataType.Type.VARBINARY: Kind.BYTES,
}


class _Translator:
    """One statement. It remembers which columns of which table were used."""

    def __init__(self, tables: Mapping[str, Sequence[Column]], *, null_handling: bool) -> None:
        self._tables = tables
        self._null_handling = null_handling
        self._names: dict[str, str] = {}
        self._used: dict[str, dict[str, Column]] = {}
        self._filled: dict[str, dict[str, Column]] = {}
        self._segment_names: set[str] = set()
        self._subqueries = 0

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(
            View(
                name=name,
                table=table,
                columns=tuple(self._used[name].values()),
                filled=tuple(self._filled[name].values()),
                has_segment_names=name in self._segment_names,
            )
            for table, name in self._names.items()
        )

    # Queries

    def query(self, node: exp.Expr, scope: _Scope) -> _Query:
        scope, prefix = self._with(node, scope)
        if isinstance(node, exp.Subquery):
            inner = self.query(node.this, scope)
            tail = self._tail(node, replace(scope, sources=(_derived("", inner.outputs),)), {})
            return _Query(f"{prefix}({inner.sql}){tail}", inner.outputs) if prefix or tail else inner
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, scope, prefix)
        if isinstance(node, exp.Select):
            return self._select(node, scope, prefix)
        raise _unsupported(node)

    def _with(self, node: exp.Expr, scope: _Scope) -> tuple[_Scope, str]:
        clause = node.args.get("with_")
        if clause is None:
            return scope, ""
        named = dict(scope.named)
        pieces: list[str] = []
        for cte in clause.expressions:
            inner = self.query(cte.this, replace(scope, named=named))
            outputs = _renamed(inner.outputs, [column.name for column in cte.args["alias"].columns])
            # The number keeps it apart from views and from another one of the same name.
            internal = f"cte{len(named)}_{cte.alias}"
            listed = ", ".join(quoted(output.name) for output in outputs)
            pieces.append(f"{quoted(internal)}({listed}) AS ({inner.sql})")
            named[cte.alias.lower()] = _derived(internal, outputs)
        return replace(scope, named=named), f"WITH {', '.join(pieces)} "

    def _set_operation(self, node: exp.SetOperation, scope: _Scope, prefix: str) -> _Query:
        for part, value in node.args.items():
            if value and part not in ("with_", "this", "expression", "distinct", "order", "limit", "offset"):
                raise _unsupported(node)
        left, right = self.query(node.this, scope), self.query(node.expression, scope)
        if len(left.outputs) != len(right.outputs):
            raise QueryFailed(QueryError.QUERY_VALIDATION, "the two sides have different numbers of columns")
        word = _SET_OPERATIONS[type(node)] + ("" if node.args.get("distinct", True) else " ALL")
        outputs = tuple(
            first if first.kind is second.kind else replace(first, kind=None)
            for first, second in zip(left.outputs, right.outputs, strict=True)
        )
        names = {output.name.lower(): Typed(quoted(output.name), output.kind) for output in outputs}
        tail = self._tail(node, replace(scope, sources=()), names)
        return _Query(f"{prefix}({left.sql}) {word} ({right.sql}){tail}", outputs)

    def _select(self, node: exp.Select, scope: _Scope, prefix: str) -> _Query:
        from_text, sources = self._from(node, scope)
        inside = _Scope(sources, scope.named, outer=scope if scope.sources else scope.outer)
        listed = [item for one in node.expressions for item in self._items(one, inside)]
        if not listed:
            raise QueryFailed(QueryError.SQL_PARSING, "the SELECT list is empty")
        outputs = tuple(Output(name, value.kind, value.is_array) for name, value, _ in listed)
        aliases = {name.lower(): value for name, value, is_alias in listed if is_alias}
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise _unsupported(distinct)
        pieces = [
            f"{prefix}SELECT {'DISTINCT ' if distinct else ''}"
            + ", ".join(f"{value.sql} AS {quoted(name)}" for name, value, _ in listed)
        ]
        if from_text:
            pieces.append(f"FROM {from_text}")
        where = node.args.get("where")
        if where is not None:
            pieces.append(f"WHERE {self._condition(where.this, inside)}")
        aliased = replace(inside, aliases=aliases)
        group = node.args.get("group")
        if group is not None:
            pieces.append(f"GROUP BY {self._group(group, aliased)}")
        having = node.args.get("having")
        if having is not None:
            pieces.append(f"HAVING {self._value(having.this, aliased).sql}")
        names = {name.lower(): Typed(quoted(name), value.kind) for name, value, _ in listed}
        return _Query(" ".join(pieces) + self._tail(node, aliased, names), outputs)

    def _tail(self, node: exp.Expr, scope: _Scope, names: Mapping[str, Typed]) -> str:
        """ORDER BY, LIMIT and OFFSET."""
        pieces: list[str] = []
        order = node.args.get("order")
        if order is not None:
            pieces.append(
                " ORDER BY " + ", ".join(self._ordered(one, scope, names) for one in order.expressions)
            )
        limit = _limit(node)
        if limit is not None:
            pieces.append(f" LIMIT {limit}")
        offset = node.args.get("offset")
        if offset is not None:
            pieces.append(f" OFFSET {_whole(offset.expression)}")
        return "".join(pieces)

    def _ordered(self, node: exp.Expr, scope: _Scope, names: Mapping[str, Typed]) -> str:
        if not isinstance(node, exp.Ordered):
            raise _unsupported(node)
        key = node.this
        if isinstance(key, exp.Column) and not key.table and key.name.lower() in names:
            sql = names[key.name.lower()].sql
        elif _is_ordinal(key):
            sql = key.name
        else:
            sql = self._value(key, scope).sql
        direction = " DESC" if node.args.get("desc") else ""
        return f"{sql}{direction} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"

    def _group(self, group: exp.Group, scope: _Scope) -> str:
        if any(value for part, value in group.args.items() if part != "expressions"):
            raise _unsupported(group)
        return ", ".join(
            key.name if _is_ordinal(key) else self._value(key, scope).sql for key in group.expressions
        )

    def _from(self, node: exp.Select, scope: _Scope) -> tuple[str, tuple[_Source, ...]]:
        clause = node.args.get("from_")
        if clause is None:
            return "", ()
        sql, first = self._relation(clause.this, scope)
        sources = [first]
        for join in node.args.get("joins") or ():
            joined, source = self._relation(join.this, scope)
            if any(source.alias.lower() == other.alias.lower() for other in sources):
                raise QueryFailed(
                    QueryError.QUERY_VALIDATION,
                    "two tables have the same name; give an alias",
                    alias=source.alias,
                )
            sources.append(source)
            sql += self._join(join, joined, _Scope(tuple(sources), scope.named, scope.outer))
        return sql, tuple(sources)

    def _join(self, join: exp.Join, joined: str, scope: _Scope) -> str:
        side, kind = str(join.side or "").upper(), str(join.kind or "").upper()
        using, on = join.args.get("using"), join.args.get("on")
        if on is None and not using:
            if side or kind not in ("", "CROSS"):
                raise QueryFailed(QueryError.QUERY_VALIDATION, "the join has no condition")
            return f" CROSS JOIN {joined}"
        word = f"{side} JOIN" if side else "JOIN"
        if using:
            listed = ", ".join(quoted(self._shared(one.name, scope)) for one in using)
            return f" {word} {joined} USING ({listed})"
        assert on is not None
        return f" {word} {joined} ON {self._value(on, scope).sql}"

    def _shared(self, name: str, scope: _Scope) -> str:
        """The column of USING; both sides must have it, and the view must show it."""
        found = [source for source in scope.sources if source.find(name) is not None]
        if len(found) < 2:
            raise _unknown_column(name)
        for source in found:
            column = source.find(name)
            if isinstance(column, Column):
                self._use(source, column)
        assert column is not None
        return column.name

    def _relation(self, node: exp.Expr, scope: _Scope) -> tuple[str, _Source]:
        if isinstance(node, exp.Table):
            if node.args.get("joins"):
                raise _unsupported(node)
            return self._table(node, scope)
        if isinstance(node, exp.Subquery):
            inner = self.query(node.this, scope)
            self._subqueries += 1
            alias = node.alias or f"subquery{self._subqueries}"
            outputs = _renamed(inner.outputs, node.alias_column_names)
            listed = ", ".join(quoted(output.name) for output in outputs)
            return f"({inner.sql}) AS {quoted(alias)}({listed})", _derived(alias, outputs)
        raise _unsupported(node)

    def _table(self, node: exp.Table, scope: _Scope) -> tuple[str, _Source]:
        alias = node.alias or node.name
        if node.alias_column_names:
            raise _unsupported(node)
        named = None if node.db else scope.named.get(node.name.lower())
        if named is not None:
            return f"{quoted(named.alias)} AS {quoted(alias)}", replace(named, alias=alias)
        table = full_name(node)
        if table not in self._tables:
            raise QueryFailed(QueryError.TABLE_DOES_NOT_EXIST, "there is no such table", table=table)
        view = self._names.setdefault(table, f"table{len(self._names)}")
        self._used.setdefault(view, {})
        self._filled.setdefault(view, {})
        columns = {column.name: column for column in self._tables[table]}
        return f"{quoted(view)} AS {quoted(alias)}", _Source(alias, columns, view)

    # The SELECT list

    def _items(self, node: exp.Expr, scope: _Scope) -> Iterable[tuple[str, Typed, bool]]:
        """Name and value of what one item stands for, and whether other clauses may use the name."""
        if isinstance(node, exp.Alias):
            yield node.alias, self._value(node.this, scope), True
        elif isinstance(node, exp.Star):
            if not scope.sources:
                raise QueryFailed(QueryError.QUERY_VALIDATION, "there is nothing to take columns from")
            for source in scope.sources:
                yield from self._all(source)
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            yield from self._all(_source(node.table, scope))
        elif isinstance(node, exp.Column):
            value, name = self._column(node, scope)
            yield name, value, False
        else:
            yield (
                name_of(node, lambda column: self._column(column, scope)[1]),
                self._value(node, scope),
                False,
            )

    def _all(self, source: _Source) -> Iterable[tuple[str, Typed, bool]]:
        for name in source.columns:
            yield name, self._reference(source, name), False

    # Values

    def _value(self, node: exp.Expr, scope: _Scope) -> Typed:
        kind = type(node)
        if kind in _COMPARISONS:
            return self._comparison(node, scope)
        if kind in _ARITHMETIC:
            return functions.arithmetic(
                _ARITHMETIC[kind], self._value(node.this, scope), self._value(node.expression, scope)
            )
        if kind in (exp.And, exp.Or):
            word = "AND" if kind is exp.And else "OR"
            sides = [self._value(side, scope).sql for side in _flattened(node, kind)]
            return Typed(f"({f' {word} '.join(sides)})", Kind.BOOLEAN)
        rule = self._RULES.get(kind)
        if rule is None:
            raise _unsupported(node)
        return rule(self, node, scope)

    def _literal(self, node: exp.Literal, _scope: _Scope) -> Typed:
        return text(node.name) if node.is_string else number(node.name)

    def _boolean(self, node: exp.Boolean, _scope: _Scope) -> Typed:
        return Typed("TRUE" if node.this else "FALSE", Kind.BOOLEAN)

    def _null(self, _node: exp.Null, _scope: _Scope) -> Typed:
        return Typed("NULL", None)

    def _column_value(self, node: exp.Column, scope: _Scope) -> Typed:
        return self._column(node, scope)[0]

    def _paren(self, node: exp.Paren, scope: _Scope) -> Typed:
        inner = self._value(node.this, scope)
        return replace(inner, sql=f"({inner.sql})")

    def _negative(self, node: exp.Neg, scope: _Scope) -> Typed:
        inner = self._value(node.this, scope)
        negated = -inner.literal if isinstance(inner.literal, int | float) else None
        if isinstance(negated, int) and negated == -(2**31):
            return Typed("CAST(-2147483648 AS INTEGER)", Kind.INT, literal=negated)
        return replace(inner, sql=f"(-{inner.sql})", literal=negated)

    def _not(self, node: exp.Not, scope: _Scope) -> Typed:
        return Typed(f"(NOT {self._value(node.this, scope).sql})", Kind.BOOLEAN)

    def _is(self, node: exp.Is, scope: _Scope) -> Typed:
        """A column is tested as it is stored: a default in its place would hide what is asked."""
        if not isinstance(node.expression, exp.Null | exp.Boolean):
            raise _unsupported(node)
        found = self._stored(node.this, scope) if isinstance(node.this, exp.Column) else None
        value = found[0] if found is not None else self._value(node.this, scope)
        return Typed(f"({value.sql} IS {self._value(node.expression, scope).sql})", Kind.BOOLEAN)

    def _between(self, node: exp.Between, scope: _Scope) -> Typed:
        value = self._value(node.this, scope)
        low = _fitted(self._value(node.args["low"], scope), value)
        high = _fitted(self._value(node.args["high"], scope), value)
        return Typed(f"({_fitted(value, low)} BETWEEN {low} AND {high})", Kind.BOOLEAN)

    def _in(self, node: exp.In, scope: _Scope) -> Typed:
        value = self._value(node.this, scope)
        query = node.args.get("query")
        if query is not None:
            return Typed(f"({value.sql} IN ({self.query(query, scope).sql}))", Kind.BOOLEAN)
        if node.args.get("unnest") or node.args.get("field"):
            raise _unsupported(node)
        options = [_fitted(self._value(one, scope), value) for one in node.expressions]
        if value.is_array:
            return Typed(f"list_has_any({value.sql}, [{', '.join(options)}])", Kind.BOOLEAN)
        return Typed(f"({value.sql} IN ({', '.join(options)}))", Kind.BOOLEAN)

    def _like(self, node: exp.Expr, scope: _Scope) -> Typed:
        escape = ""
        if isinstance(node, exp.Escape):
            escape, node = f" ESCAPE {self._value(node.expression, scope).sql}", node.this
            if not isinstance(node, exp.Like):
                raise _unsupported(node)
        pattern = self._value(node.expression, scope)
        if not escape and "\\" in str(pattern.literal):
            escape = " ESCAPE '\\'"
        value = as_text(self._value(node.this, scope))
        return Typed(f"({value} LIKE {pattern.sql}{escape})", Kind.BOOLEAN)

    def _concatenation(self, node: exp.DPipe, scope: _Scope) -> Typed:
        left, right = self._value(node.this, scope), self._value(node.expression, scope)
        return Typed(f"({as_text(left)} || {as_text(right)})", Kind.STRING)

    def _case(self, node: exp.Case, scope: _Scope) -> Typed:
        base = node.this and self._value(node.this, scope)
        pieces = ["CASE"]
        chosen: list[Typed] = []
        for branch in node.args["ifs"]:
            condition = self._value(branch.this, scope)
            when = condition.sql if base is None else f"{base.sql} = {_fitted(condition, base)}"
            chosen.append(self._value(branch.args["true"], scope))
            pieces.append(f"WHEN {when} THEN {chosen[-1].sql}")
        if node.args.get("default") is not None:
            chosen.append(self._value(node.args["default"], scope))
            pieces.append(f"ELSE {chosen[-1].sql}")
        kinds = {one.kind for one in chosen if one.sql != "NULL"}
        return Typed(" ".join((*pieces, "END")), kinds.pop() if len(kinds) == 1 else None)

    def _cast(self, node: exp.Cast, scope: _Scope) -> Typed:
        kind = _KINDS.get(node.to.this)
        if kind is None or node.args.get("format"):
            raise QueryFailed(QueryError.QUERY_VALIDATION, "not a type to cast to", found=str(node.to)[:40])
        return cast(self._value(node.this, scope), kind)

    def _extract(self, node: exp.Extract, scope: _Scope) -> Typed:
        return times.part(node.name, self._value(node.expression, scope))

    def _function(self, node: exp.Anonymous, scope: _Scope, tail: str = "") -> Typed:
        name = str(node.this)
        listed = list(node.expressions)
        distinct = len(listed) == 1 and isinstance(listed[0], exp.Distinct)
        if distinct:
            listed = list(listed[0].expressions)
        if functions.canonical(name) == "count" and len(listed) == 1 and isinstance(listed[0], exp.Star):
            return Typed(f"COUNT(*){tail}", Kind.LONG)
        arguments = tuple(
            text(one.name)
            if at == 0 and isinstance(one, exp.Column) and functions.canonical(name) in _UNIT_FIRST
            else self._value(one, scope)
            for at, one in enumerate(listed)
        )
        context = Context(null_handling=self._null_handling, distinct=distinct, tail=tail)
        return functions.apply(name, arguments, context)

    def _filter(self, node: exp.Filter, scope: _Scope, tail: str = "") -> Typed:
        if not isinstance(node.this, exp.Anonymous):
            raise _unsupported(node)
        condition = self._condition(node.expression.this, scope)
        return self._function(node.this, scope, f" FILTER (WHERE {condition}){tail}")

    def _window(self, node: exp.Window, scope: _Scope) -> Typed:
        if any(node.args.get(part) for part in ("alias", "first")) or node.args.get("over") not in (
            None,
            "OVER",
        ):
            raise _unsupported(node)
        pieces: list[str] = []
        partitions = node.args.get("partition_by") or ()
        if partitions:
            pieces.append("PARTITION BY " + ", ".join(self._value(one, scope).sql for one in partitions))
        order = node.args.get("order")
        if order is not None:
            pieces.append("ORDER BY " + ", ".join(self._ordered(one, scope, {}) for one in order.expressions))
        if node.args.get("spec") is not None:
            pieces.append(_frame(node.args["spec"]))
        tail = f" OVER ({' '.join(pieces)})"
        if isinstance(node.this, exp.Filter):
            return self._filter(node.this, scope, tail)
        if not isinstance(node.this, exp.Anonymous):
            raise _unsupported(node)
        return self._function(node.this, scope, tail)

    def _scalar(self, node: exp.Expr, scope: _Scope) -> Typed:
        inner = self.query(node, scope)
        if len(inner.outputs) != 1:
            raise QueryFailed(QueryError.QUERY_VALIDATION, "a subquery used as a value has one column")
        return Typed(f"({inner.sql})", inner.outputs[0].kind)

    def _exists(self, node: exp.Exists, scope: _Scope) -> Typed:
        return Typed(f"EXISTS ({self.query(node.this, scope).sql})", Kind.BOOLEAN)

    def _row(self, node: exp.Tuple, scope: _Scope) -> Typed:
        return Typed(f"({', '.join(self._value(one, scope).sql for one in node.expressions)})", None)

    # Filters

    def _condition(self, node: exp.Expr, scope: _Scope) -> str:
        """A filter of which only "true" counts, so unknown and false are one.

        There a comparison may look at the stored column, which lets the
        Parquet reader use its statistics, as long as what the default would
        have answered is added for nulls.
        """
        if isinstance(node, exp.Paren):
            return f"({self._condition(node.this, scope)})"
        if isinstance(node, exp.And | exp.Or):
            kind = type(node)
            word = " AND " if kind is exp.And else " OR "
            return f"({word.join(self._condition(side, scope) for side in _flattened(node, kind))})"
        if not self._null_handling:
            plain = self._stored_comparison(node, scope)
            if plain is not None:
                return plain
        return self._value(node, scope).sql

    def _stored_comparison(self, node: exp.Expr, scope: _Scope) -> str | None:
        """The comparison of a stored column with literals, or None if it is something else."""
        kind = type(node)
        if kind in _COMPARISONS:
            column, others = node.this, [node.expression]
            if not isinstance(column, exp.Column):
                column, others, kind = node.expression, [node.this], _MIRRORED[kind]
        elif isinstance(node, exp.In) and node.expressions:
            column, others = node.this, node.expressions
        elif isinstance(node, exp.Between):
            column, others = node.this, [node.args["low"], node.args["high"]]
        else:
            return None
        found = self._stored(column, scope) if isinstance(column, exp.Column) else None
        if found is None or found[0].is_array:
            return None
        stored, default = found
        values = [self._value(one, scope) for one in others]
        holds = _holds_for_default(kind, default, values, stored.kind)
        if holds is None:
            return None
        fitted = [_fitted(value, stored) for value in values]
        if kind is exp.In:
            sql = f"{stored.sql} IN ({', '.join(fitted)})"
        elif kind is exp.Between:
            sql = f"{stored.sql} BETWEEN {fitted[0]} AND {fitted[1]}"
        else:
            sql = f"{stored.sql} {_COMPARISONS[kind][0]} {fitted[0]}"
        return f"({sql} OR {stored.sql} IS NULL)" if holds else f"({sql})"

    def _comparison(self, node: exp.Expr, scope: _Scope) -> Typed:
        sign = _COMPARISONS[type(node)][0]
        left, right = self._value(node.this, scope), self._value(node.expression, scope)
        if left.is_array != right.is_array and sign in ("=", "<>"):
            array, element = (left, right) if left.is_array else (right, left)
            sql = f"list_contains({array.sql}, {_fitted(element, array)})"
            return Typed(sql if sign == "=" else f"(NOT {sql})", Kind.BOOLEAN)
        return Typed(f"({_fitted(left, right)} {sign} {_fitted(right, left)})", Kind.BOOLEAN)

    # Columns

    def _column(self, node: exp.Column, scope: _Scope) -> tuple[Typed, str]:
        """The value and the schema's spelling of the name."""
        found = _resolved(node, scope)
        if found is None:
            alias = None if node.table else scope.aliases.get(node.name.lower())
            if alias is None:
                raise _unknown_column(node.name)
            return alias, node.name
        source, name = found
        return self._reference(source, name), name

    def _stored(self, node: exp.Column, scope: _Scope) -> tuple[Typed, Value] | None:
        """A table's column as it lies in the file, and its default; None if it is no table's column."""
        found = _resolved(node, scope)
        if found is None or found[0].view is None or found[1] == SEGMENT_NAME:
            return None
        source, name = found
        column = source.columns[name]
        assert isinstance(column, Column)
        self._use(source, column)
        plain = Typed(f"{quoted(source.alias)}.{quoted(name)}", column.kind, column.is_array)
        return plain, column.default

    def _reference(self, source: _Source, name: str) -> Typed:
        """A column of a source as queries see it."""
        if name == SEGMENT_NAME:
            assert source.view is not None
            self._segment_names.add(source.view)
            return Typed(f"{quoted(source.alias)}.{quoted(SEGMENT_NAME)}", Kind.STRING)
        column = source.find(name)
        assert column is not None
        plain = f"{quoted(source.alias)}.{quoted(column.name)}"
        if not isinstance(column, Column):
            return Typed(plain, column.kind, column.is_array)
        if self._null_handling or column.is_required:
            self._use(source, column)
            return Typed(plain, column.kind, column.is_array)
        # The view fills nulls only where there are any: DuckDB groups by a
        # plain dictionary column several times faster than by an expression.
        assert source.view is not None
        self._filled[source.view][column.name] = column
        return Typed(f"{quoted(source.alias)}.{quoted(FILLED + column.name)}", column.kind, column.is_array)

    def _use(self, source: _Source, column: Column) -> None:
        assert source.view is not None
        self._used[source.view][column.name] = column

    _RULES: Mapping[type[exp.Expr], Callable[..., Typed]] = {
        exp.Literal: _literal,
        exp.Boolean: _boolean,
        exp.Null: _null,
        exp.Column: _column_value,
        exp.Paren: _paren,
        exp.Neg: _negative,
        exp.Not: _not,
        exp.Is: _is,
        exp.Between: _between,
        exp.In: _in,
        exp.Like: _like,
        exp.Escape: _like,
        exp.DPipe: _concatenation,
        exp.Case: _case,
        exp.Cast: _cast,
        exp.Extract: _extract,
        exp.Anonymous: _function,
        exp.Filter: _filter,
        exp.Window: _window,
        exp.Subquery: _scalar,
        exp.Exists: _exists,
        exp.Tuple: _row,
    }


def _resolved(node: exp.Column, scope: _Scope) -> tuple[_Source, str] | None:
    """Which source a column belongs to, and its name there; the innermost scope that has it wins."""
    here: _Scope | None = scope
    while here is not None:
        sources = here.sources
        if node.table:
            sources = tuple(one for one in sources if one.alias.lower() == node.table.lower())
        for source in sources:
            if node.name.lower() == SEGMENT_NAME.lower() and source.view is not None:
                return source, SEGMENT_NAME
            column = source.find(node.name)
            if column is not None:
                _check_unambiguous(node, source, sources)
                return source, column.name
        here = here.outer
    return None


def _check_unambiguous(node: exp.Column, chosen: _Source, sources: Sequence[_Source]) -> None:
    others = [source for source in sources if source is not chosen and source.find(node.name) is not None]
    if others and not any(join.args.get("using") for join in _joins_around(node)):
        raise QueryFailed(
            QueryError.QUERY_VALIDATION, "several tables have this column; name the table", column=node.name
        )


def _joins_around(node: exp.Expr) -> list[exp.Join]:
    select = node.find_ancestor(exp.Select)
    return list(select.args.get("joins") or ()) if select is not None else []


def _source(alias: str, scope: _Scope) -> _Source:
    found = next((one for one in scope.sources if one.alias.lower() == alias.lower()), None)
    if found is None:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "there is no such table in FROM", table=alias)
    return found


def _derived(alias: str, outputs: Sequence[Output]) -> _Source:
    return _Source(alias, {output.name: output for output in outputs})


def _renamed(outputs: tuple[Output, ...], names: Sequence[str]) -> tuple[Output, ...]:
    """The outputs under given names, and under different ones where two are alike."""
    if names and len(names) != len(outputs):
        raise QueryFailed(QueryError.QUERY_VALIDATION, "the list of column names has another length")
    seen: dict[str, int] = {}
    renamed: list[Output] = []
    for at, output in enumerate(outputs):
        name = names[at] if names else output.name
        count = seen.get(name.lower(), 0)
        seen[name.lower()] = count + 1
        renamed.append(replace(output, name=f"{name}{count - 1}" if count else name))
    return tuple(renamed)


def _fitted(value: Typed, other: Typed | str) -> str:
    """The value in the type in which it can be compared with the other."""
    if isinstance(other, str):
        return value.sql
    if other.kind is Kind.TIMESTAMP and (value.is_number or value.is_text):
        return as_timestamp(value)
    if other.is_text and value.is_number:
        return as_text(value)
    if other.kind is Kind.BYTES and isinstance(value.literal, str):
        return f"from_hex({value.sql})"
    return value.sql


_COMPARABLE = {
    Kind.INT: (int, float),
    Kind.LONG: (int, float),
    Kind.FLOAT: (int, float),
    Kind.DOUBLE: (int, float),
    Kind.TIMESTAMP: (int,),
    Kind.STRING: (str,),
    Kind.JSON: (str,),
}


def _holds_for_default(
    operation: type[exp.Expr], default: Value, values: Sequence[Typed], kind: Kind | None
) -> bool | None:
    """Whether the comparison holds for the default; None if that cannot be said beforehand."""
    types = _COMPARABLE.get(kind) if kind is not None else None
    literals = [value.literal for value in values]
    if types is None or not all(isinstance(literal, types) for literal in literals):
        return None
    if operation is exp.In:
        return default in literals
    if operation is exp.Between:
        return bool(literals[0] <= default <= literals[1])  # type: ignore[operator]
    return _COMPARISONS[operation][1](default, literals[0])


def _flattened(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The operands of a chain of one operator, without descending as deep as the chain is long."""
    operands: list[exp.Expr] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if type(one) is kind:
            waiting += (one.expression, one.this)
        else:
            operands.append(one)
    return operands


def _frame(spec: exp.WindowSpec) -> str:
    """ROWS or RANGE BETWEEN."""
    kind = str(spec.args.get("kind") or "ROWS").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise _unsupported(spec)
    start = _bound(spec.args.get("start"), spec.args.get("start_side"), spec)
    end = _bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), spec)
    return f"{kind} BETWEEN {start} AND {end}"


def _bound(value: object, side: object, spec: exp.WindowSpec) -> str:
    words = str(side or "").upper()
    if isinstance(value, exp.Expr):
        return f"{_whole(value)} {'FOLLOWING' if words == 'FOLLOWING' else 'PRECEDING'}"
    if str(value).upper() == "CURRENT ROW":
        return "CURRENT ROW"
    if str(value).upper() == "UNBOUNDED" and words in ("PRECEDING", "FOLLOWING"):
        return f"UNBOUNDED {words}"
    raise _unsupported(spec)


def _is_ordinal(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()


def _limit(node: exp.Expr) -> int | None:
    clause = node.args.get("limit")
    if clause is None:
        return None
    if not isinstance(clause, exp.Limit) or clause.args.get("expressions") or clause.args.get("offset"):
        raise _unsupported(clause)
    return _whole(clause.expression)


def _has_limit(node: exp.Expr) -> bool:
    return node.args.get("limit") is not None


def _whole(node: exp.Expr) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdigit():
        raise QueryFailed(QueryError.SQL_PARSING, "LIMIT, OFFSET and frames take a whole number")
    return int(node.name)


def _unknown_column(name: str) -> QueryFailed:
    return QueryFailed(QueryError.UNKNOWN_COLUMN, "there is no such column", column=name[:200])


def _unsupported(node: exp.Expr) -> QueryFailed:
    return QueryFailed(QueryError.SQL_PARSING, "this syntax is not supported", found=type(node).__name__)
