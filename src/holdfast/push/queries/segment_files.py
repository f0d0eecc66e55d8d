"""How DuckDB gets at the segments of a query: files that it reads itself, or Arrow datasets."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

from holdfast.config.push_schema import DataType
from holdfast.errors import StorageUnavailable
from holdfast.push.queries import wire
from holdfast.push.queries.columns import SEGMENT_NAME
from holdfast.push.queries.stored_columns import is_same
from holdfast.push.queries.typed import list_literal, quote
from holdfast.storage.open import open_store
from holdfast.storage.store import Store, StoreLocation

_KNOWN_FILES = 50_000
_KNOWN_LISTS = 16
_KEPT_BYTES = 256 << 20
_LOCAL = fs.LocalFileSystem()

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Offered:
    """The segments of one view, as DuckDB may now read them."""

    relation: str
    """FROM's text."""
    schema: pa.Schema
    """The columns that the segments have, together."""
    without_nulls: frozenset[str]
    """Stored columns that certainly have no null in any of the segments."""
    segment_name: str
    """An expression for the name of the segment that a row comes from."""


class Segments(Protocol):
    """How DuckDB gets at the segments of a query."""

    def paths(self, views: Sequence[wire.ViewTask]) -> tuple[str, ...]:
        """The files that DuckDB itself must be able to open for these views."""

    def footer_bytes(self, views: Sequence[wire.ViewTask]) -> int:
        """The size of these files' footers, together."""

    def offer(self, connection: duckdb.DuckDBPyConnection, view: wire.ViewTask) -> Offered:
        """Make a view's segments known to this connection alone."""

    def unreadable(self, view: wire.ViewTask) -> str | None:
        """The first segment whose file cannot be opened."""

    def is_plain(self, stored: pa.DataType, kind: DataType) -> bool:
        """Whether a stored type is read as exactly the type of the kind."""


def open_segments(setup: wire.Setup, *, native: bool) -> Segments:
    if native:
        return ParquetFiles(setup.deep_store)
    if setup.deep_store.startswith("/"):
        return ArrowDatasets(local_source(setup.deep_store))
    return ArrowDatasets(remote_source(open_store(StoreLocation(setup.deep_store, setup.deep_store_options))))


class ParquetFiles:
    """DuckDB's own Parquet reader on local files: the process cannot write, and may read only these."""

    def __init__(self, root: str) -> None:
        self._path = local_source(root)
        self._footers = Footers(self._path)

    def paths(self, views: Sequence[wire.ViewTask]) -> tuple[str, ...]:
        return tuple(self._path(file) for view in views for file in view.files)

    def footer_bytes(self, views: Sequence[wire.ViewTask]) -> int:
        return sum(self._footers.of(view.files).size_bytes for view in views if view.files)

    def offer(self, connection: duckdb.DuckDBPyConnection, view: wire.ViewTask) -> Offered:
        found = self._footers.of(view.files)
        by_name = "" if found.are_equal else ", union_by_name = true"
        files = list_literal([self._path(file) for file in view.files])
        names = list_literal(view.segments) if view.has_segment_names else "[]"
        return Offered(
            relation=f"read_parquet({files}, hive_partitioning = false{by_name})",
            schema=found.schema,
            without_nulls=found.without_nulls,
            segment_name=f"list_extract({names}, CAST(file_index AS BIGINT) + 1)",
        )

    def unreadable(self, view: wire.ViewTask) -> str | None:
        return self._footers.unreadable(view.segments, view.files)

    def is_plain(self, stored: pa.DataType, kind: DataType) -> bool:
        if kind is DataType.TIMESTAMP:
            return pa.types.is_timestamp(stored) and stored.tz is None and stored.unit in ("ms", "us")
        return is_same(stored, kind)


