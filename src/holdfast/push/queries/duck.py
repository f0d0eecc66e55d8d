"""DuckDB inside a worker: one SELECT at a time over exactly the segments it was given."""

import re
import threading

import duckdb
import pyarrow as pa

from holdfast.errors import StorageUnavailable
from holdfast.push.queries import wire
from holdfast.push.queries.columns import SEGMENT_NAME
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.instances import Instances
from holdfast.push.queries.segment_files import Offered, Segments
from holdfast.push.queries.stored_columns import column_sql, name_in_statement, type_of
from holdfast.push.queries.typed import quote

_BATCH_ROWS = 16_384
_WITH = "WITH "
_PATHS = re.compile(r"(?:[a-z0-9]+://|/)[^\s\"']*/[^\s\"']*", re.IGNORECASE)

_CODES: tuple[tuple[type[Exception], QueryError], ...] = (
    (duckdb.InterruptException, QueryError.EXECUTION_TIMEOUT),
    (duckdb.BinderException, QueryError.QUERY_VALIDATION),
    (duckdb.CatalogException, QueryError.QUERY_VALIDATION),
    (duckdb.ParserException, QueryError.SQL_PARSING),
    (duckdb.ConversionException, QueryError.SQL_RUNTIME),
    (duckdb.OutOfRangeException, QueryError.SQL_RUNTIME),
    (duckdb.InvalidInputException, QueryError.SQL_RUNTIME),
    (duckdb.IOException, QueryError.SERVER_SEGMENT_MISSING),
    (OSError, QueryError.SERVER_SEGMENT_MISSING),
    (StorageUnavailable, QueryError.SERVER_SEGMENT_MISSING),
)


