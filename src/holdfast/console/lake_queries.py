"""SQL over one snapshot of a lake table: one SELECT, which sees that table and nothing else.

DuckDB runs it in memory, without files, network or extensions, with bounds on
memory, rows and time. It can open nothing: the rows come to it from outside.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from holdfast.errors import InvalidRequest
from holdfast.read.batches import select
from holdfast.read.dataset import TableDataset
from holdfast.read.snapshot import snapshot
from holdfast.server.errors import TooMany
from holdfast.table.opened import OpenTable

ROWS_MAX = 1000
DOWNLOAD_ROWS_MAX = 100_000
_SECONDS = 20
_WAIT_SECONDS = 5
_RUNNING = threading.BoundedSemaphore(2)
"""Each may take its memory in this process, so only few run at a time."""
_SETTINGS = (
    "SET memory_limit = '512MB'",
    "SET threads = 2",
    "SET temp_directory = ''",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


@dataclass(frozen=True, slots=True)
class Rows:
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_cut: bool
    """Whether there were more."""


def run_query(table: OpenTable, sql: str, *, name: str, as_of: str | None, most: int = ROWS_MAX) -> Rows:
    """The rows of a SELECT over the table, which it calls by its name, as of now or of a moment."""
    found = snapshot(table, as_of=as_of or None)
    if found.schema is None:
        raise InvalidRequest("the table has no columns yet", table=name)
    with one_of_few(), _connection() as connection:
        connection.register(name, TableDataset(select(table.store, found)))
        for setting in _SETTINGS:
            connection.execute(setting)
        try:
            _check(connection, sql)
            with _deadline(connection):
                result = connection.execute(sql)
                columns = tuple(column[0] for column in result.description or ())
                rows = result.fetchmany(most + 1)
        except duckdb.InterruptException as error:
            raise InvalidRequest(
                "the query took too long", limit_s=_SECONDS, hint="ask for less, or use Spark"
            ) from error
        except (duckdb.Error, RuntimeError) as error:
            raise InvalidRequest("the query cannot be run", cause=str(error)) from error
    return Rows(columns, tuple(map(tuple, rows[:most])), len(rows) > most)


@contextmanager
def one_of_few() -> Iterator[None]:
    """A place for work that takes memory. `TooMany` if others have them all for some time."""
    if not _RUNNING.acquire(timeout=_WAIT_SECONDS):
        raise TooMany("too many queries of lake tables at a time", code="TOO_MANY_AT_ONCE")
    try:
        yield
    finally:
        _RUNNING.release()


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InvalidRequest("one SELECT is run here, and nothing else", statements=len(statements))


@contextmanager
def _connection() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(":memory:")
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _deadline(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    timer = threading.Timer(_SECONDS, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
