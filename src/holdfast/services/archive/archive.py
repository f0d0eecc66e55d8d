"""Archive: take the oldest instants from the active timeline, and keep what they said.

    finish what was decided ─► plan ─► ARCHIVE in the ledger ─► archive written ─► its record ─► files deleted

Readers list the timeline with every query, so it must stay short. ARCHIVE is
decided only if no savepoint, no lease and nothing that takes commits back came
since the plan was made; from then on a process that wants to go back to one of the
commits is refused. The archive is there before the first file goes, and so is
the record of what the rollbacks and restores took back that go; then go
requested and inflight files, then completed ones, the oldest first, so that
the timeline never has a hole. Every step may be repeated, by several at once.
"""

import datetime as dt
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import msgspec

from holdfast.concurrency.locks.lock import NO_LOCK, Lock
from holdfast.concurrency.locks.open import open_lock
from holdfast.config.choices import FailedWritesPolicy
from holdfast.config.cleaning import ArchiveSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Conflict, Refused, StorageUnavailable, TableDamaged
from holdfast.format.archive import ArchivedFile, decode_archive, encode_archive
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.malformed import report_damage
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, State, end_of
from holdfast.model.names import (
    META_FOLDER,
    SHOWN_AS,
    archive_file,
    parse_instant_file,
    restore_archive_file,
)
from holdfast.model.reports import ArchiveReport
from holdfast.services.archive.guards import (
    UNDOING,
    Folders,
    bound_of_uncleaned,
    cleans_to_keep,
    leaving_in_place,
    metadata_table_bound,
    unswept,
)
from holdfast.services.archive.plan import (
    ArchivePlan,
    Bound,
    bound_at,
    bound_before,
    commits_to_keep,
    is_archive_due,
    plan_archive,
)
from holdfast.services.clean.plan import savepoint_times
from holdfast.services.clean.scope import last_clean
from holdfast.services.leases import append_taking_back, instants_under_lease
from holdfast.services.rollback.failed_writes import find_failed_writes
from holdfast.services.rollback.rollback import recover
from holdfast.table.clean_plans import pending_cleans
from holdfast.table.markers import instants_with_markers
from holdfast.table.opened import OpenTable
from holdfast.table.pending import refuse_if_restoring
from holdfast.table.publish import load_published_timeline, publish_decided
from holdfast.table.row_placement import add_to_placement_record
from holdfast.table.stable_read import lost_completed_instants, timeline_and_ledger
from holdfast.table.undone import Stretch, add_to_undone, find_undone
from holdfast.table.zone import archive_zone
from holdfast.timeline.after_decision import after_decision
from holdfast.timeline.archived import ArchivedTimeline, Key, archives
from holdfast.timeline.ledger import NO_COMMIT, Archiving, Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

log = logging.getLogger(__name__)

_ATTEMPTS = 5
_ARCHIVABLE = frozenset({*COMMIT_ACTIONS, Action.CLEAN, *UNDOING})
_OVERTAKING = (EntryKind.SAVEPOINT, EntryKind.REVOKE, EntryKind.ARCHIVE)
"""What makes a plan obsolete that was made before it."""


class _ArchiveDecision(msgspec.Struct, frozen=True):
    """The payload of an ARCHIVE: what goes, and into which archive, unless another program took its name."""

    number: int
    batch: int
    instants: tuple[tuple[InstantTime, Action], ...]
    in_place: tuple[InstantTime, ...] = ()
    """The commits among them whose files have all rows in the partitions that these name."""
    undone: tuple[Stretch, ...] = ()
    """What the rollbacks and restores among them took back."""


@dataclass(frozen=True, slots=True)
class _TimelineFile:
    """A file of the timeline, as listed."""

    path: str
    time: InstantTime
    action: Action
    state: State
    modified_ms: int

    @property
    def key(self) -> tuple[InstantTime, Action]:
        return self.time, SHOWN_AS.get(self.action, self.action)


@dataclass(frozen=True, slots=True)
class _CarriedOut:
    instants: tuple[Instant, ...] = ()
    """What left the timeline."""
    file: str | None = None
    """The archive that has it; that of the restores, if nothing else went."""
    stuck: tuple[str, ...] = ()
    """What storage did not delete."""
    uncleaned: str = ""
    """What would be seen again, if the instants went."""

    @property
    def held_back(self) -> str:
        if self.stuck:
            return f"storage does not delete {self.stuck[0]}, which is in the archive"
        return self.uncleaned