class ArrowDatasets:
    """Segments opened by Arrow and registered; DuckDB itself may open nothing."""

    def __init__(self, source: "Source") -> None:
        self._source = source
        self._footers = Footers(source)

    def paths(self, views: Sequence[wire.ViewTask]) -> tuple[str, ...]:
        return ()

    def footer_bytes(self, views: Sequence[wire.ViewTask]) -> int:
        return 0

    def offer(self, connection: duckdb.DuckDBPyConnection, view: wire.ViewTask) -> Offered:
        found = self._footers.of(view.files)
        name = f"{view.name}_segments"
        connection.register(name, self._dataset(view, found.schema))
        return Offered(quote(name), found.schema, found.without_nulls, quote(SEGMENT_NAME))

    def unreadable(self, view: wire.ViewTask) -> str | None:
        return self._footers.unreadable(view.segments, view.files)

    def is_plain(self, stored: pa.DataType, kind: DataType) -> bool:
        if kind is DataType.TIMESTAMP:
            return pa.types.is_timestamp(stored) and stored.tz is None and stored.unit == "us"
        return is_same(stored, kind)

    def _dataset(self, view: wire.ViewTask, schema: pa.Schema) -> ds.Dataset:
        form = ds.ParquetFileFormat()
        fragments = [
            # Arrow fills the column from the expression, and leaves out files that a filter on it excludes.
            form.make_fragment(
                self._source(path), _LOCAL, partition_expression=ds.field(SEGMENT_NAME) == segment
            )
            for segment, path in zip(view.segments, view.files, strict=True)
        ]
        return ds.FileSystemDataset(
            fragments, schema.append(pa.field(SEGMENT_NAME, pa.string())), form, _LOCAL
        )


Source = Callable[[str], Any]
"""From a segment's path to something that Arrow opens without calling back into Python.

DuckDB ends its threads while it holds the interpreter's lock, so a thread that
waits for the lock at that moment would wait for ever.
"""


def local_source(root: str) -> Callable[[str], str]:
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


@dataclass(frozen=True, slots=True)
class Footer:
    schema: pa.Schema
    without_nulls: frozenset[str]
    """Flat columns whose every chunk says that it has no null."""
    size_bytes: int
    """As it lies in the file."""


@dataclass(frozen=True, slots=True)
class Together:
    """What several files have in common."""

    schema: pa.Schema
    without_nulls: frozenset[str]
    are_equal: bool
    """Whether all have the same columns, in the same order."""
    size_bytes: int
    """Of all footers, as they lie in the files."""


class Footers:
    """Reads each footer once, and goes through the list of a table's files once for each snapshot of it.

    A segment's file never changes, so what was read once stays true.
    """

    def __init__(self, source: Callable[[str], Any]) -> None:
        self._source = source
        self._files: OrderedDict[str, Footer] = OrderedDict()
        self._lists: OrderedDict[tuple[str, ...], Together] = OrderedDict()

    def of(self, paths: Sequence[str]) -> Together:
        return _look_up(self._lists, tuple(paths), self._together, most=_KNOWN_LISTS)

    def unreadable(self, segments: Sequence[str], paths: Sequence[str]) -> str | None:
        """The first segment whose footer cannot be read now, whatever was read before."""
        for segment, path in zip(segments, paths, strict=True):
            try:
                self._read(path)
            except (pa.ArrowException, OSError, StorageUnavailable):
                return segment
        return None

    def _together(self, paths: tuple[str, ...]) -> Together:
        footers = [_look_up(self._files, path, self._read, most=_KNOWN_FILES) for path in paths]
        schemas = [footer.schema for footer in footers]
        are_equal = all(schema.equals(schemas[0]) for schema in schemas[1:])
        return Together(
            schemas[0] if are_equal else pa.unify_schemas(schemas, promote_options="permissive"),
            frozenset.intersection(*(footer.without_nulls for footer in footers)),
            are_equal,
            sum(footer.size_bytes for footer in footers),
        )

    def _read(self, path: str) -> Footer:
        footer = pq.read_metadata(self._source(path))
        schema = footer.schema.to_arrow_schema().remove_metadata()
        return Footer(schema, _without_nulls(footer), footer.serialized_size)


def _look_up(known: OrderedDict[Key, Found], key: Key, find: Callable[[Key], Found], *, most: int) -> Found:
    found = known.get(key)
    if found is None:
        found = known[key] = find(key)
        if len(known) > most:
            known.popitem(last=False)
    known.move_to_end(key)
    return found


def _without_nulls(footer: pq.FileMetaData) -> frozenset[str]:
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
