"""The Delta Lake log of a table: which files each of its versions adds and removes.

It lies in the table's folder, where alone all readers look for it. Each version
is a file that is created exclusively, so whoever computed one from an older
look at the table loses, and looks again. A writer feature that no other program
knows keeps them from writing.
"""

import json
import logging
import uuid
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET

from holdfast.errors import Refused, TableDamaged
from holdfast.exports.delta_types import (
    has_zoneless_moments,
    schema_string,
    statistics_text,
)
from holdfast.exports.partitions import partition_columns, partition_text
from holdfast.exports.statistics import Footers, check_numbers
from holdfast.exports.step import ENGINE, NO_INSTANT, ExportedTable, Step, encode_paths
from holdfast.format.delta_log import (
    ADDS,
    Action,
    Add,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    Transaction,
    decode_actions,
    decode_checkpoint,
    decode_last_checkpoint,
    encode_actions,
    encode_checkpoint,
    encode_last_checkpoint,
    table_of_adds,
)
from holdfast.format.malformed import Malformed, report_damage
from holdfast.model.instant import InstantTime
from holdfast.model.names import DELTA_FOLDER
from holdfast.storage.store import Store, read_or_none

log = logging.getLogger(__name__)

CHECKPOINT_EVERY = 10
"""Versions after which readers find a checkpoint; the default of Delta Lake's own writers."""
_LAST_CHECKPOINT = f"{DELTA_FOLDER}/_last_checkpoint"
_FEATURE = "holdfastManaged"
_ZONELESS = "timestampNtz"
_READER, _WRITER, _FEATURES_READER = 1, 7, 3
_KEPT_FOR = "interval 36500 days"
"""No vacuum of another program deletes what is younger: Holdfast still reads it as of older commits."""
_HINT = f"delete the folder {DELTA_FOLDER}, then: holdfast exports run PATH"


@dataclass(frozen=True, slots=True)
class DeltaState:
    """What the newest version says."""

    version: int
    instant: InstantTime
    slot: int
    adds: pa.Table
    """The files there are, as rows of `ADDS`."""
    metadata: Metadata
    protocol: Protocol

    @property
    def shown_slot(self) -> int:
        return self.slot

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    def paths(self) -> list[str]:
        """The files, relative to the table."""
        return [unquote(path) for path in self.adds["path"].to_pylist()]

    def lacks(self, step: Step) -> bool:
        """Whether a version is missing that shows what the step shows."""
        if self.instant != step.instant or self.metadata.schema_string != _schema_text(self, step):
            return True
        paths, shown = encode_paths(step.files["path"]), self.adds["path"]
        is_shown = pc.is_in(paths, shown.combine_chunks())
        return len(paths) != len(shown) or not pc.all(is_shown, min_count=0).as_py()


def version_path(version: int) -> str:
    return f"{DELTA_FOLDER}/{version:020}.json"


def read_delta(store: Store) -> DeltaState | None:
    """The newest version; None if there is none.

    `Refused` if the log is another program's, `TableDamaged` if it cannot be read.
    """
    folded = _read_checkpoint(store)
    first = 0 if folded is None else folded.version
    names = [file.path for file in store.folder(DELTA_FOLDER).files if file.path.endswith(".json")]
    paths = sorted(path for path in names if path >= version_path(first))
    if not paths:
        return None
    if paths[0] != version_path(first) or any(
        int(b[-25:-5]) - int(a[-25:-5]) != 1 for a, b in pairwise(paths)
    ):
        raise TableDamaged("a version of the Delta log is missing", file=version_path(first), hint=_HINT)
    return _fold(store, folded, paths)


def advance_delta(
    store: Store, table: ExportedTable, state: DeltaState | None, step: Step, footers: Footers
) -> DeltaState | None:
    """Make the next version; None if somebody else did meanwhile."""
    version = 0 if state is None else state.version + 1
    after, actions = plan_version(table, state, step, footers)
    if not store.create(version_path(version), encode_actions(actions)):
        return None
    if version > 0 and version % CHECKPOINT_EVERY == 0:
        _checkpoint(store, after)
    return after


