"""The rules of a table as one statement for DuckDB, over the rows as they come.

It is made once, when the columns of the input are known (`compile`), and
travels with the tasks that build segments. Batches stream through it, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.errors import InvalidRequest, SchemaMismatch

if TYPE_CHECKING:
    import duckdb

INPUT = "incoming"
"""What the statement calls the rows as they come."""
_BATCH_ROWS = 50_000
_CONFIG: Mapping[str, str] = MappingProxyType(
    {
        "threads": "1",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "python_enable_replacements": "false",
        "preserve_insertion_order": "true",
    }
)


@dataclass(frozen=True, slots=True)
class RowProgram:
    """What tasks run."""

    sql: str
    columns: tuple[str, ...]
    """Those of the input that it reads."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that the table keeps, in its columns."""
        waiting = iter(batches)
        first = next(waiting, None)
        if first is None:
            return
        schema = pa.schema([first.schema.field(name) for name in self.columns])
        chosen = (batch.select(list(self.columns)) for batch in _chain(first, waiting))
        yield from self._stream(pa.RecordBatchReader.from_batches(schema, chosen))

    def output(self, schema: pa.Schema) -> pa.Schema:
        """The columns that it makes of rows of a schema; no row is looked at."""
        empty = pa.schema([schema.field(name) for name in self.columns]).empty_table()
        with _connection(empty) as connection:
            return connection.sql(self.sql).to_arrow_table().schema

    def _stream(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with _connection(reader) as connection:
            yield from connection.sql(self.sql).to_arrow_reader(_BATCH_ROWS)


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


@contextmanager
def _connection(rows: pa.Table | pa.RecordBatchReader) -> Iterator[duckdb.DuckDBPyConnection]:
    """One that sees the rows, and nothing else. What it fails of is in the rows, or in the statement."""
    try:
        # Loaded here: of tables without such rules, no task needs it.
        import duckdb
    except ImportError as error:
        raise InvalidRequest(
            "the table computes columns, and DuckDB is not installed where its segments are built",
            hint="install the extra server where the tasks of the job run",
        ) from error
    with duckdb.connect(config=dict(_CONFIG)) as connection:
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        connection.register(INPUT, rows)
        try:
            yield connection
        except (duckdb.Error, pa.ArrowException) as error:
            raise _unfit(error) from error


def _unfit(error: Exception) -> SchemaMismatch:
    return SchemaMismatch(
        "a row cannot be transformed as the table asks",
        cause=str(error).strip().partition("\n")[0][:300],
        hint="correct the row, or the transformFunction in the message",
    )
