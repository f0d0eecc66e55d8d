"""Rollbacks: the plan that says what will be removed, and the record of what was.

Paths are held as they are written: Hudi writes absolute paths and URIs.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from holdfast.format.avro_payloads import InstantText, Payload
from holdfast.model.instant import Action, InstantTime


class RollbackRequest(Struct, frozen=True):
    """Files to delete in one partition, or log blocks to undo in one file group."""

    partition: str = field(name="partitionPath")
    file_id: str = field(name="fileId", default="")
    latest_base_instant: str = field(name="latestBaseInstant", default="")
    files: tuple[str, ...] = field(name="filesToBeDeleted", default=())
    log_blocks: Mapping[str, int] = field(name="logBlocksToBeDeleted", default_factory=dict)
    """Path of each log file to its size in bytes."""


class RolledBackInstant(Struct, frozen=True):
    time: InstantText = field(name="commitTime")
    action: Action


class RollbackPlan(Struct, frozen=True):
    instant: RolledBackInstant = field(name="instantToRollback")
    requests: tuple[RollbackRequest, ...] = field(name="RollbackRequests", default=())

    @property
    def target(self) -> InstantTime:
        return self.instant.time


class RolledBackPartition(Struct, frozen=True):
    partition: str = field(name="partitionPath")
    deleted_files: tuple[str, ...] = field(name="successDeleteFiles", default=())
    failed_files: tuple[str, ...] = field(name="failedDeleteFiles", default=())
    rollback_log_files: Mapping[str, int] = field(name="rollbackLogFiles", default_factory=dict)
    """Log files written to undo blocks, with their sizes in bytes."""
    failed_commit_log_files: Mapping[str, int] = field(name="logFilesFromFailedCommit", default_factory=dict)
    """Log files whose blocks were undone, with their sizes in bytes."""


class RollbackMetadata(Struct, frozen=True):
    start_time: InstantText = field(name="startRollbackTime")
    """The instant of the rollback itself."""
    time_taken_ms: int = field(name="timeTakenInMillis")
    total_files_deleted: int = field(name="totalFilesDeleted")
    commits: tuple[InstantText, ...] = field(name="commitsRollback")
    by_partition: Mapping[str, RolledBackPartition] = field(name="partitionMetadata")
    instants: tuple[RolledBackInstant, ...] = field(name="instantsRollback", default=())
    """What `commits` names, with the actions; empty in files of older releases."""
    version: int = 1

    @property
    def partitions(self) -> tuple[RolledBackPartition, ...]:
        return tuple(self.by_partition.values())


_PLAN = Payload("HoodieRollbackPlan", RollbackPlan, what="the plan of a rollback", constants={"version": 1})
_METADATA = Payload("HoodieRollbackMetadata", RollbackMetadata, what="one of a rollback")

encode_rollback_plan, decode_rollback_plan = _PLAN.encode, _PLAN.decode
encode_rollback_metadata, decode_rollback_metadata = _METADATA.encode, _METADATA.decode
