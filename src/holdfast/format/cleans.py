"""Cleans: the plan that says which files will go, and the record of which did.

Files are held as names within their partition. Hudi writes a plan with
absolute addresses; a table may since have been moved, so only their ends count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from holdfast.format.avro import STRING, array_of, decode_container, encode_container, map_of, optional
from holdfast.format.malformed import Malformed
from holdfast.model.instant import Action, InstantTime, State, instant_time
from holdfast.model.names import in_partition

_VERSION = 2

_VERSION_FIELD: dict[str, Any] = {"name": "version", "type": ["int", "null"], "default": 1}
_LAST_COMPLETED_FIELD: dict[str, Any] = {
    "name": "lastCompletedCommitTimestamp",
    "type": STRING,
    "default": "",
}

_EARLIEST_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieActionInstant",
    "fields": [
        {"name": "timestamp", "type": STRING},
        {"name": "action", "type": STRING},
        {"name": "state", "type": STRING},
    ],
}

_FILE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCleanFileInfo",
    "fields": [optional("filePath", STRING), optional("isBootstrapBaseFile", "boolean")],
}

PLAN_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCleanerPlan",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        optional("earliestInstantToRetain", _EARLIEST_SCHEMA),
        _LAST_COMPLETED_FIELD,
        {"name": "policy", "type": STRING},
        optional("filesToBeDeletedPerPartition", map_of(array_of(STRING))),
        _VERSION_FIELD,
        optional("filePathsToBeDeletedPerPartition", map_of(array_of(_FILE_SCHEMA))),
        optional("partitionsToBeDeleted", array_of(STRING)),
        optional("extraMetadata", map_of(STRING)),
    ],
}

_PARTITION_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCleanPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": STRING},
        {"name": "policy", "type": STRING},
        {"name": "deletePathPatterns", "type": array_of(STRING)},
        {"name": "successDeleteFiles", "type": array_of(STRING)},
        {"name": "failedDeleteFiles", "type": array_of(STRING)},
        optional("isPartitionDeleted", "boolean"),
    ],
}

METADATA_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCleanMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "startCleanTime", "type": STRING},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "totalFilesDeleted", "type": "int"},
        {"name": "earliestCommitToRetain", "type": STRING},
        _LAST_COMPLETED_FIELD,
        {"name": "partitionMetadata", "type": map_of(_PARTITION_SCHEMA)},
        _VERSION_FIELD,
        optional("bootstrapPartitionMetadata", map_of("HoodieCleanPartitionMetadata")),
        optional("extraMetadata", map_of(STRING)),
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCleanPlan:
    """The files a clean deletes, as stored before the first of them goes."""

    earliest: InstantTime | None
    """The earliest commit that can be read afterwards; None where versions are counted."""
    earliest_action: Action | None
    last_completed: InstantTime | None
    """The newest commit the plan knows."""
    policy: str
    files: Mapping[str, tuple[str, ...]]
    """Partition → names of the files to delete."""
    partitions_to_delete: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedPartition:
    partition: str
    policy: str
    deleted: tuple[str, ...] = ()
    """Names of the files that are gone."""
    failed: tuple[str, ...] = ()
    """Names of the files that storage did not delete."""
    is_deleted: bool = False
    """Whether the partition itself went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMetadata:
    start_time: InstantTime
    """The instant of the clean itself."""
    took_ms: int
    deleted_count: int
    earliest: InstantTime | None
    """The earliest commit that can be read afterwards; None where versions are counted."""
    last_completed: InstantTime | None
    """The newest commit the plan knew."""
    partitions: tuple[CleanedPartition, ...]
    extra: Mapping[str, str] = field(default_factory=dict)


def encode_clean_plan(plan: StoredCleanPlan, *, root: str) -> bytes:
    """The content of a requested clean of the table at the address `root`; equal input gives equal bytes."""
    record = {
        "earliestInstantToRetain": _earliest_record(plan),
        "lastCompletedCommitTimestamp": plan.last_completed or "",
        "policy": plan.policy,
        "filesToBeDeletedPerPartition": {},
        "version": _VERSION,
        "filePathsToBeDeletedPerPartition": {
            partition: [
                {"filePath": f"{root}/{in_partition(partition, name)}", "isBootstrapBaseFile": False}
                for name in names
            ]
            for partition, names in plan.files.items()
        },
        "partitionsToBeDeleted": list(plan.partitions_to_delete),
        "extraMetadata": dict(plan.extra),
    }
    return encode_container(PLAN_SCHEMA, record)


def decode_clean_plan(content: bytes) -> StoredCleanPlan:
    """The plan, of whatever release; `Malformed` if it would delete what is not in its partition."""
    wire = _converted(decode_container(content), _Plan)
    earliest = wire.earliest_instant_to_retain
    files = dict(wire.files_to_be_deleted or {})  # Where the first releases listed names.
    for partition, paths in (wire.file_paths_to_be_deleted or {}).items():
        files[partition] = files.get(partition, ()) + tuple(_name(partition, file) for file in paths)
    if any("/" in name for names in files.values() for name in names):
        raise Malformed("the clean plan names a file outside its partition")
    return StoredCleanPlan(
        earliest=None if earliest is None else _time(earliest.timestamp),
        earliest_action=None if earliest is None else _action(earliest.action),
        last_completed=_optional_time(wire.last_completed_commit_timestamp),
        policy=wire.policy,
        files=files,
        partitions_to_delete=wire.partitions_to_be_deleted or (),
        extra=wire.extra_metadata or {},
    )


