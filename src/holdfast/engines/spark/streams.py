"""Structured Streaming: everything that a source has now, in micro-batches."""

import threading
from collections.abc import Callable, Mapping

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from holdfast.engines.spark.inputs import FAILURES, spark_uri, strict_options, unreadable
from holdfast.engines.spark.session import setting_for_now
from holdfast.errors import InvalidRequest

OnBatch = Callable[[DataFrame, str, int], None]
"""Is given the rows, the query's id, which lives as long as its checkpoint, and the number of the batch."""

_INFERENCE = "spark.sql.streaming.schemaInference"


def run_stream(
    session: SparkSession,
    on_batch: OnBatch,
    *,
    file_format: str,
    options: Mapping[str, str],
    path: str,
    schema: StructType | str | None,
    checkpoint: str,
) -> None:
    """Hand over every batch that is there, oldest first, and return.

    A batch that was handed over and not noted in the checkpoint comes again,
    with the same rows and the same number. What `on_batch` raises is raised here.
    """
    if getattr(session, "_sc", None) is None:
        raise InvalidRequest(
            "a stream needs Spark's driver in this process", hint="use a Spark master, not Spark Connect"
        )
    # Streams of files ask for a schema unless they are allowed to look for it.
    with setting_for_now(session, _INFERENCE, "true", default="false"):
        frame = _stream(session, file_format, options, path, schema)
    started = threading.Event()
    ids: list[str] = []
    failures: list[Exception] = []

    def hand_over(batch: DataFrame, number: int) -> None:
        started.wait()
        try:
            on_batch(batch, ids[0], number)
        except Exception as error:
            # Spark would pass on its text only.
            failures.append(error)
            raise

    writer = frame.writeStream.foreachBatch(hand_over).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    ids.append(query.id)
    started.set()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise (failures[0] if failures else error) from error
    finally:
        query.stop()


def _stream(
    session: SparkSession,
    file_format: str,
    options: Mapping[str, str],
    path: str,
    schema: StructType | str | None,
) -> DataFrame:
    reader = session.readStream.format(file_format).options(**strict_options(file_format, options))
    if schema:
        reader = reader.schema(schema)
    try:
        return reader.load(spark_uri(path)) if path else reader.load()
    except FAILURES as error:
        raise unreadable(error, file_format) from error
