"""Rows in batches, while they are read: of some columns, and only those that a filter lets through.

A selection says which rows and columns of one snapshot are wanted. It can be
read several times, and by engines that ask for less each time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.format.schemas import META_COLUMNS
from holdfast.read.arrow_rows import each_rows, read_rows, select_schema
from holdfast.read.filters import Filter, parse_filter
from holdfast.read.snapshot import Snapshot
from holdfast.storage.store import Store


@dataclass(frozen=True, slots=True)
class Selection:
    store: Store
    snapshot: Snapshot
    schema: pa.Schema
    """The columns that are handed on."""
    wanted: Filter | None = None
    """Of the rows, those for which it is true."""

    def narrow(self, *, columns: Sequence[str] | None, filter: pc.Expression | None) -> "Selection":  # noqa: A002  # the word of pyarrow
        """Of these rows and columns, fewer."""
        schema = self.schema if columns is None else pa.schema([self.schema.field(one) for one in columns])
        test = filter
        if test is not None and self.wanted is not None:
            test = self.wanted.test & test
        if test is None:
            return replace(self, schema=schema)
        return replace(self, schema=schema, wanted=parse_filter(test, _fields(self.snapshot)))

    def read(self) -> pa.Table:
        """All of it, in memory."""
        if self.wanted is None and self.schema.names:
            return read_rows(self.store, self.snapshot, self.schema)
        return self.stream().read_all()

    def stream(self) -> pa.RecordBatchReader:
        """All of it in batches; nothing is read before it is asked for."""
        return pa.RecordBatchReader.from_batches(self.schema, self._each_batch())

    def _each_batch(self) -> Iterator[pa.RecordBatch]:
        wanted = self.wanted
        more = [] if wanted is None else [f for f in wanted.schema if f.name not in self.schema.names]
        whole = pa.schema([*self.schema, *more])
        choose = None if wanted is None else wanted.select_groups
        for rows in each_rows(self.store, self.snapshot, whole, choose=choose):
            left = rows if wanted is None else wanted.match(rows)
            yield from left.select(self.schema.names).to_batches()


def select(
    store: Store,
    snapshot: Snapshot,
    *,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,  # noqa: A002  # the word of pyarrow
    meta_columns: bool = False,
) -> Selection:
    """`InvalidRequest` if there is no such column, or the filter does not fit the columns."""
    schema = select_schema(snapshot.schema, columns=columns, meta_columns=meta_columns)
    wanted = None if filter is None else parse_filter(filter, _fields(snapshot))
    return Selection(store, snapshot, schema, wanted)


def _fields(snapshot: Snapshot) -> list[pa.Field]:
    """Every column that a filter may name."""
    data = [] if snapshot.schema is None else list(snapshot.schema)
    return [*data, *(pa.field(name, pa.string()) for name in META_COLUMNS)]
