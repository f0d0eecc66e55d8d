"""Compaction plans: which file slices a compaction, or a log compaction, is to merge.

A plan waits on the timeline from the time it is scheduled until it has been
carried out. Fields that are not known are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.format.avro import STRING, array_of, decode_container, encode_container, map_of, optional
from holdfast.format.malformed import Malformed
from holdfast.model.instant import InstantTime

_VERSION = 2
"""Plans of this version name files; older ones have absolute paths."""
_VERSION_FIELD: dict[str, Any] = {"name": "version", "type": ["int", "null"], "default": 1}

_OPERATION_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCompactionOperation",
    "fields": [
        {"name": "baseInstantTime", "type": ["null", STRING]},
        optional("deltaFilePaths", array_of(STRING)),
        optional("dataFilePath", STRING),
        {"name": "fileId", "type": ["null", STRING]},
        optional("partitionPath", STRING),
        optional("metrics", map_of("double")),
        optional("bootstrapFilePath", STRING),
    ],
}

_STRATEGY_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCompactionStrategy",
    "fields": [
        optional("compactorClassName", STRING),
        optional("strategyParams", map_of(STRING)),
        _VERSION_FIELD,
    ],
}

PLAN_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCompactionPlan",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        optional("operations", array_of(_OPERATION_SCHEMA)),
        optional("extraMetadata", map_of(STRING)),
        _VERSION_FIELD,
        optional("strategy", _STRATEGY_SCHEMA),
        {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
    ],
}


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice to be merged."""

    file_id: str
    partition: str
    base_instant: InstantTime | None
    """The slice's; None if the plan does not tell."""
    base_file: str | None = None
    """The name of its base file; None if it has log files only."""
    log_files: tuple[str, ...] = ()
    """Their names."""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    operations: tuple[CompactionOperation, ...]
    extra: Mapping[str, str] = field(default_factory=dict)


def encode_compaction_plan(plan: CompactionPlan) -> bytes:
    return encode_container(
        PLAN_SCHEMA,
        {
            "operations": [_written(operation) for operation in plan.operations],
            "extraMetadata": dict(plan.extra),
            "version": _VERSION,
            "strategy": None,
            "preserveHoodieMetadata": False,
        },
    )


def decode_compaction_plan(content: bytes) -> CompactionPlan:
    """The plan in a requested file of a compaction or a log compaction."""
    record = decode_container(content)
    try:
        wire = msgspec.convert(record, _Plan)
    except ValueError as error:
        raise Malformed(f"the record is not a compaction plan: {error}") from error
    return CompactionPlan(tuple(map(_read, wire.operations or ())), wire.extra_metadata or {})


def _written(operation: CompactionOperation) -> dict[str, Any]:
    return {
        "baseInstantTime": operation.base_instant,
        "deltaFilePaths": list(operation.log_files),
        "dataFilePath": operation.base_file,
        "fileId": operation.file_id,
        "partitionPath": operation.partition,
        "metrics": dict(operation.metrics),
        "bootstrapFilePath": None,
    }


class _Operation(msgspec.Struct, rename="camel"):
    file_id: str
    base_instant_time: str | None = None
    delta_file_paths: list[str] | None = None
    data_file_path: str | None = None
    partition_path: str | None = None
    metrics: dict[str, float] | None = None


class _Plan(msgspec.Struct, rename="camel"):
    operations: list[_Operation] | None
    extra_metadata: dict[str, str] | None = None


def _read(operation: _Operation) -> CompactionOperation:
    base = operation.base_instant_time
    if base and not (base.isascii() and base.isdigit()):
        raise Malformed(f"a compaction plan names {base!r} as an instant")
    return CompactionOperation(
        operation.file_id,
        operation.partition_path or "",
        InstantTime(base) if base else None,
        _name(operation.data_file_path) or None,
        tuple(map(_name, operation.delta_file_paths or ())),
        operation.metrics or {},
    )


def _name(path: str | None) -> str:
    return (path or "").rpartition("/")[2]
