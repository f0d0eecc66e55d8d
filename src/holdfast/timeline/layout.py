"""Layouts of the timeline: where its files are, what their names say, and in which form.

Layout 1, of table version 6, is what this program writes. Layout 2, of
versions 8 and 9, is only read: `ReadOnlyStore` shows it as if it were layout
1, so that nothing above has to know of it. Where the two mean different things
by a name, the layout itself is asked: `layout_of(store)`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from holdfast.model.instant import Instant, InstantTime, State
from holdfast.model.names import META_FOLDER, parse_instant_file
from holdfast.storage.store import Store

if TYPE_CHECKING:
    from holdfast.timeline.archived import ArchivedTimeline


class TimelineLayout(Protocol):
    has_completion_times: bool
    """Whether instants say when they were completed, log files are named after the write that made them,
    and belong to the slice that was newest when it was completed."""

    def instants(self, store: Store) -> Iterator[Instant]:
        """What each file of the active timeline says: an instant, in one of the states it reached."""

    def archived(self, store: Store, folder: str, zone: dt.tzinfo) -> ArchivedTimeline:
        """What left the active timeline."""

    def archived_completions(self, store: Store) -> dict[InstantTime, InstantTime]:
        """When each commit was completed that left the active timeline, where that matters."""


class LayoutOne:
    """Instant files in `.hoodie`, in whose names only the time of the request is."""

    has_completion_times = False

    def instants(self, store: Store) -> Iterator[Instant]:
        for file in store.folder(META_FOLDER).files:
            parsed = parse_instant_file(file.path.rpartition("/")[2])
            if parsed is None:
                continue
            time, action, state = parsed
            changed = dt.datetime.fromtimestamp(file.modified_ms / 1000, dt.UTC)
            yield Instant(time, action, state, changed if state is State.COMPLETED else None)

    def archived(self, store: Store, folder: str, zone: dt.tzinfo) -> ArchivedTimeline:
        from holdfast.timeline.archived import load_archived_files

        return load_archived_files(store, folder, zone)

    def archived_completions(self, store: Store) -> dict[InstantTime, InstantTime]:
        return {}


LAYOUT_ONE = LayoutOne()


def layout_of(store: Store) -> TimelineLayout:
    """The layout of the timeline of the table in a store that was opened with the table."""
    layout: TimelineLayout = getattr(store, "layout", LAYOUT_ONE)
    return layout


def completion_of(instant: Instant) -> InstantTime:
    """When an instant was completed, in the form of instants; its own time where the layout has no other."""
    return instant.completion or instant.time
