"""Savepoints: commits whose files stay, so that the table can be taken back to them.

    inflight ─► SAVEPOINT in the ledger ─► completed          RELEASE ─► completed, inflight deleted

The ledger decides: a savepoint and the rollback of the same commit cannot both
win. A process that finds one that was decided and is inflight shows it; one that was
never decided, or deleted only in part, is forgotten by the next write.
"""

import logging

import pyarrow as pa

from holdfast.errors import Refused, SnapshotExpired, UnknownInstant
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.savepoints import SavepointMetadata, encode_savepoint, savepoint_of
from holdfast.model.instant import Action, Instant, InstantTime, State, end_of
from holdfast.model.names import in_partition, instant_file
from holdfast.model.reports import Savepoint
from holdfast.read.savepoints import read_savepoint_metadata, savepoint_report, savepoints
from holdfast.read.snapshot import Moment
from holdfast.services.plans import refuse_beyond_plan
from holdfast.services.targets import commit_at, instant_named, refuse_if_doomed
from holdfast.storage.store import read_or_none
from holdfast.table.counted_logs import with_counted_logs
from holdfast.table.missing_commits import catch_up_ledger
from holdfast.table.opened import OpenTable
from holdfast.table.pending import refuse_if_restoring
from holdfast.table.publish import publish_decided, settle_savepoint
from holdfast.table.settled import await_settled
from holdfast.table.stable_read import read_stable
from holdfast.table.view import data_files, load_view
from holdfast.timeline.after_decision import after_decision
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

log = logging.getLogger(__name__)

_ATTEMPTS = 4
"""Each after the first follows a clean that was faster."""


def create_savepoint(
    table: OpenTable, moment: Moment | None = None, *, user: str = "", comment: str = ""
) -> Savepoint:
    """Protect a commit, by default the newest. The same call again gives the same savepoint.

    `SnapshotExpired` if a clean has removed files of the commit that is named, `Refused`
    if a clean is about to, if a restore is not finished, or if somebody else's savepoint
    is there. `WriterActive` if an older write is not decided, after waiting for it: a
    restore to the savepoint is to give the rows that are there now.
    """
    for _ in range(_ATTEMPTS):
        try:
            return _create_savepoint(table, moment, user, comment)
        except SnapshotExpired:
            # Waiting for an older write, the newest commit may be an old one by now, and cleaned.
            if moment is not None:
                raise
    return _create_savepoint(table, moment, user, comment)


def _create_savepoint(table: OpenTable, moment: Moment | None, user: str, comment: str) -> Savepoint:
    now = _show_decided(table)
    archived = None if moment is None else _find_archived(table, now, moment)
    if archived is not None:
        _refuse_if_other(archived[0], archived[1], user, comment)
        return savepoint_report(*archived)
    newest = now.last_commit
    if newest is None:
        raise Refused("there is no commit to protect", table=table.settings.name)

    def find_commit(timeline: Timeline) -> Instant:
        return newest if moment is None else commit_at(table, timeline, moment)

    timeline = await_settled(table, lambda now: find_commit(now).time)
    commit = find_commit(timeline)
    shown = _metadata_shown(table, timeline, commit.time)
    if shown is not None:
        _refuse_if_other(commit.time, shown, user, comment)
        if commit.time in table.ledger.read().savepoints:
            return savepoint_report(commit.time, shown)
    # One that only the timeline knows is another program's, or about to be removed by a deletion.
    wanted = shown or savepoint_of(user, table.clock.now_ms(), comment, _files(table, commit.time))
    decided = _decide(table, commit, wanted)
    _refuse_if_other(commit.time, decided, user, comment)
    return savepoint_report(commit.time, decided)


def _find_archived(
    table: OpenTable, timeline: Timeline, moment: Moment
) -> tuple[InstantTime, SavepointMetadata] | None:
    """The savepoint of a commit that has left the timeline, if the moment names one."""
    named = instant_named(table, moment)
    if named is None or named in {commit.time for commit in timeline.completed_commits}:
        return None
    metadata = _metadata_shown(table, timeline, named)
    return None if metadata is None else (named, metadata)


def _refuse_if_other(time: InstantTime, metadata: SavepointMetadata, user: str, comment: str) -> None:
    savepoint = savepoint_report(time, metadata)
    if (savepoint.user, savepoint.comment) != (user, comment):
        raise Refused(
            "the commit has a savepoint already",
            instant=time,
            user=savepoint.user or "unknown",
            comment=savepoint.comment or "none",
            hint="delete it first, or keep it",
        )


