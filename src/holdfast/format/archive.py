"""Archived timeline: the files of instants that left the active timeline, as Hudi keeps them.

An archive is a log file whose blocks hold one record for each file: which
instant, how far it had got, and what the file said. Commits are JSON on the
timeline and Avro in here, member by member; what Avro has no member for is
lost. Archives of every release with this layout are read; one form is written.
"""

import datetime as dt
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from holdfast.format import cleans, compaction_plans, replace_requests, rollbacks, savepoints
from holdfast.format.avro import (
    STRING,
    array_of,
    decode_container,
    decode_record,
    encode_container,
    encode_record,
    found_schema,
    map_of,
    optional,
    parsed,
)
from holdfast.format.log_blocks import BlockHeader, BlockType, LogBlock, decode_blocks, encode_block
from holdfast.format.malformed import Malformed
from holdfast.model.instant import Action, InstantTime, State, instant_time, moment_of, time_at

_CONTENT_VERSION = 3
_VERSION = 1
_NAMESPACE = "org.apache.hudi.avro.model"
_VERSION_FIELD: dict[str, Any] = {"name": "version", "type": ["int", "null"], "default": _VERSION}

_STAT_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieWriteStat",
    "fields": [
        optional("fileId", STRING),
        optional("path", STRING),
        optional("prevCommit", STRING),
        optional("numWrites", "long"),
        optional("numDeletes", "long"),
        optional("numUpdateWrites", "long"),
        optional("totalWriteBytes", "long"),
        optional("totalWriteErrors", "long"),
        optional("partitionPath", STRING),
        optional("totalLogRecords", "long"),
        optional("totalLogFiles", "long"),
        optional("totalUpdatedRecordsCompacted", "long"),
        optional("numInserts", "long"),
        optional("totalLogBlocks", "long"),
        optional("totalCorruptLogBlock", "long"),
        optional("totalRollbackBlocks", "long"),
        optional("fileSizeInBytes", "long"),
        optional("logVersion", "int"),
        optional("logOffset", "long"),
        optional("baseFile", STRING),
        optional("logFiles", array_of(STRING)),
        optional("cdcStats", map_of("long")),
    ],
}

_COMMIT_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCommitMetadata",
    "fields": [
        optional("partitionToWriteStats", map_of(array_of(_STAT_SCHEMA))),
        optional("compacted", "boolean"),
        optional("extraMetadata", map_of(STRING)),
        _VERSION_FIELD,
        optional("operationType", STRING),
    ],
}

_REPLACE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieReplaceCommitMetadata",
    "fields": [
        optional("partitionToWriteStats", map_of(array_of("HoodieWriteStat"))),
        optional("extraMetadata", map_of(STRING)),
        _VERSION_FIELD,
        optional("operationType", STRING),
        optional("partitionToReplaceFileIds", map_of(array_of(STRING))),
    ],
}

_COMPACTION_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieCompactionMetadata",
    "fields": [
        optional(
            "partitionToCompactionWriteStats",
            map_of(
                array_of(
                    {
                        "type": "record",
                        "name": "HoodieCompactionWriteStat",
                        "fields": [
                            optional("partitionPath", STRING),
                            optional("totalLogRecords", "long"),
                            optional("totalLogFiles", "long"),
                            optional("totalUpdatedRecordsCompacted", "long"),
                            optional("hoodieWriteStat", "HoodieWriteStat"),
                            _VERSION_FIELD,
                        ],
                    }
                )
            ),
        )
    ],
}

_INDEX_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieIndexCommitMetadata",
    "fields": [
        _VERSION_FIELD,
        optional("operationType", STRING),
        optional(
            "indexPartitionInfos",
            array_of(
                {
                    "type": "record",
                    "name": "HoodieIndexPartitionInfo",
                    "fields": [
                        _VERSION_FIELD,
                        optional("metadataPartitionPath", STRING),
                        optional("indexUptoInstant", STRING),
                        optional("extraMetadata", map_of(STRING)),
                    ],
                }
            ),
        ),
    ],
}

