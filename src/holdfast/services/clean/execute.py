"""Carrying out a clean: the files of its plan go, and nothing else.

    plan in storage, CLEAN in the ledger ─► requested ─► inflight ─► files ─► partitions ─► completed

The plan on the timeline is the stored one without what was protected between
planning and CLEAN; the first one there is what everybody carries out. Every
step may be repeated, by several at once.
"""

import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import TableDamaged
from holdfast.exports.follow import follow
from holdfast.format.cleans import (
    CleanedPartition,
    CleanMetadata,
    StoredCleanPlan,
    encode_clean_metadata,
    encode_clean_plan,
)
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import (
    PARTITION_METAFILE,
    clean_plan_path,
    in_partition,
    instant_file,
    is_data_file,
    partition_of,
)
from holdfast.model.reports import CleanReport
from holdfast.services.clean.plan import files_of_leases, files_of_savepoints, savepoint_times
from holdfast.services.clean.scope import LEASED, REVISIT, SAVEPOINTED
from holdfast.services.leases import instants_under_lease
from holdfast.storage.store import read_or_none
from holdfast.table.clean_plans import plan_paths, read_clean_plan
from holdfast.table.markers import instants_with_markers, read_markers
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import drop_metadata_table
from holdfast.table.publish import ensure_metafile
from holdfast.table.stable_read import timeline_and_ledger
from holdfast.table.view import parse_data_files, slice_keys

log = logging.getLogger(__name__)

_BATCH = 1000
_THREADS_MAX = 16

Progress = Callable[[int, int], None]
"""Told, now and then, how many of how many files were dealt with."""


