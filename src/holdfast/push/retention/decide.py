"""Retention: which segments may go, and which entries, decided without doing anything.

A segment leaves the table in one pass. Its file is removed in a later one, when
no broker can be reading it, and the entry that hid it after that. So a reader
with an older list of segments never sees what was hidden.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from holdfast.config.push_rules import Rules
from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.model.segment import Segment
from holdfast.push.replacement.decisions import (
    Decision,
    Draft,
    entry_time,
)
from holdfast.push.replacement.delete import segments_of_live_entries
from holdfast.push.replacement.snapshots import (
    redo_snapshots,
    rollback_snapshots,
    segments_under_pins,
    surplus_snapshots,
    was_published,
)
from holdfast.push.state.table_state import PendingDeletion, PushState, TableState

DAY_MS = 24 * 3_600_000
TOMBSTONES_KEPT_MS = 30 * DAY_MS
CALLS_KEPT_MS = DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What one pass changes in a table's records."""

    decision: Decision
    reasons: tuple[str, ...] = ()


def plan_retention(
    state: TableState,
    *,
    now_ms: int,
    rules: Rules,
    known: Mapping[str, Segment] | None = None,
) -> RetentionPlan:
    """One pass. `known` is the metadata of all segments, needed for retention by time and for orphans."""
    known = {} if known is None else known
    plan = _Pass(state, now_ms, rules)
    plan.lineage(known)
    plan.surplus()
    plan.time(known)
    decision = plan.draft.decision()
    after = replace(decision.after, push=_without_expired(decision, now_ms))
    return RetentionPlan(decision=replace(decision, after=after), reasons=tuple(plan.reasons))


def ready_deletions(state: TableState, brokers: Iterable[int]) -> tuple[PendingDeletion, ...]:
    """Deletions whose files no broker reads: every broker that lives is at their epoch or beyond (L3)."""
    reached = min(brokers, default=state.push.epoch)
    return tuple(pending for pending in state.push.deletions if pending.epoch <= reached)


def without_deletions(state: TableState, *, names: frozenset[str], files: frozenset[str]) -> TableState:
    """The table once these segments and files are gone."""
    left = (
        replace(
            pending,
            segments=tuple(name for name in pending.segments if name not in names),
            files=tuple(path for path in pending.files if path not in files),
        )
        for pending in state.push.deletions
    )
    deletions = tuple(pending for pending in left if pending.segments or pending.files)
    return replace(state, push=replace(state.push, deletions=deletions))


