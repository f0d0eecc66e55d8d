"""Repair: put out of the way what `verify` proved to belong to no write, and finish what was decided.

Nothing is deleted outright. A manifest opens the quarantine, then each file is
copied into it and removed from its place, then the manifest is closed:

    .hoodie/.holdfast/quarantine/<id>.json
    .hoodie/.holdfast/quarantine/<id>/<path in the table>

A repair that finds an open quarantine goes on with it. What belongs to no write stays
so: an instant that is decided is decided for good, and no process can begin
one that is not known. So it is enough to look once more before the first move.
"""

import datetime as dt
import logging
import shutil
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from holdfast.config.choices import FailedWritesPolicy
from holdfast.errors import InvalidRequest, Refused, StorageUnavailable, TableDamaged
from holdfast.model.instant import InstantTime, time_at
from holdfast.model.names import (
    ABORTED_FOLDER,
    CHECKPOINT_FOLDER,
    LEDGER_FLOOR,
    LEDGER_FOLDER,
    QUARANTINE_FOLDER,
    parse_instant_file,
    partition_of,
)
from holdfast.model.reports import Finding, FindingKind, RepairReport, RollbackReport, VerifyReport
from holdfast.services.rehearsals import Rehearsed, rehearse
from holdfast.services.repair.missing_commits import files_of_lost, show_again, take_back_lost
from holdfast.services.repair.plan import RepairPlan, plan_repair
from holdfast.services.rollback.rollback import recover_on_request
from holdfast.services.verify.verify import verify
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable
from holdfast.table.publish import ensure_metafile
from holdfast.timeline.after_decision import after_decision
from holdfast.timeline.timeline import load_timeline

log = logging.getLogger(__name__)

_BATCH = 256
_CHUNK_BYTES = 1 << 20
_RUN_AGAIN = "run the same again: it goes on where this one ended"


class _Manifest(msgspec.Struct, frozen=True):
    is_open: bool
    paths: tuple[str, ...]
    """What is to be moved, or was; for people."""


def repair(table: OpenTable, report: VerifyReport) -> RepairReport:
    """Move to quarantine what the report found to belong to no write, and finish what was decided.

    Only what is still so is touched, and running writers are left alone. A
    crash at any point leaves a repair that the next call finishes.
    `TableDamaged` if the ledger is damaged: then nothing is proven.
    """
    table.settings.check_changeable()
    now = verify(table).findings
    _refuse_if_unproven(now)
    reported = {(finding.kind, finding.path) for finding in report.findings}
    plan = plan_repair(finding for finding in now if (finding.kind, finding.path) in reported)
    lost = _instants(plan.taken_back)
    quarantine = _move(table, plan.moved, also=files_of_lost(table, lost))
    left = plan.left
    rolled_back: tuple[RollbackReport, ...] = ()
    taken_back: tuple[InstantTime, ...] = ()
    if plan.has_to_finish:
        try:
            with nullcontext() if quarantine is None else _after_moving(quarantine):
                taken_back = take_back_lost(table, lost)
                rolled_back = _finish(table, plan)
        except Refused as error:  # A restore is to be finished first.
            log.warning("repair.refused", extra={"table": table.store.uri(""), "cause": str(error)})
            left += plan.finished
    return RepairReport(
        quarantine=quarantine,
        moved=() if quarantine is None else _content(table.store, quarantine),
        rolled_back=rolled_back,
        left=left,
        taken_back=taken_back,
    )


def _finish(table: OpenTable, plan: RepairPlan) -> tuple[RollbackReport, ...]:
    """Finish what is decided, and show again what has vanished.

    What becomes pending again is missed by readers from then on, so storage that fails afterwards leaves
    another table than it found.
    """
    vanished = _instants(f for f in plan.finished if f.kind is FindingKind.VANISHED)
    metafiles = [finding for finding in plan.finished if finding.kind is FindingKind.METAFILE]
    changes_by_itself = bool(plan.taken_back or vanished or metafiles)
    with after_decision("the repair has begun", hint=_RUN_AGAIN) if changes_by_itself else nullcontext():
        show_again(table, vanished)
        newest = load_timeline(table.store).last_commit
        for finding in metafiles:
            if newest is not None:
                ensure_metafile(table, partition_of(finding.path), newest.time)
        return recover_on_request(table, policy=FailedWritesPolicy.LAZY).rolled_back


