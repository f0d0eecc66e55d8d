"""INSERT, UPDATE, DELETE and TRUNCATE: rows computed from a snapshot, written by one verb each.

A statement that reads the table it writes is right for that snapshot alone. If
the table was changed before its commit, the statement is run anew.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from sqlglot import exp

from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidRequest, PlanOutdated, SchemaMismatch, WriteConflict
from holdfast.files.partition_column import partition_column
from holdfast.lake import Table
from holdfast.model.reports import Commit
from holdfast.read.snapshot import snapshot
from holdfast.statements.names import Context, Query
from holdfast.table.opened import OpenTable
from holdfast.writes.operations import delete_partitions, write
from holdfast.writes.origin import NO_ORIGIN, Origin
from holdfast.writes.read_base import note_base

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

Report = TypeVar("Report")
Expressions = Sequence[exp.Expr]

_ATTEMPTS = 5


def run_until_current(context: Context, named: exp.Expr | None, act: Callable[[], Report]) -> Report:
    """Run a statement anew, on the newest snapshot, if the table was changed under it."""
    for left in range(_ATTEMPTS - 1, -1, -1):
        try:
            return act()
        except (WriteConflict, PlanOutdated) as conflict:
            if left == 0:
                raise
            log.info(
                "statement.retried",
                extra={
                    "table": context.open(named).store.uri(""),
                    "cause": str(conflict),
                    "attempts_left": left,
                },
            )
    raise AssertionError("the last attempt returns or raises")


@dataclass(frozen=True, slots=True)
class Target:
    """The table that a statement writes to."""

    opened: OpenTable
    schema: pa.Schema

    @property
    def table(self) -> Table:
        return Table(self.opened)

    def column(self, context: Context, name: str, node: exp.Expr) -> str:
        """A column as the table spells it."""
        found = next((known for known in self.schema.names if known.lower() == name.lower()), None)
        if found is None:
            raise context.wrong(
                "the table has no such column", node, column=name, columns=", ".join(self.schema.names)
            )
        return str(found)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.opened.settings.record_key

    @property
    def partitions(self) -> tuple[str, ...]:
        return self.opened.settings.partition_by

    @property
    def naming(self) -> list[str]:
        """The columns that name a row, and the one that decides between two: all that a removal needs."""
        ordering = self.opened.settings.ordering
        return [*self.keys, *self.partitions, *([ordering] if ordering else [])]


def open_target(context: Context, node: exp.Expr | None) -> Target:
    """`InvalidRequest` if the table has no columns yet."""
    opened = context.open(node)
    opened.settings.check_writable()
    schema = Table(opened).schema()
    if schema is None:
        raise InvalidRequest("nothing was written to this table yet", table=opened.settings.name)
    return Target(opened, schema)


def write_frame(
    context: Context,
    opened: OpenTable,
    operation: Operation,
    frame: "DataFrame",
    *,
    origin: Origin = NO_ORIGIN,
    marks_removals: bool = False,
    refuses_twins: bool = False,
) -> Commit:
    # Loaded here because only these statements need Spark.
    from holdfast.engines.spark.writer import SparkRows

    rows = SparkRows(frame, marks_removals=marks_removals)
    settings = write_settings(context)
    return write(opened, operation, rows, settings, origin=origin, refuses_twins=refuses_twins)


def write_settings(context: Context) -> WriteSettings:
    return WriteSettings.from_options(context.options).with_number(context.idempotency)


def insert(context: Context, node: exp.Insert) -> Commit:
    """INSERT INTO and INSERT OVERWRITE."""
    for part in ("where", "conflict", "returning", "alternative", "settings", "exists", "ignore"):
        if node.args.get(part):
            raise context.wrong("this part of INSERT is not supported", node, part=part.upper())
    named = node.this if isinstance(node.this, exp.Table) else node.this.this
    return run_until_current(context, named, lambda: _insert(context, node))


def _insert(context: Context, node: exp.Insert) -> Commit:
    from holdfast.engines.spark.statements import assign_rows, replaces_dynamically

    named = node.this if isinstance(node.this, exp.Table) else node.this.this
    target = open_target(context, named)
    base = note_base(target.opened)
    query = Query(context)
    frame = query.run(query.bind(_source(node)))
    fixed, dynamic = _partition_values(context, target, named)
    columns = _columns(context, target, node, frame.columns, fixed=fixed, dynamic=dynamic)
    given = assign_rows(frame, pa.schema([target.schema.field(name) for name in columns]))
    frame = _complete(given, target, fixed)
    reads_itself = target.opened.location.uri in {_uri(path) for path in query.paths}
    origin = base.origin() if reads_itself else NO_ORIGIN
    if not node.args.get("overwrite"):
        return write_frame(context, target.opened, Operation.INSERT, frame, origin=origin)
    if fixed:
        return _overwrite_partition(context, target, frame, fixed, origin)
    is_dynamic = bool(dynamic) or (bool(target.partitions) and replaces_dynamically(context.session))
    operation = Operation.INSERT_OVERWRITE if is_dynamic else Operation.INSERT_OVERWRITE_TABLE
    return write_frame(context, target.opened, operation, frame, origin=origin)


def _source(node: exp.Insert) -> exp.Expr:
    source: exp.Expr = node.expression
    if isinstance(source, exp.Values):
        source = exp.select("*").from_(source.copy())
    elif not isinstance(source, exp.Query):
        raise InvalidRequest("INSERT needs a query or VALUES")
    with_ = node.args.get("with_")
    if with_ is not None:
        source = source.copy()
        source.set("with_", with_.copy())
    return source


def _uri(path: str) -> str:
    from holdfast.storage.open import location_of

    return location_of(path).uri


def _partition_values(
    context: Context, target: Target, named: exp.Table
) -> tuple[dict[str, exp.Expr], list[str]]:
    """What PARTITION says: columns with a value, and columns that the rows tell."""
    clause = named.args.get("partition")
    fixed: dict[str, exp.Expr] = {}
    dynamic: list[str] = []
    for each in clause.expressions if clause is not None else ():
        is_fixed = isinstance(each, exp.EQ)
        name = target.column(context, (each.this if is_fixed else each).name, each)
        if name not in target.partitions:
            raise context.wrong("not a partition column of the table", each, column=name)
        if is_fixed:
            fixed[name] = each.expression
        else:
            dynamic.append(name)
    missing = [name for name in target.partitions if clause is not None and name not in (*fixed, *dynamic)]
    if missing or (fixed and dynamic):
        raise context.wrong(
            "PARTITION names all partition columns, either with values or without",
            named,
            columns=", ".join(target.partitions),
            hint="with values it is one partition, without them the rows tell",
        )
    return fixed, dynamic


def _columns(
    context: Context,
    target: Target,
    node: exp.Insert,
    given: Sequence[str],
    *,
    fixed: Mapping[str, object],
    dynamic: Sequence[str],
) -> list[str]:
    """The columns of the table that those of the query are for, in the query's order."""
    if node.args.get("by_name"):
        columns = [target.column(context, name, node) for name in given]
    elif isinstance(node.this, exp.Schema):
        columns = [target.column(context, each.name, each) for each in node.this.expressions]
    else:
        last = [name for name in dynamic if name not in fixed]
        columns = [name for name in target.schema.names if name not in fixed and name not in last] + last
    twice = next((name for name in columns if columns.count(name) > 1 or name in fixed), None)
    if twice is not None:
        raise context.wrong("a column is given twice", node, column=twice)
    if len(columns) != len(given):
        raise SchemaMismatch(
            "the query does not have as many columns as are to be written",
            found=len(given),
            expected=", ".join(columns),
        )
    return columns


