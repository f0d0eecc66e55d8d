"""How DuckDB gets at the segments of a query: files that it reads itself, or Arrow datasets."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs

from holdfast.config.push_schema import DataType
from holdfast.push.queries import wire
from holdfast.push.queries.columns import SEGMENT_NAME
from holdfast.push.queries.footers import Footers
from holdfast.push.queries.stored_columns import is_same
from holdfast.push.queries.typed import list_literal, quoted
from holdfast.storage.open import open_store
from holdfast.storage.store import Store, StoreLocation

_KEPT_BYTES = 256 << 20
_LOCAL = fs.LocalFileSystem()


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
        return Offered(quoted(name), found.schema, found.without_nulls, quoted(SEGMENT_NAME))

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
