"""One write, from its first entry in the ledger to its last.

    recover ─► BEGIN ─► heartbeat, requested, inflight ─► files ─► COMMIT ─► publish ─► tidy, clean

Before COMMIT is in the ledger nothing of the write is visible, and the next write
removes it. After it the write stands, and any program publishes it. An error between the
two aborts and cleans up at once; a crash leaves that to the next write.

Every write, whether it admits others or not, is validated against whatever was
committed since its BEGIN, in the slot its COMMIT takes. So writers need no lock
among themselves; a lock keeps out programs that do not know the ledger.

A write may be the first of its table, and make it. Until its COMMIT there is no
table; the COMMIT carries the table's properties.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.concurrency.heartbeats import Heartbeat
from holdfast.concurrency.locks.lock import Lock
from holdfast.concurrency.locks.open import open_lock
from holdfast.errors import Conflict, HoldfastError, LockTimeout, WriteConflict, WriterActive
from holdfast.format.commits import inflight_metadata
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.replace_requests import encode_replace_request
from holdfast.host import Owner
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import instant_file
from holdfast.model.reports import Commit, RollbackReport
from holdfast.services.rollback.failed_writes import FailedWrite
from holdfast.services.rollback.rollback import recover, roll_back
from holdfast.storage.probe import ensure_many_writers
from holdfast.table.opened import OpenTable, is_table
from holdfast.table.pending import refuse_if_restoring
from holdfast.table.properties_file import drop_metadata_table, read_settings
from holdfast.table.publish import load_published_timeline
from holdfast.table.settled import BEGINS_WITHIN_MS
from holdfast.table.zone import next_instant, refuse_if_ahead
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.background import BackgroundServices
from holdfast.writes.commit import build_payload, claim_of, decide, tidy
from holdfast.writes.outcome import commit_report
from holdfast.writes.plan import WritePlan, write_files
from holdfast.writes.repeats import Repeat, find_repeated_commit, refuse_repeat
from holdfast.writes.validation import (
    Validation,
    begin_validation,
    find_fence,
    refuse_if_fenced,
    refuse_if_taken_back,
)

log = logging.getLogger(__name__)

_BEGIN_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What one attempt at a write needs all the way."""

    table: OpenTable
    plan: WritePlan
    owner: Owner
    lock: Lock


def run_write(table: OpenTable, plan: WritePlan) -> Commit:
    """Carry out one write. See the module for what a failure leaves.

    A write that lost against another is made anew as often as its settings say.
    """
    settings = plan.settings
    if settings.is_shared:
        ensure_many_writers(table.store, table.clock)
    lock = open_lock(table, settings.lock)
    recovered: list[RollbackReport] = []
    for retries_left in range(settings.conflict_retries, -1, -1):
        attempt = _Attempt(_up_to_date(table), plan, table.host.owner(table.clock.unique()), lock)
        try:
            return _run(attempt, recovered)
        except Repeat:
            repeated = find_repeated_commit(attempt.table, settings)
            if repeated is None:
                raise _repeat_conflict() from None
            return repeated
        except WriteConflict as conflict:
            if retries_left == 0:
                raise
            log.info(
                "write.retried",
                extra={"table": table.store.uri(""), "cause": str(conflict), "retries_left": retries_left},
            )
    raise AssertionError("the last attempt returns or raises")


def _repeat_conflict() -> WriteConflict:
    return WriteConflict(
        "the commit that this write repeats was taken back meanwhile", hint="run the write again"
    )


def _up_to_date(table: OpenTable) -> OpenTable:
    """The table, as one that is there if it is by now. `Conflict` if that is not the one this write makes."""
    if not table.is_new or not is_table(table.store, table.location, clock=table.clock, host=table.host):
        return table
    found, wanted = read_settings(table.store).properties, table.settings.properties
    differing = next((key for key in sorted(wanted) if found.get(key) != wanted[key]), None)
    if differing is not None:
        raise Conflict(
            "another table was made here meanwhile",
            property=differing,
            found=found.get(differing),
            wanted=wanted[differing],
            hint="nothing was written; look at the table, then run the write again",
        )
    return replace(table, is_new=False)


def _run(attempt: _Attempt, recovered: list[RollbackReport]) -> Commit:
    table, plan, settings = attempt.table, attempt.plan, attempt.plan.settings
    with (
        Heartbeat(
            table,
            attempt.owner,
            interval_ms=settings.heartbeat_interval_ms,
            misses=settings.heartbeat_misses,
            on_lost=plan.cancel,
            expires=settings.is_shared,
        ) as heartbeat,
        BackgroundServices(table, settings) as services,
    ):
        instant, slot, chosen_ms = _begin(attempt, recovered)
        try:
            _refuse_if_late(table, instant, chosen_ms)
            heartbeat.beat_for(instant)
            if recovered:
                # Where every writer dies, rollbacks gather, and no write comes to its end.
                _archive(table, instant, services)
            services.start()
            validation = _announce(attempt, instant, slot)
            draft = write_files(plan, table, instant)
            payload = build_payload(table, plan, instant, draft)
            heartbeat.refuse_if_lost()
        except Exception as error:
            heartbeat.stop()
            fence = find_fence(table, instant, slot)
            _give_up(table, instant, plan.action, error, services)
            # What ended the work may be no more than that it was cancelled, that it slept while others
            # rolled it back and cleaned, or that it built on a commit that is not there any more.
            heartbeat.refuse_if_lost()
            if fence is not None:
                raise fence from error
            refuse_if_taken_back(table, instant, slot)
            raise
        try:
            claim = claim_of(plan, draft, payload)
            decided = decide(table, plan, instant, payload, claim, validation, lock=attempt.lock)
        except (WriteConflict, LockTimeout, Repeat) as error:
            heartbeat.stop()
            _give_up(table, instant, plan.action, error, services)
            raise
    problems = tidy(table, instant, draft.written.stats, decided, services)
    return commit_report(
        instant,
        plan.action,
        plan.operation.name_in_commits,
        draft.written.stats,
        draft.replaced,
        index=draft.written.index,
        rolled_back=tuple(recovered),
        post_commit_errors=problems,
    )