def _complete(frame: "DataFrame", target: Target, fixed: Mapping[str, exp.Expr]) -> "DataFrame":
    """All columns of the table, in its order: those of PARTITION with their value, others as nulls."""
    from holdfast.engines.spark.statements import complete_rows

    values = {name: _plain(value) for name, value in fixed.items()}
    return complete_rows(frame, target.schema, values)


def _plain(node: exp.Expr) -> str | None:
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Neg):
        return f"-{_plain(node.this)}"
    if isinstance(node, exp.Literal | exp.Boolean):
        return str(node.name if isinstance(node, exp.Literal) else node.this).strip()
    raise InvalidRequest("a value of PARTITION is a plain one", found=node.sql(dialect="spark"))


def _overwrite_partition(
    context: Context, target: Target, frame: "DataFrame", fixed: Mapping[str, exp.Expr], origin: Origin
) -> Commit:
    """Replace one partition, also by nothing."""
    from holdfast.engines.spark.statements import has_rows

    path = _partition_path(target, fixed)
    if has_rows(frame) or path not in snapshot(target.opened).slices["partition"].to_pylist():
        return write_frame(context, target.opened, Operation.INSERT_OVERWRITE, frame, origin=origin)
    return delete_partitions(target.opened, [path], write_settings(context), origin=origin)


