"""How an export is brought to what the timeline shows.

    state of the export ─► ledger ─► timeline ─► next version, created exclusively ─► ...

The export is read before the table is, so a version that is created shows a
table that is no older than the version before it. Whoever takes commits back
makes sure that there is a version which was computed since; a process that slept
over it finds its own version taken, and looks again.

A step is computed from the table alone. Whoever finds an export that lags
behind does what is left of it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from holdfast.config.choices import ExportFormat
from holdfast.config.key_generators import PartitionType
from holdfast.errors import Conflict, SnapshotExpired, TableDamaged, UnsupportedTable
from holdfast.exports.delta import advance_delta, read_delta
from holdfast.exports.iceberg import advance_iceberg, expire_iceberg, read_iceberg
from holdfast.exports.statistics import Footers
from holdfast.exports.step import NO_INSTANT, ExportedTable, Step, root_address
from holdfast.format.field_ids import FieldIds, extend_field_ids
from holdfast.model.instant import InstantTime, moment_of
from holdfast.read.snapshot import table_schema
from holdfast.storage.store import Store
from holdfast.table.field_ids import field_ids
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import read_current_settings
from holdfast.table.stable_read import read_stable
from holdfast.table.view import View, load_view
from holdfast.table.zone import timeline_zone
from holdfast.timeline.ledger import NO_SLOT, LedgerState
from holdfast.timeline.timeline import Timeline

_ATTEMPTS = 20
"""Each after the first follows a version that another process made."""


class ExportState(Protocol):
    """What the newest version of an export says."""

    @property
    def instant(self) -> InstantTime: ...
    @property
    def slot(self) -> int: ...
    @property
    def shown_slot(self) -> int: ...
    @property
    def version(self) -> int: ...
    def paths(self) -> list[str]: ...
    def lacks(self, step: Step) -> bool: ...


S = TypeVar("S", bound=ExportState)


@dataclass(frozen=True, slots=True)
class _Format(Generic[S]):
    read: Callable[[Store], S | None]
    advance: Callable[[Store, ExportedTable, S | None, Step, Footers], S | None]
    expire: Callable[[Store, Collection[str]], bool]
    """Give up old versions that have one of these files; false if somebody else changed it meanwhile."""


FORMATS: Mapping[ExportFormat, _Format[Any]] = {
    ExportFormat.DELTA: _Format(read_delta, advance_delta, lambda *_: True),
    ExportFormat.ICEBERG: _Format(read_iceberg, advance_iceberg, expire_iceberg),
}


def advance(table: OpenTable, *, fences: bool) -> None:
    """Bring the exports to what the timeline shows; with `fences` past whatever was begun before."""
    footers = Footers(table.store)
    for form in read_current_settings(table).export_formats:
        _advance_one(table, FORMATS[form], footers, fences=fences)


def expire(table: OpenTable, doomed: Collection[str]) -> None:
    """Give up older versions that have one of these files."""
    for form in read_current_settings(table).export_formats:
        for _ in range(_ATTEMPTS):
            if FORMATS[form].expire(table.store, doomed):
                break
        else:
            raise _contention(table)


def _advance_one(table: OpenTable, form: _Format[S], footers: Footers, *, fences: bool) -> None:
    needed = table.ledger.read().slot if fences else 0
    for _ in range(_ATTEMPTS):
        state = form.read(table.store)
        if fences and state is not None and state.slot >= needed:
            return
        slot = table.ledger.read().slot
        walk = _Walk(table, form, footers, state, slot, fences=fences)
        try:
            if read_stable(table.store, walk.run):
                return
        except TableDamaged:
            if not has_moved(table.store, form, state):
                raise
    raise _contention(table)


def has_moved(store: Store, form: _Format[Any], state: ExportState | None) -> bool:
    """Whether there is another version by now: files that only an older one named may be gone."""
    now = form.read(store)
    return (None if now is None else now.version) != (None if state is None else state.version)


def _contention(table: OpenTable) -> Conflict:
    return Conflict("others keep changing an export of the table", table=table.settings.name)


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
        ledger = table.ledger.read()
        timeline = standing(shown, ledger)
        view = load_view(table.store, timeline)
        exported = table_to_export(table)
        instants = instants_to_show(timeline, None if state is None else state.instant)
        for instant in instants:
            step = step_at(table, timeline, view, instant, self.slot, ledger=ledger, state=state)
            if step is None:
                continue
            if state is None and step.schema is None:
                return True  # There was never a row.
            is_fenced = not self.fences or (state is not None and state.slot >= self.slot)
            if state is not None and is_fenced and not state.lacks(step):
                continue
            try:
                state = self.form.advance(table.store, exported, state, step, self.footers)
            except UnsupportedTable:
                if instant == instants[-1]:
                    raise
                continue  # What the format could not show is over.
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


def step_at(
    table: OpenTable,
    timeline: Timeline,
    view: View,
    instant: InstantTime,
    slot: int,
    *,
    ledger: LedgerState,
    state: ExportState | None,
) -> Step | None:
    """The step to a commit; None if a clean has taken its snapshot, and it is not the newest."""
    commits = timeline.completed_commits
    is_newest = not commits or instant == commits[-1].time
    try:
        slices = view.latest(None if is_newest else instant, base_only=True)
    except SnapshotExpired:
        if is_newest:
            raise
        return None
    schema = table_schema(table, timeline, None if is_newest else instant)
    moment_ms = 0 if instant == NO_INSTANT else _moment_ms(table, instant)
    return Step(
        instant=instant,
        slot=slot,
        shown_slot=_newest_slot(timeline, ledger),
        moment_ms=moment_ms,
        schema=schema,
        field_ids=_number_columns(table, timeline, schema),
        files=pa.table([slices["base"], _sizes(table.store, slices)], names=["path", "size"]),
        changed_from=_first_change(ledger, state),
        is_gone=ledger.is_taken_back,
        savepoints=frozenset(ledger.savepoints),
    )


def _number_columns(table: OpenTable, timeline: Timeline, schema: pa.Schema | None) -> FieldIds:
    """The field ids of the table; those it would have if no file of it carries any yet."""
    known = field_ids(table.store, timeline)
    return known if schema is None else extend_field_ids(known, schema)


def _newest_slot(timeline: Timeline, ledger: LedgerState) -> int:
    known = (ledger.committed.get(commit.time) for commit in timeline.completed_commits)
    return max((commit.slot for commit in known if commit is not None), default=NO_SLOT)


def _first_change(ledger: LedgerState, state: ExportState | None) -> InstantTime | None:
    if state is None:
        return None
    times = (time for time, commit in ledger.committed.items() if commit.slot > state.shown_slot)
    return min(times, default=None)


def table_to_export(table: OpenTable) -> ExportedTable:
    settings = table.settings
    is_plain = set(settings.declared_partition_types or ()) == {PartitionType.SIMPLE}
    return ExportedTable(
        name=settings.name,
        root=root_address(table.store),
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
