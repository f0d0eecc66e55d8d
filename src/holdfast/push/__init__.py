"""Push: tables that queries see only whole.

`run_job` is the door for programs; everything else is the service behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.config.push_job import PushJob
    from holdfast.jobs.reports import PushReport
    from holdfast.model.arrow_stream import ArrowStream

__all__ = ["run_job"]


def run_job(
    spec: str | os.PathLike[str] | Mapping[str, Any] | PushJob,
    spark: SparkSession | None = None,
    *,
    frame: DataFrame | ArrowStream | None = None,
) -> PushReport:
    """Push rows to a table of the push service: by a job file, a mapping or a `PushJob`.

    Relative paths of a mapping are relative to the current folder. `frame`, a
    Spark DataFrame or whatever offers its rows as an Arrow stream, takes the place of the job's input.
    Without a session one is started here, unless the rows are in memory.
    """
    # Jobs stand above this package; only this door leads up, and only when it is used.
    from holdfast.jobs.push.run import push_job_of, run_push_job

    return run_push_job(push_job_of(spec), spark=spark, frame=frame)
