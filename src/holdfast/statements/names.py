"""Names in statements: which table each stands for, and the frames that a query is run over."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from holdfast.errors import InvalidRequest, TableNotFound
from holdfast.lake import Idempotency, Table
from holdfast.statements.catalog import Catalog
from holdfast.statements.syntax import DIALECT, names_in, place_of
from holdfast.table.opened import OpenTable, open_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_PATH = "holdfast"
"""What stands before a path."""
CHANGES = "table_changes"
_HUDI_CHANGES = "hudi_table_changes"
_EARLIEST = "19700101000000000"
_OUTSIDE = frozenset({"reflect", "java_method", "try_reflect", "input_file_name"})
"""Functions of Spark that reach, or tell of, what is outside of the tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a statement is run with."""

    text: str
    catalog: Catalog
    spark: "SparkSession | None" = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Of its write, if it is one."""
    idempotency: Idempotency | None = None

    @property
    def session(self) -> "SparkSession":
        if self.spark is None:
            raise InvalidRequest("this statement needs Spark", hint="run it with a Spark session")
        return self.spark

    def wrong(self, message: str, node: exp.Expr, *, hint: str = "", **facts: object) -> InvalidRequest:
        """The error about a part of the statement."""
        return InvalidRequest(message, hint=hint, **{**place_of(self.text, node), **facts})

    def find_path(self, node: exp.Table) -> str | None:
        """The path of a table that is named; None if the name stands for none of ours."""
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        if len(parts) != len(node.parts) or not parts:
            return None
        is_ours = len(parts) == 2 and parts[0].name.lower() == BY_PATH
        found = self.catalog.path_of(parts[1].name if is_ours else names_in(parts))
        if found is not None:
            return found
        if is_ours and self.catalog.exclusive:
            raise self.wrong(
                "only tables of the catalog can be named",
                node,
                name=parts[1].name,
                hint="SHOW TABLES lists them",
            )
        return parts[1].name if is_ours else None

    def open(self, node: exp.Expr | None) -> OpenTable:
        """The table that a statement is about."""
        if not isinstance(node, exp.Table):
            raise InvalidRequest("the statement does not name a table")
        path = self.find_path(node)
        if path is None:
            raise self.not_found(node)
        return open_at(path, self.catalog.storage_options)

    def open_name(self, name: str) -> OpenTable:
        """The table with a name, or at a path, that is given as text."""
        path = self.catalog.path_of(name)
        if path is None and self.catalog.exclusive:
            raise TableNotFound("the catalog has no such table", name=name, hint="SHOW TABLES lists them")
        return open_at(name if path is None else path, self.catalog.storage_options)

    def not_found(self, node: exp.Table) -> TableNotFound:
        return TableNotFound(
            "the catalog has no such table",
            name=names_in([part for part in node.parts if isinstance(part, exp.Identifier)]),
            **place_of(self.text, node),
            hint="name it in the catalog, holdfast.register(name, path), or write holdfast.`path`",
        )


