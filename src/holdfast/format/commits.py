"""Commit metadata: the JSON of a completed commit, deltacommit or replacecommit.

Inflight files have the same shape and hold what was planned. The decoders
that answer one question skip the rest of the text instead of building it, so
they stay cheap when a commit names a hundred thousand files.
"""

import hashlib
from collections.abc import Collection
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast.format.malformed import Malformed
from holdfast.model.instant import InstantTime

NO_PREVIOUS_COMMIT = "null"
"""What Hudi writes, as text, for the previous commit of a new file group."""

_NO_PREVIOUS = frozenset({None, "", NO_PREVIOUS_COMMIT})

UNKNOWN_OPERATION = "UNKNOWN"

IN_PLACE = "holdfast.rows.in.place"
"""Extra metadata: `true` if every row that the commit wrote lies in the partition that its columns name.

Of rows that its files took over from older versions it says nothing.
"""

DIGEST = "holdfast.digest"
"""Extra metadata: a digest of the instant and the whole text, in which zeros stand for the digest itself."""

WRITE_APPLICATION = "holdfast.write.application"
WRITE_NUMBER = "holdfast.write.number"
"""Extra metadata: who numbers its writes, and the number of this one."""

_NO_DIGEST = b"0" * 64
_DIGEST_START = b'"holdfast.digest":"'

_REWRITES = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})

Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A Java long; a bigger number would not fit where Hudi reads it."""

_T = TypeVar("_T")


class RuntimeStats(msgspec.Struct, frozen=True, rename="camel"):
    """Milliseconds spent."""

    total_scan_time: Long = 0
    total_upsert_time: Long = 0
    total_create_time: Long = 0


# Commits hold these in great numbers and none can be part of a cycle, so the
# garbage collector need not look at them.
class WriteStat(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What a write did to one file.

    The members after `runtime_stats` belong to log files and are left out of
    the text when unset. Path and partition are None only in inflight files.
    """

    file_id: str
    path: str | None = None
    cdc_stats: dict[str, Long] | None = None
    prev_commit: str | None = NO_PREVIOUS_COMMIT
    num_writes: Long = 0
    num_deletes: Long = 0
    num_update_writes: Long = 0
    num_inserts: Long = 0
    total_write_bytes: Long = 0
    total_write_errors: Long = 0
    temp_path: str | None = None
    partition_path: str | None = None
    total_log_records: Long = 0
    total_log_files_compacted: Long = 0
    total_log_size_compacted: Long = 0
    total_updated_records_compacted: Long = 0
    total_log_blocks: Long = 0
    total_corrupt_log_block: Long = 0
    total_rollback_blocks: Long = 0
    file_size_in_bytes: Long = 0
    min_event_time: Long | None = None
    max_event_time: Long | None = None
    runtime_stats: RuntimeStats | None = None
    log_version: Long | UnsetType = UNSET
    log_offset: Long | UnsetType = UNSET
    base_file: str | UnsetType | None = UNSET
    log_files: list[str] | UnsetType | None = UNSET
    records_stats: dict[str, Any] | UnsetType | None = UNSET


class CommitMetadata(msgspec.Struct, frozen=True, rename="camel"):
    partition_to_write_stats: dict[str, list[WriteStat]]
    compacted: bool = False
    extra_metadata: dict[str, str | None] = {}
    operation_type: str | None = UNKNOWN_OPERATION
    partition_to_replace_file_ids: dict[str, list[str]] | UnsetType = UNSET
    """File ids that stop being visible; set in replacecommits only."""


def encode_commit(metadata: CommitMetadata) -> bytes:
    return msgspec.json.encode(metadata)


def encode_sealed_commit(metadata: CommitMetadata, time: InstantTime) -> bytes:
    """The text with a digest of itself: a letter that changes would else name other files or columns."""
    said = {**metadata.extra_metadata, DIGEST: _NO_DIGEST.decode()}
    content = encode_commit(msgspec.structs.replace(metadata, extra_metadata=said))
    at = content.rindex(_DIGEST_START) + len(_DIGEST_START)
    return content[:at] + _digest(content, time) + content[at + len(_NO_DIGEST) :]


def reseal_commit(content: bytes, time: InstantTime) -> bytes:
    """What an archive says of a commit, as it may be shown again; only those of ours have a digest."""
    metadata = decode_commit(content)
    return content if DIGEST not in metadata.extra_metadata else encode_sealed_commit(metadata, time)


def check_digest(content: bytes, time: InstantTime) -> None:
    """`Malformed` if the text of a commit is not what it was; only those of ours have a digest."""
    at = content.rfind(_DIGEST_START) + len(_DIGEST_START)
    if at < len(_DIGEST_START):
        return
    end = at + len(_NO_DIGEST)
    if _digest(content[:at] + _NO_DIGEST + content[end:], time) != content[at:end]:
        raise Malformed("the commit metadata does not match its digest")


def remove_digest(content: bytes) -> bytes:
    """The text of a commit without its digest, which is of the text as this program wrote it."""
    at = content.rfind(_DIGEST_START)
    if at < 0:
        return content
    end = at + len(_DIGEST_START) + len(_NO_DIGEST) + 1
    if content[end : end + 1] == b",":
        end += 1
    elif content[at - 1 : at] == b",":
        at -= 1
    return content[:at] + content[end:]


def is_sealed_commit(content: bytes, time: InstantTime) -> bool:
    """Whether the text is a commit of ours at this time, and whole."""
    try:
        check_digest(content, time)
    except Malformed:
        return False
    return _DIGEST_START in content


