"""Stable reads: what is read while others write must hold together.

Commits may be taken back, and files cleaned, between two looks at a table.
So a read whose files are gone looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import SnapshotExpired, TableDamaged, TableNotFound, UnsupportedTable
from holdfast.model.instant import Instant
from holdfast.storage.store import Store
from holdfast.table.properties_file import read_settings
from holdfast.timeline.layout import layout_of
from holdfast.timeline.ledger import NO_SLOT, Committed, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

if TYPE_CHECKING:
    from holdfast.table.opened import OpenTable

T = TypeVar("T")

_ATTEMPTS = 100
"""Each follows a change of the timeline. Archiving takes commits away one by one, and many at a time."""


def timeline_and_ledger(table: OpenTable) -> tuple[Timeline, LedgerState]:
    """Both as they are now; whatever the timeline shows is decided in the ledger.

    A commit is shown only after it is decided. So one that the ledger has as begun, and the timeline
    as completed, was decided all the same: the ledger is older, as it can be in a copy.
    """
    # Read before the timeline, too: no checkpoint can then hide the outcome of an instant seen pending.
    table.ledger.read()
    try:
        timeline = _load_current(table.store)
    except TableNotFound:
        if not table.is_new:
            raise
        timeline = Timeline(())
    return timeline, _with_shown(timeline, table.ledger.read())


def _with_shown(timeline: Timeline, state: LedgerState) -> LedgerState:
    """The state, in which no commit that the timeline shows is undecided."""
    if not state.begun:
        return state
    shown = {
        i.time: Committed(i.action, NO_SLOT) for i in timeline.completed_commits if i.time in state.begun
    }
    if not shown:
        return state
    begun = {time: write for time, write in state.begun.items() if time not in shown}
    return replace(state, begun=begun, committed={**state.committed, **shown})


def read_stable(store: Store, read: Callable[[Timeline], T]) -> T:
    """What `read` finds on the timeline; it looks again if what it relied on is gone meanwhile.

    What is missing although its commit stands, and no clean explains it, is damage.
    """
    timeline = _load_current(store)
    for _ in range(_ATTEMPTS):
        try:
            return read(timeline)
        except (SnapshotExpired, TableDamaged) as error:
            now = _load_current(store)
            if isinstance(error, SnapshotExpired):
                # A clean follows newer commits.
                is_unchanged = timeline.completed_commits == now.completed_commits
            else:
                # Nothing goes because something was added. Rollbacks and the like are archived, too.
                is_unchanged = _set_of_completed(timeline) <= _set_of_completed(now)
            if is_unchanged:
                raise
            timeline = now
    return read(timeline)


def lost_completed_instants(store: Store, timeline: Timeline) -> bool:
    """Whether something that was completed then has left the timeline since."""
    return not _set_of_completed(timeline) <= _set_of_completed(_load_current(store))


def _set_of_completed(timeline: Timeline) -> set[Instant]:
    return {instant for instant in timeline.instants if instant.is_completed}


def _load_current(store: Store) -> Timeline:
    """The timeline. `UnsupportedTable` if the table was upgraded since it was opened.

    Hudi then keeps the timeline elsewhere, and what is left here would be
    taken for that of an empty table.
    """
    timeline = load_timeline(store)
    if not timeline.instants:
        settings = read_settings(store)
        if settings.is_read_only and not layout_of(store).has_completion_times:
            raise UnsupportedTable(
                "the table was upgraded since it was opened",
                version=settings.version,
                hint="open it again: it is read, and not written",
            )
    return timeline
