"""What a column of the answer is called when the statement does not say."""

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from holdfast.push.queries.functions import canonical

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
_LONGEST = 1000


Spelling = Callable[[exp.Column], str]


def name_of(node: exp.Expr, spelling: Spelling) -> str:
    """The lower-case text of the expression, calls and operators alike: `sum(amount)`, `plus(a,b)`.

    `spelling` gives columns the name that they have in the schema.
    """
    return _text(node, spelling)[:_LONGEST]


def _text(node: exp.Expr, spelling: Spelling) -> str:
    match node:
        case exp.Anonymous():
            return f"{canonical(str(node.this))}({_list(node.expressions, spelling)})"
        case exp.Distinct():
            return f"distinct {_list(node.expressions, spelling)}"
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
            return _text(node.this, spelling)
        case exp.Neg():
            return f"-{_text(node.this, spelling)}"
        case exp.Not():
            return f"not({_text(node.this, spelling)})"
        case exp.Cast():
            return f"cast({_text(node.this, spelling)},'{node.to.this.name}')"
        case exp.Extract():
            return f"extract({node.name.lower()},{_text(node.expression, spelling)})"
        case exp.Filter() | exp.Window():
            return _text(node.this, spelling)
        case exp.Case():
            return "case"
        case exp.Subquery() | exp.Select():
            return "subquery"
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        return f"{operator}({_text(node.this, spelling)},{_text(node.expression, spelling)})"
    return type(node).__name__.lower()


def _list(nodes: Sequence[exp.Expr], spelling: Spelling) -> str:
    return ",".join(_text(node, spelling) for node in nodes)