def _digest(content: bytes, time: InstantTime) -> bytes:
    digest = hashlib.sha256(time.encode())
    digest.update(content)
    return digest.hexdigest().encode()


def inflight_metadata(operation_type: str) -> bytes:
    """The content of an inflight file that announces the operation and no workload."""
    return encode_commit(CommitMetadata({}, operation_type=operation_type))


def decode_commit(content: bytes) -> CommitMetadata:
    return _decode(content, _COMMIT)


def decode_replaced_file_ids(content: bytes) -> dict[str, list[str]]:
    """The file ids a commit hides, by partition; none if it is not a replacecommit."""
    return _decode(content, _REPLACED).partition_to_replace_file_ids or {}


def decode_partitions(content: bytes) -> list[str]:
    """The partitions a commit wrote to."""
    return list(_decode(content, _PARTITIONS).partition_to_write_stats)


class WrittenFile(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A file a commit wrote, as far as a view of the table needs it."""

    path: str | None = None
    partition_path: str | None = ""
    file_id: str = ""
    file_size_in_bytes: Long = 0
    prev_commit: str | None = NO_PREVIOUS_COMMIT

    @property
    def previous(self) -> str | None:
        """The commit of the version that this one replaced; None if it is the first of its file group."""
        return None if self.prev_commit in _NO_PREVIOUS else self.prev_commit


def decode_written_files(content: bytes) -> list[WrittenFile]:
    """Every file a commit wrote."""
    partitions = _decode(content, _WRITTEN).partition_to_write_stats
    return [file for files in partitions.values() for file in files if file.path is not None]


def decode_writes_in(content: bytes, partitions: Collection[str]) -> list[WrittenFile]:
    """Every file a commit wrote in some of its partitions. What it wrote in others costs little."""
    stats = _decode(content, _PARTITIONS).partition_to_write_stats
    found = [_decode(stats[partition], _FILES) for partition in partitions if partition in stats]
    return [file for files in found for file in files if file.path]


class Writes(NamedTuple):
    files: list[WrittenFile]
    schema: str | None
    """The Avro schema they were written with.

    None where the commit does not tell: services that rewrite files repeat one
    that may be older than the files.
    """
    are_in_place: bool
    """Whether the commit says so of its rows."""

    @property
    def built_on(self) -> frozenset[InstantTime]:
        """The commits of the versions that the files replaced."""
        named = {file.prev_commit for file in self.files}
        return frozenset(InstantTime(commit) for commit in named - _NO_PREVIOUS if commit is not None)


def decode_writes(content: bytes) -> Writes:
    """Every file a commit wrote, and what it says of them."""
    found = _decode(content, _WRITES)
    files = [file for files in found.partition_to_write_stats.values() for file in files if file.path]
    said = found.extra_metadata or {}
    schema = None if is_rewrite(found.operation_type) else said.get("schema") or None
    return Writes(files, schema, said.get(IN_PLACE) == "true")


class Touched(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A file group that a commit wrote to, as far as another write can be in its way."""

    partition_path: str | None = ""
    file_id: str = ""
    num_inserts: Long = 0


class Touching(msgspec.Struct, frozen=True, rename="camel"):
    """What a commit touched: what decides whether it conflicts with another write."""

    partition_to_write_stats: dict[str, list[Touched]]
    extra_metadata: dict[str, str | None] | None = None
    operation_type: str | None = None
    partition_to_replace_file_ids: dict[str, list[str]] | None = None


def decode_touching(content: bytes) -> Touching:
    return _decode(content, _TOUCHING)


def decode_extra_metadata(content: bytes) -> dict[str, str | None]:
    """What a commit says beyond its files. The files cost little."""
    return _decode(content, _EXTRA).extra_metadata or {}


def decode_operation(content: bytes) -> str | None:
    """What kind of write a commit was."""
    return _decode(content, _OPERATION).operation_type


def is_rewrite(operation: str | None) -> bool:
    """Whether it is a service that writes rows of older commits anew."""
    return operation in _REWRITES


class _Operation(msgspec.Struct, rename="camel"):
    operation_type: str | None = None


class _Extra(msgspec.Struct, rename="camel"):
    extra_metadata: dict[str, str | None] | None = None


class _Replaced(msgspec.Struct, rename="camel"):
    partition_to_replace_file_ids: dict[str, list[str]] | None = None


class _Written(msgspec.Struct, rename="camel"):
    partition_to_write_stats: dict[str, list[WrittenFile]]


class _Writes(_Written, rename="camel"):
    extra_metadata: dict[str, str | None] | None = None
    operation_type: str | None = None


class _Partitions(msgspec.Struct, rename="camel"):
    partition_to_write_stats: dict[str, msgspec.Raw]


_COMMIT = msgspec.json.Decoder(CommitMetadata)
_OPERATION = msgspec.json.Decoder(_Operation)
_EXTRA = msgspec.json.Decoder(_Extra)
_REPLACED = msgspec.json.Decoder(_Replaced)
_WRITTEN = msgspec.json.Decoder(_Written)
_WRITES = msgspec.json.Decoder(_Writes)
_PARTITIONS = msgspec.json.Decoder(_Partitions)
_FILES = msgspec.json.Decoder(list[WrittenFile])
_TOUCHING = msgspec.json.Decoder(Touching)


def _decode(content: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[_T]) -> _T:
    if not content:
        raise Malformed("the commit metadata is empty")
    try:
        return decoder.decode(content)
    # Deep nesting in a member that is not wanted still exhausts the stack.
    except (ValueError, RecursionError) as error:
        raise Malformed(f"this is not commit metadata: {error}") from error
