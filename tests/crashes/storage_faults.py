"""Every verb, with every change that it makes to storage answered with an error."""

from dataclasses import dataclass

from crashes.matrix import (
    CLEAN,
    NEXT,
    OLD,
    OPERATIONS,
    SAVEPOINTED,
    WRITES,
    Operation,
    Start,
    clean_table,
    one_more_write,
)
from harness.checker import check_at_any_time, visible_rows
from harness.faults import FailingStore, RecordingStore
from harness.tiers import by_tier
from harness.world import LOCATION, table_of
from holdfast.errors import OutcomeUnknown, StorageUnavailable, TableDamaged
from holdfast.model.instant import State
from holdfast.model.names import DROPPING_FILE, PARTITION_METAFILE, in_partition, instant_file
from holdfast.read.savepoints import savepoints
from holdfast.services.drop import drop, open_to_drop
from holdfast.services.leases import lease
from holdfast.services.repair.repair import quarantines, repair, undo_repair
from holdfast.services.verify.verify import verify
from holdfast.table.archive import read_archive
from holdfast.table.opened import is_table
from holdfast.table.properties_file import has_settings
from holdfast.timeline.timeline import load_timeline

FAULT_STRIDE = by_tier("HOLDFAST_FAULT_STRIDE", sample=60, full=6)
"""Of the kinds of faults at each step; 1 takes all."""


@dataclass(frozen=True)
class Fault:
    """How storage answers a change."""

    applied: bool = False
    refused: bool = False
    persistent: bool = False

    def __str__(self) -> str:
        how = "applied" if self.applied else "refused" if self.refused else "not applied"
        return f"{how}, {'for good' if self.persistent else 'once'}"


FAULTS = tuple(
    Fault(applied, refused, persistent)
    for applied, refused in ((True, False), (False, False), (False, True))
    for persistent in (False, True)
)


def _moved_orphan(world):
    """A file of nobody's, moved to quarantine; the report of the repair."""
    [path] = [path for path in world.store.paths("city=paris") if path.endswith(".parquet")][:1]
    orphan = f"{path.partition('_')[0]}_9-9-9_20991231235959999.parquet"
    world.store.create(orphan, world.store.read(path))
    return world


def _repair(world):
    return repair(world.open(), verify(world.open()))


def _without_last_commit(*, without_data):
    """A table whose ledger knows a commit that the timeline does not, as in a copy; with its files or not."""
    world = clean_table()
    commit = world.write("insert", table_of(sorted(SHOWN_AGAIN)))
    for state in State:
        world.store.delete(instant_file(commit.instant, commit.action, state))
    for path in world.store.paths("") if without_data else ():
        if path.endswith(f"_{commit.instant}.parquet"):
            world.store.delete(path)
    return world


def _without_metafile():
    world = clean_table()
    world.store.delete(in_partition("city=paris", PARTITION_METAFILE))
    return world


def _undo_repair(world):
    return undo_repair(world.open(), quarantines(world.open())[0])


def _repaired():
    world = _moved_orphan(clean_table())
    _repair(world)
    return world


def _leased(world):
    with lease(world.open(), "reader", 3600):
        return


def _to_drop(world):
    return open_to_drop(world.store, LOCATION, clock=world.clock, host=world.host)


def _dropped(world):
    return drop(_to_drop(world))


def _is_being_dropped(world):
    if world.store.stat(DROPPING_FILE) is not None:
        return True
    return has_settings(world.store) and world.open().ledger.read().dropped


SHOWN_AGAIN = frozenset({("again", "oslo", 4.0)})
VANISHED = Start(lambda: _without_last_commit(without_data=False), OLD, OLD)
LOST = Start(lambda: _without_last_commit(without_data=True), OLD, OLD)
_WITH_ORPHAN = Start(lambda: _moved_orphan(clean_table()), OLD, OLD)
VERBS = (
    *OPERATIONS,
    Operation("repair", _repair, _WITH_ORPHAN, OLD),
    Operation("repair of vanished commits", _repair, VANISHED, OLD | SHOWN_AGAIN),
    Operation("repair that takes back", _repair, LOST, OLD),
    Operation("repair of a metafile", _repair, Start(_without_metafile, OLD, OLD), OLD),
    Operation("undo a repair", _undo_repair, Start(_repaired, OLD, OLD), OLD),
    Operation("lease", _leased, CLEAN, OLD),
    Operation("drop", _dropped, CLEAN, frozenset()),
    Operation("drop beside a savepoint", _dropped, SAVEPOINTED, frozenset()),
)


@dataclass(frozen=True)
class Seen:
    """What somebody can tell of a table: whether it is one, its rows, and what is left of what was there."""

    was_table: bool
    refused: str
    """What the damage is that the next write refuses to build on; empty if it goes through."""
    rows: frozenset
    savepoints: tuple
    files: frozenset
    completed: frozenset

    @classmethod
    def after_a_write(cls, world, start):
        was_table = is_table(world.store, LOCATION, clock=world.clock, host=world.host)
        refused = _refusal_of_a_write(world)
        table = world.open()
        return cls(
            was_table,
            refused,
            visible_rows(table),
            tuple(savepoints(table)),
            frozenset(path for path in world.store.paths("") if path in start.files),
            frozenset(i for i in _history(world) if i in start.completed),
        )


@dataclass(frozen=True)
class Before:
    files: frozenset
    completed: frozenset


def _refusal_of_a_write(world):
    try:
        one_more_write(world, NEXT)
    except TableDamaged as error:
        return error.message
    return ""


def _history(world):
    """The instants on the timeline and in archives: a write that fails may still archive what is old."""
    return read_archive(world.store).with_active(load_timeline(world.store)).instants


def _before(world):
    files = (path for path in world.store.paths("") if path.endswith(".parquet"))
    completed = (i for i in load_timeline(world.store).instants if i.is_completed)
    return Before(frozenset(files), frozenset(completed))


def check_what_is_told(verb, *, every=None):
    """I14: an error means that nothing changes, now and after the next write, or that nobody knows."""
    # The steps of writes are much the same.
    every = every or FAULT_STRIDE * (2 if verb in WRITES and FAULT_STRIDE > 1 else 1)
    start = verb.start.make()
    before = _before(start)
    unchanged = Seen.after_a_write(start.copy(), before)
    recorder = RecordingStore(start.copy().store)
    verb.run(start.copy().on(recorder))
    for number, change in enumerate(recorder.changes, 1):
        for fault in FAULTS[number % every :: every]:
            world = start.copy()
            failing = FailingStore(
                world.store,
                number,
                applied=fault.applied,
                persistent=fault.persistent,
                refused=fault.refused,
            )
            try:
                verb.run(world.on(failing))
            except OutcomeUnknown:
                if _is_being_dropped(world):
                    _dropped(world)
                if _refusal_of_a_write(world):
                    verb.run(world)
                    one_more_write(world, NEXT)
                assert visible_rows(world.open()) - {NEXT} in (verb.before, verb.after), (change, fault)
            except StorageUnavailable as error:
                told = f"{change}, {fault}: {error}"
                assert not _is_being_dropped(world), told
                assert Seen.after_a_write(world, before) == unchanged, told
            if has_settings(world.store):
                check_at_any_time(world.open())
