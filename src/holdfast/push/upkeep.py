"""Upkeep: carries out what retention decides, and removes what belongs to nothing.

Every step may be the last: files go after the records say that they may, the
metadata of a file after the file, and whoever comes next continues.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from holdfast.clock import Clock
from holdfast.config.push import raw_name
from holdfast.errors import Conflict, InvalidRequest, LineageChanged, TableNotFound
from holdfast.push.audit import trim_audit
from holdfast.push.catalog import Catalog
from holdfast.push.deep_store import DeepStore, segment_of_file
from holdfast.push.ingest import doomed_files, scan_path
from holdfast.push.metastore.port import Create, Replace
from holdfast.push.reports import Caller, Changes, RetentionReport
from holdfast.push.retention import DAY_MS, plan_retention, ready_deletions, without_deletions
from holdfast.push.rules import Decision, Rules
from holdfast.push.segments import Segment
from holdfast.push.state import PendingDeletion, TableState
from holdfast.push.transactions import Step, Transactions, unchanged

log = logging.getLogger(__name__)

_BATCH = 500
"""Segments forgotten in one write: a ZooKeeper packet holds several thousand paths."""
_AUDIT_RECORDS = 10_000
_AUDIT_MS = 365 * DAY_MS
_ORPHAN_MS = 3 * DAY_MS
_ORPHANS = 100
_DISCARDED = 500
"""Files named in one scan's record: a ZooKeeper packet holds several thousand paths."""
_SCANS = 5


