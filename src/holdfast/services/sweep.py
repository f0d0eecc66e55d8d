"""Sweep: remove small left-overs of instants whose fate is decided.

A writer that dies after its commit leaves markers and a heartbeat; a task
that finishes late leaves a file nobody counts. All of them name their
instant, and only a decided instant is touched.
"""

from holdfast.errors import TableDamaged
from holdfast.format.commits import decode_file_sizes
from holdfast.format.malformed import Malformed
from holdfast.model.instant import InstantTime
from holdfast.model.names import HEARTBEAT_FOLDER, heartbeat_path, parse_base_file
from holdfast.table.markers import delete_markers, instants_with_markers, read_markers
from holdfast.table.opened import OpenTable
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline, read_completed


def sweep(table: OpenTable, timeline: Timeline, state: LedgerState) -> tuple[str, ...]:
    """Remove what decided instants left; the data files among it."""
    swept: list[str] = []
    for time in instants_with_markers(table.store):
        if _is_running(time, timeline, state):
            continue
        late = _late_files(table, timeline, state, time)
        table.store.delete_all(late)
        delete_markers(table.store, time)
        swept += late
    for file in table.store.folder(HEARTBEAT_FOLDER).files:
        time = InstantTime(file.path.rpartition("/")[2])
        if _is_ours_and_decided(time, timeline, state):
            table.store.delete(heartbeat_path(time))
    table.store.sweep_leftovers()
    return tuple(swept)


def reconcile(table: OpenTable, time: InstantTime, committed: frozenset[str]) -> tuple[str, ...]:
    """Files of `time` that its markers announce and its commit does not name."""
    announced = [marker.data_path for marker in read_markers(table.store, time)]
    return tuple(path for path in announced if path not in committed and _belongs(path, time))


def _late_files(
    table: OpenTable, timeline: Timeline, state: LedgerState, time: InstantTime
) -> tuple[str, ...]:
    if time in state.aborted:
        return reconcile(table, time, frozenset())
    commit = next((i for i in timeline.completed_commits if i.time == time), None)
    if commit is None:
        # Not on the timeline and unknown to the ledger: another program's archived
        # or rolled-back instant. Its files may be data; only the markers go.
        return ()
    try:
        committed = frozenset(decode_file_sizes(read_completed(table.store, commit)))
    except Malformed as error:
        raise TableDamaged("commit metadata cannot be read", instant=time, cause=error) from error
    return reconcile(table, time, committed)


def _is_running(time: InstantTime, timeline: Timeline, state: LedgerState) -> bool:
    is_pending = any(i.time == time and not i.is_completed for i in timeline.instants)
    return time in state.begun or is_pending


def _is_ours_and_decided(time: InstantTime, timeline: Timeline, state: LedgerState) -> bool:
    is_completed = any(i.time == time for i in timeline.completed_commits)
    return time not in state.begun and (time in state.aborted or time in state.committed or is_completed)


def _belongs(path: str, time: InstantTime) -> bool:
    """Whether the file's own name says it is of that instant: nothing else may be deleted for it."""
    name = parse_base_file(path.rpartition("/")[2])
    return name is not None and name.instant == time
