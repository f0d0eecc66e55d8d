"""Statistics: what the footers of base files say of their columns, as an export repeats it.

Of columns inside of others, and of files that say nothing, nothing is known.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from holdfast.files.open_base_file import reading
from holdfast.storage.store import Store

_THREADS = 8
_FEW = 4


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    nulls: int | None
    """None if it is not known."""
    least: Any = None
    greatest: Any = None
    """Both None if they are not known, or all values are null."""

    def is_one_value(self, rows: int) -> bool:
        """Whether all rows are known to hold the same."""
        if self.nulls is None:
            return False
        if self.nulls == rows:
            return True
        return self.nulls == 0 and self.least is not None and self.least == self.greatest


@dataclass(frozen=True, slots=True)
class FileFacts:
    rows: int
    columns: Mapping[str, ColumnFacts]


class Footers:
    """The facts of files, each read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, FileFacts] = {}

    def read(self, paths: Iterable[str]) -> list[FileFacts]:
        """Of each file, in order. `TableDamaged` if one cannot be read."""
        wanted = list(paths)
        new = [path for path in dict.fromkeys(wanted) if path not in self._known]
        if len(new) <= _FEW:
            self._known.update((path, read_facts(self._store, path)) for path in new)
        else:
            with ThreadPoolExecutor(_THREADS, thread_name_prefix="export") as pool:
                facts = pool.map(lambda path: read_facts(self._store, path), new)
                self._known.update(zip(new, facts, strict=True))
        return [self._known[path] for path in wanted]


def read_facts(store: Store, path: str) -> FileFacts:
    with reading(path), store.open(path) as source:
        return facts_of(pq.read_metadata(source))


def facts_of(footer: pq.FileMetaData) -> FileFacts:
    """What a footer says of the columns at the top."""
    flat = {
        column.name: number
        for number in range(footer.num_columns)
        for column in [footer.schema.column(number)]
        if column.path == column.name and column.max_repetition_level == 0
    }
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    columns = {name: _column_facts(groups, number) for name, number in flat.items()}
    return FileFacts(footer.num_rows, columns)


def _column_facts(groups: list[pq.RowGroupMetaData], number: int) -> ColumnFacts:
    nulls: int | None = 0
    least = greatest = None
    is_bounded = True
    for group in groups:
        column = group.column(number)
        found = column.statistics if column.is_stats_set else None
        missing = found.null_count if found is not None and found.has_null_count else None
        nulls = None if nulls is None or missing is None else nulls + missing
        if missing == group.num_rows:
            continue
        bounds = _bounds(found)
        if bounds is None:
            is_bounded = False
            continue
        least = bounds[0] if least is None else min(least, bounds[0])
        greatest = bounds[1] if greatest is None else max(greatest, bounds[1])
    return ColumnFacts(nulls, least, greatest) if is_bounded else ColumnFacts(nulls)


def _bounds(found: pq.Statistics | None) -> tuple[Any, Any] | None:
    if found is None or not found.has_min_max:
        return None
    try:
        return found.min, found.max
    except (ValueError, OverflowError, ArithmeticError, NotImplementedError):
        return None  # A moment that Python has no value for.
