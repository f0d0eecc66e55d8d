"""History: what commits wrote and what rollbacks and cleans removed, as the timeline tells it.

With an archive at hand the instants in it are part of the history, too.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from holdfast.errors import TableDamaged, UnknownInstant
from holdfast.format.cleans import CleanMetadata, decode_clean_metadata
from holdfast.format.commits import NO_PREVIOUS_COMMIT, CommitMetadata, WriteStat, decode_commit
from holdfast.format.malformed import Malformed, report_damage
from holdfast.format.restores import decode_restore_metadata, decode_restore_plan
from holdfast.format.rollbacks import RollbackMetadata, decode_rollback_metadata, decode_rollback_plan
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, State
from holdfast.model.names import instant_file, instant_path
from holdfast.table.archive import read_archive
from holdfast.table.opened import OpenTable
from holdfast.timeline.archived import NO_ARCHIVE, ArchivedTimeline
from holdfast.timeline.timeline import Timeline, load_timeline, read_completed

_UNDOING = (Action.ROLLBACK, Action.RESTORE)


@dataclass(frozen=True, slots=True)
class CommitRecord:
    instant: Instant
    metadata: CommitMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums over the files of a commit, or of one partition in it."""

    files_added: int
    files_updated: int
    records_written: int
    records_inserted: int
    records_updated: int
    records_deleted: int
    bytes_written: int
    errors: int


@dataclass(frozen=True, slots=True)
class NotedInstant:
    """An instant and what is known about it beside its files' names."""

    instant: Instant
    rolls_back: tuple[InstantTime, ...] = ()
    rolled_back_by: InstantTime | None = None
    is_unreadable: bool = False
    is_archived: bool = False

    @property
    def notes(self) -> str:
        notes = [f"rolls back {time}" for time in self.rolls_back]
        if self.rolled_back_by is not None:
            notes.append(f"rolled back by {self.rolled_back_by}")
        if self.is_unreadable:
            notes.append("cannot be read")
        if self.is_archived:
            notes.append("archived")
        return ", ".join(notes)


@dataclass(frozen=True, slots=True)
class RollbackRecord:
    instant: Instant
    metadata: RollbackMetadata


@dataclass(frozen=True, slots=True)
class CleanRecord:
    instant: Instant
    metadata: CleanMetadata


def totals(stats: Iterable[WriteStat]) -> Totals:
    found = list(stats)
    added = sum(stat.prev_commit == NO_PREVIOUS_COMMIT for stat in found)
    return Totals(
        files_added=added,
        files_updated=sum(stat.prev_commit is not None for stat in found) - added,
        records_written=sum(stat.num_writes for stat in found),
        records_inserted=sum(stat.num_inserts for stat in found),
        records_updated=sum(stat.num_update_writes for stat in found),
        records_deleted=sum(stat.num_deletes for stat in found),
        bytes_written=sum(stat.total_write_bytes for stat in found),
        errors=sum(stat.total_write_errors for stat in found),
    )


def add_notes(
    table: OpenTable,
    instants: Sequence[Instant],
    *,
    active: Collection[Instant],
    archive: ArchivedTimeline = NO_ARCHIVE,
) -> list[NotedInstant]:
    """The instants with their notes. A rollback is newer than what it names, so it is among them."""
    targets = {i.time: undone_by(table, i, archived=archive) for i in instants if i.action in _UNDOING}
    rolled_back_by = {target: time for time, found in targets.items() for target in found or ()}
    return [
        NotedInstant(
            instant,
            rolls_back=targets.get(instant.time) or () if instant.action in _UNDOING else (),
            rolled_back_by=rolled_back_by.get(instant.time),
            is_unreadable=instant.action in _UNDOING and targets[instant.time] is None,
            is_archived=instant not in active,
        )
        for instant in instants
    ]


def commit_records(
    table: OpenTable, *, limit: int | None = None, archived: ArchivedTimeline = NO_ARCHIVE
) -> tuple[CommitRecord, ...]:
    """Completed commits, newest first; only the newest ones if a limit is given."""
    newest_first = archived.with_active(load_timeline(table.store)).completed_commits[::-1]
    return tuple(_commit(table, instant, archived) for instant in newest_first[:limit])


