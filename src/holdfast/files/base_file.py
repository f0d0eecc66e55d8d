"""One base file: Parquet with Hudi's meta columns and footers, written row group by row group.

The file appears whole when it is closed. What a row group needs is held in
memory, not what the file needs; only the keys are kept, for the bloom filter.
"""

from contextlib import ExitStack
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.files.key_footer import KeyFooter
from holdfast.files.meta_columns import META_FIELDS, meta_columns
from holdfast.format.commits import WriteStat
from holdfast.format.field_ids import FieldIds, with_field_ids
from holdfast.format.schemas import avro_schema
from holdfast.model.names import BaseFileName, in_partition
from holdfast.storage.store import Store

ROW_GROUP_ROWS = 200_000
_ROW_GROUP_BYTES = 128 * 1024 * 1024
_ROW_GROUP_BYTES_MIN = 1024 * 1024
_ZSTD_LEVEL = 1
_SAMPLE_ROWS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How the base files of one write are encoded."""

    schema: pa.Schema
    """The data columns as stored, without meta columns."""
    table_name: str
    compression: str
    bloom_error_rate: float
    max_file_bytes: int
    dictionary_columns: tuple[str, ...]
    """Columns with few distinct values; trying a dictionary on unique keys costs a fifth of the time."""
    field_ids: FieldIds
    """The numbers that the files give to the data columns."""

    @property
    def row_group_bytes(self) -> int:
        """In memory. A quarter of a small file, so that its size is known well before its end."""
        return min(_ROW_GROUP_BYTES, max(_ROW_GROUP_BYTES_MIN, self.max_file_bytes // 4))


class BaseFileWriter:
    """Writes one new base file. Call `close`, or `discard` if it must not appear."""

    def __init__(self, store: Store, name: BaseFileName, partition: str, encoding: Encoding) -> None:
        self._name = name
        self._partition = partition
        self._encoding = encoding
        self._task = int(name.write_token.partition("-")[0])
        self._pending: list[tuple[pa.RecordBatch, pa.Array]] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._flushed_bytes = 0
        self._keys: list[pa.Array] = []
        self._rows = 0
        self.path = in_partition(partition, str(name))
        self._stack = ExitStack()
        self._sink = self._stack.enter_context(store.upload(self.path))
        schema = pa.schema([*META_FIELDS, *encoding.schema])
        self._parquet = self._stack.enter_context(parquet_writer(self._sink, schema, encoding))

    def has_room_for(self, rows: pa.RecordBatch) -> bool:
        """Whether the file stays within its limit with these rows, judged by how small the others got."""
        written = self._sink.tell()
        ratio = written / self._flushed_bytes if self._flushed_bytes else 1.0
        waiting: int = self._pending_bytes + rows.nbytes
        return written + ratio * waiting <= self._encoding.max_file_bytes

    def write(self, rows: pa.RecordBatch, keys: pa.Array) -> None:
        """Add rows, already in the encoding's schema, and their record keys."""
        self._pending.append((rows, keys))
        self._pending_rows += rows.num_rows
        self._pending_bytes += rows.nbytes
        if self._pending_rows >= ROW_GROUP_ROWS or self._pending_bytes >= self._encoding.row_group_bytes:
            self._flush()

    def write_all(self, rows: pa.Table, keys: pa.Array) -> None:
        """As `write`, for rows in any number of batches."""
        written = 0
        for batch in rows.to_batches(max_chunksize=ROW_GROUP_ROWS):
            self.write(batch, keys.slice(written, batch.num_rows))
            written += batch.num_rows

    def close(self) -> WriteStat:
        """Finish the file; it is durable and visible to listings when this returns."""
        self._flush()
        self._parquet.add_key_value_metadata(self._footer())
        self._parquet.close()
        size = self._sink.tell()
        self._stack.close()
        stat = file_stat(self._name, self._partition, rows=self._rows, size=size)
        return msgspec.structs.replace(stat, num_inserts=self._rows)

    def discard(self, error: BaseException) -> None:
        """Leave nothing of the file."""
        self._stack.__exit__(type(error), error, error.__traceback__)

    def _flush(self) -> None:
        if not self._pending:
            return
        rows = pa.Table.from_batches([batch for batch, _ in self._pending])
        # Concatenated, so that the batches the keys came with are not kept alive by them.
        keys = pa.concat_arrays([keys for _, keys in self._pending])
        meta = meta_columns(
            keys,
            instant=self._name.instant,
            task=self._task,
            first_row=self._rows,
            partition=self._partition,
            file_name=str(self._name),
        )
        stored = pa.Table.from_arrays([*meta, *rows.columns], schema=self._parquet.schema)
        self._parquet.write_table(stored, row_group_size=stored.num_rows)
        self._keys.append(keys)
        self._rows += rows.num_rows
        self._flushed_bytes += self._pending_bytes
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def _footer(self) -> dict[str, str]:
        keys = pa.chunked_array(self._keys, pa.string())
        return footer_entries(
            self._encoding, KeyFooter.of_keys(keys, error_rate=self._encoding.bloom_error_rate)
        )


