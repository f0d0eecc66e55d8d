"""What a compaction is to do: which file slices it makes into base files, and whether a plan still holds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.choices import CompactionStrategy, CompactionTrigger
from holdfast.config.write import WriteSettings
from holdfast.errors import TableDamaged
from holdfast.format.compaction_plans import CompactionOperation, CompactionPlan
from holdfast.model.instant import Action, Instant, InstantTime, end_of
from holdfast.model.names import in_partition
from holdfast.model.slices import FileSlice
from holdfast.storage.store import Store
from holdfast.table.log_files import log_name
from holdfast.table.view import each_slice
from holdfast.timeline.timeline import Timeline

_MEGABYTE = 1024 * 1024


def is_due(timeline: Timeline, settings: WriteSettings, *, now_ms: int) -> bool:
    """Whether as many commits, or as much time, passed since the last compaction as the settings say."""
    last = _last_compaction(timeline)
    since = [
        commit
        for commit in timeline.completed_commits
        if commit.action is Action.DELTACOMMIT and (last is None or commit.time > last.time)
    ]
    if not since:
        return False
    origin = (last or since[0]).completed_at
    elapsed_ms = 0 if origin is None else now_ms - origin.timestamp() * 1000
    enough_commits = len(since) >= settings.compaction_commits
    enough_time = elapsed_ms >= settings.compaction_seconds * 1000
    match settings.compaction_trigger:
        case CompactionTrigger.NUM_COMMITS:
            return enough_commits
        case CompactionTrigger.TIME_ELAPSED:
            return enough_time
        case CompactionTrigger.NUM_AND_TIME:
            return enough_commits and enough_time
    return enough_commits or enough_time


def _last_compaction(timeline: Timeline) -> Instant | None:
    """In a merge-on-read table, nothing but a compaction is a commit."""
    return next((i for i in reversed(timeline.completed_commits) if i.action is Action.COMMIT), None)


def choose_slices(
    store: Store, newest: pa.Table, settings: WriteSettings, *, claimed: Iterable[str]
) -> CompactionPlan:
    """The plan for the newest slices of a snapshot that have log files, but for `claimed` file groups."""
    taken = frozenset(claimed)
    has_logs = pc.greater(pc.list_value_length(newest["logs"]), 0)
    slices = [
        each
        for each in each_slice(newest.filter(has_logs))
        if in_partition(each.partition, each.file_id) not in taken
    ]
    sizes = _sizes(store, {each.partition for each in slices})
    found = [(each, _metrics(each, sizes)) for each in slices]
    return CompactionPlan(tuple(_operation(*one) for one in _bound(found, settings)))


def _sizes(store: Store, partitions: Iterable[str]) -> Mapping[str, int]:
    return {file.path: file.size for one in sorted(partitions) for file in store.folder(one).files}


def _metrics(each: FileSlice, sizes: Mapping[str, int]) -> dict[str, float]:
    """What Hudi writes of a slice; from it its strategies choose."""
    log_bytes = sum(sizes.get(path, 0) for path in each.logs)
    base_mb = 0 if each.base is None else sizes.get(each.base, 0) // _MEGABYTE
    read_mb = base_mb + log_bytes // _MEGABYTE
    return {
        "TOTAL_LOG_FILES": float(len(each.logs)),
        "TOTAL_LOG_FILES_SIZE": float(log_bytes),
        "TOTAL_IO_READ_MB": float(read_mb),
        "TOTAL_IO_WRITE_MB": float(base_mb),
        "TOTAL_IO_MB": float(read_mb + base_mb),
    }


def _bound(
    found: Sequence[tuple[FileSlice, dict[str, float]]], settings: WriteSettings
) -> list[tuple[FileSlice, dict[str, float]]]:
    """Those that the strategy takes, first those that it prefers."""
    strategy = settings.compaction_strategy
    ordered = list(found)
    if strategy is CompactionStrategy.LOG_BYTES:
        least = settings.compaction_log_bytes_least
        ordered = [one for one in found if one[1]["TOTAL_LOG_FILES_SIZE"] >= least]
        ordered.sort(key=lambda one: -one[1]["TOTAL_LOG_FILES_SIZE"])
    elif strategy is CompactionStrategy.LOG_COUNT:
        least = settings.compaction_logs_least
        ordered = [one for one in found if one[1]["TOTAL_LOG_FILES"] >= least]
        ordered.sort(key=lambda one: -one[1]["TOTAL_LOG_FILES"])
    if strategy is CompactionStrategy.ALL:
        return ordered
    left = float(settings.compaction_io_mb)
    chosen: list[tuple[FileSlice, dict[str, float]]] = []
    for each, metrics in ordered:
        if left <= 0:
            break
        left -= metrics["TOTAL_IO_MB"]
        chosen.append((each, metrics))
    return chosen


def _operation(each: FileSlice, metrics: Mapping[str, float]) -> CompactionOperation:
    return CompactionOperation(
        each.file_id,
        each.partition,
        each.instant,
        None if each.base is None else each.base.rpartition("/")[2],
        tuple(path.rpartition("/")[2] for path in each.logs),
        metrics,
    )


@dataclass(frozen=True, slots=True)
class Work:
    """What is left of a plan."""

    slices: tuple[FileSlice, ...]
    obsolete: tuple[CompactionOperation, ...]
    """Operations whose file group has a newer base file by now, or none: there is nothing to do."""


def check_plan(store: Store, plan: CompactionPlan, newest: pa.Table, time: InstantTime) -> Work:
    """The slices of a plan, compared with what the table consists of now.

    `TableDamaged` if the plan lacks a log file that a commit wrote, or a file of
    the plan is not there: its rows would be lost with the new base file.
    """
    now = {in_partition(each.partition, each.file_id): each for each in each_slice(newest)}
    slices: list[FileSlice] = []
    obsolete: list[CompactionOperation] = []
    for operation in plan.operations:
        group = in_partition(operation.partition, operation.file_id)
        current = now.get(group)
        if current is None or end_of(current.instant) > end_of(operation.base_instant or InstantTime("0")):
            obsolete.append(operation)
            continue
        slices.append(_slice_of(store, operation, current, time))
    return Work(tuple(slices), tuple(obsolete))


def _slice_of(
    store: Store, operation: CompactionOperation, current: FileSlice, time: InstantTime
) -> FileSlice:
    planned = {in_partition(operation.partition, name) for name in operation.log_files}
    # What was written since the plan was made carries its instant, and stays.
    logs = [path for path in current.logs if (name := log_name(path)) is None or name.base_instant < time]
    # Hudi plans log files of writes that failed, too; none of their blocks counts.
    gone = [path for path in sorted(planned - set(logs)) if store.stat(path) is None]
    for missing, problem in (
        (sorted(set(logs) - planned), "a compaction plan lacks a log file that a commit wrote"),
        (gone, "a compaction plan names a log file that is not there"),
    ):
        if missing:
            raise TableDamaged(
                problem,
                compaction=time,
                file=missing[0],
                hint=f"take the plan away: holdfast compaction unschedule PATH --instant {time}",
            )
    return replace(current, logs=tuple(logs))