def plan_version(
    table: ExportedTable, state: DeltaState | None, step: Step, footers: Footers
) -> tuple[DeltaState, list[Action]]:
    """The state after the next version, and its lines."""
    encoded = encode_paths(step.files["path"]).combine_chunks()
    had = ADDS.empty_table() if state is None else state.adds
    is_new = pc.invert(pc.is_in(encoded, had["path"].combine_chunks()))
    new = step.files.filter(is_new)
    paths = new["path"].to_pylist()
    facts = footers.read(paths)
    is_changed = state is not None and state.metadata.schema_string != _schema_text(state, step)
    check_numbers(step, footers.read(step.files["path"].to_pylist()) if is_changed else facts)
    known = table.partition_by if state is None else state.partition_by
    partition_by = partition_columns(known, step, dict(zip(paths, facts, strict=True)))
    if state is not None and partition_by != state.partition_by:
        new, facts = step.files, footers.read(step.files["path"].to_pylist())
        encoded_new = encoded
    else:
        encoded_new = encoded.filter(is_new)
    schema = step.schema or pa.schema([])
    adds = [
        Add(
            path,
            {name: partition_text(each.columns[name].least) for name in partition_by},
            size,
            step.moment_ms,
            data_change=True,
            stats=statistics_text(each, schema),
        )
        for path, size, each in zip(encoded_new.to_pylist(), new["size"].to_pylist(), facts, strict=True)
    ]
    added = table_of_adds(adds)
    gone = had.filter(pc.invert(pc.is_in(had["path"], encoded)))["path"].to_pylist()
    kept = had.filter(
        pc.and_(
            pc.is_in(had["path"], encoded),
            pc.invert(pc.is_in(had["path"], added["path"].combine_chunks())),
        )
    )
    metadata = _metadata(table, state, step, partition_by)
    protocol = _protocol(state, schema)
    after = DeltaState(
        version=0 if state is None else state.version + 1,
        instant=step.instant,
        slot=step.slot,
        adds=pa.concat_tables([kept, added]),
        metadata=metadata,
        protocol=protocol,
    )
    heads = [Action(commit_info=_commit_info(state, step)), Action(txn=_transaction(step.instant))]
    if state is None or protocol != state.protocol:
        heads.append(Action(protocol=protocol))
    if state is None or metadata != state.metadata:
        heads.append(Action(meta_data=metadata))
    removes = [Action(remove=Remove(path, step.moment_ms, data_change=True)) for path in gone]
    return after, [*heads, *removes, *(Action(add=add) for add in adds)]


def delete_delta(store: Store) -> None:
    """Remove the log, the newest version first: what is left when this dies is an older table.

    `Refused` if it is another program's.
    """
    if read_delta(store) is None and not store.folder(DELTA_FOLDER).files:
        return
    store.delete(_LAST_CHECKPOINT)
    for path in sorted(store.paths(DELTA_FOLDER), reverse=True):
        store.delete(path)
    store.prune(DELTA_FOLDER)


def _read_checkpoint(store: Store) -> DeltaState | None:
    content = read_or_none(store, _LAST_CHECKPOINT)
    if content is None:
        return None
    try:
        version = decode_last_checkpoint(content).version
        checkpoint = read_or_none(store, _checkpoint_path(version))
        if checkpoint is None:
            return None
        adds, metadata, protocol = decode_checkpoint(checkpoint)
    except Malformed as error:
        # All versions are there, and say the same.
        log.warning("export.checkpoint_unreadable", extra={"table": store.uri(""), "cause": str(error)})
        return None
    return DeltaState(version, NO_INSTANT, 0, adds, metadata, protocol)


