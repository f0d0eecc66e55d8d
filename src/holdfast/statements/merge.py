"""MERGE INTO: each row of the table and of the source that meets a clause becomes one row of an upsert.

ON has to be the record key, alone or with partition columns: then the upsert finds
what MERGE would. If the clauses do no more than an upsert does, the source is
handed to it as it is. Else source and table are joined first, each clause has a
number, and a row the number of the first clause that it meets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from holdfast.config.choices import Operation
from holdfast.errors import InvalidRequest
from holdfast.model.reports import Commit
from holdfast.statements.names import Context, Query
from holdfast.statements.rows import (
    ACTION,
    STORED,
    Target,
    actions_to_rows,
    assignments,
    open_target,
    run_until_current,
    write_frame,
    write_settings,
)
from holdfast.writes.read_base import note_base

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE, _IN_TABLE, _IN_SOURCE = "_holdfast_source", "_holdfast_in_table", "_holdfast_in_source"


@dataclass(frozen=True, slots=True)
class _Clause:
    """One WHEN."""

    number: int
    meets: str
    """`both`, `source` or `table`: where there is a row."""
    condition: exp.Expr | None
    values: Mapping[str, exp.Expr]
    """Column → what it becomes; empty if the row is removed."""
    removes: bool = False


@dataclass(frozen=True, slots=True)
class _Merge:
    context: Context
    target: Target
    alias: str
    source_alias: str
    source_schema: pa.Schema
    on: exp.Expr
    compared: Mapping[str, exp.Expr]
    """Column of the table → what of the source it is compared with."""
    clauses: Sequence[_Clause] = field(default_factory=list)

    @property
    def has_partition(self) -> bool:
        """Whether a row of the source can meet rows of one partition only, its own."""
        is_global = write_settings(self.context).index_type.is_global
        return is_global or set(self.target.partitions) <= set(self.compared)


def merge(context: Context, node: exp.Merge) -> Commit:
    for part in ("returning", "with_", "using_cond"):
        if node.args.get(part):
            raise context.wrong("this part of MERGE is not supported", node, part=part.strip("_").upper())
    return run_until_current(context, node.this, lambda: _merge(context, node))


def _merge(context: Context, node: exp.Merge) -> Commit:
    from holdfast.engines.spark.statements import schema_of_frame

    target = open_target(context, node.this)
    base = note_base(target.opened)
    query = Query(context)
    source = query.bind(_source(context, node))
    source_frame = query.run(exp.select("*").from_(source.copy()))
    planned = _Merge(
        context,
        target,
        alias=node.this.alias_or_name,
        source_alias=node.args["using"].alias_or_name,
        source_schema=schema_of_frame(source_frame),
        on=exp.true(),
        compared={},
    )
    on = _qualify(planned, node.args["on"], sides="both")
    planned = replace(planned, on=on, compared=_comparisons(planned, on))
    _check_types(planned, query, source)
    clauses = [_clause(planned, number, each) for number, each in enumerate(_whens(node), 1)]
    planned = replace(planned, clauses=clauses)
    if _is_plain_upsert(planned):
        rows = _upsert_rows(planned, query, source)
        marks_removals = False
    else:
        rows = _rows_of_join(planned, query, source)
        marks_removals = True
    _check_global_twins(planned, rows)
    return write_frame(
        context,
        target.opened,
        Operation.UPSERT,
        rows,
        origin=base.origin(),
        marks_removals=marks_removals,
        refuses_twins=True,
    )


def _source(context: Context, node: exp.Merge) -> exp.Expr:
    using = node.args["using"]
    if not using.alias_or_name:
        raise context.wrong("the source of MERGE needs a name", node, hint="USING (SELECT ...) AS source")
    if using.alias_or_name.lower() == node.this.alias_or_name.lower():
        raise context.wrong("table and source of MERGE have the same name", node, name=using.alias_or_name)
    assert isinstance(using, exp.Expr)
    return using


def _whens(node: exp.Merge) -> list[exp.When]:
    whens: list[exp.When] = node.args["whens"].expressions
    return whens


def _columns(planned: _Merge, side: str) -> list[str]:
    names: list[str] = planned.target.schema.names if side == "table" else planned.source_schema.names
    return names


def _find(names: Sequence[str], wanted: str) -> str | None:
    return next((name for name in names if name.lower() == wanted.lower()), None)


def _qualify(planned: _Merge, node: exp.Expr, *, sides: str) -> exp.Expr:
    """The expression, each of its columns with the name of its side; those in subqueries stay as they are."""
    node = node.copy()
    for column in [each for each in node.find_all(exp.Column) if each.find_ancestor(exp.Query) is None]:
        if isinstance(column.this, exp.Star):
            raise planned.context.wrong("* has no place here", node)
        parts = [part.name for part in column.parts]
        if parts[0].lower() in (planned.alias.lower(), planned.source_alias.lower()) and len(parts) > 1:
            side = "table" if parts[0].lower() == planned.alias.lower() else "source"
        else:
            side = _side_of(planned, column, parts[0], sides)
            alias = planned.alias if side == "table" else planned.source_alias
            parts = [alias, *parts]
        if sides not in ("both", side):
            raise planned.context.wrong(
                "this clause has no row of that side", column, column=".".join(parts), side=side
            )
        if _find(_columns(planned, side), parts[1]) is None:
            raise planned.context.wrong("there is no such column", column, column=".".join(parts))
        qualified = _path(parts)
        if column is node:
            return qualified
        column.replace(qualified)
    return node


def _side_of(planned: _Merge, column: exp.Column, name: str, sides: str) -> str:
    """The side of a column that is named alone."""
    found = [
        side
        for side in ("table", "source")
        if sides in ("both", side) and _find(_columns(planned, side), name) is not None
    ]
    if len(found) != 1:
        reason = "both sides have this column" if found else "neither side has this column"
        raise planned.context.wrong(
            reason, column, column=name, hint=f"write {planned.alias}.{name} or {planned.source_alias}.{name}"
        )
    return found[0]


def _path(parts: Sequence[str]) -> exp.Expr:
    """`side.column`, or a field inside of it."""
    quoted = [exp.to_identifier(part, quoted=True) for part in parts]
    path: exp.Expr = exp.Column(this=quoted[1], table=quoted[0])
    for part in quoted[2:]:
        path = exp.Dot(this=path, expression=part)
    return path


def _is_of(planned: _Merge, node: exp.Expr, alias: str) -> bool:
    return any(column.table.lower() == alias.lower() for column in node.find_all(exp.Column))


def _comparisons(planned: _Merge, on: exp.Expr) -> dict[str, exp.Expr]:
    """What each column is compared with; refuses what is not the record key and partition columns."""
    target, compared = planned.target, dict[str, exp.Expr]()
    for each in on.flatten() if isinstance(on, exp.And) else [on]:
        comparison = each.unnest()
        pair = _key_and_value(planned, comparison)
        if pair is None or pair[0] not in (*target.keys, *target.partitions) or pair[0] in compared:
            raise _not_the_key(planned, comparison)
        compared[pair[0]] = pair[1]
    if not set(target.keys) <= set(compared):
        raise _not_the_key(planned, on)
    return compared


def _check_types(planned: _Merge, query: Query, source: exp.Expr) -> None:
    """Refuse values that would be stored as others than ON compares."""
    from holdfast.engines.spark.statements import check_same_key, schema_of_frame

    values = [exp.alias_(query.bind(value), _identifier(name)) for name, value in planned.compared.items()]
    compared = schema_of_frame(query.run(exp.select(*values).from_(source.copy())))
    for each in compared:
        check_same_key(each.type, planned.target.schema.field(each.name).type, each.name)


def _key_and_value(planned: _Merge, node: exp.Expr) -> tuple[str, exp.Expr] | None:
    if not isinstance(node, exp.EQ | exp.NullSafeEQ):
        return None
    for ours, theirs in ((node.this.unnest(), node.expression), (node.expression.unnest(), node.this)):
        is_ours = isinstance(ours, exp.Column) and ours.table.lower() == planned.alias.lower()
        if is_ours and not _is_of(planned, theirs, planned.alias):
            return _find(planned.target.schema.names, ours.name) or ours.name, theirs.unnest()
    return None


def _not_the_key(planned: _Merge, node: exp.Expr) -> InvalidRequest:
    keys = planned.target.keys
    wanted = " AND ".join(f"{planned.alias}.{name} = {planned.source_alias}.{name}" for name in keys)
    return planned.context.wrong(
        "ON of MERGE has to compare the record key, and besides it partition columns alone",
        node,
        record_key=", ".join(keys),
        partition_by=", ".join(planned.target.partitions) or "nothing",
        hint=f"write ON {wanted}, and put other conditions behind WHEN ... AND",
    )


def _clause(planned: _Merge, number: int, when: exp.When) -> _Clause:
    meets = "both" if when.args.get("matched") else ("table" if when.args.get("source") else "source")
    given = when.args.get("condition")
    condition = None if given is None else _qualify(planned, given, sides=meets)
    then = when.args["then"]
    if isinstance(then, exp.Var) and then.name.upper() == "DELETE" and meets != "source":
        return _Clause(number, meets, condition, {}, removes=True)
    if isinstance(then, exp.Update) and meets != "source":
        return _Clause(number, meets, condition, _update_values(planned, then, meets))
    if isinstance(then, exp.Insert) and meets == "source":
        return _Clause(number, meets, condition, _insert_values(planned, then))
    raise planned.context.wrong("this clause cannot do that", when, does=then.sql(dialect="spark"))


def _update_values(planned: _Merge, then: exp.Update, meets: str) -> dict[str, exp.Expr]:
    target = planned.target
    is_star = len(then.expressions) == 1 and isinstance(then.expressions[0], exp.Star)
    if is_star and meets == "both":
        values = _all_columns(planned, then)
    elif is_star:
        raise planned.context.wrong("UPDATE SET * has no row of the source here", then)
    else:
        assigned = assignments(planned.context, target, then.expressions, alias=planned.alias)
        values = {name: _qualify(planned, value, sides=meets) for name, value in assigned.items()}
    for name in target.keys:
        if name in values and values[name] != planned.compared[name]:
            raise planned.context.wrong(
                "MERGE cannot change the record key", then, column=name,
                hint="DELETE the row in one clause and INSERT another in a second statement",
            )  # fmt: skip
    # Equal they may be spelled in two ways: the stored spelling stays.
    return {name: value for name, value in values.items() if name not in target.keys}


def _insert_values(planned: _Merge, then: exp.Insert) -> dict[str, exp.Expr]:
    target = planned.target
    if isinstance(then.this, exp.Star):
        values = _all_columns(planned, then)
    else:
        names = [target.column(planned.context, each.name, each) for each in then.this.expressions]
        given = list(then.expression.expressions) if then.expression is not None else []
        if len(names) != len(given) or len(set(names)) != len(names):
            raise planned.context.wrong("INSERT needs one value for each of its columns", then)
        values = {
            name: _qualify(planned, value, sides="source") for name, value in zip(names, given, strict=True)
        }
    for name in target.keys:
        if values.get(name) != planned.compared[name]:
            raise planned.context.wrong(
                "MERGE inserts the key that ON compares, and no other", then, column=name,
                wanted=planned.compared[name].sql(dialect="spark"),
            )  # fmt: skip
    missing = {name: exp.null() for name in target.schema.names if name not in values}
    return {**values, **missing}


def _all_columns(planned: _Merge, then: exp.Expr) -> dict[str, exp.Expr]:
    values: dict[str, exp.Expr] = {}
    for name in planned.target.schema.names:
        found = _find(planned.source_schema.names, name)
        if found is None:
            raise planned.context.wrong(
                "the source lacks a column that * needs",
                then,
                column=name,
                hint="name the columns, or add it",
            )
        values[name] = _path([planned.source_alias, found])
    # A key is what ON compares, also if the source calls it by another name.
    return {**values, **{name: planned.compared[name] for name in planned.target.keys}}


def _is_plain_upsert(planned: _Merge) -> bool:
    """Whether the clauses do what an upsert of the source does, so that the table need not be read before."""
    by_side = {clause.meets: clause for clause in planned.clauses}
    if len(planned.clauses) != 2 or set(by_side) != {"both", "source"} or not planned.has_partition:
        return False
    updated, added = by_side["both"], by_side["source"]
    has_conditions = updated.condition is not None or added.condition is not None
    columns = [name for name in planned.target.schema.names if name not in planned.target.keys]
    is_same = not updated.removes and all(updated.values.get(name) == added.values[name] for name in columns)
    in_place = all(
        added.values[name] == planned.compared[name]
        for name in planned.target.partitions
        if name in planned.compared
    )
    return is_same and in_place and not has_conditions


def _upsert_rows(planned: _Merge, query: Query, source: exp.Expr) -> "DataFrame":
    from holdfast.engines.spark.statements import assign_rows

    values = next(clause.values for clause in planned.clauses if clause.meets == "source")
    selected = exp.select(
        *(exp.alias_(query.bind(values[name]), _identifier(name)) for name in planned.target.schema.names)
    )
    return assign_rows(query.run(selected.from_(source.copy())), planned.target.schema)


def _rows_of_join(planned: _Merge, query: Query, source: exp.Expr) -> "DataFrame":
    """The rows of both sides, each with the number of the clause it meets, and what that makes of it."""
    joined = _join(planned, query, source)
    numbered = exp.select(
        *(_struct(alias, name) for alias, name in ((planned.alias, STORED), (planned.source_alias, _SOURCE))),
        _is_there(planned.alias, _IN_TABLE),
        _is_there(planned.source_alias, _IN_SOURCE),
        exp.alias_(_number(planned, query), _identifier(ACTION)),
    ).from_(joined.args["from_"].this)
    numbered.set("joins", joined.args["joins"])
    inner = numbered.subquery(_identifier("_holdfast_numbered"))
    columns: list[exp.Expr] = [exp.column(_identifier(name)) for name in (STORED, ACTION)]
    values: dict[int, dict[str, str]] = {}
    for clause in planned.clauses:
        for name, value in clause.values.items():
            column = f"_holdfast_value_{clause.number}_{name}"
            values.setdefault(clause.number, {})[name] = column
            columns.append(exp.alias_(_inside(planned, query.bind(value)), _identifier(column)))
        if not clause.removes:
            values.setdefault(clause.number, {})
    removals = [clause.number for clause in planned.clauses if clause.removes]
    frame = query.run(exp.select(*columns).from_(inner))
    added = [clause.number for clause in planned.clauses if clause.meets == "source"]
    return actions_to_rows(planned.context, planned.target, frame, values, removals, added=added)


def _join(planned: _Merge, query: Query, source: exp.Expr) -> exp.Select:
    sides = {clause.meets for clause in planned.clauses}
    kind = {
        (False, False): "INNER", (True, False): "LEFT", (False, True): "RIGHT", (True, True): "FULL",
    }["source" in sides, "table" in sides]  # fmt: skip
    stored = exp.Table(this=query.add(planned.target.table.read(planned.context.session)))
    right = exp.select("*", exp.alias_(exp.true(), _identifier(_IN_TABLE))).from_(stored)
    left = exp.select("*", exp.alias_(exp.true(), _identifier(_IN_SOURCE))).from_(source.copy())
    return (
        exp.select("*")
        .from_(left.subquery(_identifier(planned.source_alias)))
        .join(right.subquery(_identifier(planned.alias)), on=planned.on.copy(), join_type=kind)
    )


def _number(planned: _Merge, query: Query) -> exp.Case:
    """The number of the first clause that a row meets; null if it meets none."""
    there = {
        "table": exp.column(_identifier(_IN_TABLE), table=_identifier(planned.alias)),
        "source": exp.column(_identifier(_IN_SOURCE), table=_identifier(planned.source_alias)),
    }
    number = exp.Case()
    for clause in planned.clauses:
        conditions: list[exp.Expr] = [
            there[side].copy()
            if clause.meets in (side, "both")
            else exp.Is(this=there[side].copy(), expression=exp.null())
            for side in ("table", "source")
        ]
        if clause.condition is not None:
            conditions.append(exp.paren(query.bind(clause.condition)))
        number = number.when(exp.and_(*conditions), exp.Literal.number(clause.number))
    return number


def _struct(alias: str, name: str) -> exp.Expr:
    whole = exp.Struct(expressions=[exp.Column(this=exp.Star(), table=_identifier(alias))])
    return exp.alias_(whole, _identifier(name))


def _is_there(alias: str, name: str) -> exp.Expr:
    return exp.alias_(exp.column(_identifier(name), table=_identifier(alias)), _identifier(name))


def _inside(planned: _Merge, node: exp.Expr) -> exp.Expr:
    """An expression over the two sides as one over their structs."""
    names = {planned.alias.lower(): STORED, planned.source_alias.lower(): _SOURCE}

    def rename(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and each.table.lower() in names:
            return exp.Dot(
                this=exp.column(_identifier(names[each.table.lower()])), expression=_identifier(each.name)
            )
        return each

    return node.transform(rename)


def _check_global_twins(planned: _Merge, rows: "DataFrame") -> None:
    """With a global index rows of one key meet before tasks look for twins, and one of them is dropped."""
    from holdfast.engines.spark.statements import find_twin

    if write_settings(planned.context).index_type.is_global and find_twin(rows, planned.target.keys):
        raise InvalidRequest(
            "several rows of the source meet one row of the table",
            hint="let the source have one row for each key; nothing was written",
        )


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)
