"""The Spark jobs of one write, and cancelling them."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import pyspark
from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from holdfast.writes.rows import Cancellation

Result = TypeVar("Result")


class Jobs:
    """Jobs that carry one tag, by which any thread can cancel them and no others."""

    def __init__(self) -> None:
        self._tag = f"holdfast-{uuid.uuid4().hex}"
        self._cancellation = Cancellation()

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


def _tagging(session: SparkSession) -> tuple[Callable[[str], object], ...]:
    """How to add a tag, remove it, and cancel the jobs that carry it."""
    # A session of Spark Connect has no context. Others can tag through the session only since Spark 4.
    context: Any = getattr(session, "_sc", None)
    if context is None:
        return session.addTag, session.removeTag, session.interruptTag
    return context.addJobTag, context.removeJobTag, context.cancelJobsWithTag
