"""Compaction plans: which file slices a compaction, or a log compaction, is to merge.

A plan waits on the timeline from the time it is scheduled until it has been
carried out. Fields that are not known are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.format.avro_payloads import Payload
from holdfast.format.malformed import Malformed
from holdfast.model.instant import InstantTime


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
    operations = [
        _Operation(
            operation.file_id,
            operation.base_instant,
            list(operation.log_files),
            operation.base_file,
            operation.partition,
            operation.metrics,
        )
        for operation in plan.operations
    ]
    return _PLAN.encode(_Plan(operations, plan.extra))


def decode_compaction_plan(content: bytes) -> CompactionPlan:
    """The plan in a requested file of a compaction or a log compaction."""
    plan = _PLAN.decode(content)
    return CompactionPlan(tuple(map(_operation, plan.operations)), plan.extra_metadata)


class _Operation(msgspec.Struct, rename="camel"):
    file_id: str
    base_instant_time: str | None = None
    delta_file_paths: list[str] = []
    data_file_path: str | None = None
    partition_path: str = ""
    metrics: Mapping[str, float] = msgspec.field(default_factory=dict)


class _Plan(msgspec.Struct, rename="camel"):
    operations: list[_Operation] = []
    extra_metadata: Mapping[str, str] = msgspec.field(default_factory=dict)


_PLAN = Payload(
    "HoodieCompactionPlan",
    _Plan,
    what="a compaction plan",
    # Plans of version 2 name files; older ones have absolute paths.
    constants={"version": 2, "strategy": None, "preserveHoodieMetadata": False},
    required=("operations",),
)


def _operation(operation: _Operation) -> CompactionOperation:
    base = operation.base_instant_time
    if base and not (base.isascii() and base.isdigit()):
        raise Malformed(f"a compaction plan names {base!r} as an instant")
    return CompactionOperation(
        operation.file_id,
        operation.partition_path,
        InstantTime(base) if base else None,
        _name(operation.data_file_path) or None,
        tuple(map(_name, operation.delta_file_paths)),
        operation.metrics,
    )


def _name(path: str | None) -> str:
    return (path or "").rpartition("/")[2]
