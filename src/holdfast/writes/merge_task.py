"""The part of an upsert, a delete or an insert that runs in a task: rows in, new versions out.

Rows come as Arrow batches, those of a bundle together. A bundle is cut into
merge units, rows that meet in the same file groups. For each unit the task looks
for the keys in these, gives new rows to small ones, and writes every file group
that changes once.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.choices import IndexType
from holdfast.config.table import TableSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Refused, RowsChanged, TableDamaged
from holdfast.files.conform import conform_rows
from holdfast.files.key_footer import Verdict
from holdfast.files.merge import (
    Changes,
    Incoming,
    Mask,
    OldVersion,
    find_changes,
    open_old_version,
    open_without_base_file,
)
from holdfast.files.merged_file import OWN_META
from holdfast.files.overlay import read_overlay
from holdfast.files.partition_column import partition_column
from holdfast.files.picking import Positions
from holdfast.format.buckets import bucket_numbers, bucket_of
from holdfast.format.record_keys import text_column
from holdfast.model.instant import InstantTime
from holdfast.model.names import parse_log_file
from holdfast.model.reports import IndexReport
from holdfast.model.slices import FileSlice
from holdfast.storage.store import Store
from holdfast.table.log_instants import LogInstants
from holdfast.writes.gather import bundles
from holdfast.writes.layout import FileGroups, Room, rows_taken, with_sizes
from holdfast.writes.new_versions import Candidate, GroupWriter, order_of
from holdfast.writes.outcome import TaskOutput, Unchanged
from holdfast.writes.task import (
    IS_DELETED,
    NewFiles,
    TaskIdentity,
    TaskRequest,
    has_removals,
    require_keys,
)

TARGET = "_holdfast_target"
"""The base file a row is known to belong to; empty for a new file group, null where the task must look."""
OPEN_FILES = 64
"""The most base files that are open at a time."""
REMOVES = "_holdfast_removes"
"""Whether a row only removes its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """What every task of a merging write needs to know."""

    task: TaskRequest
    groups: FileGroups
    """The file groups of the partitions that rows come for."""
    looks_up: bool
    """Whether rows replace those with their key; if not, they are added."""
    combines: bool
    """Whether rows of one key are reduced to one first."""
    removes: bool
    """Whether the rows only name keys to be removed."""
    refuses_twins: bool = False
    """Whether rows of one key are refused instead."""
    are_all_known: bool = False
    """Whether `groups` has every partition that rows come for, those without a file group too."""
    log_instants: LogInstants | None = None
    """Which blocks of log files count; None if no file group has any."""
    written_with: Mapping[InstantTime, str] = field(default_factory=dict)
    """Commit → the schema of the files it wrote, for engines that read many at once."""

    def for_tasks(self, partitions: Iterable[str] | None) -> "MergeRequest":
        """What tasks need of it if rows come for these partitions only; None means for any."""
        groups, instants = self.groups, self.log_instants
        if partitions is not None:
            groups = {path: groups.get(path, ()) for path in partitions}
        if instants is not None:
            instants = instants.only(
                log for members in groups.values() for group in members for log in group.logs
            )
        return replace(
            self,
            groups=groups,
            are_all_known=partitions is not None,
            log_instants=instants,
            written_with={},
        )

    @property
    def deciding_column(self) -> str | None:
        """The column by which a stored row may win against an incoming one."""
        return self.task.table.deciding_column


@dataclass(frozen=True, slots=True)
class _MergeUnit:
    """Rows that meet in the same file groups."""

    partition: str
    groups: tuple[FileSlice, ...]
    """Those that may hold one of the keys."""
    bucket: int | None
    is_located: bool
    """Whether the one file group given is known to be where the keys belong."""
    incoming: Incoming


def merge_rows(
    store: Store, request: MergeRequest, identity: TaskIdentity, batches: Iterable[pa.RecordBatch]
) -> Iterator[TaskOutput]:
    """Merge the batches; one output per file as each is finished, then what the look-up took and left."""
    merger = _Merger(store, request, identity)
    by_path = {group.home: group for members in request.groups.values() for group in members}
    try:
        for rows in bundles(batches):
            for unit in _merge_units(rows, request, by_path):
                yield from merger.merge(unit)
    except BaseException as error:
        merger.discard(error)
        raise
    yield TaskOutput(index=merger.index, unchanged=merger.unchanged)


