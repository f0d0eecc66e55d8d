"""Holdfast tables in Spark's own words: `spark.read.format("holdfast")` and its counterpart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["install"]


def install(spark: SparkSession) -> None:
    """Teach the session the format `holdfast`, for reading and for appending or overwriting.

    No setting of the session is changed. `InvalidRequest` before PySpark 4.0,
    which has no Python data sources.
    """
    if not hasattr(spark, "dataSource"):
        raise InvalidRequest(
            "this PySpark has no Python data sources",
            version=spark.version,
            hint="use PySpark 4.0 or newer, or table.read(spark) and holdfast.write(df, path, options)",
        )
    # Loaded here because PySpark 3.5 does not have what it imports.
    from holdfast.engines.spark.source import register

    register(spark)
