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
        FindingKind.PUSH,
    }
)


@dataclass(frozen=True, slots=True)
class RepairPlan:
    moved: tuple[Finding, ...]
    """Nobody's: to be moved to quarantine."""
    finished: tuple[Finding, ...]
    """Decided by the ledger: to be finished."""
    left: tuple[Finding, ...]
    """Beyond a repair, or nothing to be repaired."""


def plan_repair(findings: Iterable[Finding]) -> RepairPlan:
    moved, finished, left = [], [], []
    for finding in findings:
        if finding.kind in _MOVED and finding.severity is not Severity.INFO:
            moved.append(finding)
        elif finding.kind is FindingKind.UNFINISHED or _is_late(finding):
            finished.append(finding)
        else:
            left.append(finding)
    return RepairPlan(tuple(moved), tuple(finished), tuple(left))


def _is_late(finding: Finding) -> bool:
    """Whether it was decided, and whoever decided it is not there any more to show it."""
    return finding.kind is FindingKind.DISAGREEMENT and finding.severity is Severity.WARNING
