"""The rows and deletes of log blocks, as columns, in the schema that a table has now."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.errors import SchemaMismatch, TableDamaged, UnsupportedTable
from holdfast.files.conform import conform_rows
from holdfast.files.log_scan import PlacedBlock
from holdfast.files.meta_columns import RECORD_KEY
from holdfast.files.picking import Positions
from holdfast.format.avro_columns import decode_avro_rows
from holdfast.format.delete_blocks import decode_deletes
from holdfast.format.log_blocks import BlockHeader, BlockType
from holdfast.format.malformed import Malformed
from holdfast.format.row_positions import NOWHERE, REMOVED, ROWS, decode_positions

Mask = npt.NDArray[np.bool_]

IS_DELETED = "_hoodie_is_deleted"
"""A row in which this is true removes its key."""


@dataclass(frozen=True, slots=True)
class LogRows:
    """Everything that some blocks say, or one of them, in its order: one entry for each record."""

    rows: pa.Table
    """In the schema asked for; of records of delete blocks, key and ordering value alone."""
    keys: pa.StringArray
    removes: Mask
    is_record: Mask
    """Which entries are of delete blocks."""
    orderings: pa.Array | None
    """Null of a delete means that it wins by its time alone."""
    positions: Positions

    def __len__(self) -> int:
        return len(self.keys)


def read_log_rows(
    blocks: Sequence[PlacedBlock], schema: pa.Schema, *, ordering: pa.Field | None, base: str
) -> list[LogRows]:
    """What each block says. `base` is the instant of the file slice, which positions refer to."""
    found: list[LogRows] = []
    footers: dict[tuple[str, str], dict[bytes, bytes]] = {}
    for each in blocks:
        writer = each.path, each.block.instant
        with _reading(each):
            if each.block.kind == BlockType.DELETE:
                found.append(_deletes(each, schema, ordering, footers.get(writer, {}), base))
                continue
            rows, footers[writer] = _data_rows(each, schema, ordering)
            found.append(_upserts(each, rows, schema, ordering, footers[writer], base))
    return found


@contextmanager
def _reading(each: PlacedBlock) -> Iterator[None]:
    """Whatever goes wrong in this Python block is damage of the log block."""
    try:
        yield
    except UnsupportedTable as error:
        facts = {**error.facts, "file": each.path, "offset": each.block.at}
        raise UnsupportedTable(error.message, hint=error.hint, **facts) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, Malformed, SchemaMismatch) as error:
        raise TableDamaged(
            "a log block cannot be read", file=each.path, offset=each.block.at, cause=error
        ) from error


def _data_rows(
    each: PlacedBlock, schema: pa.Schema, ordering: pa.Field | None
) -> tuple[pa.Table, dict[bytes, bytes]]:
    """The columns of a data block that are needed, as it stores them, and the entries of its footer."""
    wanted = {*schema.names, RECORD_KEY, IS_DELETED, *([] if ordering is None else [ordering.name])}
    if each.block.kind == BlockType.AVRO_DATA:
        text = each.block.header.get(BlockHeader.SCHEMA, b"").decode()
        return decode_avro_rows(each.block.content, text, wanted), {}
    source = pa.BufferReader(each.block.content)
    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        _check_columns(file.schema_arrow, each)
        present = [name for name in file.schema_arrow.names if name in wanted]
        return file.read(columns=present), dict(file.metadata.metadata or {})


def _check_columns(found: pa.Schema, each: PlacedBlock) -> None:
    """Compare with the columns that the block's header names, where it does: a name may be damaged."""
    try:
        fields = json.loads(each.block.header[BlockHeader.SCHEMA])["fields"]
        expected = {field["name"] for field in fields}
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"the block does not say what columns it has: {error}") from error
    if not set(found.names) >= expected:
        missing = ", ".join(sorted(expected - set(found.names)))
        raise Malformed(f"the block lacks columns that its header names: {missing}")


def _upserts(
    each: PlacedBlock,
    stored: pa.Table,
    schema: pa.Schema,
    ordering: pa.Field | None,
    entries: dict[bytes, bytes],
    base: str,
) -> LogRows:
    count = stored.num_rows
    if RECORD_KEY not in stored.column_names or stored[RECORD_KEY].null_count:
        raise Malformed("the block has rows without a record key")
    removes = np.zeros(count, dtype=np.bool_)
    if IS_DELETED in stored.column_names and pa.types.is_boolean(stored.schema.field(IS_DELETED).type):
        removes = pc.fill_null(stored[IS_DELETED], False).to_numpy()
    keys = _whole(conform_rows(stored.select([RECORD_KEY]), _KEY_SCHEMA)[RECORD_KEY])
    orderings = None
    if ordering is not None:
        orderings = _whole(conform_rows(stored, pa.schema([ordering]))[ordering.name])
    positions = decode_positions(entries, ROWS, base=base, count=count)
    return LogRows(
        conform_rows(stored, schema),
        keys,
        removes,
        np.zeros(count, dtype=np.bool_),
        orderings,
        _nowhere(count) if positions is None else positions,
    )


def _deletes(
    each: PlacedBlock,
    schema: pa.Schema,
    ordering: pa.Field | None,
    entries: dict[bytes, bytes],
    base: str,
) -> LogRows:
    deletes = decode_deletes(each.block.content, None if ordering is None else ordering.type)
    count = len(deletes.keys)
    columns = {RECORD_KEY: deletes.keys}
    if ordering is not None and deletes.orderings is not None:
        columns[ordering.name] = deletes.orderings
    positions = decode_positions(entries, REMOVED, base=base, count=count)
    return LogRows(
        conform_rows(pa.table(columns), schema),
        deletes.keys,
        np.ones(count, dtype=np.bool_),
        np.ones(count, dtype=np.bool_),
        deletes.orderings,
        _nowhere(count) if positions is None else positions,
    )


_KEY_SCHEMA = pa.schema([(RECORD_KEY, pa.string())])


def _nowhere(count: int) -> Positions:
    return np.full(count, NOWHERE, dtype=np.int64)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
