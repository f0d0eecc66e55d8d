"""Ends that go on after the call that asked for them.

A push of many segments may wait long until all of them are online. A job lives
in the process that began it and is forgotten with it; what became of the push
is in the lineage, and ending it again is safe.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.errors import HoldfastError
from holdfast.push.calls import PublishResult
from holdfast.server.errors import TooMany, code_of, public_text

log = logging.getLogger(__name__)

_KEPT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EndJob:
    id: str
    table: str
    entry_id: str
    state: str = "RUNNING"
    """Or DONE, or FAILED."""
    epoch: int | None = None
    error: str = ""
    error_code: str = ""
    actor: str = ""
    """Who asked for it."""


class EndJobs:
    """The ends that run and the latest that are over. Safe for many threads."""

    def __init__(self, *, most: int = 64, share: int | None = None) -> None:
        """At most `most` run at a time, and at most `share` of one user."""
        self._most = most
        self._share = most if share is None else share
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, EndJob] = OrderedDict()

    def begin(self, job: EndJob, end: Callable[[], PublishResult]) -> EndJob:
        """Run the end in the background; the job that already does, if there is one."""
        with self._lock:
            for known in self._jobs.values():
                if (known.table, known.entry_id, known.state) == (job.table, job.entry_id, "RUNNING"):
                    return known
            running = [one.actor for one in self._jobs.values() if one.state == "RUNNING"]
            if len(running) >= self._most or running.count(job.actor) >= self._share:
                raise TooMany("too many ends at a time", code="TOO_MANY_AT_ONCE", hint="wait for some")
            self._jobs[job.id] = job
            while len(self._jobs) > _KEPT:
                del self._jobs[next(one.id for one in self._jobs.values() if one.state != "RUNNING")]
        threading.Thread(target=self._run, args=(job, end), name="holdfast-end", daemon=True).start()
        return job

    def find(self, job_id: str) -> EndJob | None:
        with self._lock:
            return self._jobs.get(job_id)

    def _run(self, job: EndJob, end: Callable[[], PublishResult]) -> None:
        try:
            ended = replace(job, state="DONE", epoch=end().epoch)
        except HoldfastError as error:
            ended = replace(job, state="FAILED", error=public_text(error), error_code=code_of(error))
        except Exception:  # no caller waits for it
            log.exception("end.failed", extra={"table": job.table, "entry": job.entry_id})
            ended = replace(job, state="FAILED", error="the end failed", error_code="INTERNAL")
        with self._lock:
            self._jobs[job.id] = ended
