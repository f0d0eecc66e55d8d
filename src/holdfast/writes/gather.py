"""Gathering: the rows of one bundle, from a stream in which the rows of a bundle stand together.

A bundle holds all rows that may meet in a file group. Large ones wait on local
disk and are mapped into memory, so what a task holds does not grow with them.
"""

import mmap
import tempfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BUNDLE = "_holdfast_bundle"
"""The column that says which bundle a row is of."""

_HELD_BYTES = 256 * 1024 * 1024


def bundles(batches: Iterable[pa.RecordBatch], *, held_bytes: int = _HELD_BYTES) -> Iterator[pa.Table]:
    """The rows of one bundle after the other, without the column `BUNDLE`."""
    buffer: _BundleBuffer | None = None
    current: int | None = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            numbers = batch.column(BUNDLE).to_numpy()
            rows = batch.drop_columns([BUNDLE])
            starts: npt.NDArray[np.int64] = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
            for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
                if numbers[start] != current:
                    if buffer is not None:
                        yield buffer.rows()
                        buffer.close()
                    buffer, current = _BundleBuffer(held_bytes), int(numbers[start])
                assert buffer is not None, "a bundle has begun"
                buffer.add(rows.slice(start, end - start))
        if buffer is not None:
            yield buffer.rows()
    finally:
        if buffer is not None:
            buffer.close()


class _BundleBuffer:
    """Batches that wait for the rest of their bundle."""

    def __init__(self, held_bytes: int) -> None:
        self._held_bytes = held_bytes
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        # Without a name, so that a process that is killed leaves nothing on the disk.
        self._file: BinaryIO | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > self._held_bytes:
            self._spill()

    def rows(self) -> pa.Table:
        if self._file is None or self._writer is None:
            rows, self._batches = pa.Table.from_batches(self._batches), []
            return rows.combine_chunks()  # Once, because rows are picked again and again from it.
        self._spill()
        self._writer.close()
        self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self) -> None:
        if self._writer is None:
            self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 closed by `close`
            self._writer = pa.ipc.new_file(self._file, self._batches[0].schema)
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches, self._bytes = [], 0
