"""Queries of push tables on Spark: the same statement, over exactly the files of the snapshot.

The broker's statement is written for DuckDB; here it runs as written anew for
Spark. What has no counterpart there is refused, never answered differently.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.config.push_schema import DataType
from holdfast.engines.spark.inputs import spark_path
from holdfast.engines.spark.jobs import Jobs
from holdfast.engines.spark.watched import WatchedSession
from holdfast.model.segment import Segment
from holdfast.push.queries.columns import FILLED, SEGMENT_NAME, Column
from holdfast.push.queries.engine import Cancellation, Work
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.readers import StatementReaders
from holdfast.push.queries.scopes import View
from holdfast.storage.store import Store

_LOOK_EVERY_S = 0.05
_TYPES = {
    DataType.INT: "int",
    DataType.LONG: "bigint",
    DataType.FLOAT: "float",
    DataType.DOUBLE: "double",
    DataType.BIG_DECIMAL: "decimal(38, 10)",
    DataType.BOOLEAN: "boolean",
    DataType.TIMESTAMP: "timestamp_ntz",
    DataType.STRING: "string",
    DataType.JSON: "string",
    DataType.BYTES: "binary",
}


class SparkEngine:
    """An `Engine` on a Spark session."""

    def __init__(
        self,
        watched: WatchedSession,
        deep_store: Store,
        readers: StatementReaders,
        *,
        canonical_uri: Callable[[str], str] | None = None,
    ) -> None:
        """`canonical_uri` checks an address outside the deep store once more before it is read."""
        self._watched = watched
        self._deep_store = deep_store
        self._readers = readers
        self._canonical_uri = canonical_uri

    def run(self, work: Work, *, deadline_s: float, cancellation: Cancellation) -> pa.Table:
        session = self._watched.session
        prefix = f"q{uuid4().hex}_"
        names = {view.name: prefix + view.name for view, _ in work.views}
        sql = self._readers.spell_for_spark(work.sql, names, deadline_s=deadline_s)
        uris = [
            (view, [(segment.name, self._uri(segment)) for segment in segments])
            for view, segments in work.views
        ]

        def answer() -> pa.Table:
            try:
                for view, files in uris:
                    _frame(session, view, files).createOrReplaceTempView(prefix + view.name)
                return _arrow_table(session.sql(sql).limit(work.max_rows + 1))
            finally:
                for view, _ in uris:
                    session.catalog.dropTempView(prefix + view.name)

        rows = self._within(session, answer, deadline_s, cancellation)
        if rows.num_rows > work.max_rows:
            raise QueryFailed(
                QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED, "the answer is too large", most_rows=work.max_rows
            )
        return rows

    def is_well(self) -> bool:
        return self._watched.is_well()

    def close(self) -> None:
        """The session belongs to the code that started it."""

    def _uri(self, segment: Segment) -> str:
        if ":/" not in segment.uri:
            uri = self._deep_store.uri(segment.uri)
        else:
            uri = segment.uri if self._canonical_uri is None else self._canonical_uri(segment.uri)
        return spark_path(uri)

    def _within(
        self,
        session: SparkSession,
        answer: Callable[[], pa.Table],
        deadline_s: float,
        cancellation: Cancellation,
    ) -> pa.Table:
        """Answer in a thread of its own, so that the deadline holds whatever Spark does."""
        jobs = Jobs()
        outcomes: list[pa.Table | Exception] = []

        def work() -> None:
            try:
                with jobs.in_group(session), jobs.cancellable(session):
                    outcomes.append(answer())
            except Exception as error:  # noqa: BLE001  # raised in the thread that waits
                outcomes.append(error)

        thread = threading.Thread(target=work, name="spark-query", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK_EVERY_S)
            if thread.is_alive() and (cancellation.is_set or time.monotonic() >= deadline_s):
                self._stop(session, jobs, thread)
                if cancellation.is_set:
                    raise QueryFailed(QueryError.QUERY_CANCELLATION, "the query was cancelled")
                raise QueryFailed(QueryError.EXECUTION_TIMEOUT, "the query took too long")
        match outcomes:
            case [pa.Table() as rows]:
                return rows
            case [AnalysisException() | ParseException() as error]:
                raise QueryFailed(QueryError.QUERY_VALIDATION, _first_line(error)) from error
            case [Exception() as error]:
                # It may have been the last thing that this JVM said, or one task of several.
                self._watched.see_off(session, jobs, thread)
                raise QueryFailed(QueryError.QUERY_EXECUTION, _first_line(error)) from error
        raise QueryFailed(QueryError.QUERY_EXECUTION, "the query ended without an answer")

    def _stop(self, session: SparkSession, jobs: Jobs, thread: threading.Thread) -> None:
        """Cancel the query's jobs, which may leave a task at work; and see whether others can still ask."""
        # Even this call waits for ever where the JVM answers nothing.
        stopping = threading.Thread(target=jobs.cancel, args=(session,), name="spark-cancel", daemon=True)
        stopping.start()
        thread.join(1)
        self._watched.see_off(session, jobs, thread)


