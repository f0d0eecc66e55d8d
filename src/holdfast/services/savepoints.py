"""Savepoints: commits whose files stay, so that the table can be taken back to them.

    inflight ─► SAVEPOINT in the ledger ─► completed          RELEASE ─► completed, inflight deleted

The ledger decides: a savepoint and the rollback of the same commit cannot both
win. Whoever finds one that was decided and is inflight shows it; one that was
never decided, or deleted only in part, is forgotten by the next write.
"""

import logging

import pyarrow as pa

from holdfast.errors import Refused, UnknownInstant
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.savepoints import SavepointMetadata, encode_savepoint
from holdfast.model.instant import Action, Instant, InstantTime, State, end_of
from holdfast.model.names import in_partition, instant_file
from holdfast.model.reports import Savepoint
from holdfast.read.savepoints import decoded_savepoint, savepoint_report
from holdfast.read.snapshot import Moment
from holdfast.services.targets import commit_at, refuse_if_doomed
from holdfast.storage.store import read_or_none
from holdfast.table.opened import OpenTable
from holdfast.table.publish import hide_savepoint, publish_decided
from holdfast.table.restoring import refuse_if_restoring
from holdfast.table.steady import read_steadily, timeline_and_ledger
from holdfast.table.view import load_view
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

log = logging.getLogger(__name__)


def create_savepoint(
    table: OpenTable, moment: Moment | None = None, *, user: str = "", comment: str = ""
) -> Savepoint:
    """Protect a commit, by default the newest. The same call again gives the same savepoint.

    `SnapshotExpired` if a clean has removed files of it, `Refused` if a clean is
    about to, if a restore is not finished, or if somebody else's savepoint is there.
    """
    timeline = _shown(table)
    commit = timeline.last_commit if moment is None else commit_at(timeline, moment)
    if commit is None:
        raise Refused("there is no commit to protect", table=table.settings.name)
    existing = _existing(table, timeline, commit.time)
    metadata = existing or SavepointMetadata(user, table.clock.now_ms(), comment, _files(table, commit.time))
    if existing is None:
        metadata = _decide(table, commit, metadata)
    savepoint = savepoint_report(commit.time, metadata)
    if (savepoint.user, savepoint.comment) != (user, comment):
        raise Refused(
            "the commit has a savepoint already",
            instant=commit.time,
            user=savepoint.user or "unknown",
            comment=savepoint.comment or "none",
            hint="delete it first, or keep it",
        )
    return savepoint


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
    hide_savepoint(table, time)
    log.info("savepoint.deleted", extra={"instant": time})


def _shown(table: OpenTable) -> Timeline:
    table.settings.check_changeable()
    timeline, state = timeline_and_ledger(table)
    refuse_if_restoring(timeline, state)
    return load_timeline(table.store) if publish_decided(table, state, timeline) else timeline


def _existing(table: OpenTable, timeline: Timeline, time: InstantTime) -> SavepointMetadata | None:
    instant = timeline.find(time, Action.SAVEPOINT)
    if instant is None or not instant.is_completed:
        return None
    content = read_or_none(table.store, instant_file(time, Action.SAVEPOINT, State.COMPLETED))
    return None if content is None else decoded_savepoint(content, time)


def _files(table: OpenTable, time: InstantTime) -> dict[str, tuple[str, ...]]:
    """The names of all base files of the commit's snapshot, by partition; every one is there."""
    latest = read_steadily(table.store, lambda now: load_view(table.store, now).latest(end_of(time)))
    files: dict[str, list[str]] = {}
    for path, partition in zip(latest["path"].to_pylist(), latest["partition"].to_pylist(), strict=True):
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
    payload = table.ledger.payload(slot)
    # A writer that saw it before it was decided took it for a left-over.
    table.store.create(inflight, b"")
    table.store.create(instant_file(commit.time, Action.SAVEPOINT, State.COMPLETED), payload)
    # It may have been deleted between our look into the ledger and the file's appearance.
    if table.ledger.read().savepoints.get(commit.time) != slot:
        hide_savepoint(table, commit.time)
        raise UnknownInstant("the savepoint was deleted in the meantime", instant=commit.time)
    log.info("savepoint.created", extra={"instant": commit.time})
    return decoded_savepoint(payload, commit.time)
