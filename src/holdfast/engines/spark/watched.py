"""A Spark session that is watched, and replaced if it does not answer.

One statement can take the engine from everybody: a task whose regular
expression never ends holds a core however often its job is cancelled, and one
that fills the heap ends the JVM. So a look asks the JVM something that needs
no core, and what is left of each query that was stopped or that failed. A JVM
of ours that does not answer, or in which such a query goes on, is ended and
started anew. One that is only busy is left alone: its queries have deadlines.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from holdfast.engines.spark.jobs import Jobs
from holdfast.push.queries.failures import QueryError, QueryFailed

log = logging.getLogger(__name__)

Found = TypeVar("Found")

_PATIENCE_S = 10.0
_PATIENCES_WITHOUT_TASKS = 6
_LOOK_AGAIN_S = 5.0
_REMAINS_EVERY_S = 0.5
_TOLD_LATE_S = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Remains:
    """A query that was stopped or that failed, and of which something may still run."""

    session: SparkSession
    jobs: Jobs
    thread: threading.Thread
    since_s: float


class WatchedSession:
    """Every method may be called from any thread, and only the constructor and `close` wait for Spark."""

    def __init__(
        self,
        start: Callable[[], SparkSession],
        *,
        end: Callable[[], None] | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """`end` ends the JVM that `start` started; without it the session is only watched.

        `patience_s`: how long an answer may take, and a task of a query that was stopped.
        """
        self._start = start
        self._end = end
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._session: SparkSession | None = start()
        self._remains: list[_Remains] = []
        self._is_answering = True
        self._is_closed = False
        self._looked_at = time.monotonic()
        self._look: threading.Thread | None = None
        self._asking: dict[str, threading.Thread] = {}

    @property
    def session(self) -> SparkSession:
        session = self._session
        if session is None:
            raise QueryFailed(
                QueryError.QUERY_EXECUTION, "the query engine did not answer and is started anew; try again"
            )
        return session

    def is_well(self) -> bool:
        """Whether the last look found it well."""
        if time.monotonic() - self._looked_at > _LOOK_AGAIN_S:
            self.look()
        return self._is_answering and self._session is not None

    def look(self) -> None:
        """Find out, in a thread of its own, whether it answers, and replace it if it does not."""
        with self._lock:
            self._look_in_a_thread()

    def see_off(self, session: SparkSession, jobs: Jobs, thread: threading.Thread) -> None:
        """Look, and go on until nothing is at work for a query that was stopped or that failed.

        `jobs` are in a group; `thread` waits for them.
        """
        with self._lock:
            self._remains.append(_Remains(session, jobs, thread, time.monotonic()))
            self._look_in_a_thread()

    def close(self) -> None:
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def _look_in_a_thread(self) -> None:
        if self._look is None and not self._is_closed:
            self._looked_at = time.monotonic()
            self._look = threading.Thread(target=self._look_after, name="spark-watch", daemon=True)
            self._look.start()

    def _look_after(self) -> None:
        while True:
            try:
                self._look_once()
            except Exception:
                log.exception("engine.not_restarted")  # The next look tries again.
            with self._lock:
                self._looked_at = time.monotonic()
                if not self._remains or self._is_closed:
                    self._look = None
                    return
            time.sleep(_REMAINS_EVERY_S)

    def _look_once(self) -> None:
        session = self._session
        trouble = "there is none" if session is None else self._trouble(session)
        if self._is_closed:
            return
        self._is_answering = not trouble
        if trouble and self._end is not None:
            log.error("engine.restarted", extra={"cause": trouble})
            self._session = None
            self._asking.clear()
            self._end()
            self._session = self._start()
            self._is_answering = True
            if self._is_closed:
                self.close()

    def _trouble(self, session: SparkSession) -> str:
        """Why it has to be ended, if it has to."""
        if not self._call_in_time("whether it is up", partial(_is_up, session)):
            return "the JVM does not answer"
        with self._lock:
            # A JVM that is gone took with it what ran there.
            self._remains = [one for one in self._remains if one.session is session]
            remains = list(self._remains)
        for one in remains:
            tasks = self._call_in_time("tasks", partial(_tasks_left, session, one.jobs))
            waited_s = time.monotonic() - one.since_s
            is_over = tasks == 0 and not one.thread.is_alive() and waited_s >= _TOLD_LATE_S
            # Work of the driver alone, as planning, takes a core of nobody.
            patience_s = self._patience_s * (1 if tasks else _PATIENCES_WITHOUT_TASKS)
            if not is_over and waited_s < patience_s:
                continue
            with self._lock:
                self._remains.remove(one)
            if not is_over and self._end is not None:
                return "a query that was stopped goes on"
            if not is_over:
                log.warning("engine.query_goes_on", extra={"tasks": tasks})
        return ""

    def _call_in_time(self, about: str, ask: Callable[[], Found]) -> Found | None:
        """The answer; None if it is an error or late, and until the last one about the same has come."""
        found: list[Found] = []

        def work() -> None:
            try:
                found.append(ask())
            except Exception as error:  # noqa: BLE001  # whatever it is, it is no answer
                log.warning("engine.no_answer", extra={"about": about, "cause": type(error).__name__})

        until = time.monotonic() + self._patience_s
        before = self._asking.get(about)
        if before is not None:
            before.join(self._patience_s)
            if before.is_alive():
                return None
        thread = self._asking[about] = threading.Thread(target=work, name="spark-probe", daemon=True)
        thread.start()
        thread.join(max(0.0, until - time.monotonic()))
        return found[0] if found else None


def _is_up(session: SparkSession) -> bool:
    """Whether it says that it is: a question that needs no task, so that those of others cannot delay it."""
    context: Any = getattr(session, "_sc", None)
    if context is None:  # Spark Connect
        return bool(session.version)
    return not context._jsc.sc().isStopped()


def _tasks_left(session: SparkSession, jobs: Jobs) -> int:
    jobs.cancel(session)  # Once more: a job that was being planned was missed.
    return jobs.tasks_at_work(session)