@dataclass(slots=True)
class Query:
    """A query whose tables are being replaced by frames of their snapshots."""

    context: Context
    frames: dict[str, Any] = field(default_factory=dict)
    """By the names that stand for them: DataFrames, or what another engine reads."""
    paths: set[str] = field(default_factory=set)
    """Of the tables that it reads as they are now."""

    def bind(self, node: exp.Expr) -> exp.Expr:
        """The same with frames in the place of our tables; others are left to Spark."""
        bound = node.copy()
        self._admit(bound)
        for table in list(bound.find_all(exp.Table)):
            self._bind_table(table)
        return bound

    def add(self, frame: Any) -> exp.Identifier:
        """A name for a frame, as it stands in the text of a query."""
        name = f"holdfast_{uuid.uuid4().hex}"
        self.frames[name] = frame
        return exp.to_identifier(name, quoted=True)

    def run(self, node: exp.Expr) -> "DataFrame":
        """What a query makes of the frames; its tables are bound already."""
        # Loaded here because only these statements need Spark.
        from holdfast.engines.spark.statements import run_query

        return run_query(self.context.session, node.sql(dialect=DIALECT), self.frames)

    def _read(self, table: Table, as_of: str | None) -> Any:
        return table.read(self.context.session, as_of=as_of)

    def _read_changes(self, table: Table, since: str, until: str | None) -> Any:
        return table.changes(self.context.session, since=since, until=until)

    def _admit(self, node: exp.Expr) -> None:
        if not self.context.catalog.exclusive:
            return
        if "${" in self.context.text:
            raise InvalidRequest("a statement over an exclusive catalog has no ${variables}")
        for each in node.find_all(exp.Anonymous, exp.QueryTransform):
            name = each.name.lower() if isinstance(each, exp.Anonymous) else "transform using"
            if isinstance(each, exp.QueryTransform) or name in _OUTSIDE:
                raise InvalidRequest(
                    "this function is not open to statements over an exclusive catalog", name=name
                )

    def _bind_table(self, table: exp.Table) -> None:
        if isinstance(table.this, exp.Func):
            self._bind_function(table, table.this)
            return
        if _is_subquery_name(table):
            return
        path = self.context.find_path(table)
        if path is None:
            if self.context.catalog.exclusive:
                raise self.context.not_found(table)
            return
        as_of = self._moment(table.args.get("version"))
        if as_of is None:
            self.paths.add(path)
        opened = open_at(path, self.context.catalog.storage_options)
        self._replace(table, self._read(Table(opened), as_of), name=table.name)

    def _bind_function(self, table: exp.Table, function: exp.Func) -> None:
        name = function.name.lower() if isinstance(function, exp.Anonymous) else function.key
        if name not in (CHANGES, _HUDI_CHANGES):
            if self.context.catalog.exclusive and isinstance(function, exp.Anonymous):
                raise self.context.wrong("there is no such table function", table, name=name)
            return
        arguments = [_literal(each) for each in function.expressions]
        if name == _HUDI_CHANGES and len(arguments) > 1:
            mode = arguments.pop(1)
            if mode != "latest_state":
                raise InvalidRequest(
                    "this kind of changes is not supported", mode=mode, wanted="latest_state"
                )
        if not 2 <= len(arguments) <= 3 or None in arguments:
            raise InvalidRequest(
                "the arguments of a table function are wrong", name=name,
                hint=f"{name}('table', since [, until]), each an instant or a time, as text",
            )  # fmt: skip
        given, since, *until = (str(argument) for argument in arguments)
        opened = self.context.open_name(given)
        since = _EARLIEST if since.lower() == "earliest" else since
        changes = self._read_changes(Table(opened), since, until[0] if until else None)
        self._replace(table, changes, name=given.rpartition("/")[2].rpartition(".")[2])

    def _replace(self, table: exp.Table, frame: Any, *, name: str) -> None:
        for part in ("db", "catalog", "version"):
            table.set(part, None)
        table.set("this", self.add(frame))
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))

    def _moment(self, version: exp.Expr | None) -> str | None:
        if version is None:
            return None
        given = _literal(version.expression)
        if given is None:
            raise self.context.wrong(
                "time travel needs a plain value", version, hint="write an instant, or a time as text"
            )
        return str(given)


def _literal(node: exp.Expr) -> str | None:
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        return f"-{node.this.name}"
    return node.name if isinstance(node, exp.Literal) else None


def _is_subquery_name(table: exp.Table) -> bool:
    """Whether it is the name of a query in a WITH that the table can see."""
    if table.db or not isinstance(table.this, exp.Identifier):
        return False
    wanted = table.name.lower()
    below: exp.Expr = table
    above = table.parent
    while above is not None:
        with_ = above.args.get("with_")
        if isinstance(with_, exp.With) and with_ is not below:
            if wanted in (cte.alias.lower() for cte in with_.expressions):
                return True
        elif isinstance(above, exp.With):
            for cte in above.expressions:
                if cte is below:
                    break
                if cte.alias.lower() == wanted:
                    return True
        below, above = above, above.parent
    return False
