"""The base of rows that were computed from the table they are written to.

An UPDATE reads a snapshot, and what it writes is right for that snapshot alone.
So nothing may be committed, or taken back, between the snapshot and the
COMMIT: neither before the write begins, where no write looks otherwise, nor
beside it. The base is noted before the snapshot is read; a commit between the
two is refused for nothing, and none is missed.
"""

from dataclasses import dataclass

from holdfast.errors import Conflict, PlanOutdated
from holdfast.format.ledger_entries import EntryKind
from holdfast.model.instant import InstantTime
from holdfast.table.opened import OpenTable
from holdfast.table.publish import load_published_timeline
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.origin import Origin

_CHANGES = frozenset({EntryKind.COMMIT, EntryKind.REVOKE})


@dataclass(frozen=True, slots=True)
class ReadBase:
    """What was decided and shown of a table before it was read."""

    table: OpenTable
    slot: int
    commits: frozenset[InstantTime]

    def origin(self) -> Origin:
        """The origin of rows computed from what is read from here on: they stand beside no other commit."""
        return Origin(check=self._check, conflict=lambda _: "it is not in the snapshot this statement read")

    def _check(self) -> None:
        """`PlanOutdated` if the table's rows are others by now."""
        changed = self._find_decision() or self._find_foreign_change()
        if changed is not None:
            raise PlanOutdated(
                "the table was changed after this statement had read it",
                changed_by=changed,
                hint="nothing was written; run the statement again",
            )

    def _find_decision(self) -> InstantTime | None:
        ledger = self.table.ledger
        try:
            entries = list(ledger.between(self.slot, ledger.read().slot))
        except Conflict as error:
            raise PlanOutdated(
                "the statement took so long that what happened meanwhile is not known any more",
                hint="nothing was written; run the statement again",
            ) from error
        return next((entry.instant for entry, _ in entries if entry.kind in _CHANGES), None)

    def _find_foreign_change(self) -> InstantTime | None:
        """Other programs do not write the ledger; the timeline shows what they commit and take back."""
        state, timeline = self.table.ledger.read(), load_timeline(self.table.store)
        now = {commit.time for commit in timeline.completed_commits}
        first = timeline.first_commit_time
        gone = {
            time
            for time in self.commits - now
            if not state.is_archived(time) and (first is None or time > first)
        }
        return min((now - self.commits) | gone, default=None)


def note_base(table: OpenTable) -> ReadBase:
    """Note what the table is, before it is read. Everything that was decided is shown then."""
    state = table.ledger.read()
    timeline = load_published_timeline(table, state)
    return ReadBase(table, state.slot, frozenset(commit.time for commit in timeline.completed_commits))