_ENTRY_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieArchivedMetaEntry",
    "namespace": _NAMESPACE,
    "fields": [
        optional("hoodieCommitMetadata", _COMMIT_SCHEMA),
        optional("hoodieCleanMetadata", cleans.METADATA_SCHEMA),
        optional("hoodieCompactionMetadata", _COMPACTION_SCHEMA),
        optional("hoodieRollbackMetadata", rollbacks.METADATA_SCHEMA),
        optional("hoodieSavePointMetadata", savepoints.METADATA_SCHEMA),
        optional("commitTime", STRING),
        optional("actionType", STRING),
        _VERSION_FIELD,
        optional("hoodieCompactionPlan", compaction_plans.PLAN_SCHEMA),
        optional("hoodieCleanerPlan", cleans.PLAN_SCHEMA),
        optional("actionState", STRING),
        optional("hoodieReplaceCommitMetadata", _REPLACE_SCHEMA),
        optional("hoodieRequestedReplaceMetadata", replace_requests.REQUEST_SCHEMA),
        optional("HoodieInflightReplaceMetadata", "HoodieCommitMetadata"),
        optional("hoodieIndexCommitMetadata", _INDEX_SCHEMA),
        optional("stateTransitionTime", STRING),
    ],
}

_SCHEMA_TEXT = json.dumps(_ENTRY_SCHEMA, separators=(",", ":")).encode()

_JSON_FIELDS = {"hoodieCommitMetadata", "hoodieReplaceCommitMetadata", "HoodieInflightReplaceMetadata"}
"""Where files are kept that are JSON on the timeline."""

_CONTAINERS: Mapping[str, dict[str, Any]] = {
    "hoodieCleanMetadata": cleans.METADATA_SCHEMA,
    "hoodieCleanerPlan": cleans.PLAN_SCHEMA,
    "hoodieRollbackMetadata": rollbacks.METADATA_SCHEMA,
    "hoodieSavePointMetadata": savepoints.METADATA_SCHEMA,
    "hoodieRequestedReplaceMetadata": replace_requests.REQUEST_SCHEMA,
    "hoodieCompactionPlan": compaction_plans.PLAN_SCHEMA,
}
"""Where files are kept that are Avro containers on the timeline."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One file of the timeline: an instant in one of its states."""

    time: InstantTime
    action: Action
    state: State
    content: bytes = b""
    """Empty if the file was, or if nothing of it is kept."""
    changed_at: dt.datetime | None = None
    """When the instant reached the state."""


@dataclass(frozen=True, slots=True)
class Archive:
    files: tuple[ArchivedFile, ...]
    is_whole: bool
    """Whether every part of it could be read."""


def encode_archive(files: Sequence[ArchivedFile], *, per_block: int) -> bytes:
    """An archive of these files, so many to a block; equal input gives equal bytes.

    `Malformed` if one of them does not say what a file of its kind says.
    """
    schema = _own_schema()
    header = {int(BlockHeader.SCHEMA): _SCHEMA_TEXT}
    blocks = []
    for start in range(0, len(files), per_block):
        records = [encode_record(schema, _entry(file)) for file in files[start : start + per_block]]
        parts = [struct.pack(">ii", _CONTENT_VERSION, len(records))]
        for record in records:
            parts += [struct.pack(">i", len(record)), record]
        blocks.append(encode_block(LogBlock(BlockType.AVRO_DATA, b"".join(parts), header)))
    return b"".join(blocks)


def decode_archive(content: bytes) -> Archive:
    """What an archive holds. Parts that cannot be read are left out, and said to be missing."""
    found: list[ArchivedFile] = []
    is_whole = True
    schemas: dict[bytes, Any] = {}
    for block in decode_blocks(content):
        if block is None:
            is_whole = False
        elif block.kind == BlockType.AVRO_DATA:
            try:
                text = block.header.get(BlockHeader.SCHEMA, b"")
                schema = schemas[text] if text in schemas else schemas.setdefault(text, found_schema(text))
                read = (_file(decode_record(schema, record)) for record in _records(block.content))
                found += [file for file in read if file is not None]
            except Malformed:
                is_whole = False
    return Archive(tuple(found), is_whole)


@cache
def _own_schema() -> Any:
    return parsed(_ENTRY_SCHEMA)


