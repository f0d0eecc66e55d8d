"""Compactions: the base file and the log files of a slice become one base file.

    BEGIN ─► requested (the plan) ─► inflight ─► base files ─► COMMIT ─► publish
               └─► ABORT: the plan waits for somebody to carry it out

A table whose writes rewrite base files in time needs none. They are for tables
of other programs, and for those who want to choose when it is done.

An instant of a compaction may be begun many times, by one process after the
other: the process that BEGIN names last may commit it. Nothing of an attempt is visible
before its COMMIT, and everything that was committed since its BEGIN is compared
with it in that slot.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from holdfast.concurrency.heartbeats import Heartbeat, HeartbeatState, judge
from holdfast.concurrency.locks.lock import Hold, Lock
from holdfast.concurrency.locks.open import lock_in_use, open_lock
from holdfast.config.choices import TableType
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS, WriteSettings
from holdfast.errors import (
    Fenced,
    HoldfastError,
    Refused,
    UnknownInstant,
    UnsupportedTable,
    WriteConflict,
    WriterActive,
)
from holdfast.format.commits import IN_PLACE, CommitMetadata, WriteStat, encode_sealed_commit
from holdfast.format.compaction_plans import CompactionPlan, encode_compaction_plan
from holdfast.format.field_ids import FieldIds, field_id_facts
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.schemas import avro_schema
from holdfast.host import Owner
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import heartbeat_path, instant_file
from holdfast.model.reports import Commit, RollbackReport
from holdfast.model.slices import FileSlice
from holdfast.read.snapshot import table_schema
from holdfast.services.compaction.plan import check_plan, choose_slices, is_due
from holdfast.services.rollback.compaction_attempts import (
    delete_files_of_attempts,
    end_attempt,
    forget_plan,
    leave_attempt,
    logs_of_plan,
    release,
    remove_attempts,
)
from holdfast.services.rollback.failed_writes import FailedWrite
from holdfast.services.rollback.rollback import recover
from holdfast.storage.probe import ensure_many_writers
from holdfast.table.field_ids import assign_field_ids
from holdfast.table.log_files import writers_of_log
from holdfast.table.missing_commits import catch_up_ledger
from holdfast.table.opened import OpenTable
from holdfast.table.pending import (
    AT_ONCE,
    pending_compactions,
    pending_services,
    read_compaction_plan,
    refuse_if_restoring,
)
from holdfast.table.properties_file import drop_metadata_table, read_current_settings
from holdfast.table.publish import load_published_timeline
from holdfast.table.stable_read import read_stable
from holdfast.table.view import View, load_view, slice_table
from holdfast.table.zone import next_instant, refuse_if_ahead
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline
from holdfast.writes.background import BackgroundServices
from holdfast.writes.commit import show_commit, tidy
from holdfast.writes.compact_task import CompactRequest
from holdfast.writes.conflicts import Claim, Footprint, group_of
from holdfast.writes.outcome import Written, commit_report
from holdfast.writes.task import TaskRequest
from holdfast.writes.validation import Validation, find_fence, refuse_if_fenced, refuse_if_taken_back

log = logging.getLogger(__name__)

OPERATION = "COMPACT"
_RUN_HINT = "carry it out: holdfast compaction run PATH"


class Compactor(Protocol):
    """The engine of a compaction."""

    def compact(self, table: OpenTable, request: CompactRequest) -> Written:
        """Write the base files of all slices."""

    def cancel(self) -> None:
        """Stop, from another thread; what runs ends with an error."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    table: OpenTable
    settings: WriteSettings
    owner: Owner
    lock: Lock


@dataclass(frozen=True, slots=True)
class _Begun:
    """An attempt that has its instant, and what it compacts."""

    time: InstantTime
    slot: int
    validation: Validation


