"""Archived timeline: the files of instants that left the active timeline, as Hudi keeps them.

An archive is a log file whose blocks hold one record for each file: which
instant, how far it had got, and what the file said. Commits are JSON on the
timeline and Avro in here, member by member; what Avro has no member for is
lost. Archives of every release with this layout are read; one form is written.

Hudi archives no restores, and its records have no place for them. They are in
archives of their own, whose records hold what the files said as it was.
"""

import datetime as dt
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from holdfast.format.avro import (
    compile_schema,
    decode_container,
    decode_record,
    encode_container,
    encode_record,
    load_schema,
)
from holdfast.format.avro_payloads import hudi_schema
from holdfast.format.log_blocks import (
    BlockHeader,
    BlockType,
    LogBlock,
    TornBlock,
    decode_blocks,
    encode_block,
)
from holdfast.format.malformed import Malformed
from holdfast.model.instant import Action, InstantTime, State, instant_time, moment_of, time_at

_CONTENT_VERSION = 3
_VERSION = 1
_JSON_FIELDS = {"hoodieCommitMetadata", "hoodieReplaceCommitMetadata", "HoodieInflightReplaceMetadata"}
"""Where files are kept that are JSON on the timeline."""

_CONTAINERS = {
    "hoodieCleanMetadata": "HoodieCleanMetadata",
    "hoodieCleanerPlan": "HoodieCleanerPlan",
    "hoodieRollbackMetadata": "HoodieRollbackMetadata",
    "hoodieSavePointMetadata": "HoodieSavepointMetadata",
    "hoodieRequestedReplaceMetadata": "HoodieRequestedReplaceMetadata",
    "hoodieCompactionPlan": "HoodieCompactionPlan",
}
"""Where files are kept that are Avro containers on the timeline, with their schemas."""

_RESTORE_CONTENT = "content"
_RESTORE_SCHEMA = {
    "type": "record",
    "name": "ArchivedRestore",
    "namespace": "holdfast",
    "fields": [
        {"name": "commitTime", "type": "string"},
        {"name": "actionType", "type": "string"},
        {"name": "actionState", "type": "string"},
        {"name": "stateTransitionTime", "type": ["null", "string"], "default": None},
        {"name": "version", "type": "int"},
        {"name": _RESTORE_CONTENT, "type": "bytes"},
    ],
}


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
    completion: InstantTime | None = None
    """The same as the timeline says it, where its files' names do."""


@dataclass(frozen=True, slots=True)
class Archive:
    files: tuple[ArchivedFile, ...]
    is_whole: bool
    """Whether every part of it could be read."""


def encode_archive(files: Sequence[ArchivedFile], *, per_block: int, zone: dt.tzinfo = dt.UTC) -> bytes:
    """An archive of these files, at most `per_block` to a block; equal input gives equal bytes.

    Moments are written on the clock of the zone. Restores are not mixed with other instants.
    `Malformed` if one of them does not say what a file of its kind says.
    """
    are_restores = {file.action is Action.RESTORE for file in files}
    assert len(are_restores) <= 1, "restores have archives of their own"
    schema, text = _own_schema(of_restores=True in are_restores)
    header = {int(BlockHeader.SCHEMA): text}
    blocks = []
    for start in range(0, len(files), per_block):
        records = [encode_record(schema, _entry(file, zone)) for file in files[start : start + per_block]]
        parts = [struct.pack(">ii", _CONTENT_VERSION, len(records))]
        for record in records:
            parts += [struct.pack(">i", len(record)), record]
        blocks.append(encode_block(LogBlock(BlockType.AVRO_DATA, b"".join(parts), header)))
    return b"".join(blocks)


def decode_archive(content: bytes, zone: dt.tzinfo = dt.UTC) -> Archive:
    """What an archive holds, its moments on the clock of the zone.

    Parts that cannot be read are left out, and said to be missing.
    """
    found: list[ArchivedFile] = []
    is_whole = True
    schemas: dict[bytes, Any] = {}
    for block in decode_blocks(content):
        if isinstance(block, TornBlock):
            is_whole = False
        elif block.kind == BlockType.AVRO_DATA:
            try:
                text = block.header.get(BlockHeader.SCHEMA, b"")
                schema = schemas[text] if text in schemas else schemas.setdefault(text, load_schema(text))
                read = (_file(decode_record(schema, record), zone) for record in _records(block.content))
                found += [file for file in read if file is not None]
            except Malformed:
                is_whole = False
    return Archive(tuple(found), is_whole)


@cache
def _own_schema(*, of_restores: bool) -> tuple[Any, bytes]:
    """The schema of an entry, ready to write, and its text."""
    schema = _RESTORE_SCHEMA if of_restores else hudi_schema("HoodieArchivedMetaEntry")
    return compile_schema(schema), json.dumps(schema, separators=(",", ":")).encode()


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


def _entry(file: ArchivedFile, zone: dt.tzinfo) -> dict[str, Any]:
    """The record of a file, with those members alone that say something."""
    entry: dict[str, Any] = {
        "commitTime": file.time,
        "actionType": file.action.value,
        "actionState": file.state.value,
        "version": _VERSION,
    }
    if file.changed_at is not None:
        entry["stateTransitionTime"] = time_at(round(file.changed_at.timestamp() * 1000), zone)
    if file.action is Action.RESTORE:
        return {**entry, _RESTORE_CONTENT: file.content}
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


def _file(entry: dict[str, Any], zone: dt.tzinfo) -> ArchivedFile | None:
    """The file that a record stands for; None if it is of no kind that is known."""
    try:
        time = instant_time(str(entry["commitTime"]))
        action = Action(str(entry["actionType"]))
        # The first releases archived completed instants only, and did not say so.
        state = State(str(entry.get("actionState") or State.COMPLETED).upper())
    except (KeyError, ValueError):
        return None
    return ArchivedFile(time, action, state, _content(entry, action, state), _moment(entry, zone))


def _content(entry: dict[str, Any], action: Action, state: State) -> bytes:
    if action is Action.RESTORE:
        return bytes(entry.get(_RESTORE_CONTENT) or b"")
    name = _field_of(action, state)
    record = None if name is None else entry.get(name)
    if name is None or record is None:
        return b""
    if name in _JSON_FIELDS:
        return commit_text(record)
    try:
        return encode_container(hudi_schema(_CONTAINERS[name]), record)
    except (ValueError, TypeError, KeyError) as error:
        raise Malformed(f"an archived {action} is not like one: {error}") from error


def commit_text(record: dict[str, Any]) -> bytes:
    """Commit metadata as the timeline has it, without members that are null."""
    said = {name: value for name, value in record.items() if value is not None and name != "version"}
    said["partitionToWriteStats"] = {
        partition: [{"fileId": "", **_without_nulls(stat)} for stat in stats]
        for partition, stats in (record.get("partitionToWriteStats") or {}).items()
    }
    return msgspec.json.encode(said)


def _without_nulls(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}


def _moment(entry: dict[str, Any], zone: dt.tzinfo) -> dt.datetime | None:
    try:
        return moment_of(instant_time(str(entry.get("stateTransitionTime"))), zone)
    except ValueError:
        return None
