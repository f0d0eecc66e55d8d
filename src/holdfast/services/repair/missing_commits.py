"""A ledger that is newer than the rest, as it can be in a copy of a table in use, is brought back to it.

Commits that were decided and are not on the timeline are shown again in the
order of the ledger, up to the first whose data files are not here: what was
built on a part of a commit cannot be shown. That one and all after it are taken
back by one REVOKE, which also voids what the ledger said of archives, cleans and
savepoints that the table does not have.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from holdfast.format.commits import decode_commit, inflight_metadata
from holdfast.format.ledger_entries import EntryKind, Revoked
from holdfast.format.malformed import Malformed
from holdfast.format.replace_requests import encode_replace_request
from holdfast.model.instant import Action, InstantTime, State, just_after, just_before
from holdfast.model.names import META_FOLDER, instant_file, is_file_of
from holdfast.services.archive.archive import archive_payload, half_archived
from holdfast.table.archive import read_archive
from holdfast.table.missing_commits import find_vanished_commits, missing_data_file
from holdfast.table.opened import OpenTable
from holdfast.table.pending import rollbacks_by_target
from holdfast.table.zone import next_instant
from holdfast.timeline.archived import ArchivedTimeline
from holdfast.timeline.ledger import NO_COMMIT, NO_SLOT, DecidedCommit, Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline


@dataclass(frozen=True, slots=True)
class Lacking:
    """Commits that stand by the ledger and are not shown, in its order."""

    whole: tuple[DecidedCommit, ...] = ()
    """They can be shown."""
    lost: tuple[DecidedCommit, ...] = ()
    """A file of the first is not here, or it is not known what it says; the others came after it."""

    @property
    def lost_times(self) -> frozenset[InstantTime]:
        return frozenset(time for _, time, _ in self.lost)


def find_lacking(table: OpenTable, timeline: Timeline, state: LedgerState) -> Lacking:
    """What the timeline lacks of what `state` decided. Costs nothing if it shows everything."""
    shown = {instant.time for instant in timeline.completed_commits}
    unseen = sorted(
        DecidedCommit(c.slot, time, c.action) for time, c in state.committed.items() if time not in shown
    )
    if not unseen:
        return Lacking()
    planned = rollbacks_by_target(table.store, timeline)
    pending = (*timeline.pending_writes, *(i for i in timeline.instants if i.action is Action.COMPACTION))
    inflight = {i.time for i in pending if i.state is State.INFLIGHT} - planned.keys()
    gone = set(find_vanished_commits(table, timeline, state, unseen))
    waiting = [one for one in unseen if one in gone or one.time in inflight]
    at = next((n for n, one in enumerate(waiting) if not _is_whole(table, one)), len(waiting))
    return Lacking(tuple(waiting[:at]), tuple(waiting[at:]))


def files_of_lost(table: OpenTable, lost: Collection[InstantTime]) -> list[str]:
    """What is left of commits that are to be taken back."""
    if not lost:
        return []
    paths = table.store.paths("", without=META_FOLDER)
    return [path for path in paths if any(is_file_of(path, time) for time in lost)]


def take_back_lost(table: OpenTable, reported: Collection[InstantTime]) -> tuple[InstantTime, ...]:
    """Decide that the lost commits that were `reported` do not stand; which. Their rollbacks are due then.

    So are those of commits that were taken back long ago and are on the timeline again.
    """
    taken_back: list[InstantTime] = []

    def decide(state: LedgerState) -> Decision | None:
        timeline = load_timeline(table.store)
        lost = {one for one in find_lacking(table, timeline, state).lost if one.time in reported}
        archived = read_archive(table.store, table.settings)
        if lost:
            lost |= _only_in_the_ledger(timeline, archived, state)
        taken_back[:] = sorted(time for _, time, _ in lost)
        revoked = {(time, action) for _, time, action in lost} | _ghosts(table, timeline, state)
        return _decision(table, timeline, archived, state, revoked, voids=bool(lost)) if revoked else None

    table.ledger.append(decide)
    return tuple(taken_back)


def show_again(table: OpenTable, reported: Collection[InstantTime]) -> None:
    """Make vanished commits that are whole, and were `reported`, pending: the next recovery shows them."""
    for slot, time, action in find_lacking(table, load_timeline(table.store), table.ledger.read()).whole:
        if time in reported:
            requested = encode_replace_request() if action is Action.REPLACECOMMIT else b""
            operation = decode_commit(table.ledger.payload(slot)).operation_type or ""
            table.store.create(instant_file(time, action, State.REQUESTED), requested)
            table.store.create(instant_file(time, action, State.INFLIGHT), inflight_metadata(operation))


def _is_whole(table: OpenTable, one: DecidedCommit) -> bool:
    payload = None if one.slot == NO_SLOT else table.ledger.payload_unless_trimmed(one.slot)
    try:
        return (
            payload is not None
            and bool(decode_commit(payload))
            and missing_data_file(table.store, payload) is None
        )
    except Malformed:
        return False


def _only_in_the_ledger(
    timeline: Timeline, archived: ArchivedTimeline, state: LedgerState
) -> set[DecidedCommit]:
    """Commits that were archived, as the ledger says, and are in no archive."""
    known = {i.time for i in (*timeline.instants, *archived.timeline.instants)}
    return {
        DecidedCommit(committed.slot, time, committed.action)
        for time, committed in state.committed.items()
        if state.is_archived(time) and time not in known
    }


def _ghosts(table: OpenTable, timeline: Timeline, state: LedgerState) -> set[tuple[InstantTime, Action]]:
    """Writes on the timeline that were taken back so long ago that only the file of older aborts tells."""
    writes = (*timeline.completed_commits, *timeline.pending_writes)
    unknown = {(i.time, i.action) for i in writes if i.time not in {**state.committed, **state.begun}}
    unknown = {one for one in unknown if one[0] not in state.aborted}
    if not unknown:
        return set()
    older = table.ledger.read_with_older_aborts().aborted
    return {one for one in unknown if one[0] in older}


def _decision(
    table: OpenTable,
    timeline: Timeline,
    archived: ArchivedTimeline,
    state: LedgerState,
    doomed: Collection[tuple[InstantTime, Action]],
    *,
    voids: bool,
) -> Decision:
    """REVOKE of the `doomed`; it `voids` what the ledger says beyond the timeline, if it is newer."""
    begun = rollbacks_by_target(table.store, timeline)
    newest = max(time for time in (timeline.newest, state.newest) if time is not None)
    first = rollback = next_instant(table, newest)
    revoked: list[Revoked] = []
    for time, action in sorted(doomed, reverse=True):
        revoked.append(Revoked(time, action, begun.get(time, rollback)))
        rollback = just_after(rollback)
    decision = Decision(
        kind=EntryKind.REVOKE,
        instant=first,
        action=Action.ROLLBACK,
        revoked=tuple(revoked),
        reason="the ledger was newer than the table",
    )
    if not voids:
        return decision
    saved = {i.time for i in timeline.instants if i.action is Action.SAVEPOINT}
    leaving = half_archived(table, timeline, archived)
    gone = {*state.aborted, *(time for time, _ in (*doomed, *leaving))}
    return replace(
        decision,
        copied=True,
        archived=_newest_archived(timeline, archived, gone),
        through=max((i.time for i in archived.timeline.instants), default=NO_COMMIT),
        released=tuple(sorted(state.savepoints.keys() - saved)),
        payload=archive_payload(table, leaving, archived, state.aborted),
    )


def _newest_archived(
    timeline: Timeline, archived: ArchivedTimeline, gone: Collection[InstantTime]
) -> InstantTime:
    """The newest commit that has left the timeline for good: older than all that stand there."""
    standing = [commit.time for commit in timeline.completed_commits if commit.time not in gone]
    newest = max((commit.time for commit in archived.timeline.completed_commits), default=NO_COMMIT)
    return min(newest, just_before(standing[0])) if standing else newest
