"""The part of a write that runs in a task: rows in, base files out.

The same code runs in Spark's Python workers and in the process itself. Rows
come as Arrow batches, sorted so that those of a partition stand together; one
file is open at a time. A marker is left before each file.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.table import TableSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Fenced, InvalidRequest
from holdfast.files.base_file import BaseFileWriter, Encoding, leaf_columns, repeating_columns
from holdfast.files.conform import conform_rows
from holdfast.files.partition_column import partition_column
from holdfast.format.buckets import bucket_file_id
from holdfast.format.commits import WriteStat
from holdfast.format.field_ids import FieldIds
from holdfast.format.record_keys import find_bad_key, record_keys
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import BaseFileName, in_partition, instant_file
from holdfast.storage.store import Store
from holdfast.table.markers import leave_marker
from holdfast.writes.outcome import TaskOutput

IS_DELETED = "_hoodie_is_deleted"
"""A row in which this is true is never stored; it removes its key where keys are looked for."""

_MIN_SAMPLE_ROWS = 64
_BATCH_ROWS = 50_000
_PIECES_PER_FILE = 16
"""The size of a file is checked after each of this many parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """Distinguishes attempts: two attempts at one task never write the same name."""

    task: int
    stage: int
    attempt: int
    file_prefix: str
    """A UUID that begins the ids of the file groups this attempt creates; no other attempt has it."""

    @property
    def write_token(self) -> str:
        return f"{self.task}-{self.stage}-{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """What every task of a write needs to know."""

    instant: InstantTime
    action: Action
    schema: pa.Schema
    field_ids: FieldIds
    table: TableSettings
    write: WriteSettings
    compacting: frozenset[str] = frozenset()
    """File groups, as `partition/file id`, that a compaction is planned of: no log file is added to these."""
    appends: bool = False
    """Whether log files may be added to others."""


def write_rows(
    store: Store, request: TaskRequest, identity: TaskIdentity, batches: Iterable[pa.RecordBatch]
) -> Iterator[TaskOutput]:
    """Write the batches into new file groups; one output per file, as each is finished."""
    files = NewFiles(store, request, identity)
    try:
        for batch in batches:
            rows = conform_rows(batch, request.schema)
            rows, keys = _to_be_stored(rows, require_keys(rows, request.table))
            for partition, start, count in _runs(rows, request.table):
                piece, piece_keys = rows.slice(start, count), keys.slice(start, count)
                yield from files.write(partition, piece, piece_keys)
        yield from files.finish()
    except BaseException as error:
        files.discard(error)
        raise


def _to_be_stored(rows: pa.RecordBatch, keys: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
    """The rows that do not ask to be removed, and their keys."""
    if not has_removals(rows.schema):
        return rows, keys
    removed = pc.fill_null(rows.column(IS_DELETED), False)
    if not pc.any(removed).as_py():
        return rows, keys
    stays = pc.invert(removed)
    return rows.filter(stays), keys.filter(stays)


def has_removals(schema: pa.Schema) -> bool:
    """Whether rows can say that they remove their key."""
    return IS_DELETED in schema.names and pa.types.is_boolean(schema.field(IS_DELETED).type)


def check_batch(rows: pa.RecordBatch, table: TableSettings, *, by_partition: bool) -> None:
    """Refuse rows without a key or with an impossible partition."""
    require_keys(rows, table)
    if table.partition_by and by_partition:
        partition_column(rows, table)


class NewFiles:
    """New file groups of a task: the one open file, and the names of those to come."""

    def __init__(self, store: Store, request: TaskRequest, identity: TaskIdentity) -> None:
        self._store = store
        self._request = request
        self._identity = identity
        self._opened = 0
        self._encoding: Encoding | None = None
        self._partition = ""
        self._file: BaseFileWriter | None = None

    def write(self, partition: str, rows: pa.RecordBatch, keys: pa.Array) -> Iterator[TaskOutput]:
        """Write rows, into another file where the partition changes or the open one is full."""
        piece_bytes = max(1, self._request.write.max_file_bytes // _PIECES_PER_FILE)
        step = max(1, rows.num_rows * piece_bytes // max(rows.nbytes, 1))
        for start in range(0, rows.num_rows, step):
            piece = rows.slice(start, step)
            if self._file is not None and (
                partition != self._partition or not self._file.has_room_for(piece)
            ):
                yield from self.finish()
            if self._file is None:
                file_id = f"{self._identity.file_prefix}-{self._opened}"
                self._file = self._open(partition, file_id, rows)
            self._file.write(piece, keys.slice(start, step))

    def write_bucket(
        self, partition: str, bucket: int, rows: pa.Table, keys: pa.Array
    ) -> Iterator[TaskOutput]:
        """Write all rows of a bucket that has no file group yet, into one however large."""
        unique = str(uuid.uuid5(uuid.UUID(self._identity.file_prefix), str(self._opened)))
        self._file = self._open(partition, bucket_file_id(bucket, unique), rows.to_batches()[0])
        self._file.write_all(rows, keys)
        yield from self.finish()

    def write_all(self, partition: str, rows: pa.Table, keys: pa.Array) -> Iterator[TaskOutput]:
        """Write the rows into file groups of their own."""
        written = 0
        for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
            yield from self.write(partition, batch, keys.slice(written, batch.num_rows))
            written += batch.num_rows
        yield from self.finish()

    def finish(self) -> Iterator[TaskOutput]:
        if self._file is None:
            return
        stat, self._file = self._file.close(), None
        withdraw_if_late(self._store, self._request, stat)
        yield TaskOutput(stat=stat)

    def discard(self, error: BaseException) -> None:
        if self._file is not None:
            self._file.discard(error)

    def _open(self, partition: str, file_id: str, sample: pa.RecordBatch) -> BaseFileWriter:
        request = self._request
        if self._encoding is None:
            self._encoding = encoding_for(request, sample, so_far=_all_but_keys(request))
        name = BaseFileName(file_id, self._identity.write_token, request.instant)
        self._opened += 1
        self._partition = partition
        leave_marker(self._store, request.instant, in_partition(partition, str(name)))
        return BaseFileWriter(self._store, name, partition, self._encoding)


def withdraw_if_late(store: Store, request: TaskRequest, stat: WriteStat) -> None:
    """Remove a finished file again if the write was decided while it was being written.

    This attempt has not reported the file, so no commit names it; left
    behind, it would be taken for data of the instant by every reader.
    """
    instant, action = request.instant, request.action
    is_running = store.stat(instant_file(instant, action, State.INFLIGHT)) is not None
    is_completed = store.stat(instant_file(instant, action, State.COMPLETED)) is not None
    if is_completed or not is_running:
        assert stat.path is not None
        store.delete(stat.path)
        raise Fenced("the write was decided while this task still wrote", instant=instant)


def require_keys(rows: pa.RecordBatch | pa.Table, table: TableSettings) -> pa.StringArray:
    """The record keys; `InvalidRequest` shows a row that has none."""
    columns = [(name, _whole(rows.column(name))) for name in table.record_key]
    bad_row = find_bad_key(columns)
    if bad_row is not None:
        raise InvalidRequest(
            "a record has no key",
            columns=", ".join(table.record_key),
            record=dict(zip(rows.schema.names, (str(c[bad_row].as_py()) for c in rows.columns), strict=True)),
            hint="every record needs a key that is neither null nor empty",
        )
    return record_keys(columns, complex_form=table.has_complex_keys)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _runs(rows: pa.RecordBatch, table: TableSettings) -> Iterator[tuple[str, int, int]]:
    """Stretches of rows with one partition path: path, first row, number of rows."""
    if rows.num_rows == 0:
        return
    if not table.partition_by:
        yield "", 0, rows.num_rows
        return
    paths = partition_column(rows, table)
    codes = paths.indices.to_numpy()
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    ends = np.append(starts[1:], len(codes))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield paths.dictionary[int(codes[start])].as_py(), start, end - start


def encoding_for(
    request: TaskRequest, sample: pa.Table | pa.RecordBatch, *, so_far: Sequence[str]
) -> Encoding:
    """How files of the write are encoded, judged by some of their rows.

    Too few rows do not tell which columns repeat; then it is `so_far`.
    """
    return Encoding(
        schema=request.schema,
        field_ids=request.field_ids,
        table_name=request.table.name,
        compression=request.write.compression,
        bloom_error_rate=request.write.bloom_error_rate,
        max_file_bytes=request.write.max_file_bytes,
        dictionary_columns=tuple(so_far if sample.num_rows < _MIN_SAMPLE_ROWS else repeating_columns(sample)),
    )


def _all_but_keys(request: TaskRequest) -> list[str]:
    leaves = [leaf for field in request.schema for leaf in leaf_columns(field.name, field.type)]
    return [path for path, _ in leaves if path not in request.table.record_key]
