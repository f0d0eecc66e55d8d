"""Cleans: the plan that says which files will go, and the record of which did.

Files are held as names within their partition. Hudi writes a plan with
absolute addresses; a table may since have been moved, so only their ends count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from holdfast.format.avro_payloads import InstantText, Payload
from holdfast.format.malformed import Malformed
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import in_partition


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
    return _PLAN.encode(
        _Plan(
            earliest_instant_to_retain=_earliest(plan),
            policy=plan.policy,
            last_completed_commit_timestamp=plan.last_completed or _NO_TIME,
            file_paths_to_be_deleted={
                partition: tuple(_File(f"{root}/{in_partition(partition, name)}") for name in names)
                for partition, names in plan.files.items()
            },
            partitions_to_be_deleted=plan.partitions_to_delete,
            extra_metadata=plan.extra,
        )
    )


def decode_clean_plan(content: bytes) -> StoredCleanPlan:
    """The plan, of whatever release; `Malformed` if it would delete what is not in its partition."""
    plan = _PLAN.decode(content)
    earliest = plan.earliest_instant_to_retain
    files = dict(plan.files_to_be_deleted)  # Where the first releases listed names.
    for partition, paths in plan.file_paths_to_be_deleted.items():
        files[partition] = files.get(partition, ()) + tuple(_name(partition, file) for file in paths)
    if any("/" in name for names in files.values() for name in names):
        raise Malformed("the clean plan names a file outside its partition")
    return StoredCleanPlan(
        earliest=None if earliest is None else earliest.timestamp,
        earliest_action=None if earliest is None else earliest.action,
        last_completed=plan.last_completed_commit_timestamp or None,
        policy=plan.policy,
        files=files,
        partitions_to_delete=plan.partitions_to_be_deleted,
        extra=plan.extra_metadata,
    )


def encode_clean_metadata(metadata: CleanMetadata) -> bytes:
    """The content of a completed clean; equal input gives equal bytes."""
    return _METADATA.encode(
        _Metadata(
            start_clean_time=metadata.start_time,
            time_taken_in_millis=metadata.took_ms,
            total_files_deleted=metadata.deleted_count,
            earliest_commit_to_retain=metadata.earliest or _NO_TIME,
            last_completed_commit_timestamp=metadata.last_completed or _NO_TIME,
            partition_metadata={
                each.partition: _Partition(
                    partition_path=each.partition,
                    policy=each.policy,
                    delete_path_patterns=(*each.deleted, *each.failed),
                    success_delete_files=each.deleted,
                    failed_delete_files=each.failed,
                    is_partition_deleted=each.is_deleted,
                )
                for each in metadata.partitions
            },
            extra_metadata=metadata.extra,
        )
    )


def decode_clean_metadata(content: bytes) -> CleanMetadata:
    metadata = _METADATA.decode(content)
    return CleanMetadata(
        start_time=metadata.start_clean_time,
        took_ms=metadata.time_taken_in_millis,
        deleted_count=metadata.total_files_deleted,
        earliest=metadata.earliest_commit_to_retain or None,
        last_completed=metadata.last_completed_commit_timestamp or None,
        partitions=tuple(
            # Older releases wrote whole addresses.
            CleanedPartition(
                partition=each.partition_path,
                policy=each.policy,
                deleted=tuple(path.rpartition("/")[2] for path in each.success_delete_files),
                failed=tuple(path.rpartition("/")[2] for path in each.failed_delete_files),
                is_deleted=each.is_partition_deleted,
            )
            for each in metadata.partition_metadata.values()
        ),
        extra=metadata.extra_metadata,
    )


_OptionalInstantText = Annotated[InstantTime, msgspec.Meta(pattern=r"\A([0-9]{14}([0-9]{3})?)?\Z")]
_NO_TIME = InstantTime("")


class _Earliest(msgspec.Struct):
    timestamp: InstantText
    action: Action
    state: str = ""


class _File(msgspec.Struct, rename="camel"):
    file_path: str = ""
    is_bootstrap_base_file: bool = False


class _Plan(msgspec.Struct, rename="camel", kw_only=True):
    earliest_instant_to_retain: _Earliest | None = None
    policy: str
    last_completed_commit_timestamp: _OptionalInstantText = _NO_TIME
    files_to_be_deleted: Mapping[str, tuple[str, ...]] = msgspec.field(
        name="filesToBeDeletedPerPartition", default_factory=dict
    )
    file_paths_to_be_deleted: Mapping[str, tuple[_File, ...]] = msgspec.field(
        name="filePathsToBeDeletedPerPartition", default_factory=dict
    )
    partitions_to_be_deleted: tuple[str, ...] = ()
    extra_metadata: Mapping[str, str] = msgspec.field(default_factory=dict)


class _Partition(msgspec.Struct, rename="camel", kw_only=True):
    partition_path: str
    policy: str
    delete_path_patterns: tuple[str, ...] = ()
    success_delete_files: tuple[str, ...]
    failed_delete_files: tuple[str, ...]
    is_partition_deleted: bool = False


class _Metadata(msgspec.Struct, rename="camel", kw_only=True):
    start_clean_time: InstantText
    time_taken_in_millis: int
    total_files_deleted: int
    earliest_commit_to_retain: _OptionalInstantText
    partition_metadata: Mapping[str, _Partition]
    last_completed_commit_timestamp: _OptionalInstantText = _NO_TIME
    extra_metadata: Mapping[str, str] = msgspec.field(default_factory=dict)


_PLAN = Payload(
    "HoodieCleanerPlan",
    _Plan,
    what="one of a clean",
    constants={"version": 2},
    required=("earliestInstantToRetain",),
)
_METADATA = Payload(
    "HoodieCleanMetadata",
    _Metadata,
    what="one of a clean",
    constants={"version": 2, "bootstrapPartitionMetadata": {}},
)


def _earliest(plan: StoredCleanPlan) -> _Earliest | None:
    if plan.earliest is None:
        return None
    assert plan.earliest_action is not None, "the earliest commit is of some action"
    return _Earliest(plan.earliest, plan.earliest_action, State.COMPLETED.value)


def _name(partition: str, file: _File) -> str:
    name = file.file_path.rpartition("/")[2]
    if not name or not file.file_path.endswith("/" + in_partition(partition, name)):
        raise Malformed(
            f"the clean plan names a file outside its partition {partition!r}: {file.file_path!r}"
        )
    if file.is_bootstrap_base_file:
        raise Malformed(f"the clean plan names a file outside the table: {file.file_path!r}")
    return name