def archive_instants(table: OpenTable, settings: WriteSettings) -> ArchiveReport:
    """Roll back what dead writers left, and archive as the settings of a write to the table say.

    `Refused` while a restore is pending.
    """
    lock = open_lock(table, settings.lock)
    is_never = settings.failed_writes_policy is FailedWritesPolicy.NEVER
    with lock.hold():
        # An archiver is not the one writer of the table, which may remove all that is unfinished.
        recover(
            table,
            policy=FailedWritesPolicy.NEVER if is_never else FailedWritesPolicy.LAZY,
            timeout_ms=settings.heartbeat_timeout_ms,
        )
    return archive_without_recovery(table, settings.archive, lock=lock)


def archive_without_recovery(
    table: OpenTable, settings: ArchiveSettings, *, lock: Lock = NO_LOCK
) -> ArchiveReport:
    """As `archive_by_hand`, for a writer that has recovered already."""
    began_ms = table.clock.monotonic_ms()
    timeline, state = timeline_and_ledger(table)
    refuse_if_restoring(timeline, state)
    commits = timeline.completed_commits
    _, most = commits_to_keep(commits, settings)
    done = ArchivePlan(held_back=f"the timeline has {len(commits)} commits, and up to {most} may gather")
    resumed: set[Instant] = set()
    file = None
    if _is_unfinished(table, timeline, state) or is_archive_due(timeline, settings):
        with lock.hold():
            done, resumed = _decide(table, settings)
            if done.instants:
                carried = _carry_out(table, is_checked=True)
                if carried.held_back:
                    done = ArchivePlan(held_back=carried.held_back)
                else:
                    file = carried.file
    return ArchiveReport(
        archived=done.instants,
        file=file,
        commits_left=len(set(commits).difference(done.instants, resumed)),
        held_back=done.held_back,
        took_ms=table.clock.monotonic_ms() - began_ms,
        resumed=tuple(sorted(resumed, key=_key)),
    )


def finish_archive(table: OpenTable) -> None:
    """Carry out what was decided to be archived.

    `StorageUnavailable` if something could not be deleted, `Refused` if something has to be cleaned first.
    """
    carried = _carry_out(table)
    if carried.stuck:
        raise StorageUnavailable("an instant that is archived could not be deleted", file=carried.stuck[0])
    if carried.uncleaned:
        raise Refused(
            "what was decided to be archived would be seen again",
            cause=carried.uncleaned,
            hint="holdfast cleans run PATH deletes it once it keeps few enough commits; then do this again",
        )


def half_archived(
    table: OpenTable, timeline: Timeline, archived: ArchivedTimeline
) -> list[tuple[InstantTime, Action]]:
    """What is in the archive and was leaving the timeline: its requested and inflight files are gone."""
    kept = {_key(instant) for instant in archived.timeline.instants if instant.is_completed}
    begun = {file.key for file in _list_instant_files(table) if file.state is not State.COMPLETED}
    return [key for key in map(_key, timeline.instants) if key in kept and key not in begun]


def archive_payload(
    table: OpenTable, leaving: Iterable[Key], archived: ArchivedTimeline, aborted: Collection[InstantTime]
) -> bytes:
    """What an entry carries that says anew what is `archived`, and what of it is to leave the timeline."""
    number = max(archives(table.store, table.settings.archive_folder), default=0)
    keys = tuple(leaving)
    instants = [instant for instant in archived.timeline.instants if _key(instant) in keys]
    undone = find_undone(table.store, instants, aborted, archived=archived)
    return msgspec.json.encode(_ArchiveDecision(number, 1, keys, undone=undone))


def plan_next_archive(table: OpenTable, settings: ArchiveSettings) -> ArchivePlan:
    """What archiving would take from the timeline. Changes nothing."""
    table.settings.check_changeable()
    timeline, state = timeline_and_ledger(table)
    return _make_plan(table, timeline, state, settings)


