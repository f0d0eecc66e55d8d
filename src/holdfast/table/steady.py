"""Reading while others write: commits may be taken back, and files cleaned, between two looks at a table."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import SnapshotExpired, TableDamaged
from holdfast.model.instant import Instant
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import read_settings
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

T = TypeVar("T")

_ATTEMPTS = 100
"""Each follows a change of the timeline. Archiving takes commits away one by one, and many at a time."""


def timeline_and_ledger(table: OpenTable) -> tuple[Timeline, LedgerState]:
    """Both as they are now; whatever the timeline shows is decided in the ledger."""
    # Read before the timeline, too: no checkpoint can then hide the outcome of an instant seen pending.
    table.ledger.read()
    timeline = _current(table.store)
    return timeline, table.ledger.read()


def read_steadily(store: Store, read: Callable[[Timeline], T]) -> T:
    """What `read` finds on the timeline; it looks again if what it relied on is gone meanwhile.

    What is missing although its commit stands, and no clean explains it, is damage.
    """
    timeline = _current(store)
    for _ in range(_ATTEMPTS):
        try:
            return read(timeline)
        except (SnapshotExpired, TableDamaged) as error:
            now = _current(store)
            if isinstance(error, SnapshotExpired):
                # A clean follows newer commits.
                is_steady = timeline.completed_commits == now.completed_commits
            else:
                # Nothing goes because something was added. Rollbacks and the like are archived, too.
                is_steady = _completed(timeline) <= _completed(now)
            if is_steady:
                raise
            timeline = now
    return read(timeline)


def has_shrunk(store: Store, timeline: Timeline) -> bool:
    """Whether something that was completed then has left the timeline since."""
    return not _completed(timeline) <= _completed(_current(store))


def _completed(timeline: Timeline) -> set[Instant]:
    return {instant for instant in timeline.instants if instant.is_completed}


def _current(store: Store) -> Timeline:
    """The timeline. `UnsupportedTable` if the table was upgraded since it was opened.

    Hudi then keeps the timeline elsewhere, and what is left here would be
    taken for that of an empty table.
    """
    timeline = load_timeline(store)
    if not timeline.instants:
        read_settings(store)
    return timeline
