"""Upkeep: carries out what retention decides, examines tables and mends them, and deletes whole ones.

Every step may be the last: files are removed after the records allow it, the
metadata of a file after the file, and the next pass continues.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.clock import Clock
from holdfast.config.push import raw_name
from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, HoldfastError, TableNotFound
from holdfast.model.segment import Segment
from holdfast.push.audit import trim_audit
from holdfast.push.calls import (
    Caller,
    Finding,
    RetentionReport,
)
from holdfast.push.refused_calls import trim_refused_calls
from holdfast.push.replacement.decisions import Decision
from holdfast.push.retention.decide import DAY_MS, plan_retention, ready_deletions, without_deletions
from holdfast.push.retention.doctor import examine, repair
from holdfast.push.retention.orphans import Orphans
from holdfast.push.segments.deep_store import DeepStore, is_in_deep_store
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.table_state import PendingDeletion, TableState
from holdfast.push.state.transactions import Step, Transactions, no_change
from holdfast.push.uploads.locks import trim_upload_locks

log = logging.getLogger(__name__)

_BATCH = 500
"""Segments forgotten in one write: a ZooKeeper packet holds several thousand paths."""
_AUDIT_RECORDS = 10_000
_AUDIT_MS = 365 * DAY_MS
_LEADER = "retention"
_SERVICE = Caller(actor="holdfast")


class Upkeep:
    def __init__(
        self,
        catalog: Catalog,
        deep_store: DeepStore,
        transactions: Transactions,
        clock: Clock,
        rules: Rules,
        *,
        orphans: Orphans,
    ) -> None:
        self._catalog = catalog
        self._deep_store = deep_store
        self._transactions = transactions
        self._clock = clock
        self._rules = rules
        self._orphans = orphans
        self._owner = clock.unique()

    def run_retention(self, table: str, *, dry_run: bool = False, by: Caller = _SERVICE) -> RetentionReport:
        """One pass over a table: finish earlier deletions, decide new ones, look for orphans."""
        if dry_run:
            return self._plan_and_save(table, by=by, dry_run=True)
        deleted = self.finish_deletions(table, by=by)
        report = self._plan_and_save(table, by=by, dry_run=False)
        orphans = self._orphans.remove(table)
        expired = self.empty_deleted_area(table)
        self._orphans.remove_runs(table)
        oldest_ms = self._clock.now_ms() - _AUDIT_MS
        trim_audit(self._catalog.metastore, table, keep=_AUDIT_RECORDS, oldest_ms=oldest_ms)
        trim_upload_locks(self._catalog.metastore, table, now_ms=self._clock.now_ms())
        return replace(report, deleted=deleted, orphans=orphans, expired=expired)

    def run_retention_everywhere(self, *, by: Caller = _SERVICE) -> tuple[RetentionReport, ...]:
        """One pass over every table, only on the controller that leads; the others return at once."""
        leads = self._catalog.metastore.claim(_LEADER, self._owner)
        return self.run_retention_now(by=by) if leads else ()

    def run_retention_now(self, *, by: Caller = _SERVICE) -> tuple[RetentionReport, ...]:
        """One pass over every table, also if another controller leads: two at a time only cost attempts."""
        reports = tuple(report for table in self._catalog.tables() for report in self._pass_over(table, by))
        self.empty_deleted_areas()
        self._deep_store.sweep_leftovers()
        trim_refused_calls(self._catalog.metastore, oldest_ms=self._clock.now_ms() - _AUDIT_MS)
        return reports

    def finish_deletions(self, table: str, *, by: Caller = _SERVICE) -> tuple[str, ...]:
        """Delete the files that no broker reads any more, cheaply if there are none; whose they were."""
        state = self._catalog.load(table)
        # The announcements are read after the state: who comes later has read it, too.
        epochs = [broker.epoch for broker in self._catalog.broker_epochs(table).values()]
        deleted: list[str] = []
        for pending in ready_deletions(state, epochs):
            for path in pending.files:
                self._retire(path, pending)
            self._record_deletion(table, (), pending.files, by=by)
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
        return self._record_deletion(table, going, (), by=by)

    def doctor(self, table: str, *, fix: bool = False, by: Caller) -> tuple[Finding, ...]:
        """What is wrong with a table; with `fix`, mend what can be mended without a decision."""
        known = self._catalog.all_segments(table)
        state = self._catalog.load(table)
        files = {file.path: file.size for file in self._deep_store.files(table)}
        found = examine(state, known, files, metastore=self._catalog.metastore)
        if fix and any(finding.is_fixable for finding in found):

            def decide(now: TableState) -> Step:
                mended = repair(now, self._catalog.all_segments(table), now_ms=self._clock.now_ms())
                return Step(decision=mended, operation="doctor")

            self._transactions.run(table, decide, by=by)
        return found

    def empty_deleted_areas(self) -> int:
        """Of all tables, those included that are gone."""
        return sum(map(self.empty_deleted_area, self._deep_store.tables_with_deleted_files()))

    def empty_deleted_area(self, table: str) -> int:
        expired = self._deep_store.list_expired(raw_name(table), now_ms=self._clock.now_ms())
        self._deep_store.remove_deleted(expired)
        return len(expired)

    def delete_table(
        self, table: str, *, retention_ms: int | None, wait: Callable[[], bool] = lambda: False
    ) -> None:
        """Take the table away from queries, then its files, then its records. Repeating it continues.

        `wait` is called while brokers read the table, as long as it answers that there is time.
        """
        kept_ms = self._retention_ms_of(table, retention_ms)
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
        trim_upload_locks(self._catalog.metastore, table, now_ms=self._clock.now_ms())
        self._catalog.finish_delete(table)

    def _pass_over(self, table: str, by: Caller) -> list[RetentionReport]:
        """A table that cannot be read must not keep the others waiting."""
        try:
            return [self.run_retention(table, by=by)]
        except TableNotFound:
            return self._finish_delete(table)
        except HoldfastError as error:
            _log_failed(table, error)
            return []

    def _finish_delete(self, table: str) -> list[RetentionReport]:
        try:
            self.finish_table_deletion(table)
        except HoldfastError as error:
            _log_failed(table, error)
        return []

    def _retention_ms_of(self, table: str, retention_ms: int | None) -> int:
        if retention_ms is not None:
            return retention_ms
        try:
            return self._catalog.table(table).deleted_retention_ms
        except TableNotFound:
            return 7 * DAY_MS

    def _plan_and_save(self, table: str, *, by: Caller, dry_run: bool) -> RetentionReport:
        reasons: tuple[str, ...] = ()

        def decide(state: TableState) -> Step:
            nonlocal reasons
            known = self._catalog.all_segments(table)
            plan = plan_retention(state, now_ms=self._clock.now_ms(), rules=self._rules, known=known)
            reasons = plan.reasons
            return Step(decision=plan.decision, operation="retention" if plan.reasons else "")

        done = self._transactions.run(table, decide, by=by, dry_run=dry_run)
        return RetentionReport(
            table=table,
            changes=replace(done.changes, reasons=reasons),
            waiting=tuple(name for pending in done.after.push.deletions for name in pending.segments),
        )

    def _retire_segment(self, table: str, segment: Segment | None, pending: PendingDeletion) -> None:
        if segment is not None and is_in_deep_store(table, segment.uri):
            self._retire(segment.uri, pending)

    def _retire(self, path: str, pending: PendingDeletion) -> None:
        kept_ms = pending.retention_ms
        self._deep_store.retire(path, until_ms=pending.since_ms + kept_ms if kept_ms > 0 else None)

    def _record_deletion(
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
                return no_change(state)
            forgotten = [name for name in gone if name not in state.segments]
            return Step(decision=Decision(after=after), forgotten=forgotten)

        self._transactions.run(table, decide, by=by)
        return tuple(gone)


def _still_waiting(state: TableState, pending: PendingDeletion) -> frozenset[str]:
    same = (each for each in state.push.deletions if each.epoch == pending.epoch)
    return frozenset(name for each in same for name in each.segments if each.since_ms == pending.since_ms)


def _log_failed(table: str, error: HoldfastError) -> None:
    log.warning("push.retention_failed", extra={"table": table, "cause": str(error)})