def _instants(findings: Iterable[Finding]) -> frozenset[InstantTime]:
    """The instants whose files findings name."""
    parsed = (parse_instant_file(finding.path.rpartition("/")[2]) for finding in findings)
    return frozenset(one[0] for one in parsed if one is not None)


def rehearse_repair(table: OpenTable, findings: Iterable[Finding]) -> Rehearsed[object]:
    """What leaves its place by a repair of these findings. Changes nothing, and copies nothing."""
    plan = plan_repair(findings)

    def act(rehearsal: OpenTable) -> None:
        lost = _instants(plan.taken_back)
        rehearsal.store.delete_all([*_paths(rehearsal.store, plan.moved), *files_of_lost(rehearsal, lost)])
        if plan.has_to_finish:
            take_back_lost(rehearsal, lost)
            _finish(rehearsal, plan)

    return rehearse(table, act)


def undo_repair(table: OpenTable, quarantine: str) -> tuple[str, ...]:
    """Put back what a repair moved, byte for byte; the paths.

    What a repair finished stays finished. `Refused` if another file has the
    place of one that was moved. A crash at any point leaves a quarantine that
    the next call empties.
    """
    table.settings.refuse_if_read_only()
    store, paths = table.store, files_in_quarantine(table, quarantine)
    blocked = [
        path
        for path in paths
        if _is_there(store, path) and not _alike(store, path, _place_of(quarantine, path))
    ]
    if blocked:
        raise Refused(
            "another file has the place of one that was moved",
            file=blocked[0],
            count=len(blocked),
            hint="move it away, then undo the repair again",
        )
    with after_decision("the undoing of a repair has begun", quarantine=quarantine, hint=_RUN_AGAIN):
        for path in paths:
            _copy(store, _place_of(quarantine, path), path)
        _delete(store, [_place_of(quarantine, path) for path in paths])
        store.delete(_manifest_path(quarantine))
        store.prune(f"{QUARANTINE_FOLDER}/{quarantine}")
    log.info(
        "repair.undone", extra={"table": table.store.uri(""), "quarantine": quarantine, "files": len(paths)}
    )
    return paths


def files_in_quarantine(table: OpenTable, quarantine: str) -> tuple[str, ...]:
    """What a repair moved, by its place in the table. `InvalidRequest` if there was no such repair."""
    known = quarantines(table)
    if quarantine not in known:
        raise InvalidRequest("no repair has this id", quarantine=quarantine, known=", ".join(known) or "none")
    return _content(table.store, quarantine)


def quarantine_files(table: OpenTable, quarantine: str) -> tuple[str, ...]:
    """What leaves the quarantine when its repair is undone: every file in it, and its manifest."""
    kept = (_place_of(quarantine, path) for path in files_in_quarantine(table, quarantine))
    return (*kept, _manifest_path(quarantine))


def quarantines(table: OpenTable) -> tuple[str, ...]:
    """The repairs that can be undone, oldest first."""
    names = [file.path.rpartition("/")[2] for file in table.store.folder(QUARANTINE_FOLDER).files]
    return tuple(name.removesuffix(".json") for name in names if name.endswith(".json"))


def _refuse_if_unproven(findings: Iterable[Finding]) -> None:
    for finding in findings:
        if finding.path.startswith((LEDGER_FOLDER, CHECKPOINT_FOLDER, ABORTED_FOLDER, LEDGER_FLOOR)):
            raise TableDamaged(
                "the ledger is damaged, so it is not known what is needed",
                file=finding.path,
                hint=finding.remedy,
            )


def _after_moving(quarantine: str) -> AbstractContextManager[None]:
    return after_decision("the repair has begun", quarantine=quarantine, hint=_RUN_AGAIN)


