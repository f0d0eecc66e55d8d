"""Streams that append to a table: `writeStream.format("holdfast")`.

Spark makes the writer twice for each batch: in the process that ships it to
the tasks, and in the one that commits. Only the first may begin a write, and
it is the one that ships the writer; so the write begins then. Which batch it is
Spark tells with the commit alone. If that batch is committed already, what was
written is rolled back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from holdfast.config.choices import Operation
from holdfast.config.datasource import OPERATION, SourceWrite
from holdfast.config.streams import find_checkpoint, take_query
from holdfast.engines.spark.source_writer import SourceWriter, begin_write, roll_back_of_application
from holdfast.errors import InvalidRequest
from holdfast.storage.store import StoreLocation
from holdfast.table.streamed import Batch

STREAM_ID = "sql.streaming.queryId"
"""Spark's local property with the id of the query, which lives as long as its checkpoint."""


class StreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """Appends one batch; as an Arrow writer it is given batches of Arrow instead of rows."""

    def __init__(
        self, location: StoreLocation, given: Mapping[str, str], schema: spark.StructType, *, overwrite: bool
    ) -> None:
        if overwrite:
            raise InvalidRequest(
                "this door to Spark takes the rows that a stream appends",
                mode="complete",
                hint='use foreachBatch with holdfast.stream(table, operation="insert_overwrite_table")',
            )
        options = dict(given)
        self._checkpoint = find_checkpoint(options)
        self._query = take_query(options)
        if SourceWrite.from_options(options).operation is None:
            options[OPERATION] = Operation.BULK_INSERT
        self._location = location
        self._options = options
        self._schema = schema
        self._begun: SourceWriter | None = None

    def __getstate__(self) -> dict[str, object]:
        """What tasks get: Spark ships the writer from the process that begins the batch alone."""
        if self._begun is None:
            begun = begin_write(self._location, self._options, self._schema, overwrite=False)
            assert isinstance(begun, SourceWriter), "a write without a number repeats none"
            self._begun = begun
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        assert self._begun is not None, "a writer that was shipped has begun"
        context = TaskContext.get()
        stream_id = None if context is None else context.getLocalProperty(STREAM_ID)
        return _Shipped(self._begun.write(iterator), self._begun, stream_id or "")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803 Spark's name
        """Decide and publish what the tasks wrote, unless the batch is committed already."""
        shipped = [message for message in messages if isinstance(message, _Shipped)]
        if not shipped:
            self._roll_back()
            return
        first = shipped[0]
        query = self._query or first.stream_id
        if not query:
            raise InvalidRequest(
                "the stream has no name, and Spark did not tell which it is",
                hint='name it with option("query", ...): its batches are counted by this name',
            )
        batch = Batch(
            query=query, number=batchId, stream_id=first.stream_id, checkpoint=self._checkpoint
        ).with_offsets()
        first.writer.commit_batch([each.written for each in shipped], batch)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803 Spark's name
        """Roll the write back, unless it is decided."""
        shipped = [message for message in messages if isinstance(message, _Shipped)]
        if shipped:
            shipped[0].writer.abort([])
        else:
            self._roll_back()

    def _roll_back(self) -> None:
        """Without a task nobody tells under which instant the write began."""
        roll_back_of_application(self._location)


@dataclass(frozen=True)
class _Shipped(WriterCommitMessage):
    """What one task did, and the write that it is part of."""

    written: WriterCommitMessage
    writer: SourceWriter
    stream_id: str