def _begin(attempt: _Attempt, recovered: list[RollbackReport]) -> tuple[InstantTime, int, int]:
    """Remove what dead writers left, then claim an instant no other writer can have.

    With its slot, and when it was chosen, by the clock that never goes back.
    """
    table, settings = attempt.table, attempt.plan.settings
    for _ in range(_BEGIN_ATTEMPTS):
        with attempt.lock.hold():
            recovery = recover(
                table, policy=settings.failed_writes_policy, timeout_ms=settings.heartbeat_timeout_ms
            )
            recovered += recovery.rolled_back
            if not settings.is_shared:
                _refuse_if_running(recovery.left, attempt.owner)
            state, chosen_ms = _append_begin(attempt)
        for time, begun in state.begun.items():
            if begun.owner == attempt.owner:
                return time, begun.slot, chosen_ms
    raise WriterActive("other writers keep starting on this table", hint="write from one process at a time")


def _refuse_if_late(table: OpenTable, instant: InstantTime, chosen_ms: int) -> None:
    """`Conflict` if so long passed before BEGIN that readers could name its time already."""
    took_ms = table.clock.monotonic_ms() - chosen_ms
    if took_ms > BEGINS_WITHIN_MS:
        raise Conflict(
            "the write took too long to begin: readers may rely on what was there at its time",
            instant=instant,
            seconds=round(took_ms / 1000, 1),
            hint="nothing was written; run the write again",
        )


def _append_begin(attempt: _Attempt) -> tuple[LedgerState, int]:
    """Put BEGIN into the ledger, unless another write is in its way or it is there already.

    With the time when its instant was chosen, or now.
    """
    table, settings, operation = attempt.table, attempt.plan.settings, attempt.plan.operation
    timeline = load_timeline(table.store)
    chosen_ms = table.clock.monotonic_ms()

    def decide(state: LedgerState) -> Decision | None:
        nonlocal chosen_ms
        refuse_if_restoring(load_timeline(table.store) if state.restore else timeline, state)
        if any(begun.owner == attempt.owner for begun in state.begun.values()):
            return None
        if state.begun and not settings.is_shared:
            return None
        if state.begun and not (state.committed or timeline.completed_commits):
            first = min(state.begun)
            raise _writer_active(first, state.begun[first].owner, "the first")
        newest = max((time for time in (timeline.newest, state.newest) if time is not None), default=None)
        refuse_if_ahead(table, newest)
        chosen_ms = table.clock.monotonic_ms()
        return Decision(
            kind=EntryKind.BEGIN,
            instant=next_instant(table, newest),
            action=attempt.plan.action,
            owner=attempt.owner,
            operation=operation.name_in_commits,
            shared=settings.is_shared,
        )

    return table.ledger.append(decide), chosen_ms


def _refuse_if_running(left: Sequence[FailedWrite], owner: Owner) -> None:
    for write in left:
        if write.owner != owner:
            raise _writer_active(write.time, write.owner, "another")


def _writer_active(time: InstantTime, owner: Owner | None, which: str) -> WriterActive:
    return WriterActive(
        f"{which} write is running on this table",
        instant=time,
        owner=owner or "another program",
        hint="wait until it has finished, or stop it; if it writes to the table that this is a copy of: "
        f"holdfast commit rollback PATH --commit {time}",
    )


def _announce(attempt: _Attempt, instant: InstantTime, slot: int) -> Validation:
    """Put the instant on the timeline, and look at everything the write is about to build on."""
    table, operation = attempt.table, attempt.plan.operation
    action = attempt.plan.action
    requested = encode_replace_request() if action is Action.REPLACECOMMIT else b""
    table.store.create(instant_file(instant, action, State.REQUESTED), requested)
    inflight = inflight_metadata(operation.name_in_commits)
    table.store.create(instant_file(instant, action, State.INFLIGHT), inflight)
    state = table.ledger.read()
    refuse_if_fenced(state, instant)
    # Another write may have been decided after the recovery and before our BEGIN. What we are
    # about to build on must show it; what is committed from our BEGIN on is validated against.
    timeline = load_published_timeline(table, state)
    refuse_repeat(state, attempt.plan.settings)
    attempt.plan.origin.check()
    drop_metadata_table(table)
    return begin_validation(table, instant, slot, timeline)


def _give_up(
    table: OpenTable, instant: InstantTime, action: Action, error: Exception, services: BackgroundServices
) -> None:
    """Roll this write back at once. If that fails too, the next write does it.

    Where every write fails, rollbacks gather; so they are archived here, too.
    """
    try:
        roll_back(table, FailedWrite(instant, action, None, None), reason=str(error)[:500])
    except HoldfastError as second:
        log.warning(
            "rollback.postponed",
            extra={"table": table.store.uri(""), "instant": instant, "cause": str(second)},
        )
        error.add_note(f"rolling the write back failed too and is left to the next write: {second}")
        return
    _archive(table, instant, services)


def _archive(table: OpenTable, instant: InstantTime, services: BackgroundServices) -> None:
    """Archive, if that is due, apart from a commit. What fails here the next write does."""
    try:
        services.finish_archive()
    except HoldfastError as error:
        log.warning(
            "archive.postponed", extra={"table": table.store.uri(""), "instant": instant, "cause": str(error)}
        )