def _move(table: OpenTable, findings: Sequence[Finding], *, also: Sequence[str] = ()) -> str | None:
    """Move the files of some findings; the quarantine they are in, or None if there is nothing to move."""
    store = table.store
    folders = [finding.path for finding in findings if finding.kind is FindingKind.MARKERS]
    paths = [*_paths(store, findings), *also]
    quarantine = _open_quarantine(table) or (_new_quarantine(table, paths) if paths else None)
    if quarantine is None:
        return None
    with _after_moving(quarantine):
        for at in range(0, len(paths), _BATCH):
            batch = paths[at : at + _BATCH]
            _delete(store, [path for path in batch if _is_kept(store, quarantine, path)])
        for folder in folders:
            store.prune(folder)
        closed = _Manifest(is_open=False, paths=_content(store, quarantine))
        store.put(_manifest_path(quarantine), msgspec.json.encode(closed))
    log.info(
        "repair.moved", extra={"table": table.store.uri(""), "quarantine": quarantine, "files": len(paths)}
    )
    return quarantine


def _paths(store: Store, findings: Sequence[Finding]) -> list[str]:
    """The files of some findings, of which some are folders of markers."""
    paths = [finding.path for finding in findings if finding.kind is not FindingKind.MARKERS]
    folders = [finding.path for finding in findings if finding.kind is FindingKind.MARKERS]
    return paths + [path for folder in folders for path in store.paths(folder)]


def _open_quarantine(table: OpenTable) -> str | None:
    """The quarantine of a repair that died."""
    for quarantine in quarantines(table):
        path = _manifest_path(quarantine)
        try:
            if msgspec.json.decode(table.store.read(path), type=_Manifest).is_open:
                return quarantine
        except FileNotFoundError:
            continue
        except msgspec.DecodeError as error:
            raise TableDamaged("the manifest of a repair cannot be read", file=path, cause=error) from error
    return None


def _new_quarantine(table: OpenTable, paths: Sequence[str]) -> str:
    manifest = msgspec.json.encode(_Manifest(is_open=True, paths=tuple(paths)))
    while True:
        quarantine = time_at(table.clock.now_ms(), dt.UTC)
        if table.store.create(_manifest_path(quarantine), manifest):
            return quarantine


def _is_kept(store: Store, quarantine: str, path: str) -> bool:
    """Copy the file into the quarantine; whether what is there now may be removed."""
    place = _place_of(quarantine, path)
    try:
        return _copy(store, path, place) or _alike(store, path, place)
    except FileNotFoundError:  # Somebody else removed it.
        return False


def _copy(store: Store, source: str, target: str) -> bool:
    """Copy a file, whole or not at all. False if the target is there already."""
    try:
        with store.open(source) as content, store.upload(target) as copy:
            shutil.copyfileobj(content, copy, _CHUNK_BYTES)
    except FileExistsError:
        return False
    return True


def _alike(store: Store, one: str, other: str) -> bool:
    with store.open(one) as left, store.open(other) as right:
        while True:
            chunk = left.read(_CHUNK_BYTES)
            if chunk != right.read(_CHUNK_BYTES):
                return False
            if not chunk:
                return True


def _delete(store: Store, paths: Iterable[str]) -> None:
    stuck = store.delete_all(paths)
    if stuck:
        raise StorageUnavailable("files could not be removed", first=stuck[0], count=len(stuck))


def _is_there(store: Store, path: str) -> bool:
    return store.stat(path) is not None


def _content(store: Store, quarantine: str) -> tuple[str, ...]:
    """The files in a quarantine, by their place in the table."""
    folder = f"{QUARANTINE_FOLDER}/{quarantine}"
    return tuple(path[len(folder) + 1 :] for path in store.paths(folder))


def _place_of(quarantine: str, path: str) -> str:
    return f"{QUARANTINE_FOLDER}/{quarantine}/{path}"


def _manifest_path(quarantine: str) -> str:
    return f"{QUARANTINE_FOLDER}/{quarantine}.json"
