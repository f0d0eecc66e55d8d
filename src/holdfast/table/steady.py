"""Reading while others write: commits may be taken back, and files cleaned, between two looks at a table."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import SnapshotExpired, TableDamaged
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
            then_seen, now_seen = set(timeline.completed_commits), set(now.completed_commits)
            # A clean follows newer commits; nobody takes back a commit by adding one.
            is_steady = then_seen == now_seen if isinstance(error, SnapshotExpired) else then_seen <= now_seen
            if is_steady:
                raise
            timeline = now
    return read(timeline)


def _current(store: Store) -> Timeline:
    """The timeline. `UnsupportedTable` if the table was upgraded since it was opened.

    Hudi then keeps the timeline elsewhere, and what is left here would be
    taken for that of an empty table.
    """
    timeline = load_timeline(store)
    if not timeline.instants:
        read_settings(store)
    return timeline