def _decide(table: OpenTable, settings: ArchiveSettings) -> tuple[ArchivePlan, set[Instant]]:
    """Put ARCHIVE into the ledger, once the one before it is carried out.

    What it archives, which is nothing if there is nothing to do, and what the one before it took away.
    """
    resumed: set[Instant] = set()
    for _ in range(_ATTEMPTS):
        earlier = _carry_out(table)
        resumed.update(earlier.instants)
        if earlier.held_back:
            return ArchivePlan(held_back=earlier.held_back), resumed
        state = table.ledger.read()
        timeline = load_published_timeline(table, state)
        refuse_if_restoring(timeline, state)
        if _is_unfinished(table, timeline, state):
            continue  # Decided since: its instants are going, and must not be planned again.
        try:
            plan = _make_plan(table, timeline, state, settings)
            in_place = leaving_in_place(table.store, plan.instants)
            standing = {commit.time for commit in timeline.completed_commits} - state.aborted.keys()
            undone = find_undone(table.store, plan.instants, state.aborted, standing=standing)
        except TableDamaged:
            if not lost_completed_instants(table.store, timeline):
                raise
            continue  # Another archiver was faster.
        if not plan.instants:
            return plan, resumed
        decision = _Decider(table, timeline, plan, settings, state.slot, in_place=in_place, undone=undone)
        append_taking_back(table, decision.decide)
        if decision.is_decided:
            return plan, resumed
    log.info("archive.postponed", extra={"table": table.store.uri(""), "attempts": _ATTEMPTS})
    return ArchivePlan(held_back="savepoints, leases, rollbacks or other archives kept coming"), resumed


def _make_plan(
    table: OpenTable, timeline: Timeline, state: LedgerState, settings: ArchiveSettings
) -> ArchivePlan:
    """The plan; storage is asked only about what the timeline alone would let go."""
    commits = timeline.completed_commits
    savepoints = savepoint_times(timeline, state) | {i.time for i in timeline.pending_savepoints}
    unfinished = min(_find_unfinished(table, timeline, state), default=None)
    bounds = list(_bounds(table, timeline, unfinished, settings))
    plan = plan_archive(timeline, settings, bounds=bounds, savepoints=savepoints, unfinished=unfinished)
    if not plan.instants:
        return plan
    folders = Folders(table.store)
    going = [instant for instant in plan.instants if instant.action in COMMIT_ACTIONS]
    uncleaned = bound_of_uncleaned(table.store, folders, going)
    orphans, staying = unswept(table.store, folders, timeline, plan)
    staying |= cleans_to_keep(table.store, folders, (i for i in plan.instants if i.action is Action.CLEAN))
    bounds += [*([] if uncleaned is None else [uncleaned]), *orphans]
    bounds += [
        bound_at(commits, pin, "a reader holds a lease on an old commit")
        for pin in _old_leases(table, plan.first_left)
    ]
    return plan_archive(
        timeline, settings, bounds=bounds, savepoints=savepoints, staying=staying, unfinished=unfinished
    )


def _bounds(
    table: OpenTable, timeline: Timeline, unfinished: InstantTime | None, settings: ArchiveSettings
) -> Iterable[Bound]:
    """What keeps commits on the timeline, as far as that is known without looking at data files."""
    commits = timeline.completed_commits
    if unfinished is not None:
        yield bound_before(commits, unfinished, f"{unfinished} is not finished")
    marked = sorted(set(instants_with_markers(table.store)) & {commit.time for commit in commits})
    for time in marked[:1]:
        yield Bound(time, f"the markers of {time} could not be removed yet")
    last = last_clean(table.store, timeline) if settings.clean.automatic else None
    if last is not None and last.earliest is not None:
        yield Bound(last.earliest, f"the last clean has reached {last.earliest}")
    metadata_table = metadata_table_bound(table)
    if metadata_table is not None:
        yield metadata_table


def _find_unfinished(table: OpenTable, timeline: Timeline, state: LedgerState) -> set[InstantTime]:
    """Everything that is not completed: writes, rollbacks, cleans, table services."""
    shown = {i.time for i in timeline.instants if not i.is_completed and i.action is not Action.SAVEPOINT}
    failed = find_failed_writes(table, timeline, state)
    rollbacks = {write.rollback for write in failed if write.rollback is not None}
    return {
        *shown,
        *state.begun,
        *(write.time for write in failed),
        *rollbacks,
        *pending_cleans(table.store, timeline, state),
    }


def _old_leases(table: OpenTable, first_left: InstantTime | None) -> list[InstantTime]:
    """What leases hold that is older than the commit that the timeline would begin with."""
    if first_left is None:
        return []  # No commit goes.
    return [pin for pin in instants_under_lease(table) if end_of(pin) < end_of(first_left)]


