"""What a repair does about each finding."""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.model.reports import Finding, FindingKind, Severity

_MOVED = frozenset(
    {
        FindingKind.ORPHAN,
        FindingKind.MARKERS,
        FindingKind.HEARTBEAT,
        FindingKind.TORN_ROLLBACK,
        FindingKind.TORN_PLAN,
        FindingKind.PUSH,
        FindingKind.CHANGED,
        FindingKind.GHOST,
    }
)
_FINISHED = frozenset(
    {FindingKind.UNFINISHED, FindingKind.UNDECIDED, FindingKind.VANISHED, FindingKind.METAFILE}
)
_SHOWN_AGAIN = frozenset({FindingKind.CHANGED, FindingKind.GHOST, FindingKind.TORN_ROLLBACK})
"""What takes its place, once it is moved, follows from the ledger."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    moved: tuple[Finding, ...]
    """Of no known write: to be moved to quarantine."""
    finished: tuple[Finding, ...]
    """Decided by the ledger: to be finished."""
    taken_back: tuple[Finding, ...]
    """Commits whose files are not here: to be taken back, and what is left of them to be moved."""
    left: tuple[Finding, ...]
    """Beyond a repair, or nothing to be repaired."""

    @property
    def has_to_finish(self) -> bool:
        """Whether something is to be done beyond moving files."""
        is_replaced = any(finding.kind in _SHOWN_AGAIN for finding in self.moved)
        return bool(self.finished or self.taken_back) or is_replaced


def plan_repair(findings: Iterable[Finding]) -> RepairPlan:
    moved, finished, taken_back, left = [], [], [], []
    for finding in findings:
        if finding.kind in _MOVED and finding.severity is not Severity.INFO:
            moved.append(finding)
        elif finding.kind in _FINISHED or _is_late(finding):
            finished.append(finding)
        elif finding.kind is FindingKind.LOST:
            taken_back.append(finding)
        else:
            left.append(finding)
    return RepairPlan(tuple(moved), tuple(finished), tuple(taken_back), tuple(left))


def _is_late(finding: Finding) -> bool:
    """Whether it was decided, and the process that decided it is not there any more to show it."""
    return finding.kind is FindingKind.DISAGREEMENT and finding.severity is Severity.WARNING
