"""The new version of a base file: column chunks that did not change are copied as bytes.

Only what changed is decoded and encoded again: in a row group without changes
nothing but the name of the file, in one with updates the columns they differ
in, in one with removals all, the key once for both columns that hold it. One
row group is held at a time.
"""

import io
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.files.base_file import (
    ROW_GROUP_ROWS,
    Encoding,
    file_stat,
    footer_entries,
    leaf_columns,
    parquet_writer,
)
from holdfast.files.chunk_file import ChunkFile, ParquetSource, copyable_columns
from holdfast.files.conform import conform_rows
from holdfast.files.key_footer import KeyFooter
from holdfast.files.meta_columns import (
    COMMIT_TIME,
    FILE_NAME,
    META_FIELDS,
    PARTITION_PATH,
    RECORD_KEY,
    SEQUENCE,
    constant_column,
    meta_columns,
    replace_at,
    sequence_column,
)
from holdfast.files.open_base_file import reading
from holdfast.files.picking import Positions, pick
from holdfast.format.commits import WriteStat
from holdfast.format.malformed import report_damage
from holdfast.format.parquet_footer import Footer, same_leaf
from holdfast.format.schemas import META_COLUMNS
from holdfast.model.names import BaseFileName, in_partition
from holdfast.storage.store import Store

_SMALL_ROW_GROUP_ROWS = 25_000
"""Row groups at the end of a file that are smaller are put together when rows are added ..."""
_SMALL_ROW_GROUPS_BYTES = 4 * 1024 * 1024
"""... as long as they hold no more than this."""


OWN_META = pa.schema([(COMMIT_TIME, pa.string()), (SEQUENCE, pa.string())])
"""Columns of incoming rows that may have been stored before; null in those that have not."""


@dataclass(frozen=True, slots=True)
class RowGroupChanges:
    """What happens to one row group: positions in it, and the incoming rows that replace the updated ones."""

    updated: Positions
    sources: Positions
    removed: Positions

    def __bool__(self) -> bool:
        return len(self.updated) > 0 or len(self.removed) > 0


