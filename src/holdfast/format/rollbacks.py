"""Rollbacks: the plan that says what will be removed, and the record of what was.

Paths are held as they are written: Hudi writes absolute paths and URIs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from holdfast.format.avro import STRING, array_of, decode_container, encode_container, map_of, optional
from holdfast.format.malformed import Malformed
from holdfast.model.instant import Action, InstantTime, instant_time

_VERSION = 1

_VERSION_FIELD: dict[str, Any] = {"name": "version", "type": ["int", "null"], "default": _VERSION}

INSTANT_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieInstantInfo",
    "fields": [{"name": "commitTime", "type": STRING}, {"name": "action", "type": STRING}],
}

_REQUEST_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieRollbackRequest",
    "fields": [
        {"name": "partitionPath", "type": STRING},
        optional("fileId", STRING),
        optional("latestBaseInstant", STRING),
        {"name": "filesToBeDeleted", "type": array_of(STRING), "default": []},
        optional("logBlocksToBeDeleted", map_of("long")),
    ],
}

_PLAN_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieRollbackPlan",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        optional("instantToRollback", INSTANT_SCHEMA),
        optional("RollbackRequests", array_of(_REQUEST_SCHEMA)),
        _VERSION_FIELD,
    ],
}

_PARTITION_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieRollbackPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": STRING},
        {"name": "successDeleteFiles", "type": array_of(STRING)},
        {"name": "failedDeleteFiles", "type": array_of(STRING)},
        optional("rollbackLogFiles", map_of("long")),
        optional("logFilesFromFailedCommit", map_of("long")),
    ],
}

METADATA_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieRollbackMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "startRollbackTime", "type": STRING},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "totalFilesDeleted", "type": "int"},
        {"name": "commitsRollback", "type": array_of(STRING)},
        {"name": "partitionMetadata", "type": map_of(_PARTITION_SCHEMA)},
        _VERSION_FIELD,
        {"name": "instantsRollback", "type": array_of(INSTANT_SCHEMA), "default": []},
    ],
}


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Files to delete in one partition, or log blocks to undo in one file group."""

    partition: str
    file_id: str = ""
    latest_base_instant: str = ""
    files: tuple[str, ...] = ()
    log_blocks: Mapping[str, int] = field(default_factory=dict)
    """Path of each log file to its size in bytes."""


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    target: InstantTime
    target_action: Action
    requests: tuple[RollbackRequest, ...]


@dataclass(frozen=True, slots=True)
class RolledBackInstant:
    time: InstantTime
    action: Action


@dataclass(frozen=True, slots=True)
class RolledBackPartition:
    partition: str
    deleted_files: tuple[str, ...] = ()
    failed_files: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] = field(default_factory=dict)
    """Log files written to undo blocks, with their sizes in bytes."""
    failed_commit_log_files: Mapping[str, int] = field(default_factory=dict)
    """Log files whose blocks were undone, with their sizes in bytes."""


@dataclass(frozen=True, slots=True)
class RollbackMetadata:
    start_time: InstantTime
    """The instant of the rollback itself."""
    time_taken_ms: int
    total_files_deleted: int
    commits: tuple[InstantTime, ...]
    partitions: tuple[RolledBackPartition, ...]
    instants: tuple[RolledBackInstant, ...]
    """What `commits` names, with the actions; empty in files of older releases."""
    version: int | None = _VERSION


def encode_rollback_plan(plan: RollbackPlan) -> bytes:
    record = {
        "instantToRollback": instant_record(RolledBackInstant(plan.target, plan.target_action)),
        "RollbackRequests": [_request_record(request) for request in plan.requests],
        "version": _VERSION,
    }
    return encode_container(_PLAN_SCHEMA, record)


def decode_rollback_plan(content: bytes) -> RollbackPlan:
    wire = _converted(decode_container(content), _Plan)
    if wire.instant_to_rollback is None:
        raise Malformed("the rollback plan names no instant")
    target = _instant(wire.instant_to_rollback)
    requests = tuple(_request(request) for request in wire.rollback_requests or ())
    return RollbackPlan(target.time, target.action, requests)


def encode_rollback_metadata(metadata: RollbackMetadata) -> bytes:
    return encode_container(METADATA_SCHEMA, metadata_record(metadata))


def decode_rollback_metadata(content: bytes) -> RollbackMetadata:
    return metadata_of(decode_container(content))


