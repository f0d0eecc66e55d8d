"""History: what commits wrote and what rollbacks removed, as the timeline tells it."""

from dataclasses import dataclass

from holdfast.errors import TableDamaged, UnknownInstant
from holdfast.format.commits import CommitMetadata, decode_commit
from holdfast.format.malformed import Malformed
from holdfast.format.rollbacks import RollbackMetadata, decode_rollback_metadata
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant
from holdfast.model.names import instant_file
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import Timeline, load_timeline, read_completed


@dataclass(frozen=True, slots=True)
class CommitRecord:
    instant: Instant
    metadata: CommitMetadata


@dataclass(frozen=True, slots=True)
class RollbackRecord:
    instant: Instant
    metadata: RollbackMetadata


def commit_records(table: OpenTable) -> tuple[CommitRecord, ...]:
    """Completed commits, newest first."""
    timeline = load_timeline(table.store)
    return tuple(_commit(table, instant) for instant in reversed(timeline.completed_commits))


def commit_record(table: OpenTable, time: str) -> CommitRecord:
    """One completed commit; `UnknownInstant` if there is none with that time."""
    timeline = load_timeline(table.store)
    found = next((i for i in timeline.completed_commits if i.time == time), None)
    if found is None:
        pending = timeline.find(time)
        state = f"{pending.action} {pending.state.lower()}" if pending else "not on the timeline"
        kinds = ", ".join(sorted(COMMIT_ACTIONS))
        raise UnknownInstant("no completed commit has this time", instant=time, state=state, kinds=kinds)
    return _commit(table, found)


def rollback_records(table: OpenTable, timeline: Timeline) -> tuple[RollbackRecord, ...]:
    """Completed rollbacks, newest first."""
    done = [i for i in timeline.instants if i.action is Action.ROLLBACK and i.is_completed]
    return tuple(_rollback(table, instant) for instant in reversed(done))


def _commit(table: OpenTable, instant: Instant) -> CommitRecord:
    try:
        return CommitRecord(instant, decode_commit(read_completed(table.store, instant)))
    except Malformed as error:
        raise _unreadable(instant, error) from error


def _rollback(table: OpenTable, instant: Instant) -> RollbackRecord:
    try:
        return RollbackRecord(instant, decode_rollback_metadata(read_completed(table.store, instant)))
    except Malformed as error:
        raise _unreadable(instant, error) from error


def _unreadable(instant: Instant, error: Malformed) -> TableDamaged:
    path = instant_file(instant.time, instant.action, instant.state)
    return TableDamaged("an instant's metadata cannot be read", file=path, cause=error)
