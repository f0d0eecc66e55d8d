"""Convert: a table of version 8 or 9 made anew in version 6, beside the old one, which stays as it is.

The new table grows in a folder beside its place, is compared with the old one,
and is then moved to its place in one step. A process that dies on the way
leaves that folder, which the next run clears away, and no table.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.clock import SystemClock
from holdfast.config.choices import TableType
from holdfast.errors import Refused, SnapshotExpired, TableDamaged, TableExists, WriterActive
from holdfast.files.merged_slice import each_merged
from holdfast.format.archive import ArchivedFile, encode_archive
from holdfast.host import SystemHost
from holdfast.model.instant import Action, InstantTime, State, moment_of
from holdfast.model.names import (
    PARTITION_METAFILE,
    archive_file,
    in_partition,
    partition_of,
    restore_archive_file,
)
from holdfast.model.reports import Severity
from holdfast.model.slices import FileSlice
from holdfast.read.snapshot import Snapshot, take_settled_snapshot
from holdfast.services.convert.plan import (
    Conversion,
    convert_content,
    convert_instants,
    convert_log,
    plan_conversion,
)
from holdfast.services.verify.verify import verify
from holdfast.storage.local import LocalStore
from holdfast.storage.open import location_of, open_store
from holdfast.table.archive import read_archive
from holdfast.table.opened import OpenTable, open_existing
from holdfast.table.properties_file import create_settings
from holdfast.table.stable_read import read_stable
from holdfast.table.view import View, each_slice, load_view
from holdfast.table.zone import timeline_zone

_FILES_PER_BLOCK = 10


@dataclass(frozen=True, slots=True)
class ConvertReport:
    path: str
    into: str
    version: str
    """That of the table which was converted."""
    base_files: int
    linked: int
    """Of the base files: those that are hard links, and take no place of their own."""
    log_files: int
    instants: int
    archived: int
    left: tuple[str, ...]
    """What was not completed, and stayed behind."""
    snapshots_compared: int
    rows_compared: int
    """Of the newest snapshot; all are the same in both."""


def convert(table: OpenTable, into: str) -> ConvertReport:
    """Make the new table. `TableExists` if anything is at its place, `TableDamaged` if the two differ."""
    source, target = _check_places(table, into)
    with _draft_of(target) as draft:
        found = read_stable(table.store, lambda timeline: _take(table, load_view(table.store, timeline)))
        view, plan = found
        linked = _bring_files(table, source, draft, plan)
        sizes = _bring_logs(table, draft, plan)
        archived = _make_timeline(table, draft, plan, sizes)
        _make_settings(draft, plan)
        compared, rows = _compare(table, view, plan, draft)
        _flush(draft)
        if os.path.lexists(target):
            raise TableExists("something has come to be at the new table's place", path=str(target))
        draft.rename(target)
        _flush_folder(target.parent)
    return ConvertReport(
        path=table.location.uri,
        into=str(target),
        version=table.settings.version,
        base_files=len(plan.bases),
        linked=linked,
        log_files=len(plan.present),
        instants=len(plan.instants),
        archived=archived,
        left=tuple(f"{i.time} {i.action} {i.state}" for i in plan.left),
        snapshots_compared=compared,
        rows_compared=rows,
    )


def _check_places(table: OpenTable, into: str) -> tuple[Path, Path]:
    if not table.settings.is_read_only:
        raise Refused("the table is of version 6 already", path=table.location.uri)
    place = location_of(into)
    if not isinstance(open_store(table.location), LocalStore) or not isinstance(
        open_store(place), LocalStore
    ):
        raise Refused(
            "a table is converted on local disks alone",
            path=table.location.uri,
            into=into,
            hint="copy the table to a local disk, or have Hudi 1.x downgrade it: downgrade_table",
        )
    source, target = Path(os.path.realpath(table.location.uri)), Path(place.uri)
    if os.path.lexists(target):
        raise TableExists(
            "there is something at the new table's place", path=str(target), hint="name another"
        )
    real = Path(os.path.realpath(target))
    if source in real.parents or real in source.parents:
        raise Refused("one table would lie in the other", path=str(source), into=str(target))
    if not target.parent.is_dir():
        raise Refused("the folder for the new table is not there", path=str(target.parent))
    return source, target


@contextmanager
def _draft_of(target: Path) -> Iterator[Path]:
    """An empty folder beside the target, which no other process uses. It is gone afterwards, or was moved."""
    draft = target.parent / f".{target.name}.converting"
    draft.mkdir(exist_ok=True)
    held = os.open(draft, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WriterActive("another process is converting into this place", path=str(target)) from None
        for left in draft.iterdir():  # Of a process that died.
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        try:
            yield draft
        finally:
            if draft.exists():
                shutil.rmtree(draft)
    finally:
        os.close(held)


def _take(table: OpenTable, view: View) -> tuple[View, Conversion]:
    view.latest(
        base_only=table.settings.table_type is TableType.COPY_ON_WRITE
    )  # What is missing is said here.
    return view, plan_conversion(table.settings, view)


def _bring_files(table: OpenTable, source: Path, draft: Path, plan: Conversion) -> int:
    """Link the base files, or copy them where that is not possible; how many were linked."""
    linked = 0
    partitions = {partition_of(path) for path in (*plan.bases, *plan.logs.values())}
    for partition in sorted(partitions):
        (draft / partition).mkdir(parents=True, exist_ok=True)
        metafile = source / in_partition(partition, PARTITION_METAFILE)
        if metafile.exists():
            shutil.copy2(metafile, draft / partition)
    for path in plan.bases:
        try:
            os.link(source / path, draft / path)
            linked += 1
        except FileNotFoundError as error:
            raise TableDamaged("a data file is missing", file=path) from error
        except OSError:
            shutil.copy2(source / path, draft / path)
    return linked


def _bring_logs(table: OpenTable, draft: Path, plan: Conversion) -> dict[str, int]:
    """Copy the log files to their new names; how long each is there, by its old path."""
    sizes = {}
    for path in plan.present:
        content = convert_log(table.store.read(path))
        (draft / plan.logs[path]).write_bytes(content)
        sizes[path] = len(content)
    return sizes


def _make_timeline(table: OpenTable, draft: Path, plan: Conversion, sizes: dict[str, int]) -> int:
    """Write the timeline, each file with the time at which it was made, and the archive; how much that has.

    Hudi 1.x takes the time of a completed file for that of its completion.
    """
    zone = timeline_zone(table)
    (draft / ".hoodie").mkdir()
    for path, content, instant in convert_instants(table.store, plan, sizes):
        (draft / path).write_bytes(content)
        made = instant.completed_at or moment_of(instant.time, zone)
        made_ns = round(made.timestamp() * 1000) * 1_000_000
        os.utime(draft / path, ns=(made_ns, made_ns))
    files = [
        ArchivedFile(
            file.time, file.action, file.state,
            _content_for_archive(file, plan, sizes),
            file.changed_at,
        )
        for file in read_archive(table.store, table.settings).files.values()
    ]  # fmt: skip
    files.sort(key=lambda file: (file.time, file.state is State.COMPLETED))
    folder = draft / ".hoodie" / "archived"
    folder.mkdir()
    for are_restores, name in ((False, archive_file), (True, restore_archive_file)):
        chosen = [file for file in files if (file.action is Action.RESTORE) is are_restores]
        if chosen:
            content = encode_archive(chosen, per_block=_FILES_PER_BLOCK, zone=zone)
            (draft / name("archived", 1)).write_bytes(content)
    return len({(file.time, file.action) for file in files})


def _content_for_archive(file: ArchivedFile, plan: Conversion, sizes: dict[str, int]) -> bytes:
    if file.state is not State.COMPLETED or not file.content:
        return file.content
    return convert_content(file.content, file.action, plan, sizes)


def _make_settings(draft: Path, plan: Conversion) -> None:
    store = open_store(location_of(draft))
    create_settings(store, plan.settings, now_ms=SystemClock().now_ms())


def _compare(table: OpenTable, view: View, plan: Conversion, draft: Path) -> tuple[int, int]:
    """Compare every snapshot file by file, the newest row by row: how many snapshots, and how many rows."""
    location = location_of(draft)
    new = open_existing(open_store(location), location, clock=SystemClock(), host=SystemHost())
    compared = 0
    for moment in (*(commit.time for commit in view.timeline.completed_commits), None):
        try:
            theirs = take_settled_snapshot(table, moment)
        except SnapshotExpired:
            continue
        ours = take_settled_snapshot(new, moment)
        _compare_slices(plan, theirs, ours, moment)
        compared += 1
    rows = _compare_rows(table, theirs, new, ours)
    damage = [finding for finding in verify(new).findings if finding.severity is Severity.DAMAGE]
    if damage:
        raise TableDamaged("the new table is not sound", file=damage[0].path, cause=damage[0].detail)
    return compared, rows


def _compare_slices(plan: Conversion, theirs: Snapshot, ours: Snapshot, moment: InstantTime | None) -> None:
    expected = {
        (each.base, tuple(plan.logs[path] for path in each.logs)) for each in each_slice(theirs.slices)
    }
    found = {(each.base, each.logs) for each in each_slice(ours.slices)}
    if expected != found or theirs.schema != ours.schema:
        raise TableDamaged(
            "a snapshot of the new table is not that of the old one",
            as_of=moment or "now",
            file=next((base for base, _ in expected ^ found), None),
        )


def _compare_rows(table: OpenTable, theirs: Snapshot, new: OpenTable, ours: Snapshot) -> int:
    """Base files are the same files; slices with log files are read from both."""
    rows = sum(_count_rows(table, path) for path in theirs.plain.paths)
    by_group = {(each.partition, each.file_id): each for each in ours.merged}
    for each in theirs.merged:
        old = _read_slice(table, each, theirs)
        if not old.equals(_read_slice(new, by_group[each.partition, each.file_id], ours)):
            raise TableDamaged("rows of the new table are not those of the old one", file=each.files[0])
        rows += old.num_rows
    return rows


def _read_slice(table: OpenTable, each: FileSlice, found: Snapshot) -> pa.Table:
    assert found.merge is not None, "the slice has log files"
    assert found.schema is not None, "a table with files has a schema"
    parts = each_merged(table.store, each, found.schema, found.merge)
    return pa.concat_tables([found.schema.empty_table(), *parts])


def _count_rows(table: OpenTable, path: str) -> int:
    with table.store.open(path) as source:
        return int(pq.read_metadata(source).num_rows)


def _flush(folder: Path) -> None:
    """Make everything below durable."""
    for place, _, names in os.walk(folder):
        for name in names:
            _flush_file(os.path.join(place, name))
        _flush_folder(Path(place))


def _flush_folder(folder: Path) -> None:
    _flush_file(str(folder))


def _flush_file(path: str) -> None:
    held = os.open(path, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
