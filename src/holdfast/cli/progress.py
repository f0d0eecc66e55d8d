"""Progress of long work, on standard error, if somebody looks at it there."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_STANDARD_ERROR = 2


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """A line that moves while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    # Loaded here because it is not shown in a pipe.
    from rich.console import Console

    with _terminal() as terminal, Console(file=terminal).status(text):
        yield


@contextmanager
def stage_bars() -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar for each stage that is announced while the block runs; None where it would not be seen."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with _terminal() as terminal:
        bars = Progress(
            *columns, console=Console(file=terminal), redirect_stdout=False, redirect_stderr=False
        )
        stages = _Bars(bars)
        with bars:
            yield stages.announce
            stages.finish()


class _Bars:
    """One bar per stage, in the order in which they begin. A new one ends those before it."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def announce(self, stage: str, done: int, total: int) -> None:
        if stage not in self._bars:
            self.finish()
            self._bars[stage] = self._progress.add_task(stage, total=None)
        if total:
            self._progress.update(self._bars[stage], completed=done, total=total)

    def finish(self) -> None:
        """Show every bar at its end, whatever it counted last."""
        for task in self._progress.tasks:
            total = task.total or 1
            self._progress.update(task.id, total=total, completed=total)


@contextmanager
def _terminal() -> Iterator[TextIO]:
    """A way to the terminal of its own: Spark's output is led elsewhere while it starts."""
    with os.fdopen(os.dup(_STANDARD_ERROR), "w") as terminal:
        yield terminal