def _merge_units(
    rows: pa.Table, request: MergeRequest, by_path: Mapping[str, FileSlice]
) -> Iterator[_MergeUnit]:
    """The rows of a bundle, by the file groups they may meet in."""
    incoming = incoming_rows(rows, request)
    data = incoming.rows
    targets = rows.column(TARGET).combine_chunks() if TARGET in rows.column_names else None
    paths = partition_paths(data, request)
    buckets = _buckets(data, request)
    for share in _group_rows(rows.num_rows, [targets, _own_paths(paths, targets), buckets]):
        first = int(share[0])
        target = targets[first].as_py() if targets is not None else None
        partition = paths[first].as_py() if paths is not None else ""
        bucket = buckets[first].as_py() if buckets is not None else None
        groups = (_file_group_at(by_path, target),) if target else _groups(request, partition, target, bucket)
        home = groups[0].partition if target else partition
        mine = incoming if len(share) == rows.num_rows else incoming.only(share)
        yield _MergeUnit(home, groups, bucket, target is not None, mine)


def _file_group_at(by_path: Mapping[str, FileSlice], target: str) -> FileSlice:
    if target not in by_path:
        raise TableDamaged("rows of a data file name another file as theirs", file=target)
    return by_path[target]


def _own_paths(paths: pa.DictionaryArray | None, targets: pa.Array | None) -> pa.Array | None:
    """The partitions that matter: rows that have a target meet there, wherever they come from."""
    if paths is None or targets is None:
        return paths
    return pc.if_else(pc.fill_null(pc.equal(targets, ""), True), paths.dictionary_decode(), "")


def incoming_rows(rows: pa.Table, request: MergeRequest) -> Incoming:
    """The rows in the stored schema, with their keys; `InvalidRequest` for one without."""
    data = rows.drop_columns([name for name in (TARGET, REMOVES) if name in rows.column_names])
    known = [field for field in request.task.schema if not request.removes or field.name in data.column_names]
    data = conform_rows(data, pa.schema(known))
    return Incoming(data, require_keys(data, request.task.table), _removes(rows, data, request))


def _group_rows(count: int, labels: Sequence[pa.Array | None]) -> list[Positions]:
    """The rows by what all labels say, each share in the order the rows came."""
    codes = np.zeros(count, dtype=np.int64)
    for label in labels:
        if label is not None:
            encoded = label if pa.types.is_dictionary(label.type) else label.dictionary_encode("encode")
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def _removes(rows: pa.Table, data: pa.Table, request: MergeRequest) -> Mask:
    removes = np.full(rows.num_rows, request.removes)
    if REMOVES in rows.column_names:
        removes |= rows.column(REMOVES).to_numpy()
    if has_removals(data.schema):
        removes |= pc.fill_null(data.column(IS_DELETED), False).to_numpy()
    return removes


def partition_paths(data: pa.Table, request: MergeRequest) -> pa.DictionaryArray | None:
    """The partitions of the rows; None if there is one, or if the rows do not say."""
    table = request.task.table
    if not table.partition_by or not set(table.partition_by) <= set(data.column_names):
        return None
    return partition_column(data, table)


def _buckets(data: pa.Table, request: MergeRequest) -> pa.Array | None:
    write = request.task.write
    if write.index_type is not IndexType.BUCKET:
        return None
    return pa.array(bucket_column(data, request.task.table, write))


def bucket_column(data: pa.Table, table: TableSettings, write: WriteSettings) -> npt.NDArray[np.int64]:
    """The bucket of each row."""
    fields = [name for name in table.record_key if name in (write.bucket_columns or table.record_key)]
    texts = [text_column(name, data.column(name).combine_chunks()) for name in fields]
    return bucket_numbers(texts, count=write.bucket_count)


def _groups(
    request: MergeRequest, partition: str, target: str | None, bucket: int | None
) -> tuple[FileSlice, ...]:
    """The file groups that may hold the keys of rows so labelled."""
    if request.are_all_known and partition not in request.groups:
        raise RowsChanged(
            "the rows were not the same when they were read again",
            partition=partition,
            hint="make the DataFrame deterministic, or write it to files first",
        )
    if target == "":
        return ()
    members = request.groups.get(partition, ())
    if bucket is None:
        return members
    return tuple(group for group in members if bucket_of(group.file_id) == bucket)


