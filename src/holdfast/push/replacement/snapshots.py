"""Snapshots: the earlier and later contents of a table that one call can bring back.

They are derived from the lineage: undoing the completed entries, newest first,
gives what was seen before each; redoing reverted ones gives what was taken back.
Nothing is stored twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.push.state.table_state import EntryDetails, TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One content of the table whose segments are all still there."""

    position: int
    """0 is what queries see, 1 the one before it, and so on; -1 is what a redo would show."""
    epoch: int
    """The epoch at which it was last published."""
    entry_id: str | None
    """The entry that published it; None if that entry is gone or there was none."""
    published_at_ms: int | None
    segments: frozenset[str]
    steps: tuple[str, ...]
    """The entries to revert, newest first, or to redo, oldest first, to get here."""
    pinned_until_ms: int | None = None
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Where the rows of its push came from, as the push named them; empty if it named none."""

    @property
    def is_current(self) -> bool:
        return self.position == 0


def snapshots(state: TableState) -> tuple[Snapshot, ...]:
    """Every content that can be had, newest first: what can be redone, what is seen, what was before."""
    return (*reversed(redo_snapshots(state)), *rollback_snapshots(state))


def rollback_snapshots(state: TableState) -> tuple[Snapshot, ...]:
    """What queries see, then what each rollback step would show, as far back as all segments exist."""
    published = state.completed_entries
    found = [_snapshot(state, 0, published, state.visible, ())]
    for entry in reversed(published):
        last = found[-1]
        before = (last.segments - frozenset(entry.segments_to)) | frozenset(entry.segments_from)
        if state.details_of(entry.id).finalised or not before <= state.segments:
            break
        steps = (*last.steps, entry.id)
        found.append(_snapshot(state, len(found), published[: -len(steps)], before, steps))
    return tuple(found)


def redo_snapshots(state: TableState) -> tuple[Snapshot, ...]:
    """What each redo would show, nearest first."""
    found: list[Snapshot] = []
    for entry in state.lineage.entries:
        steps = redo_steps(state, entry) if entry.state is EntryState.REVERTED else None
        if steps is None:
            continue
        segments = state.visible
        for step in steps:
            segments = (segments - frozenset(step.segments_from)) | frozenset(step.segments_to)
        details = state.details_of(entry.id)
        found.append(
            Snapshot(
                position=-len(steps),
                epoch=details.epoch or 0,
                entry_id=entry.id,
                published_at_ms=details.ended_at_ms,
                segments=segments,
                steps=tuple(step.id for step in steps),
                pinned_until_ms=state.push.pins.get(details.epoch or 0),
                source=details.source,
            )
        )
    return tuple(sorted(found, key=lambda snapshot: (-snapshot.position, snapshot.epoch)))


def redo_steps(state: TableState, entry: LineageEntry) -> tuple[LineageEntry, ...] | None:
    """The reverted entries to complete again, oldest first, the last being `entry`.

    None if one of them cannot be.
    """
    steps: list[LineageEntry] = []
    seen = set(state.visible)
    waiting = [entry]
    while waiting:
        entry = waiting[-1]
        if entry in steps:
            waiting.pop()
            continue
        if not _may_redo(state, entry) or len(waiting) > len(state.lineage.entries):
            return None
        missing = next((name for name in entry.segments_from if name not in seen), None)
        if missing is None:
            seen.difference_update(entry.segments_from)
            seen.update(entry.segments_to)
            steps.append(waiting.pop())
            continue
        provider = _provider_of(state, missing)
        if provider is None or provider in steps:
            return None
        waiting.append(provider)
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class Surplus:
    """Snapshots beyond the number that a table keeps."""

    entry_ids: tuple[str, ...] = ()
    """The entries that could no longer be reverted, or redone, without them."""
    segments: tuple[str, ...] = ()
    """Segments that no other snapshot needs."""


def surplus_snapshots(state: TableState, *, room: int, now_ms: int) -> Surplus:
    """The snapshots before the newest `room`. A pin keeps a snapshot and every newer one: the way to it."""
    known = rollback_snapshots(state)
    pins = [each.position for each in known if (each.pinned_until_ms or 0) > now_ms]
    going = known[max(room, 1, *(position + 1 for position in pins)) :]
    needed = frozenset[str]().union(*(each.segments for each in known[: len(known) - len(going)]))
    reachable = frozenset[str]().union(*(each.segments for each in going))
    return Surplus(
        entry_ids=tuple(each.steps[-1] for each in going), segments=tuple(sorted(reachable - needed))
    )


def was_published(state: TableState, entry: LineageEntry) -> bool:
    """Whether queries saw its new side once."""
    return state.details_of(entry.id).epoch is not None


def was_rejected(state: TableState, entry: LineageEntry) -> bool:
    """Whether a gate stopped it, so that its segments are kept to be looked at."""
    details = state.details_of(entry.id)
    return details.epoch is None and any(not gate.passed for gate in details.gates)


def segments_under_pins(state: TableState, now_ms: int) -> frozenset[str]:
    """Segments of every pinned snapshot, and of those on the way to it."""
    known = snapshots(state) if state.push.pins else ()
    pins = [each.position for each in known if (each.pinned_until_ms or 0) > now_ms]
    first, last = min(pins, default=0), max(pins, default=0)
    kept = (each.segments for each in known if pins and first <= each.position <= last)
    return frozenset[str]().union(*kept)


def _may_redo(state: TableState, entry: LineageEntry) -> bool:
    return (
        entry.state is EntryState.REVERTED
        and was_published(state, entry)
        and not state.details_of(entry.id).finalised
        and state.segments.issuperset(entry.segments_to)
    )


def _provider_of(state: TableState, name: str) -> LineageEntry | None:
    """The entry whose redo would bring the segment back."""
    return next((entry for entry in _newest_first(state) if name in entry.segments_to), None)


def _newest_first(state: TableState) -> Iterator[LineageEntry]:
    return (e for e in reversed(state.lineage.entries) if e.state is EntryState.REVERTED)


def _snapshot(
    state: TableState,
    position: int,
    published: tuple[LineageEntry, ...],
    segments: frozenset[str],
    steps: tuple[str, ...],
) -> Snapshot:
    """The snapshot that the last of `published` made; without one, the one before the next entry."""
    entry = published[-1] if published else None
    details = state.details_of(entry.id) if entry else None
    epoch = details.epoch if details else None
    if epoch is None:
        epoch = state.details_of(steps[-1]).replaced_epoch if steps else state.push.epoch
    return Snapshot(
        position=position,
        epoch=epoch or 0,
        entry_id=entry.id if entry else None,
        published_at_ms=entry.changed_at_ms if entry else None,
        segments=segments,
        steps=steps,
        pinned_until_ms=state.push.pins.get(epoch or 0),
        source=_source(state, details) if segments else MappingProxyType({}),
    )


def _source(state: TableState, details: EntryDetails | None) -> Mapping[str, str]:
    """Of what an entry published; without one, of what the last push delivered that left the lineage."""
    origin = state.push.origin
    if details is None and origin is not None and origin.full:
        details = origin
    return MappingProxyType({}) if details is None else details.source
