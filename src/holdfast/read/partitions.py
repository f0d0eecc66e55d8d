"""Reads of some partitions: the files of others are left out before any is opened."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidRequest
from holdfast.read.snapshot import Snapshot


def select_partitions(snapshot: Snapshot, partitions: Sequence[str]) -> Snapshot:
    """The files of these partitions; `InvalidRequest` if the table has none below one of the paths."""
    folders = _folders(snapshot)
    for partition in partitions:
        if not any(folder == partition or folder.startswith(f"{partition}/") for folder in folders):
            known = ", ".join(sorted(folders)[:5]) + (", ..." if len(folders) > 5 else "")
            raise InvalidRequest("the table has no such partition", partition=partition, partitions=known)
    return files_below(snapshot, partitions)


def is_below(partition: str, partitions: Sequence[str]) -> bool:
    """Whether a partition is one of these paths, or lies below one."""
    return any(partition == each or partition.startswith(f"{each}/") for each in partitions)


def files_below(snapshot: Snapshot, partitions: Sequence[str]) -> Snapshot:
    """The files whose partition is one of these paths, or lies below one."""
    folders = snapshot.slices["partition"].combine_chunks()
    is_wanted = pc.is_in(folders, pa.array(list(partitions), pa.string()))
    for partition in partitions:
        is_wanted = pc.or_(is_wanted, pc.starts_with(folders, f"{partition}/"))
    return snapshot.only(is_wanted)


def _folders(snapshot: Snapshot) -> set[str]:
    return set(snapshot.slices["partition"].unique().to_pylist())
