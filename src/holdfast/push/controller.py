"""The controller: the calls that replace segments, and a door to all others of the push service.

It decides nothing itself: the rules do, on the state that the transaction has
read, and the transaction repeats them when somebody else was faster. Any number
of controllers may run on one metastore.
"""

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from holdfast.clock import Clock
from holdfast.config.gates import Gate, parse_gates
from holdfast.config.push import PushTable, parse_table
from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, InvalidRequest, Refused
from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.push import replace as replacing
from holdfast.push import reverting
from holdfast.push.archives import ArchiveLimits
from holdfast.push.catalog import Catalog
from holdfast.push.deep_store import DeepStore
from holdfast.push.deletes import delete
from holdfast.push.drafts import digest_of, reverted_entry, unknown_entry
from holdfast.push.gates import Ask, evaluate
from holdfast.push.ingest import Ingest
from holdfast.push.intake import Fetch, Intake
from holdfast.push.leases import check_lease, lease_expires_at_ms
from holdfast.push.orphans import Orphans
from holdfast.push.parts import check_inside, check_part, segments_in
from holdfast.push.payloads import copied_payload
from holdfast.push.quota import check_preflight, preflight
from holdfast.push.reports import (
    Caller,
    Changes,
    GateReport,
    Preflight,
    Started,
    Switched,
    UploadOptions,
)
from holdfast.push.rules import Decision, StartRequest, Target
from holdfast.push.snapshots import Snapshot, details_of, snapshots
from holdfast.push.stable_names import stable_names
from holdfast.push.state import EntryDetails, TableState
from holdfast.push.tables import Tables
from holdfast.push.transactions import Done, Step, Transactions, answered, unchanged
from holdfast.push.upkeep import Upkeep
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
        fetch: Fetch | None = None,
        check_uri: Callable[[str], None] | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """`ask` gives, for a table, what answers the gates' questions; without it there are no gates.

        `fetch` copies from an address, `check_uri` refuses one; without it queries
        read the deep store only, and what is elsewhere is copied there.
        """
        settings = ControllerSettings() if settings is None else settings
        self._catalog = catalog
        self._clock = clock
        self._rules = settings.rules
        self._ask = ask
        self._wait = wait
        self._transactions = Transactions(catalog, clock, wait=wait)
        self._ingest = Ingest(catalog, deep_store, self._transactions, clock, self._rules)
        self.intake = Intake(
            catalog,
            deep_store,
            self._ingest,
            clock,
            limits=settings.archive_limits,
            fetch=fetch,
            check_uri=check_uri,
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

    def set_consistent_push(self, table: str, *, enabled: bool, by: Caller) -> Switched | None:
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
            self._reconfigured(table, enabled=True, by=by)
            return None
        return self._switched_off(table, by=by)

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
            before = answered(state, by, asked)
            if before is not None:
                return unchanged(state, before)
            decision = replacing.start(
                state,
                self._resolved(state, request),
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
            changes=self._sized(done),
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
    ) -> Switched:
        """Publish a push. Repeating it is safe; so is waiting, which holds nothing up."""
        decide = _Unchanging(
            entry_id,
            partial(
                self._ended,
                entry_id=entry_id,
                segments_to=tuple(segments_to),
                lease=digest_of(lease_token) if lease_token else "",
                override_gates=override_gates,
                by=by,
            ),
        )
        done = self._until_online(table, decide, within_ms=online_within_ms, by=by, dry_run=dry_run)
        switched = self._switched(done)
        if dry_run:
            return switched
        if brokers_within_ms:
            brokers = self.wait_for_brokers(table, switched.epoch, within_ms=brokers_within_ms)
            switched = replace(switched, brokers=brokers)
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
        dry_run: bool = False,
        by: Caller,
    ) -> Switched:
        decide = partial(self._reverted, entry_id=entry_id, force=force, only_open=only_open, by=by)
        return self._switched(self._transactions.run(table, decide, by=by, dry_run=dry_run))

    def rollback(self, table: str, target: Target, *, dry_run: bool = False, by: Caller) -> Switched:
        """Go back to a retained snapshot. With a key, a repeat does not go back once more."""
        asked = repr(target)

        def decide(state: TableState) -> Step:
            before = answered(state, by, asked)
            if before is not None:
                return unchanged(state, before)
            decision = reverting.rollback(
                state, target, now_ms=self._clock.now_ms(), by=by, rules=self._rules
            )
            return Step(decision=decision, operation="rollback", request=asked)

        return self._switched(self._transactions.run(table, decide, by=by, dry_run=dry_run))

    def redo(self, table: str, entry_id: str, *, dry_run: bool = False, by: Caller) -> Switched:
        def decide(state: TableState) -> Step:
            decision = reverting.redo(state, entry_id, now_ms=self._clock.now_ms(), by=by, rules=self._rules)
            return _step(decision, "redo")

        return self._switched(self._transactions.run(table, decide, by=by, dry_run=dry_run))

    def end_group(
        self, entries: Mapping[str, str], *, override_gates: bool = False, dry_run: bool = False, by: Caller
    ) -> dict[str, Switched]:
        """End the pushes of several tables in one write: all are published, or none."""
        decisions = {
            table: partial(self._ended, entry_id=entry_id, override_gates=override_gates, by=by)
            for table, entry_id in entries.items()
        }
        return self._group(decisions, dry_run=dry_run, by=by)

    def revert_group(
        self, entries: Mapping[str, str], *, force: bool = False, dry_run: bool = False, by: Caller
    ) -> dict[str, Switched]:
        decisions = {
            table: partial(self._reverted, entry_id=entry_id, force=force, by=by)
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
                raise unknown_entry(state, entry_id)
            if entry.state is EntryState.REVERTED:
                raise reverted_entry(entry_id)
            details = details_of(state, entry_id)
            if not details.lease_ms:
                raise InvalidRequest("the push asked for no lease", entry=entry_id, code="NO_LEASE")
            check_lease(state, entry_id, digest_of(lease_token))
            renewed = replace(details, renewed_at_ms=self._clock.now_ms())
            return Step(decision=Decision(after=_with_details(state, entry_id, renewed)))

        done = self._transactions.run(table, decide, by=by)
        expires = lease_expires_at_ms(done.after, entry_id)
        assert expires is not None, "a lease was renewed"
        return expires

    def validate(
        self, table: str, entry_id: str, gates: Sequence[Gate] | None = None, *, by: Caller
    ) -> GateReport:
        """Evaluate gates on what the push would show, and remember the outcome for its end."""
        if self._ask is None:
            raise Refused("nothing here answers the questions of gates", code="NO_ENGINE")
        state = self._catalog.load(table)
        entry = state.lineage.entry(entry_id)
        if entry is None:
            raise unknown_entry(state, entry_id)
        if entry.state is not EntryState.IN_PROGRESS:
            raise Refused("the push is not open", entry=entry_id, code="ENTRY_NOT_OPEN")
        chosen = parse_gates(state.config.raw.get("gates", [])) if gates is None else tuple(gates)
        hidden = frozenset(entry.segments_to) & state.segments
        # Of a push that replaces a part of the table, the part is what its rows are compared with.
        live = frozenset(entry.segments_from)
        outcomes = evaluate(chosen, hidden=hidden, live=live, ask=self._ask(table))
        looked_at = self._catalog.segments(table, hidden)

        def decide(now: TableState) -> Step:
            if now.lineage.entry(entry_id) != entry or self._catalog.segments(table, hidden) != looked_at:
                raise Conflict(
                    "the push changed while its gates were evaluated",
                    entry=entry_id,
                    code="ENTRY_CHANGED",
                    hint="validate it again",
                )
            judged = replace(details_of(now, entry_id), gates=outcomes, gated=replacing.gate_scope(hidden))
            return Step(
                decision=Decision(after=_with_details(now, entry_id, judged), entry_ids=(entry_id,)),
                operation="validate",
                facts={outcome.name: "passed" if outcome.passed else "failed" for outcome in outcomes},
            )

        self._transactions.run(table, decide, by=by)
        return GateReport(entry_id=entry_id, outcomes=outcomes)

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

        return self._sized(self._transactions.run(table, decide, by=by))

    def wait_for_brokers(self, table: str, epoch: int, *, within_ms: int) -> dict[str, int]:
        """The epoch each broker has applied, once all have reached this one or the time is over.

        A broker that lives and has not said anything about a new table yet is waited for, too.
        """
        for _ in range(max(1, within_ms // _POLL_MS)):
            applied = {name: each.applied for name, each in self._catalog.broker_epochs(table).items()}
            reached = all(known >= epoch for known in applied.values())
            if reached and (applied or not self._any_broker_lives()):
                break
            self._wait(_POLL_MS / 1000)
        return applied

    def _any_broker_lives(self) -> bool:
        return any(self._catalog.broker_epochs(table) for table in self._catalog.tables())

    def _ended(
        self,
        state: TableState,
        *,
        entry_id: str,
        segments_to: tuple[str, ...] = (),
        lease: str = "",
        override_gates: bool,
        by: Caller,
    ) -> Step:
        decision = replacing.end(
            state,
            entry_id,
            now_ms=self._clock.now_ms(),
            by=by,
            rules=self._rules,
            segments_to=segments_to,
            lease=lease,
            override_gates=override_gates,
        )
        part = details_of(state, entry_id).part
        published = decision.after.lineage.entry(entry_id)
        if part is not None and published is not None and not decision.already:
            names = published.segments_to
            check_inside(part, self._catalog.segments(state.table, names), names)
        return _step(decision, "end with gates overridden" if decision.overridden else "end")

    def _resolved(self, state: TableState, request: StartRequest) -> StartRequest:
        """The request with the segments that lie in its part, of the moment it is decided on."""
        if request.part is None:
            return request
        check_part(request.part)
        known = self._catalog.segments(state.table, state.visible)
        return replace(request, segments_from=segments_in(request.part, known, state.visible))

    def _reverted(
        self, state: TableState, *, entry_id: str, force: bool, only_open: bool = False, by: Caller
    ) -> Step:
        decision = reverting.revert(
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
    ) -> dict[str, Switched]:
        if not decisions:
            raise InvalidRequest("the group is empty", code="NOTHING_TO_REPLACE")
        done = self._transactions.run_group(decisions, by=by, dry_run=dry_run)
        return {table: self._switched(each) for table, each in done.items()}

    def _until_online(
        self, table: str, decide: "_Unchanging", *, within_ms: int, by: Caller, dry_run: bool
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
                pins[epoch] = until_ms
            push = replace(state.push, pins=MappingProxyType(pins))
            return Step(
                decision=Decision(after=replace(state, push=push)),
                operation="pin" if until_ms is not None else "unpin",
                facts={"epoch": str(epoch), "until": str(until_ms)},
            )

        self._transactions.run(table, decide, by=by)

    def _reconfigured(self, table: str, *, enabled: bool, by: Caller) -> None:
        def decide(state: TableState) -> Step:
            after = replace(state, config=_with_flag(state.config, enabled=enabled))
            word = "on" if enabled else "off"
            return Step(decision=Decision(after=after), operation=f"consistent push {word}")

        self._transactions.run(table, decide, by=by)

    def _switched_off(self, table: str, *, by: Caller) -> Switched:
        state = self._catalog.load(table)
        opened = [each.id for each in state.lineage.entries if each.state is EntryState.IN_PROGRESS]
        others = [entry_id for entry_id in opened if details_of(state, entry_id).note != _SWITCHING_OFF]
        if others:
            raise Conflict("a push is open", entry=others[0], code="LEASE_HELD", hint="end or revert it")
        names = stable_names(state.visible)
        if not names:
            self._reconfigured(table, enabled=False, by=by)
            return Switched(entry_ids=(), changes=Changes(table=table), epoch=state.push.epoch)
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
        copies = [copied_payload(known[old], name=new) for old, new in names.items() if old in known]
        for at in range(0, len(copies), _COPIES):
            self._ingest.upload(table, copies[at : at + _COPIES], options=UploadOptions(), by=plain)

        def decide(now: TableState) -> Step:
            step = self._ended(now, entry_id=entry_id, override_gates=True, by=plain)
            after = step.decision.after
            after = replace(after, config=_with_flag(after.config, enabled=False))
            return Step(decision=replace(step.decision, after=after), operation="consistent push off")

        return self._switched(self._transactions.run(table, decide, by=plain))

    def _switched(self, done: Done) -> Switched:
        return Switched(
            entry_ids=done.decision.entry_ids,
            changes=self._sized(done),
            epoch=done.after.push.epoch,
            already=done.already,
        )

    def _sized(self, done: Done) -> Changes:
        """The changes with the bytes that they free."""
        if not done.changes.removed:
            return done.changes
        known = self._catalog.segments(done.before.table, done.changes.removed)
        return replace(done.changes, bytes_freed=sum(each.size_bytes for each in known.values()))


class _Unchanging:
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


def _with_details(state: TableState, entry_id: str, details: EntryDetails) -> TableState:
    known = MappingProxyType({**state.push.details, entry_id: details})
    return replace(state, push=replace(state.push, details=known))


def _with_flag(config: PushTable, *, enabled: bool) -> PushTable:
    """The configuration with consistent push on or off, everything else as it was sent."""
    raw: dict[str, Any] = dict(config.raw)
    ingestion = dict(raw.get("ingestionConfig") or {})
    batch = dict(ingestion.get("batchIngestionConfig") or {})
    batch["consistentDataPush"] = enabled
    ingestion["batchIngestionConfig"] = batch
    raw["ingestionConfig"] = ingestion
    return parse_table(raw)
