"""Delta Lake's log: the actions of a version as lines of JSON, and checkpoints, which sum versions up.

Only the actions that an export needs. A line that says anything else is passed over.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UNSET, Struct, UnsetType, field

from holdfast.format.malformed import Malformed

_CHECKPOINT_COMPRESSION = "snappy"


class Add(Struct, rename="camel", frozen=True, omit_defaults=True):
    """A file that the table has from this version on."""

    path: str
    """Relative to the table, percent-encoded."""
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | UnsetType = UNSET


class Remove(Struct, rename="camel", frozen=True):
    """A file that the table had up to this version."""

    path: str
    deletion_timestamp: int
    data_change: bool


class FileFormat(Struct, frozen=True):
    provider: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)


class Metadata(Struct, rename="camel", frozen=True):
    id: str
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    created_time: int
    name: str | None = None
    format: FileFormat = field(default_factory=FileFormat)


class Protocol(Struct, rename="camel", frozen=True, omit_defaults=True):
    """Which programs may read the table, and which may write it."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | UnsetType = UNSET
    writer_features: tuple[str, ...] | UnsetType = UNSET


class Transaction(Struct, rename="camel", frozen=True):
    app_id: str
    version: int


class CommitInfo(Struct, frozen=True, omit_defaults=True):
    """Who made a version, and of what."""

    timestamp: int = 0
    operation: str = ""
    engine_info: str = field(name="engineInfo", default="")
    parameters: Mapping[str, str] = field(name="operationParameters", default_factory=dict)
    instant: str = field(name="holdfast.instant", default="")
    slot: int = field(name="holdfast.slot", default=0)


class Action(Struct, rename="camel", frozen=True, omit_defaults=True):
    """One line, which says one thing."""

    commit_info: CommitInfo | UnsetType = UNSET
    protocol: Protocol | UnsetType = UNSET
    meta_data: Metadata | UnsetType = UNSET
    txn: Transaction | UnsetType = UNSET
    add: Add | UnsetType = UNSET
    remove: Remove | UnsetType = UNSET


class LastCheckpoint(Struct, frozen=True):
    version: int
    size: int = 0


_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(Action)

_TEXTS = pa.map_(pa.string(), pa.string())
_NAMES = pa.list_(pa.string())
ADDS = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)
"""Files of a table, in columns."""
_HEADS = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", _NAMES),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", _NAMES),
                    ("writerFeatures", _NAMES),
                ]
            ),
        ),
        (
            "remove",
            pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())]),
        ),
    ]
)


def encode_actions(actions: Iterable[Action]) -> bytes:
    return _ENCODER.encode_lines(actions)


def decode_actions(content: bytes) -> list[Action]:
    try:
        return _DECODER.decode_lines(content)
    except msgspec.MsgspecError as error:
        raise Malformed(f"not a version of a Delta log: {error}") from error


def encode_last_checkpoint(version: int, size: int) -> bytes:
    return _ENCODER.encode(LastCheckpoint(version, size))


def decode_last_checkpoint(content: bytes) -> LastCheckpoint:
    try:
        return msgspec.json.decode(content, type=LastCheckpoint)
    except msgspec.MsgspecError as error:
        raise Malformed(f"not the mark of a checkpoint: {error}") from error


def table_of_adds(adds: Iterable[Add]) -> pa.Table:
    """Files as rows of `ADDS`."""
    rows = list(adds)
    columns = [
        pa.array([add.path for add in rows], pa.string()),
        pa.array([list(add.partition_values.items()) for add in rows], _TEXTS),
        pa.array([add.size for add in rows], pa.int64()),
        pa.array([add.modification_time for add in rows], pa.int64()),
        pa.array([False] * len(rows), pa.bool_()),
        pa.array([None if add.stats is UNSET else add.stats for add in rows], pa.string()),
    ]
    return pa.table(columns, schema=ADDS)


def encode_checkpoint(
    adds: pa.Table, *, metadata: Metadata, protocol: Protocol, transaction: Transaction
) -> bytes:
    """A checkpoint of a table that has these files, as rows of `ADDS`."""
    heads: list[dict[str, Any]] = [
        {"protocol": msgspec.to_builtins(protocol)},
        {"metaData": _with_pairs(msgspec.to_builtins(metadata))},
        {"txn": msgspec.to_builtins(transaction)},
    ]
    rows = pa.Table.from_pylist(heads, schema=_HEADS)
    kind = pa.struct(list(ADDS))
    nothing = pa.nulls(len(heads), kind)
    files = pa.chunked_array([nothing, *adds.select(ADDS.names).to_struct_array().chunks], kind)
    columns = [
        pa.chunked_array([*rows[name].chunks, pa.nulls(adds.num_rows, rows.schema.field(name).type)])
        for name in rows.column_names
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table([*columns, files], names=[*rows.column_names, "add"]),
        sink,
        compression=_CHECKPOINT_COMPRESSION,
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_checkpoint(content: bytes) -> tuple[pa.Table, Metadata, Protocol]:
    """The files of a checkpoint as rows of `ADDS`, and what it says of the table."""
    try:
        table = pq.read_table(pa.BufferReader(content), columns=["add", "metaData", "protocol"])
        adds = table["add"].combine_chunks()
        adds = adds.filter(adds.is_valid())
        columns = [adds.field(name) for name in ADDS.names]
        metadata = _only(table, "metaData")
        metadata |= {"configuration": dict(metadata["configuration"]), "format": {"options": {}}}
        protocol = {name: value for name, value in _only(table, "protocol").items() if value is not None}
        return (
            pa.table(
                [column.cast(each.type) for column, each in zip(columns, ADDS, strict=True)], ADDS.names
            ),
            msgspec.convert(metadata, Metadata),
            msgspec.convert(protocol, Protocol),
        )
    except (pa.ArrowException, KeyError, IndexError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise Malformed(f"not a checkpoint of a Delta log: {error}") from error


def _only(table: pa.Table, name: str) -> dict[str, Any]:
    """The one value of a column."""
    found: dict[str, Any] = table[name].drop_null()[0].as_py()
    return found


def _with_pairs(metadata: dict[str, Any]) -> dict[str, Any]:
    """Maps as Arrow takes them."""
    pairs = list(metadata["configuration"].items())
    return metadata | {"configuration": pairs, "format": {"provider": "parquet", "options": []}}
