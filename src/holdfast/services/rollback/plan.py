"""What goes with one instant that is rolled back or taken back. Nothing here changes anything."""

from holdfast.errors import Refused
from holdfast.format.commits import decode_commit
from holdfast.format.malformed import report_damage
from holdfast.model.instant import InstantTime, State
from holdfast.model.names import in_partition, instant_file
from holdfast.model.reports import TakenBack
from holdfast.services.rollback.doomed_files import plan_rollback
from holdfast.services.rollback.failed_writes import FailedWrite, find_failed_writes
from holdfast.services.rollback.undo import check_undo, find_interrupted_undo
from holdfast.storage.store import read_or_none
from holdfast.table.opened import OpenTable
from holdfast.table.stable_read import timeline_and_ledger
from holdfast.timeline.ledger import LedgerState


def plan_rollback_of(table: OpenTable, time: InstantTime) -> TakenBack:
    """What the rollback of one instant would take; what stands in the way of it, unless it is pending."""
    timeline, state = timeline_and_ledger(table)
    for write in find_failed_writes(table, timeline, state):
        if write.time == time:
            return describe_write(table, write, state)
    unseen = {instant.time: instant for instant in timeline.pending_writes if instant.time in state.committed}
    instant = unseen.get(time) or check_undo(table, time)
    return describe_write(table, FailedWrite(time, instant.action, None, None), state)


def plan_undo(table: OpenTable) -> TakenBack:
    """What undoing the newest commit, or finishing an undo that was begun, would take."""
    table.settings.check_changeable()
    interrupted = find_interrupted_undo(table)
    if interrupted is not None:
        return plan_rollback_of(table, interrupted)
    timeline, state = timeline_and_ledger(table)
    unseen = [instant.time for instant in timeline.pending_writes if instant.time in state.committed]
    times = [*(instant.time for instant in timeline.completed_commits), *unseen]
    if not times:
        raise Refused("there is no commit to undo", table=table.settings.name)
    return plan_rollback_of(table, max(times))


def describe_write(table: OpenTable, write: FailedWrite, state: LedgerState) -> TakenBack:
    """What a commit tells of itself, and of a write that did not finish what is in storage."""
    path = instant_file(write.time, write.action, State.COMPLETED)
    content = read_or_none(table.store, path)
    if content is None and write.time in state.committed:
        content = table.ledger.payload(state.committed[write.time].slot)
    records, sizes = _sizes_in_storage(table, write) if content is None else _sizes_in_commit(content, path)
    return TakenBack(
        instant=write.time,
        action=write.action,
        is_committed=content is not None,
        owner=None if write.owner is None else str(write.owner),
        records=records,
        files=len(sizes),
        size_bytes=sum(sizes),
    )


def describe_archived(write: FailedWrite, content: bytes) -> TakenBack:
    """As `describe_write`, of a commit that is archived and says this."""
    records, sizes = _sizes_in_commit(content, instant_file(write.time, write.action, State.COMPLETED))
    return TakenBack(
        instant=write.time,
        action=write.action,
        is_committed=True,
        owner=None,
        records=records,
        files=len(sizes),
        size_bytes=sum(sizes),
    )


def _sizes_in_commit(content: bytes, path: str) -> tuple[int, list[int]]:
    with report_damage("commit metadata cannot be read", file=path):
        by_partition = decode_commit(content).partition_to_write_stats
    stats = [stat for stats in by_partition.values() for stat in stats if stat.path is not None]
    records = sum(stat.num_inserts + stat.num_update_writes + stat.num_deletes for stat in stats)
    return records, [stat.file_size_in_bytes for stat in stats]


def _sizes_in_storage(table: OpenTable, write: FailedWrite) -> tuple[int, list[int]]:
    """A file that was announced may not be there."""
    paths = (
        in_partition(request.partition, file.rpartition("/")[2])
        for request in plan_rollback(table, write).requests
        for file in request.files
    )
    stored = (table.store.stat(path) for path in paths)
    return 0, [file.size for file in stored if file is not None]
