"""Savepoints: which files a protected instant consists of, and who asked for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.format.avro import STRING, array_of, decode_container, encode_container, map_of
from holdfast.format.malformed import Malformed

_VERSION = 1

_PARTITION_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieSavepointPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": STRING},
        {"name": "savepointDataFile", "type": array_of(STRING)},
    ],
}

METADATA_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieSavepointMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "savepointedBy", "type": STRING},
        {"name": "savepointedAt", "type": "long"},
        {"name": "comments", "type": STRING},
        {"name": "partitionMetadata", "type": map_of(_PARTITION_SCHEMA)},
        {"name": "version", "type": ["int", "null"], "default": _VERSION},
    ],
}


@dataclass(frozen=True, slots=True)
class SavepointMetadata:
    user: str
    at_ms: int
    """When it was asked for, in milliseconds since the epoch."""
    comment: str
    files: Mapping[str, tuple[str, ...]]
    """Partition → the names of the base and log files that must stay."""


def encode_savepoint(metadata: SavepointMetadata) -> bytes:
    """The content of a completed savepoint; equal input gives equal bytes."""
    record = {
        "savepointedBy": metadata.user,
        "savepointedAt": metadata.at_ms,
        "comments": metadata.comment,
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": names}
            for partition, names in metadata.files.items()
        },
        "version": _VERSION,
    }
    return encode_container(METADATA_SCHEMA, record)


def decode_savepoint(content: bytes) -> SavepointMetadata:
    try:
        wire = msgspec.convert(decode_container(content), _Savepoint)
    except ValueError as error:
        raise Malformed(f"the record is not one of a savepoint: {error}") from error
    files = {partition: each.savepoint_data_file for partition, each in wire.partition_metadata.items()}
    return SavepointMetadata(wire.savepointed_by, wire.savepointed_at, wire.comments, files)


class _Partition(msgspec.Struct, rename="camel"):
    savepoint_data_file: tuple[str, ...]


class _Savepoint(msgspec.Struct, rename="camel"):
    savepointed_by: str
    savepointed_at: int
    comments: str
    partition_metadata: dict[str, _Partition]