class Runner:
    """Runs tasks one after the other. Only `interrupt` may be called from another thread."""

    def __init__(self, segments: Segments, setup: wire.Setup) -> None:
        self._segments = segments
        self._instances = Instances(setup)
        self._lock = threading.Lock()
        self._running: int | None = None
        self._interrupted: int | None = None
        self._connection: duckdb.DuckDBPyConnection | None = None

    def run(self, task: wire.Task) -> tuple[wire.Failure | None, bytes | memoryview]:
        with self._lock:
            self._running = task.number
        try:
            return None, self._answer(task)
        except QueryFailed as failed:
            return wire.Failure(int(failed.code), str(failed)), b""
        except (duckdb.IOException, pa.ArrowInvalid, OSError, StorageUnavailable) as error:
            return self._unreadable(task) or _failure(error), b""
        except (duckdb.Error, pa.ArrowException, MemoryError) as error:
            return _failure(error), b""
        except RuntimeError as error:  # DuckDB's word for an interrupt while rows are fetched
            return _failure(error), b""
        finally:
            with self._lock:
                self._running = None

    def _unreadable(self, task: wire.Task) -> wire.Failure | None:
        """Which segment is to blame, if it is one."""
        for view in task.views:
            segment = self._segments.unreadable(view)
            if segment is not None:
                failed = QueryFailed(
                    QueryError.SERVER_SEGMENT_MISSING,
                    "the file of a segment is missing or damaged",
                    segment=segment,
                    hint="put it back, or revert the push that brought it",
                )
                return wire.Failure(int(failed.code), str(failed))
        return None

    def prepare(self) -> None:
        """Work between two queries, when no query waits for it."""
        self._instances.prepare()

    def interrupt(self, number: int) -> bool:
        """Stop the task if it is the one that runs. False once it has ended."""
        with self._lock:
            if self._running != number:
                return False
            self._interrupted = number
            if self._connection is not None:
                self._connection.interrupt()
            return True

    def _answer(self, task: wire.Task) -> memoryview:
        paths, footer_bytes = self._segments.paths(task.views), self._segments.footer_bytes(task.views)
        with self._instances.connection(paths, footer_bytes=footer_bytes) as connection:
            self._interruptible(connection)
            try:
                sql = self._statement(connection, task)
                if self._interrupted == task.number:
                    raise QueryFailed(QueryError.EXECUTION_TIMEOUT, "the query took too long")
                return _rows(connection, sql, task)
            finally:
                self._interruptible(None)

    def _interruptible(self, connection: duckdb.DuckDBPyConnection | None) -> None:
        with self._lock:
            self._connection = connection

    def _statement(self, connection: duckdb.DuckDBPyConnection, task: wire.Task) -> str:
        """The query, and in front of it what it calls tables: a view would be one more look at every file."""
        if not task.views:
            return task.sql
        views = [
            f"{quote(view.name)} AS NOT MATERIALIZED ({self._view(connection, view)})" for view in task.views
        ]
        tables = f"{_WITH}{', '.join(views)}"
        if task.sql.startswith(_WITH):
            return f"{tables}, {task.sql.removeprefix(_WITH)}"
        return f"{tables} {task.sql}"

    def _view(self, connection: duckdb.DuckDBPyConnection, view: wire.ViewTask) -> str:
        if not view.files:
            return f"SELECT {', '.join(_empty(view))} WHERE FALSE"
        offered = self._segments.offer(connection, view)
        # Every name in it was quoted here, and the paths come from the catalog.
        return f"SELECT {', '.join(self._columns(view, offered))} FROM {offered.relation}"  # noqa: S608

    def _columns(self, view: wire.ViewTask, offered: Offered) -> list[str]:
        columns = []
        for column in view.columns:
            sql = column_sql(
                offered.schema,
                column,
                without_nulls=offered.without_nulls,
                is_plain=self._segments.is_plain,
            )
            columns.append(f"{sql} AS {quote(name_in_statement(column))}")
        if view.has_segment_names:
            columns.append(f"{offered.segment_name} AS {quote(SEGMENT_NAME)}")
        return columns or ["1 AS nothing"]


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, task: wire.Task) -> memoryview:
    """The rows as an Arrow stream, as long as there are not too many."""
    statements = connection.extract_statements(sql)
    if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
        raise QueryFailed(QueryError.SQL_PARSING, "only one query is answered at a time")
    reader = connection.sql(statements[0]).to_arrow_reader(_BATCH_ROWS)
    sink = pa.BufferOutputStream()
    rows = 0
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            rows += batch.num_rows
            writer.write_batch(batch)
            if rows > task.max_rows or sink.tell() > task.max_bytes:
                raise QueryFailed(
                    QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED,
                    "the answer is too large",
                    most_rows=task.max_rows,
                    most_bytes=task.max_bytes,
                )
    return memoryview(sink.getvalue())


def _empty(view: wire.ViewTask) -> list[str]:
    columns = [
        f"CAST(NULL AS {type_of(column)}) AS {quote(name_in_statement(column))}" for column in view.columns
    ]
    if view.has_segment_names:
        columns.append(f"CAST(NULL AS VARCHAR) AS {quote(SEGMENT_NAME)}")
    return columns or ["1 AS nothing"]


def _failure(error: Exception) -> wire.Failure:
    """What may be told: the engine's first line without the paths that it names."""
    if isinstance(error, MemoryError):
        return wire.Failure(int(QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED), "the query needs too much memory")
    line = _PATHS.sub("...", str(error).strip().partition("\n")[0])[:400]
    # While rows are fetched DuckDB raises errors that only their text tells apart.
    if "INTERRUPT" in line or "nterrupted" in line:
        return wire.Failure(int(QueryError.EXECUTION_TIMEOUT), "the query took too long")
    if line.startswith("Out of Memory"):
        return wire.Failure(int(QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED), "the query needs too much memory")
    for kind, code in _CODES:
        if isinstance(error, kind):
            return wire.Failure(int(code), line)
    return wire.Failure(int(QueryError.QUERY_EXECUTION), line)
