"""Instants and ledger entries: whether they can be read, and whether they can all be true."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.errors import TableDamaged
from holdfast.format.avro import decode_container
from holdfast.format.commits import check_digest, decode_replaced_file_ids, decode_writes
from holdfast.format.ledger_entries import decode_checkpoint, decode_entry
from holdfast.format.malformed import Malformed
from holdfast.format.replace_requests import decode_replace_request
from holdfast.format.restores import decode_restore_metadata, decode_restore_plan
from holdfast.format.rollbacks import RollbackMetadata, decode_rollback_metadata, decode_rollback_plan
from holdfast.format.savepoints import SavepointMetadata, decode_savepoint
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, State
from holdfast.model.names import (
    ABORTED_FOLDER,
    CHECKPOINT_FOLDER,
    LEDGER_FLOOR,
    LEDGER_FOLDER,
    META_FOLDER,
    SHOWN_AS,
    instant_file,
    parse_instant_file,
)
from holdfast.model.reports import Finding, FindingKind, Severity
from holdfast.services.verify.instant_outcomes import InstantOutcomes
from holdfast.storage.store import Store, read_or_none
from holdfast.table.archive import read_archive
from holdfast.table.opened import OpenTable
from holdfast.table.pending import foreign_restores, pending_restore, restore_goal, unshown_restores
from holdfast.timeline.archived import ArchivedTimeline
from holdfast.timeline.ledger import Aborted, LedgerState
from holdfast.timeline.timeline import Timeline

_BATCH = 32
_PLANNED = frozenset(
    {
        Action.REPLACECOMMIT,
        Action.ROLLBACK,
        Action.RESTORE,
        Action.CLEAN,
        Action.COMPACTION,
        Action.LOGCOMPACTION,
        Action.INDEXING,
    }
)
"""Actions whose requested file says what is to be done."""

REPAIR_FINISHES = "repair, or the next write, sees to it"
REPAIR_MOVES = "repair moves it to quarantine"
_FROM_BACKUP = "put the file back from a backup, or copy it again from where the table came from"
_WITH_EARLIER = {
    State.REQUESTED: "the file",
    State.INFLIGHT: "it and its inflight file",
    State.COMPLETED: "it and its inflight and requested files",
}
"""The file that tells most of an instant, and what would tell of it without that one."""
_RUN_ROLLBACKS = "holdfast rollbacks run PATH, or the next write, finishes it"


@dataclass
class TimelineContents:
    """What the instants of the timeline say in their files."""

    findings: list[Finding] = field(default_factory=list)
    torn: set[Instant] = field(default_factory=set)
    rollbacks: list[tuple[Instant, RollbackMetadata]] = field(default_factory=list)
    restored: set[InstantTime] = field(default_factory=set)
    plans: dict[InstantTime, InstantTime] = field(default_factory=dict)
    """Pending rollback → its target."""
    savepoints: dict[InstantTime, SavepointMetadata] = field(default_factory=dict)

    @property
    def undone(self) -> frozenset[InstantTime]:
        rolled_back = (time for _, metadata in self.rollbacks for time in metadata.commits)
        return frozenset(rolled_back) | self.restored

    def take(self, instant: Instant, content: bytes) -> None:
        """Remember what the instant says; `Malformed` if it cannot be read."""
        match instant.action:
            case Action.COMMIT | Action.DELTACOMMIT | Action.REPLACECOMMIT if instant.is_completed:
                check_digest(content, instant.time)
                decode_writes(content)
                decode_replaced_file_ids(content)
            case Action.REPLACECOMMIT:
                decode_replace_request(content)
            case Action.ROLLBACK if instant.is_completed:
                self.rollbacks.append((instant, decode_rollback_metadata(content)))
            case Action.ROLLBACK:
                self.plans[instant.time] = decode_rollback_plan(content).target
            case Action.RESTORE if instant.is_completed:
                self.restored |= set(decode_restore_metadata(content).commits)
            case Action.RESTORE:
                decode_restore_plan(content)
            case Action.SAVEPOINT:
                self.savepoints[instant.time] = decode_savepoint(content)
            case _:
                decode_container(content)


def read_instants(table: OpenTable, timeline: Timeline, state: LedgerState) -> TimelineContents:
    contents = TimelineContents()
    speaking = [i for i in timeline.instants if i.is_completed or i.action in _PLANNED]
    for instant, content in _contents(table.store, speaking, content_path):
        if content is None:
            # It went away since the timeline was read, unless nothing else would have its plan.
            planned = (Action.ROLLBACK, Action.RESTORE)
            if instant.state is State.INFLIGHT and instant.action in planned and not _is_ours(instant, state):
                contents.findings.append(_finding_of_torn(instant, "its plan is missing", table, state))
            continue
        try:
            contents.take(instant, content)
        except Malformed as error:
            contents.torn.add(instant)
            contents.findings.append(_finding_of_torn(instant, str(error), table, state))
        else:
            contents.findings += _rewritten(table, instant, content, state)
    return contents


def content_path(instant: Instant) -> str:
    state = State.COMPLETED if instant.is_completed else State.REQUESTED
    return instant_file(instant.time, instant.action, state)


def _finding_of_torn(instant: Instant, why: str, table: OpenTable, state: LedgerState) -> Finding:
    path = content_path(instant)
    # Of one that is inflight and not in the ledger, it is not known what was carried out.
    is_replaceable = instant.state is State.REQUESTED or _is_ours(instant, state)
    if instant.action is Action.ROLLBACK and not instant.is_completed and is_replaceable:
        remedy = f"{REPAIR_MOVES}; the next rollback makes a new plan"
        return Finding(FindingKind.TORN_ROLLBACK, path, why, remedy, Severity.WARNING)
    if instant.action is Action.ROLLBACK and not instant.is_completed:
        remedy = f"{_FROM_BACKUP}; or move it and its inflight file out of the table: the next write goes on"
        return Finding(FindingKind.TORN, path, why, remedy, Severity.DAMAGE)
    if instant.is_completed and _payload_of(table, instant, state) is not None:
        return _finding_of_changed(instant, why)
    if instant.action is Action.SAVEPOINT:
        remedy = f"holdfast savepoint delete PATH --commit {instant.time}, then make it again"
        return Finding(FindingKind.TORN, path, why, remedy, Severity.DAMAGE)
    return Finding(FindingKind.TORN, path, why, _FROM_BACKUP, Severity.DAMAGE)


def _is_ours(rollback: Instant, state: LedgerState) -> bool:
    """Whether the ledger knows what is rolled back: carrying that out may be repeated with any plan."""
    return any(aborted.rollback == rollback.time for aborted in state.aborted.values())


def _finding_of_changed(commit: Instant, why: str) -> Finding:
    remedy = "repair moves it to quarantine, and shows the commit again from the ledger"
    return Finding(FindingKind.CHANGED, content_path(commit), why, remedy, Severity.DAMAGE)


def _payload_of(table: OpenTable, instant: Instant, state: LedgerState) -> bytes | None:
    """What the ledger says of a commit; None if it has nothing of it."""
    decided = state.committed.get(instant.time)
    if decided is None or instant.action not in COMMIT_ACTIONS:
        return None
    try:
        return table.ledger.payload(decided.slot)
    except TableDamaged:
        return None


def _rewritten(table: OpenTable, instant: Instant, content: bytes, state: LedgerState) -> Iterator[Finding]:
    """Whether a commit says something else than was decided."""
    payload = _payload_of(table, instant, state) if instant.is_completed else None
    if payload is not None and payload != content:
        yield _finding_of_changed(instant, "it says something else than its ledger entry")


def gaps(store: Store, state: LedgerState) -> Iterator[Finding]:
    """Completed instants that skipped a state on their way; those that are being archived lose them first."""
    states: dict[tuple[InstantTime, Action], set[State]] = {}
    for file in store.folder(META_FOLDER).files:
        parsed = parse_instant_file(file.path.rpartition("/")[2])
        if parsed is not None:
            time, action, reached = parsed
            states.setdefault((time, SHOWN_AS.get(action, action)), set()).add(reached)
    archived: ArchivedTimeline | None = None
    for (time, action), present in states.items():
        expected = {State.INFLIGHT} if action is Action.SAVEPOINT else {State.REQUESTED, State.INFLIGHT}
        is_leaving = state.is_archived(time) if action in COMMIT_ACTIONS else state.has_left(time)
        if State.COMPLETED in present and not expected <= present and not is_leaving:
            archived = archived or read_archive(store)
            if archived.content(time, action) is not None:
                continue  # It was about to leave, as a ledger that was copied later would tell.
            lacks = " and ".join(sorted(lacking.lower() for lacking in expected - present))
            yield Finding(
                FindingKind.CONTRADICTORY,
                instant_file(time, action, State.COMPLETED),
                f"it is completed and was never {lacks}",
                "leave it: once an instant is completed nothing needs the file",
                Severity.WARNING,
            )


def ledger_damage(store: Store) -> Iterator[Finding]:
    """Entries that cannot be read or do not follow each other, from the first to the last."""
    checkpoints: dict[int, tuple[str, str]] = {}
    for path, content in _contents(store, store.paths(CHECKPOINT_FOLDER), str):
        try:
            stored = decode_checkpoint(content or b"", LedgerState)
        except Malformed as error:
            yield _ledger_finding(FindingKind.TORN, path, str(error))
            continue
        if stored.slot != _slot_in(path):
            yield _ledger_finding(
                FindingKind.CONTRADICTORY, path, f"it is the checkpoint of slot {stored.slot}"
            )
        checkpoints[stored.slot] = (stored.digest, path)
    for path, content in _contents(store, store.paths(ABORTED_FOLDER), str):
        try:
            decode_checkpoint(content or b"", dict[InstantTime, Aborted])
        except Malformed as error:
            yield _ledger_finding(FindingKind.TORN, path, str(error))
    known = read_or_none(store, LEDGER_FLOOR)
    try:
        floor = 0 if known is None else int(known)
    except ValueError:
        yield _ledger_finding(FindingKind.TORN, LEDGER_FLOOR, "it is not the number of a slot")
        floor = 0
    slot, digest, newest = 0, "", max(checkpoints, default=0)
    for path, content in _contents(store, store.paths(LEDGER_FOLDER), str):
        if content is None:
            continue  # It was trimmed since.
        try:
            entry, _, own_digest = decode_entry(content)
        except Malformed as error:
            yield _ledger_finding(FindingKind.TORN, path, str(error))
            slot, digest = slot + 1, ""
            continue
        if entry.slot != _slot_in(path):
            yield _ledger_finding(FindingKind.CONTRADICTORY, path, f"it is the entry of slot {entry.slot}")
            slot, digest = slot + 1, ""
            continue
        newest = max(newest, entry.slot)
        if entry.slot <= floor:
            continue  # Single entries are left behind the floor, as long as they are referred to.
        follows = entry.slot == slot + 1 and digest in ("", entry.previous)
        starts_at_checkpoint = slot == 0 and entry.slot - 1 <= max(checkpoints, default=0)
        if not follows and not starts_at_checkpoint:
            yield _ledger_finding(FindingKind.CONTRADICTORY, path, "it does not follow the entry before it")
        slot, digest = entry.slot, own_digest
        if slot in checkpoints and checkpoints[slot][0] != digest:
            yield _ledger_finding(FindingKind.CONTRADICTORY, checkpoints[slot][1], "it is not of this ledger")
    if floor > newest:
        yield _ledger_finding(FindingKind.CONTRADICTORY, LEDGER_FLOOR, "it lies above the ledger's end")


def _slot_in(path: str) -> int | None:
    name = path.rpartition("/")[2]
    return int(name) if name.isdigit() else None


def _ledger_finding(kind: FindingKind, path: str, detail: str) -> Finding:
    return Finding(kind, path, detail, _FROM_BACKUP, Severity.DAMAGE)


def contradictions(
    timeline: Timeline, contents: TimelineContents, outcomes: InstantOutcomes
) -> Iterator[Finding]:
    """Rollbacks whose target is a commit all the same."""
    completed = {instant.time for instant in timeline.completed_commits}
    aborted = outcomes.state.aborted
    pairs = [(rollback, target) for rollback, target in contents.plans.items()]
    # A compaction or a clustering may be rolled back and then carried out at the same time.
    writes = (Action.COMMIT, Action.DELTACOMMIT)
    for rollback, metadata in contents.rollbacks:
        pairs += [(rollback.time, each.time) for each in metadata.instants if each.action in writes]
    for time, target in pairs:
        if target in completed and target not in aborted:
            instant = timeline.find(time, Action.ROLLBACK)
            assert instant is not None, "the pair was found on this timeline"
            detail = f"it rolls back {target}, which is completed"
            remedy = (
                "let the program finish it that began it; if that is gone, or this is a copy, move "
                f"{_WITH_EARLIER[instant.state]} out of the table, and nothing was rolled back"
            )
            yield Finding(FindingKind.CONTRADICTORY, content_path(instant), detail, remedy, Severity.DAMAGE)


def pending_rollbacks(
    timeline: Timeline, contents: TimelineContents, outcomes: InstantOutcomes
) -> Iterator[Finding]:
    """Rollbacks that were begun, other than those that a restore consists of."""
    aborted = outcomes.state.aborted
    decided = {one.rollback: time for time, one in aborted.items() if not outcomes.is_carried_out(one)}
    torn = {instant.time for instant in contents.torn}
    standing = {instant.time for instant in timeline.completed_commits} - aborted.keys()
    for rollback, target in (decided | contents.plans).items():
        is_of_restore = target in aborted and aborted[target].restore is not None
        if rollback in torn or target in standing or is_of_restore:
            continue
        path = instant_file(rollback, Action.ROLLBACK, State.REQUESTED)
        detail = f"the rollback of {target} is not finished"
        yield Finding(FindingKind.UNFINISHED, path, detail, _RUN_ROLLBACKS, Severity.INFO)


def pending_restores(store: Store, timeline: Timeline, state: LedgerState) -> Iterator[Finding]:
    """Restores that were begun."""
    over = unshown_restores(timeline, state)
    for time in over:
        path = instant_file(time, Action.RESTORE, State.COMPLETED)
        detail, remedy = "the restore was completed and is not shown any more", REPAIR_FINISHES
        yield Finding(FindingKind.DISAGREEMENT, path, detail, remedy, Severity.WARNING)
    remedies = {time: _finishing(store, time) for time in foreign_restores(timeline, state)}
    ours = pending_restore(timeline, state)
    if ours is not None:
        remedies[ours.instant] = f"holdfast restore PATH --to {ours.to} finishes it"
    newest = timeline.last_commit
    for time, remedy in remedies.items():
        if newest is not None and newest.time > time:
            path = instant_file(time, Action.RESTORE, State.COMPLETED)
            detail = (
                "the restore was finished, since commits follow it; without the file no process can write"
            )
            yield Finding(FindingKind.PENDING, path, detail, remedy, Severity.WARNING)
        else:
            path = instant_file(time, Action.RESTORE, State.REQUESTED)
            detail = "the restore is not finished, and no process can write"
            yield Finding(FindingKind.PENDING, path, detail, remedy, Severity.INFO)


def _finishing(store: Store, restore: InstantTime) -> str:
    """How a restore that the ledger does not know comes to its end."""
    goal = restore_goal(store, restore)
    if goal is None:
        return "let the program finish it that began it"
    return f"let the program finish it that began it; if that is gone: holdfast restore PATH --to {goal}"


_T = TypeVar("_T")


def _contents(
    store: Store, things: Sequence[_T], path_of: Callable[[_T], str]
) -> Iterator[tuple[_T, bytes | None]]:
    """Each thing with the content of its file, a few at a time."""
    for at in range(0, len(things), _BATCH):
        batch = things[at : at + _BATCH]
        yield from zip(batch, store.read_all([path_of(thing) for thing in batch]), strict=True)