def delete_savepoint(table: OpenTable, time: InstantTime) -> None:
    """Let a commit's files go when the next clean wants them. `UnknownInstant` if it has no savepoint."""
    table.settings.check_changeable()
    is_shown = load_timeline(table.store).find(time, Action.SAVEPOINT) is not None
    if not is_shown and time not in table.ledger.read().savepoints:
        raise UnknownInstant(
            "there is no savepoint of this commit", instant=time, hint="see holdfast savepoints show PATH"
        )

    def decide(state: LedgerState) -> Decision | None:
        if time not in state.savepoints:
            return None
        return Decision(kind=EntryKind.RELEASE, instant=time, action=Action.SAVEPOINT)

    table.ledger.append(decide)
    with after_decision("the savepoint is deleted", instant=time, hint="run the same again to finish it"):
        settle_savepoint(table, time, None)
    log.info("savepoint.deleted", extra={"table": table.store.uri(""), "instant": time})


def execute_deletion(table: OpenTable, planned: Savepoint) -> Savepoint:
    """Delete this savepoint. `PlanOutdated` if the commit has another one by now."""
    standing = next((one for one in savepoints(table) if one.instant == planned.instant), planned)
    if standing != planned:
        refuse_beyond_plan((), [planned.instant])
    delete_savepoint(table, planned.instant)
    return planned


def _show_decided(table: OpenTable) -> Timeline:
    table.settings.check_changeable()
    timeline, state = catch_up_ledger(table)
    refuse_if_restoring(timeline, state)
    return load_timeline(table.store) if publish_decided(table, state, timeline) else timeline


def _metadata_shown(table: OpenTable, timeline: Timeline, time: InstantTime) -> SavepointMetadata | None:
    instant = timeline.find(time, Action.SAVEPOINT)
    if instant is None or not instant.is_completed:
        return None
    content = read_or_none(table.store, instant_file(time, Action.SAVEPOINT, State.COMPLETED))
    return None if content is None else read_savepoint_metadata(content, time)


def _files(table: OpenTable, time: InstantTime) -> dict[str, tuple[str, ...]]:
    """The names of all files of the commit's snapshot, by partition; every one is there."""

    def find_slices(now: Timeline) -> pa.Table:
        view = load_view(table.store, now)
        # Log files of later writes are of the same slices, and may go.
        return with_counted_logs(view, view.latest(end_of(time)), time)

    latest = read_stable(table.store, find_slices)
    paths, rows = data_files(latest)
    partitions = latest["partition"].take(pa.array(rows))
    files: dict[str, list[str]] = {}
    for path, partition in zip(paths.to_pylist(), partitions.to_pylist(), strict=True):
        files.setdefault(partition, []).append(path.rpartition("/")[2])
    return {partition: tuple(names) for partition, names in files.items()}


def _decide(table: OpenTable, commit: Instant, metadata: SavepointMetadata) -> SavepointMetadata:
    """Put SAVEPOINT into the ledger, unless it is there, and show it; what it says."""
    names = metadata.files.items()
    paths = pa.array([in_partition(partition, n) for partition, files in names for n in files], pa.string())
    refuse_if_doomed(table, load_timeline(table.store), table.ledger.read(), paths)

    def decide(state: LedgerState) -> Decision | None:
        if commit.time in state.savepoints:
            return None
        timeline = load_timeline(table.store)
        refuse_if_restoring(timeline, state)
        refuse_if_doomed(table, timeline, state, paths)
        if state.is_archived(commit.time):
            raise UnknownInstant("the commit was archived in the meantime", instant=commit.time)
        if commit.time in state.aborted or commit.time not in {c.time for c in timeline.completed_commits}:
            raise UnknownInstant("the commit was taken back in the meantime", instant=commit.time)
        return Decision(
            kind=EntryKind.SAVEPOINT,
            instant=commit.time,
            action=Action.SAVEPOINT,
            payload=encode_savepoint(metadata),
        )

    inflight = instant_file(commit.time, Action.SAVEPOINT, State.INFLIGHT)
    table.store.create(inflight, b"")
    slot = table.ledger.append(decide).savepoints[commit.time]
    # A writer that saw it before it was decided took it for a left-over.
    hint = "the next write shows it, and so does the same call"
    with after_decision("the savepoint is decided", instant=commit.time, hint=hint):
        standing = settle_savepoint(table, commit.time, slot)
        if standing is None:
            raise UnknownInstant("the savepoint was deleted in the meantime", instant=commit.time)
        log.info("savepoint.created", extra={"table": table.store.uri(""), "instant": commit.time})
        return read_savepoint_metadata(table.ledger.payload(standing), commit.time)