def metadata_record(metadata: RollbackMetadata) -> dict[str, Any]:
    """The metadata as a record of `METADATA_SCHEMA`."""
    return {
        "startRollbackTime": metadata.start_time,
        "timeTakenInMillis": metadata.time_taken_ms,
        "totalFilesDeleted": metadata.total_files_deleted,
        "commitsRollback": list(metadata.commits),
        "partitionMetadata": {each.partition: _partition_record(each) for each in metadata.partitions},
        "version": metadata.version,
        "instantsRollback": [instant_record(instant) for instant in metadata.instants],
    }


def metadata_of(record: dict[str, Any]) -> RollbackMetadata:
    """The metadata in a record, of whatever release."""
    wire = _converted(record, _Metadata)
    return RollbackMetadata(
        start_time=_time(wire.start_rollback_time),
        time_taken_ms=wire.time_taken_in_millis,
        total_files_deleted=wire.total_files_deleted,
        commits=tuple(_time(commit) for commit in wire.commits_rollback),
        partitions=tuple(_partition(partition) for partition in wire.partition_metadata.values()),
        instants=tuple(_instant(instant) for instant in wire.instants_rollback),
        version=wire.version,
    )


def instant_record(instant: RolledBackInstant) -> dict[str, Any]:
    """The instant as a record of `INSTANT_SCHEMA`."""
    return {"commitTime": instant.time, "action": instant.action.value}


def instant_of(record: dict[str, Any]) -> RolledBackInstant:
    return _instant(_converted(record, _Instant))


class _Instant(msgspec.Struct, rename="camel"):
    commit_time: str
    action: str


class _Request(msgspec.Struct, rename="camel"):
    partition_path: str
    file_id: str | None = None
    latest_base_instant: str | None = None
    files_to_be_deleted: tuple[str, ...] = ()
    log_blocks_to_be_deleted: dict[str, int] | None = None


class _Plan(msgspec.Struct, rename="camel"):
    instant_to_rollback: _Instant | None
    rollback_requests: tuple[_Request, ...] | None = msgspec.field(name="RollbackRequests")


class _Partition(msgspec.Struct, rename="camel"):
    partition_path: str
    success_delete_files: tuple[str, ...]
    failed_delete_files: tuple[str, ...]
    rollback_log_files: dict[str, int] | None = None
    log_files_from_failed_commit: dict[str, int] | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    start_rollback_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    commits_rollback: tuple[str, ...]
    partition_metadata: dict[str, _Partition]
    version: int | None = _VERSION
    instants_rollback: tuple[_Instant, ...] = ()


_T = TypeVar("_T")


def _converted(record: dict[str, Any], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(record, kind)
    except ValueError as error:
        raise Malformed(f"the record is not one of a rollback: {error}") from error


def _request_record(request: RollbackRequest) -> dict[str, Any]:
    return {
        "partitionPath": request.partition,
        "fileId": request.file_id,
        "latestBaseInstant": request.latest_base_instant,
        "filesToBeDeleted": list(request.files),
        "logBlocksToBeDeleted": dict(request.log_blocks),
    }


def _request(wire: _Request) -> RollbackRequest:
    return RollbackRequest(
        partition=wire.partition_path,
        file_id=wire.file_id or "",
        latest_base_instant=wire.latest_base_instant or "",
        files=wire.files_to_be_deleted,
        log_blocks=wire.log_blocks_to_be_deleted or {},
    )


def _partition_record(partition: RolledBackPartition) -> dict[str, Any]:
    return {
        "partitionPath": partition.partition,
        "successDeleteFiles": list(partition.deleted_files),
        "failedDeleteFiles": list(partition.failed_files),
        "rollbackLogFiles": dict(partition.rollback_log_files),
        "logFilesFromFailedCommit": dict(partition.failed_commit_log_files),
    }


def _partition(wire: _Partition) -> RolledBackPartition:
    return RolledBackPartition(
        partition=wire.partition_path,
        deleted_files=wire.success_delete_files,
        failed_files=wire.failed_delete_files,
        rollback_log_files=wire.rollback_log_files or {},
        failed_commit_log_files=wire.log_files_from_failed_commit or {},
    )


def _instant(wire: _Instant) -> RolledBackInstant:
    try:
        return RolledBackInstant(instant_time(wire.commit_time), Action(wire.action))
    except ValueError as error:
        raise Malformed(f"a rolled back instant is unknown: {error}") from error


def _time(text: str) -> InstantTime:
    try:
        return instant_time(text)
    except ValueError as error:
        raise Malformed(f"the record of a rollback holds a wrong time: {error}") from error