class _Merger:
    def __init__(self, store: Store, request: MergeRequest, identity: TaskIdentity) -> None:
        self._store = store
        self._request = request
        self._new_files = NewFiles(store, request.task, identity)
        self._group_writer = GroupWriter(store, request.task, identity)
        self.index = IndexReport()
        self.unchanged = Unchanged()

    def merge(self, unit: _MergeUnit) -> Iterator[TaskOutput]:
        """Write what the rows change."""
        incoming = unit.incoming
        if self._request.refuses_twins:
            _refuse_twins(incoming)
        elif self._request.combines:
            incoming = newest_of_each_key(incoming, self._request.task.table.ordering)
        is_new, is_absent = ~incoming.removes, incoming.removes.copy()
        groups = self._groups_to_open(unit)
        for first in range(0, max(len(groups), 1), OPEN_FILES):
            with ExitStack() as stack:
                candidates = self._candidates(stack, groups[first : first + OPEN_FILES], incoming, unit)
                for candidate in candidates:
                    is_new[candidate.changes.found] = is_absent[candidate.changes.found] = False
                # Which rows are new is known with the last of the files.
                are_all_open = first + OPEN_FILES >= len(groups)
                new = np.flatnonzero(is_new) if are_all_open else np.empty(0, dtype=np.int64)
                if are_all_open and first == 0:
                    returning, new = _returning_rows(candidates, new)
                else:
                    returning = [np.empty(0, dtype=np.int64) for _ in candidates]
                row_bytes = incoming.rows.nbytes / max(incoming.rows.num_rows, 1)
                counts = self._rows_for_each(unit, candidates, len(new), row_bytes=row_bytes)
                for candidate, back, count in zip(candidates, returning, counts, strict=True):
                    added, new = np.concatenate([back, new[:count]]), new[count:]
                    yield from self._write(candidate, incoming, added)
        if is_absent.any():
            self.unchanged += Unchanged(absent_from=frozenset([unit.partition]))
        if len(new) > 0:
            yield from self._new_groups(unit, incoming.only(new))

    def _write(self, candidate: Candidate, incoming: Incoming, added: Positions) -> Iterator[TaskOutput]:
        """Store what changes in a file group, and the new rows that it takes; or report that nothing does."""
        if candidate.changes or len(added) > 0:
            stat = self._group_writer.write(candidate, incoming, added, removes=self._request.removes)
            yield TaskOutput(stat=stat)
        elif len(candidate.changes.found) > 0:
            kept = frozenset([(candidate.group.partition, candidate.group.file_id)])
            self.unchanged += Unchanged(kept=kept)

    def discard(self, error: BaseException) -> None:
        """Leave nothing of a file that is being written."""
        self._new_files.discard(error)

    def _groups_to_open(self, unit: _MergeUnit) -> tuple[FileSlice, ...]:
        """The file groups to open: all that may hold a key, or those with room for more."""
        groups = unit.groups
        if unit.bucket is None and not unit.is_located and not self._request.removes:
            groups = with_sizes(self._store, groups)
        if self._request.looks_up or unit.bucket is not None:
            # The last to be opened receive new rows, so the smallest come last.
            return tuple(sorted(groups, key=lambda group: -(group.size or math.inf)))
        limit = self._request.task.write.small_file_bytes
        small = [group for group in groups if group.size is not None and group.size < limit]
        return tuple(sorted(small, key=lambda group: group.size or 0)[:OPEN_FILES])

    def _candidates(
        self, stack: ExitStack, groups: Sequence[FileSlice], incoming: Incoming, unit: _MergeUnit
    ) -> list[Candidate]:
        """The file groups, opened, with what the rows change in them."""
        olds = [stack.enter_context(open_group(self._store, group, self._request)) for group in groups]
        is_candidate = np.full(len(olds), self._request.looks_up)
        if self._request.looks_up and not unit.is_located:
            for number, (group, old) in enumerate(zip(groups, olds, strict=True)):
                verdict, report = check_footer(group, old, incoming.keys, self._request)
                self.index += report
                is_candidate[number] = verdict is Verdict.MAYBE
        may_match = [old for old, may in zip(olds, is_candidate, strict=True) if may]
        file_changes = iter(find_changes(may_match, incoming, order_of(self._request.task)))
        return [
            Candidate(group, old, next(file_changes) if may else Changes.none(old))
            for group, old, may in zip(groups, olds, is_candidate, strict=True)
        ]

    def _rows_for_each(
        self, unit: _MergeUnit, candidates: Sequence[Candidate], new_rows: int, *, row_bytes: float
    ) -> list[int]:
        """How many new rows each candidate takes."""
        if unit.bucket is not None:
            return [new_rows for _ in candidates]
        rooms = [
            Room(candidate.group.size, candidate.old.rows, is_rewritten=bool(candidate.changes))
            for candidate in candidates
        ]
        return rows_taken(rooms, new_rows, self._request.task.write, row_bytes=row_bytes)

    def _new_groups(self, unit: _MergeUnit, new: Incoming) -> Iterator[TaskOutput]:
        if unit.bucket is not None:
            yield from self._new_files.write_bucket(unit.partition, unit.bucket, new.rows, new.keys)
        else:
            yield from self._new_files.write_all(unit.partition, new.rows, new.keys)


