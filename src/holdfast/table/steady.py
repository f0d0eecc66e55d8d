"""Reading while others write: commits may be taken back between two looks at a table."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import TableDamaged
from holdfast.storage.store import Store
from holdfast.timeline.timeline import Timeline, load_timeline

T = TypeVar("T")

_ATTEMPTS = 5


def read_steadily(store: Store, read: Callable[[Timeline], T]) -> T:
    """What `read` finds on the timeline; it looks again if a commit it relied on was taken back meanwhile.

    What is missing although its commit stands is damage.
    """
    timeline = load_timeline(store)
    for _ in range(_ATTEMPTS):
        try:
            return read(timeline)
        except TableDamaged:
            now = load_timeline(store)
            if set(timeline.completed_commits) <= set(now.completed_commits):
                raise
            timeline = now
    return read(timeline)
