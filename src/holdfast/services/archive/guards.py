"""What keeps instants on the active timeline, as far as only storage tells.

A replaced file group whose files are there would be seen again once the
replacecommit is archived. A file of a write that was rolled back would be
taken for one of a commit, once the timeline begins after it. And a clean is
needed as long as a file of its plan is there: a process that fell asleep over that
plan may still delete it.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from holdfast.format.cleans import CleanMetadata, decode_clean_metadata
from holdfast.format.commits import decode_replaced_file_ids, decode_writes
from holdfast.format.malformed import report_damage
from holdfast.format.restores import decode_restore_metadata
from holdfast.format.rollbacks import RollbackMetadata, decode_rollback_metadata
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, State
from holdfast.model.names import (
    META_FOLDER,
    in_partition,
    instant_path,
    is_data_file,
    parse_instant_file,
    parse_log_file,
)
from holdfast.services.archive.plan import ArchivePlan, Bound, bound_before
from holdfast.storage.store import Store
from holdfast.table.clean_plans import plan_paths, read_clean_plan
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import read_settings
from holdfast.table.row_placement import commits_in_place, read_placement_record
from holdfast.timeline.timeline import Timeline, read_all_completed

log = logging.getLogger(__name__)

UNDOING = (Action.ROLLBACK, Action.RESTORE)
_METADATA_TIMELINE = META_FOLDER + "/metadata/.hoodie"
_PARTITIONS_LISTED_MAX = 1000
"""Beyond this many partitions only what a rollback itself could not delete is looked for."""


@dataclass
class Folders:
    """What is in the partitions, each listed once."""

    store: Store
    _names: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def data_files(self, partition: str) -> tuple[str, ...]:
        if partition not in self._names:
            names = (file.path.rpartition("/")[2] for file in self.store.folder(partition).files)
            self._names[partition] = tuple(name for name in names if is_data_file(name))
        return self._names[partition]


def metadata_table_bound(table: OpenTable) -> Bound | None:
    """A metadata table needs the commits since its last compaction."""
    files = table.store.folder(_METADATA_TIMELINE).files
    if not files and not read_settings(table.store).metadata_partitions:
        return None
    parsed = (parse_instant_file(file.path.rpartition("/")[2]) for file in files)
    compacted = (Action.COMMIT, State.COMPLETED)
    compactions = [one[0] for one in parsed if one is not None and one[1:] == compacted]
    if not compactions:
        return Bound(InstantTime("0"), "the metadata table was never compacted")
    return Bound(max(compactions), f"the metadata table was compacted at {max(compactions)}")


def bound_of_uncleaned(store: Store, folders: Folders, commits: Iterable[Instant]) -> Bound | None:
    """The first replacecommit whose replaced file groups still have files."""
    replacing = [commit for commit in commits if commit.action is Action.REPLACECOMMIT]
    for commit, content in read_all_completed(store, replacing):
        for partition, file_ids in _decode_replaced(commit, content).items():
            ids = frozenset(file_ids)
            left = [name for name in folders.data_files(partition) if _file_id(name) in ids]
            if left:
                file = in_partition(partition, left[0])
                return Bound(commit.time, f"{file}, which {commit.time} replaced, is not cleaned yet")
    return None


def unswept(
    store: Store, folders: Folders, timeline: Timeline, plan: ArchivePlan
) -> tuple[list[Bound], set[InstantTime]]:
    """Writes that were rolled back and have files left, before the commit that the timeline would begin with.

    Each keeps the timeline beginning before it, if it does so now; its rollback
    stays, too. So does every other rollback that would go and left a file. A
    restore counts as the rollbacks that it consisted of.
    """
    going = {instant.time for instant in plan.instants if instant.action in UNDOING}
    first_left = plan.first_left or InstantTime("")
    commits = timeline.completed_commits
    standing = {commit.time for commit in commits}
    bounds: list[Bound] = []
    staying: set[InstantTime] = set()
    listed: set[str] = set()
    for instant, metadata in _rollbacks(store, timeline):
        is_going = instant.time in going
        targets = {time for time in metadata.commits if is_going or time < first_left} - standing
        listed |= {one.partition for one in metadata.partitions}
        is_thorough = len(listed) <= _PARTITIONS_LISTED_MAX
        left = _find_left_file(store, folders, metadata, targets, is_thorough=is_thorough)
        if targets and left is not None:
            staying.add(instant.time)
            reason = f"{left}, which {instant.time} rolled back, is still there"
            passed = [target for target in targets if commits and commits[0].time < target < first_left]
            bounds += [bound_before(commits, target, reason) for target in passed]
            log.warning(
                "archive.orphan", extra={"table": store.uri(""), "file": left, "rollback": instant.time}
            )
    if len(listed) > _PARTITIONS_LISTED_MAX:
        log.info("archive.orphans_not_looked_for", extra={"table": store.uri(""), "partitions": len(listed)})
    return bounds, staying


def cleans_to_keep(store: Store, folders: Folders, cleans: Iterable[Instant]) -> set[InstantTime]:
    """Cleans with files of their plans that are still there."""
    found: set[InstantTime] = set()
    for instant, content in read_all_completed(store, list(cleans)):
        plan = read_clean_plan(store, instant.time)
        if plan is None:
            continue
        deleted = {
            in_partition(one.partition, name)
            for one in _clean_metadata(instant, content).partitions
            for name in one.deleted
        }
        for path in plan_paths(plan):
            partition, _, name = path.rpartition("/")
            if path not in deleted and name in folders.data_files(partition):
                found.add(instant.time)
                break
    return found


def leaving_in_place(store: Store, instants: Iterable[Instant]) -> tuple[InstantTime, ...]:
    """The commits among them whose files have all rows in the partitions that these name."""
    commits = [instant for instant in instants if instant.action in COMMIT_ACTIONS]
    said: dict[InstantTime, frozenset[InstantTime]] = {}
    for commit, content in read_all_completed(store, commits):
        with _damage_of(commit):
            writes = decode_writes(content)
        if writes.are_in_place:
            said[commit.time] = writes.built_on
    if not said:
        return ()
    return tuple(sorted(commits_in_place(said, read_placement_record(store)) & said.keys()))


def _find_left_file(
    store: Store,
    folders: Folders,
    metadata: RollbackMetadata,
    targets: Collection[InstantTime],
    *,
    is_thorough: bool,
) -> str | None:
    """A file of what was rolled back that is there; None if there is none."""
    for one in metadata.partitions:
        stuck = {path.rpartition("/")[2] for path in one.failed_files}
        if not stuck and not is_thorough:
            continue
        for name in folders.data_files(one.partition):
            if name in stuck or (is_thorough and _instant(name) in targets):
                return in_partition(one.partition, name)
    return None


def _rollbacks(store: Store, timeline: Timeline) -> Iterator[tuple[Instant, RollbackMetadata]]:
    done = [i for i in timeline.instants if i.action in UNDOING and i.is_completed]
    for instant, content in read_all_completed(store, done):
        with _damage_of(instant):
            if instant.action is Action.ROLLBACK:
                yield instant, decode_rollback_metadata(content)
            else:
                for parts in decode_restore_metadata(content).rollbacks.values():
                    yield from ((instant, part) for part in parts)


def _decode_replaced(commit: Instant, content: bytes) -> Mapping[str, list[str]]:
    with _damage_of(commit):
        return decode_replaced_file_ids(content)


def _clean_metadata(clean: Instant, content: bytes) -> CleanMetadata:
    with _damage_of(clean):
        return decode_clean_metadata(content)


def _damage_of(instant: Instant) -> AbstractContextManager[None]:
    return report_damage("an instant's metadata cannot be read", file=instant_path(instant))


def _file_id(name: str) -> str:
    return name.removeprefix(".").partition("_")[0]


def _instant(name: str) -> str:
    """The write that the name of a base file, or of a log file of ours, tells."""
    log_file = parse_log_file(name)
    if log_file is not None:
        return log_file.written_by or ""
    return name.rpartition("_")[2].partition(".")[0]
