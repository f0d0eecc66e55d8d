"""Instants and ledger entries: whether they can be read, and whether they can all be true."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.errors import TableDamaged
from holdfast.format.avro import decode_container
from holdfast.format.commits import decode_replaced_file_ids, decode_writes
from holdfast.format.ledger_entries import decode_checkpoint, decode_entry
from holdfast.format.malformed import Malformed
from holdfast.format.replace_requests import decode_replace_request
from holdfast.format.restores import decode_restore_metadata, decode_restore_plan
from holdfast.format.rollbacks import RollbackMetadata, decode_rollback_metadata, decode_rollback_plan
from holdfast.format.savepoints import SavepointMetadata, decode_savepoint
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, State
from holdfast.model.names import (
    CHECKPOINT_FOLDER,
    LEDGER_FLOOR,
    LEDGER_FOLDER,
    META_FOLDER,
    SHOWN_AS,
    instant_file,
    parse_instant_file,
)
from holdfast.model.reports import Finding, FindingKind, Severity
from holdfast.services.fates import Fates
from holdfast.storage.store import Store, read_or_none
from holdfast.table.opened import OpenTable
from holdfast.table.restoring import pending_restore
from holdfast.timeline.ledger import LedgerState
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

REPAIR_MOVES = "repair moves it to quarantine"
LOOK_CLOSER = "stop all writers and find out which program did this before anything else is written"
_FROM_BACKUP = "put the file back from a backup; without one, ask for help before anything is written"
_RUN_ROLLBACKS = "holdfast rollbacks run PATH, or the next write, finishes it"


@dataclass
class Told:
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


def read_instants(table: OpenTable, timeline: Timeline, state: LedgerState) -> Told:
    told = Told()
    speaking = [i for i in timeline.instants if i.is_completed or i.action in _PLANNED]
    for instant, content in _contents(table.store, speaking, told_in):
        if content is None:
            # It went away since the timeline was read, unless nothing else would have its plan.
            if instant.state is State.INFLIGHT and instant.action in (Action.ROLLBACK, Action.RESTORE):
                told.findings.append(_torn(instant, "its plan is missing"))
            continue
        try:
            told.take(instant, content)
        except Malformed as error:
            told.torn.add(instant)
            told.findings.append(_torn(instant, str(error)))
        else:
            told.findings += _rewritten(table, instant, content, state)
    return told


def told_in(instant: Instant) -> str:
    state = State.COMPLETED if instant.is_completed else State.REQUESTED
    return instant_file(instant.time, instant.action, state)


def _torn(instant: Instant, why: str) -> Finding:
    if instant.action is Action.ROLLBACK and instant.state is State.REQUESTED:
        remedy = f"{REPAIR_MOVES}; whoever rolls back next makes a new plan"
        return Finding(FindingKind.TORN_ROLLBACK, told_in(instant), why, remedy, Severity.WARNING)
    return Finding(FindingKind.TORN, told_in(instant), why, _FROM_BACKUP, Severity.DAMAGE)


def _rewritten(table: OpenTable, instant: Instant, content: bytes, state: LedgerState) -> Iterator[Finding]:
    """Whether a commit says something else than was decided."""
    decided = state.committed.get(instant.time)
    if decided is None or not instant.is_completed or instant.action not in COMMIT_ACTIONS:
        return
    try:
        payload = table.ledger.payload(decided.slot)
    except TableDamaged:
        return
    if payload != content:
        detail = "it says something else than its ledger entry"
        yield Finding(FindingKind.DISAGREEMENT, told_in(instant), detail, LOOK_CLOSER, Severity.DAMAGE)


def gaps(store: Store, state: LedgerState) -> Iterator[Finding]:
    """Completed instants that skipped a state on their way; those that are being archived lose them first."""
    states: dict[tuple[InstantTime, Action], set[State]] = {}
    for file in store.folder(META_FOLDER).files:
        parsed = parse_instant_file(file.path.rpartition("/")[2])
        if parsed is not None:
            time, action, reached = parsed
            states.setdefault((time, SHOWN_AS.get(action, action)), set()).add(reached)
    for (time, action), present in states.items():
        expected = {State.INFLIGHT} if action is Action.SAVEPOINT else {State.REQUESTED, State.INFLIGHT}
        if State.COMPLETED in present and not expected <= present and not state.is_archived(time):
            lacks = " and ".join(sorted(lacking.lower() for lacking in expected - present))
            yield Finding(
                FindingKind.CONTRADICTORY,
                instant_file(time, action, State.COMPLETED),
                f"it is completed and was never {lacks}",
                "readers see it; find out which program removed the file before the instant is rolled back",
                Severity.WARNING,
            )


def ledger_damage(store: Store) -> Iterator[Finding]:
    """Entries that cannot be read or do not follow each other, from the first to the last."""
    checkpoints: dict[int, tuple[str, str]] = {}
    for path, content in _contents(store, store.paths(CHECKPOINT_FOLDER), str):
        try:
            stored = decode_checkpoint(content or b"", LedgerState)
            checkpoints[stored.slot] = (stored.digest, path)
        except Malformed as error:
            yield _broken(FindingKind.TORN, path, str(error))
    known = read_or_none(store, LEDGER_FLOOR)
    try:
        floor = 0 if known is None else int(known)
    except ValueError:
        yield _broken(FindingKind.TORN, LEDGER_FLOOR, "it is not the number of a slot")
        floor = 0
    slot, digest, newest = 0, "", max(checkpoints, default=0)
    for path, content in _contents(store, store.paths(LEDGER_FOLDER), str):
        if content is None:
            continue  # It was trimmed since.
        try:
            entry, _, own_digest = decode_entry(content)
        except Malformed as error:
            yield _broken(FindingKind.TORN, path, str(error))
            slot, digest = slot + 1, ""
            continue
        newest = max(newest, entry.slot)
        if entry.slot <= floor:
            continue  # Single entries are left behind the floor, as long as they are referred to.
        follows = entry.slot == slot + 1 and digest in ("", entry.previous)
        starts_at_checkpoint = slot == 0 and entry.slot - 1 <= max(checkpoints, default=0)
        if not follows and not starts_at_checkpoint:
            yield _broken(FindingKind.CONTRADICTORY, path, "it does not follow the entry before it")
        slot, digest = entry.slot, own_digest
        if slot in checkpoints and checkpoints[slot][0] != digest:
            yield _broken(FindingKind.CONTRADICTORY, checkpoints[slot][1], "it is not of this ledger")
    if floor > newest:
        yield _broken(FindingKind.CONTRADICTORY, LEDGER_FLOOR, "it lies above the ledger's end")


def _broken(kind: FindingKind, path: str, detail: str) -> Finding:
    return Finding(kind, path, detail, _FROM_BACKUP, Severity.DAMAGE)


def contradictions(timeline: Timeline, told: Told, fates: Fates) -> Iterator[Finding]:
    """Rollbacks whose target is a commit all the same."""
    completed = {instant.time for instant in timeline.completed_commits}
    aborted = fates.state.aborted
    pairs = [(rollback, target) for rollback, target in told.plans.items()]
    # A compaction or a clustering may be rolled back and then carried out at the same time.
    writes = (Action.COMMIT, Action.DELTACOMMIT)
    for rollback, metadata in told.rollbacks:
        pairs += [(rollback.time, each.time) for each in metadata.instants if each.action in writes]
    for time, target in pairs:
        if target in completed and target not in aborted:
            instant = timeline.find(time, Action.ROLLBACK)
            assert instant is not None, "the pair was found on this timeline"
            detail = f"it rolls back {target}, which is completed"
            yield Finding(FindingKind.CONTRADICTORY, told_in(instant), detail, LOOK_CLOSER, Severity.DAMAGE)


def unfinished(timeline: Timeline, told: Told, fates: Fates) -> Iterator[Finding]:
    """Rollbacks that were begun, other than those that a restore consists of."""
    aborted = fates.state.aborted
    decided = {one.rollback: time for time, one in aborted.items() if not fates.is_carried_out(one)}
    torn = {instant.time for instant in told.torn}
    standing = {instant.time for instant in timeline.completed_commits} - aborted.keys()
    for rollback, target in (decided | told.plans).items():
        is_of_restore = target in aborted and aborted[target].restore is not None
        if rollback in torn or target in standing or is_of_restore:
            continue
        path = instant_file(rollback, Action.ROLLBACK, State.REQUESTED)
        detail = f"the rollback of {target} is not finished"
        yield Finding(FindingKind.UNFINISHED, path, detail, _RUN_ROLLBACKS, Severity.INFO)


def restores(timeline: Timeline, state: LedgerState) -> Iterator[Finding]:
    """Restores that were begun."""
    remedies = {
        instant.time: "let the program finish it that began it"
        for instant in timeline.instants
        if instant.action is Action.RESTORE and not instant.is_completed
    }
    ours = pending_restore(timeline, state)
    if ours is not None:
        remedies[ours.instant] = f"holdfast restore PATH --to {ours.to} finishes it"
    for time, remedy in remedies.items():
        path = instant_file(time, Action.RESTORE, State.REQUESTED)
        detail = "the restore is not finished, and nobody can write"
        yield Finding(FindingKind.PENDING, path, detail, remedy, Severity.INFO)


_T = TypeVar("_T")


def _contents(
    store: Store, things: Sequence[_T], path_of: Callable[[_T], str]
) -> Iterator[tuple[_T, bytes | None]]:
    """Each thing with the content of its file, a few at a time."""
    for at in range(0, len(things), _BATCH):
        batch = things[at : at + _BATCH]
        yield from zip(batch, store.read_all([path_of(thing) for thing in batch]), strict=True)
