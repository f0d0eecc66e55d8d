"""Cleans as another program makes them: it knows the timeline and not the ledger."""

from __future__ import annotations

from harness.world import World
from holdfast.format.cleans import (
    CleanedPartition,
    CleanMetadata,
    StoredCleanPlan,
    encode_clean_metadata,
    encode_clean_plan,
)
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import instant_file, partition_of

FOREIGN_CLEAN = InstantTime("20231114221321000")
_POLICY = "KEEP_LATEST_FILE_VERSIONS"


def clean_by_another(
    world: World, *paths: str, state: State = State.COMPLETED, clean: InstantTime = FOREIGN_CLEAN
) -> None:
    """Bring a clean of these files so far; they are deleted only if it is completed."""
    files: dict[str, tuple[str, ...]] = {}
    for path in paths:
        partition = partition_of(path)
        files[partition] = (*files.get(partition, ()), path.rpartition("/")[2])
    plan = StoredCleanPlan(
        earliest=None, earliest_action=None, last_completed=None, policy=_POLICY, files=files
    )
    put = world.store.create
    put(instant_file(clean, Action.CLEAN, State.REQUESTED), encode_clean_plan(plan, root="memory:/"))
    if state is not State.REQUESTED:
        put(instant_file(clean, Action.CLEAN, State.INFLIGHT), b"")
    if state is State.COMPLETED:
        world.store.delete_all(paths)
        metadata = CleanMetadata(
            start_time=clean,
            took_ms=1,
            deleted_count=len(paths),
            earliest=None,
            last_completed=None,
            partitions=tuple(
                CleanedPartition(partition=partition, policy=_POLICY, deleted=names)
                for partition, names in files.items()
            ),
        )
        put(instant_file(clean, Action.CLEAN, State.COMPLETED), encode_clean_metadata(metadata))
