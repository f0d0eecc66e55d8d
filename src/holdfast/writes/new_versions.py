"""How a task stores what changes in one file group: a log file beside the base file, or a new base file.

In a merge-on-read table the write decides by cost. A log file is appended as
long as the group's log files stay a small part of its base file, and are few;
from then on the base file is rewritten, with all that they say. So a table
stays fast to read without a compaction, and a group never has log files alone.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.choices import TableType
from holdfast.errors import UnsupportedTable
from holdfast.files.log_file import LogContent, encode_log_file, log_file_stat
from holdfast.files.merge import Changes, Incoming, Mask, OldVersion, Order, find_wins
from holdfast.files.picking import Positions, pick, pick_rows
from holdfast.files.settled_slice import settle_slice
from holdfast.format.commits import WriteStat
from holdfast.model.names import BaseFileName, LogFileName, in_partition, parse_log_file
from holdfast.model.slices import FileSlice
from holdfast.storage.store import Store
from holdfast.table.markers import APPEND, MERGE, leave_marker
from holdfast.writes.early_conflicts import refuse_if_rival_writes
from holdfast.writes.task import TaskIdentity, TaskRequest, encoding_for, withdraw_if_late


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file group that is open, and what the rows change in it."""

    group: FileSlice
    old: OldVersion
    changes: Changes


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """Writes the new versions of a task."""

    store: Store
    request: TaskRequest
    identity: TaskIdentity

    @property
    def order(self) -> Order:
        return order_of(self.request)

    def write(
        self, candidate: Candidate, incoming: Incoming, added: Positions, *, removes: bool
    ) -> WriteStat:
        """Store the changes, and new rows; `removes` says that all incoming rows only name keys."""
        if self._takes_logs(candidate.group) and len(added) == 0:
            appended = self._append(candidate, incoming)
            if appended is not None:
                return appended
        return self.rewrite(candidate, incoming, added, removes=removes)

    def _takes_logs(self, group: FileSlice) -> bool:
        """Whether a log file may be added: none that the plan of a compaction would lack."""
        request = self.request
        return request.appends and in_partition(group.partition, group.file_id) not in request.compacting

    def rewrite(
        self, candidate: Candidate, incoming: Incoming, added: Positions, *, removes: bool
    ) -> WriteStat:
        """Write the base file anew, with what its log files say."""
        request, group, old = self.request, candidate.group, candidate.old
        name = BaseFileName(group.file_id, self.identity.write_token, request.instant)
        sample = incoming.rows if not removes else incoming.rows.slice(0, 0)
        encoding = encoding_for(request, sample, so_far=old.dictionary_columns)
        settled = settle_slice(old, incoming, candidate.changes, added, request.schema, self.order)
        self._announce(in_partition(group.partition, str(name)), group, MERGE)
        writer = old.new_version(
            self.store,
            name,
            group.partition,
            encoding,
            added=settled.behind_keys,
            fixed=_columns_fixed_by_key(request),
        )
        try:
            small = writer.copy(settled.row_groups, settled.sources, added=settled.behind.num_rows)
            writer.add(small, settled.behind, settled.behind_keys)
            written = writer.close()
        except BaseException as error:
            writer.discard(error)
            raise
        stat = msgspec.structs.replace(
            written,
            prev_commit=group.instant,
            num_inserts=len(added),
            num_update_writes=candidate.changes.count_updates(incoming.removes),
            num_deletes=candidate.changes.count_removals(incoming.removes),
        )
        withdraw_if_late(self.store, request, stat)
        return stat

    def _append(self, candidate: Candidate, incoming: Incoming) -> WriteStat | None:
        """Append a log file; None if the base file is to be rewritten."""
        group, winners = candidate.group, candidate.changes.winners
        is_removed = incoming.removes[winners.sources]
        budget = self._log_budget(candidate, int((~is_removed).sum()))
        if budget <= 0 or not self._fits_log(candidate, incoming, is_removed):
            return None
        request = self.request
        name = LogFileName.of_write(
            group.file_id,
            group.instant,
            _next_version(group),
            attempt=self.identity.attempt,
            instant=request.instant,
        )
        content = self._log_content(candidate, incoming, is_removed)
        try:
            encoded = encode_log_file(
                content,
                name,
                group.partition,
                encoding_for(request, content.rows, so_far=candidate.old.dictionary_columns),
                instant=request.instant,
                task=self.identity.task,
                block_format=request.write.log_block_format,
            )
        except UnsupportedTable:
            # Delete blocks have no room for every ordering value; a base file needs none.
            return None
        if len(encoded) >= budget:
            return None
        path = in_partition(group.partition, str(name))
        self._announce(path, group, APPEND)
        with self.store.upload(path) as sink:
            sink.write(encoded)
        stat = log_file_stat(group, name, content, size=len(encoded))
        withdraw_if_late(self.store, request, stat)
        return stat

    def _announce(self, path: str, group: FileSlice, kind: str) -> None:
        request = self.request
        leave_marker(self.store, request.instant, path, kind=kind)
        if request.write.detects_conflicts_early:
            refuse_if_rival_writes(self.store, request.instant, path, group.file_id, request.write, kind=kind)

    def _log_budget(self, candidate: Candidate, updated: int) -> float:
        """How large a new log file must not be; nothing if it is certainly too large, or one too many."""
        group, write = candidate.group, self.request.write
        if group.base is None or len(group.logs) >= write.logs_max:
            return 0
        base_bytes = group.size if group.size is not None else self._size(group.base)
        budget = write.log_ratio_max * base_bytes - sum(map(self._size, group.logs))
        # Rows of the log file are about as long as others, so most need not be encoded to be seen too many.
        expected = updated * base_bytes / max(candidate.old.rows, 1)
        return budget if expected < budget else 0

    def _size(self, path: str) -> int:
        stored = self.store.stat(path)
        return 0 if stored is None else stored.size

    def _fits_log(self, candidate: Candidate, incoming: Incoming, is_removed: Mask) -> bool:
        """Whether every reader would make of a log file what the rows mean.

        Many order the rows of log files by the ordering column, whatever the
        table's rules say, and none can do so with nulls. Of keys that a base file
        has twice they find one.
        """
        winners = candidate.changes.winners
        if len(np.unique(winners.sources)) < len(winners.sources):
            return False
        ordering = self.request.table.ordering
        if ordering is None or is_removed.all():
            return True
        values = pick(incoming.rows.column(ordering), winners.sources[~is_removed])
        if values.null_count > 0:
            return False
        assert winners.order is not None, "the stored order is noted"
        return bool(find_wins(values, winners.order.filter(pa.array(~is_removed))).all())

    def _log_content(self, candidate: Candidate, incoming: Incoming, is_removed: Mask) -> LogContent:
        winners = candidate.changes.winners
        updated, removed = winners.sources[~is_removed], winners.sources[is_removed]
        rows = pick_rows(incoming.rows, updated) if len(updated) else self.request.schema.empty_table()
        return LogContent(
            rows=rows,
            keys=incoming.keys.take(pa.array(updated)),
            removed=incoming.keys.take(pa.array(removed)),
            order=self._order_of_deletes(candidate, incoming, is_removed),
            positions=winners.places[~is_removed],
            removed_positions=winners.places[is_removed],
        )

    def _order_of_deletes(
        self, candidate: Candidate, incoming: Incoming, is_removed: Mask
    ) -> pa.Array | None:
        """The ordering value of each delete: its own, which is not below that of the row it removes, or that.

        None where one has none: hudi-rs refuses blocks in which some have one and others do not.
        """
        winners, decides = candidate.changes.winners, self.order.decides
        if decides is None or not is_removed.any():
            return None
        assert winners.order is not None, "the stored order is noted"
        stored = winners.order.filter(pa.array(is_removed)).cast(self.request.schema.field(decides).type)
        order = stored
        if decides in incoming.rows.column_names:
            # A delete that won is not older than what it removes.
            own = pick(incoming.rows.column(decides), winners.sources[is_removed])
            order = pc.coalesce(pa.concat_arrays(own.chunks), stored)
        return None if order.null_count > 0 else order


def order_of(request: TaskRequest) -> Order:
    """By what rows of one key compete in a table."""
    table = request.table
    return Order(
        table.deciding_column, table.ordering if table.table_type is TableType.MERGE_ON_READ else None
    )


def _next_version(group: FileSlice) -> int:
    names = (parse_log_file(log.rpartition("/")[2]) for log in group.logs)
    return 1 + max((name.version for name in names if name is not None), default=0)


def _columns_fixed_by_key(request: TaskRequest) -> tuple[str, ...]:
    """Columns that rows with one key agree in: a key of several columns spells null like some texts."""
    table = request.table
    return () if table.has_complex_keys else table.record_key
