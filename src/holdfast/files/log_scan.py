"""The blocks of a file slice's log files that count, in the order in which they apply."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.errors import TableDamaged, UnsupportedTable
from holdfast.format.log_blocks import (
    ROLLBACK,
    BlockHeader,
    BlockType,
    LogBlock,
    TornBlock,
    decode_blocks,
)
from holdfast.model.names import parse_log_file
from holdfast.storage.store import Store
from holdfast.table.log_instants import LogInstants

_CDC = ".cdc"
"""The end of the names of log files that tell changes, and are no part of a snapshot."""
_KINDS_READ = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.DELETE)


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    path: str
    block: LogBlock


def select_blocks(store: Store, logs: Iterable[str], instants: LogInstants) -> list[PlacedBlock]:
    """The data and delete blocks that are part of a snapshot.

    `TableDamaged` if a block is torn whose write was committed; others that
    are torn are left out, as by Hudi: a failed write left them.
    """
    counted: list[PlacedBlock] = []
    for path in logs:
        if path.endswith(_CDC):
            continue
        blocks = list(decode_blocks(_read(store, path, instants)))
        _check_writers(path, blocks, instants)
        for block in blocks:
            if isinstance(block, TornBlock):
                _check_torn(path, block, instants)
            elif block.kind == BlockType.COMMAND:
                _check_command(path, block)
                counted = [each for each in counted if each.block.instant != block.target]
            elif block.kind != BlockType.CDC_DATA and instants.counts(block.instant):
                _check_kind(path, block)
                counted.append(PlacedBlock(path, block))
    return _place_compacted(counted)


def _read(store: Store, path: str, instants: LogInstants) -> bytes:
    try:
        content = store.read(path)
    except FileNotFoundError as error:
        raise TableDamaged("a data file is missing", file=path) from error
    written = instants.written.get(path)
    if written is not None and len(content) < written.size:
        raise TableDamaged("a log file is shorter than its commit says", file=path, offset=len(content))
    return content


def _check_writers(path: str, blocks: Sequence[LogBlock | TornBlock], instants: LogInstants) -> None:
    """Compare whom the blocks name as their writers with what is known of the file.

    A header has no checksum, and with another instant its block would not count.
    """
    name = parse_log_file(path.rpartition("/")[2])
    ours = None if name is None else name.written_by
    strange = next((b for b in blocks if isinstance(b, LogBlock) and b.instant != ours), None)
    if ours is not None and strange is not None:
        raise TableDamaged(
            "a log block names another write than its file does",
            file=path,
            offset=strange.at,
            instant=strange.instant,
        )
    written = instants.written.get(path)
    if written is not None and written.size and all(one.instant != written.commit for one in blocks):
        raise TableDamaged(
            "a log file has no block of the commit that wrote it", file=path, instant=written.commit
        )


def _check_torn(path: str, torn: TornBlock, instants: LogInstants) -> None:
    is_committed = instants.counts(torn.instant) if torn.instant else path in instants.written
    if is_committed:
        raise TableDamaged(torn.problem, file=path, offset=torn.at, instant=torn.instant or None)


def _check_command(path: str, block: LogBlock) -> None:
    command = block.header.get(BlockHeader.COMMAND_BLOCK_TYPE)
    if command != ROLLBACK:
        raise UnsupportedTable(
            "a log file has a command that is not known", file=path, offset=block.at, command=command
        )


def _check_kind(path: str, block: LogBlock) -> None:
    feature = None
    if block.kind not in _KINDS_READ:
        known = block.kind in tuple(BlockType)
        feature = f"log blocks of the type {BlockType(block.kind).name if known else block.kind}"
    elif block.header.get(BlockHeader.IS_PARTIAL, b"").lower() == b"true":
        feature = "log blocks with some of the columns alone"
    if feature is not None:
        raise UnsupportedTable(
            "the log files of this table cannot be read",
            feature=feature,
            file=path,
            offset=block.at,
            hint="compact the table with the program that wrote it",
        )


def _place_compacted(counted: list[PlacedBlock]) -> list[PlacedBlock]:
    """The blocks, with those of log compactions in the place of what they stand for."""
    if not any(each.block.compacted for each in counted):
        return counted
    groups: dict[str, list[PlacedBlock]] = {}
    for each in counted:
        groups.setdefault(each.block.instant, []).append(each)
    stands_for = _compactions(groups)
    placed: list[Sequence[PlacedBlock]] = []
    seen: set[str] = set()
    # As the last of what it stands for: nothing between may come to win against it.
    for instant in reversed(groups):
        if any(time in groups for time in groups[instant][0].block.compacted):
            continue
        last = stands_for.get(instant, instant)
        if last not in seen:
            seen.add(last)
            placed.append(groups[last])
    return [each for blocks in reversed(placed) for each in blocks]


def _compactions(groups: dict[str, list[PlacedBlock]]) -> dict[str, str]:
    """Write → the newest log compaction, of those at hand, whose blocks stand for its own."""
    stands_for: dict[str, str] = {}
    for instant in reversed(groups):
        for time in groups[instant][0].block.compacted:
            stands_for.setdefault(time, stands_for.get(instant, instant))
    return stands_for
