"""Replace requests: what a replacecommit set out to do.

A replacecommit that overwrites says nothing here; one that clusters keeps its
plan here, and must then be carried out instead of rolled back.
"""

from dataclasses import dataclass

import msgspec

from holdfast.format.avro_payloads import Payload
from holdfast.model.names import in_partition

_CLUSTER = "CLUSTER"


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
    return _REQUEST.encode(_Request())


def decode_replace_request(content: bytes) -> ReplaceRequest:
    """The request in a replacecommit's requested file, which may also be empty."""
    if not content:
        return ReplaceRequest(operation_type=None, is_clustering=False)
    request = _REQUEST.decode(content)
    # Either sign suffices: a plan taken for a failed write would be rolled back.
    is_clustering = request.clustering_plan is not None or request.operation_type == _CLUSTER
    groups = () if request.clustering_plan is None else request.clustering_plan.input_groups
    inputs = tuple(_input(slice_) for group in groups for slice_ in group.slices)
    return ReplaceRequest(request.operation_type, is_clustering, inputs)


class _Slice(msgspec.Struct, rename="camel"):
    file_id: str
    data_file_path: str | None = None
    delta_file_paths: list[str] = []
    partition_path: str = ""


class _Group(msgspec.Struct, rename="camel"):
    slices: list[_Slice] = []


class _Plan(msgspec.Struct, rename="camel"):
    input_groups: list[_Group] = []


class _Request(msgspec.Struct, rename="camel"):
    operation_type: str | None = None
    clustering_plan: _Plan | None = None


_REQUEST = Payload(
    "HoodieRequestedReplaceMetadata",
    _Request,
    what="a replace request",
    constants={"version": None},
    required=("operationType", "clusteringPlan"),
)


def _input(slice_: _Slice) -> ClusteringInput:
    paths = (slice_.data_file_path, *slice_.delta_file_paths)
    # They are absolute, as of where the table was when it was planned.
    names = tuple(path.rpartition("/")[2] for path in paths if path)
    return ClusteringInput(slice_.file_id, slice_.partition_path, names)