class _Decider:
    """The decision to archive, asked anew in each slot."""

    def __init__(
        self,
        table: OpenTable,
        timeline: Timeline,
        plan: ArchivePlan,
        settings: ArchiveSettings,
        slot: int,
        *,
        in_place: tuple[InstantTime, ...],
        undone: tuple[Stretch, ...],
    ) -> None:
        self._table = table
        self._plan = plan
        self._actions = {commit.time: commit.action for commit in timeline.completed_commits}
        self._checked = slot
        self._batch = settings.batch
        self._in_place = in_place
        self._undone = undone
        self.is_decided = False

    def decide(self, state: LedgerState) -> Decision | None:
        self.is_decided = False
        if state.restore is not None:
            refuse_if_restoring(load_timeline(self._table.store), state)
        if self._is_obsolete(state):
            return None
        stored = _ArchiveDecision(
            _next_number(self._table, state),
            self._batch,
            tuple((instant.time, instant.action) for instant in self._plan.instants),
            self._in_place,
            self._undone,
        )
        self.is_decided = True
        # Where no commit goes, those that went before still count as the newest.
        until = self._plan.until or (NO_COMMIT if state.archive is None else state.archive.until)
        services = (i.time for i in self._plan.instants if i.action not in COMMIT_ACTIONS)
        return Decision(
            kind=EntryKind.ARCHIVE,
            instant=until,
            action=self._actions.get(until, Action.COMMIT),
            through=max(services, default=None),
            payload=msgspec.json.encode(stored),
        )

    def _is_obsolete(self, state: LedgerState) -> bool:
        try:
            entries = list(self._table.ledger.between(self._checked, state.slot))
        except Conflict:
            return True
        if any(entry.kind in _OVERTAKING for entry, _ in entries):
            return True
        self._checked = state.slot
        return bool(_old_leases(self._table, self._plan.first_left))


def _next_number(table: OpenTable, state: LedgerState) -> int:
    """The number of the next archive. They are listed only if the ledger does not tell."""
    folder = table.settings.archive_folder
    if state.archive is not None:
        number = 1 + _read_decision(table, state.archive.slot).number
        if table.store.stat(archive_file(folder, number)) is None:
            return number
    return 1 + max(archives(table.store, folder), default=0)


def _is_unfinished(table: OpenTable, timeline: Timeline, state: LedgerState) -> bool:
    """Whether something is on the timeline that was to be archived."""
    if state.archive is None:
        return False
    old = {
        _key(i)
        for i in timeline.instants
        if i.action in _ARCHIVABLE
        and (state.is_archived(i.time) if i.action in COMMIT_ACTIONS else state.has_left(i.time))
    }
    return bool(old) and not old.isdisjoint(_read_decision(table, state.archive.slot).instants)


def _carry_out(table: OpenTable, *, is_checked: bool = False) -> _CarriedOut:
    """Do what the newest ARCHIVE says, or finish it.

    `is_checked`: it was planned just now, when nothing was left of what its commits replaced.
    """
    hint = "what is archived is read as before; the next archiving finishes it"
    if table.ledger.known.archive is None:
        return _carry_out_newest(table, is_checked=is_checked)
    with after_decision("it is decided which instants are archived", hint=hint):
        return _carry_out_newest(table, is_checked=is_checked)


def _carry_out_newest(table: OpenTable, *, is_checked: bool) -> _CarriedOut:
    timeline, state = timeline_and_ledger(table)
    if state.archive is None or not _is_unfinished(table, timeline, state):
        return _CarriedOut()
    _refuse_if_emptied(timeline, state.archive)
    stored = _read_decision(table, state.archive.slot)
    going = frozenset(stored.instants)
    leaving = tuple(instant for instant in timeline.instants if _key(instant) in going)
    uncleaned = None if is_checked else _find_uncleaned(table, timeline, leaving)
    if uncleaned is not None:
        return _CarriedOut(uncleaned=uncleaned.reason)
    files = [file for file in _list_instant_files(table) if file.key in going]
    path = _ensure_archived(table, stored, files)
    add_to_placement_record(table.store, stored.in_place)
    add_to_undone(table.store, stored.undone, lambda: table.ledger.read_with_older_aborts().aborted.keys())
    stuck = table.store.delete_all([file.path for file in files if file.state is not State.COMPLETED])
    instants: tuple[Instant, ...] = ()
    if not stuck:
        for file in sorted(files, key=lambda file: file.key):
            # One by one and in this order: a reader that finds one of them missing may rely on all
            # older ones being in the archive, too.
            if file.state is State.COMPLETED:
                table.store.delete(file.path)
        instants = leaving
    now = table.ledger.read()
    if now.restore != state.restore:
        # A restore may have brought one of the commits back before it was deleted here.
        publish_decided(table, now, load_timeline(table.store))
    log.info(
        "archive.completed",
        extra={
            "table": table.store.uri(""),
            "until": state.archive.until,
            "instants": len(instants),
            "file": path,
            "stuck": len(stuck),
        },
    )
    return _CarriedOut(instants, path, tuple(stuck))


