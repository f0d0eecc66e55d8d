"""Savepoints: which files a protected instant consists of, and who asked for it."""

from collections.abc import Mapping

from msgspec import Struct, field

from holdfast.format.avro_payloads import Payload


class SavepointPartition(Struct, frozen=True):
    files: tuple[str, ...] = field(name="savepointDataFile")
    partition: str = field(name="partitionPath", default="")


class SavepointMetadata(Struct, frozen=True):
    user: str = field(name="savepointedBy")
    at_ms: int = field(name="savepointedAt")
    """When it was asked for, in milliseconds since the epoch."""
    comment: str = field(name="comments")
    by_partition: Mapping[str, SavepointPartition] = field(name="partitionMetadata")

    @property
    def files(self) -> Mapping[str, tuple[str, ...]]:
        """Partition → the names of the base and log files that must stay."""
        return {name: partition.files for name, partition in self.by_partition.items()}


_METADATA = Payload(
    "HoodieSavepointMetadata", SavepointMetadata, what="one of a savepoint", constants={"version": 1}
)
decode_savepoint, encode_savepoint = _METADATA.decode, _METADATA.encode


def savepoint_of(
    user: str, at_ms: int, comment: str, files: Mapping[str, tuple[str, ...]]
) -> SavepointMetadata:
    partitions = {name: SavepointPartition(names, name) for name, names in files.items()}
    return SavepointMetadata(user, at_ms, comment, partitions)