def _records(content: bytes) -> Iterator[bytes]:
    try:
        version, count = struct.unpack_from(">ii", content)
        if not 1 <= version <= _CONTENT_VERSION:
            raise Malformed(f"the block's content is of version {version}")
        at = 8
        for _ in range(count):
            (length,) = struct.unpack_from(">i", content, at)
            at += 4
            if not 0 <= length <= len(content) - at:
                raise Malformed("a record reaches beyond its block")
            yield content[at : at + length]
            at += length
    except struct.error as error:
        raise Malformed(f"the block ends early: {error}") from error


def _entry(file: ArchivedFile) -> dict[str, Any]:
    """The record of a file, with those members alone that say something."""
    entry: dict[str, Any] = {
        "commitTime": file.time,
        "actionType": file.action.value,
        "actionState": file.state.value,
        "version": _VERSION,
    }
    if file.changed_at is not None:
        entry["stateTransitionTime"] = time_at(round(file.changed_at.timestamp() * 1000))
    name = _field_of(file.action, file.state)
    if name is not None and file.content:
        is_json = name in _JSON_FIELDS
        entry[name] = _commit_record(file.content) if is_json else decode_container(file.content)
    return entry


def _field_of(action: Action, state: State) -> str | None:
    """Where the content of a file is kept; None if it is not."""
    match action, state:
        case ((Action.COMMIT | Action.DELTACOMMIT), _):
            return "hoodieCommitMetadata"
        case Action.REPLACECOMMIT, State.COMPLETED:
            return "hoodieReplaceCommitMetadata"
        case Action.REPLACECOMMIT, State.INFLIGHT:
            return "HoodieInflightReplaceMetadata"
        case Action.REPLACECOMMIT, _:
            return "hoodieRequestedReplaceMetadata"
        case Action.CLEAN, State.COMPLETED:
            return "hoodieCleanMetadata"
        case Action.CLEAN, _:
            return "hoodieCleanerPlan"
        case Action.ROLLBACK, State.COMPLETED:
            return "hoodieRollbackMetadata"
        case Action.SAVEPOINT, State.COMPLETED:
            return "hoodieSavePointMetadata"
        case ((Action.COMPACTION | Action.LOGCOMPACTION), State.REQUESTED):
            return "hoodieCompactionPlan"
    return None


def _commit_record(content: bytes) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"this is not commit metadata: {error}") from error
    if not isinstance(record, dict):
        raise Malformed("this is not commit metadata")
    extra = record.get("extraMetadata") or {}
    # Avro has no place for a value that is null.
    extra = {key: value for key, value in extra.items() if value is not None}
    return {**record, "extraMetadata": extra, "version": _VERSION}


def _file(entry: dict[str, Any]) -> ArchivedFile | None:
    """The file that a record stands for; None if it is of no kind that is known."""
    try:
        time = instant_time(str(entry["commitTime"]))
        action = Action(str(entry["actionType"]))
        # The first releases archived completed instants only, and did not say so.
        state = State(str(entry.get("actionState") or State.COMPLETED).upper())
    except (KeyError, ValueError):
        return None
    return ArchivedFile(time, action, state, _content(entry, action, state), _moment(entry))


def _content(entry: dict[str, Any], action: Action, state: State) -> bytes:
    name = _field_of(action, state)
    record = None if name is None else entry.get(name)
    if name is None or record is None:
        return b""
    if name in _JSON_FIELDS:
        return _commit_text(record)
    try:
        return encode_container(_CONTAINERS[name], record)
    except (ValueError, TypeError, KeyError) as error:
        raise Malformed(f"an archived {action} is not like one: {error}") from error


def _commit_text(record: dict[str, Any]) -> bytes:
    """Commit metadata as the timeline has it, without members that are null."""
    said = {name: value for name, value in record.items() if value is not None and name != "version"}
    said["partitionToWriteStats"] = {
        partition: [{"fileId": "", **_without_nulls(stat)} for stat in stats]
        for partition, stats in (record.get("partitionToWriteStats") or {}).items()
    }
    return msgspec.json.encode(said)


def _without_nulls(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}


def _moment(entry: dict[str, Any]) -> dt.datetime | None:
    try:
        return moment_of(instant_time(str(entry.get("stateTransitionTime"))))
    except ValueError:
        return None
