"""Previews: what vanishes with an instant that is taken back. Nothing here changes anything."""

from holdfast.errors import Refused, TableDamaged
from holdfast.format.commits import decode_commit
from holdfast.format.malformed import Malformed
from holdfast.model.instant import InstantTime, State
from holdfast.model.names import in_partition, instant_file
from holdfast.model.reports import TakenBack
from holdfast.services.rollback import FailedWrite, failed_writes, plan_rollback
from holdfast.services.undo import check_undo, interrupted_undo
from holdfast.storage.store import read_or_none
from holdfast.table.opened import OpenTable
from holdfast.table.steady import timeline_and_ledger
from holdfast.timeline.ledger import LedgerState


def preview_rollback(table: OpenTable, time: InstantTime) -> TakenBack:
    """What the rollback of one instant would take; what stands in the way of it, unless it is pending."""
    timeline, state = timeline_and_ledger(table)
    for write in failed_writes(table, timeline, state):
        if write.time == time:
            return taken_back(table, write, state)
    unseen = {instant.time: instant for instant in timeline.pending_writes if instant.time in state.committed}
    instant = unseen.get(time) or check_undo(table, time)
    return taken_back(table, FailedWrite(time, instant.action, None, None), state)


def preview_undo(table: OpenTable) -> TakenBack:
    """What undoing the newest commit, or finishing an undo that was begun, would take."""
    interrupted = interrupted_undo(table)
    if interrupted is not None:
        return preview_rollback(table, interrupted)
    timeline, state = timeline_and_ledger(table)
    unseen = [instant.time for instant in timeline.pending_writes if instant.time in state.committed]
    times = [*(instant.time for instant in timeline.completed_commits), *unseen]
    if not times:
        raise Refused("there is no commit to undo", table=table.settings.name)
    return preview_rollback(table, max(times))


def taken_back(table: OpenTable, write: FailedWrite, state: LedgerState) -> TakenBack:
    """What a commit tells of itself, and of a write that did not finish what is in storage."""
    path = instant_file(write.time, write.action, State.COMPLETED)
    content = read_or_none(table.store, path)
    if content is None and write.time in state.committed:
        content = table.ledger.payload(state.committed[write.time].slot)
    records, sizes = _unfinished(table, write) if content is None else _committed(content, path)
    return TakenBack(
        instant=write.time,
        action=write.action,
        is_committed=content is not None,
        owner=None if write.owner is None else str(write.owner),
        records=records,
        files=len(sizes),
        size_bytes=sum(sizes),
    )


def _committed(content: bytes, path: str) -> tuple[int, list[int]]:
    try:
        by_partition = decode_commit(content).partition_to_write_stats
    except Malformed as error:
        raise TableDamaged("commit metadata cannot be read", file=path, cause=error) from error
    stats = [stat for stats in by_partition.values() for stat in stats if stat.path is not None]
    records = sum(stat.num_inserts + stat.num_update_writes + stat.num_deletes for stat in stats)
    return records, [stat.file_size_in_bytes for stat in stats]


def _unfinished(table: OpenTable, write: FailedWrite) -> tuple[int, list[int]]:
    """A file that was announced may not be there."""
    paths = (
        in_partition(request.partition, file.rpartition("/")[2])
        for request in plan_rollback(table, write).requests
        for file in request.files
    )
    stored = (table.store.stat(path) for path in paths)
    return 0, [file.size for file in stored if file is not None]