def file_stat(name: BaseFileName, partition: str, *, rows: int, size: int) -> WriteStat:
    """What a commit says about a base file, but for what its rows are."""
    return WriteStat(
        file_id=name.file_id,
        path=in_partition(partition, str(name)),
        partition_path=partition,
        num_writes=rows,
        total_write_bytes=size,
        file_size_in_bytes=size,
    )


def footer_entries(encoding: Encoding, keys: KeyFooter) -> dict[str, str]:
    """What Hudi keeps in the footer of a base file."""
    schema = avro_schema(encoding.schema, table_name=encoding.table_name, meta_columns=True)
    return {**keys.entries(), "parquet.avro.schema": schema, "writer.model.name": "avro"}


def leaf_columns(path: str, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """The Parquet columns that a column consists of, by their paths."""
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in leaf_columns(f"{path}.{field.name}", field.type)]
    if pa.types.is_list(kind):
        return leaf_columns(f"{path}.list.element", kind.value_type)
    if pa.types.is_map(kind):
        keys = leaf_columns(f"{path}.key_value.key", kind.key_type)
        return keys + leaf_columns(f"{path}.key_value.value", kind.item_type)
    return [(path, kind)]


def repeating_columns(sample: pa.Table | pa.RecordBatch) -> list[str]:
    """Columns that should get a dictionary: those with few distinct values, judged by the first rows."""
    head = sample.slice(0, _SAMPLE_ROWS)
    repeating: list[str] = []
    for field, column in zip(head.schema, head.columns, strict=True):
        if pa.types.is_nested(field.type):
            repeating += [path for path, _ in leaf_columns(field.name, field.type)]
        elif pc.count_distinct(column).as_py() * 2 <= len(column):
            repeating.append(field.name)
    return repeating


def parquet_writer(sink: object, schema: pa.Schema, encoding: Encoding) -> pq.ParquetWriter:
    """A writer of some columns of a base file."""
    constants = [field.name for field in META_FIELDS if pa.types.is_dictionary(field.type)]
    codec = encoding.compression
    leaves = [leaf for field in schema for leaf in leaf_columns(field.name, field.type)]
    # Arrow leaves NaN out of the least and the greatest value. Spark takes NaN for greater than
    # every number, and would pass over row groups that hold one; so fractions have no statistics.
    with_statistics = [path for path, kind in leaves if not pa.types.is_floating(kind)]
    return pq.ParquetWriter(
        sink,
        with_field_ids(schema, encoding.field_ids),
        compression="none" if codec == "uncompressed" else codec,
        compression_level=_ZSTD_LEVEL if codec == "zstd" else None,
        use_dictionary=[*constants, *encoding.dictionary_columns],
        write_statistics=with_statistics or False,
        version="2.6",
        data_page_version="1.0",
        write_page_checksum=True,
        store_schema=False,
    )
