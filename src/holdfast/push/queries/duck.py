"""DuckDB inside a worker: one locked instance per query over exactly the segments it was given."""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

from holdfast.errors import StorageUnavailable
from holdfast.push.queries import wire
from holdfast.push.queries.columns import DUCKDB_TYPES, FILLED, SEGMENT_NAME, Kind
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.typed import quoted, text_literal
from holdfast.storage.open import open_store
from holdfast.storage.store import Store, StoreLocation

_BATCH_ROWS = 16_384
_KNOWN_SCHEMAS = 50_000
_KEPT_BYTES = 256 << 20
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_PATHS = re.compile(r"(?:[a-z0-9]+://|/)[^\s\"']*/[^\s\"']*", re.IGNORECASE)

_CODES: tuple[tuple[type[Exception], QueryError], ...] = (
    (duckdb.OutOfMemoryException, QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED),
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


class Segments(Protocol):
    """How DuckDB gets at the segments of a query."""

    def allow(self, connection: duckdb.DuckDBPyConnection, views: Sequence[wire.ViewTask]) -> None:
        """Open what these views need and nothing else."""

    def relation(self, connection: duckdb.DuckDBPyConnection, view: wire.ViewTask) -> str:
        """FROM's text for the view's segments."""

    def schema(self, view: wire.ViewTask) -> pa.Schema:
        """The columns that the segments have, together."""

    def without_nulls(self, view: wire.ViewTask) -> frozenset[str]:
        """Stored columns that certainly have no null in any of the segments."""

    def unreadable(self, view: wire.ViewTask) -> str | None:
        """The first segment whose file cannot be opened."""

    def segment_name(self, view: wire.ViewTask) -> str:
        """An expression for the name of the segment that a row comes from."""

    def is_plain(self, stored: pa.DataType, kind: Kind) -> bool:
        """Whether a stored type is read as exactly the type of the kind."""


def open_segments(setup: wire.Setup, *, native: bool) -> Segments:
    if native:
        return ParquetFiles(setup.deep_store)
    if setup.deep_store.startswith("/"):
        return ArrowDatasets(local_source(setup.deep_store))
    return ArrowDatasets(remote_source(open_store(StoreLocation(setup.deep_store, setup.deep_store_options))))


class Runner:
    """Runs tasks one after the other. Only `interrupt` may be called from another thread."""

    def __init__(self, segments: Segments, setup: wire.Setup) -> None:
        self._segments = segments
        self._setup = setup
        self._lock = threading.Lock()
        self._running: int | None = None
        self._interrupted: int | None = None
        self._connection = _fresh(setup)

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
        """Throw the last query's DuckDB away and make the next one's."""
        self._connection.close()
        self._connection = _fresh(self._setup)

    def interrupt(self, number: int) -> bool:
        """Stop the task if it is the one that runs. False once it has ended."""
        with self._lock:
            if self._running != number:
                return False
            self._interrupted = number
            self._connection.interrupt()
            return True

    def _answer(self, task: wire.Task) -> memoryview:
        connection = self._connection
        self._segments.allow(connection, task.views)
        for view in task.views:
            connection.execute(f"CREATE VIEW {quoted(view.name)} AS {self._view(connection, view)}")
        connection.execute("SET lock_configuration = true")
        if self._interrupted == task.number:
            raise QueryFailed(QueryError.EXECUTION_TIMEOUT, "the query took too long")
        reader = connection.sql(task.sql).to_arrow_reader(_BATCH_ROWS)
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

    def _view(self, connection: duckdb.DuckDBPyConnection, view: wire.ViewTask) -> str:
        if not view.files:
            return f"SELECT {', '.join(self._empty(view))} WHERE FALSE"
        stored, without_nulls = self._segments.schema(view), self._segments.without_nulls(view)
        columns = [
            f"{self._column(stored, column, without_nulls)} AS {quoted(_shown(column))}"
            for column in view.columns
        ]
        if view.has_segment_names:
            columns.append(f"{self._segments.segment_name(view)} AS {quoted(SEGMENT_NAME)}")
        listed = ", ".join(columns) or "1 AS nothing"
        # Every name in it was quoted here, and the paths come from the catalog.
        return f"SELECT {listed} FROM {self._segments.relation(connection, view)}"  # noqa: S608

    @staticmethod
    def _empty(view: wire.ViewTask) -> list[str]:
        columns = [f"CAST(NULL AS {_type(column)}) AS {quoted(_shown(column))}" for column in view.columns]
        if view.has_segment_names:
            columns.append(f"CAST(NULL AS VARCHAR) AS {quoted(SEGMENT_NAME)}")
        return columns or ["1 AS nothing"]

    def _column(self, stored: pa.Schema, column: wire.ColumnTask, without_nulls: frozenset[str]) -> str:
        """A stored column in the type that the schema gives it, with its default where it may be null."""
        name = _stored_name(stored, column.name)
        if name is None:
            return column.default or f"CAST(NULL AS {_type(column)})"
        sql = self._typed(stored.field(name).type, quoted(name), column)
        if column.default is None or name in without_nulls:
            return sql
        return f"COALESCE({sql}, {column.default})"

    def _typed(self, kind: pa.DataType, sql: str, column: wire.ColumnTask) -> str:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if column.is_array:
            is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
            plain = is_list and self._segments.is_plain(kind.value_type, column.kind)
            listed = sql if is_list else f"[{sql}]"
            return listed if plain else f"CAST({listed} AS {_type(column)})"
        if self._segments.is_plain(kind, column.kind):
            return sql
        return _converted(sql, kind, column.kind)


class ParquetFiles:
    """DuckDB's own Parquet reader on local files: the process cannot write, and may read only these."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._schemas = _Schemas(lambda path: path)

    def allow(self, connection: duckdb.DuckDBPyConnection, views: Sequence[wire.ViewTask]) -> None:
        paths = [path for view in views for path in self._paths(view)]
        connection.execute(f"SET allowed_paths = {_listed(paths)}")
        connection.execute("SET enable_external_access = false")

    def relation(self, connection: duckdb.DuckDBPyConnection, view: wire.ViewTask) -> str:
        by_name = "" if self._schemas.are_equal(self._paths(view)) else ", union_by_name = true"
        return f"read_parquet({_listed(self._paths(view))}, hive_partitioning = false{by_name})"

    def schema(self, view: wire.ViewTask) -> pa.Schema:
        return self._schemas.united(self._paths(view))

    def without_nulls(self, view: wire.ViewTask) -> frozenset[str]:
        return self._schemas.without_nulls(self._paths(view))

    def unreadable(self, view: wire.ViewTask) -> str | None:
        return self._schemas.unreadable(zip(view.segments, self._paths(view), strict=True))

    def segment_name(self, view: wire.ViewTask) -> str:
        return f"list_extract({_listed(view.segments)}, CAST(file_index AS BIGINT) + 1)"

    def is_plain(self, stored: pa.DataType, kind: Kind) -> bool:
        if kind is Kind.TIMESTAMP:
            return pa.types.is_timestamp(stored) and stored.tz is None and stored.unit in ("ms", "us")
        return _is_same(stored, kind)

    def _paths(self, view: wire.ViewTask) -> list[str]:
        return [path if path.startswith("/") else f"{self._root}/{path}" for path in view.files]


class ArrowDatasets:
    """Segments opened by Arrow and registered; DuckDB itself may open nothing."""

    def __init__(self, source: "Source") -> None:
        self._source = source
        self._schemas = _Schemas(source)

    def allow(self, connection: duckdb.DuckDBPyConnection, views: Sequence[wire.ViewTask]) -> None:
        for view in views:
            if view.files:
                connection.register(f"{view.name}_segments", self._dataset(view))
        connection.execute("SET enable_external_access = false")

    def relation(self, connection: duckdb.DuckDBPyConnection, view: wire.ViewTask) -> str:
        return quoted(f"{view.name}_segments")

    def schema(self, view: wire.ViewTask) -> pa.Schema:
        return self._schemas.united(view.files)

    def without_nulls(self, view: wire.ViewTask) -> frozenset[str]:
        return self._schemas.without_nulls(view.files)

    def unreadable(self, view: wire.ViewTask) -> str | None:
        return self._schemas.unreadable(zip(view.segments, view.files, strict=True))

    def segment_name(self, view: wire.ViewTask) -> str:
        return quoted(SEGMENT_NAME)

    def is_plain(self, stored: pa.DataType, kind: Kind) -> bool:
        if kind is Kind.TIMESTAMP:
            return pa.types.is_timestamp(stored) and stored.tz is None and stored.unit == "us"
        return _is_same(stored, kind)

    def _dataset(self, view: wire.ViewTask) -> ds.Dataset:
        form = ds.ParquetFileFormat()
        fragments = [
            # Arrow fills the column from the expression, and leaves out files that a filter on it excludes.
            form.make_fragment(
                self._source(path), _LOCAL, partition_expression=ds.field(SEGMENT_NAME) == segment
            )
            for segment, path in zip(view.segments, view.files, strict=True)
        ]
        schema = self._schemas.united(view.files).append(pa.field(SEGMENT_NAME, pa.string()))
        return ds.FileSystemDataset(fragments, schema, form, _LOCAL)


Source = Callable[[str], Any]
"""From a segment's path to something that Arrow opens without calling back into Python.

DuckDB ends its threads while it holds the interpreter's lock, so a thread that
waits for the lock at that moment would wait for ever.
"""

_LOCAL = fs.LocalFileSystem()


def local_source(root: str) -> Source:
    return lambda path: path if path.startswith("/") else f"{root}/{path}"


def remote_source(store: Store) -> Source:
    """Whole segments, kept as long as they fit."""
    kept: OrderedDict[str, pa.Buffer] = OrderedDict()

    def content(path: str) -> pa.BufferReader:
        buffer = kept.get(path)
        if buffer is None:
            buffer = kept[path] = pa.py_buffer(store.read(path))
            while len(kept) > 1 and sum(one.size for one in kept.values()) > _KEPT_BYTES:
                kept.popitem(last=False)
        kept.move_to_end(path)
        return pa.BufferReader(buffer)

    return content


class _Schemas:
    """What footers say of files. A file never changes, so what was read once stays true."""

    def __init__(self, source: "Source") -> None:
        self._source = source
        self._known: OrderedDict[str, tuple[pa.Schema, frozenset[str]]] = OrderedDict()

    def are_equal(self, paths: Sequence[str]) -> bool:
        first = self._of(paths[0])[0]
        return all(self._of(path)[0].equals(first) for path in paths[1:])

    def united(self, paths: Sequence[str]) -> pa.Schema:
        if self.are_equal(paths):
            return self._of(paths[0])[0]
        return pa.unify_schemas([self._of(path)[0] for path in paths], promote_options="permissive")

    def without_nulls(self, paths: Sequence[str]) -> frozenset[str]:
        return frozenset.intersection(*(self._of(path)[1] for path in paths))

    def unreadable(self, files: Iterable[tuple[str, str]]) -> str | None:
        """The first whose footer cannot be read now, whatever was read before."""
        for segment, path in files:
            try:
                pq.read_metadata(self._source(path))
            except (pa.ArrowException, OSError, StorageUnavailable):
                return segment
        return None

    def _of(self, path: str) -> tuple[pa.Schema, frozenset[str]]:
        known = self._known.get(path)
        if known is None:
            footer = pq.read_metadata(self._source(path))
            known = footer.schema.to_arrow_schema().remove_metadata(), _without_nulls(footer)
            self._known[path] = known
            if len(self._known) > _KNOWN_SCHEMAS:
                self._known.popitem(last=False)
        return known


def _without_nulls(footer: pq.FileMetaData) -> frozenset[str]:
    """Flat columns whose every chunk says that it has no null."""
    found: set[str] = set()
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for at in range(footer.num_columns):
        column = footer.schema.column(at)
        if "." in column.path or column.max_repetition_level:
            continue
        statistics = [group.column(at).statistics for group in groups]
        if all(one is not None and one.has_null_count and one.null_count == 0 for one in statistics):
            found.add(column.name)
    return frozenset(found)


def _fresh(setup: wire.Setup) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": str(setup.threads),
            "memory_limit": f"{setup.memory_bytes}B",
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_unsigned_extensions": "false",
            "python_enable_replacements": "false",
            "allow_persistent_secrets": "false",
        },
    )
    connection.execute(
        "SET TimeZone = 'UTC'; SET enable_progress_bar = false; SET preserve_insertion_order = true"
    )
    return connection


def _failure(error: Exception) -> wire.Failure:
    """What may be told: the engine's first line without the paths that it names."""
    if isinstance(error, MemoryError):
        return wire.Failure(int(QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED), "the query needs too much memory")
    line = _PATHS.sub("...", str(error).strip().partition("\n")[0])[:400]
    if "INTERRUPT" in line or "nterrupted" in line:
        return wire.Failure(int(QueryError.EXECUTION_TIMEOUT), "the query took too long")
    for kind, code in _CODES:
        if isinstance(error, kind):
            return wire.Failure(int(code), line)
    return wire.Failure(int(QueryError.QUERY_EXECUTION), line)


def _stored_name(stored: pa.Schema, name: str) -> str | None:
    names = stored.names
    if name in names:
        return name
    return next((one for one in names if one.lower() == name.lower()), None)


def _shown(column: wire.ColumnTask) -> str:
    """The name under which the statement knows the column."""
    return column.name if column.default is None else FILLED + column.name


def _type(column: wire.ColumnTask) -> str:
    return DUCKDB_TYPES[column.kind] + ("[]" if column.is_array else "")


def _listed(texts: Sequence[str]) -> str:
    return f"[{', '.join(text_literal(text) for text in texts)}]"


def _is_same(stored: pa.DataType, kind: Kind) -> bool:
    types = pa.types
    match kind:
        case Kind.INT:
            return bool(types.is_int32(stored))
        case Kind.LONG:
            return bool(types.is_int64(stored))
        case Kind.FLOAT:
            return bool(types.is_float32(stored))
        case Kind.DOUBLE:
            return bool(types.is_float64(stored))
        case Kind.BIG_DECIMAL:
            return bool(types.is_decimal(stored))
        case Kind.BOOLEAN:
            return bool(types.is_boolean(stored))
        case Kind.STRING | Kind.JSON:
            return bool(types.is_string(stored) or types.is_large_string(stored))
        case Kind.BYTES:
            return bool(types.is_binary(stored) or types.is_large_binary(stored))
        case Kind.TIMESTAMP:
            return False


def _converted(sql: str, stored: pa.DataType, kind: Kind) -> str:
    types = pa.types
    if kind is Kind.TIMESTAMP and types.is_integer(stored):
        return f"epoch_ms(CAST({sql} AS BIGINT))"
    if kind in (Kind.LONG, Kind.INT) and (types.is_timestamp(stored) or types.is_date(stored)):
        return f"CAST(epoch_ms(CAST({sql} AS TIMESTAMP)) AS {DUCKDB_TYPES[kind]})"
    if kind in (Kind.STRING, Kind.JSON):
        if types.is_binary(stored) or types.is_large_binary(stored):
            return f"decode({sql})"
        if types.is_nested(stored):
            return f"CAST(to_json({sql}) AS VARCHAR)"
    if kind is Kind.BYTES and (types.is_string(stored) or types.is_large_string(stored)):
        return f"encode({sql})"
    return f"CAST({sql} AS {DUCKDB_TYPES[kind]})"
