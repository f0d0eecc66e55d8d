"""Snapshot reads on Spark: its own Parquet scan over an explicit list of files.

The schema is given, so planning reads no footer. Every page is checked against its checksum.
"""

import re

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.engines.spark.types import spark_schema_of
from holdfast.read.snapshot import Snapshot, uris
from holdfast.storage.store import Store

_VERIFY_CHECKSUMS = "parquet.page.verify-checksum.enabled"
_GLOB_CHARACTERS = re.compile(r"([*?\[\]{}\\])")


def read_frame(session: SparkSession, store: Store, snapshot: Snapshot, schema: pa.Schema) -> DataFrame:
    wanted = spark_schema_of(schema)
    if not snapshot.paths:
        return session.createDataFrame([], wanted)
    # Spark takes every path for a pattern, so what a partition value contains is escaped.
    files = [_GLOB_CHARACTERS.sub(r"\\\1", _address(uri)) for uri in uris(store, snapshot.paths)]
    return session.read.schema(wanted).option(_VERIFY_CHECKSUMS, "true").parquet(*files)


def _address(uri: str) -> str:
    """A bare path would be looked up in the cluster's default file system."""
    return f"file://{uri}" if uri.startswith("/") else uri
