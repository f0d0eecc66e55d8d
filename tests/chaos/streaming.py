"""A Spark application that is killed: two streams between tables, one that appends and one that mirrors.

    streaming.py FOLDER run|finish

With `run` it goes on until somebody kills it; with `finish` it reads what is left, and ends.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

import holdfast
import holdfast.spark
from holdfast.engines.spark.session import local_session

EVENTS, COPY, STATE, MIRROR = "events", "copy", "state", "mirror"


def main(folder: Path, *, to_the_end: bool) -> None:
    session = local_session("chaos", master="local[2]")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    holdfast.spark.install(session)
    queries = [_append(session, folder, to_the_end), _mirror(session, folder, to_the_end)]
    (folder / "started").touch()
    for query in queries:
        query.awaitTermination()


def _append(session: SparkSession, folder: Path, to_the_end: bool) -> StreamingQuery:
    events = session.readStream.format("holdfast").option("query", "copy").load(str(folder / EVENTS))
    writer = events.writeStream.format("holdfast").option("query", "copy").option("path", str(folder / COPY))
    return _start(writer.option("checkpointLocation", str(folder / "checkpoint-copy")), to_the_end)


def _mirror(session: SparkSession, folder: Path, to_the_end: bool) -> StreamingQuery:
    reader = session.readStream.format("holdfast").option("query", "mirror").option("deletes", "true")
    checkpoint = str(folder / "checkpoint-mirror")
    write = holdfast.stream(str(folder / MIRROR), query="mirror", checkpoint=checkpoint)

    def apply(batch: DataFrame, number: int) -> None:
        kind = f.col("_change_type")
        changed = batch.where(kind != "update_before").withColumn("_hoodie_is_deleted", kind == "delete")
        write(changed.drop("_change_type", "_hoodie_commit_time"), number)

    writer = reader.load(str(folder / STATE)).writeStream.foreachBatch(apply)
    return _start(writer.option("checkpointLocation", checkpoint), to_the_end)


def _start(writer, to_the_end: bool) -> StreamingQuery:
    trigger = {"availableNow": True} if to_the_end else {"processingTime": "300 milliseconds"}
    return writer.trigger(**trigger).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]), to_the_end=sys.argv[2] == "finish")
