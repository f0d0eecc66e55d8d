"""The controller: the calls that replace segments, and a door to all others of the push service.

It decides nothing itself: the rules do, on the state that the transaction has
read, and the transaction repeats them when another writer was faster. Any
number of controllers may run on one metastore.
"""

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from holdfast.clock import Clock
from holdfast.config.gates import Gate
from holdfast.config.push import PushTable, parse_table
from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, InvalidRequest, Refused
from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.push.calls import (
    Caller,
    Changes,
    GateReport,
    Preflight,
    PublishResult,
    RollbackTarget,
    Started,
    StartRequest,
    UploadOptions,
)
from holdfast.push.ingestion.rules import check_config
from holdfast.push.replacement.checks import (
    check_lease,
    check_not_emptied,
    entry_reverted,
    lease_expires_at_ms,
    no_such_entry,
)
from holdfast.push.replacement.decisions import Decision
from holdfast.push.replacement.delete import delete
from holdfast.push.replacement.end import end
from holdfast.push.replacement.gates import Ask
from holdfast.push.replacement.parts import check_inside, check_part, segments_in
from holdfast.push.replacement.quota import check_preflight, preflight
from holdfast.push.replacement.revert import redo, revert, rollback
from holdfast.push.replacement.snapshots import Snapshot, snapshots
from holdfast.push.replacement.start import start
from holdfast.push.retention.orphans import Orphans
from holdfast.push.retention.upkeep import Upkeep
from holdfast.push.segments.deep_store import DeepStore
from holdfast.push.segments.names import stable_names
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.table_state import TableState, digest_of
from holdfast.push.state.transactions import Done, Step, Transactions, no_change, previous_answer
from holdfast.push.tables import Tables
from holdfast.push.uploads.archives import ArchiveLimits
from holdfast.push.uploads.inspection.inspect import inspect
from holdfast.push.uploads.inspection.pool import Inspect
from holdfast.push.uploads.receive import Fetch, Uploads
from holdfast.push.uploads.register import (
    Registrar,
    payload_of_segment,
)
from holdfast.push.validation import InTurn, Validation, at_once
from holdfast.push.views import Views

