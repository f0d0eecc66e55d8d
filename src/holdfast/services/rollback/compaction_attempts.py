"""Ending an attempt at a compaction: what it wrote goes, and its plan stays to be carried out.

Rows may have been written to the file slices that the plan is to make; without
the plan no reader would know these. Only a plan that was made to be carried out
at once, and that no one relies on, goes with the attempt.

A process that ends an attempt begins it first in its own name: so the one before
cannot commit any more, and no other begins until the rest is removed.
"""

import logging
from collections.abc import Collection
from dataclasses import replace

from holdfast.errors import StorageUnavailable
from holdfast.format.compaction_plans import CompactionPlan, encode_compaction_plan
from holdfast.format.ledger_entries import EntryKind
from holdfast.host import Owner
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import (
    heartbeat_path,
    instant_file,
    marker_folder,
    marker_path,
    parse_base_file,
)
from holdfast.services.rollback.failed_writes import FailedWrite
from holdfast.table.log_files import log_name
from holdfast.table.markers import read_markers
from holdfast.table.opened import OpenTable
from holdfast.table.pending import AT_ONCE, read_compaction_plan
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

log = logging.getLogger(__name__)


def end_attempt(table: OpenTable, attempt: FailedWrite, *, reason: str) -> bool:
    """Take the right to commit from an attempt, and remove what it wrote; False if it has committed.

    One that another process has begun since, or ended, is left alone.
    """
    own = table.host.owner(table.clock.unique())

    def take_over(state: LedgerState) -> Decision | None:
        begun = state.begun.get(attempt.time)
        if begun is None or (attempt.owner is not None and begun.owner != attempt.owner):
            return None
        return Decision(
            kind=EntryKind.BEGIN, instant=attempt.time, action=Action.COMPACTION, owner=own, reason=reason
        )

    state = table.ledger.append(take_over)
    begun = state.begun.get(attempt.time)
    if begun is None or begun.owner != own:
        return attempt.time not in state.committed
    remove_attempts(table, attempt.time, before=begun.slot)
    _settle_plan(table, attempt.time)
    release(table, attempt.time, own, reason=reason)
    log.info("compaction.ended", extra={"table": table.store.uri(""), "instant": attempt.time})
    return True


def release(table: OpenTable, time: InstantTime, owner: Owner, *, reason: str) -> None:
    """Let others begin the compaction."""

    def decide(state: LedgerState) -> Decision | None:
        if time not in state.begun or state.begun[time].owner != owner:
            return None
        # It names a rollback as every ABORT does; there is none, because the instant goes on.
        return Decision(
            kind=EntryKind.ABORT, instant=time, action=Action.COMPACTION, rollback=time, reason=reason
        )

    table.ledger.append(decide)


def remove_attempts(table: OpenTable, time: InstantTime, *, before: int) -> None:
    """Remove the base files of attempts that began before a slot.

    The inflight file stays: a process that sleeps here may be overtaken by one that commits, and without
    the file no process would show that commit.
    """
    delete_files_of_attempts(table, time, until=before - 1)
    table.store.prune(marker_folder(time))
    table.store.delete(heartbeat_path(time))


def delete_files_of_attempts(
    table: OpenTable, time: InstantTime, *, until: int, keep: Collection[str] = ()
) -> None:
    """Delete base files of attempts up to a slot, and their markers.

    Those of later attempts are left alone: a process that slept may have lost its right to them.
    """
    doomed = [
        marker
        for marker in read_markers(table.store, time)
        if marker.data_path not in keep
        and (name := parse_base_file(marker.data_path.rpartition("/")[2])) is not None
        and name.instant == time
        and _slot_of(name.write_token) <= until
    ]
    stuck = table.store.delete_all(marker.data_path for marker in doomed)
    if stuck:
        raise StorageUnavailable("a file of a failed compaction could not be deleted", file=stuck[0])
    table.store.delete_all(marker_path(time, marker.data_path, marker.kind) for marker in doomed)


def _slot_of(write_token: str) -> int:
    """The slot in which the attempt began that made a base file: its name has it instead of a stage."""
    return int(write_token.split("-")[1])


def _settle_plan(table: OpenTable, time: InstantTime) -> None:
    """Forget a plan that was for this attempt alone, unless rows were written that rely on it."""
    plan = read_compaction_plan(table.store, time)
    if plan is None:
        forget_plan(table, time)
    elif plan.extra.get(AT_ONCE) == "true":
        if logs_of_plan(table, time, plan):
            extra = {key: value for key, value in plan.extra.items() if key != AT_ONCE}
            content = encode_compaction_plan(replace(plan, extra=extra))
            table.store.put(instant_file(time, Action.COMPACTION, State.REQUESTED), content)
        else:
            forget_plan(table, time)


def forget_left_plans(table: OpenTable, timeline: Timeline, state: LedgerState) -> None:
    """Remove plans that were for one attempt, which has ended: one that slept may store it afterwards.

    `state` is younger than `timeline`: a process that stores such a plan has begun before.
    """
    pending = (i.time for i in timeline.instants if i.action is Action.COMPACTION and not i.is_completed)
    for time in pending:
        if time in state.begun or time in state.committed:
            continue
        plan = read_compaction_plan(table.store, time)
        if plan is None or plan.extra.get(AT_ONCE) == "true":
            delete_files_of_attempts(table, time, until=state.slot)
            table.store.prune(marker_folder(time))
            _settle_plan(table, time)


def leave_attempt(table: OpenTable, time: InstantTime, slot: int) -> None:
    """Remove what an attempt wrote after somebody else ended it, unless the compaction is committed."""
    timeline, state = load_timeline(table.store), table.ledger.read()
    if time in state.committed or time in state.aborted:
        return
    delete_files_of_attempts(table, time, until=slot)
    if time not in state.begun:
        table.store.prune(marker_folder(time))
        table.store.delete(heartbeat_path(time))
        forget_left_plans(table, timeline, state)


def forget_plan(table: OpenTable, time: InstantTime) -> None:
    for state in (State.INFLIGHT, State.REQUESTED):
        table.store.delete(instant_file(time, Action.COMPACTION, state))


def logs_of_plan(table: OpenTable, time: InstantTime, plan: CompactionPlan) -> list[str]:
    """Log files of the file slices that the plan is to make."""
    partitions = {operation.partition for operation in plan.operations}
    return [
        file.path
        for partition in sorted(partitions)
        for file in table.store.folder(partition).files
        if (name := log_name(file.path)) is not None and name.base_instant == time
    ]
