"""Pruned reads: the rows of one base file that conditions do not rule out.

Statistics in the footer rule out whole row groups; of the others only the
matching rows are handed on. A condition on a column that the file has in
another type, or not at all, rules out nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.files.conform import conform_rows
from holdfast.files.open_base_file import open_base_file
from holdfast.read.vanished import explaining_absence
from holdfast.storage.store import Store

_PART_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Condition:
    """Something every wanted row fulfils."""

    column: str
    test: pc.Expression


def each_match(
    store: Store, path: str, schema: pa.Schema, conditions: Sequence[Condition] = ()
) -> Iterator[pa.Table]:
    """The matching rows part by part, in that schema, at most one row group in memory."""
    with explaining_absence(store), open_base_file(store, path) as file:
        there = file.schema_arrow
        usable = [c for c in conditions if _has(there, schema.field(c.column))]
        groups = _groups(store, path, file, usable)
        present = [name for name in schema.names if name in there.names]
        for batch in file.iter_batches(batch_size=_PART_ROWS, row_groups=groups, columns=present):
            rows = pa.Table.from_batches([batch])
            for condition in usable:
                rows = rows.filter(condition.test)
            if rows.num_rows:
                yield conform_rows(rows, schema)


def _has(there: pa.Schema, field: pa.Field) -> bool:
    return field.name in there.names and there.field(field.name).type == field.type


def _groups(store: Store, path: str, file: pq.ParquetFile, conditions: Sequence[Condition]) -> list[int]:
    """The row groups whose statistics leave room for a match."""
    if not conditions:
        return list(range(file.metadata.num_row_groups))
    # Imports pandas where that is installed, which takes longer than most reads.
    import pyarrow.dataset as ds

    wanted = conditions[0].test
    for condition in conditions[1:]:
        wanted = wanted & condition.test
    with store.open(path) as source:
        fragment = ds.ParquetFileFormat().make_fragment(source)
        return [group.id for group in fragment.subset(wanted, schema=file.schema_arrow).row_groups]
