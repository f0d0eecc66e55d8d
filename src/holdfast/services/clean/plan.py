"""What a clean has to know about the table, and the plan that follows from it.

Nothing here changes anything. A plan is made of what the ledger and the
timeline say after one slot of the ledger; the one that decides on it checks what
has come since.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.format.cleans import StoredCleanPlan
from holdfast.format.malformed import report_damage
from holdfast.format.savepoints import decode_savepoint
from holdfast.model.instant import Action, InstantTime, State, just_before
from holdfast.model.names import in_partition, instant_file, partition_of
from holdfast.model.reports import CleanFile, CleanForecast, CleanPlan
from holdfast.services.clean.policy import (
    FileDecisions,
    Reason,
    Window,
    decide_files,
    earliest_to_retain,
    select_partitions,
    serving_files,
)
from holdfast.services.clean.scope import (
    LEASED,
    REVISIT,
    SAVEPOINTED,
    LastClean,
    last_clean,
    late_services,
    partitions_to_examine,
)
from holdfast.services.leases import instants_under_lease
from holdfast.storage.store import read_or_none
from holdfast.table.opened import OpenTable
from holdfast.table.pending import PendingServices, pending_services
from holdfast.table.stable_read import read_stable, timeline_and_ledger
from holdfast.table.view import SLICES, View, load_view, view_of_some, with_logs
from holdfast.table.zone import timeline_zone
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline

_FORECAST_COMMITS = (1, 5, 10, 20, 50)
_PASSING = pa.array([Reason.LEASE, Reason.PENDING_SERVICE], pa.string())
"""Reasons to keep a file that pass without a commit."""


@dataclass(frozen=True, slots=True)
class CleanContext:
    """What decides, besides the settings, how far a clean may go."""

    timeline: Timeline
    last: LastClean | None
    first_pending: InstantTime | None
    savepoints: frozenset[InstantTime]
    pinned: tuple[InstantTime, ...]
    """Snapshots that writes build on that are not finished."""
    services: PendingServices


@dataclass(frozen=True, slots=True)
class CleanDraft:
    """The plan of a clean before it is stored."""

    context: CleanContext
    leased: tuple[InstantTime, ...]
    settings: CleanSettings
    decisions: FileDecisions
    passed_over: list[str]
    """Partitions that were to be looked at and that the settings do not let be cleaned."""
    is_whole: bool
    """Whether the whole table was looked at, and not only what changed since the last clean."""

    @property
    def deletes_something(self) -> bool:
        return bool(self.decisions.doomed.num_rows > 0)

    @property
    def schema_in_file(self) -> StoredCleanPlan:
        """As it is stored, and as other programs read it."""
        earliest, newest = self.decisions.earliest, self.context.timeline.last_commit
        actions = {commit.time: commit.action for commit in self.context.timeline.completed_commits}
        kept = self.decisions.kept
        protected = kept.filter(pc.is_in(kept["reason"], _PASSING))["partition"].unique().to_pylist()
        return StoredCleanPlan(
            earliest=earliest,
            earliest_action=None if earliest is None else actions[earliest],
            last_completed=None if newest is None else newest.time,
            policy=self.settings.policy.value,
            files=_by_partition(self.decisions.doomed),
            partitions_to_delete=self.decisions.emptied,
            extra={
                SAVEPOINTED: ",".join(sorted(self.context.savepoints)),
                LEASED: ",".join(self.leased),
                REVISIT: json.dumps(sorted({*protected, *self.passed_over})),
            },
        )


def clean_context(table: OpenTable, timeline: Timeline, state: LedgerState) -> CleanContext:
    pending = _pending(timeline, state)
    services = pending_services(table.store, timeline)
    return CleanContext(
        timeline,
        last_clean(table.store, timeline),
        min(pending, default=None),
        savepoint_times(timeline, state),
        tuple(just_before(time) for time in pending if time not in services.planned),
        services,
    )


def window_to_retain(table: OpenTable, context: CleanContext, settings: CleanSettings) -> Window:
    return earliest_to_retain(
        context.timeline.completed_commits,
        settings=settings,
        now_ms=table.clock.now_ms(),
        zone=timeline_zone(table),
        first_pending=context.first_pending,
        previous=None if context.last is None else context.last.earliest,
    )


def draft_clean(
    table: OpenTable, state: LedgerState, context: CleanContext, window: Window, settings: CleanSettings
) -> CleanDraft:
    """The fate of each file in the partitions that have to be looked at."""
    partitions: Collection[str] | None = None
    if settings.incremental and window.start is not None:
        partitions = partitions_to_examine(
            table.store, context.timeline, context.last, start=window.start, savepoints=context.savepoints
        )
    view = _view(table, context.timeline, partitions, context.services)
    selected, passed_over = _selection(view, settings)
    leased = instants_under_lease(table)
    decisions = _decisions(table, state, context, view, window, settings, leased=leased, partitions=selected)
    return CleanDraft(context, leased, settings, decisions, passed_over, is_whole=partitions is None)


def explain_clean(table: OpenTable, settings: CleanSettings) -> CleanPlan:
    """What a clean would delete and leave, of every file in the table. Changes nothing."""
    return read_stable(table.store, lambda timeline: _plan(table, timeline, settings))


def _plan(table: OpenTable, timeline: Timeline, settings: CleanSettings) -> CleanPlan:
    _, state = timeline_and_ledger(table)
    context = clean_context(table, timeline, state)
    view = _view(table, timeline, None, context.services)
    selected, _ = _selection(view, settings)
    leased = instants_under_lease(table)

    def decide(settings: CleanSettings) -> FileDecisions:
        window = window_to_retain(table, context, settings)
        return _decisions(table, state, context, view, window, settings, leased=leased, partitions=selected)

    decisions = decide(settings)
    sizes = dict(zip(*(column.to_pylist() for column in _fill_sizes(table, decisions.table)), strict=True))
    forecast = []
    for commits in _FORECAST_COMMITS:
        policy = CleanPolicy.KEEP_LATEST_COMMITS
        doomed = decide(
            replace(settings, policy=policy, commits_retained=commits, keep_min=None, keep_max=None)
        ).doomed["path"]
        freed = sum(sizes[path] for path in doomed.to_pylist())
        forecast.append(CleanForecast(commits, len(doomed), freed))
    return CleanPlan(
        earliest_commit_to_retain=decisions.earliest,
        doomed=_files(decisions.doomed, sizes),
        kept=_files(decisions.kept, sizes),
        why_nothing=decisions.blocked_by,
        forecast=tuple(forecast),
    )


def savepoint_times(timeline: Timeline, state: LedgerState) -> frozenset[InstantTime]:
    """The commits that have a savepoint, shown or only decided."""
    shown = {i.time for i in timeline.instants if i.action is Action.SAVEPOINT and i.is_completed}
    return frozenset(shown | state.savepoints.keys())


def files_of_savepoints(table: OpenTable, state: LedgerState, savepoints: Iterable[InstantTime]) -> pa.Array:
    """The paths that savepoints name; one that is gone names none."""
    paths: list[str] = []
    for time in savepoints:
        path = instant_file(time, Action.SAVEPOINT, State.COMPLETED)
        content = read_or_none(table.store, path)
        if content is None and time in state.savepoints:
            content = table.ledger.payload(state.savepoints[time])
        if content is not None:
            with report_damage("a savepoint cannot be read", file=path):
                files = decode_savepoint(content).files
            paths += [in_partition(partition, name) for partition, names in files.items() for name in names]
    return pa.array(paths, pa.string())


def files_of_leases(
    table: OpenTable, timeline: Timeline, leased: Iterable[InstantTime], partitions: Collection[str]
) -> pa.Array:
    """The paths in the partitions that the leased snapshots consist of."""
    times = list(leased)
    if not times:
        return pa.array([], pa.string())
    services = pending_services(table.store, timeline)
    view = _view(table, timeline, partitions, services)
    return serving_files(view.slices, times, replaced=view.replaced, services=services)


def _pending(timeline: Timeline, state: LedgerState) -> list[InstantTime]:
    """Writes and table services that are not finished."""
    services = (Action.COMPACTION, Action.LOGCOMPACTION)
    shown = [i.time for i in timeline.instants if i.action in services and not i.is_completed]
    return sorted({*shown, *(i.time for i in timeline.pending_writes), *state.begun})


def _view(
    table: OpenTable, timeline: Timeline, partitions: Collection[str] | None, services: PendingServices
) -> View:
    """The slices that are there, with their log files, in the partitions given or in all."""
    if partitions is None:
        view = load_view(table.store, timeline)
    elif partitions:
        paths = [f.path for partition in sorted(partitions) for f in table.store.folder(partition).files]
        view = view_of_some(table.store, timeline, pa.array(paths, pa.string()), partitions)
    else:
        return View(timeline, SLICES.empty_table(), pa.array([], pa.string()), {}, {})
    return replace(view, slices=with_logs(view, services.compactions))


def _selection(view: View, settings: CleanSettings) -> tuple[list[str], list[str]]:
    """The partitions of the view that may be cleaned, and the others."""
    partitions = view.slices["partition"].unique().to_pylist()
    selected = select_partitions(partitions, settings)
    return selected, sorted(set(partitions) - set(selected))


def _decisions(
    table: OpenTable,
    state: LedgerState,
    context: CleanContext,
    view: View,
    window: Window,
    settings: CleanSettings,
    *,
    leased: Iterable[InstantTime],
    partitions: list[str],
) -> FileDecisions:
    return decide_files(
        view.slices,
        window,
        settings=settings,
        replaced=view.replaced,
        saved_files=files_of_savepoints(table, state, context.savepoints),
        leased=leased,
        claimed=context.pinned,
        services=context.services,
        late=late_services(context.timeline),
        partitions=partitions,
    )


def _by_partition(files: pa.Table) -> dict[str, tuple[str, ...]]:
    by_partition: dict[str, list[str]] = {}
    for path, partition in zip(files["path"].to_pylist(), files["partition"].to_pylist(), strict=True):
        by_partition.setdefault(partition, []).append(path.rpartition("/")[2])
    return {partition: tuple(names) for partition, names in by_partition.items()}


def _fill_sizes(table: OpenTable, files: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The paths, and the sizes; where no commit tells one, storage does."""
    unknown = files["path"].filter(pc.is_null(files["size"])).to_pylist()
    if not unknown:
        return files["path"], files["size"]
    folders = {partition_of(path) for path in unknown}
    stored = [file for folder in folders for file in table.store.folder(folder).files]
    at = pc.index_in(files["path"], pa.array([file.path for file in stored], pa.string()))
    sizes = pa.array([file.size for file in stored], pa.int64()).take(at.combine_chunks())
    return files["path"], pa.chunked_array([pc.coalesce(files["size"].combine_chunks(), sizes, 0)])


def _files(files: pa.Table, sizes: dict[str, int]) -> tuple[CleanFile, ...]:
    columns = zip(files["path"].to_pylist(), files["reason"].to_pylist(), strict=True)
    return tuple(CleanFile(path, sizes[path], reason) for path, reason in columns)
