"""Commits that the ledger has decided and the table lacks, and commits that only the timeline shows.

Lacking: files were lost, or the ledger is newer than the rest, as it can be in
a copy of a table in use. Then nothing may be published: what is built on a
part of a commit can never be put right.

Lost: a lacking commit that was shown once, and whose requested or inflight
file is left. It looks like a pending write. A reader that took it for one would
leave its rows out and show again what it replaced.

Only shown: the ledger of a copy may be older than the timeline. A commit of
ours is shown only after it was decided, and it carries a digest of itself. So
its completed file proves the decision, and COMMIT is entered from there. In a
table that is no copy there is never anything to enter: the ledger is read after
the timeline, and BEGIN and COMMIT are there before anything is shown. What was
aborted is not begun any more, and what is older than the newest instant of the
ledger and not begun is decided: neither is ever entered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import TableDamaged
from holdfast.format.commits import (
    WRITE_APPLICATION,
    WRITE_NUMBER,
    decode_extra_metadata,
    decode_written_files,
    is_sealed_commit,
    reseal_commit,
)
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.malformed import Malformed
from holdfast.format.restores import decode_restore_metadata
from holdfast.format.rollbacks import decode_rollback_metadata
from holdfast.model.instant import Action, Instant, InstantTime, State, end_of
from holdfast.model.names import HEARTBEAT_FOLDER, instant_file, partition_of
from holdfast.storage.store import Store, read_or_none
from holdfast.table.archive import read_archive
from holdfast.table.clean_plans import find_deleting_clean
from holdfast.table.pending import rollbacks_by_target
from holdfast.table.stable_read import timeline_and_ledger
from holdfast.timeline.archived import ArchivedTimeline
from holdfast.timeline.ledger import DecidedCommit, Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

if TYPE_CHECKING:
    from holdfast.table.opened import OpenTable

log = logging.getLogger(__name__)

_REPAIR = (
    "the ledger is newer than the rest, as in a copy of a table in use: holdfast repair PATH "
    "shows the commit again, or takes it back if its files are not here"
)


def refuse_if_vanished(table: OpenTable, unseen: Sequence[DecidedCommit]) -> None:
    """`TableDamaged` if the timeline has nothing of a commit that stands.

    A commit is inflight before it is decided, and until it is archived or taken back, by us or by
    another program, which leaves a record of it.
    """
    suspects = [commit for commit in unseen if not _is_seen(table.store, commit)]
    if not suspects:
        return
    timeline = load_timeline(table.store)
    # What stands before and after the look stood while the timeline was read.
    for _, time, action in find_vanished_commits(table, timeline, table.ledger.read(), suspects):
        raise TableDamaged(
            "a commit was decided, and the timeline shows nothing of it",
            instant=time,
            file=instant_file(time, action, State.COMPLETED),
            hint=_REPAIR,
        )


def find_vanished_commits(
    table: OpenTable, timeline: Timeline, state: LedgerState, unseen: Iterable[DecidedCommit]
) -> list[DecidedCommit]:
    """Those of the commits that stand, of which the timeline shows nothing that could be finished."""
    first = timeline.first_commit_time
    suspects = [
        commit
        for commit in unseen
        if commit.time in state.committed
        and not state.is_archived(commit.time)
        and not (first is not None and end_of(commit.time) < end_of(first))
        and not _is_on(timeline, commit.time)
    ]
    if not suspects:
        return []
    archived = read_archive(table.store, table.settings)
    explained = {
        *rollbacks_by_target(table.store, timeline),
        *instants_removed(table.store, timeline, archived),
        *(commit.time for commit in archived.timeline.completed_commits),
    }
    return [commit for commit in suspects if commit.time not in explained]


def instants_removed(store: Store, timeline: Timeline, archived: ArchivedTimeline) -> set[InstantTime]:
    """What completed rollbacks and restores say they removed, archived or not. What is torn says nothing."""
    removed: set[InstantTime] = set()
    for instant in archived.with_active(timeline).instants:
        if not instant.is_completed or instant.action not in (Action.ROLLBACK, Action.RESTORE):
            continue
        content = archived.content(instant.time, instant.action)
        if content is None:
            (content,) = store.read_all([instant_file(instant.time, instant.action, State.COMPLETED)])
        try:
            if content is not None and instant.action is Action.ROLLBACK:
                removed |= set(decode_rollback_metadata(content).commits)
            elif content is not None:
                removed |= set(decode_restore_metadata(content).commits)
        except Malformed:
            continue  # `verify` reports it.
    return removed


def refuse_if_incomplete(table: OpenTable, time: InstantTime, payload: bytes) -> None:
    """`TableDamaged` if a data file of a commit is not here, and no clean explains it."""
    missing = missing_data_file(table.store, payload)
    if missing is None:
        return
    now = table.ledger.read()
    if time not in now.committed or now.is_archived(time):
        return  # It was taken back, or archived and cleaned, while we looked.
    raise TableDamaged(
        "a data file of a commit that was decided is not here", instant=time, file=missing, hint=_REPAIR
    )


def missing_data_file(store: Store, payload: bytes) -> str | None:
    """A data file that a commit names and that is not there although no clean deletes it."""
    try:
        written = [file.path for file in decode_written_files(payload) if file.path is not None]
    except Malformed:
        return None  # Publishing it reports that.
    partitions = dict.fromkeys(map(partition_of, written))
    there = {file.path for partition in partitions for file in store.folder(partition).files}
    absent = [path for path in written if path not in there]
    if not absent:
        return None
    return next((path for path in absent if find_deleting_clean(store, path) is None), None)


def _is_on(timeline: Timeline, time: InstantTime) -> bool:
    """Whether a commit is shown, or can be: it is inflight before it is decided."""
    instant = timeline.find(time)
    return instant is not None and instant.state is not State.REQUESTED


def _is_seen(store: Store, commit: DecidedCommit) -> bool:
    states = (State.INFLIGHT, State.COMPLETED)
    return any(store.stat(instant_file(commit.time, commit.action, state)) is not None for state in states)


def refuse_if_lost(table: OpenTable, timeline: Timeline) -> None:
    """`TableDamaged` if the timeline lacks a commit that it has shown before.

    A writer's heartbeat goes after its commit is shown. So a write that beats is pending, and only
    for one that does not the ledger is asked. On a table where nothing is pending, this costs nothing.
    """
    pending = timeline.pending_writes
    if not pending or any(i.action is Action.RESTORE and not i.is_completed for i in timeline.instants):
        return
    beating = {file.path.rpartition("/")[2] for file in table.store.folder(HEARTBEAT_FOLDER).files}
    silent = [instant for instant in pending if instant.time not in beating]
    committed = table.ledger.read().committed if silent else {}
    suspects = [instant for instant in silent if instant.time in committed]
    if not suspects:
        return
    # It may have been shown, or taken back, since the timeline was read.
    now = load_timeline(table.store)
    still_pending = {instant.time for instant in now.pending_writes}
    rolled_back = {*rollbacks_by_target(table.store, now), *table.ledger.read().aborted}
    for instant in suspects:
        if instant.time in still_pending and instant.time not in rolled_back:
            raise TableDamaged(
                "a commit was shown and its file is missing",
                file=instant_file(instant.time, committed[instant.time].action, State.COMPLETED),
                hint="holdfast repair PATH, or the next write, shows it again from the ledger",
            )


def catch_up_ledger(table: OpenTable) -> tuple[Timeline, LedgerState]:
    """As `timeline_and_ledger`, after entering the commits that only the timeline shows into the ledger."""
    timeline, state = timeline_and_ledger(table)
    behind = commits_to_enter(table, timeline, table.ledger.known)
    for commit, content in behind:
        _enter(table, commit, content)
    if not behind:
        return timeline, state
    log.warning(
        "ledger.caught_up",
        extra={"table": table.store.uri(""), "instants": [commit.time for commit, _ in behind]},
    )
    return timeline_and_ledger(table)


def commits_to_enter(table: OpenTable, timeline: Timeline, state: LedgerState) -> list[tuple[Instant, bytes]]:
    """Commits of ours that are completed, and undecided in a ledger that was read after the timeline."""
    commits: list[tuple[Instant, bytes]] = []
    for commit in timeline.completed_commits:
        if commit.time in state.begun:
            commits.append((commit, _proof(table, commit)))
        elif _is_later(state, commit.time):
            content = read_or_none(table.store, instant_file(commit.time, commit.action, State.COMPLETED))
            if content is not None and is_sealed_commit(content, commit.time):
                commits.append((commit, content))
    return sorted([*_find_in_archive(table, timeline, state), *commits], key=lambda pair: pair[0].time)


def _find_in_archive(table: OpenTable, timeline: Timeline, state: LedgerState) -> list[tuple[Instant, bytes]]:
    """Commits that were archived since the ledger was copied, and are begun there."""
    # A savepoint shares its commit's time, and stays when that is archived.
    shown = {instant.time for instant in (*timeline.completed_commits, *timeline.pending_writes)}
    first = timeline.first_commit_time
    # Nothing is archived past what is undecided, and a write is shown as soon as it has begun.
    begun = [time for time in state.begun if time not in shown and first is not None and time < first]
    if not begun:
        return []
    archived = read_archive(table.store, table.settings)
    commits: list[tuple[Instant, bytes]] = []
    for commit in archived.timeline.completed_commits:
        content = archived.content(commit.time, commit.action) if commit.time in begun else None
        if content is not None:
            commits.append((commit, reseal_commit(content, commit.time)))
    return commits


def _proof(table: OpenTable, commit: Instant) -> bytes:
    """What the commit says, which proves that it was decided."""
    path = instant_file(commit.time, commit.action, State.COMPLETED)
    content = read_or_none(table.store, path) or b""
    if is_sealed_commit(content, commit.time):
        return content
    raise TableDamaged(
        "an instant is completed that the ledger has not decided, and its file is not whole",
        file=path,
        hint="copy the file again from where the table came from; or move it out of the table, "
        "and the next write rolls the instant back",
    )


def _enter(table: OpenTable, commit: Instant, content: bytes) -> None:
    extra = decode_extra_metadata(content)
    application, number = extra.get(WRITE_APPLICATION) or "", extra.get(WRITE_NUMBER) or "0"

    def decide(state: LedgerState) -> Decision | None:
        if commit.time not in state.begun and not _is_later(state, commit.time):
            return None
        return Decision(
            kind=EntryKind.COMMIT,
            instant=commit.time,
            action=commit.action,
            reason="the timeline shows it: the ledger is older",
            application=application,
            number=int(number) if number.isdecimal() else 0,
            payload=content,
        )

    table.ledger.append(decide)


def _is_later(state: LedgerState, time: InstantTime) -> bool:
    """Whether the ledger has given out no instant as late as this."""
    return state.newest is None or time > state.newest
