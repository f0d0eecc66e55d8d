"""What a table of version 8 or 9 is in version 6: which files, by which names, and what its timeline says.

Base files keep their names. A log file is named after its slice and not after
the write that made it, so it gets another name, and what names it says so, too.
What never became part of the table stays behind: the files of writes that did
not finish, and plans that are not carried out. So do log files that no slice
is known of, because their write was not completed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
import pyarrow.compute as pc

from holdfast.config import key_generators
from holdfast.config.choices import TableType
from holdfast.config.option import split_names
from holdfast.config.table import (
    LAYOUT_VERSION,
    MERGE_MODE,
    TABLE_VERSION,
    TYPED_PARTITION_FIELDS,
    TableSettings,
)
from holdfast.errors import UnsupportedTable
from holdfast.format.commits import WriteStat, decode_commit, encode_commit
from holdfast.format.log_blocks import BlockHeader, LogBlock, decode_blocks, encode_block
from holdfast.format.malformed import report_damage
from holdfast.format.savepoints import SavepointPartition, decode_savepoint, encode_savepoint
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, State
from holdfast.model.names import META_FOLDER, in_partition, instant_file, parse_instant_file, parse_log_file
from holdfast.storage.store import Store
from holdfast.table.view import View, place_written_logs

_PAYLOAD_CLASS = "hoodie.compaction.payload.class"
_PARTITION_FIELDS = "hoodie.table.partition.fields"
_ORDERING_FIELDS = "hoodie.table.ordering.fields"
_PRECOMBINE_FIELD = "hoodie.table.precombine.field"
_NOT_IN_VERSION_SIX = (
    MERGE_MODE,
    "hoodie.record.merge.strategy.id",
    "hoodie.table.checksum",
    "hoodie.table.format",
    "hoodie.table.index.defs.path",
    "hoodie.table.initial.version",
    "hoodie.table.keygenerator.type",
    "hoodie.table.legacy.payload.class",
    "hoodie.table.metadata.partitions",
    "hoodie.table.metadata.partitions.inflight",
    "hoodie.table.multiple.base.file.formats.enable",
    "hoodie.table.partial.update.mode",
    "hoodie.table.partition_extractor_class",
    "hoodie.timeline.history.path",
    "hoodie.timeline.path",
    _ORDERING_FIELDS,
)
_NOT_IN_OLD_LOGS = (BlockHeader.IS_PARTIAL, BlockHeader.POSITIONS_BASE_INSTANT)
"""Entries of a header at which Hudi before 1.0 fails. What they say is not needed to read the block."""


@dataclass(frozen=True)
class Conversion:
    settings: TableSettings
    """Of the new table."""
    bases: tuple[str, ...]
    """The base files, which keep their paths."""
    logs: Mapping[str, str]
    """Log file → what it is called in the new table; those that are gone, and named by commits, too."""
    present: tuple[str, ...]
    """The log files that are there."""
    instants: tuple[Instant, ...]
    """Those that are completed."""
    left: tuple[Instant, ...]
    """Those that are not, and stay behind."""


def plan_conversion(settings: TableSettings, view: View) -> Conversion:
    """What becomes of a table. `UnsupportedTable` if version 6 has no words for it."""
    bases = view.slices["base"].filter(pc.is_in(view.slices["base"], view.listed))
    logs = _new_names(view)
    listed = set(view.listed.to_pylist())
    return Conversion(
        settings=settings_of_version_six(settings),
        bases=tuple(bases.to_pylist()),
        logs=logs,
        present=tuple(path for path in logs if path in listed),
        instants=tuple(i for i in view.timeline.instants if i.is_completed),
        left=tuple(i for i in view.timeline.instants if not i.is_completed),
    )


def settings_of_version_six(settings: TableSettings) -> TableSettings:
    """The same table's settings, as version 6 says them."""
    ordering = split_names(settings.ordering or "")
    if len(ordering) > 1:
        raise UnsupportedTable("version 6 has one ordering column", columns=", ".join(ordering))
    if settings.table_type is TableType.MERGE_ON_READ:
        settings.check_log_merges()
    given = {key: value for key, value in settings.properties.items() if key not in _NOT_IN_VERSION_SIX}
    given |= {
        "hoodie.table.version": TABLE_VERSION,
        "hoodie.timeline.layout.version": LAYOUT_VERSION,
        "hoodie.archivelog.folder": "archived",
        key_generators.CLASS: settings.key_generator,
        _PAYLOAD_CLASS: settings.payload,
    }
    if settings.payload.startswith("of merge mode"):
        raise UnsupportedTable("version 6 has no such way to merge", mode=settings.properties.get(MERGE_MODE))
    if settings.ordering:
        given[_PRECOMBINE_FIELD] = settings.ordering
    if settings.partition_by:
        given.setdefault(TYPED_PARTITION_FIELDS, settings.properties[_PARTITION_FIELDS])
        given[_PARTITION_FIELDS] = ",".join(settings.partition_by)
        if settings.key_generator != key_generators.KeyGenerator.CUSTOM:
            del given[TYPED_PARTITION_FIELDS]
    return TableSettings.from_properties(given)


