"""How far Spark has got with the stages that run."""

from typing import Any

from pyspark.sql import SparkSession


def task_counts(session: SparkSession) -> tuple[int, int]:
    """Tasks that are done, and how many there are, of the stages that run; (0, 0) if nobody can tell."""
    # A session of Spark Connect has no context.
    context: Any = getattr(session, "_sc", None)
    if context is None:
        return 0, 0
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