class Upkeep:
    def __init__(
        self,
        catalog: Catalog,
        deep_store: DeepStore,
        transactions: Transactions,
        clock: Clock,
        rules: Rules,
        *,
        orphan_ms: int = _ORPHAN_MS,
    ) -> None:
        self._catalog = catalog
        self._deep_store = deep_store
        self._transactions = transactions
        self._clock = clock
        self._rules = rules
        self._orphan_ms = orphan_ms

    def run(self, table: str, *, dry_run: bool, by: Caller) -> RetentionReport:
        """One pass over a table: finish earlier deletions, decide new ones, look for orphans."""
        if dry_run:
            return self._report(table, self._decided(table, by=by, dry_run=True))
        deleted = self.finish_deletions(table, by=by)
        report = self._decided(table, by=by, dry_run=False)
        orphans = self.remove_orphans(table)
        expired = self.empty_deleted_area(table)
        now_ms = self._clock.now_ms()
        self._deep_store.remove_runs(table, before_ms=now_ms - self._orphan_ms)
        trim_audit(self._catalog.metastore, table, keep=_AUDIT_RECORDS, oldest_ms=now_ms - _AUDIT_MS)
        return replace(self._report(table, report), deleted=deleted, orphans=orphans, expired=expired)

    def finish_deletions(self, table: str, *, by: Caller) -> tuple[str, ...]:
        """Delete the files that no broker reads any more; the segments they were of."""
        state = self._catalog.load(table)
        # The announcements are read after the state: who comes later has read it, too.
        epochs = [broker.epoch for broker in self._catalog.broker_epochs(table).values()]
        deleted: list[str] = []
        for pending in ready_deletions(state, epochs):
            for path in pending.files:
                self._retire(path, pending)
            self._let_go(table, (), pending.files, by=by)
            for at in range(0, len(pending.segments), _BATCH):
                deleted += self._delete_batch(table, pending, pending.segments[at : at + _BATCH], by=by)
        return tuple(deleted)

    def _delete_batch(
        self, table: str, pending: PendingDeletion, names: Sequence[str], *, by: Caller
    ) -> tuple[str, ...]:
        known = self._catalog.segments(table, names)
        # A name that was registered again has left this deletion, and its metadata tells of a new
        # file: the look must come after the metadata was read.
        waiting = _still_waiting(self._catalog.load(table), pending)
        going = [name for name in names if name in waiting]
        for name in going:
            self._retire_segment(table, known.get(name), pending)
        return self._let_go(table, going, (), by=by)

    def remove_orphans(self, table: str) -> tuple[str, ...]:
        """Delete old files that no record names."""
        limit = self._clock.now_ms() - self._orphan_ms
        old = [file.path for file in self._deep_store.files(table) if file.modified_ms < limit]
        if not old:
            return ()
        orphans = self._claimed(table, self._orphans_among(table, old)[:_ORPHANS])
        for path in orphans or ():
            kept_until = self._clock.now_ms() + self._catalog.table(table).deleted_retention_ms
            self._deep_store.retire(path, until_ms=kept_until)
        if orphans:
            log.warning("push.orphans_removed", extra={"table": table, "files": len(orphans)})
        return orphans or ()

    def discard(self, table: str, paths: Sequence[str]) -> tuple[str, ...]:
        """Delete files that somebody built and did not register; one that a record names stays."""
        for path in paths:
            if not self._is_ours(table, path) or segment_of_file(path) is None:
                raise InvalidRequest("not the file of a segment of this table", file=path, code="NOT_A_FILE")
        removed: list[str] = []
        for at in range(0, len(paths), _DISCARDED):
            batch = paths[at : at + _DISCARDED]
            attempts = (self._claimed(table, self._orphans_among(table, batch)) for _ in range(_SCANS))
            # Whatever others hold up for so long is left to the scan for orphans.
            for path in next((found for found in attempts if found is not None), ()):
                self._deep_store.retire(path, until_ms=None)
                removed.append(path)
        return tuple(removed)

    def _claimed(self, table: str, candidates: Sequence[str]) -> tuple[str, ...] | None:
        """Those of the files that nothing names and nothing will; None if somebody else was faster.

        What an upload registers from here on either has a newer file, or
        fails at the fence and finds its file among the doomed.
        """
        if not candidates:
            return ()
        if not self._fenced(table, candidates):
            return None
        # Between the look and the fence a file may have been registered.
        return tuple(self._orphans_among(table, candidates))

    def empty_deleted_areas(self) -> int:
        """Of all tables, those included that are gone and that nobody else looks after."""
        return sum(map(self.empty_deleted_area, self._deep_store.tables_with_deleted_files()))

    def empty_deleted_area(self, table: str) -> int:
        expired = self._deep_store.expired(raw_name(table), now_ms=self._clock.now_ms())
        self._deep_store.remove_deleted(expired)
        return len(expired)

    def delete_table(
        self, table: str, *, retention_ms: int | None, wait: Callable[[], bool] = lambda: False
    ) -> None:
        """Take the table away from queries, then its files, then its records. Repeating it continues.

        `wait` is called while brokers read the table, as long as it says that there is time.
        """
        kept_ms = self._kept_ms(table, retention_ms)
        self._catalog.begin_delete(table, now_ms=self._clock.now_ms())
        while self._catalog.broker_epochs(table) and wait():
            pass
        self.finish_table_deletion(table, kept_ms=kept_ms)

    def finish_table_deletion(self, table: str, *, kept_ms: int = 7 * DAY_MS) -> None:
        """Delete what is left of a table whose deletion has begun."""
        if self._catalog.broker_epochs(table):
            raise Conflict(
                "brokers still read the table",
                table=table,
                code="TABLE_IN_USE",
                hint="queries no longer find it; repeat the call, or let retention finish",
            )
        # Listed before the look: what a table that was created since has is not in the list.
        files = [file.path for file in self._deep_store.files(table)]
        if not self._catalog.is_being_deleted(table):
            return
        until_ms = self._clock.now_ms() + kept_ms if kept_ms > 0 else None
        for path in files:
            self._deep_store.retire(path, until_ms=until_ms)
        self._deep_store.remove_runs(table, before_ms=self._clock.now_ms())
        self._catalog.finish_delete(table)

    def _kept_ms(self, table: str, retention_ms: int | None) -> int:
        if retention_ms is not None:
            return retention_ms
        try:
            return self._catalog.table(table).deleted_retention_ms
        except TableNotFound:
            return 7 * DAY_MS

    def _decided(self, table: str, *, by: Caller, dry_run: bool) -> "_Planned":
        planned = _Planned()

        def decide(state: TableState) -> Step:
            plan = plan_retention(
                state,
                now_ms=self._clock.now_ms(),
                rules=self._rules,
                known=self._catalog.all_segments(table),
            )
            planned.reasons = plan.reasons
            return Step(decision=plan.decision, operation="retention" if plan.reasons else "")

        done = self._transactions.run(table, decide, by=by, dry_run=dry_run)
        planned.changes = done.changes
        planned.after = done.after
        return planned

    def _report(self, table: str, planned: "_Planned") -> RetentionReport:
        assert planned.changes is not None, "a plan was made"
        assert planned.after is not None, "a plan was made"
        waiting = [name for pending in planned.after.push.deletions for name in pending.segments]
        return RetentionReport(
            table=table,
            changes=replace(planned.changes, reasons=planned.reasons),
            waiting=tuple(waiting),
        )

    def _retire_segment(self, table: str, segment: Segment | None, pending: PendingDeletion) -> None:
        if segment is not None and self._is_ours(table, segment.uri):
            self._retire(segment.uri, pending)

    def _retire(self, path: str, pending: PendingDeletion) -> None:
        kept_ms = pending.retention_ms
        self._deep_store.retire(path, until_ms=pending.since_ms + kept_ms if kept_ms > 0 else None)

    def _let_go(
        self,
        table: str,
        names: Sequence[str],
        files: Sequence[str],
        *,
        by: Caller,
    ) -> tuple[str, ...]:
        """Write that the files are gone; the names that were still to be deleted.

        A name that was registered again meanwhile has left the list, and its
        metadata stays.
        """
        gone: list[str] = []

        def decide(state: TableState) -> Step:
            listed = {name for pending in state.push.deletions for name in pending.segments}
            gone[:] = [name for name in names if name in listed]
            after = without_deletions(state, names=frozenset(gone), files=frozenset(files))
            if after == state:
                return unchanged(state)
            forgotten = [name for name in gone if name not in state.segments]
            return Step(decision=Decision(after=after), forgotten=forgotten)

        self._transactions.run(table, decide, by=by)
        return tuple(gone)

    def _orphans_among(self, table: str, paths: Iterable[str]) -> list[str]:
        named = {segment.uri for segment in self._catalog.all_segments(table).values()}
        state = self._catalog.load(table)
        named.update(path for pending in state.push.deletions for path in pending.files)
        return [path for path in paths if path not in named]

    def _fenced(self, table: str, doomed: Sequence[str]) -> bool:
        """Change the scan's record, so that uploads that are under way put their bytes again.

        It names the doomed files, and those that an earlier scan named as long
        as they exist: whoever made it may still be about to delete them.
        """
        path = scan_path(table)
        found = self._catalog.metastore.read(path)
        before = frozenset() if found is None else doomed_files(found.data).difference(doomed)
        left = [file for file in sorted(before) if self._deep_store.stat(file) is not None]
        content = msgspec.json.encode({"at_ms": self._clock.now_ms(), "doomed": [*doomed, *left]})
        change = Create(path, content) if found is None else Replace(path, content, found.version)
        try:
            self._catalog.metastore.write([change])
        except LineageChanged:
            return False  # Somebody else is scanning.
        return True

    def _is_ours(self, table: str, uri: str) -> bool:
        """Whether the deep store holds the file; one that was pushed by address is somebody else's."""
        return "://" not in uri and uri.startswith(f"{raw_name(table)}/")


def _still_waiting(state: TableState, pending: PendingDeletion) -> frozenset[str]:
    same = (each for each in state.push.deletions if each.epoch == pending.epoch)
    return frozenset(name for each in same for name in each.segments if each.since_ms == pending.since_ms)


class _Planned:
    def __init__(self) -> None:
        self.reasons: tuple[str, ...] = ()
        self.changes: Changes | None = None
        self.after: TableState | None = None