_POLL_MS = 50
_SWITCHING_OFF = "consistent push is switched off"
_COPIES = 500
"""Segments registered in one write; a ZooKeeper packet holds more than a thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    rules: Rules = field(default_factory=Rules)
    archive_limits: ArchiveLimits = field(default_factory=ArchiveLimits)
    orphan_ms: int = 3 * 24 * 3_600_000
    """How old a file must be that no record names before it is removed."""


class Controller:
    """All methods take the typed table name (`orders_OFFLINE`)."""

    def __init__(
        self,
        catalog: Catalog,
        deep_store: DeepStore,
        clock: Clock,
        *,
        settings: ControllerSettings | None = None,
        ask: Callable[[str], Ask] | None = None,
        inspect: Inspect = inspect,
        fetch: Fetch | None = None,
        canonical_uri: Callable[[str], str] | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """`ask` gives, for a table, what answers the gates' questions; without it there are no gates.

        `inspect` finds out what an uploaded file holds, in this process unless another one
        is given. `fetch` copies from an address; `canonical_uri` gives the one spelling of an
        address that queries may read, or refuses it. Without it they read the deep
        store only, and what is elsewhere is copied there.
        """
        settings = ControllerSettings() if settings is None else settings
        self._catalog = catalog
        self._clock = clock
        self._rules = settings.rules
        self._wait = wait
        self._transactions = Transactions(catalog, clock, wait=wait)
        self._validation = Validation(catalog, self._transactions, ask)
        self._registrar = Registrar(catalog, deep_store, self._transactions, clock, self._rules)
        self.uploads = Uploads(
            catalog,
            deep_store,
            self._registrar,
            clock,
            limits=settings.archive_limits,
            inspect=inspect,
            fetch=fetch,
            canonical_uri=canonical_uri,
        )
        self.views = Views(catalog, deep_store)
        self.orphans = Orphans(catalog, deep_store, clock, orphan_ms=settings.orphan_ms)
        self.upkeep = Upkeep(
            catalog,
            deep_store,
            self._transactions,
            clock,
            self._rules,
            orphans=self.orphans,
        )
        self.tables = Tables(catalog, self._transactions, self.upkeep, wait=wait)

    def set_consistent_push(self, table: str, *, enabled: bool, by: Caller) -> PublishResult | None:
        """Switch consistent push on or off without rebuilding the table.

        Off: a last push gives the segments names that plain pushes overwrite,
        and its end changes the setting. A crash in between leaves that push
        open; the next call begins again.
        """
        state = self._catalog.load(table)
        if state.config.consistent_push == enabled:
            return None
        if enabled:
            if not state.config.refresh:
                raise Refused(
                    "consistent push needs a table whose pushes deliver everything",
                    table=table,
                    code="NOT_A_REFRESH_TABLE",
                    hint="set segmentIngestionType to REFRESH",
                )
            self._save_flag(table, enabled=True, by=by)
            return None
        return self._switch_off(table, by=by)

    def update_table(self, config: Mapping[str, Any], *, by: Caller) -> PushTable:
        """Change the configuration of a table.

        If consistent push is no longer asked for, segments get lasting names
        first, or the next plain push would add its rows to theirs.
        """
        wanted = parse_table(config)
        check_config(config)
        if self._catalog.table(wanted.table).consistent_push and not wanted.consistent_push:
            self.set_consistent_push(wanted.table, enabled=False, by=by)
        return self.tables.update(config, by=by)

    # The protocol

    def start_replace(
        self, table: str, request: StartRequest, *, dry_run: bool = False, by: Caller
    ) -> Started:
        """Open a push. A repeat with the same key gives the same entry."""
        entry_id = str(uuid.UUID(hex=self._clock.unique()))
        token = self._clock.unique() if request.lease_ms else ""
        asked = repr(request)
        report: list[Preflight] = []

        def decide(state: TableState) -> Step:
            before = previous_answer(state, by, asked)
            if before is not None:
                return no_change(state, before)
            decision = start(
                state,
                self._find_sources(state, request),
                entry_id=entry_id,
                now_ms=self._clock.now_ms(),
                by=by,
                rules=self._rules,
                lease=digest_of(token) if token else "",
            )
            if request.expected_bytes is not None:
                report[:] = [self._preflight(state, request.expected_bytes, freed=decision.removed)]
                check_preflight(report[0])
            return Step(decision=decision, operation="start", request=asked)

        done = self._transactions.run(table, decide, by=by, dry_run=dry_run)
        opened = done.decision.entry_ids[0]
        entry = done.after.lineage.entry(opened)
        return Started(
            entry_id=opened,
            segments_from=() if entry is None else entry.segments_from,
            changes=self._with_bytes_freed(done),
            lease_token="" if done.already else token,
            lease_expires_at_ms=lease_expires_at_ms(done.after, opened),
            preflight=report[0] if report else None,
        )

    def end_replace(
        self,
        table: str,
        entry_id: str,
        *,
        segments_to: Sequence[str] = (),
        lease_token: str = "",
        override_gates: bool = False,
        cleanup: bool = False,
        online_within_ms: int = 0,
        brokers_within_ms: int = 0,
        dry_run: bool = False,
        by: Caller,
        in_turn: InTurn = at_once,
    ) -> PublishResult:
        """Publish a push. Repeating it is safe; so is waiting, which holds nothing up."""
        decide = _OnlyIfUnchanged(
            entry_id,
            partial(
                self._decide_end,
                entry_id=entry_id,
                segments_to=tuple(segments_to),
                lease=digest_of(lease_token) if lease_token else "",
                override_gates=override_gates,
                by=by,
            ),
        )
        if not dry_run:
            self._validation.validate_if_needed(table, entry_id, segments_to, by=by, in_turn=in_turn)
        done = self._until_online(table, decide, within_ms=online_within_ms, by=by, dry_run=dry_run)
        switched = self._publish_result(done)
        if dry_run:
            return switched
        switched = self._with_brokers(table, switched, within_ms=brokers_within_ms)
        if cleanup:
            self.upkeep.run_retention(table, by=by)
        return switched

    def revert_replace(
        self,
        table: str,
        entry_id: str,
        *,
        force: bool = False,
        only_open: bool = False,
        may_empty: bool = True,
        brokers_within_ms: int = 0,
        dry_run: bool = False,
        by: Caller,
    ) -> PublishResult:
        """Take a push back. Repeating it is safe; so is waiting for the brokers to show what was before."""
        decide = partial(self._decide_revert, entry_id=entry_id, force=force, only_open=only_open, by=by)
        return self._go_back(
            table, decide, may_empty=may_empty, brokers_within_ms=brokers_within_ms, dry_run=dry_run, by=by
        )

    def rollback(
        self,
        table: str,
        target: RollbackTarget,
        *,
        may_empty: bool = True,
        brokers_within_ms: int = 0,
        dry_run: bool = False,
        by: Caller,
    ) -> PublishResult:
        """Go back to a retained snapshot. With a key, a repeat does not go back once more."""
        asked = repr(target)

        def decide(state: TableState) -> Step:
            before = previous_answer(state, by, asked)
            if before is not None:
                return no_change(state, before)
            decision = rollback(state, target, now_ms=self._clock.now_ms(), by=by, rules=self._rules)
            return Step(decision=decision, operation="rollback", request=asked)

        return self._go_back(
            table, decide, may_empty=may_empty, brokers_within_ms=brokers_within_ms, dry_run=dry_run, by=by
        )

    def redo(
        self,
        table: str,
        entry_id: str,
        *,
        may_empty: bool = True,
        brokers_within_ms: int = 0,
        dry_run: bool = False,
        by: Caller,
    ) -> PublishResult:
        """Publish again what was taken back. Repeating it is safe."""

        def decide(state: TableState) -> Step:
            decision = redo(state, entry_id, now_ms=self._clock.now_ms(), by=by, rules=self._rules)
            return _step(decision, "redo")

        return self._go_back(
            table, decide, may_empty=may_empty, brokers_within_ms=brokers_within_ms, dry_run=dry_run, by=by
        )

    def _go_back(
        self,
        table: str,
        decide: Callable[[TableState], Step],
        *,
        may_empty: bool,
        brokers_within_ms: int,
        dry_run: bool,
        by: Caller,
    ) -> PublishResult:
        """Take the step, unless it must leave rows and does not, and wait for the brokers to show it."""

        def decide_with_check(state: TableState) -> Step:
            step = decide(state)
            if not may_empty:
                check_not_emptied(state, step.decision.after)
            return step

        switched = self._publish_result(
            self._transactions.run(table, decide_with_check, by=by, dry_run=dry_run)
        )
        return self._with_brokers(table, switched, within_ms=0 if dry_run else brokers_within_ms)

    def end_group(
        self,
        entries: Mapping[str, str],
        *,
        override_gates: bool = False,
        dry_run: bool = False,
        by: Caller,
        in_turn: InTurn = at_once,
    ) -> dict[str, PublishResult]:
        """End the pushes of several tables in one write: all are published, or none."""
        for table, entry_id in entries.items() if not dry_run else ():
            self._validation.validate_if_needed(table, entry_id, (), by=by, in_turn=in_turn)
        decisions = {
            table: partial(self._decide_end, entry_id=entry_id, override_gates=override_gates, by=by)
            for table, entry_id in entries.items()
        }
        return self._group(decisions, dry_run=dry_run, by=by)

    def revert_group(
        self, entries: Mapping[str, str], *, force: bool = False, dry_run: bool = False, by: Caller
    ) -> dict[str, PublishResult]:
        decisions = {
            table: partial(self._decide_revert, entry_id=entry_id, force=force, by=by)
            for table, entry_id in entries.items()
        }
        return self._group(decisions, dry_run=dry_run, by=by)

    def wait_for_cleanup(self, table: str, names: Collection[str], *, within_ms: int) -> tuple[str, ...]:
        """Wait until the files of segments that left the table are gone; those that are not by then."""
        left = frozenset(names)
        for _ in range(within_ms // _POLL_MS):
            self.upkeep.finish_deletions(table)
            waiting = self._catalog.load(table).push.deletions
            left = left.intersection(name for one in waiting for name in one.segments)
            if not left:
                break
            self._wait(_POLL_MS / 1000)
        return tuple(sorted(left))

    def heartbeat(self, table: str, entry_id: str, *, lease_token: str, by: Caller) -> int:
        """Renew the lease of a push; when it runs out, in milliseconds since the epoch."""

        def decide(state: TableState) -> Step:
            entry = state.lineage.entry(entry_id)
            if entry is None:
                raise no_such_entry(state, entry_id)
            if entry.state is EntryState.REVERTED:
                raise entry_reverted(entry_id)
            details = state.details_of(entry_id)
            if not details.lease_ms:
                raise InvalidRequest("the push asked for no lease", entry=entry_id, code="NO_LEASE")
            check_lease(state, entry_id, digest_of(lease_token))
            renewed = replace(details, renewed_at_ms=self._clock.now_ms())
            return Step(decision=Decision(after=state.with_details(entry_id, renewed)))

        done = self._transactions.run(table, decide, by=by)
        expires = lease_expires_at_ms(done.after, entry_id)
        assert expires is not None, "a lease was renewed"
        return expires

    def validate(
        self, table: str, entry_id: str, gates: Sequence[Gate] | None = None, *, by: Caller
    ) -> GateReport:
        """Evaluate the table's gates and these on what the push would show; its end needs the outcome."""
        return self._validation.validate(table, entry_id, gates, by=by)

    def preflight(self, table: str, *, expected_bytes: int) -> Preflight:
        return self._preflight(self._catalog.load(table), expected_bytes)

    def pin(self, table: str, epoch: int, *, until_ms: int, by: Caller) -> Snapshot:
        """Keep a snapshot, and the way back to it, from retention until then."""
        self._set_pin(table, epoch, until_ms, by=by)
        return next(each for each in self.views.snapshots(table) if each.epoch == epoch)

    def unpin(self, table: str, epoch: int, *, by: Caller) -> None:
        self._set_pin(table, epoch, None, by=by)

    # Segments

    def delete_segments(
        self, table: str, names: Sequence[str], *, retention_ms: int | None = None, by: Caller
    ) -> Changes:
        """Remove segments from the table at once, and their files when no broker reads them."""

        def decide(state: TableState) -> Step:
            decision = delete(
                state,
                tuple(dict.fromkeys(names)),
                now_ms=self._clock.now_ms(),
                rules=self._rules,
                retention_ms=retention_ms,
            )
            return Step(decision=decision, operation="delete segments")

        return self._with_bytes_freed(self._transactions.run(table, decide, by=by))

    def wait_for_brokers(self, table: str, epoch: int, *, within_ms: int) -> dict[str, int]:
        """The epoch each broker has applied, once all have reached this one or the time is over.

        A broker that lives and has not announced an epoch of a new table yet is waited for, too.
        """
        for _ in range(max(1, within_ms // _POLL_MS)):
            applied = {name: each.applied for name, each in self._catalog.broker_epochs(table).items()}
            reached = all(known >= epoch for known in applied.values())
            if reached and (applied or not self._any_broker_lives()):
                break
            self._wait(_POLL_MS / 1000)
        return applied

    def _with_brokers(self, table: str, switched: PublishResult, *, within_ms: int) -> PublishResult:
        """The result with what the brokers have applied; without a time, it does not wait for them."""
        if not within_ms:
            return switched
        return replace(switched, brokers=self.wait_for_brokers(table, switched.epoch, within_ms=within_ms))

    def _any_broker_lives(self) -> bool:
        return any(self._catalog.broker_epochs(table) for table in self._catalog.tables())

    def _decide_end(
        self,
        state: TableState,
        *,
        entry_id: str,
        segments_to: tuple[str, ...] = (),
        lease: str = "",
        override_gates: bool,
        by: Caller,
    ) -> Step:
        decision = end(
            state,
            entry_id,
            now_ms=self._clock.now_ms(),
            by=by,
            rules=self._rules,
            segments_to=segments_to,
            lease=lease,
            override_gates=override_gates,
        )
        part = state.details_of(entry_id).part
        published = decision.after.lineage.entry(entry_id)
        if part is not None and published is not None and not decision.already:
            names = published.segments_to
            check_inside(part, self._catalog.segments(state.table, names), names)
        return _step(decision, "end with gates overridden" if decision.overridden else "end")

    def _find_sources(self, state: TableState, request: StartRequest) -> StartRequest:
        """The request with the segments that lie in its part, of the moment it is decided on."""
        if request.part is None:
            return request
        check_part(request.part)
        known = self._catalog.segments(state.table, state.visible)
        return replace(request, segments_from=segments_in(request.part, known, state.visible))

    def _decide_revert(
        self, state: TableState, *, entry_id: str, force: bool, only_open: bool = False, by: Caller
    ) -> Step:
        decision = revert(
            state,
            entry_id,
            force=force,
            only_open=only_open,
            now_ms=self._clock.now_ms(),
            by=by,
            rules=self._rules,
        )
        return _step(decision, "revert")

    def _group(
        self, decisions: Mapping[str, Callable[[TableState], Step]], *, dry_run: bool, by: Caller
    ) -> dict[str, PublishResult]:
        if not decisions:
            raise InvalidRequest("the group is empty", code="NOTHING_TO_REPLACE")
        done = self._transactions.run_group(decisions, by=by, dry_run=dry_run)
        return {table: self._publish_result(each) for table, each in done.items()}

    def _until_online(
        self, table: str, decide: "_OnlyIfUnchanged", *, within_ms: int, by: Caller, dry_run: bool
    ) -> Done:
        for _ in range(within_ms // _POLL_MS):
            try:
                return self._transactions.run(table, decide, by=by, dry_run=dry_run)
            except Conflict as error:
                if error.facts.get("code") != "TO_NOT_ONLINE" or dry_run:
                    raise
            self._wait(_POLL_MS / 1000)
        return self._transactions.run(table, decide, by=by, dry_run=dry_run)

    def _preflight(self, state: TableState, expected_bytes: int, *, freed: tuple[str, ...] = ()) -> Preflight:
        known = self._catalog.all_segments(state.table)
        return preflight(state, known, incoming_bytes=expected_bytes, freed=freed)

    def _set_pin(self, table: str, epoch: int, until_ms: int | None, *, by: Caller) -> None:
        def decide(state: TableState) -> Step:
            pins = {known: until for known, until in state.push.pins.items() if known != epoch}
            if until_ms is not None:
                if not any(each.epoch == epoch for each in snapshots(state)):
                    raise InvalidRequest(
                        "there is no such snapshot", table=table, epoch=epoch, code="SNAPSHOT_NOT_FOUND"
                    )
                if until_ms <= self._clock.now_ms():
                    raise InvalidRequest(
                        "a pin ends later than now", table=table, until=until_ms, code="PARAMETER_INVALID"
                    )
                pins[epoch] = until_ms
            push = replace(state.push, pins=MappingProxyType(pins))
            return Step(
                decision=Decision(after=replace(state, push=push)),
                operation="pin" if until_ms is not None else "unpin",
                facts={"epoch": str(epoch), "until": str(until_ms)},
            )

        self._transactions.run(table, decide, by=by)

    def _save_flag(self, table: str, *, enabled: bool, by: Caller) -> None:
        def decide(state: TableState) -> Step:
            after = replace(state, config=_with_flag(state.config, enabled=enabled))
            word = "on" if enabled else "off"
            return Step(decision=Decision(after=after), operation=f"consistent push {word}")

        self._transactions.run(table, decide, by=by)

    def _switch_off(self, table: str, *, by: Caller) -> PublishResult:
        state = self._catalog.load(table)
        opened = [entry.id for entry in state.open_entries]
        others = [entry_id for entry_id in opened if state.details_of(entry_id).note != _SWITCHING_OFF]
        if others:
            raise Conflict("a push is open", entry=others[0], code="LEASE_HELD", hint="end or revert it")
        names = stable_names(state.visible)
        if not names:
            self._save_flag(table, enabled=False, by=by)
            return PublishResult(entry_ids=(), changes=Changes(table=table), epoch=state.push.epoch)
        request = StartRequest(
            segments_from=tuple(names),
            segments_to=tuple(names.values()),
            force=bool(opened),
            exclusive=True,
            note=_SWITCHING_OFF,
        )
        plain = replace(by, key="")
        entry_id = self.start_replace(table, request, by=plain).entry_id
        known = self._catalog.segments(table, names)
        copies = [payload_of_segment(known[old], name=new) for old, new in names.items() if old in known]
        for at in range(0, len(copies), _COPIES):
            self._registrar.register(table, copies[at : at + _COPIES], options=UploadOptions(), by=plain)

        def decide(now: TableState) -> Step:
            step = self._decide_end(now, entry_id=entry_id, override_gates=True, by=plain)
            after = step.decision.after
            after = replace(after, config=_with_flag(after.config, enabled=False))
            return Step(decision=replace(step.decision, after=after), operation="consistent push off")

        return self._publish_result(self._transactions.run(table, decide, by=plain))

    def _publish_result(self, done: Done) -> PublishResult:
        return PublishResult(
            entry_ids=done.decision.entry_ids,
            changes=self._with_bytes_freed(done),
            epoch=done.after.push.epoch,
            already=done.already,
            empties=bool(done.before.visible) and not done.after.visible,
        )

    def _with_bytes_freed(self, done: Done) -> Changes:
        """The changes with the bytes that they free."""
        if not done.changes.removed:
            return done.changes
        known = self._catalog.segments(done.before.table, done.changes.removed)
        return replace(done.changes, bytes_freed=sum(each.size_bytes for each in known.values()))


class _OnlyIfUnchanged:
    """Ends an entry only as long as it is the one that was looked at first."""

    def __init__(self, entry_id: str, decide: Callable[[TableState], Step]) -> None:
        self._entry_id = entry_id
        self._decide = decide
        self._seen: LineageEntry | None = None

    def __call__(self, state: TableState) -> Step:
        entry = state.lineage.entry(self._entry_id)
        is_open = entry is not None and entry.state is not EntryState.COMPLETED
        if self._seen is not None and is_open and entry != self._seen:
            raise Conflict(
                "somebody else changed the push meanwhile",
                entry=self._entry_id,
                state=entry.state if entry else "",
                code="ENTRY_CHANGED",
                hint="look at the lineage",
            )
        self._seen = entry
        return self._decide(state)


def _step(decision: Decision, operation: str) -> Step:
    return Step(decision=decision, operation="" if decision.already else operation)


def _with_flag(config: PushTable, *, enabled: bool) -> PushTable:
    """The configuration with consistent push on or off, everything else as it was sent."""
    raw: dict[str, Any] = dict(config.raw)
    ingestion = dict(raw.get("ingestionConfig") or {})
    batch = dict(ingestion.get("batchIngestionConfig") or {})
    batch["consistentDataPush"] = enabled
    ingestion["batchIngestionConfig"] = batch
    raw["ingestionConfig"] = ingestion
    return parse_table(raw)