def schedule_compaction(table: OpenTable, settings: WriteSettings) -> InstantTime | None:
    """Plan a compaction of the slices with log files; its instant, or None if there are none.

    `WriterActive` while another write is undecided: its log files would be
    missing in the plan.
    """
    attempt = _attempt(table, settings)
    time, slot = _begin(attempt, [])
    try:
        begun = _look(attempt, time, slot)
        plan = _make_plan(attempt, begun)
        if plan is not None:
            _store_plan(table, time, plan)
            # What was committed meanwhile is not in the plan, and would be lost with it.
            _check_unchanged(attempt, begun, plan)
    except BaseException:
        forget_plan(table, time)
        _leave_planning(attempt, time, reason="the compaction could not be planned")
        raise
    _leave_planning(attempt, time, reason="the compaction is planned")
    return time if plan is not None else None


def _leave_planning(attempt: _Attempt, time: InstantTime, *, reason: str) -> None:
    release(attempt.table, time, attempt.owner, reason=reason)
    # A process that looked for one meanwhile, and found none, has noted when.
    attempt.table.store.delete(heartbeat_path(time))


def compact(
    table: OpenTable, settings: WriteSettings, compactor: Compactor, instant: InstantTime | None = None
) -> Commit | None:
    """Carry out a planned compaction, by default the oldest, or plan one and carry it out.

    None if there is nothing to compact.
    """
    attempt = _attempt(table, settings)
    timeline = load_timeline(table.store)
    planned = [
        one.time
        for one, plan in pending_compactions(table.store, timeline)
        if one.time == instant or plan.extra.get(AT_ONCE) != "true"
    ]
    if instant is not None and instant not in planned:
        raise UnknownInstant(
            "no compaction with this instant is planned",
            instant=instant,
            hint="see holdfast compactions show PATH",
        )
    recovered: list[RollbackReport] = []
    with (
        Heartbeat(
            table,
            attempt.owner,
            interval_ms=settings.heartbeat_interval_ms,
            misses=settings.heartbeat_misses,
            on_lost=compactor.cancel,
            expires=settings.is_shared,
        ) as heartbeat,
        BackgroundServices(table, settings) as services,
    ):
        time, slot = _begin(attempt, recovered, instant or min(planned, default=None))
        written: _Written | None = None
        try:
            heartbeat.beat_for(time)
            begun = _look(attempt, time, slot)
            written = _run(attempt, begun, compactor)
            if written is not None:
                heartbeat.refuse_if_lost()
                decided = _decide(attempt, begun, written)
        except Exception as error:
            heartbeat.stop()
            _end_failed(attempt, time, slot, written, error)
            # What ended the work may be that it was cancelled, or built on what is not there any more.
            heartbeat.refuse_if_lost()
            refuse_if_taken_back(table, time, slot)
            raise
        if written is None:
            _give_up(attempt, time, slot, None)
            return None
        problems = tidy(table, time, written.stats, decided, services)
    return commit_report(
        time, Action.COMMIT, OPERATION, written.stats, None,
        rolled_back=tuple(recovered), post_commit_errors=problems,
    )  # fmt: skip


def _end_failed(
    attempt: _Attempt, time: InstantTime, slot: int, written: "_Written | None", error: Exception
) -> None:
    """Leave nothing of an attempt that failed. `Fenced` if others had ended it before."""
    fence = find_fence(attempt.table, time, slot)
    _give_up(attempt, time, slot, error)
    if written is not None and (fence is not None or isinstance(error, (Fenced, WriteConflict))):
        # The process that ended this attempt may have removed the markers before the files were there.
        attempt.table.store.delete_all(stat.path for stat in written.stats if stat.path is not None)
    if fence is not None:
        raise fence from error


def compact_if_due(
    table: OpenTable, commit: Commit, settings: WriteSettings, compactor: Callable[[], Compactor]
) -> Commit:
    """The report of a write, after the compaction that its settings ask for; the commit stands anyway."""
    if not (settings.compacts_inline or settings.schedules_inline) or not settings.clean.services_enabled:
        return commit
    is_kind = table.settings.table_type is TableType.MERGE_ON_READ
    try:
        if is_kind and is_due(load_timeline(table.store), settings, now_ms=table.clock.now_ms()):
            table = replace(table, is_new=False)
            if settings.compacts_inline:
                compact(table, settings, compactor())
            else:
                schedule_compaction(table, settings)
    except HoldfastError as error:
        log.warning(
            "compaction.failed",
            extra={"table": table.store.uri(""), "instant": commit.instant, "cause": str(error)},
        )
        return replace(commit, post_commit_errors=(*commit.post_commit_errors, str(error)))
    return commit


