"""Plans of cleans: what those delete that were decided or requested, by us or by another program.

Until the plan is on the timeline, the one that the ledger decided on counts;
the one on the timeline is that one without what was protected meanwhile.
"""

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import TableDamaged
from holdfast.format.cleans import StoredCleanPlan, decode_clean_plan
from holdfast.format.malformed import Malformed
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import in_partition, instant_file, stored_plan
from holdfast.storage.store import Store, read_or_none
from holdfast.timeline.cleans import completed_cleans, pending_cleans
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline


def read_clean_plan(store: Store, clean: InstantTime) -> StoredCleanPlan | None:
    """What a clean deletes; None if it was completed and has been archived, or was never whole."""
    requested = instant_file(clean, Action.CLEAN, State.REQUESTED)
    # Once more at the end: the stored plan goes when the clean is completed, after it was requested.
    for path in (requested, stored_plan(clean), requested):
        content = read_or_none(store, path)
        if content:
            try:
                return decode_clean_plan(content)
            except Malformed as error:
                raise TableDamaged("the plan of a clean cannot be read", file=path, cause=error) from error
    return None


def planned_paths(plan: StoredCleanPlan) -> list[str]:
    return [in_partition(partition, name) for partition, names in plan.files.items() for name in names]


def doomed_file(
    store: Store, timeline: Timeline, state: LedgerState, paths: pa.Array | pa.ChunkedArray
) -> tuple[InstantTime, str] | None:
    """A clean that deletes one of the paths, and that path; None if none does.

    Completed cleans count: a file that would not go may still be deleted by a
    process that fell asleep over the same plan. A pending one whose plan cannot
    be read may delete any file.
    """
    pending = pending_cleans(store, timeline, state)
    for clean in (*pending, *sorted(completed_cleans(timeline))):
        try:
            plan = read_clean_plan(store, clean)
        except TableDamaged:
            if clean in pending:
                return clean, "any, its plan cannot be read"
            continue
        doomed = pa.array([] if plan is None else planned_paths(plan), pa.string())
        hit = doomed.filter(pc.is_in(doomed, _flat(paths)))
        if len(hit) > 0:
            return clean, hit[0].as_py()
    return None


def _flat(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    return paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
