"""Recovery as a plan: the writes that no process can finish, and rolling back exactly these."""

from dataclasses import dataclass

from holdfast.concurrency.heartbeats import look_at
from holdfast.config.choices import FailedWritesPolicy
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS
from holdfast.model.instant import Instant
from holdfast.model.reports import RollbackReport
from holdfast.services.rollback.doomed_files import plan_rollback
from holdfast.services.rollback.failed_writes import (
    FailedWrite,
    find_failed_writes,
    partition_by_liveness,
    suspects,
)
from holdfast.services.rollback.rollback import roll_back_failed_writes
from holdfast.table.opened import OpenTable
from holdfast.table.stable_read import timeline_and_ledger


@dataclass(frozen=True, slots=True)
class DoomedWrite:
    """A failed write and the files that go with it."""

    write: FailedWrite
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What rolling back the failed writes of a table does."""

    doomed: tuple[DoomedWrite, ...]
    running: tuple[FailedWrite, ...]
    """Writes that may be running; they are left alone."""
    unpublished: tuple[Instant, ...]
    """Commits that are decided and not yet visible; they are made so."""


def plan_recovery(table: OpenTable) -> RecoveryPlan:
    """What `roll_back_failed_writes` would do now."""
    timeline, state = timeline_and_ledger(table)
    failed = find_failed_writes(table, timeline, state)
    policy = FailedWritesPolicy.EAGER
    statuses = look_at(table, suspects(table, failed, policy), timeout_ms=HEARTBEAT_TIMEOUT_MS)
    abandoned, left = partition_by_liveness(table, failed, statuses, policy=policy)
    return RecoveryPlan(
        doomed=tuple(DoomedWrite(write, _files_of(table, write)) for write in abandoned),
        running=left,
        unpublished=tuple(instant for instant in timeline.pending_writes if instant.time in state.committed),
    )


def execute_recovery(table: OpenTable, plan: RecoveryPlan) -> tuple[RollbackReport, ...]:
    """Roll back the writes of the plan. One that failed since waits for another plan."""
    return roll_back_failed_writes(table, only={doomed.write.time for doomed in plan.doomed})


def _files_of(table: OpenTable, write: FailedWrite) -> tuple[str, ...]:
    return tuple(file for request in plan_rollback(table, write).requests for file in request.files)
