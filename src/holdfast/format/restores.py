"""Restores: the plan that says which instants will be taken back, and the record of what was."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from holdfast.format.avro import STRING, array_of, decode_container, encode_container, map_of
from holdfast.format.malformed import Malformed
from holdfast.format.rollbacks import (
    INSTANT_SCHEMA,
    METADATA_SCHEMA,
    RollbackMetadata,
    RolledBackInstant,
    instant_of,
    instant_record,
    metadata_of,
    metadata_record,
)
from holdfast.model.instant import InstantTime, instant_time

_PLAN_VERSION = 2
_METADATA_VERSION = 1

_RESTORE_PLAN_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieRestorePlan",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "instantsToRollback", "type": array_of(INSTANT_SCHEMA), "default": []},
        {"name": "version", "type": ["int", "null"], "default": _PLAN_VERSION},
        # Hudi gives it the default null, which a strict parser refuses for a union that begins with a string.
        {"name": "savepointToRestoreTimestamp", "type": [STRING, "null"]},
    ],
}

_RESTORE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieRestoreMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "startRestoreTime", "type": STRING},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "instantsToRollback", "type": array_of(STRING)},
        {"name": "hoodieRestoreMetadata", "type": map_of(array_of(["null", METADATA_SCHEMA]))},
        {"name": "version", "type": ["int", "null"], "default": _METADATA_VERSION},
        {"name": "restoreInstantInfo", "type": array_of("HoodieInstantInfo"), "default": []},
    ],
}


@dataclass(frozen=True, slots=True)
class RestorePlan:
    instants: tuple[RolledBackInstant, ...]
    """In the order in which they are taken back."""
    savepoint: InstantTime | None
    """Where the table goes; None in plans of releases that did not write it down."""


@dataclass(frozen=True, slots=True)
class RestoreMetadata:
    start_time: InstantTime
    """The instant of the restore itself."""
    time_taken_ms: int
    commits: tuple[InstantTime, ...]
    rollbacks: Mapping[InstantTime, tuple[RollbackMetadata, ...]]
    """Instant → what was removed of it."""
    instants: tuple[RolledBackInstant, ...]
    """What `commits` names, with the actions; empty in files of older releases."""


def encode_restore_plan(plan: RestorePlan) -> bytes:
    record = {
        "instantsToRollback": [instant_record(instant) for instant in plan.instants],
        "version": _PLAN_VERSION,
        "savepointToRestoreTimestamp": plan.savepoint,
    }
    return encode_container(_RESTORE_PLAN_SCHEMA, record)


def decode_restore_plan(content: bytes) -> RestorePlan:
    wire = _converted(decode_container(content), _Plan)
    savepoint = wire.savepoint_to_restore_timestamp
    return RestorePlan(
        instants=tuple(instant_of(record) for record in wire.instants_to_rollback),
        savepoint=None if savepoint is None else _time(savepoint),
    )


def encode_restore_metadata(metadata: RestoreMetadata) -> bytes:
    record = {
        "startRestoreTime": metadata.start_time,
        "timeTakenInMillis": metadata.time_taken_ms,
        "instantsToRollback": metadata.commits,
        "hoodieRestoreMetadata": {
            time: [metadata_record(rollback) for rollback in rollbacks]
            for time, rollbacks in metadata.rollbacks.items()
        },
        "version": _METADATA_VERSION,
        "restoreInstantInfo": [instant_record(instant) for instant in metadata.instants],
    }
    return encode_container(_RESTORE_SCHEMA, record)


def decode_restore_metadata(content: bytes) -> RestoreMetadata:
    wire = _converted(decode_container(content), _Metadata)
    return RestoreMetadata(
        start_time=_time(wire.start_restore_time),
        time_taken_ms=wire.time_taken_in_millis,
        commits=tuple(_time(commit) for commit in wire.instants_to_rollback),
        rollbacks={
            _time(time): tuple(metadata_of(record) for record in records if record is not None)
            for time, records in wire.hoodie_restore_metadata.items()
        },
        instants=tuple(instant_of(record) for record in wire.restore_instant_info),
    )


class _Plan(msgspec.Struct, rename="camel"):
    instants_to_rollback: tuple[dict[str, Any], ...]
    savepoint_to_restore_timestamp: str | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    start_restore_time: str
    time_taken_in_millis: int
    instants_to_rollback: tuple[str, ...]
    hoodie_restore_metadata: dict[str, tuple[dict[str, Any] | None, ...]]
    restore_instant_info: tuple[dict[str, Any], ...] = ()


_T = TypeVar("_T")


def _converted(record: dict[str, Any], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(record, kind)
    except ValueError as error:
        raise Malformed(f"the record is not one of a restore: {error}") from error


def _time(text: str) -> InstantTime:
    try:
        return instant_time(text)
    except ValueError as error:
        raise Malformed(f"the record of a restore holds a wrong time: {error}") from error