def _fold(store: Store, state: DeltaState | None, paths: list[str]) -> DeltaState:
    """The state after these versions, the first of which may be that of the state."""
    adds: dict[str, Add] = {}
    removed: set[str] = set()
    metadata = None if state is None else state.metadata
    protocol = None if state is None else state.protocol
    info = CommitInfo()
    for path, content in zip(paths, store.read_all(paths), strict=True):
        if content is None:
            raise TableDamaged("a version of the Delta log is missing", file=path, hint=_HINT)
        with report_damage("a version of the Delta log cannot be read", hint=_HINT, file=path):
            actions = decode_actions(content)
        for action in actions:
            if action.remove is not UNSET:
                adds.pop(action.remove.path, None)
                removed.add(action.remove.path)
            elif action.add is not UNSET:
                adds[action.add.path] = action.add
            elif action.commit_info is not UNSET:
                info = action.commit_info
            metadata = metadata if action.meta_data is UNSET else action.meta_data
            protocol = protocol if action.protocol is UNSET else action.protocol
    if metadata is None or protocol is None:
        raise TableDamaged("the Delta log does not say what table it is of", file=paths[0], hint=_HINT)
    if protocol.writer_features is UNSET or _FEATURE not in protocol.writer_features or not info.instant:
        raise Refused(
            "the table's folder has a Delta log that another program wrote",
            folder=store.uri(DELTA_FOLDER),
            hint="move the log away, or do not export this table to delta",
        )
    folded = table_of_adds(adds.values())
    if state is not None:
        changed = pa.array([*removed, *adds], pa.string())
        folded = pa.concat_tables(
            [state.adds.filter(pc.invert(pc.is_in(state.adds["path"], changed))), folded]
        )
    version = int(paths[-1][-25:-5])
    return DeltaState(version, InstantTime(info.instant), info.slot, folded, metadata, protocol)


def _checkpoint(store: Store, state: DeltaState) -> None:
    content = encode_checkpoint(
        state.adds,
        metadata=state.metadata,
        protocol=state.protocol,
        transaction=_transaction(state.instant),
    )
    store.create(_checkpoint_path(state.version), content)
    store.put(_LAST_CHECKPOINT, encode_last_checkpoint(state.version, state.adds.num_rows + 3))


def _checkpoint_path(version: int) -> str:
    return f"{DELTA_FOLDER}/{version:020}.checkpoint.parquet"


def _metadata(
    table: ExportedTable, state: DeltaState | None, step: Step, partition_by: tuple[str, ...]
) -> Metadata:
    if state is not None:
        return msgspec.structs.replace(
            state.metadata, schema_string=_schema_text(state, step), partition_columns=partition_by
        )
    return Metadata(
        id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{ENGINE}:{table.name}:{step.instant}")),
        name=table.name,
        schema_string=_schema_text(state, step),
        partition_columns=partition_by,
        configuration={"delta.deletedFileRetentionDuration": _KEPT_FOR},
        created_time=step.moment_ms,
    )


def _schema_text(state: DeltaState | None, step: Step) -> str:
    if step.schema is None and state is not None:
        return state.metadata.schema_string
    return schema_string(step.schema or pa.schema([]))


def _protocol(state: DeltaState | None, schema: pa.Schema) -> Protocol:
    """What readers have to know: nothing but the oldest form, unless a type asks for more."""
    was_zoneless = state is not None and state.protocol.min_reader_version == _FEATURES_READER
    if was_zoneless or any(has_zoneless_moments(field.type) for field in schema):
        return Protocol(_FEATURES_READER, _WRITER, (_ZONELESS,), (_ZONELESS, _FEATURE))
    return Protocol(_READER, _WRITER, writer_features=(_FEATURE,))


def _transaction(instant: InstantTime) -> Transaction:
    return Transaction(ENGINE, int(instant))


def _commit_info(state: DeltaState | None, step: Step) -> CommitInfo:
    is_back = state is not None and step.instant < state.instant
    return CommitInfo(
        timestamp=step.moment_ms,
        operation="RESTORE" if is_back else "WRITE",
        engine_info=ENGINE,
        parameters={"instant": json.dumps(step.instant)},
        instant=step.instant,
        slot=step.slot,
    )
