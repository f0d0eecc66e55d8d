"""The Spark session of a job that was not given one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_session(app_name: str, master: str = "local[*]") -> SparkSession:
    """The session of this process, started if there is none. Times without a zone are UTC in it."""
    # Loaded here because Spark is large, and most commands never need it.
    try:
        from holdfast.engines.spark.session import session_at
    except ModuleNotFoundError as error:
        hint = "pip install 'holdfast[spark]'"
        raise InvalidRequest("Spark is not installed", missing=error.name, hint=hint) from error
    session = session_at(app_name, master)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session