@dataclass
class _Pass:
    """One pass while it is being planned."""

    state: TableState
    now_ms: int
    rules: Rules
    reasons: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draft = Draft(self.state, now_ms=self.now_ms)
        self._pinned = segments_under_pins(self.state, self.now_ms)
        self._leaving = frozenset(name for pending in self.state.push.deletions for name in pending.segments)

    def lineage(self, known: Mapping[str, Segment]) -> None:
        """Pinot's table of rules, entry by entry."""
        newest = self.state.completed_entries[-1:]
        for entry in self.state.lineage.entries:
            match entry.state:
                case EntryState.COMPLETED:
                    self._plan_completed(entry, is_newest=entry in newest)
                case EntryState.REVERTED:
                    if not self._is_kept_for_redo(entry):
                        self._plan_given_up(entry, known, "was reverted")
                case EntryState.IN_PROGRESS:
                    if self._is_stale(entry):
                        self._plan_stale(entry, known)

    def surplus(self) -> None:
        """L7: no more snapshots than the table keeps."""
        if not self._counts:
            return
        room = max(1, self.state.config.retained_snapshots - len(redo_snapshots(self.state)))
        surplus = surplus_snapshots(self.state, room=room, now_ms=self.now_ms)
        if not surplus.entry_ids or self.rules.keeps_by_either:
            return
        held = _open_sources(self.state) | self._pinned | self.state.visible
        self.draft.remove(name for name in surplus.segments if name not in held)
        for entry_id in surplus.entry_ids:
            self.draft.finalise(entry_id)
            self._say(f"what {entry_id} replaced goes: more than the retained snapshots are newer")

    def time(self, known: Mapping[str, Segment]) -> None:
        """Rows older than the table's retention go, if it is added to rather than replaced."""
        config = self.state.config
        if config.refresh or config.time_retention_ms is None:
            return
        limit = self.now_ms - config.time_retention_ms
        held = segments_of_live_entries(self.state) | self._pinned
        old = [
            name
            for name, segment in known.items()
            if name in self.state.segments and name not in held and _ends_before(segment, limit)
        ]
        if old:
            self.draft.remove(sorted(old))
            self._say(f"{len(old)} segments go: their rows are older than the table's retention")

    @property
    def _counts(self) -> bool:
        return self.rules.counts_snapshots and self.state.config.refresh

    def _plan_completed(self, entry: LineageEntry, *, is_newest: bool) -> None:
        is_old = entry.changed_at_ms < self.now_ms - self.state.config.replaced_retention_ms
        left = [name for name in entry.segments_from if name in self.state.segments]
        if not left:
            waits = not self._leaving.isdisjoint(entry.segments_from)
            if not waits and not (is_newest and not is_old and self.rules.keeps_newest_entry):
                self._drop(entry, "has nothing left to hide")
        elif is_old and not self._is_within_number(entry):
            going = [name for name in left if name not in self._pinned]
            if going:
                self.draft.remove(going)
                self.draft.finalise(entry.id)
                self._say(f"what {entry.id} replaced goes: the window for a revert is over")

    def _is_within_number(self, entry: LineageEntry) -> bool:
        """Whether the number of snapshots keeps what age would let go."""
        if not (self._counts and self.rules.keeps_by_either):
            return False
        kept = rollback_snapshots(self.state)[: self.state.config.retained_snapshots]
        return any(entry.id in snapshot.steps for snapshot in kept)

    def _is_kept_for_redo(self, entry: LineageEntry) -> bool:
        if not self.rules.keeps_reverted or not was_published(self.state, entry):
            return False
        if self._pinned.intersection(entry.segments_to):
            return True
        if entry.changed_at_ms < self.now_ms - self.state.config.replaced_retention_ms:
            return False
        # L7: several pushes on the same base may have been reverted, and each is a snapshot.
        newest_first = sorted(redo_snapshots(self.state), key=lambda one: (-one.position, -one.epoch))
        # What queries see is one of the number, if they see anything.
        kept = newest_first[: self.state.config.retained_snapshots - bool(self.state.visible)]
        return any(snapshot.entry_id == entry.id for snapshot in kept)

    def _is_stale(self, entry: LineageEntry) -> bool:
        alive_at = max(entry.changed_at_ms, self.state.details_of(entry.id).renewed_at_ms or 0)
        return alive_at < self.now_ms - self.state.config.entry_retention_ms

    def _plan_stale(self, entry: LineageEntry, known: Mapping[str, Segment]) -> None:
        if not self.rules.reverts_stale:
            self._plan_given_up(entry, known, "was never ended")
            return
        time = entry_time(self.state.lineage, self.now_ms, self.rules)
        self.draft.put(replace(entry, state=EntryState.REVERTED, changed_at_ms=time))
        self.draft.remove(entry.segments_to)
        self.draft.finalise(entry.id)
        self._say(f"{entry.id} is reverted: it was never ended")

    def _plan_given_up(self, entry: LineageEntry, known: Mapping[str, Segment], why: str) -> None:
        held = _names_of_others(self.state, entry) if self.rules.attempts_have_own_names else frozenset()
        going = [name for name in entry.segments_to if name in self.state.segments and name not in held]
        if going:
            self.draft.remove(going)
            self.draft.finalise(entry.id)
            self._say(f"what {entry.id} brought goes: it {why}")
        elif self._leaving.isdisjoint(entry.segments_to):
            self._drop(entry, f"{why} and has nothing left to hide")
            self.draft.reap(n for n in entry.segments_to if n in known and n not in self.state.segments)

    def _drop(self, entry: LineageEntry, why: str) -> None:
        self.draft.drop(entry.id)
        self._say(f"{entry.id} goes: it {why}")

    def _say(self, reason: str) -> None:
        self.reasons.append(reason)


def _open_sources(state: TableState) -> frozenset[str]:
    return frozenset[str]().union(*(entry.segments_from for entry in state.open_entries))


def _names_of_others(state: TableState, entry: LineageEntry) -> frozenset[str]:
    """What other live entries name: a record of Pinot's may use a name twice."""
    others = [other for other in state.lineage.entries if other.is_live and other.id != entry.id]
    return frozenset[str]().union(*(side for o in others for side in (o.segments_from, o.segments_to)))


def _ends_before(segment: Segment, limit_ms: int) -> bool:
    return segment.end_ms is not None and 0 < segment.end_ms < limit_ms


def _without_expired(decision: Decision, now_ms: int) -> PushState:
    """What is remembered for a time only."""
    push = decision.after.push
    tombstones = {
        entry_id: tombstone
        for entry_id, tombstone in push.tombstones.items()
        if tombstone.at_ms >= now_ms - TOMBSTONES_KEPT_MS
    }
    calls = {key: call for key, call in push.calls.items() if call.at_ms >= now_ms - CALLS_KEPT_MS}
    pins = {epoch: until for epoch, until in push.pins.items() if until > now_ms}
    return replace(
        push,
        tombstones=MappingProxyType(tombstones),
        calls=MappingProxyType(calls),
        pins=MappingProxyType(pins),
    )
