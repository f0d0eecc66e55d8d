"""What the footers of segments say. A segment's file never changes, so what was read once stays true."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import StorageUnavailable

_KNOWN_FILES = 50_000
_KNOWN_LISTS = 16

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


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
    """Reads each footer once, and goes through the list of a table's files once for each snapshot of it."""

    def __init__(self, source: Callable[[str], Any]) -> None:
        self._source = source
        self._files: OrderedDict[str, Footer] = OrderedDict()
        self._lists: OrderedDict[tuple[str, ...], Together] = OrderedDict()

    def of(self, paths: Sequence[str]) -> Together:
        return _remembered(self._lists, tuple(paths), self._together, most=_KNOWN_LISTS)

    def unreadable(self, segments: Sequence[str], paths: Sequence[str]) -> str | None:
        """The first segment whose footer cannot be read now, whatever was read before."""
        for segment, path in zip(segments, paths, strict=True):
            try:
                self._read(path)
            except (pa.ArrowException, OSError, StorageUnavailable):
                return segment
        return None

    def _together(self, paths: tuple[str, ...]) -> Together:
        footers = [_remembered(self._files, path, self._read, most=_KNOWN_FILES) for path in paths]
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


def _remembered(
    known: OrderedDict[Key, Found], key: Key, find: Callable[[Key], Found], *, most: int
) -> Found:
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