def unschedule_compaction(table: OpenTable, time: InstantTime) -> None:
    """Take a planned compaction away, with what attempts at it left.

    `Refused` if rows were written to the slices that it is to make, `WriterActive` while it may be running.
    """
    table.settings.check_changeable()
    with lock_in_use(table).hold():
        timeline, state = catch_up_ledger(table)
        refuse_if_restoring(timeline, state)
        plan = read_compaction_plan(table.store, time)
        if plan is None or timeline.find(time, Action.COMPACTION) is None:
            raise UnknownInstant(
                "no compaction with this instant is planned",
                instant=time,
                hint="see holdfast compactions show PATH",
            )
        _refuse_if_beating(table, state, time, HEARTBEAT_TIMEOUT_MS)
        owner = table.host.owner(table.clock.unique())
        slot = _claim(table, owner, time)
        try:
            logs = logs_of_plan(table, time, plan)
            if logs:
                raise Refused(
                    "rows were written to the file slices that this compaction is to make",
                    compaction=time,
                    file=logs[0],
                    hint=_RUN_HINT + f" --instant {time}",
                )
            remove_attempts(table, time, before=slot)
            forget_plan(table, time)
        finally:
            release(table, time, owner, reason="the compaction was taken from the timeline")


def _refuse_if_beating(table: OpenTable, state: LedgerState, time: InstantTime, timeout_ms: int) -> None:
    """`WriterActive` if another program carries the compaction out, as its heartbeat tells."""
    if time in state.begun or table.store.stat(heartbeat_path(time)) is None:
        return
    status = judge(table, {time: None}, timeout_ms=timeout_ms)[time]
    if status.state is not HeartbeatState.EXPIRED:
        raise _active(time, None)


def _attempt(table: OpenTable, settings: WriteSettings) -> _Attempt:
    table.settings.check_changeable()
    if table.settings.table_type is not TableType.MERGE_ON_READ:
        raise UnsupportedTable(
            "only merge-on-read tables are compacted",
            type=table.settings.table_type,
            table=table.settings.name,
        )
    if settings.is_shared:
        ensure_many_writers(table.store, table.clock)
    owner = table.host.owner(table.clock.unique())
    return _Attempt(table, settings, owner, open_lock(table, settings.lock))


def _begin(
    attempt: _Attempt, recovered: list[RollbackReport], time: InstantTime | None = None
) -> tuple[InstantTime, int]:
    """Claim an instant: that of a plan, or a new one. With its slot."""
    table, settings = attempt.table, attempt.settings
    with attempt.lock.hold():
        recovery = recover(
            table, policy=settings.failed_writes_policy, timeout_ms=settings.heartbeat_timeout_ms
        )
        recovered += recovery.rolled_back
        if time is not None:
            _refuse_if_beating(table, table.ledger.read(), time, settings.heartbeat_timeout_ms)
            return time, _claim(table, attempt.owner, time, shared=settings.is_shared)

        def decide(state: LedgerState) -> Decision:
            timeline = load_timeline(table.store)
            refuse_if_restoring(timeline, state)
            _refuse_if_written(timeline, state)
            newest = max((t for t in (timeline.newest, state.newest) if t is not None), default=None)
            refuse_if_ahead(table, newest)
            return _begin_decision(attempt.owner, next_instant(table, newest), shared=settings.is_shared)

        state = table.ledger.append(decide)
    for begun_time, begun in state.begun.items():
        if begun.owner == attempt.owner:
            return begun_time, begun.slot
    raise AssertionError("the state ends with the entry that was appended")