def no_progress(done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class _Deletion:
    """What became of the files of a plan, by their paths."""

    deleted: tuple[str, ...]
    absent: tuple[str, ...]
    failed: tuple[str, ...]
    bytes_freed: int


def encode_plan(table: OpenTable, plan: StoredCleanPlan) -> bytes:
    return encode_clean_plan(plan, root=table.store.uri("").rstrip("/"))


def carry_out(
    table: OpenTable, clean: InstantTime, *, parallelism: int, progress: Progress = no_progress
) -> CleanReport | None:
    """Do what the clean's plan says, or finish it. None if there is no plan any more.

    A file that storage does not delete is reported, and left to the next clean.
    A crash at any point leaves a clean that the next one finishes.
    """
    began_ms = table.clock.monotonic_ms()
    plan = _plan(table, clean)
    if plan is None:
        return None
    paths = _check_paths(plan, clean)
    metadata_table = drop_metadata_table(table) if paths else ()
    if paths:
        follow(table)
    deletion = _delete(table, paths, parallelism, progress)
    gone = frozenset(p for p in plan.partitions_to_delete if _remove_partition(table, p, clean))
    took_ms = table.clock.monotonic_ms() - began_ms
    metadata = CleanMetadata(
        start_time=clean,
        took_ms=took_ms,
        deleted_count=len(deletion.deleted) + len(deletion.absent),
        earliest=plan.earliest,
        last_completed=plan.last_completed,
        partitions=_partition_results(plan, deletion, gone),
        extra=plan.extra,
    )
    completed = instant_file(clean, Action.CLEAN, State.COMPLETED)
    table.store.create(completed, encode_clean_metadata(metadata))
    table.store.delete(clean_plan_path(clean))
    log.info(
        "clean.completed",
        extra={
            "table": table.store.uri(""),
            "instant": clean,
            "deleted": len(deletion.deleted),
            "failed": len(deletion.failed),
            "bytes_freed": deletion.bytes_freed,
            "took_ms": took_ms,
        },
    )
    return CleanReport(
        instant=clean,
        earliest_commit_to_retain=plan.earliest,
        deleted=deletion.deleted,
        absent=deletion.absent,
        failed=deletion.failed,
        metadata_table=metadata_table,
        bytes_freed=deletion.bytes_freed,
        took_ms=took_ms,
    )


def _plan(table: OpenTable, clean: InstantTime) -> StoredCleanPlan | None:
    """The plan on the timeline, which is put there if need be."""
    requested, inflight = (
        instant_file(clean, Action.CLEAN, state) for state in (State.REQUESTED, State.INFLIGHT)
    )
    if table.store.stat(requested) is None:
        decided = read_clean_plan(table.store, clean)
        if decided is None:
            return None  # Another process has completed it, and it has been archived.
        table.store.create(requested, encode_plan(table, _without_protected(table, decided)))
    # Hudi up to 0.15 reads the plan of an inflight clean here, and drops a file that is empty.
    table.store.create(inflight, read_or_none(table.store, requested) or b"")
    plan = read_clean_plan(table.store, clean)
    if plan is None:
        # Another program died while it wrote its plan, so nothing was deleted by it.
        log.warning("clean.unreadable", extra={"table": table.store.uri(""), "instant": clean})
        for path in (inflight, requested):
            table.store.delete(path)
        return None
    return _without_protected(table, plan)


def _without_protected(table: OpenTable, plan: StoredCleanPlan) -> StoredCleanPlan:
    """The plan without the files of savepoints and leases that it did not know.

    After CLEAN is in the ledger no savepoint and no lease of ours can claim a
    file of the plan, so a process that asks then gets to know all that matter.
    """
    timeline, state = timeline_and_ledger(table)
    saved = savepoint_times(timeline, state) - _times(plan, SAVEPOINTED)
    leased = frozenset(instants_under_lease(table)) - _times(plan, LEASED)
    if not saved and not leased:
        return plan
    protected = pa.concat_arrays(
        [files_of_savepoints(table, state, saved), files_of_leases(table, timeline, leased, list(plan.files))]
    )
    doomed = pa.array(plan_paths(plan), pa.string())
    # A slice goes as a whole or stays as a whole.
    named = parse_data_files(doomed)
    slices = slice_keys(named)
    saved_slices = slices.filter(pc.is_in(named["path"], protected)).combine_chunks()
    hit = frozenset(named["path"].filter(pc.is_in(slices, saved_slices)).to_pylist())
    if not hit:
        return plan
    spared = {partition_of(path) for path in hit}
    files = {
        partition: tuple(name for name in names if in_partition(partition, name) not in hit)
        for partition, names in plan.files.items()
    }
    revisit = {*json.loads(plan.extra.get(REVISIT, "[]")), *spared}
    return replace(
        plan,
        files={partition: names for partition, names in files.items() if names},
        partitions_to_delete=tuple(p for p in plan.partitions_to_delete if p not in spared),
        extra={**plan.extra, REVISIT: json.dumps(sorted(revisit))},
    )


def _times(plan: StoredCleanPlan, key: str) -> frozenset[InstantTime]:
    return frozenset(InstantTime(text) for text in plan.extra.get(key, "").split(",") if text)


def _check_paths(plan: StoredCleanPlan, clean: InstantTime) -> list[str]:
    """The plan's files. `TableDamaged` if one is not a data file: nothing else is ever deleted."""
    for names in plan.files.values():
        for name in names:
            if not is_data_file(name):
                raise TableDamaged("a clean plan names what is no data file", clean=clean, file=name)
    return plan_paths(plan)


def _delete(table: OpenTable, paths: Sequence[str], parallelism: int, progress: Progress) -> _Deletion:
    folders = dict.fromkeys(partition_of(path) for path in paths)
    sizes = {file.path: file.size for folder in folders for file in table.store.folder(folder).files}
    present = [path for path in paths if path in sizes]
    failed = frozenset(_delete_in_batches(table, present, min(parallelism, _THREADS_MAX), progress))
    deleted = tuple(path for path in present if path not in failed)
    return _Deletion(
        deleted,
        tuple(path for path in paths if path not in sizes),
        tuple(path for path in present if path in failed),
        sum(sizes[path] for path in deleted),
    )


def _delete_in_batches(
    table: OpenTable, paths: Sequence[str], threads: int, progress: Progress
) -> Sequence[str]:
    """Delete the files; those that would not go."""
    if len(paths) <= _BATCH:
        return table.store.delete_all(paths) if paths else ()
    stuck: list[str] = []
    batches = [paths[start : start + _BATCH] for start in range(0, len(paths), _BATCH)]
    with ThreadPoolExecutor(threads, thread_name_prefix="clean") as pool:
        for number, left in enumerate(pool.map(table.store.delete_all, batches), 1):
            stuck += left
            progress(min(number * _BATCH, len(paths)), len(paths))
    return stuck


def _remove_partition(table: OpenTable, partition: str, clean: InstantTime) -> bool:
    """Remove a partition in which nothing is left and no writer is active; whether it is gone.

    A writer may come in between. It makes sure of the metafile after its files
    are there, so either it finds none and writes one, or we find its files.
    """
    if not partition:
        return False
    if _is_empty(table, partition):
        table.store.delete(in_partition(partition, PARTITION_METAFILE))
        if _is_empty(table, partition):
            table.store.prune(partition)
            return True
    if any(is_data_file(file.path.rpartition("/")[2]) for file in table.store.folder(partition).files):
        ensure_metafile(table, partition, clean)
    return False


def _is_empty(table: OpenTable, partition: str) -> bool:
    folder = table.store.folder(partition)
    metafile = in_partition(partition, PARTITION_METAFILE)
    if folder.folders or any(file.path != metafile for file in folder.files):
        return False
    return not any(
        partition_of(marker.data_path) == partition
        for time in instants_with_markers(table.store)
        for marker in read_markers(table.store, time)
    )


def _partition_results(
    plan: StoredCleanPlan, deletion: _Deletion, gone: frozenset[str]
) -> tuple[CleanedPartition, ...]:
    failed = frozenset(deletion.failed)
    return tuple(
        CleanedPartition(
            partition=partition,
            policy=plan.policy,
            deleted=tuple(n for n in names if in_partition(partition, n) not in failed),
            failed=tuple(n for n in names if in_partition(partition, n) in failed),
            is_deleted=partition in gone,
        )
        for partition, names in {**dict.fromkeys(sorted(gone), ()), **plan.files}.items()
    )
