"""Exports follow the table: each shows what the timeline shows, and is moved before files are deleted.

    state of the export ─► ledger ─► timeline ─► next version, created exclusively ─► ...

The export is read before the table is, so a version that is created shows a
table that is no older than the version before it. Whoever takes commits back
makes sure that there is a version which was computed since; a process that slept
over it finds its own version taken, and looks again.

A step is computed from the table alone. Whoever finds an export that lags
behind does what is left of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from holdfast.config.choices import ExportFormat
from holdfast.config.key_generators import PartitionType
from holdfast.errors import Conflict, SnapshotExpired
from holdfast.exports.delta import advance_delta, read_delta
from holdfast.exports.statistics import Footers
from holdfast.exports.step import NO_INSTANT, ExportedTable, Step
from holdfast.model.instant import InstantTime, moment_of
from holdfast.read.snapshot import table_schema
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import read_current_settings
from holdfast.table.stable_read import read_stable
from holdfast.table.view import View, load_view
from holdfast.table.zone import timeline_zone
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline

_ATTEMPTS = 20
"""Each after the first follows a version that another process made."""


class ExportState(Protocol):
    """What the newest version of an export says."""

    @property
    def instant(self) -> InstantTime: ...
    @property
    def slot(self) -> int: ...
    def paths(self) -> list[str]: ...
    def lacks(self, step: Step) -> bool: ...


S = TypeVar("S", bound=ExportState)


@dataclass(frozen=True, slots=True)
class _Format(Generic[S]):
    read: Callable[[Store], S | None]
    advance: Callable[[Store, ExportedTable, S | None, Step, Footers], S | None]


FORMATS: Mapping[ExportFormat, _Format[Any]] = {ExportFormat.DELTA: _Format(read_delta, advance_delta)}


def follow(table: OpenTable) -> None:
    """Bring the exports to what the timeline shows."""
    _follow(table, fences=False)


def move_before_deletion(table: OpenTable) -> None:
    """As `follow`, before files are deleted that commits had which are not shown any more.

    Afterwards no version can be made that was computed while they were.
    """
    _follow(table, fences=True)


def _follow(table: OpenTable, *, fences: bool) -> None:
    formats = read_current_settings(table).export_formats
    if not formats:
        return
    footers = Footers(table.store)
    for form in formats:
        _follow_one(table, FORMATS[form], footers, fences=fences)


def _follow_one(table: OpenTable, form: _Format[S], footers: Footers, *, fences: bool) -> None:
    needed = table.ledger.read().slot if fences else 0
    for _ in range(_ATTEMPTS):
        state = form.read(table.store)
        if fences and state is not None and state.slot >= needed:
            return
        slot = table.ledger.read().slot
        walk = _Walk(table, form, footers, state, slot, fences=fences)
        if read_stable(table.store, walk.run):
            return
    raise Conflict("others keep changing an export of the table", table=table.settings.name)


@dataclass(frozen=True, slots=True)
class _Walk(Generic[S]):
    """One try to bring an export forward, commit by commit."""

    table: OpenTable
    form: _Format[S]
    footers: Footers
    state: S | None
    slot: int
    fences: bool

    def run(self, shown: Timeline) -> bool:
        """Whether the export is where the table is."""
        state, table = self.state, self.table
        timeline = standing(shown, table.ledger.read())
        view = load_view(table.store, timeline)
        exported = table_to_export(table)
        for instant in instants_to_show(timeline, None if state is None else state.instant):
            step = step_at(table, timeline, view, instant, self.slot)
            if step is None:
                continue
            if state is None and step.schema is None:
                return True  # There was never a row.
            is_fenced = not self.fences or (state is not None and state.slot >= self.slot)
            if state is not None and is_fenced and not state.lacks(step):
                continue
            state = self.form.advance(table.store, exported, state, step, self.footers)
            if state is None:
                return False
        # Nobody could fence off a first version.
        return self.state is not None or state is None


def standing(timeline: Timeline, ledger: LedgerState) -> Timeline:
    """The timeline without commits that were taken back and are not withdrawn yet."""
    return replace(timeline, instants=tuple(i for i in timeline.instants if not ledger.is_taken_back(i.time)))


def instants_to_show(timeline: Timeline, at: InstantTime | None) -> list[InstantTime]:
    """The commits that an export has to show, one after the other, and the newest in any case."""
    commits = [commit.time for commit in timeline.completed_commits]
    newest = commits[-1] if commits else NO_INSTANT
    if at is None:
        return [newest]
    return [time for time in commits if time > at] or [newest]


def step_at(table: OpenTable, timeline: Timeline, view: View, instant: InstantTime, slot: int) -> Step | None:
    """The step to a commit; None if a clean has taken its snapshot, and it is not the newest."""
    commits = timeline.completed_commits
    is_newest = not commits or instant == commits[-1].time
    try:
        slices = view.latest(None if is_newest else instant, base_only=True)
    except SnapshotExpired:
        if is_newest:
            raise
        return None
    moment_ms = 0 if instant == NO_INSTANT else _moment_ms(table, instant)
    return Step(
        instant=instant,
        slot=slot,
        moment_ms=moment_ms,
        schema=table_schema(table, timeline, None if is_newest else instant),
        files=pa.table([slices["base"], _sizes(table.store, slices)], names=["path", "size"]),
    )


def table_to_export(table: OpenTable) -> ExportedTable:
    settings = table.settings
    is_plain = set(settings.declared_partition_types or ()) == {PartitionType.SIMPLE}
    return ExportedTable(
        name=settings.name,
        root=table.store.uri("").rstrip("/"),
        partition_by=settings.partition_by if is_plain else (),
    )


def _moment_ms(table: OpenTable, time: InstantTime) -> int:
    return round(moment_of(time, timeline_zone(table)).timestamp() * 1000)


def _sizes(store: Store, slices: pa.Table) -> pa.ChunkedArray:
    """Of files whose commits are archived storage tells."""
    sizes = slices["size"]
    if sizes.null_count == 0:
        return sizes
    known = sizes.to_pylist()
    for number, path in enumerate(slices["base"].to_pylist()):
        if known[number] is None:
            stored = store.stat(path)
            known[number] = 0 if stored is None else stored.size
    return pa.chunked_array([pa.array(known, pa.int64())])