def encode_clean_metadata(metadata: CleanMetadata) -> bytes:
    """The content of a completed clean; equal input gives equal bytes."""
    record = {
        "startCleanTime": metadata.start_time,
        "timeTakenInMillis": metadata.took_ms,
        "totalFilesDeleted": metadata.deleted_count,
        "earliestCommitToRetain": metadata.earliest or "",
        "lastCompletedCommitTimestamp": metadata.last_completed or "",
        "partitionMetadata": {each.partition: _partition_record(each) for each in metadata.partitions},
        "version": _VERSION,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(metadata.extra),
    }
    return encode_container(METADATA_SCHEMA, record)


def decode_clean_metadata(content: bytes) -> CleanMetadata:
    wire = _converted(decode_container(content), _Metadata)
    return CleanMetadata(
        start_time=_time(wire.start_clean_time),
        took_ms=wire.time_taken_in_millis,
        deleted_count=wire.total_files_deleted,
        earliest=_optional_time(wire.earliest_commit_to_retain),
        last_completed=_optional_time(wire.last_completed_commit_timestamp),
        partitions=tuple(_partition(each) for each in wire.partition_metadata.values()),
        extra=wire.extra_metadata or {},
    )


class _Earliest(msgspec.Struct):
    timestamp: str
    action: str


class _File(msgspec.Struct, rename="camel"):
    file_path: str | None = None
    is_bootstrap_base_file: bool | None = None


class _Plan(msgspec.Struct, rename="camel"):
    earliest_instant_to_retain: _Earliest | None
    policy: str
    last_completed_commit_timestamp: str = ""
    files_to_be_deleted: dict[str, tuple[str, ...]] | None = msgspec.field(
        name="filesToBeDeletedPerPartition", default=None
    )
    file_paths_to_be_deleted: dict[str, tuple[_File, ...]] | None = msgspec.field(
        name="filePathsToBeDeletedPerPartition", default=None
    )
    partitions_to_be_deleted: tuple[str, ...] | None = None
    extra_metadata: dict[str, str] | None = None


class _Partition(msgspec.Struct, rename="camel"):
    partition_path: str
    policy: str
    success_delete_files: tuple[str, ...]
    failed_delete_files: tuple[str, ...]
    is_partition_deleted: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    start_clean_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    earliest_commit_to_retain: str
    partition_metadata: dict[str, _Partition]
    last_completed_commit_timestamp: str = ""
    extra_metadata: dict[str, str] | None = None


_T = TypeVar("_T")


def _converted(record: dict[str, Any], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(record, kind)
    except ValueError as error:
        raise Malformed(f"the record is not one of a clean: {error}") from error


def _earliest_record(plan: StoredCleanPlan) -> dict[str, str] | None:
    if plan.earliest is None:
        return None
    assert plan.earliest_action is not None, "the earliest commit is of some action"
    return {
        "timestamp": plan.earliest,
        "action": plan.earliest_action.value,
        "state": State.COMPLETED.value,
    }


def _partition_record(partition: CleanedPartition) -> dict[str, Any]:
    return {
        "partitionPath": partition.partition,
        "policy": partition.policy,
        "deletePathPatterns": [*partition.deleted, *partition.failed],
        "successDeleteFiles": list(partition.deleted),
        "failedDeleteFiles": list(partition.failed),
        "isPartitionDeleted": partition.is_deleted,
    }


def _partition(wire: _Partition) -> CleanedPartition:
    # Older releases wrote whole addresses.
    return CleanedPartition(
        partition=wire.partition_path,
        policy=wire.policy,
        deleted=tuple(path.rpartition("/")[2] for path in wire.success_delete_files),
        failed=tuple(path.rpartition("/")[2] for path in wire.failed_delete_files),
        is_deleted=bool(wire.is_partition_deleted),
    )


def _name(partition: str, file: _File) -> str:
    path = file.file_path or ""
    name = path.rpartition("/")[2]
    if not name or not path.endswith("/" + in_partition(partition, name)):
        raise Malformed(f"the clean plan names a file outside its partition {partition!r}: {path!r}")
    if file.is_bootstrap_base_file:
        raise Malformed(f"the clean plan names a file outside the table: {path!r}")
    return name


def _action(text: str) -> Action:
    try:
        return Action(text)
    except ValueError as error:
        raise Malformed(f"the earliest commit of a clean is of an unknown action: {error}") from error


def _optional_time(text: str) -> InstantTime | None:
    return _time(text) if text else None


def _time(text: str) -> InstantTime:
    try:
        return instant_time(text)
    except ValueError as error:
        raise Malformed(f"the record of a clean holds a wrong time: {error}") from error
