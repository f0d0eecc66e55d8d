"""Plans of cleans, of ours and of other programs: which are pending, and which files each deletes.

Until the plan is on the timeline, the one that the ledger decided on counts;
the one on the timeline is that one without what was protected meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import TableDamaged
from holdfast.format.cleans import StoredCleanPlan, decode_clean_metadata, decode_clean_plan
from holdfast.format.malformed import Malformed, report_damage
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import (
    clean_plan_path,
    in_partition,
    instant_file,
    parse_base_file,
    parse_log_file,
    partition_of,
)
from holdfast.storage.store import Store, read_or_none
from holdfast.table.archive import read_archive
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

if TYPE_CHECKING:
    import pyarrow as pa


def pending_cleans(store: Store, timeline: Timeline, state: LedgerState) -> tuple[InstantTime, ...]:
    """Cleans that were decided, or requested by another program, and are not completed, oldest first."""
    requested = {i.time for i in timeline.instants if i.action is Action.CLEAN}
    first = timeline.instants[0].time if timeline.instants else None
    # One that is older than the active timeline was completed and archived.
    unarchived = {t for t in state.cleans if not state.has_left(t) and (first is None or t > first)}
    decided = {t for t in unarchived - requested if _has_plan(store, t)}
    return tuple(sorted((requested | decided) - {clean.time for clean in timeline.completed_cleans}))


def _has_plan(store: Store, clean: InstantTime) -> bool:
    """Whether a clean that is not on the timeline is still to come.

    Otherwise it was completed and archived: by another program, because the
    ledger would tell of us. The stored plan goes after the request has come.
    """
    places = (clean_plan_path(clean), instant_file(clean, Action.CLEAN, State.REQUESTED))
    return any(store.stat(path) is not None for path in places)


def read_clean_plan(store: Store, clean: InstantTime) -> StoredCleanPlan | None:
    """What a clean deletes; None if it was completed and has been archived, or was never whole."""
    requested = instant_file(clean, Action.CLEAN, State.REQUESTED)
    # Once more at the end: the stored plan goes when the clean is completed, after it was requested.
    for path in (requested, clean_plan_path(clean), requested):
        content = read_or_none(store, path)
        if content:
            with report_damage(
                "the plan of a clean cannot be read",
                file=path,
                hint="holdfast repair PATH moves it away; the next clean makes another"
                if path == clean_plan_path(clean)
                else "put the file back from a backup",
            ):
                return decode_clean_plan(content)
    return None


def plan_paths(plan: StoredCleanPlan) -> list[str]:
    """The files that a plan deletes."""
    return [in_partition(partition, name) for partition, names in plan.files.items() for name in names]


def find_doomed_file(
    store: Store, timeline: Timeline, state: LedgerState, paths: pa.Array | pa.ChunkedArray
) -> tuple[InstantTime, str] | None:
    """A clean that deletes one of the paths, and that path; None if none does.

    Completed cleans count: a file that would not go may still be deleted by a
    process that fell asleep over the same plan. A pending one whose plan cannot
    be read may delete any file.
    """
    # Imported here: looking at a timeline must not wait for Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    pending = pending_cleans(store, timeline, state)
    for clean in (*pending, *(completed.time for completed in timeline.completed_cleans)):
        try:
            plan = read_clean_plan(store, clean)
        except TableDamaged:
            if clean in pending:
                return clean, "any, its plan cannot be read"
            continue
        doomed = pa.array([] if plan is None else plan_paths(plan), pa.string())
        hits = doomed.filter(pc.is_in(doomed, wanted))
        if len(hits) > 0:
            return clean, hits[0].as_py()
    return None


def find_deleting_clean(store: Store, file: str) -> InstantTime | None:
    """The first clean, finished or not, that deletes the file; None if no plan that can be read has it.

    The file is a path, or a file group, or one version of it as `group@instant`.
    """
    partition = partition_of(file)
    for instant in load_timeline(store).instants:
        if instant.action is Action.CLEAN:
            names = _names_in_plan(store, instant.time, partition)
            if any(file in _spellings(partition, name) for name in names):
                return instant.time
    return _find_archived_clean(store, file)


def _find_archived_clean(store: Store, file: str) -> InstantTime | None:
    partition = partition_of(file)
    archived = read_archive(store)
    for clean in archived.timeline.instants:
        content = archived.content(clean.time, Action.CLEAN) if clean.action is Action.CLEAN else None
        try:
            cleaned = () if content is None else decode_clean_metadata(content).partitions
        except Malformed:
            continue
        names = [name for each in cleaned if each.partition == partition for name in each.deleted]
        if any(file in _spellings(partition, name) for name in names):
            return clean.time
    return None


def _names_in_plan(store: Store, clean: InstantTime, partition: str) -> tuple[str, ...]:
    try:
        plan = read_clean_plan(store, clean)
    except TableDamaged:
        return ()
    return () if plan is None else plan.files.get(partition, ())


def _spellings(partition: str, name: str) -> tuple[str, ...]:
    """How a file may be named: by its path, its file group, or as one version of that."""
    path, log = in_partition(partition, name), parse_log_file(name)
    if log is not None:
        group = in_partition(partition, log.file_id)
        return path, group, f"{group}@{log.base_instant}"
    parsed = parse_base_file(name)
    if parsed is None:
        return (path,)
    group = in_partition(partition, parsed.file_id)
    return path, group, f"{group}@{parsed.instant}"
