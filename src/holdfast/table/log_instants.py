"""Which blocks of log files count: those of writes that a snapshot knows.

A log file says of each block which write left it, and nothing of what became
of that write. A value of this travels to the tasks that read the files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from holdfast.model.instant import InstantTime, end_of
from holdfast.table.undone import Undone


class WrittenLog(NamedTuple):
    size: int
    """How long the file is at least."""
    commit: InstantTime
    """The newest that wrote to it."""


@dataclass(frozen=True)
class LogInstants:
    completed: frozenset[str]
    """The commits of the timeline up to the moment of the snapshot."""
    first: InstantTime | None
    """Older writes were committed and archived ..."""
    undone: frozenset[str] = frozenset()
    """... but for these, which are still pending or were rolled back."""
    stretches: Undone = field(default_factory=Undone)
    """When older writes were taken back so long ago that the timeline tells of it no more."""
    as_of: InstantTime | None = None
    written: Mapping[str, "WrittenLog"] = field(default_factory=dict)
    """What commits of the timeline say of log files."""

    def only(self, logs: Iterable[str]) -> Self:
        """The same, with what commits say of these log files alone."""
        return replace(self, written={path: self.written[path] for path in logs if path in self.written})

    def counts(self, instant: str) -> bool:
        """Whether the blocks of that write are part of the snapshot."""
        if instant in self.completed:
            return True
        if self.first is None or not instant.isdigit() or instant in self.undone:
            return False
        time = end_of(InstantTime(instant))
        if time >= end_of(self.first) or (self.as_of is not None and time > end_of(self.as_of)):
            return False
        return not self.stretches.covers(np.array([int(time)])).any()
