"""Tasks: actions that take longer than a page, in threads, and how far they are.

They live in the memory of this process. What a task began and a death cut
short is finished by the next write, or by the same action again, as everywhere.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.server.errors import TooMany, public_text
from holdfast.services.documents import Document

log = logging.getLogger(__name__)

_RUNNING_MAX = 8
_KEPT = 200

Progress = Callable[[int, int], None]


class TaskState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class Task:
    id: str
    what: str
    table: str
    actor: str
    command: str
    """The command line that does the same."""
    began_ms: int
    state: TaskState = TaskState.RUNNING
    done: int = 0
    total: int = 0
    took_ms: int = 0
    report: Document = field(default_factory=Document)
    error: str = ""


class Tasks:
    """Safe for many threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._lock = threading.Lock()

    def start(
        self, what: str, *, table: str, actor: str, command: str, act: Callable[[Progress], Document]
    ) -> Task:
        """Begin an action. `TooMany` if too many others run, or one on the same table."""
        task = Task(
            id=self._clock.unique(), what=what, table=table, actor=actor, command=command,
            began_ms=self._clock.monotonic_ms(),
        )  # fmt: skip
        with self._lock:
            running = [one for one in self._tasks.values() if one.state is TaskState.RUNNING]
            if any(one.table == table for one in running):
                raise TooMany("an action on this table is under way", table=table, code="TASK_RUNNING")
            if len(running) >= _RUNNING_MAX:
                raise TooMany("too many actions are under way", code="TOO_MANY_AT_ONCE")
            self._tasks[task.id] = task
            while len(self._tasks) > _KEPT:
                oldest = next(one.id for one in self._tasks.values() if one.state is not TaskState.RUNNING)
                del self._tasks[oldest]
        # Not a daemon's: a service that stops lets it come to its end.
        threading.Thread(target=self._run, args=(task, act), name=f"holdfast-task-{task.id}").start()
        return task

    def find(self, task_id: str) -> Task | None:
        with self._lock:
            return self._tasks.get(task_id)

    def fields(self, task: Task) -> dict[str, Any]:
        """What is known of it by now."""
        is_running = task.state is TaskState.RUNNING
        return {
            "id": task.id, "what": task.what, "table": task.table, "actor": task.actor,
            "command": task.command, "state": task.state.value, "done": task.done, "total": task.total,
            "took_ms": self._clock.monotonic_ms() - task.began_ms if is_running else task.took_ms,
            "report": task.report.fields, "error": task.error,
        }  # fmt: skip

    def _run(self, task: Task, act: Callable[[Progress], Document]) -> None:
        def progress(done: int, total: int) -> None:
            task.done, task.total = done, total

        try:
            task.report = act(progress)
            state = TaskState.DONE
        except HoldfastError as error:
            notes = getattr(error, "__notes__", [])
            task.error = "; ".join([public_text(error), *notes])
            state = TaskState.FAILED
            log.warning("console.failed", extra={"task": task.id, "table": task.table, "cause": str(error)})
        except Exception:  # the outermost frame of this thread
            task.error = "internal error; the log tells more under the task's id"
            state = TaskState.FAILED
            log.exception("console.failed", extra={"task": task.id, "table": task.table})
        task.took_ms = self._clock.monotonic_ms() - task.began_ms
        task.state = state
        log.info(
            "console.acted",
            extra={
                "task": task.id, "what": task.what, "table": task.table, "actor": task.actor,
                "state": state.value, "took_ms": task.took_ms,
            },
        )  # fmt: skip
