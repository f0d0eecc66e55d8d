"""Sweep: remove small left-overs of instants whose fate is decided.

A writer that dies after its commit leaves markers and a heartbeat; a task
that finishes late leaves a file that does not count. All of them name their
instant. They are listed before the ledger and the timeline are read, so an
instant that began since is not mistaken for a finished one, and only one that
is known to be decided is touched.
"""

import logging

from holdfast.format.commits import check_digest, decode_written_files
from holdfast.format.malformed import report_damage
from holdfast.model.instant import Instant, InstantTime
from holdfast.model.names import HEARTBEAT_FOLDER, heartbeat_path, instant_path
from holdfast.storage.store import read_or_none
from holdfast.table.log_files import SharedFiles, files_of_write
from holdfast.table.markers import delete_markers, instants_with_markers, read_markers
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import load_timeline

log = logging.getLogger(__name__)


def sweep(table: OpenTable) -> None:
    """Remove what decided instants left."""
    marked = instants_with_markers(table.store)
    beating = [f.path.rpartition("/")[2] for f in table.store.folder(HEARTBEAT_FOLDER).files]
    table.store.sweep_leftovers()
    if not marked and not beating:
        return
    state = table.ledger.read()
    timeline = load_timeline(table.store)
    completed = {instant.time: instant for instant in timeline.completed_commits}
    shown = {instant.time for instant in timeline.instants}
    known = {*state.begun, *state.committed, *state.aborted, *shown}
    if known.issuperset((*marked, *beating)):
        aborted = state.aborted
    else:
        aborted = table.ledger.read_with_older_aborts().aborted
    for time in marked:
        if time in aborted:
            _sweep_markers(table, time, committed=frozenset())
        elif time in completed and (written := _files_of(table, completed[time])) is not None:
            _sweep_markers(table, time, committed=written)
    for time in map(InstantTime, beating):
        # A commit that is not on the timeline at all was rolled back by another Hudi program, or archived.
        if time in aborted or time in completed or (time in state.committed and time not in shown):
            table.store.delete(heartbeat_path(time))


def surplus_files(table: OpenTable, time: InstantTime, *, committed: frozenset[str]) -> tuple[str, ...]:
    """Files of `time` that its markers announce and its commit does not name."""
    return files_of_markers(table, time, committed=committed).own


def files_of_markers(table: OpenTable, time: InstantTime, *, committed: frozenset[str]) -> SharedFiles:
    """As `surplus_files`, with the log files in which there is more than what `time` wrote."""
    announced = [marker.data_path for marker in read_markers(table.store, time)]
    return files_of_write(table.store, (path for path in announced if path not in committed), time)


def _sweep_markers(table: OpenTable, time: InstantTime, *, committed: frozenset[str]) -> None:
    stuck = table.store.delete_all(surplus_files(table, time, committed=committed))
    if stuck:
        # The markers stay: they are all that leads to these files.
        log.warning(
            "sweep.stuck",
            extra={"table": table.store.uri(""), "instant": time, "file": stuck[0], "count": len(stuck)},
        )
    else:
        delete_markers(table.store, time)


def _files_of(table: OpenTable, commit: Instant) -> frozenset[str] | None:
    """What the commit names; None if it was taken back in the meantime."""
    path = instant_path(commit)
    content = read_or_none(table.store, path)
    if content is None:
        return None
    with report_damage("commit metadata cannot be read", file=path):
        check_digest(content, commit.time)
        written = decode_written_files(content)
    return frozenset(file.path for file in written if file.path is not None)
