"""Validation: whether a write still holds its right, asked in the very slot its COMMIT would take."""

from dataclasses import dataclass, field

from holdfast.errors import Conflict, Fenced, HoldfastError, WriteConflict
from holdfast.format.ledger_entries import Entry, EntryKind
from holdfast.format.malformed import report_damage
from holdfast.model.instant import InstantTime
from holdfast.model.names import in_partition
from holdfast.table.opened import OpenTable
from holdfast.table.pending import AT_ONCE, pending_compactions, rollbacks_by_target
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline, read_completed
from holdfast.writes.conflicts import Claim, Footprint, conflict


def refuse_if_fenced(state: LedgerState, instant: InstantTime) -> None:
    """`Fenced` unless the write is begun and undecided. What was aborted long ago the state does not name."""
    if state.dropped:
        raise Fenced("the table was dropped while this write ran", instant=instant)
    if instant not in state.begun:
        aborted = state.aborted.get(instant)
        raise Fenced(
            "this write was rolled back by another process",
            instant=instant,
            reason="that was long ago" if aborted is None else aborted.reason,
            hint="nothing of it is visible; run the write again",
        )


def find_fence(table: OpenTable, instant: InstantTime, slot: int) -> Fenced | None:
    """What a write, or an attempt at a compaction, that failed is told if others had ended it before.

    A process that slept may fail over what was cleaned meanwhile before its heartbeat notices.
    """
    try:
        state = table.ledger.read()
        refuse_if_fenced(state, instant)
    except Fenced as fence:
        return fence
    except HoldfastError:
        return None  # It cannot be known now. So what it failed of is reported.
    if state.begun[instant].slot != slot:
        return Fenced("another process carries this on", instant=instant)
    return None


def refuse_if_taken_back(table: OpenTable, instant: InstantTime, slot: int) -> None:
    """`WriteConflict` if a commit was taken back since the entry in `slot`."""
    try:
        entries = list(table.ledger.between(slot, table.ledger.read().slot))
    except Conflict as error:
        # Nothing is trimmed that came after the BEGIN of a write that is undecided.
        raise Fenced("this write was rolled back by another process long ago", instant=instant) from error
    for entry, _ in entries:
        _refuse_revocation(entry, instant)


def _refuse_revocation(entry: Entry, instant: InstantTime) -> None:
    if entry.kind is EntryKind.REVOKE:
        raise WriteConflict(
            "a commit was taken back while this write ran",
            instant=instant,
            taken_back=", ".join(commit.instant for commit in entry.revoked),
            hint="nothing of this write is visible; run it again",
        )


@dataclass
class Validation:
    """Checks one write against everything that was committed since its BEGIN, each thing once."""

    table: OpenTable
    instant: InstantTime
    shown: frozenset[InstantTime]
    """Commits that were completed before the write began to read the table."""
    slot: int
    """Entries up to here are checked; at first the write's own BEGIN."""
    known: set[InstantTime] = field(default_factory=set)
    """Commits that are checked."""

    def check(self, state: LedgerState, claim: Claim) -> None:
        """`Fenced` or `WriteConflict` if the write may not be committed after `state`."""
        refuse_if_fenced(state, self.instant)
        for entry, payload in self.table.ledger.between(self.slot, state.slot):
            self._check_entry(entry, payload, claim)
        self.slot = state.slot
        timeline = load_timeline(self.table.store)
        if self.table.ledger.read().slot > state.slot:
            return  # The slot is lost, and the timeline may show what was decided since.
        self._check_foreign(timeline, claim)
        self._check_compactions(timeline, claim)
        self._refuse_to_be_first(timeline, state)

    def _check_compactions(self, timeline: Timeline, claim: Claim) -> None:
        """A plan that was made meanwhile lacks the log files of this write, and would lose what they say.

        A compaction that is carried out at once compares itself with what was committed beside it.
        """
        if not claim.appended:
            return
        for compaction, plan in pending_compactions(self.table.store, timeline):
            groups = {in_partition(each.partition, each.file_id) for each in plan.operations}
            if plan.extra.get(AT_ONCE) != "true" and not groups.isdisjoint(claim.appended):
                raise WriteConflict(
                    "a compaction was planned while this write ran",
                    instant=self.instant,
                    compaction=compaction.time,
                    hint="nothing of this write is visible; run it again",
                )

    def _check_entry(self, entry: Entry, payload: bytes, claim: Claim) -> None:
        _refuse_revocation(entry, self.instant)
        if entry.kind is EntryKind.COMMIT:
            self._check_commit(entry.instant, payload, claim)

    def _check_commit(self, other: InstantTime, payload: bytes, claim: Claim) -> None:
        self.known.add(other)
        with report_damage("commit metadata cannot be read", instant=other):
            why = conflict(claim, Footprint.of(payload), is_younger=other > self.instant)
        if why is not None:
            raise WriteConflict(
                "another write was committed first",
                instant=self.instant,
                other=other,
                conflict=why,
                hint="nothing of this write is visible; run it again",
            )

    def _check_foreign(self, timeline: Timeline, claim: Claim) -> None:
        """Other programs do not write the ledger; the timeline shows what they committed."""
        for instant in timeline.completed_commits:
            if instant.time not in self.known and instant.time not in self.shown:
                self._check_commit(instant.time, read_completed(self.table.store, instant), claim)
        mine = timeline.find(self.instant)
        if mine is None or self.instant in rollbacks_by_target(self.table.store, timeline):
            raise Fenced(
                "this write was rolled back by another program",
                instant=self.instant,
                hint="nothing of it is visible; run the write again",
            )

    def _refuse_to_be_first(self, timeline: Timeline, state: LedgerState) -> None:
        """A reader takes files older than the first commit for archived ones, so none may be undecided."""
        older = [time for time in state.begun if time < self.instant]
        if older and not any(i.time < min(older) for i in timeline.completed_commits):
            raise WriteConflict(
                "the first commit of a table must be the oldest write",
                instant=self.instant,
                older=min(older),
                hint="run this write again when the other has finished",
            )


def begin_validation(table: OpenTable, instant: InstantTime, slot: int, timeline: Timeline) -> Validation:
    """For a write whose BEGIN is in `slot` and that builds on what `timeline` shows."""
    # A younger commit may have been shown already: it counts as concurrent, not as what we build on.
    shown = frozenset(i.time for i in timeline.completed_commits if i.time < instant)
    return Validation(table, instant, shown, slot)