def _partition_path(target: Target, fixed: Mapping[str, exp.Expr]) -> str:
    values = {
        name: pa.array([_plain(value)], pa.string()).cast(target.schema.field(name).type)
        for name, value in fixed.items()
    }
    path: str = partition_column(pa.table(values), target.opened.settings)[0].as_py()
    return path


def update(context: Context, node: exp.Update) -> Commit:
    for part in ("from_", "joins", "returning", "order", "limit"):
        if node.args.get(part):
            raise context.wrong("this part of UPDATE is not supported", node, part=part.strip("_").upper())
    return run_until_current(context, node.this, lambda: _update(context, node))


def _update(context: Context, node: exp.Update) -> Commit:
    target = open_target(context, node.this)
    assigned = assignments(context, target, node.expressions, alias=node.this.alias_or_name)
    for name in assigned:
        if name in target.keys:
            raise context.wrong(
                "UPDATE cannot change the record key",
                node,
                column=name,
                hint="DELETE the row and INSERT another",
            )
    base = note_base(target.opened)
    query, alias = Query(context), node.this.alias_or_name
    source = _from_target(query, target, node)
    changed = source.select(
        exp.alias_(
            exp.Struct(expressions=[exp.Column(this=exp.Star(), table=_identifier(alias))]),
            _identifier(STORED),
        ),
        exp.alias_(exp.Literal.number(1), _identifier(ACTION)),
        *(exp.alias_(query.bind(value), _identifier(_value(name))) for name, value in assigned.items()),
    )
    frame = query.run(changed)
    _refuse_lower_order(target, frame, assigned)
    rows = actions_to_rows(context, target, frame, {1: {name: _value(name) for name in assigned}})
    return write_frame(
        context,
        target.opened,
        Operation.UPSERT,
        rows,
        origin=base.origin(),
        marks_removals=True,
        refuses_twins=True,
    )


ACTION, STORED = "_holdfast_action", "_holdfast_stored"


def actions_to_rows(
    context: Context,
    target: Target,
    frame: "DataFrame",
    values: Mapping[int, Mapping[str, str]],
    removals: Sequence[int] = (),
    *,
    added: Sequence[int] = (),
) -> "DataFrame":
    """The rows to upsert: what each action makes of its row, and what goes where a row leaves a partition."""
    from holdfast.engines.spark.statements import assign_actions

    leaving = [
        number
        for number, sources in values.items()
        if number not in added and not set(target.partitions).isdisjoint(sources)
    ]
    is_global = write_settings(context).index_type.is_global
    return assign_actions(
        frame,
        target.schema,
        action=ACTION,
        values=values,
        removals=removals,
        stored=STORED,
        kept=target.naming,
        partitions=() if is_global else target.partitions,
        leaving=leaving,
    )


