"""Replace requests: what a replacecommit set out to do.

A replacecommit that overwrites says nothing here; one that clusters keeps its
plan here, and must then be carried out instead of rolled back.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.format.avro import STRING, array_of, decode_container, encode_container, map_of, optional
from holdfast.format.malformed import Malformed
from holdfast.model.names import in_partition

_CLUSTER = "CLUSTER"

_VERSION_FIELD: dict[str, Any] = {"name": "version", "type": ["int", "null"], "default": 1}

_SLICE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieSliceInfo",
    "fields": [
        optional("dataFilePath", STRING),
        optional("deltaFilePaths", array_of(STRING)),
        {"name": "fileId", "type": ["null", STRING]},
        optional("partitionPath", STRING),
        optional("bootstrapFilePath", STRING),
        _VERSION_FIELD,
    ],
}

_GROUP_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieClusteringGroup",
    "fields": [
        optional("slices", array_of(_SLICE_SCHEMA)),
        optional("metrics", map_of("double")),
        {"name": "numOutputFileGroups", "type": ["int", "null"], "default": 1},
        optional("extraMetadata", map_of(STRING)),
        _VERSION_FIELD,
    ],
}

_STRATEGY_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieClusteringStrategy",
    "fields": [
        optional("strategyClassName", STRING),
        optional("strategyParams", map_of(STRING)),
        _VERSION_FIELD,
    ],
}

_PLAN_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieClusteringPlan",
    "fields": [
        optional("inputGroups", array_of(_GROUP_SCHEMA)),
        optional("strategy", _STRATEGY_SCHEMA),
        optional("extraMetadata", map_of(STRING)),
        _VERSION_FIELD,
        optional("preserveHoodieMetadata", "boolean"),
    ],
}

REQUEST_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieRequestedReplaceMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        optional("operationType", STRING),
        optional("clusteringPlan", _PLAN_SCHEMA),
        optional("extraMetadata", map_of(STRING)),
        _VERSION_FIELD,
    ],
}


@dataclass(frozen=True, slots=True)
class ClusteringInput:
    """One file slice that a clustering is to rewrite."""

    file_id: str
    partition: str
    files: tuple[str, ...]
    """The names of its base file, if it has one, and of its log files."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(in_partition(self.partition, name) for name in self.files)


@dataclass(frozen=True, slots=True)
class ReplaceRequest:
    operation_type: str | None
    is_clustering: bool
    inputs: tuple[ClusteringInput, ...] = ()
    """What it clusters."""


def encode_replace_request() -> bytes:
    """The request of a replacecommit that overwrites: every field is null."""
    nothing = {"operationType": None, "clusteringPlan": None, "extraMetadata": None, "version": None}
    return encode_container(REQUEST_SCHEMA, nothing)


def decode_replace_request(content: bytes) -> ReplaceRequest:
    """The request in a replacecommit's requested file, which may also be empty."""
    if not content:
        return ReplaceRequest(operation_type=None, is_clustering=False)
    record = decode_container(content)
    try:
        wire = msgspec.convert(record, _Request)
    except ValueError as error:
        raise Malformed(f"the record is not a replace request: {error}") from error
    # Either sign suffices: a plan taken for a failed write would be rolled back.
    is_clustering = wire.clustering_plan is not None or wire.operation_type == _CLUSTER
    groups = (wire.clustering_plan.input_groups if wire.clustering_plan is not None else None) or []
    inputs = tuple(_input(one) for group in groups for one in group.slices or [])
    return ReplaceRequest(wire.operation_type, is_clustering, inputs)


class _Slice(msgspec.Struct, rename="camel"):
    file_id: str
    data_file_path: str | None = None
    delta_file_paths: list[str] | None = None
    partition_path: str | None = None


class _Group(msgspec.Struct, rename="camel"):
    slices: list[_Slice] | None = None


class _Plan(msgspec.Struct, rename="camel"):
    input_groups: list[_Group] | None = None


class _Request(msgspec.Struct, rename="camel"):
    operation_type: str | None
    clustering_plan: _Plan | None


def _input(one: _Slice) -> ClusteringInput:
    paths = (one.data_file_path, *(one.delta_file_paths or ()))
    # They are absolute, as of where the table was when it was planned.
    names = tuple(path.rpartition("/")[2] for path in paths if path)
    return ClusteringInput(one.file_id, one.partition_path or "", names)
