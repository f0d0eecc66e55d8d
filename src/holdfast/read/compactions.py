"""The compactions of a table, as the timeline tells."""

from holdfast.errors import UnknownInstant
from holdfast.format.compaction_plans import CompactionPlan
from holdfast.model.instant import Action, Instant, moment_of
from holdfast.model.reports import Compaction
from holdfast.table.opened import OpenTable
from holdfast.table.pending import read_compaction_plan
from holdfast.table.zone import timeline_zone
from holdfast.timeline.timeline import load_timeline

_LOG_BYTES = "TOTAL_LOG_FILES_SIZE"


def compactions(table: OpenTable) -> list[Compaction]:
    """All compactions on the timeline, oldest first: pending ones, and those that are done."""
    timeline = load_timeline(table.store)
    zone = timeline_zone(table)
    found: list[Compaction] = []
    for instant in timeline.instants:
        if not _may_be_one(instant):
            continue
        plan = read_compaction_plan(table.store, instant.time)
        if plan is None and instant.is_completed:
            continue  # A commit of another kind.
        operations = () if plan is None else plan.operations
        found.append(
            Compaction(
                instant=instant.time,
                state=instant.state,
                file_groups=len(operations),
                log_files=sum(len(operation.log_files) for operation in operations),
                log_bytes=int(sum(operation.metrics.get(_LOG_BYTES, 0) for operation in operations)),
                planned_at=moment_of(instant.time, zone),
            )
        )
    return found


def compaction_plan(table: OpenTable, time: str) -> CompactionPlan:
    """What a compaction is to do, or did. `UnknownInstant` if there is none on the timeline."""
    instant = next(
        (i for i in load_timeline(table.store).instants if i.time == time and _may_be_one(i)), None
    )
    plan = None if instant is None else read_compaction_plan(table.store, instant.time)
    if plan is None:
        raise UnknownInstant(
            "there is no such compaction", instant=time, hint="see holdfast compactions show PATH"
        )
    return plan


def _may_be_one(instant: Instant) -> bool:
    """A compaction that is done is a commit, of which there are no others in merge-on-read tables."""
    return instant.action is Action.COMPACTION or (instant.action is Action.COMMIT and instant.is_completed)
