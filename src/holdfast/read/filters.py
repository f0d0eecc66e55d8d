"""Filters: pyarrow expressions over rows, and the row groups of a file that they rule out.

Rows are filtered in the form in which they are handed on, never as they are
stored: a column may be of another type in the file. Statistics are looked at
only where the two forms compare alike.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.errors import InvalidRequest

_CASES_MAX = 16
"""Of one row group: each column whose values may be null doubles them."""


@dataclass(frozen=True, slots=True)
class Filter:
    test: pc.Expression
    schema: pa.Schema
    """The columns that it names."""

    def match(self, rows: pa.Table) -> pa.Table:
        """The rows for which it is true."""
        try:
            return rows.filter(self.test)
        except pa.ArrowException as error:
            raise InvalidRequest("the filter fails on a row", filter=str(self.test), cause=error) from error

    def select_groups(self, file: pq.ParquetFile) -> list[int]:
        """The row groups that may hold a row for which it is true."""
        # Imports pandas where that is installed, which takes longer than most reads.
        import pyarrow.dataset as ds
        from pyarrow.fs import LocalFileSystem

        # Arrow simplifies a filter by what is known of a file: each case stands for one here.
        form, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
        cases = {
            f"{group}-{number}": (group, case)
            for group in range(file.metadata.num_row_groups)
            for number, case in enumerate(self._cases(file, group))
        }
        fragments = [
            form.make_fragment(name, filesystem=nowhere, partition_expression=case)
            for name, (_, case) in cases.items()
        ]
        left = ds.FileSystemDataset(fragments, self.schema, form, nowhere).get_fragments(filter=self.test)
        return sorted({cases[fragment.path][0] for fragment in left})

    def _cases(self, file: pq.ParquetFile, group: int) -> Iterator[pc.Expression]:
        """What may be known of a row: its columns are null or in their range, in every combination."""
        found: list[list[pc.Expression]] = []
        count = 1
        for field in self.schema:
            ways = list(_ways(file, group, field))
            if ways and count * len(ways) <= _CASES_MAX:
                found.append(ways)
                count *= len(ways)
        for case in product(*found):
            known = pc.scalar(True)
            for way in case:
                known = known & way
            yield known


def parse_filter(test: pc.Expression, columns: Iterable[pa.Field]) -> Filter:
    """`InvalidRequest` if it is no condition on these columns."""
    if not isinstance(test, pc.Expression):
        raise InvalidRequest(
            "a filter is a pyarrow expression",
            given=type(test).__name__,
            hint="such as pyarrow.compute.field('city') == 'oslo'",
        )
    known = list(columns)
    text = str(test)
    if "FieldPath(" in text:
        raise InvalidRequest("a filter names columns, not their places", filter=text)
    # The text holds every name it needs, and perhaps some by chance.
    wanted = [field for field in known if field.name in text]
    if _misfit(test, wanted) is not None:
        wanted = known
    misfit = _misfit(test, wanted)
    if misfit is not None:
        raise InvalidRequest("the filter does not fit the table's columns", filter=text, cause=misfit)
    needed = [one for one in wanted if _misfit(test, [other for other in wanted if other is not one])]
    return Filter(test, pa.schema(needed))


def _misfit(test: pc.Expression, columns: list[pa.Field]) -> Exception | None:
    """Why the expression is no condition on exactly these columns."""
    try:
        pa.schema(columns).empty_table().filter(test)
    except (pa.ArrowException, TypeError) as error:
        return error
    return None


def _ways(file: pq.ParquetFile, group: int, field: pa.Field) -> Iterator[pc.Expression]:
    """What the values of a column may be in a row group: in a range, null, or either; nothing if unknown."""
    column = pc.field(field.name)
    there = file.schema_arrow
    if field.name not in there.names:
        yield column.is_null()
        return
    if not _compares_alike(there.field(field.name).type, field.type):
        return
    found = file.metadata.row_group(group)
    at = _leaf(file, field.name)
    statistics = None if at is None else found.column(at).statistics
    if statistics is None:
        return
    if statistics.has_null_count and statistics.null_count == found.num_rows:
        yield column.is_null()
        return
    ends = _ends(statistics, field.type)
    if ends is not None:
        yield column.is_valid() & (column >= ends[0]) & (column <= ends[1])
        if not statistics.has_null_count or statistics.null_count:
            yield column.is_null()


def _ends(statistics: pq.Statistics, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    if not statistics.has_min_max:
        return None
    try:
        return pa.scalar(statistics.min, kind), pa.scalar(statistics.max, kind)
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # A date beyond those of Python.


def _leaf(file: pq.ParquetFile, name: str) -> int | None:
    """The number of a column that is not nested."""
    return next((at for at in range(file.metadata.num_columns) if file.schema.column(at).path == name), None)


def _compares_alike(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the ends of what is stored are the ends of what is handed on.

    Floating numbers are left out: the ends say nothing of values that are not numbers.
    """
    if pa.types.is_integer(stored) and pa.types.is_integer(wanted):
        return True
    is_known = (
        pa.types.is_boolean(stored)
        or pa.types.is_string(stored)
        or pa.types.is_date32(stored)
        or (pa.types.is_timestamp(stored) and stored.unit in ("ms", "us"))
    )
    return is_known and bool(stored == wanted)
