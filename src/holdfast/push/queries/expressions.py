"""Values and filters of a statement in DuckDB's SQL.

Null handling is written into them: where it is off, a column reads as its
default wherever it is null, and filters keep the form that the Parquet reader
can use to skip row groups.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from sqlglot import exp

from holdfast.config.push_schema import DataType
from holdfast.push.queries import functions, times
from holdfast.push.queries.columns import Value
from holdfast.push.queries.dialect import write
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.functions import Context
from holdfast.push.queries.scopes import Columns, Output, Scope, syntax_refusal
from holdfast.push.queries.typed import Typed, as_text, as_timestamp, cast, leaf, number, text


@dataclass(frozen=True, slots=True)
class Query:
    tree: exp.Expr
    """What an engine runs; to be written once."""
    outputs: tuple[Output, ...]


_COMPARISONS: Mapping[type[exp.Expr], Callable[..., bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_NULL = Typed("NULL", None)
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
_UNIT_FIRST = frozenset({"timestampadd", "dateadd", "timestampdiff", "datediff"})
_KINDS: Mapping[object, DataType] = {
    exp.DataType.Type.INT: DataType.INT,
    exp.DataType.Type.BIGINT: DataType.LONG,
    exp.DataType.Type.FLOAT: DataType.FLOAT,
    exp.DataType.Type.DOUBLE: DataType.DOUBLE,
    exp.DataType.Type.DECIMAL: DataType.BIG_DECIMAL,
    exp.DataType.Type.BOOLEAN: DataType.BOOLEAN,
    exp.DataType.Type.TIMESTAMP: DataType.TIMESTAMP,
    exp.DataType.Type.TEXT: DataType.STRING,
    exp.DataType.Type.VARCHAR: DataType.STRING,
    exp.DataType.Type.CHAR: DataType.STRING,
    exp.DataType.Type.JSON: DataType.JSON,
    exp.DataType.Type.VARBINARY: DataType.BYTES,
}


class Expressions:
    """The values of one statement. `query` gives the statement of a subquery."""

    def __init__(
        self, columns: Columns, query: Callable[[exp.Expr, Scope], Query], *, null_handling: bool
    ) -> None:
        self._columns = columns
        self._query = query
        self._null_handling = null_handling

    def value(self, node: exp.Expr, scope: Scope) -> Typed:
        kind = type(node)
        if kind in _COMPARISONS:
            return self._comparison(node, scope)
        if kind in _ARITHMETIC:
            return functions.arithmetic(
                _ARITHMETIC[kind], self.value(node.this, scope), self.value(node.expression, scope)
            )
        if kind in (exp.And, exp.Or):
            sides = [self.value(side, scope).node for side in _operands(node, kind)]
            return _truth(_chain(kind, sides))
        rule = self._RULES.get(kind)
        if rule is None:
            raise syntax_refusal(node)
        return rule(self, node, scope)

    def _literal(self, node: exp.Literal, _scope: Scope) -> Typed:
        return text(node.name) if node.is_string else number(node.name)

    def _boolean(self, node: exp.Boolean, _scope: Scope) -> Typed:
        return Typed("TRUE" if node.this else "FALSE", DataType.BOOLEAN)

    def _null(self, _node: exp.Null, _scope: Scope) -> Typed:
        return _NULL

    def _column_value(self, node: exp.Column, scope: Scope) -> Typed:
        return self._columns.column(node, scope)[0]

    def _paren(self, node: exp.Paren, scope: Scope) -> Typed:
        inner = self.value(node.this, scope)
        return replace(inner, form=exp.Paren(this=inner.node))

    def _negative(self, node: exp.Neg, scope: Scope) -> Typed:
        inner = self.value(node.this, scope)
        negated = -inner.literal if isinstance(inner.literal, int | float) else None
        if isinstance(negated, int) and negated == -(2**31):
            return Typed("CAST(-2147483648 AS INTEGER)", DataType.INT, literal=negated)
        # As text: a long row of signs is nested deeper than trees can be written.
        return replace(inner, form=f"(-{inner.sql})", literal=negated)

    def _not(self, node: exp.Not, scope: Scope) -> Typed:
        return _truth(exp.Not(this=self.value(node.this, scope).node))

    def _is(self, node: exp.Is, scope: Scope) -> Typed:
        """A column is tested as it is stored: a default in its place would hide what is asked."""
        if not isinstance(node.expression, exp.Null | exp.Boolean):
            raise syntax_refusal(node)
        found = self._columns.column_in_file(node.this, scope) if isinstance(node.this, exp.Column) else None
        value = found[0] if found is not None else self.value(node.this, scope)
        return _truth(exp.Is(this=value.node, expression=self.value(node.expression, scope).node))

    def _between(self, node: exp.Between, scope: Scope) -> Typed:
        value = self.value(node.this, scope)
        low = _fit_to(self.value(node.args["low"], scope), value)
        high = _fit_to(self.value(node.args["high"], scope), value)
        return _truth(exp.Between(this=value.node, low=low, high=high))

    def _in(self, node: exp.In, scope: Scope) -> Typed:
        value = self.value(node.this, scope)
        query = node.args.get("query")
        if query is not None:
            inner = exp.Subquery(this=self._query(query, scope).tree)
            return _truth(exp.In(this=value.node, query=inner))
        if node.args.get("unnest") or node.args.get("field"):
            raise syntax_refusal(node)
        options = [_fit_to(self.value(one, scope), value) for one in node.expressions]
        if value.is_array:
            listed = exp.Array(expressions=options)
            return Typed(_call("list_has_any", value.node, listed), DataType.BOOLEAN)
        return _truth(exp.In(this=value.node, expressions=options))

    def _like(self, node: exp.Expr, scope: Scope) -> Typed:
        escape: Typed | None = None
        if isinstance(node, exp.Escape):
            escape, node = self.value(node.expression, scope), node.this
            if not isinstance(node, exp.Like):
                raise syntax_refusal(node)
        pattern = self.value(node.expression, scope)
        if escape is None and "\\" in str(pattern.literal):
            escape = text("\\")
        value = leaf(as_text(self.value(node.this, scope)))
        like: exp.Expr = exp.Like(this=value, expression=pattern.node)
        return _truth(like if escape is None else exp.Escape(this=like, expression=escape.node))

    def _concatenation(self, node: exp.DPipe, scope: Scope) -> Typed:
        left, right = self.value(node.this, scope), self.value(node.expression, scope)
        both = exp.DPipe(this=leaf(as_text(left)), expression=leaf(as_text(right)))
        return Typed(exp.Paren(this=both), DataType.STRING)

    def _case(self, node: exp.Case, scope: Scope) -> Typed:
        base = node.this and self.value(node.this, scope)
        branches: list[exp.If] = []
        chosen: list[Typed] = []
        for branch in node.args["ifs"]:
            condition = self.value(branch.this, scope)
            when = condition.node
            if base is not None:
                when = exp.EQ(this=base.node, expression=_fit_to(condition, base))
            chosen.append(self.value(branch.args["true"], scope))
            branches.append(exp.If(this=when, true=chosen[-1].node))
        default = node.args.get("default")
        if default is not None:
            chosen.append(self.value(default, scope))
        kinds = {one.kind for one in chosen if one.form != _NULL.form}
        case = exp.Case(ifs=branches, default=None if default is None else chosen[-1].node)
        return Typed(case, kinds.pop() if len(kinds) == 1 else None)

    def _cast(self, node: exp.Cast, scope: Scope) -> Typed:
        kind = _KINDS.get(node.to.this)
        if kind is None or node.args.get("format"):
            raise QueryFailed(QueryError.QUERY_VALIDATION, "not a type to cast to", found=str(node.to)[:40])
        return cast(self.value(node.this, scope), kind)

    def _extract(self, node: exp.Extract, scope: Scope) -> Typed:
        return times.part(node.name, self.value(node.expression, scope))

    def _function(self, node: exp.Anonymous, scope: Scope, tail: str = "") -> Typed:
        name = str(node.this)
        listed = list(node.expressions)
        distinct = len(listed) == 1 and isinstance(listed[0], exp.Distinct)
        if distinct:
            listed = list(listed[0].expressions)
        if functions.canonical(name) == "count" and len(listed) == 1 and isinstance(listed[0], exp.Star):
            return Typed(f"COUNT(*){tail}", DataType.LONG)
        arguments = tuple(
            text(one.name)
            if at == 0 and isinstance(one, exp.Column) and functions.canonical(name) in _UNIT_FIRST
            else self.value(one, scope)
            for at, one in enumerate(listed)
        )
        context = Context(null_handling=self._null_handling, distinct=distinct, tail=tail)
        return functions.apply(name, arguments, context)

    def _filter(self, node: exp.Filter, scope: Scope, tail: str = "") -> Typed:
        if not isinstance(node.this, exp.Anonymous):
            raise syntax_refusal(node)
        condition = write(self.condition(node.expression.this, scope))
        return self._function(node.this, scope, f" FILTER (WHERE {condition}){tail}")

    def _window(self, node: exp.Window, scope: Scope) -> Typed:
        if any(node.args.get(part) for part in ("alias", "first")) or node.args.get("over") not in (
            None,
            "OVER",
        ):
            raise syntax_refusal(node)
        order, frame = node.args.get("order"), node.args.get("spec")
        window = exp.Window(
            partition_by=[self.value(one, scope).node for one in node.args.get("partition_by") or ()],
            order=None if order is None else self.order(order, scope, {}),
            spec=None if frame is None else _frame(frame),
        )
        tail = f" {write(window).strip()}"
        if isinstance(node.this, exp.Filter):
            return self._filter(node.this, scope, tail)
        if not isinstance(node.this, exp.Anonymous):
            raise syntax_refusal(node)
        return self._function(node.this, scope, tail)

    def _scalar(self, node: exp.Expr, scope: Scope) -> Typed:
        inner = self._query(node, scope)
        if len(inner.outputs) != 1:
            raise QueryFailed(QueryError.QUERY_VALIDATION, "a subquery used as a value has one column")
        return Typed(exp.Subquery(this=inner.tree), inner.outputs[0].kind)

    def _exists(self, node: exp.Exists, scope: Scope) -> Typed:
        return Typed(exp.Exists(this=self._query(node.this, scope).tree), DataType.BOOLEAN)

    def _row(self, node: exp.Tuple, scope: Scope) -> Typed:
        return Typed(exp.Tuple(expressions=[self.value(one, scope).node for one in node.expressions]), None)

    # Filters

    def condition(self, node: exp.Expr, scope: Scope) -> exp.Expr:
        """A filter of which only "true" counts, so unknown and false are one.

        There a comparison may look at the stored column, which lets the
        Parquet reader use its statistics, as long as what the default would
        have answered is added for nulls.
        """
        if isinstance(node, exp.Paren):
            return exp.Paren(this=self.condition(node.this, scope))
        if isinstance(node, exp.And | exp.Or):
            kind = type(node)
            sides = [self.condition(side, scope) for side in _operands(node, kind)]
            return exp.Paren(this=_chain(kind, sides))
        if not self._null_handling:
            plain = self._compare_in_file(node, scope)
            if plain is not None:
                return plain
        return self.value(node, scope).node

    def _compare_in_file(self, node: exp.Expr, scope: Scope) -> exp.Expr | None:
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
        found = self._columns.column_in_file(column, scope) if isinstance(column, exp.Column) else None
        if found is None or found[0].is_array:
            return None
        stored, default = found
        values = [self.value(one, scope) for one in others]
        holds = _holds_for_default(kind, default, values, stored.kind)
        if holds is None:
            return None
        fitted = [_fit_to(value, stored) for value in values]
        if kind is exp.In:
            compared: exp.Expr = exp.In(this=stored.node, expressions=fitted)
        elif kind is exp.Between:
            compared = exp.Between(this=stored.node, low=fitted[0], high=fitted[1])
        else:
            compared = kind(this=stored.node, expression=fitted[0])
        if holds:
            is_null = exp.Is(this=stored.node, expression=exp.Null())
            compared = exp.Or(this=compared, expression=is_null)
        return exp.Paren(this=compared)

    def _comparison(self, node: exp.Expr, scope: Scope) -> Typed:
        left, right = self.value(node.this, scope), self.value(node.expression, scope)
        if left.is_array != right.is_array and isinstance(node, exp.EQ | exp.NEQ):
            array, element = (left, right) if left.is_array else (right, left)
            contains = _call("list_contains", array.node, _fit_to(element, array))
            if isinstance(node, exp.EQ):
                return Typed(contains, DataType.BOOLEAN)
            return _truth(exp.Not(this=contains))
        return _truth(type(node)(this=_fit_to(left, right), expression=_fit_to(right, left)))

    def order(self, node: exp.Order, scope: Scope, names: Mapping[str, Typed]) -> exp.Order:
        """ORDER BY, where `names` may be used beside the columns."""
        return exp.Order(expressions=[self._sort_key(one, scope, names) for one in node.expressions])

    def _sort_key(self, node: exp.Expr, scope: Scope, names: Mapping[str, Typed]) -> exp.Ordered:
        if not isinstance(node, exp.Ordered):
            raise syntax_refusal(node)
        key = node.this
        if isinstance(key, exp.Column) and not key.table and key.name.lower() in names:
            value = names[key.name.lower()].node
        elif is_ordinal(key):
            value = exp.Literal.number(key.name)
        else:
            value = self.value(key, scope).node
        return exp.Ordered(
            this=value, desc=bool(node.args.get("desc")), nulls_first=bool(node.args.get("nulls_first"))
        )

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


def _fit_to(value: Typed, other: Typed) -> exp.Expr:
    """The value in the type in which it can be compared with the other."""
    if other.kind is DataType.TIMESTAMP and (value.is_number or value.is_text):
        return leaf(as_timestamp(value))
    if other.is_text and value.is_number:
        return leaf(as_text(value))
    if other.kind is DataType.BYTES and isinstance(value.literal, str):
        return _call("from_hex", value.node)
    return value.node


def _truth(node: exp.Expr) -> Typed:
    """A comparison or a connection, in brackets."""
    return Typed(exp.Paren(this=node), DataType.BOOLEAN)


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _chain(kind: type[exp.Expr], operands: Sequence[exp.Expr]) -> exp.Expr:
    return reduce(lambda left, right: kind(this=left, expression=right), operands)


_COMPARABLE = {
    DataType.INT: (int, float),
    DataType.LONG: (int, float),
    DataType.FLOAT: (int, float),
    DataType.DOUBLE: (int, float),
    DataType.TIMESTAMP: (int,),
    DataType.STRING: (str,),
    DataType.JSON: (str,),
}


def _holds_for_default(
    operation: type[exp.Expr], default: Value, values: Sequence[Typed], kind: DataType | None
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
    return _COMPARISONS[operation](default, literals[0])


def _operands(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
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


def _frame(spec: exp.WindowSpec) -> exp.WindowSpec:
    """ROWS or RANGE BETWEEN."""
    kind = str(spec.args.get("kind") or "ROWS").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise syntax_refusal(spec)
    start, start_side = _bound(spec.args.get("start"), spec.args.get("start_side"), spec)
    end, end_side = _bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), spec)
    return exp.WindowSpec(kind=kind, start=start, start_side=start_side, end=end, end_side=end_side)


def _bound(value: object, side: object, spec: exp.WindowSpec) -> tuple[exp.Expr | str, str | None]:
    words = str(side or "").upper()
    if isinstance(value, exp.Expr):
        return exp.Literal.number(whole(value)), "FOLLOWING" if words == "FOLLOWING" else "PRECEDING"
    if str(value).upper() == "CURRENT ROW":
        return "CURRENT ROW", None
    if str(value).upper() == "UNBOUNDED" and words in ("PRECEDING", "FOLLOWING"):
        return "UNBOUNDED", words
    raise syntax_refusal(spec)


def is_ordinal(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()


def whole(node: exp.Expr) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdigit():
        raise QueryFailed(QueryError.SQL_PARSING, "LIMIT, OFFSET and frames take a whole number")
    return int(node.name)
