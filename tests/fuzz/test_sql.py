"""Statements that nobody meant: admitted and written anew, or refused by name, and in time."""

import time
from contextlib import suppress

from fuzz.inputs import STATEMENTS, how_many, statements
from holdfast.config.push_schema import DataType
from holdfast.push.queries.columns import Column
from holdfast.push.queries.failures import QueryFailed
from holdfast.push.queries.options import read_statement

WITHIN_S = 4.0
"""A reader has two seconds for a statement; the rest is for starting another in its place."""
COLUMNS = tuple(
    Column(name=name, kind=kind, is_array=name == "tags", default=default)
    for name, kind, default in (
        ("id", DataType.LONG, 0),
        ("city", DataType.STRING, "null"),
        ("fare", DataType.DOUBLE, 0.0),
        ("ts", DataType.TIMESTAMP, 0),
        ("tags", DataType.STRING, "null"),
        ("j", DataType.JSON, "null"),
    )
)
TABLES = (("trips", COLUMNS), ("orders", COLUMNS))


def read(readers, text):
    """All that a broker does with a statement before an engine sees it."""
    statement = read_statement(text, {}, max_timeout_ms=10_000)
    names = readers.tables(statement.sql, deadline_s=time.monotonic() + 10)
    if set(names) <= {"trips", "orders"}:
        readers.translation(
            statement.sql,
            TABLES,
            null_handling=False,
            default_limit=10,
            deadline_s=time.monotonic() + 10,
        )
    return names


def test_most_of_what_is_changed_is_admitted_as_it_stands(readers):
    """Or the changes would be of statements that are refused anyway."""
    admitted = []
    for sql in STATEMENTS:
        with suppress(QueryFailed):
            admitted.append(read(readers, sql))

    assert len(admitted) > len(STATEMENTS) / 2


def test_statements(readers, tally):
    before = readers.pids

    inputs = statements(how_many(12_000), "statements")
    tally.feed(
        "SQL", lambda sql: read(readers, sql), inputs, (QueryFailed,), seconds_max=WITHIN_S, processes=before
    )

    assert readers.pids == before, "a statement ended the process that read it"
