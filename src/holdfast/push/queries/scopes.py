"""What names mean in a statement: the sources of FROM, their columns, and which of them are used.

Names are resolved against the columns of the routed tables. An engine is shown
exactly the columns that a statement uses, under names of tables chosen here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from holdfast.config.push_schema import DataType
from holdfast.push.queries.admission import full_name
from holdfast.push.queries.columns import FILLED, SEGMENT_NAME, Column, Value
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.typed import Typed, identifier, table_alias


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the answer."""

    name: str
    kind: DataType | None
    is_array: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a query reads of one table, which the statement for the engine calls `name`."""

    name: str
    table: str
    columns: tuple[Column, ...]
    """Read as they are stored."""
    filled: tuple[Column, ...] = ()
    """Read with the default in place of nulls, under the name with `FILLED` before it."""
    has_segment_names: bool = False


@dataclass(frozen=True, slots=True)
class Source:
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
class Scope:
    sources: tuple[Source, ...] = ()
    named: Mapping[str, Source] = field(default_factory=dict)
    """Common table expressions, by lower-case name."""
    outer: "Scope | None" = None
    aliases: Mapping[str, Typed] = field(default_factory=dict)
    """Names that the SELECT list gives, by lower-case name, where they may be used."""


class Columns:
    """The tables that a statement may read. It remembers which of their columns were used."""

    def __init__(self, tables: Mapping[str, Sequence[Column]], *, null_handling: bool) -> None:
        self._tables = tables
        self._null_handling = null_handling
        self._names: dict[str, str] = {}
        self._used: dict[str, dict[str, Column]] = {}
        self._filled: dict[str, dict[str, Column]] = {}
        self._segment_names: set[str] = set()

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

    def table(self, node: exp.Table, scope: Scope) -> tuple[exp.Table, Source]:
        alias = node.alias or node.name
        if node.alias_column_names:
            raise syntax_refusal(node)
        named = None if node.db else scope.named.get(node.name.lower())
        if named is not None:
            return _relation(named.alias, alias), replace(named, alias=alias)
        table = full_name(node)
        if table not in self._tables:
            raise QueryFailed(QueryError.TABLE_DOES_NOT_EXIST, "there is no such table", table=table)
        view = self._names.setdefault(table, f"table{len(self._names)}")
        self._used.setdefault(view, {})
        self._filled.setdefault(view, {})
        columns = {column.name: column for column in self._tables[table]}
        return _relation(view, alias), Source(alias, columns, view)

    def column(self, node: exp.Column, scope: Scope) -> tuple[Typed, str]:
        """The value and the schema's spelling of the name."""
        found = _resolve(node, scope)
        if found is None:
            alias = None if node.table else scope.aliases.get(node.name.lower())
            if alias is None:
                raise unknown_column(node.name)
            return alias, node.name
        source, name = found
        return self.reference(source, name), name

    def column_in_file(self, node: exp.Column, scope: Scope) -> tuple[Typed, Value] | None:
        """A table's column as it lies in the file, and its default; None if it is no table's column."""
        found = _resolve(node, scope)
        if found is None or found[0].view is None or found[1] == SEGMENT_NAME:
            return None
        source, name = found
        column = source.columns[name]
        assert isinstance(column, Column)
        self.use(source, column)
        return Typed(_column(source, name), column.kind, column.is_array), column.default

    def reference(self, source: Source, name: str) -> Typed:
        """A column of a source as queries see it."""
        if name == SEGMENT_NAME:
            assert source.view is not None
            self._segment_names.add(source.view)
            return Typed(_column(source, SEGMENT_NAME), DataType.STRING)
        column = source.find(name)
        assert column is not None
        plain = _column(source, column.name)
        if not isinstance(column, Column):
            return Typed(plain, column.kind, column.is_array)
        if self._null_handling or column.is_required:
            self.use(source, column)
            return Typed(plain, column.kind, column.is_array)
        # An engine fills nulls only where there are any: DuckDB groups by a
        # plain dictionary column several times faster than by an expression.
        assert source.view is not None
        self._filled[source.view][column.name] = column
        return Typed(_column(source, FILLED + column.name), column.kind, column.is_array)

    def use(self, source: Source, column: Column) -> None:
        assert source.view is not None
        self._used[source.view][column.name] = column


def _column(source: Source, name: str) -> exp.Column:
    return exp.Column(this=identifier(name), table=identifier(source.alias))


def _relation(name: str, alias: str) -> exp.Table:
    return exp.Table(this=identifier(name), alias=table_alias(alias))


def _resolve(node: exp.Column, scope: Scope) -> tuple[Source, str] | None:
    """Which source a column belongs to, and its name there; the innermost scope that has it wins."""
    here: Scope | None = scope
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


def _check_unambiguous(node: exp.Column, chosen: Source, sources: Sequence[Source]) -> None:
    others = [source for source in sources if source is not chosen and source.find(node.name) is not None]
    if others and not any(join.args.get("using") for join in _joins_around(node)):
        raise QueryFailed(
            QueryError.QUERY_VALIDATION, "several tables have this column; name the table", column=node.name
        )


def _joins_around(node: exp.Expr) -> list[exp.Join]:
    select = node.find_ancestor(exp.Select)
    return list(select.args.get("joins") or ()) if select is not None else []


def source_of(alias: str, scope: Scope) -> Source:
    found = next((one for one in scope.sources if one.alias.lower() == alias.lower()), None)
    if found is None:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "there is no such table in FROM", table=alias)
    return found


def subquery_source(alias: str, outputs: Sequence[Output]) -> Source:
    return Source(alias, {output.name: output for output in outputs})


def rename_outputs(outputs: tuple[Output, ...], names: Sequence[str]) -> tuple[Output, ...]:
    """The outputs under given names, and under different ones where two are alike."""
    if names and len(names) != len(outputs):
        raise QueryFailed(QueryError.QUERY_VALIDATION, "the list of column names has another length")
    seen: dict[str, int] = {}
    rename_outputs: list[Output] = []
    for at, output in enumerate(outputs):
        name = names[at] if names else output.name
        count = seen.get(name.lower(), 0)
        seen[name.lower()] = count + 1
        rename_outputs.append(replace(output, name=f"{name}{count - 1}" if count else name))
    return tuple(rename_outputs)


def unknown_column(name: str) -> QueryFailed:
    return QueryFailed(QueryError.UNKNOWN_COLUMN, "there is no such column", column=name[:200])


def syntax_refusal(node: exp.Expr) -> QueryFailed:
    return QueryFailed(QueryError.SQL_PARSING, "this syntax is not supported", found=type(node).__name__)