def _frame(session: SparkSession, view: View, files: Sequence[tuple[str, str]]) -> DataFrame:
    """The view's rows in the segments, each given by its name and address."""
    if not files:
        shown = {column.name: column for column in view.columns}
        shown |= {FILLED + column.name: column for column in view.filled}
        listed = ", ".join(
            f"CAST(NULL AS {_type(column)}) AS `{_escape_ticks(name)}`" for name, column in shown.items()
        )
        return session.sql(f"SELECT {listed or '1 AS nothing'} WHERE FALSE")
    if not view.has_segment_names:
        together = _together(session, [uri for _, uri in files])
        if together is not None:
            return _select_columns(view, together)
    first, *others = [_select_columns(view, _read(session, [uri]), segment_name=name) for name, uri in files]
    for other in others:
        first = first.union(other)
    return first


def _together(session: SparkSession, uris: Sequence[str]) -> DataFrame | None:
    """All segments as one scan; None if a column has types that do not fit together."""
    try:
        return _read(session, uris)
    except (PySparkException, Py4JJavaError):  # The latter where Spark has no Python name for its error.
        return None


def _read(session: SparkSession, uris: Sequence[str]) -> DataFrame:
    # The look at the footers, which merging the columns needs, is one job for all of them.
    return session.read.option("mergeSchema", "true").parquet(*uris)


def _select_columns(view: View, rows: DataFrame, *, segment_name: str | None = None) -> DataFrame:
    """The rows in the columns and types that the view promises."""
    held = {name.lower(): name for name in rows.columns}
    columns = [_column(rows, held, column).alias(column.name) for column in view.columns]
    columns += [
        f.coalesce(_column(rows, held, column), _default(column)).alias(FILLED + column.name)
        for column in view.filled
    ]
    if view.has_segment_names:
        columns.append(f.lit(segment_name).alias(SEGMENT_NAME))
    return rows.select(*columns, *([] if columns else [f.lit(1).alias("nothing")]))


def _arrow_table(frame: DataFrame) -> pa.Table:
    # PySpark 3.5 has no `toArrow`.
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    return pa.Table.from_pandas(frame.toPandas(), preserve_index=False)


def _column(rows: DataFrame, held: dict[str, str], column: Column) -> Any:
    name = held.get(column.name.lower())
    if name is None:
        return f.lit(None).cast(_type(column))
    stored = rows.schema[name].dataType.simpleString()
    value = rows[f"`{_escape_ticks(name)}`"]
    if column.kind is DataType.TIMESTAMP and stored == "bigint" and not column.is_array:
        return f.timestamp_millis(value).cast("timestamp_ntz")
    return value if stored == _type(column) else value.cast(_type(column))


def _default(column: Column) -> Any:
    if column.kind is DataType.TIMESTAMP:
        value = f.timestamp_millis(f.lit(column.default)).cast("timestamp_ntz")
    else:
        value = f.lit(column.default).cast(_TYPES[column.kind])
    return f.array(value) if column.is_array else value


def _type(column: Column) -> str:
    return f"array<{_TYPES[column.kind]}>" if column.is_array else _TYPES[column.kind]


def _escape_ticks(name: str) -> str:
    return name.replace("`", "``")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:400]
