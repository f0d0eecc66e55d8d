"""Rolling back a write that failed with many files written, beside few and beside many other files.

The limit is deleting the same files one after the other, which forgets
everything else: what to delete, markers, the timeline, a power cut.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import holdfast
from bench.framework import Goal, Scene, Variant, Workload
from bench.workloads.control_plane import Size, build_table, region_names
from holdfast.clock import SystemClock
from holdfast.format.commits import inflight_metadata
from holdfast.format.ledger_entries import EntryKind
from holdfast.host import Owner
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import BaseFileName, in_partition, instant_file, marker_path
from holdfast.storage.local import LocalStore
from holdfast.timeline.ledger import Decision, Ledger

_LIMIT = "delete the files"
_ROLLBACK = "roll back"
_AMONG_MANY = "roll back, many other files"
FAILED = InstantTime("20991231235959000")
_GONE = Owner(host="gone", boot="gone", pid=1, started="0", token="gone")
_FILE_BYTES = 1024


def rollback(*, files: int, others: int, partitions: int = 100) -> Workload:
    def set_up(_: Path) -> Scene:
        few = Size(partitions=partitions, commits=1, files_per_commit=partitions)
        many = Size(partitions=partitions, commits=10, files_per_commit=others // 10)
        variants = (
            Variant(_LIMIT, _delete, lambda folder: _prepare(folder, few, files)),
            Variant(_ROLLBACK, _roll_back, lambda folder: _prepare(folder, few, files), _check),
            Variant(_AMONG_MANY, _roll_back, lambda folder: _prepare(folder, many, files), _check),
        )
        return Scene(variants, {"files": files, "other files": others, "partitions": partitions})

    goals = (Goal(_ROLLBACK, 2.0), Goal(_AMONG_MANY, 1.1, compared_with=_ROLLBACK))
    return Workload(name="rollback", limit=_LIMIT, goals=goals, set_up=set_up)


def _prepare(folder: Path, size: Size, files: int) -> None:
    """A table where a writer died when it had written so many files. No syncs: it is needed once."""
    path = str(folder / "table")
    build_table(path, size)
    leave_failed_write(path, files=files, partitions=region_names(size.partitions))


def leave_failed_write(
    path: str, *, files: int, partitions: Sequence[str], file_bytes: int = _FILE_BYTES
) -> None:
    """What a writer leaves that dies when it has written so many files."""
    for number in range(files):
        target = _data_path(number, partitions[number % len(partitions)])
        write_unsynced(path, marker_path(FAILED, target, "CREATE"), b"")
        write_unsynced(path, target, b"\0" * file_bytes)
    write_unsynced(path, instant_file(FAILED, Action.COMMIT, State.REQUESTED), b"")
    write_unsynced(
        path, instant_file(FAILED, Action.COMMIT, State.INFLIGHT), inflight_metadata("BULK_INSERT")
    )
    begin = Decision(kind=EntryKind.BEGIN, instant=FAILED, action=Action.COMMIT, owner=_GONE)
    Ledger(LocalStore(path), SystemClock()).append(lambda _: begin)


def _data_path(number: int, partition: str) -> str:
    file_id = f"{number:08x}-0000-4000-8000-{number:012x}-1"
    return in_partition(partition, str(BaseFileName(file_id, f"{number}-1-1", FAILED)))


def write_unsynced(root: str, path: str, content: bytes) -> None:
    target = f"{root}/{path}"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "xb") as file:
        file.write(content)


def _delete(folder: Path) -> None:
    for path in _left(folder):
        os.unlink(path)


def _roll_back(folder: Path) -> None:
    assert len(holdfast.open_table(str(folder / "table")).roll_back_failed_writes()) == 1


def _check(folder: Path) -> int:
    return len(_left(folder))


def _left(folder: Path) -> list[Path]:
    return list((folder / "table").glob(f"region=*/*_{FAILED}.parquet"))
