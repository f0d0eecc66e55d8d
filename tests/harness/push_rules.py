"""A push table for tests of the pure rules: calls change it in place, refusals leave it alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pytest

from holdfast.config.push import PushTable
from holdfast.config.push_rules import Rules
from holdfast.config.values import HOUR_MS
from holdfast.errors import HoldfastError
from holdfast.model.lineage import EntryState, Lineage, visible
from holdfast.model.segment import Segment
from holdfast.push.calls import (
    Caller,
    RollbackTarget,
    StartRequest,
    UploadOptions,
)
from holdfast.push.replacement import delete, end, revert, start
from holdfast.push.replacement.checks import lease_expires_at_ms
from holdfast.push.replacement.decisions import Decision, changes
from holdfast.push.replacement.snapshots import snapshots
from holdfast.push.retention import decide as retention
from holdfast.push.state.table_state import PushState, TableState
from holdfast.push.uploads import decide as uploads

TABLE = "orders_OFFLINE"
SOMEBODY = Caller(actor="ann", operator=False)
OPERATOR = Caller(actor="op")
START_MS = 1_700_000_000_000

REFRESH = PushTable(table=TABLE, refresh=True, consistent_push=True)
PLAIN = PushTable(table=TABLE, refresh=True)
APPEND = PushTable(table=TABLE, replaced_retention_ms=4 * HOUR_MS)


@dataclass
class PureTable:
    """One table without any store. `now` moves only when it is told to."""

    config: PushTable = PLAIN
    rules: Rules = field(default_factory=Rules)
    now: int = START_MS
    brokers: tuple[int, ...] = ()
    files: dict[str, Segment] = field(default_factory=dict)
    disk: set[str] = field(default_factory=set)
    uploads: int = 0
    started: int = 0

    def __post_init__(self) -> None:
        self.state = TableState(
            table=TABLE,
            config=self.config,
            segments=frozenset(),
            lineage=Lineage(),
            push=PushState(),
            versions={},
        )

    # What is there

    @property
    def seen(self) -> set[str]:
        return set(visible(self.state.segments, self.state.lineage))

    @property
    def all(self) -> set[str]:
        return set(self.state.segments)

    @property
    def epoch(self) -> int:
        return self.state.push.epoch

    def entry(self, entry_id: str):
        return self.state.lineage.entry(entry_id)

    def state_of(self, entry_id: str) -> EntryState | None:
        entry = self.entry(entry_id)
        return entry.state if entry else None

    def snapshots(self):
        return snapshots(self.state)

    # What is done

    def start(
        self,
        sources: str = "",
        targets: str = "",
        *,
        by: Caller = OPERATOR,
        lease: str = "",
        **options: object,
    ) -> str:
        self.started += 1
        entry_id = f"e{self.started}"
        request = StartRequest(
            segments_from=tuple(sources.split()), segments_to=tuple(targets.split()), **options
        )
        self._apply(
            start.start(
                self.state,
                request,
                entry_id=entry_id,
                now_ms=self.now,
                by=by,
                rules=self.rules,
                lease=lease,
            )
        )
        return entry_id

    def end(self, entry_id: str, chosen: str = "", *, by: Caller = OPERATOR, **options: object) -> Decision:
        return self._apply(
            end.end(
                self.state,
                entry_id,
                now_ms=self.now,
                by=by,
                rules=self.rules,
                segments_to=tuple(chosen.split()),
                **options,
            )
        )

    def revert(self, entry_id: str, *, force: bool = False, by: Caller = OPERATOR) -> Decision:
        return self._apply(
            revert.revert(self.state, entry_id, force=force, now_ms=self.now, by=by, rules=self.rules)
        )

    def rollback(self, *, by: Caller = OPERATOR, **target: object) -> Decision:
        return self._apply(
            revert.rollback(self.state, RollbackTarget(**target), now_ms=self.now, by=by, rules=self.rules)
        )

    def redo(self, entry_id: str, *, by: Caller = OPERATOR) -> Decision:
        return self._apply(revert.redo(self.state, entry_id, now_ms=self.now, by=by, rules=self.rules))

    def delete(self, names: str) -> Decision:
        return self._apply(delete.delete(self.state, names.split(), now_ms=self.now, rules=self.rules))

    def upload(
        self, names: str, *, crc: int = 1, end_ms: int | None = None, lease: str = "", **options: object
    ) -> Decision:
        wanted = names.split()
        uploads.check_upload(
            self.state,
            dict.fromkeys(wanted, crc),
            self.files,
            options=UploadOptions(**options),
            rules=self.rules,
            lease=lease,
        )
        added = {name: self._segment(name, crc, end_ms) for name in wanted}
        decision = uploads.register_segments(self.state, added, self.files, now_ms=self.now)
        self.files |= added
        self.disk.update(segment.uri for segment in added.values())
        return self._apply(decision)

    def pin(self, epoch: int, *, until_ms: int) -> None:
        pins = MappingProxyType({**self.state.push.pins, epoch: until_ms})
        self.state = replace(self.state, push=replace(self.state.push, pins=pins))

    def take_out(self, *names: str) -> None:
        """As if somebody had deleted them past every rule."""
        self.state = replace(self.state, segments=self.state.segments - set(names))

    def go_offline(self, *names: str) -> None:
        self.state = replace(self.state, offline=frozenset(names))

    def push(self, targets: str, *, force: bool = True, **options: object) -> str:
        """A whole push: everything that is seen is replaced."""
        entry_id = self.start(" ".join(sorted(self.seen)), targets, force=force, **options)
        self.upload(targets)
        self.end(entry_id)
        return entry_id

    def retention(self, *, after_ms: int = 0) -> tuple[str, ...]:
        """One pass, as the executor makes it; why it did what it did."""
        self.now += after_ms
        for pending in retention.ready_deletions(self.state, self.brokers):
            self._delete_files(pending.segments)
            self.disk.difference_update(pending.files)
            self.state = retention.without_deletions(
                self.state, names=frozenset(pending.segments), files=frozenset(pending.files)
            )
        plan = retention.plan_retention(self.state, now_ms=self.now, rules=self.rules, known=self.files)
        self._apply(plan.decision)
        return plan.reasons

    def lease_ends_in(self, entry_id: str) -> int:
        return (lease_expires_at_ms(self.state, entry_id) or 0) - self.now

    def what_changes(self, decision: Decision):
        return changes(self.state, decision)

    def _segment(self, name: str, crc: int, end_ms: int | None) -> Segment:
        known = self.files.get(name)
        if known is not None and known.crc == crc and name in self.state.segments:
            return known
        self.uploads += 1
        return Segment(
            name=name, crc=crc, docs=1, size_bytes=100, uri=f"{name}__{self.uploads}", end_ms=end_ms
        )

    def _delete_files(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.state.segments and name in self.files:
                self.disk.discard(self.files.pop(name).uri)

    def _apply(self, decision: Decision) -> Decision:
        assert decision.after.push.epoch >= self.state.push.epoch, "an epoch never falls"
        if visible(decision.after.segments, decision.after.lineage) != self.seen:
            assert decision.after.push.epoch > self.state.push.epoch, "a change of what is seen has an epoch"
        self.state = decision.after
        return decision


def code_of(error: BaseException) -> object:
    return getattr(error, "facts", {}).get("code")


def table_with(*names: str, config: PushTable = PLAIN, rules: Rules | None = None) -> PureTable:
    table = PureTable(config=config, rules=rules or Rules())
    if names:
        table.upload(" ".join(names))
    return table


def refused(
    code: str, call: Callable[..., object], *arguments: object, table: PureTable, **options: object
) -> HoldfastError:
    """The call fails with this code and leaves the table exactly as it was (L10)."""
    before = table.state
    with pytest.raises(HoldfastError) as caught:
        call(*arguments, **options)
    assert caught.value.facts.get("code") == code, caught.value
    assert table.state is before
    return caught.value
