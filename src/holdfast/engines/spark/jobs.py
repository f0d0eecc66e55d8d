"""The Spark jobs of one write: cancelling them, and how far they are."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import pyspark
from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from holdfast.writes.rows import Cancellation

Result = TypeVar("Result")

_GROUP = "spark.jobGroup.id"
_SUCCEEDED = "SUCCEEDED"


class Jobs:
    """Jobs that carry one tag, by which any thread can cancel them and no others."""

    def __init__(self) -> None:
        self._tag = f"holdfast-{uuid.uuid4().hex}"
        self._cancellation = Cancellation()
        self._succeeded: set[int] = set()

    @contextmanager
    def cancellable(self, session: SparkSession) -> Iterator[None]:
        """Tag the jobs that this thread starts in the block. `Fenced` if they are cancelled already."""
        self._cancellation.refuse_if_cancelled()
        add, remove, _ = _tagging(session)
        add(self._tag)
        try:
            yield
        finally:
            remove(self._tag)

    @contextmanager
    def in_group(self, session: SparkSession) -> Iterator[None]:
        """Put the jobs that this thread starts in the block into a group, for `tasks_at_work`."""
        context: Any = getattr(session, "_sc", None)
        if context is None:  # A server of Spark Connect tells nothing about its tasks.
            yield
            return
        before = context.getLocalProperty(_GROUP)
        context.setLocalProperty(_GROUP, self._tag)
        try:
            yield
        finally:
            context.setLocalProperty(_GROUP, before)

    def tasks_at_work(self, session: SparkSession) -> int:
        """How many tasks of the jobs in the group run, also of jobs that ended when they were cancelled."""
        context: Any = getattr(session, "_sc", None)
        if context is None:
            return 0
        tracker = context.statusTracker()
        stages: list[Any] = []
        for number in tracker.getJobIdsForGroup(self._tag):
            job = None if number in self._succeeded else tracker.getJobInfo(number)
            if job is not None and job.status == _SUCCEEDED:
                self._succeeded.add(number)  # A query may have thousands, and each takes a few questions.
            elif job is not None:
                stages += map(tracker.getStageInfo, job.stageIds)
        return sum(one.numActiveTasks for one in stages if one is not None)

    def cancel(self, session: SparkSession) -> None:
        """Cancel what runs, and let nothing more begin.

        A job that is being planned at this moment is missed; call again.
        """
        self._cancellation.cancel()
        _, _, cancel = _tagging(session)
        cancel(self._tag)


def inheriting(session: SparkSession, act: Callable[[], Result]) -> Callable[[], Result]:
    """The act for another thread, with the job group, the scheduler pool and the tags of this one.

    Spark Connect before Spark 4 passes nothing on.
    """
    if pyspark.__version__ < "4":
        has_context = getattr(session, "_sc", None) is not None
        return cast("Callable[[], Result]", inheritable_thread_target(act)) if has_context else act
    passing_on: Any = inheritable_thread_target(session)
    # PySpark 4.0 gives the session back if its threads are none of the JVM's.
    return act if passing_on is session else cast("Callable[[], Result]", passing_on(act))


def task_counts(session: SparkSession) -> tuple[int, int]:
    """Tasks that are done, and how many there are, of the stages that run; (0, 0) if that is not known."""
    # A session of Spark Connect has no context.
    context: Any = getattr(session, "_sc", None)
    if context is None:
        return 0, 0
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


def _tagging(session: SparkSession) -> tuple[Callable[[str], object], ...]:
    """How to add a tag, remove it, and cancel the jobs that carry it."""
    # A session of Spark Connect has no context. Others can tag through the session only since Spark 4.
    context: Any = getattr(session, "_sc", None)
    if context is None:
        return session.addTag, session.removeTag, session.interruptTag
    return context.addJobTag, context.removeJobTag, context.cancelJobsWithTag