def open_group(store: Store, group: FileSlice, request: MergeRequest) -> AbstractContextManager[OldVersion]:
    """The base file of a group, with what its log files say of it."""
    if not group.logs:
        return open_old_version(store, group.home)
    task, instants = request.task, request.log_instants
    assert instants is not None, "the view that found log files tells which of their blocks count"
    decides = request.deciding_column
    read_logs = partial(
        read_overlay,
        store,
        group,
        pa.schema([*OWN_META, *task.schema]),
        instants=instants,
        ordering=None if decides is None else task.schema.field(decides),
    )
    if group.base is None:
        return open_without_base_file(task.schema, group.home, read_logs)
    return open_old_version(store, group.base, read_logs=read_logs)


def has_foreign_logs(group: FileSlice) -> bool:
    """Whether log files may hold keys that the base file does not: ours never do."""
    names = (parse_log_file(log.rpartition("/")[2]) for log in group.logs)
    return any(name is None or name.written_by is None for name in names)


def check_footer(
    group: FileSlice, old: OldVersion, keys: pa.StringArray, request: MergeRequest
) -> tuple[Verdict, IndexReport]:
    """Whether a file group may hold one of the keys, asking its base file's footer if the index does so."""
    verdict = Verdict.MAYBE
    if request.task.write.index_type.prunes_by_bloom and not has_foreign_logs(group):
        verdict = old.keys.verdict(keys)
    return verdict, IndexReport(
        file_groups=1,
        pruned_by_range=int(verdict is Verdict.OUT_OF_RANGE),
        pruned_by_bloom=int(verdict is Verdict.NOT_IN_BLOOM),
    )


def _returning_rows(candidates: Sequence[Candidate], new: Positions) -> tuple[list[Positions], Positions]:
    """New rows whose key a log file of a candidate took away, by candidate, and the others.

    They go back where they were, as a base file may still have them: a program
    that looks for keys in base files alone would else find them in two places.
    """
    returning: list[Positions] = []
    for candidate in candidates:
        back = np.intersect1d(candidate.changes.dead, new, assume_unique=True)
        new = np.setdiff1d(new, back, assume_unique=True)
        returning.append(back)
    return returning, new


def _refuse_twins(incoming: Incoming) -> None:
    counted = incoming.keys.value_counts()
    twins = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    if len(twins):
        raise Refused(
            "several rows are to replace or remove one row of the table",
            key=pc.min(twins).as_py(),
            keys=len(twins),
            hint="let the source have one row for each key; nothing was written",
        )


def newest_of_each_key(incoming: Incoming, ordering: str | None) -> Incoming:
    """One row per key: the greatest in order, of equals the last to come; null is the least."""
    encoded = incoming.keys.dictionary_encode()
    if len(encoded.dictionary) == len(encoded):
        return incoming
    columns = {"key": encoded.indices}
    if ordering in incoming.rows.column_names:
        values = incoming.rows.column(ordering)
        columns |= {"has_order": values.is_valid(), **_sort_columns(values)}
    columns["arrival"] = pa.array(np.arange(len(encoded)))
    ranked = pc.sort_indices(
        pa.table(columns), sort_keys=[(name, "ascending") for name in columns]
    ).to_numpy()
    keys = encoded.indices.to_numpy()[ranked]
    newest = ranked[np.append(keys[1:] != keys[:-1], True)]
    return incoming.only(np.sort(newest).astype(np.int64))


def _sort_columns(column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Columns that sort as Java orders the values: not-a-number is greater than every number."""
    if not pa.types.is_floating(column.type):
        return {"order": column}
    beyond = pc.is_nan(column)
    return {"beyond": beyond, "order": pc.if_else(beyond, 0.0, column)}
