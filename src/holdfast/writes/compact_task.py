"""The part of a compaction that runs in a task: file slices in, base files out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from holdfast.files.merge import Changes, Incoming, OldVersion
from holdfast.format.commits import WriteStat
from holdfast.model.slices import FileSlice
from holdfast.storage.store import Store
from holdfast.table.log_files import read_log_heads
from holdfast.table.log_instants import LogInstants
from holdfast.writes.merge_task import MergeRequest, open_group
from holdfast.writes.new_versions import Candidate, GroupWriter
from holdfast.writes.outcome import TaskOutput
from holdfast.writes.task import TaskIdentity, TaskRequest

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest:
    """What every task of a compaction needs to know."""

    task: TaskRequest
    slices: tuple[FileSlice, ...]
    log_instants: LogInstants
    attempt: int
    """The slot in which this attempt began: no other writes files of the same names."""


def compact_slices(
    store: Store, request: CompactRequest, identity: TaskIdentity, numbers: Iterable[int]
) -> Iterator[TaskOutput]:
    """Write the base files of some of the slices; one output per file, as each is finished."""
    merging = MergeRequest(
        task=request.task,
        groups={},
        looks_up=False,
        combines=False,
        removes=False,
        log_instants=request.log_instants,
    )
    me = TaskIdentity(
        task=identity.task,
        stage=request.attempt,
        attempt=identity.attempt,
        file_prefix=identity.file_prefix,
    )
    writer = GroupWriter(store, request.task, me)
    for number in numbers:
        group = request.slices[number]
        with open_group(store, group, merging) as old:
            candidate = Candidate(group, old, Changes.none(old))
            stat = writer.rewrite(candidate, _no_rows(request.task.schema), _NONE, removes=False)
            yield TaskOutput(stat=_with_log_totals(store, stat, group, old))


def _no_rows(schema: pa.Schema) -> Incoming:
    return Incoming(schema.empty_table(), pa.array([], pa.string()), np.zeros(0, dtype=np.bool_))


def without_log_totals(stat: WriteStat) -> WriteStat:
    """The statistics of the same file where a write rewrote it, which changed none of its records."""
    return msgspec.structs.replace(
        stat,
        num_update_writes=0,
        num_deletes=0,
        total_log_records=0,
        total_log_files_compacted=0,
        total_log_size_compacted=0,
        total_updated_records_compacted=0,
        total_log_blocks=0,
        total_corrupt_log_block=0,
        total_rollback_blocks=0,
    )


def _with_log_totals(store: Store, stat: WriteStat, group: FileSlice, old: OldVersion) -> WriteStat:
    """The statistics of a new base file with what Hudi says there of the log files."""
    removes = np.zeros(0, dtype=np.bool_) if old.overlay is None else old.overlay.removes
    heads = [head for path in group.logs for head in read_log_heads(store, path) or ()]
    stored = (store.stat(path) for path in group.logs)
    return msgspec.structs.replace(
        stat,
        num_update_writes=int((~removes).sum()),
        num_deletes=int(removes.sum()),
        total_log_records=len(removes),
        total_log_files_compacted=len(group.logs),
        total_log_size_compacted=sum(file.size for file in stored if file is not None),
        total_updated_records_compacted=int((~removes).sum()),
        total_log_blocks=len(heads),
        total_corrupt_log_block=sum(not head.is_whole for head in heads),
        total_rollback_blocks=sum(head.taken_back is not None for head in heads),
    )