def _new_names(view: View) -> dict[str, str]:
    """Log file → its path in version 6: named after its slice, numbered in the order in which they apply."""
    logs = place_written_logs(view)
    numbers: dict[tuple[str, str, str], int] = {}
    names: dict[str, str] = {}
    for row in logs.to_pylist():
        key = row["partition"] or "", row["file_id"], row["instant"]
        numbers[key] = number = numbers.get(key, 0) + 1
        old = parse_log_file(row["path"].rpartition("/")[2])
        assert old is not None, "its path was parsed before"
        new = replace(old, base_instant=row["instant"], version=number)
        names[row["path"]] = in_partition(key[0], str(new))
    return names


def convert_log(content: bytes) -> bytes:
    """A log file as every reader of version 6 takes it."""
    blocks = list(decode_blocks(content))
    if not any(isinstance(b, LogBlock) and b.header.keys() & set(_NOT_IN_OLD_LOGS) for b in blocks):
        return content
    kept = []
    for block in blocks:
        if not isinstance(block, LogBlock):
            return content  # A part is torn; what follows it is found by its place.
        header = {key: value for key, value in block.header.items() if key not in _NOT_IN_OLD_LOGS}
        kept.append(encode_block(replace(block, header=header)))
    return b"".join(kept)


def convert_instants(
    store: Store, plan: Conversion, sizes: Mapping[str, int]
) -> Iterator[tuple[str, bytes, Instant]]:
    """The files of the new timeline with their contents, each with its instant; completed ones come last."""
    completed = {instant.time: instant for instant in plan.instants}
    begun: list[tuple[str, Instant]] = []
    for file in store.folder(META_FOLDER).files:
        parsed = parse_instant_file(file.path.rpartition("/")[2])
        if parsed is not None and parsed[2] is not State.COMPLETED and parsed[0] in completed:
            begun.append((file.path, Instant(*parsed)))
    for path, instant in begun:
        yield path, store.read(path), instant
    for instant in plan.instants:
        path = instant_file(instant.time, instant.action, State.COMPLETED)
        with report_damage("an instant cannot be converted", file=path):
            yield path, convert_content(store.read(path), instant.action, plan, sizes), instant


def convert_content(content: bytes, action: Action, plan: Conversion, sizes: Mapping[str, int]) -> bytes:
    """What a completed instant says, with the new names of log files."""
    if action in COMMIT_ACTIONS and plan.logs:
        return _convert_commit(content, plan, sizes)
    if action is Action.SAVEPOINT and plan.logs:
        found = decode_savepoint(content)
        parts = {
            name: SavepointPartition(
                tuple(_new_name(plan, in_partition(part.partition, file)) for file in part.files),
                part.partition,
            )
            for name, part in found.by_partition.items()
        }
        return encode_savepoint(msgspec.structs.replace(found, by_partition=parts))
    return content


def _convert_commit(content: bytes, plan: Conversion, sizes: Mapping[str, int]) -> bytes:
    metadata = decode_commit(content)
    converted = {
        partition: [_convert_stat(stat, plan, sizes) for stat in stats]
        for partition, stats in metadata.partition_to_write_stats.items()
    }
    return encode_commit(msgspec.structs.replace(metadata, partition_to_write_stats=converted))


def _convert_stat(stat: WriteStat, plan: Conversion, sizes: Mapping[str, int]) -> WriteStat:
    """What a commit says of one file; of a log file by its new name."""
    if stat.path is None or stat.path not in plan.logs:
        return stat
    name = parse_log_file(_new_name(plan, stat.path))
    assert name is not None, "it was made from one"
    return msgspec.structs.replace(
        stat,
        path=plan.logs[stat.path],
        prev_commit=name.base_instant,
        file_size_in_bytes=sizes.get(stat.path, stat.file_size_in_bytes),
        log_version=name.version,
        log_files=[str(name)],
    )


def _new_name(plan: Conversion, path: str) -> str:
    return plan.logs.get(path, path).rpartition("/")[2]
