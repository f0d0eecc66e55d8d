"""Taking blocks back that share a log file with those of other writes.

Such a file cannot be deleted. A command in another log file of the slice says that
the blocks of the write do not count, as Hudi's own rollbacks say it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.errors import StorageUnavailable
from holdfast.format.log_blocks import BlockHeader, BlockType, LogBlock, encode_block
from holdfast.model.instant import InstantTime
from holdfast.model.names import LogFileName, in_partition, partition_of
from holdfast.storage.store import Store
from holdfast.table.log_files import log_name, read_log_heads

_TOKEN = "1-0-1"  # noqa: S105  # What Hudi names the log files of its rollbacks with.
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class TakenBackBlocks:
    """What became of log files that hold blocks of other writes, too; paths with sizes in bytes."""

    held: Mapping[str, int] = field(default_factory=dict)
    """The files with the blocks that do not count any more."""
    commands: Mapping[str, int] = field(default_factory=dict)
    """The files that say so."""


def encode_rollback_block(rollback: InstantTime, target: InstantTime) -> bytes:
    header: dict[int, bytes] = {
        BlockHeader.INSTANT_TIME: rollback.encode(),
        BlockHeader.COMMAND_BLOCK_TYPE: b"0",
        BlockHeader.TARGET_INSTANT_TIME: target.encode(),
    }
    return encode_block(LogBlock(BlockType.COMMAND, b"", header))


def take_back_blocks(
    store: Store, paths: Iterable[str], *, rollback: InstantTime, target: InstantTime
) -> TakenBackBlocks:
    """Say of each slice whose files are named that the blocks of `target` do not count.

    One command for each slice. May be repeated, by several at once: one more command says the same.
    """
    held: dict[str, int] = {}
    slices: dict[tuple[str, LogFileName], None] = {}
    for path in paths:
        name, stored = log_name(path), store.stat(path)
        if name is not None and stored is not None:
            held[path] = stored.size
            slices[partition_of(path), _slice_of(name)] = None
    commands = dict(_ensure_command(store, *one, rollback, target) for one in slices)
    return TakenBackBlocks(held, commands)


def _slice_of(name: LogFileName) -> LogFileName:
    return LogFileName(name.file_id, name.base_instant, 0)


def _ensure_command(
    store: Store, partition: str, slice_: LogFileName, rollback: InstantTime, target: InstantTime
) -> tuple[str, int]:
    content = encode_rollback_block(rollback, target)
    for _ in range(_ATTEMPTS):
        logs = _logs_of_slice(store, partition, slice_)
        for path, size in logs.items():
            # Ours holds nothing else, so its length tells, and few files are looked into.
            if size == len(content) and _says(store, path, rollback, target):
                return path, size
        version = 1 + max(name.version for path in logs if (name := log_name(path)) is not None)
        path = in_partition(partition, str(replace(slice_, version=version, write_token=_TOKEN)))
        if store.create(path, content):
            return path, len(content)
    raise StorageUnavailable("a log file could not be added to a slice", file_group=slice_.file_id)


def _logs_of_slice(store: Store, partition: str, slice_: LogFileName) -> dict[str, int]:
    files = store.folder(partition, after=f".{slice_.file_id}_{slice_.base_instant}").files
    found = {file.path: (log_name(file.path), file.size) for file in files}
    return {
        path: size for path, (name, size) in found.items() if name is not None and _slice_of(name) == slice_
    }


def _says(store: Store, path: str, rollback: InstantTime, target: InstantTime) -> bool:
    heads = read_log_heads(store, path) or ()
    return any(head.instant == rollback and head.taken_back == target for head in heads)