def _claim(table: OpenTable, owner: Owner, time: InstantTime, *, shared: bool = False) -> int:
    """Begin a planned compaction. `WriterActive` if somebody else carries it out."""

    def decide(state: LedgerState) -> Decision:
        refuse_if_restoring(load_timeline(table.store), state)
        if time in state.begun:
            raise _active(time, state.begun[time].owner)
        if time in state.committed or time in state.aborted:
            raise UnknownInstant(
                "the compaction is not planned any more",
                instant=time,
                hint="see holdfast compactions show PATH",
            )
        return _begin_decision(owner, time, shared=shared)

    return table.ledger.append(decide).begun[time].slot


def _begin_decision(owner: Owner, time: InstantTime, *, shared: bool) -> Decision:
    return Decision(
        kind=EntryKind.BEGIN,
        instant=time,
        action=Action.COMPACTION,
        owner=owner,
        operation=OPERATION,
        shared=shared,
    )


def _refuse_if_written(timeline: Timeline, state: LedgerState) -> None:
    """A plan has the log files of all writes before it, so none may be undecided."""
    for time, begun in state.begun.items():
        raise _active(time, begun.owner)
    for write in timeline.pending_writes:
        if write.time not in state.committed:
            raise _active(write.time, None)


def _active(time: InstantTime, owner: Owner | None) -> WriterActive:
    return WriterActive(
        "another write is running on this table",
        instant=time,
        owner=owner or "another program",
        hint="wait until it has finished, or stop it",
    )


def _look(attempt: _Attempt, time: InstantTime, slot: int) -> _Begun:
    """What the attempt builds on: everything that is decided now. What comes later it is compared with.

    A new plan has nothing that is younger than itself.
    """
    table = attempt.table
    remove_attempts(table, time, before=slot)
    state = table.ledger.read()
    refuse_if_fenced(state, time)
    timeline = load_published_timeline(table, state)
    drop_metadata_table(table)
    is_planned = read_compaction_plan(table.store, time) is not None
    commits = (commit.time for commit in timeline.completed_commits)
    shown = frozenset(commit for commit in commits if is_planned or commit < time)
    return _Begun(time, slot, Validation(table, time, shown, state.slot))


def _view(attempt: _Attempt, begun: _Begun) -> View:
    """The table as the attempt may build on it."""

    def load(now: Timeline) -> View:
        known = {i for i in now.completed_commits if i.time not in begun.validation.shown}
        return load_view(attempt.table.store, Timeline(tuple(i for i in now.instants if i not in known)))

    return read_stable(attempt.table.store, load)


def _make_plan(attempt: _Attempt, begun: _Begun, *, at_once: bool = False) -> CompactionPlan | None:
    """A plan for the slices that no other plan needs; None if none of them has log files."""
    table = attempt.table
    view = _view(attempt, begun)
    claimed = pending_services(table.store, load_timeline(table.store)).needed_since
    plan = choose_slices(table.store, view.latest(), attempt.settings, claimed=claimed)
    if not plan.operations:
        return None
    return CompactionPlan(plan.operations, {AT_ONCE: "true"} if at_once else {})


def _store_plan(table: OpenTable, time: InstantTime, plan: CompactionPlan) -> None:
    path = instant_file(time, Action.COMPACTION, State.REQUESTED)
    table.store.create(path, encode_compaction_plan(plan))


def _check_unchanged(attempt: _Attempt, begun: _Begun, plan: CompactionPlan) -> None:
    """`WriteConflict` if a file group of the plan was written since the plan was made."""
    groups = frozenset(group_of(operation.partition, operation.file_id) for operation in plan.operations)
    partitions = frozenset(partition for partition, _ in groups)
    footprint = Footprint(groups, partitions, frozenset(), None, {})
    claim = Claim(footprint=footprint, schema_before=None)
    begun.validation.check(attempt.table.ledger.read(), claim)


