"""Streams that change a table: what Spark's `foreachBatch` is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.config.choices import Operation
from holdfast.errors import InvalidRequest
from holdfast.lake import Table, open_table, write_rows
from holdfast.table.streamed import Batch, read_batch, refuse_other_stream
from holdfast.writes.origin import Origin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STREAM_ID = "sql.streaming.queryId"


def stream(
    table: Table | str,
    *,
    operation: str = "upsert",
    query: str,
    checkpoint: str = "",
    options: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that commits each batch once, whatever happens to the stream.

    `operation` is a verb that takes rows, `query` the name under which the batches are numbered: one
    for each checkpoint. With `checkpoint`, the `checkpointLocation` of the query, commits keep what
    their batch was read from, so that `holdfast undo --replay` can have it read again.
    """
    wanted = Operation(operation) if operation in tuple(Operation) else None
    if wanted is None or wanted is Operation.DELETE_PARTITION:
        raise InvalidRequest("a stream cannot do this", operation=operation, hint="such as upsert or delete")
    if not query:
        raise InvalidRequest("a stream needs a name", hint="query=..., by which its batches are numbered")
    target = open_table(table) if isinstance(table, str) else table

    def write_batch(rows: DataFrame, number: int) -> None:
        batch = Batch(
            query=query, number=number, stream_id=_stream_id(rows), checkpoint=checkpoint
        ).with_offsets()
        commit = write_rows(
            target,
            wanted,
            rows,
            options=options,
            idempotency=(query, number),
            origin=Origin(extra_metadata=batch.extra_metadata()),
        )
        if commit.repeated:
            found = read_batch(target._opened, commit.instant, commit.action)
            refuse_other_stream(found, batch, commit.instant)

    return write_batch


def _stream_id(rows: DataFrame) -> str:
    """Spark's id of the query, which lives as long as its checkpoint; empty where Spark does not tell."""
    context = getattr(getattr(rows, "sparkSession", None), "_sc", None)
    return "" if context is None else context.getLocalProperty(_STREAM_ID) or ""