def commit_record(table: OpenTable, time: str) -> CommitRecord:
    """One completed commit, archived or not; `UnknownInstant` if there is none with that time."""
    timeline = load_timeline(table.store)
    archived = NO_ARCHIVE
    found = next((i for i in timeline.completed_commits if i.time == time), None)
    if found is None:
        archived = read_archive(table.store, table.settings)
        found = next((i for i in archived.timeline.completed_commits if i.time == time), None)
    if found is None:
        pending = timeline.find(time)
        state = f"{pending.action} {pending.state.lower()}" if pending else "not on the timeline"
        kinds = ", ".join(sorted(COMMIT_ACTIONS))
        raise UnknownInstant("no completed commit has this time", instant=time, state=state, kinds=kinds)
    return _commit(table, found, archived)


def rollback_records(
    table: OpenTable, timeline: Timeline, *, archived: ArchivedTimeline = NO_ARCHIVE
) -> tuple[RollbackRecord, ...]:
    """Completed rollbacks, newest first."""
    instants = archived.with_active(timeline).instants
    done = [i for i in instants if i.action is Action.ROLLBACK and i.is_completed]
    return tuple(_rollback(table, instant, archived) for instant in reversed(done))


def clean_records(
    table: OpenTable,
    timeline: Timeline,
    *,
    limit: int | None = None,
    archived: ArchivedTimeline = NO_ARCHIVE,
) -> tuple[CleanRecord, ...]:
    """Completed cleans, newest first; only the newest ones if a limit is given."""
    instants = archived.with_active(timeline).instants
    done = [i for i in instants if i.action is Action.CLEAN and i.is_completed]
    return tuple(_clean(table, instant, archived) for instant in done[::-1][:limit])


def clean_record(table: OpenTable, time: str) -> CleanRecord:
    """One completed clean, archived or not; `UnknownInstant` if there is none with that time."""
    archived = NO_ARCHIVE
    found = load_timeline(table.store).find(time, Action.CLEAN)
    if found is None:
        archived = read_archive(table.store, table.settings)
        found = archived.timeline.find(time, Action.CLEAN)
    if found is None or not found.is_completed:
        raise UnknownInstant(
            "no completed clean has this time", instant=time, hint="see holdfast cleans show PATH"
        )
    return _clean(table, found, archived)


def undone_by(
    table: OpenTable, instant: Instant, *, archived: ArchivedTimeline = NO_ARCHIVE
) -> tuple[InstantTime, ...] | None:
    """What a rollback or a restore removes or has removed; None if its file cannot be read."""
    state = State.COMPLETED if instant.is_completed else State.REQUESTED
    try:
        content = archived.content(instant.time, instant.action, state)
        if content is None:
            content = table.store.read(instant_file(instant.time, instant.action, state))
        match instant.action, instant.is_completed:
            case Action.ROLLBACK, True:
                return decode_rollback_metadata(content).commits
            case Action.ROLLBACK, False:
                return (decode_rollback_plan(content).target,)
            case Action.RESTORE, True:
                return decode_restore_metadata(content).commits
        return tuple(one.time for one in decode_restore_plan(content).instants)
    except (FileNotFoundError, Malformed):
        return None


def _content(table: OpenTable, instant: Instant, archived: ArchivedTimeline) -> bytes:
    content = archived.content(instant.time, instant.action)
    if content is not None:
        return content
    try:
        return read_completed(table.store, instant)
    except TableDamaged:
        # It may have been archived since the timeline was read.
        content = read_archive(table.store, table.settings).content(instant.time, instant.action)
        if content is None:
            raise
        return content


def _commit(table: OpenTable, instant: Instant, archived: ArchivedTimeline) -> CommitRecord:
    with _damage_of(instant):
        return CommitRecord(instant, decode_commit(_content(table, instant, archived)))


def _rollback(table: OpenTable, instant: Instant, archived: ArchivedTimeline) -> RollbackRecord:
    with _damage_of(instant):
        return RollbackRecord(instant, decode_rollback_metadata(_content(table, instant, archived)))


def _clean(table: OpenTable, instant: Instant, archived: ArchivedTimeline) -> CleanRecord:
    with _damage_of(instant):
        return CleanRecord(instant, decode_clean_metadata(_content(table, instant, archived)))


def _damage_of(instant: Instant) -> AbstractContextManager[None]:
    return report_damage("an instant's metadata cannot be read", file=instant_path(instant))