def _find_uncleaned(table: OpenTable, timeline: Timeline, leaving: Iterable[Instant]) -> Bound | None:
    """What would be seen again, as planning looks for it.

    A copy of a table in use may have the decision without the clean that came before it.
    """
    commits = [instant for instant in leaving if instant.action in COMMIT_ACTIONS]
    try:
        return bound_of_uncleaned(table.store, Folders(table.store), commits)
    except TableDamaged:
        if not lost_completed_instants(table.store, timeline):
            raise
        return None  # Another process is carrying it out.


def _refuse_if_emptied(timeline: Timeline, archive: Archiving) -> None:
    """`TableDamaged` if the timeline has no commit after those that go: readers would see no rows.

    Each decision to archive leaves one, and the timeline keeps one whatever is taken back.
    """
    newest = timeline.last_commit
    if archive.until != NO_COMMIT and (newest is None or newest.time <= archive.until):
        raise TableDamaged(
            "it was decided to archive every commit that the timeline shows",
            until=archive.until,
            hint="the ledger is newer than the rest, as in a copy of a table in use: holdfast repair PATH",
        )


def _ensure_archived(table: OpenTable, stored: _ArchiveDecision, files: list[_TimelineFile]) -> str | None:
    """The archive that holds the instants, written if it is not there, and that of the restores."""
    found: str | None = None
    for name, are_restores in ((restore_archive_file, True), (archive_file, False)):
        keys = frozenset(key for key in stored.instants if (key[1] is Action.RESTORE) is are_restores)
        if keys:
            some = [file for file in files if file.key in keys]
            found = _ensure_in_archive(table, stored, keys, some, name)
    return found


def _ensure_in_archive(
    table: OpenTable,
    stored: _ArchiveDecision,
    keys: frozenset[Key],
    files: list[_TimelineFile],
    name: Callable[[str, int], str],
) -> str:
    number = stored.number
    content: bytes | None = None
    while True:
        path = name(table.settings.archive_folder, number)
        found = table.store.stat(path)
        if found is None:
            content = content or _encode_instants(table, stored.batch, keys, files, path)
            if content is None or table.store.create(path, content):
                return path
        elif _holds(table, path, keys):
            return path
        else:
            number += 1  # Another program has taken the name.


def _holds(table: OpenTable, path: str, keys: frozenset[Key]) -> bool:
    files = decode_archive(table.store.read(path)).files
    completed = {(file.time, file.action) for file in files if file.state is State.COMPLETED}
    return completed.issuperset(keys)


def _encode_instants(
    table: OpenTable, batch: int, keys: frozenset[Key], files: list[_TimelineFile], path: str
) -> bytes | None:
    """The archive's content; None if another process has written it and begun to delete the files."""
    ordered = sorted(files, key=lambda file: (file.key, _ORDER[file.state]))
    contents = table.store.read_all([file.path for file in ordered])
    absent = [file.path for file, content in zip(ordered, contents, strict=True) if content is None]
    listed = {file.key for file in ordered if file.state is State.COMPLETED}
    missing = sorted(keys - listed)
    if absent or missing:
        if table.store.stat(path) is not None:
            return None
        raise TableDamaged(
            "an instant that is to be archived is missing", file=absent[0] if absent else missing[0][0]
        )
    archived = [
        ArchivedFile(file.time, file.action, file.state, content or b"", _moment(file.modified_ms))
        for file, content in zip(ordered, contents, strict=True)
    ]
    with report_damage("an instant cannot be archived"):
        zone = archive_zone(table.store, table.settings)
        return encode_archive(archived, per_block=batch, zone=zone)


_ORDER = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


def _read_decision(table: OpenTable, slot: int) -> _ArchiveDecision:
    try:
        return msgspec.json.decode(table.ledger.payload(slot), type=_ArchiveDecision)
    except msgspec.DecodeError as error:
        raise TableDamaged("a decision to archive cannot be read", slot=slot, cause=error) from error


def _list_instant_files(table: OpenTable) -> list[_TimelineFile]:
    found: list[_TimelineFile] = []
    for file in table.store.folder(META_FOLDER).files:
        parsed = parse_instant_file(file.path.rpartition("/")[2])
        if parsed is not None:
            found.append(_TimelineFile(file.path, *parsed, file.modified_ms))
    return found


def _key(instant: Instant) -> tuple[InstantTime, Action]:
    return instant.time, SHOWN_AS.get(instant.action, instant.action)


def _moment(epoch_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(epoch_ms / 1000, dt.UTC)
