"""Queries of push tables on Spark: the same statement, over exactly the files of the snapshot.

The broker's statement is written for DuckDB; here it is written anew for
Spark. What has no counterpart there is refused, never answered differently.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
import sqlglot
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from sqlglot.errors import SqlglotError

from holdfast.config.push_schema import DataType
from holdfast.engines.spark.jobs import Jobs
from holdfast.model.segment import Segment
from holdfast.push.queries.columns import FILLED, SEGMENT_NAME, Column
from holdfast.push.queries.engine import Cancellation, Work
from holdfast.push.queries.failures import QueryError, QueryFailed
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

    def __init__(self, session: SparkSession, deep_store: Store) -> None:
        self._session = session
        self._deep_store = deep_store

    def run(self, work: Work, *, deadline_s: float, cancellation: Cancellation) -> pa.Table:
        prefix = f"q{uuid4().hex}_"
        sql = _spark_sql(work.sql, {view.name: prefix + view.name for view, _ in work.views})
        try:
            for view, segments in work.views:
                self._frame(view, segments).createOrReplaceTempView(prefix + view.name)
            return self._collected(sql, work.max_rows, deadline_s, cancellation)
        finally:
            for view, _ in work.views:
                self._session.catalog.dropTempView(prefix + view.name)

    def close(self) -> None:
        """The session belongs to whoever started it."""

    def _frame(self, view: View, segments: Sequence[Segment]) -> DataFrame:
        if not segments:
            shown = {column.name: column for column in view.columns}
            shown |= {FILLED + column.name: column for column in view.filled}
            listed = ", ".join(
                f"CAST(NULL AS {_type(column)}) AS `{_ticked(name)}`" for name, column in shown.items()
            )
            return self._session.sql(f"SELECT {listed or '1 AS nothing'} WHERE FALSE")
        if not view.has_segment_names:
            together = self._together(segments)
            if together is not None:
                return _shown(view, together)
        first, *others = [
            _shown(view, self._read([segment]), segment_name=segment.name) for segment in segments
        ]
        for other in others:
            first = first.union(other)
        return first

    def _together(self, segments: Sequence[Segment]) -> DataFrame | None:
        """All segments as one scan; None if a column has types that do not fit together."""
        try:
            return self._read(segments)
        except (PySparkException, Py4JJavaError):  # The latter where Spark has no Python name for its error.
            return None

    def _read(self, segments: Sequence[Segment]) -> DataFrame:
        # The look at the footers, which merging the columns needs, is one job for all of them.
        return self._session.read.option("mergeSchema", "true").parquet(*map(self._uri, segments))

    def _uri(self, segment: Segment) -> str:
        uri = segment.uri if ":/" in segment.uri else self._deep_store.uri(segment.uri)
        return f"file://{uri}" if uri.startswith("/") else uri

    def _collected(self, sql: str, max_rows: int, deadline_s: float, cancellation: Cancellation) -> pa.Table:
        """Collect in a thread of its own, so that the deadline holds whatever Spark does."""
        jobs = Jobs()
        found: list[Any] = []

        def collect() -> None:
            try:
                with jobs.cancellable(self._session):
                    found.append(_arrow_table(self._session.sql(sql).limit(max_rows + 1)))
            except Exception as error:  # noqa: BLE001  # told in the thread that waits
                found.append(error)

        thread = threading.Thread(target=collect, name="spark-query", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK_EVERY_S)
            if thread.is_alive() and (cancellation.is_set or time.monotonic() >= deadline_s):
                jobs.cancel(self._session)
                thread.join(1)
                if cancellation.is_set:
                    raise QueryFailed(QueryError.QUERY_CANCELLATION, "the query was cancelled")
                raise QueryFailed(QueryError.EXECUTION_TIMEOUT, "the query took too long")
        answer = found[0] if found else PySparkException("the query ended without an answer")
        if isinstance(answer, AnalysisException | ParseException):
            raise QueryFailed(QueryError.QUERY_VALIDATION, _first_line(answer)) from answer
        if isinstance(answer, Exception):
            raise QueryFailed(QueryError.QUERY_EXECUTION, _first_line(answer)) from answer
        if answer.num_rows > max_rows:
            raise QueryFailed(
                QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED, "the answer is too large", most_rows=max_rows
            )
        return answer


def _shown(view: View, rows: DataFrame, *, segment_name: str | None = None) -> DataFrame:
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


def _spark_sql(sql: str, names: dict[str, str]) -> str:
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


def _column(rows: DataFrame, held: dict[str, str], column: Column) -> Any:
    name = held.get(column.name.lower())
    if name is None:
        return f.lit(None).cast(_type(column))
    stored = rows.schema[name].dataType.simpleString()
    value = rows[f"`{_ticked(name)}`"]
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


def _ticked(name: str) -> str:
    return name.replace("`", "``")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:400]
