"""Drop: remove a table and everything that belongs to it, and nothing else.

    plan ─► DROP in the ledger ─► note ─► hoodie.properties ─► data files ─► .hoodie ─► ledger ─► note

From DROP on nothing can be written. With `hoodie.properties` the table is gone,
for every reader at once: no reader finds a part of its rows. The note, `dropping`,
is the last that goes; while it is there no table can be made in that place, and
the same call finishes what was begun. Storage that fails after DROP takes nothing
back: the error is `OutcomeUnknown`.

What belongs to a table is everything in its `.hoodie`, files that are named as
data files are, the metafiles of partitions, and Hadoop's checksums of these. A
folder with a `.hoodie` of its own is another table. Symbolic links are not
followed: what lies behind one stays.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from holdfast.clock import Clock
from holdfast.concurrency.heartbeats import HeartbeatStatus, judge, look_at
from holdfast.config.choices import FailedWritesPolicy
from holdfast.config.table import TableSettings
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS
from holdfast.errors import Conflict, Refused, StorageUnavailable, TableDamaged, WriterActive
from holdfast.format.ledger_entries import EntryKind
from holdfast.host import Host, Liveness, Owner
from holdfast.model.instant import Action, InstantTime
from holdfast.model.names import (
    CHECKPOINT_FOLDER,
    DELTA_FOLDER,
    DROPPING_FILE,
    ICEBERG_FOLDER,
    LEDGER_FLOOR,
    LEDGER_FOLDER,
    META_FOLDER,
    PARTITION_METAFILE,
    PROPERTIES_BACKUP,
    PROPERTIES_FILE,
    is_data_file,
    partition_of,
)
from holdfast.model.reports import DropPlan, DropReport
from holdfast.services.leases import append_taking_back, readable_leases, refuse_if_leased
from holdfast.services.plans import refuse_beyond_plan
from holdfast.services.pushes import push_records
from holdfast.services.rollback.failed_writes import FailedWrite, find_failed_writes, partition_by_liveness
from holdfast.storage.open import is_link
from holdfast.storage.store import Store, StoredFile, StoreLocation, read_or_none
from holdfast.table.opened import OpenTable, open_existing
from holdfast.table.stable_read import timeline_and_ledger
from holdfast.table.zone import next_instant
from holdfast.timeline.after_decision import after_decision
from holdfast.timeline.ledger import Decision, Ledger, LedgerState
from holdfast.timeline.timeline import load_timeline

_METAFILES = (PARTITION_METAFILE, f"{PARTITION_METAFILE}.parquet")
_LOOKS = 3
"""Tasks of a write that was running may leave a file while the others are deleted."""


class _Note(msgspec.Struct, frozen=True):
    """Says that a table is being dropped, and what it was."""

    token: str
    owner: Owner
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Found:
    """What is stored below a path."""

    ours: tuple[StoredFile, ...]
    left: tuple[str, ...]


def open_to_drop(store: Store, location: StoreLocation, *, clock: Clock, host: Host) -> OpenTable:
    """The table, also if it is half dropped. `TableNotFound` if there is none."""
    note = _note(store)
    if note is None:
        return open_existing(store, location, clock=clock, host=host)
    settings = TableSettings.from_properties(note.properties)
    return OpenTable(store, location, settings, Ledger(store, clock), clock, host)


def plan_drop(table: OpenTable) -> DropPlan:
    """What `drop` would delete, what it would leave, and who uses the table. Changes nothing."""
    table.settings.refuse_if_read_only()
    if is_link(table.location):
        raise Refused(
            "the path is a symbolic link, which is not followed",
            path=table.location.uri,
            hint="name the folder where the table lies",
        )
    found = _look(table.store)
    plan = DropPlan(
        path=table.location.uri,
        name=table.settings.name,
        files=tuple(file.path for file in found.ours),
        size_bytes=sum(file.size for file in found.ours),
        left=found.left,
        resumes=True,
    )
    if _note(table.store) is not None:
        return plan
    if is_link(table.location, META_FOLDER):
        raise Refused(
            "the table's .hoodie lies behind a symbolic link, which is not followed",
            path=table.location.uri,
            hint="remove the folder by hand, or drop the table where it lies",
        )
    timeline, state = timeline_and_ledger(table)
    shown = {instant.time for instant in timeline.instants if instant.action is Action.SAVEPOINT}
    held, unreadable = readable_leases(table)
    failed = find_failed_writes(table, timeline, state)
    beats = look_at(table, {write.time: write.owner for write in failed}, timeout_ms=HEARTBEAT_TIMEOUT_MS)
    return replace(
        plan,
        commits=len(timeline.completed_commits),
        savepoints=tuple(sorted(state.savepoints.keys() | shown)),
        leases=(
            *(f"{one.owner} of {one.instant}" for one in held if not one.is_expired),
            *(f"{error.facts['file']}, which cannot be read" for error in unreadable),
        ),
        writers=tuple(_may_be_running(table, failed, beats)),
        pushes=tuple(
            f"{push.table} at {push.controller}, of {push.instant}" for push in push_records(table).pushes
        ),
        resumes=state.dropped,
    )


def drop(table: OpenTable, *, force: bool = False) -> DropReport:
    """Remove the table, and everything that belongs to it. It cannot be taken back.

    `WriterActive` if a write may be running, `Refused` if somebody holds a
    lease, unless `force`. A drop that died is finished by the same call.
    """
    return _drop(table, plan_drop(table), force=force)


def execute_drop(table: OpenTable, plan: DropPlan, *, force: bool = False) -> DropReport:
    """As `drop`. `PlanOutdated` if more would go than the plan shows, or somebody else uses the table."""
    now = plan_drop(table)
    refuse_beyond_plan(plan.files, now.files)
    refuse_beyond_plan(_users(plan), _users(now))
    return _drop(table, now, force=force)


def _users(plan: DropPlan) -> tuple[str, ...]:
    """Who relies on the table, in whatever way."""
    return (*plan.savepoints, *plan.leases, *plan.writers, *plan.pushes)


def _drop(table: OpenTable, plan: DropPlan, *, force: bool) -> DropReport:
    began_ms = table.clock.monotonic_ms()
    note = _note(table.store)
    if note is None:
        _decide(table, force=force)
    elif not force and _is_another(table, note.owner):
        raise WriterActive("another process is dropping this table", owner=note.owner)
    with after_decision(
        "the table is dropped",
        path=table.location.uri,
        hint="nothing can be written to it any more; the same call goes on from here",
    ):
        left = _carry_out(table.store, note or _announce(table))
    return DropReport(
        path=table.location.uri,
        deleted=len(plan.files),
        bytes_freed=plan.size_bytes,
        left=left,
        took_ms=table.clock.monotonic_ms() - began_ms,
    )


def _look(store: Store) -> _Found:
    """Every file below the path, and whether it belongs to the table."""
    files = list(store.walk(""))
    nested = {
        folder
        for file in files
        if not file.path.startswith(f"{META_FOLDER}/")
        for folder in [file.path.partition(f"/{META_FOLDER}/")[0]]
        if folder != file.path
    }
    ours = [file for file in files if _is_ours(file.path) and not _is_below(file.path, nested)]
    known = {file.path for file in ours}
    left = tuple(file.path for file in files if file.path not in known)
    return _Found((*ours, *store.leftovers()), left)


def _is_ours(path: str) -> bool:
    if path.startswith((f"{META_FOLDER}/", f"{DELTA_FOLDER}/")):
        return True
    name = path.rpartition("/")[2]
    if name.startswith(".") and name.endswith(".crc"):
        name = name[1:-4]
    return name in _METAFILES or is_data_file(name)


def _is_below(path: str, folders: Collection[str]) -> bool:
    if not folders:
        return False
    folder = partition_of(path)
    return any(folder == one or folder.startswith(f"{one}/") for one in folders)


def _may_be_running(
    table: OpenTable, failed: Iterable[FailedWrite], statuses: Mapping[InstantTime, HeartbeatStatus]
) -> list[str]:
    """Writes that are not known to be over. Of those on other machines heartbeats tell."""
    _, left = partition_by_liveness(table, failed, statuses, policy=FailedWritesPolicy.LAZY)
    return [f"{write.time} by {write.owner or 'another program'}" for write in left]


def _decide(table: OpenTable, *, force: bool) -> None:
    """Put DROP into the ledger, unless somebody uses the table."""

    def decide(state: LedgerState) -> Decision | None:
        if state.dropped:
            return None
        if not force:
            refuse_if_leased(table, after=InstantTime("0"))
            failed = find_failed_writes(table, load_timeline(table.store), state)
            suspects = {write.time: write.owner for write in failed}
            statuses = judge(table, suspects, timeout_ms=HEARTBEAT_TIMEOUT_MS) if suspects else {}
            running = _may_be_running(table, failed, statuses)
            if running:
                raise WriterActive(
                    "a write may be running on this table",
                    write=running[0],
                    hint="stop it, or wait until it has finished; --force drops the table under it",
                )
        newest = [t for t in (load_timeline(table.store).newest, state.newest) if t is not None]
        return Decision(
            kind=EntryKind.DROP,
            instant=next_instant(table, max(newest, default=None)),
            action=Action.COMMIT,
            owner=table.host.owner(table.clock.unique()),
        )

    append_taking_back(table, decide)


def _announce(table: OpenTable) -> _Note:
    note = _Note(
        table.clock.unique(), table.host.owner(table.clock.unique()), dict(table.settings.properties)
    )
    if table.store.create(DROPPING_FILE, msgspec.json.encode(note)):
        return note
    raise WriterActive("another process is dropping this table", path=table.location.uri)


def _note(store: Store) -> _Note | None:
    content = read_or_none(store, DROPPING_FILE)
    try:
        return None if content is None else msgspec.json.decode(content, type=_Note)
    except msgspec.MsgspecError as error:
        raise TableDamaged("the note of a drop cannot be read", file=DROPPING_FILE, cause=error) from error


def _is_another(table: OpenTable, owner: Owner) -> bool:
    """Whether the process lives that began, and is not this one."""
    ours = table.host.owner(owner.token)
    return owner != ours and table.host.liveness(owner) is Liveness.ALIVE


def _carry_out(store: Store, note: _Note) -> tuple[str, ...]:
    """Delete everything, what makes it a table first; what stays."""
    _delete(store, [PROPERTIES_BACKUP])
    for _ in range(_LOOKS):
        found = _look(store)
        rest = [file.path for file in found.ours if file.path != DROPPING_FILE]
        if not rest:
            break
        for step in _steps(rest):
            if _note(store) != note:
                raise Conflict("another process has finished the drop", path=store.uri(""))
            _delete(store, step)
        store.sweep_leftovers()
    store.delete(DROPPING_FILE)
    store.prune("")
    return found.left


def _steps(paths: Iterable[str]) -> list[list[str]]:
    """The files in the order in which they go."""
    ranked: list[list[str]] = [[], [], [], [], []]
    for path in paths:
        ranked[_rank(path)].append(path)
    return [step for step in ranked if step]


def _rank(path: str) -> int:
    if path == PROPERTIES_FILE:
        return 0
    if path.startswith((f"{DELTA_FOLDER}/", f"{ICEBERG_FOLDER}/")):
        return 1  # Before the files that it names.
    if not path.startswith(f"{META_FOLDER}/"):
        return 2
    return 4 if path.startswith((LEDGER_FOLDER, CHECKPOINT_FOLDER, LEDGER_FLOOR)) else 3


def _delete(store: Store, paths: list[str]) -> None:
    stuck = store.delete_all(paths)
    if stuck:
        raise StorageUnavailable(
            "files of a table that is being dropped could not be deleted",
            first=stuck[0],
            count=len(stuck),
        )