def assignments(
    context: Context, target: Target, expressions: Expressions, *, alias: str
) -> dict[str, exp.Expr]:
    """Column → what it becomes."""
    assigned: dict[str, exp.Expr] = {}
    for each in expressions:
        if not isinstance(each, exp.EQ) or not isinstance(each.this, exp.Column):
            raise context.wrong("SET takes column = value", each)
        qualifiers = [part.name.lower() for part in each.this.parts[:-1]]
        if qualifiers not in ([], [alias.lower()]):
            raise context.wrong(
                "only whole columns of the table can be set", each, column=each.this.sql(dialect="spark"),
                hint="set the column, with named_struct(...) for a field inside of it",
            )  # fmt: skip
        name = target.column(context, each.this.name, each)
        if name in assigned:
            raise context.wrong("a column is set twice", each, column=name)
        assigned[name] = _default_as_null(each.expression)
    return assigned


def _default_as_null(value: exp.Expr) -> exp.Expr:
    is_default = isinstance(value, exp.Column) and value.sql().upper() == "DEFAULT"
    return exp.null() if is_default else value


def _refuse_lower_order(target: Target, frame: "DataFrame", assigned: Mapping[str, object]) -> None:
    """Of two versions of a row the greater in the ordering column stays: an UPDATE would have no effect."""
    from holdfast.engines.spark.statements import has_lower_value

    column = target.opened.settings.deciding_column
    if (
        column is not None
        and column in assigned
        and has_lower_value(frame, stored=STORED, column=column, value=_value(column))
    ):
        raise InvalidRequest(
            "UPDATE would lower the ordering column, and the stored row would win",
            column=column,
            hint="leave the column out, or raise it; DELETE and INSERT replaces a row whatever it says",
        )


def delete(context: Context, node: exp.Delete) -> Commit:
    for part in ("using", "returning", "order", "limit", "tables"):
        if node.args.get(part):
            raise context.wrong("this part of DELETE is not supported", node, part=part.upper())
    if node.args.get("where") is None:
        return truncate(context, node.this)
    return run_until_current(context, node.this, lambda: _delete(context, node))


def _delete(context: Context, node: exp.Delete) -> Commit:
    target = open_target(context, node.this)
    base = note_base(target.opened)
    query, alias = Query(context), node.this.alias_or_name
    source = _from_target(query, target, node)
    columns = dict.fromkeys((*target.keys, *target.partitions))
    frame = query.run(
        source.select(*(exp.column(_identifier(name), table=_identifier(alias)) for name in columns))
    )
    return write_frame(context, target.opened, Operation.DELETE, frame, origin=base.origin())


def truncate(context: Context, named: exp.Expr | None) -> Commit:
    """Remove all rows; the history stays, and `undo` brings them back."""
    from holdfast.engines.spark.statements import empty_frame

    target = open_target(context, named)
    frame = empty_frame(context.session, target.schema)
    return write_frame(context, target.opened, Operation.INSERT_OVERWRITE_TABLE, frame)


def truncate_table(context: Context, node: exp.TruncateTable) -> Commit:
    """TRUNCATE TABLE, whole or one partition."""
    named, clause = node.expressions[0], node.args.get("partition")
    if len(node.expressions) > 1:
        raise context.wrong("TRUNCATE takes one table", node)
    if clause is None:
        return truncate(context, named)
    target = open_target(context, named)
    table = named.copy()
    table.set("partition", clause.copy())
    fixed, dynamic = _partition_values(context, target, table)
    if dynamic:
        raise context.wrong("TRUNCATE needs the values of the partition columns", node)
    return delete_partitions(target.opened, [_partition_path(target, fixed)], write_settings(context))


def _from_target(query: Query, target: Target, node: exp.Update | exp.Delete) -> exp.Select:
    """SELECT FROM the table, by the name that the statement gives it, WHERE as the statement has it."""
    frame = target.table.read(query.context.session)
    alias = exp.TableAlias(this=_identifier(node.this.alias_or_name))
    selected = exp.Select().from_(exp.Table(this=query.add(frame), alias=alias))
    where = node.args.get("where")
    return selected if where is None else selected.where(query.bind(where.this))


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _value(name: str) -> str:
    return f"_holdfast_value_{name}"
