"""Files that cleans gave up: which clean explains that one is missing."""

from holdfast.errors import TableDamaged
from holdfast.format.cleans import decode_clean_metadata
from holdfast.format.malformed import Malformed
from holdfast.model.instant import Action, InstantTime
from holdfast.model.names import in_partition, parse_base_file, partition_of
from holdfast.storage.store import Store
from holdfast.table.archive import read_archive
from holdfast.table.clean_plans import read_clean_plan
from holdfast.timeline.timeline import load_timeline


def clean_that_names(store: Store, file: str) -> InstantTime | None:
    """The first clean, finished or not, that gave the file up; None if no plan that can be read has it.

    The file is a path, or a file group, or one version of it as `group@instant`.
    """
    partition = partition_of(file)
    for clean in (
        instant.time for instant in load_timeline(store).instants if instant.action is Action.CLEAN
    ):
        names = _names(store, clean, partition)
        if any(file in _spellings(partition, name) for name in names):
            return clean
    return _archived_clean(store, file)


def _archived_clean(store: Store, file: str) -> InstantTime | None:
    partition = partition_of(file)
    archived = read_archive(store)
    for clean in archived.timeline.instants:
        said = archived.said(clean.time, Action.CLEAN) if clean.action is Action.CLEAN else None
        try:
            partitions = () if said is None else decode_clean_metadata(said).partitions
        except Malformed:
            continue
        names = [name for one in partitions if one.partition == partition for name in one.deleted]
        if any(file in _spellings(partition, name) for name in names):
            return clean.time
    return None


def _names(store: Store, clean: InstantTime, partition: str) -> tuple[str, ...]:
    try:
        plan = read_clean_plan(store, clean)
    except TableDamaged:
        return ()
    return () if plan is None else plan.files.get(partition, ())


def _spellings(partition: str, name: str) -> tuple[str, ...]:
    path, parsed = in_partition(partition, name), parse_base_file(name)
    if parsed is None:
        return (path,)
    group = in_partition(partition, parsed.file_id)
    return path, group, f"{group}@{parsed.instant}"