class MergedFileWriter:
    """Writes one new version. Call `close`, or `discard` if it must not appear."""

    def __init__(
        self,
        store: Store,
        name: BaseFileName,
        partition: str,
        encoding: Encoding,
        *,
        old: pq.ParquetFile,
        old_path: str,
        old_content: bytes | None = None,
        fixed: Sequence[str],
        keys: KeyFooter | None,
    ) -> None:
        """`fixed` are data columns that a row with the same key always has the same values in.

        `keys` is what the footer shall say about the keys; if None, it is made from them.
        """
        self._name = name
        self._partition = partition
        self._encoding = encoding
        self._old = old
        self._old_path = old_path
        self._fixed = frozenset((RECORD_KEY, PARTITION_PATH, *fixed))
        self._keys = keys
        self._seen_keys: list[pa.Array] = []
        self._task = int(name.write_token.partition("-")[0])
        counts = [old.metadata.row_group(number).num_rows for number in range(old.num_row_groups)]
        self._first_rows = np.cumsum([0, *counts])
        self._rows = 0
        self.path = in_partition(partition, str(name))
        self._file_names: tuple[int, ParquetSource] | None = None
        self._stack = ExitStack()
        with reading(old_path):
            held = store.open(old_path) if old_content is None else io.BytesIO(old_content)
            self._source = ParquetSource(self._stack.enter_context(held))
        template = self._encode(self._schema.empty_table()).footer
        self._copyable = copyable_columns(self._source.footer, template)
        self._leaves = [leaf.path[0] for leaf in template.leaves]
        self._spelled_like_keys = _columns_like(RECORD_KEY, template) & self._fixed
        # Last, so that nothing that fails before leaves a file begun.
        self._sink = self._stack.enter_context(store.upload(self.path))
        self._file = ChunkFile(self._sink, template=template)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([*META_FIELDS, *self._encoding.schema])

    def copy(
        self, row_groups: Sequence[RowGroupChanges], incoming: pa.Table, *, added: int
    ) -> list[pa.Table]:
        """Write the old file's row groups with the changes; what remains is to be passed to `add`.

        These are small row groups at the end, if `added` rows follow.
        """
        small = self._small_at_end(row_groups, incoming, added=added)
        for number, change in enumerate(row_groups[: len(row_groups) - len(small)]):
            self._copy_row_group(number, change, incoming)
        return small

    def add(self, small: Sequence[pa.Table], rows: pa.Table, keys: pa.StringArray) -> None:
        """Write what `copy` left, and new rows in the encoding's schema, with `OWN_META` or without."""
        new = [self._with_meta(rows, keys)] if rows.num_rows > 0 else []
        together = pa.concat_tables([self._schema.empty_table(), *small, *new])
        fitting = self._encoding.row_group_bytes * together.num_rows // max(together.nbytes, 1)
        step = max(1, min(ROW_GROUP_ROWS, fitting))
        for start in range(0, together.num_rows, step):
            self._write_encoded(together.slice(start, step))

    def close(self) -> WriteStat:
        """Finish the file; it is durable and visible to listings when this returns."""
        keys = self._keys
        if keys is None:
            held = pa.chunked_array(self._seen_keys, pa.string())
            keys = KeyFooter.of_keys(held, error_rate=self._encoding.bloom_error_rate)
        self._file.close(footer_entries(self._encoding, keys))
        size = self._sink.tell()
        self._stack.close()
        return file_stat(self._name, self._partition, rows=self._rows, size=size)

    def discard(self, error: BaseException) -> None:
        """Leave nothing of the file."""
        self._stack.__exit__(type(error), error, error.__traceback__)

    def _with_meta(self, rows: pa.Table, keys: pa.StringArray) -> pa.Table:
        first = int(self._first_rows[-1])
        meta = meta_columns(
            keys,
            instant=self._name.instant,
            task=self._task,
            first_row=first,
            partition=self._partition,
            file_name=str(self._name),
        )
        if COMMIT_TIME in rows.column_names:
            meta[0] = self._times(rows.num_rows, rows.column(COMMIT_TIME))
            meta[1] = self._sequence(np.arange(first, first + rows.num_rows), rows.column(SEQUENCE))
            rows = rows.drop_columns(OWN_META.names)
        return pa.table([*meta, *rows.columns], schema=self._schema)

    def _small_at_end(
        self, row_groups: Sequence[RowGroupChanges], incoming: pa.Table, *, added: int
    ) -> list[pa.Table]:
        """The small row groups at the end, merged, if it is worth putting them together."""
        end = len(row_groups)
        start = end
        while start > 0 and self._row_count(start - 1) < _SMALL_ROW_GROUP_ROWS:
            start -= 1
        if end - start < (1 if added else 2):
            return []
        small: list[pa.Table] = []
        held = 0
        for number in reversed(range(start, end)):
            rows = self._merge_row_group(number, row_groups[number], incoming)
            held += rows.nbytes
            if held > _SMALL_ROW_GROUPS_BYTES:
                break
            small.insert(0, rows)
        return small

    def _copy_row_group(self, number: int, change: RowGroupChanges, incoming: pa.Table) -> None:
        if len(change.removed) > 0:
            self._write_encoded(self._merge_row_group(number, change, incoming))
            return
        rows = self._row_count(number)
        changed = self._columns_to_encode(number, change, incoming)
        encoded = self._encode(changed) if changed.num_columns else None
        names = self._names_of(rows)
        chunks = []
        for column in self._leaves:
            if column == FILE_NAME:
                chunks.append((names, 0))
            elif encoded is not None and column in changed.column_names:
                chunks.append((encoded, 0))
            else:
                chunks.append((self._source, number))
        with report_damage("a data file cannot be read", file=self._old_path):
            self._file.add_row_group(rows, chunks)
        self._count(number, rows)

    def _columns_to_encode(self, number: int, change: RowGroupChanges, incoming: pa.Table) -> pa.Table:
        """The columns of a row group that cannot be copied, but for the file's name."""
        wanted = [name for name in self._schema.names if name != FILE_NAME]
        if not change:
            wanted = [name for name in wanted if name not in self._copyable]
        else:
            wanted = [name for name in wanted if name not in self._fixed & self._copyable]
        columns: dict[str, pa.Array] = {}
        for name, old in self._old_columns(number, wanted).items():
            new = _updates(name, change, incoming)
            is_same = new is not None and _is_same(old.take(pa.array(change.updated)), new)
            if not (is_same and name in self._copyable):
                columns[name] = self._with_updates(number, name, old, new, change, incoming)
        fields = [self._schema.field(name) for name in columns]
        return pa.table(list(columns.values()), schema=pa.schema(fields))

    def _with_updates(
        self,
        number: int,
        name: str,
        old: pa.Array,
        new: pa.Array | None,
        change: RowGroupChanges,
        incoming: pa.Table,
    ) -> pa.Array:
        if name in META_COLUMNS:
            return self._update_meta(number, name, old, change, incoming)
        return old if new is None else replace_at(old, change.updated, new)

    def _update_meta(
        self, number: int, name: str, old: pa.Array, change: RowGroupChanges, incoming: pa.Table
    ) -> pa.Array:
        own = pick(incoming.column(name), change.sources) if name in incoming.column_names else None
        if name == COMMIT_TIME:
            new = self._times(len(change.updated), own)
            codes = old.indices.to_numpy().copy()
            codes[change.updated] = len(old.dictionary) + new.indices.to_numpy()
            times = pa.concat_arrays([old.dictionary, new.dictionary])
            return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), times)
        if name == SEQUENCE:
            # By the place in the old file, so that no number is given twice where rows are removed.
            numbers = self._first_rows[number] + change.updated
            return replace_at(old, change.updated, self._sequence(numbers, own))
        return old

    def _times(self, count: int, own: pa.ChunkedArray | None) -> pa.DictionaryArray:
        """The commits of rows: their own, where they were stored before, or this file's."""
        if own is None:
            return constant_column(self._name.instant, count)
        return _whole(pc.fill_null(own, self._name.instant)).dictionary_encode()

    def _sequence(self, numbers: Positions, own: pa.ChunkedArray | None) -> pa.Array:
        given = sequence_column(f"{self._name.instant}_{self._task}_", numbers)
        return given if own is None else pc.coalesce(_whole(own), given)

    def _merge_row_group(self, number: int, change: RowGroupChanges, incoming: pa.Table) -> pa.Table:
        """A whole row group with updates and removals."""
        columns = [
            self._with_updates(number, name, old, _updates(name, change, incoming), change, incoming)
            for name, old in self._old_columns(number, self._schema.names).items()
        ]
        rows = pa.table(columns, schema=self._schema)
        if len(change.removed) == 0:
            return rows
        kept = np.ones(rows.num_rows, dtype=np.bool_)
        kept[change.removed] = False
        return rows.filter(pa.array(kept))

    def _old_columns(self, number: int, names: Sequence[str]) -> dict[str, pa.Array]:
        """Columns of the old file, in the types they are stored in now; those it lacks are null.

        Partition and file name are not read: they are the new version's.
        """
        rows = self._row_count(number)
        known = {PARTITION_PATH: self._partition, FILE_NAME: str(self._name)}
        there = [name for name in names if name in self._old.schema_arrow.names and name not in known]
        held = pa.table({})
        if there:
            with reading(self._old_path):
                held = self._old.read_row_group(number, columns=there)
        form = pa.schema([_field_now(self._schema, held.schema.field(name)) for name in there])
        stored = conform_rows(held, form)
        columns = {name: _whole(stored.column(name)) for name in there}
        columns |= {name: constant_column(value, rows) for name, value in known.items()}
        return {
            name: columns[name] if name in columns else pa.nulls(rows, self._schema.field(name).type)
            for name in names
        }

    def _row_count(self, number: int) -> int:
        return int(self._first_rows[number + 1] - self._first_rows[number])

    def _names_of(self, rows: int) -> ParquetSource:
        """The column of file names for a row group of this size; most have the same."""
        if self._file_names is None or self._file_names[0] != rows:
            names = pa.table([constant_column(str(self._name), rows)], names=[FILE_NAME])
            self._file_names = rows, self._encode(names)
        return self._file_names[1]

    def _write_encoded(self, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        keys = rows.column(RECORD_KEY)
        repeats = {name: RECORD_KEY for name in self._spelled_like_keys if rows.column(name).equals(keys)}
        source = self._encode(rows, repeats)
        self._file.add_row_group(rows.num_rows, [(source, 0)] * len(self._leaves))
        self._rows += rows.num_rows
        if self._keys is None:
            self._seen_keys.append(_whole(rows.column(RECORD_KEY)))

    def _count(self, number: int, rows: int) -> None:
        self._rows += rows
        if self._keys is None:
            self._seen_keys.append(self._old_columns(number, [RECORD_KEY])[RECORD_KEY])

    def _encode(self, rows: pa.Table, repeats: Mapping[str, str] | None = None) -> ParquetSource:
        """The columns, but for those that repeat another, as one row group of a Parquet file in memory."""
        rows = rows.drop_columns(list(repeats or ()))
        sink = io.BytesIO()
        with parquet_writer(sink, rows.schema, self._encoding) as writer:
            if rows.num_rows > 0:
                writer.write_table(rows, row_group_size=rows.num_rows)
        sink.seek(0)
        return ParquetSource(sink, repeats=repeats)


def _columns_like(name: str, footer: Footer) -> frozenset[str]:
    """The other columns in which chunks of this one may stand."""
    pattern = next(leaf for leaf in footer.leaves if leaf.path == (name,))
    others = [leaf for leaf in footer.leaves if len(leaf.path) == 1 and leaf.path != (name,)]
    return frozenset(leaf.path[0] for leaf in others if same_leaf(replace(leaf, path=(name,)), pattern))


def _field_now(schema: pa.Schema, held: pa.Field) -> pa.Field:
    """How a column is stored now; meta columns are taken as they are read."""
    return held if held.name in META_COLUMNS else schema.field(held.name)


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays are the same to the bit; of fractions, zero has two signs that compare equal."""
    has_fractions = any(pa.types.is_floating(kind) for _, kind in leaf_columns("", one.type))
    return not has_fractions and one.equals(other)


def _updates(name: str, change: RowGroupChanges, incoming: pa.Table) -> pa.Array | None:
    """What the incoming rows bring for a column of a row group; None if nothing."""
    if len(change.updated) == 0 or name in META_COLUMNS:
        return None
    return pick(incoming.column(name), change.sources).combine_chunks()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