def _run(attempt: _Attempt, begun: _Begun, compactor: Compactor) -> "_Written | None":
    """Write the base files; None if there is nothing to compact."""
    table, time = attempt.table, begun.time
    plan = read_compaction_plan(table.store, time)
    if plan is None:
        plan = _make_plan(attempt, begun, at_once=True)
        if plan is None:
            return None
        _store_plan(table, time, plan)
    table.store.create(instant_file(time, Action.COMPACTION, State.INFLIGHT), b"")
    view = _view(attempt, begun)
    work = check_plan(table.store, plan, view.latest(), time)
    schema = table_schema(table, view.timeline)
    assert schema is not None, "a table with log files has a schema"
    ids = assign_field_ids(table.store, view.timeline, schema)
    if not work.slices:
        written = Written(stats=())
    else:
        request = CompactRequest(
            task=TaskRequest(
                instant=time,
                action=Action.COMPACTION,
                schema=schema,
                field_ids=ids,
                table=table.settings,
                write=attempt.settings,
            ),
            slices=work.slices,
            log_instants=view.log_instants(slice_table(work.slices)),
            attempt=begun.slot,
        )
        written = compactor.compact(table, request)
    return _Written(
        written.stats,
        avro_schema(schema, table_name=table.settings.name),
        ids,
        are_in_place=_are_in_place(table, view, work.slices),
    )


@dataclass(frozen=True, slots=True)
class _Written:
    stats: Sequence[WriteStat]
    schema: str
    field_ids: FieldIds
    are_in_place: bool


def _are_in_place(table: OpenTable, view: View, slices: Collection[FileSlice]) -> bool:
    """Whether the commits of all log files say that their rows lie in the partitions these name."""
    for path in {path for each in slices for path in each.logs}:
        writers = writers_of_log(table.store, path) or frozenset()
        if not all(writer in view.placement_by_commit for writer in writers):
            return False
    return True


def _decide(attempt: _Attempt, begun: _Begun, written: _Written) -> LedgerState:
    """Put COMMIT into the ledger and show it, unless the attempt has lost its right."""
    table, time = attempt.table, begun.time
    read_current_settings(table).check_changeable()
    drop_metadata_table(table)
    keep = frozenset(stat.path for stat in written.stats if stat.path is not None)
    delete_files_of_attempts(table, time, until=begun.slot, keep=keep)
    payload = _payload(time, written)
    claim = Claim(footprint=Footprint.of(payload), schema_before=written.schema)

    def decision(state: LedgerState, hold: Hold) -> Decision | None:
        committed = state.committed.get(time)
        if committed is not None and table.ledger.payload_unless_trimmed(committed.slot) == payload:
            return None  # The entry was written, though storage said something else.
        if committed is None:
            refuse_if_fenced(state, time)
        if committed is not None or state.begun[time].owner != attempt.owner:
            raise Fenced("another process carries this compaction out", instant=time)
        begun.validation.check(state, claim)
        hold.refuse_if_lost()
        # Without it no process would show the commit.
        table.store.create(instant_file(time, Action.COMPACTION, State.INFLIGHT), b"")
        return Decision(
            kind=EntryKind.COMMIT,
            instant=time,
            action=Action.COMPACTION,
            operation=OPERATION,
            payload=payload,
        )

    with attempt.lock.hold() as hold:
        decided = table.ledger.append(lambda state: decision(state, hold))
        show_commit(table, time, decided)
    return decided


def _payload(time: InstantTime, written: _Written) -> bytes:
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in written.stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    extra: dict[str, str | None] = {
        IN_PLACE: "true" if written.are_in_place else "false",
        **field_id_facts(written.field_ids),
        "schema": written.schema,
    }
    metadata = CommitMetadata(by_partition, compacted=True, extra_metadata=extra, operation_type=OPERATION)
    return encode_sealed_commit(metadata, time)


def _give_up(attempt: _Attempt, time: InstantTime, slot: int, error: Exception | None) -> None:
    """End the attempt at once. If that fails too, the next write does it."""
    reason = "there was nothing to compact" if error is None else str(error)[:500]
    failed = FailedWrite(time, Action.COMPACTION, attempt.owner, None)
    try:
        end_attempt(attempt.table, failed, reason=reason)
        leave_attempt(attempt.table, time, slot)
    except HoldfastError as second:
        log.warning(
            "rollback.postponed",
            extra={"table": attempt.table.store.uri(""), "instant": time, "cause": str(second)},
        )
        if error is not None:
            error.add_note(f"ending the compaction failed too and is left to the next write: {second}")
