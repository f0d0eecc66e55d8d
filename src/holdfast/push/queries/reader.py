"""A process that reads statements: from Pinot's SQL to what an engine runs.

A parser is a large program that meets the text of strangers. It works in a
process of its own, which can be ended, may open nothing and has little memory.
"""

import os
import socket
import sys
from collections.abc import Mapping

import msgspec
import sqlglot
from sqlglot.errors import SqlglotError

from holdfast.config.push_schema import DataType
from holdfast.push.queries import wire
from holdfast.push.queries.admission import admit
from holdfast.push.queries.columns import Column
from holdfast.push.queries.confine import confine, limit_files, limit_memory
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.scopes import Output, View
from holdfast.push.queries.translate import Translation, translate

Tables = tuple[tuple[str, tuple[Column, ...]], ...]
"""Columns by the names of tables that a statement uses."""


class Setup(msgspec.Struct, frozen=True):
    """The first message."""

    memory_bytes: int


class Admit(msgspec.Struct, frozen=True, tag=True):
    """Which tables does this statement read?"""

    sql: str


class SentColumn(msgspec.Struct, frozen=True, array_like=True):
    name: str
    kind: DataType
    is_array: bool
    default: int | float | str | bool
    is_required: bool
    raw_default: bytes | None = None
    """In place of `default`, where it is bytes: a message cannot say which of the two a value is."""


class Translate(msgspec.Struct, frozen=True, tag=True):
    """What does an engine run for this statement, over tables with these columns?"""

    sql: str
    tables: tuple[tuple[str, tuple[SentColumn, ...]], ...]
    null_handling: bool
    default_limit: int


class SpellForSpark(msgspec.Struct, frozen=True, tag=True):
    """What is this statement of ours in Spark's SQL, with other names for its views?"""

    sql: str
    names: dict[str, str]


class SentView(msgspec.Struct, frozen=True):
    """A `View`, with the names of its columns."""

    name: str
    table: str
    columns: tuple[str, ...]
    filled: tuple[str, ...]
    has_segment_names: bool


class SentTranslation(msgspec.Struct, frozen=True):
    sql: str
    outputs: tuple[Output, ...]
    views: tuple[SentView, ...]
    limit: int


class Reading(msgspec.Struct, frozen=True):
    """The answer: one of these."""

    tables: tuple[str, ...] | None = None
    translation: SentTranslation | None = None
    sql: str | None = None
    failure: wire.Failure | None = None


Task = Admit | Translate | SpellForSpark


class Asked(msgspec.Struct, frozen=True):
    """A task as it goes over the wire."""

    task: Task


def send_tables(tables: Tables) -> tuple[tuple[str, tuple[SentColumn, ...]], ...]:
    return tuple((name, tuple(map(_send_column, columns))) for name, columns in tables)


def receive_translation(sent: SentTranslation, tables: Tables) -> Translation:
    """The translation, with the columns that its views name."""
    by_table = {table: {column.name: column for column in columns} for table, columns in tables}
    views = tuple(
        View(
            name=view.name,
            table=view.table,
            columns=tuple(by_table[view.table][name] for name in view.columns),
            filled=tuple(by_table[view.table][name] for name in view.filled),
            has_segment_names=view.has_segment_names,
        )
        for view in sent.views
    )
    return Translation(sql=sent.sql, outputs=sent.outputs, views=views, limit=sent.limit)


def _send_column(column: Column) -> SentColumn:
    if isinstance(column.default, bytes):
        return SentColumn(column.name, column.kind, column.is_array, "", column.is_required, column.default)
    return SentColumn(column.name, column.kind, column.is_array, column.default, column.is_required)


def _receive_column(sent: SentColumn) -> Column:
    return Column(
        name=sent.name,
        kind=sent.kind,
        is_array=sent.is_array,
        default=sent.default if sent.raw_default is None else sent.raw_default,
        is_required=sent.is_required,
    )


def _send_translation(found: Translation) -> SentTranslation:
    views = tuple(
        SentView(
            view.name,
            view.table,
            tuple(column.name for column in view.columns),
            tuple(column.name for column in view.filled),
            view.has_segment_names,
        )
        for view in found.views
    )
    return SentTranslation(found.sql, found.outputs, views, found.limit)


def read(task: Task) -> Reading:
    """Answer a task, whatever the statement is like."""
    try:
        return _read(task)
    except QueryFailed as failed:
        return Reading(failure=wire.Failure(failed.code, str(failed)))
    except RecursionError:
        return Reading(failure=wire.Failure(QueryError.SQL_PARSING, "the statement is nested too deeply"))
    except MemoryError:
        return Reading(failure=wire.Failure(QueryError.SQL_PARSING, "the statement is too large"))
    except Exception as error:  # noqa: BLE001  # the outermost frame of this process
        # The parser has bugs of its own, and each would end a reader that all users share.
        text = f"the statement cannot be read (kind: {type(error).__name__})"
        return Reading(failure=wire.Failure(QueryError.SQL_PARSING, text))


def _read(task: Task) -> Reading:
    match task:
        case Admit(sql):
            return Reading(tables=admit(sql).tables)
        case Translate(sql, tables, null_handling, default_limit):
            found = translate(
                admit(sql).tree,
                {name: tuple(map(_receive_column, columns)) for name, columns in tables},
                null_handling=null_handling,
                default_limit=default_limit,
            )
            return Reading(translation=_send_translation(found))
        case SpellForSpark(sql, names):
            return Reading(sql=_spark_sql(sql, names))


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    try:
        setup, _ = wire.receive(channel, Setup)
        confined = confine((), network=False)
        limit_files()
        limit_memory(setup.memory_bytes)
        wire.send(channel, wire.Ready(confined))
        while True:
            asked, _ = wire.receive(channel, Asked)
            wire.send(channel, read(asked.task))
    except (EOFError, ConnectionError):
        os._exit(0)  # The broker is gone.


def _spark_sql(sql: str, names: Mapping[str, str]) -> str:
    """The broker's statement, written for DuckDB, in Spark's SQL and over other names of its views."""
    try:
        tree = sqlglot.parse_one(sql, read="duckdb")
        for table in tree.find_all(sqlglot.exp.Table):
            if table.name in names:
                table.set("this", sqlglot.exp.to_identifier(names[table.name], quoted=True))
        return tree.sql(dialect="spark", unsupported_level=sqlglot.ErrorLevel.RAISE)
    except SqlglotError as error:
        raise QueryFailed(
            QueryError.SQL_PARSING, "the statement uses something that Spark does not have"
        ) from error


if __name__ == "__main__":
    main()
