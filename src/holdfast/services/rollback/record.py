"""The record of a rollback, as Hudi keeps it: what became of the files of its plan."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.format.rollbacks import RollbackMetadata, RollbackPlan, RolledBackPartition
from holdfast.model.instant import InstantTime
from holdfast.model.names import partition_of
from holdfast.services.rollback.command_blocks import TakenBackBlocks
from holdfast.storage.store import Store


@dataclass(frozen=True, slots=True)
class Removed:
    """What a rollback did to the files of its plan."""

    deleted: tuple[str, ...]
    blocks: TakenBackBlocks = field(default_factory=TakenBackBlocks)


def rollback_metadata(
    store: Store, plan: RollbackPlan, removed: Removed, rollback: InstantTime, *, took_ms: int
) -> RollbackMetadata:
    """The record of a rollback, as Hudi's."""
    planned = {path for request in plan.requests for path in (*request.files, *request.log_blocks)}
    # A plan may name files as they were where the table was before.
    said = {path.rpartition("/")[2]: path for path in planned}
    partitions: dict[str, RolledBackPartition] = {}
    for partition in sorted({request.partition for request in plan.requests}):
        partitions[partition] = RolledBackPartition(
            partition,
            tuple(said[name] for name in _names_in(partition, removed.deleted)),
            rollback_log_files=_sizes_in(store, partition, removed.blocks.commands),
            failed_commit_log_files=_sizes_in(store, partition, removed.blocks.held),
        )
    return RollbackMetadata(
        start_time=rollback,
        time_taken_ms=took_ms,
        total_files_deleted=len(removed.deleted),
        commits=(plan.target,),
        by_partition=partitions,
        instants=(plan.instant,),
    )


def _names_in(partition: str, paths: Iterable[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths if partition_of(path) == partition]


def _sizes_in(store: Store, partition: str, sizes: Mapping[str, int]) -> dict[str, int]:
    return {store.uri(path): size for path, size in sizes.items() if partition_of(path) == partition}
