"""Writing a log file: what a write changes in one file group, beside a base file that stays as it is.

One data block with the rows that are new versions of stored ones, then at most
one delete block. A file holds the blocks of one instant and is never added to,
so taking a write back is deleting its files. The whole file is held in memory;
writes that change more than a small part of a base file rewrite that instead.
"""

import io
from dataclasses import dataclass

import pyarrow as pa

from holdfast.config.choices import LogBlockFormat
from holdfast.files.base_file import ROW_GROUP_ROWS, Encoding, parquet_writer
from holdfast.files.meta_columns import META_FIELDS, meta_columns
from holdfast.files.picking import Positions
from holdfast.format.avro_rows import encode_avro_rows
from holdfast.format.commits import WriteStat
from holdfast.format.delete_blocks import encode_deletes
from holdfast.format.log_blocks import BlockHeader, BlockType, LogBlock, encode_block
from holdfast.format.row_positions import encode_positions
from holdfast.format.schemas import avro_schema
from holdfast.model.instant import InstantTime
from holdfast.model.names import LogFileName, in_partition
from holdfast.model.slices import FileSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContent:
    """What one log file says."""

    rows: pa.Table
    """The data columns of new versions of rows, in the schema that is stored."""
    keys: pa.StringArray
    """Their record keys."""
    removed: pa.StringArray
    """The keys that are taken away."""
    order: pa.Array | None
    """For each removed key the ordering value that it is taken away with; None if order decides nothing."""
    positions: Positions
    """Where the base file has the key of each row, or `NOWHERE`."""
    removed_positions: Positions
    """The same for each removed key."""


def encode_log_file(
    content: LogContent,
    name: LogFileName,
    partition: str,
    encoding: Encoding,
    *,
    instant: InstantTime,
    task: int,
    block_format: LogBlockFormat = LogBlockFormat.PARQUET,
) -> bytes:
    """The bytes of a log file of the write `instant`."""
    schema = avro_schema(encoding.schema, table_name=encoding.table_name, meta_columns=True)
    header: dict[int, bytes] = {
        BlockHeader.INSTANT_TIME: instant.encode(),
        BlockHeader.SCHEMA: schema.encode(),
    }
    blocks: list[LogBlock] = []
    if content.rows.num_rows > 0:
        meta = meta_columns(
            pa.chunked_array([content.keys]), instant=instant, task=task, first_row=0, partition=partition,
            file_name=name.file_id,
        )  # fmt: skip
        stored = pa.table([*meta, *content.rows.columns], schema=pa.schema([*META_FIELDS, *encoding.schema]))
        if block_format is LogBlockFormat.AVRO:
            blocks.append(LogBlock(BlockType.AVRO_DATA, encode_avro_rows(stored, schema), header))
        else:
            positions = encode_positions(name.base_instant, content.positions, content.removed_positions)
            entries = {b"parquet.avro.schema": schema.encode(), b"writer.model.name": b"avro", **positions}
            blocks.append(LogBlock(BlockType.PARQUET_DATA, _parquet(stored, encoding, entries), header))
    if len(content.removed) > 0:
        deletes = encode_deletes(content.removed, partition, content.order)
        blocks.append(LogBlock(BlockType.DELETE, deletes, header))
    return b"".join(map(encode_block, blocks))


def log_file_stat(group: FileSlice, name: LogFileName, content: LogContent, *, size: int) -> WriteStat:
    """What a deltacommit says of a log file that is appended to a slice."""
    updated, removed = content.rows.num_rows, len(content.removed)
    return WriteStat(
        file_id=name.file_id,
        path=in_partition(group.partition, str(name)),
        prev_commit=name.base_instant,
        num_writes=updated,
        num_deletes=removed,
        num_update_writes=updated,
        total_write_bytes=size,
        partition_path=group.partition,
        file_size_in_bytes=size,
        log_version=name.version,
        log_offset=0,
        base_file=_name_of(group.base or ""),
        log_files=[*map(_name_of, group.logs), str(name)],
        records_stats={"val": None},
    )


def _parquet(rows: pa.Table, encoding: Encoding, entries: dict[bytes, bytes]) -> bytes:
    sink = io.BytesIO()
    with parquet_writer(sink, rows.schema, encoding) as writer:
        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        writer.add_key_value_metadata(entries)
    return sink.getvalue()


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]
