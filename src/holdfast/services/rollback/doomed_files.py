"""Which files go when a write is rolled back: the plan, and a look at it before it is carried out.

Nothing here changes anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.errors import TableDamaged
from holdfast.format.commits import check_digest, decode_written_files
from holdfast.format.malformed import report_damage
from holdfast.format.rollbacks import RollbackPlan, RollbackRequest, RolledBackInstant
from holdfast.model.instant import Action, State
from holdfast.model.names import (
    META_FOLDER,
    in_partition,
    instant_file,
    is_file_of,
    parse_base_file,
    partition_of,
)
from holdfast.services.rollback.failed_writes import FailedWrite
from holdfast.storage.store import read_or_none
from holdfast.table.log_files import (
    Share,
    files_of_write,
    find_files_of_write,
    is_log_file,
    log_name,
    share_of,
)
from holdfast.table.markers import read_markers
from holdfast.table.opened import OpenTable


def plan_rollback(table: OpenTable, write: FailedWrite, *, is_revoked: bool = False) -> RollbackPlan:
    """What to delete: what the commit names, what the markers announce, or else what a listing finds."""
    named = _files_of_shown_commit(table, write) if is_revoked else _files_of_markers(table, write)
    if named is None:
        found = find_files_of_write(table.store, table.store.paths("", without=META_FOLDER), write.time)
    else:
        found = files_of_write(table.store, named, write.time)
    own = {*found.own, *(_logs_of_new_slices(table, write, found.own) if is_revoked else ())}
    doomed: dict[str, list[str]] = {}
    for path in sorted(own):
        doomed.setdefault(partition_of(path), []).append(table.store.uri(path))
    requests = [RollbackRequest(partition, files=tuple(files)) for partition, files in sorted(doomed.items())]
    requests += _requests_for_blocks(table, sorted(set(found.shared) - own))
    return RollbackPlan(RolledBackInstant(write.time, write.action), tuple(requests))


def _logs_of_new_slices(table: OpenTable, write: FailedWrite, own: Iterable[str]) -> list[str]:
    """The log files of slices that go with the commit that made them: of later writes, which are gone."""
    slices = {
        (partition_of(path), base.file_id)
        for path in own
        if (base := parse_base_file(path.rpartition("/")[2])) is not None
    }
    files = [file for folder in {folder for folder, _ in slices} for file in table.store.folder(folder).files]
    return [
        file.path
        for file in files
        if (name := log_name(file.path)) is not None
        and name.base_instant == write.time
        and (partition_of(file.path), name.file_id) in slices
    ]


def _requests_for_blocks(table: OpenTable, paths: Iterable[str]) -> list[RollbackRequest]:
    """One request for each slice with log files that hold what others wrote, too."""
    by_slice: dict[tuple[str, str, str], dict[str, int]] = {}
    for path in paths:
        name, stored = log_name(path), table.store.stat(path)
        if name is not None and stored is not None:
            key = partition_of(path), name.file_id, name.base_instant
            by_slice.setdefault(key, {})[table.store.uri(path)] = stored.size
    return [RollbackRequest(*key, log_blocks=blocks) for key, blocks in by_slice.items()]


def _files_of_shown_commit(table: OpenTable, write: FailedWrite) -> list[str] | None:
    """None if the commit is not shown any more; its markers may be gone in part by then."""
    path = instant_file(write.time, write.action, State.COMPLETED)
    content = read_or_none(table.store, path)
    return None if content is None else files_of_commit(write, content)


def files_of_commit(write: FailedWrite, content: bytes, *, is_archived: bool = False) -> list[str]:
    """What a commit says it wrote."""
    with report_damage(
        "commit metadata cannot be read", file=instant_file(write.time, write.action, State.COMPLETED)
    ):
        if not is_archived:  # An archive tells the same in other letters.
            check_digest(content, write.time)
        return [file.path for file in decode_written_files(content) if file.path is not None]


def _files_of_markers(table: OpenTable, write: FailedWrite) -> list[str] | None:
    """None if there is no marker although the write may have begun to write files."""
    paths = [marker.data_path for marker in read_markers(table.store, write.time)]
    inflight = instant_file(write.time, write.action, State.INFLIGHT)
    return None if not paths and table.store.stat(inflight) is not None else paths


@dataclass(frozen=True, slots=True)
class Doomed:
    """The plan's files relative to the table, wherever the table was when it was planned."""

    files: tuple[str, ...]
    shared: tuple[str, ...]
    """Log files that were found to hold what other writes made, too."""


def files_of_plan(table: OpenTable, plan: RollbackPlan, write: FailedWrite) -> Doomed:
    """The files of the plan, after a look at each whether it is of the write alone."""
    files: list[str] = []
    shared: list[str] = []
    for request in plan.requests:
        for file in request.files:
            path = in_partition(request.partition, file.rpartition("/")[2])
            if not _may_be_deleted(table, path, write):
                raise TableDamaged(
                    "a rollback plan names a file of another instant", file=file, instant=write.time
                )
            files.append(path)
        for file in request.log_blocks:
            path = in_partition(request.partition, file.rpartition("/")[2])
            if not is_log_file(path):
                raise TableDamaged("a rollback plan names blocks of what is no log file", file=file)
            shared.append(path)
    return Doomed(tuple(files), tuple(shared))


def _may_be_deleted(table: OpenTable, path: str, write: FailedWrite) -> bool:
    """Whether a file is of the write by its name or its content, or of a slice that came with it."""
    if is_file_of(path, write.time):
        return True
    name = log_name(path)
    if name is None:
        return False
    # A slice that is named after a compaction may have begun before it is carried out.
    if name.base_instant == write.time and write.action is not Action.COMPACTION:
        return True
    return share_of(table.store, path, write.time) is Share.WHOLE or table.store.stat(path) is None
