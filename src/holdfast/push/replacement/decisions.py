"""What becomes of a table: a decision, and the draft in which a rule puts one together."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType

from holdfast.config.push_rules import Rules
from holdfast.model.lineage import EntryState, Lineage, LineageEntry
from holdfast.push.calls import Changes
from holdfast.push.replacement.snapshots import snapshots
from holdfast.push.state.table_state import EntryDetails, PendingDeletion, TableState, Tombstone

_TOMBSTONES_KEPT = 2000
"""Of each table, and for thirty days at most: every write of the table carries them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of the table. `after` equals the state before when there is nothing to write."""

    after: TableState
    removed: tuple[str, ...] = ()
    """Segments that leave the table; their files go once no broker can be reading them."""
    entry_ids: tuple[str, ...] = ()
    already: bool = False
    """The call had been carried out before."""
    overridden: bool = False
    """Published by an operator although its gates did not let it."""


class Draft:
    """The next state while a rule is putting it together."""

    def __init__(self, state: TableState, *, now_ms: int, retention_ms: int | None = None) -> None:
        self.before = state
        self.now_ms = now_ms
        kept = state.config.deleted_retention_ms
        self._retention_ms = kept if retention_ms is None else retention_ms
        self._epoch = state.push.epoch
        self._removed: list[str] = []
        self._reaped: list[str] = []
        self.entries = {entry.id: entry for entry in state.lineage.entries}
        self.details = dict(state.push.details)
        self.tombstones = dict(state.push.tombstones)
        self.origin = state.push.origin
        self.pins = state.push.pins

    def put(self, entry: LineageEntry) -> None:
        self.entries[entry.id] = entry

    def drop(self, entry_id: str) -> None:
        """Take the entry out of the lineage and remember how it ended."""
        entry = self.entries.pop(entry_id)
        details = self.details.pop(entry_id, None)
        if entry.state is EntryState.COMPLETED and details is not None:
            self.origin = max(self.origin or details, details, key=lambda one: one.epoch or 0)
        ended = EntryState.COMPLETED if entry.state is EntryState.COMPLETED else EntryState.REVERTED
        self.tombstones[entry_id] = Tombstone(state=ended, at_ms=self.now_ms)
        while len(self.tombstones) > _TOMBSTONES_KEPT:
            del self.tombstones[next(iter(self.tombstones))]

    def publish(self, entry_id: str, *, ended_at_ms: int) -> None:
        """What queries see changes with this entry: an epoch of its own."""
        details = self.details.get(entry_id) or EntryDetails(started_at_ms=ended_at_ms)
        self.details[entry_id] = replace(
            details, ended_at_ms=ended_at_ms, epoch=self._epoch + 1, replaced_epoch=self._epoch
        )
        self._epoch += 1

    def finalise(self, entry_id: str) -> None:
        """Say that the entry's hidden side is going; one that was dropped needs no saying."""
        if entry_id not in self.entries:
            return
        details = self.details.get(entry_id) or EntryDetails(started_at_ms=0)
        self.details[entry_id] = replace(details, finalised=True)

    def remove(self, names: Iterable[str]) -> None:
        """Take from the table those of the names that it has."""
        present = [name for name in dict.fromkeys(names) if name in self.before.segments]
        known = frozenset(self._removed)
        self._removed += [name for name in present if name not in known]

    def reap(self, names: Iterable[str]) -> None:
        """Let go of segments that have metadata, perhaps a file, and no place in the table."""
        self._reaped += names

    def decision(self, *, entry_ids: tuple[str, ...] = ()) -> Decision:
        before = self.before
        removed = tuple(self._removed)
        lineage = Lineage(sort_entries(self.entries.values()), before.lineage.custom)
        segments = before.segments.difference(removed) if removed else before.segments
        after = replace(before, lineage=lineage, segments=segments)
        epoch = self._epoch
        # Brokers acknowledge epochs, and the files wait for that: a removal needs one of its own
        # even when the segments were hidden, because a query may be reading an older snapshot.
        if epoch == before.push.epoch and (removed or before.visible != after.visible):
            epoch += 1
        deletions = before.push.deletions
        if removed or self._reaped:
            waiting = PendingDeletion(
                segments=(*removed, *self._reaped),
                epoch=epoch,
                since_ms=self.now_ms,
                retention_ms=self._retention_ms,
            )
            deletions = (*deletions, waiting)
        push = replace(
            before.push,
            epoch=epoch,
            details=MappingProxyType(self.details),
            deletions=deletions,
            tombstones=MappingProxyType(self.tombstones),
            origin=self.origin,
            pins=self.pins,
        )
        after = after.with_push(push)
        if before.push.pins:
            after = _carry_pins(before, after)
        return Decision(after=after, removed=removed, entry_ids=entry_ids)


def _carry_pins(before: TableState, after: TableState) -> TableState:
    """Pins stay with what they keep: the same content may come to have another epoch.

    A redo publishes it anew, and what no entry tells of any more has the epoch in force.
    """
    kept = {one.epoch: one.segments for one in snapshots(before)}
    found = snapshots(after)
    epochs = {one.epoch for one in found}
    by_content = {one.segments: one.epoch for one in found}
    pins: dict[int, int] = {}
    for pinned, until in before.push.pins.items():
        epoch = pinned if pinned in epochs else by_content.get(kept.get(pinned, frozenset()), pinned)
        pins[epoch] = max(until, pins.get(epoch, 0))
    return after.with_push(replace(after.push, pins=MappingProxyType(pins)))


def changes(before: TableState, decision: Decision) -> Changes:
    """What the decision changes, for a dry run and for the audit."""
    after = decision.after
    old, new = (state.visible for state in (before, after))
    unseen = old - new
    if after.segments is not before.segments:
        unseen &= after.segments
    return Changes(
        table=before.table,
        shown=tuple(sorted(new - old)),
        hidden=tuple(sorted(unseen)),
        removed=decision.removed,
        entries_before=_other_than(after.lineage, before.lineage),
        entries_after=_other_than(before.lineage, after.lineage),
        epoch_before=before.push.epoch,
        epoch_after=after.push.epoch,
    )


def _other_than(known: Lineage, lineage: Lineage) -> tuple[LineageEntry, ...]:
    """The entries of a lineage that another does not have, or has otherwise."""
    # Found by their ids: the hash of an entry visits all its names.
    others = {entry.id: entry for entry in known.entries}
    return tuple(entry for entry in lineage.entries if entry != others.get(entry.id))


def sort_entries(entries: Iterable[LineageEntry]) -> tuple[LineageEntry, ...]:
    """Oldest change first; the id decides between equals, as in Pinot."""
    return tuple(sorted(entries, key=lambda entry: (entry.changed_at_ms, entry.id)))


def entry_time(lineage: Lineage, now_ms: int, rules: Rules) -> int:
    """Now, or just after the newest entry if this clock is behind the one that wrote it."""
    newest = max((entry.changed_at_ms for entry in lineage.entries), default=0)
    return max(now_ms, newest + 1) if rules.times_rise else now_ms
