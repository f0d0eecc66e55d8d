"""Copies of a table that was written to meanwhile: its `.holdfast` is of another moment than the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from harness.checker import visible_rows
from harness.cleaning import clean
from harness.faults import StoreWrapper
from harness.world import Row, SimulatedClock, SimulatedHost, World, memory_world, rows, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.model.instant import Action, InstantTime
from holdfast.services.archive.archive import archive_instants
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint
from holdfast.storage.memory import MemoryStore
from holdfast.storage.store import Store
from holdfast.timeline.timeline import load_timeline

_CHECKPOINT_AFTER = 8
"""Entries; so few that there are several checkpoints, and parts of the ledger are trimmed."""
_LATER_MS = 100_000
TWO_LEFT = CleanSettings(
    policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1, automatic=False, keep_min=2, keep_max=3
)

Files = dict[str, bytes]


class _Part(Enum):
    LEDGER = ".hoodie/.holdfast/"
    TIMELINE = ".hoodie/"
    DATA = ""


def _part(path: str) -> _Part:
    return next(part for part in _Part if path.startswith(part.value))


class _SnappingStore(StoreWrapper):
    """Keeps what is stored after every change."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.states: list[Files] = []
        self.changes: list[str] = []

    def _change(self, verb: str, path: str, act: Callable[[], object]) -> object:
        done = act()
        self.changes.append(f"{verb} {path}")
        self.states.append({p: self.inner.read(p) for p in self.inner.paths("")})
        return done

    def copy(self) -> Store:
        """What is stored now, to try something out on."""
        return self.inner.copy()  # type: ignore[attr-defined]


@dataclass(frozen=True)
class History:
    """A table's every state, one for each change of storage."""

    states: list[Files]
    changes: list[str]
    """What led to each of them."""
    ended_ms: int
    rows: dict[InstantTime | None, list[Row]]
    """The newest commit → the rows that a reader sees then."""

    @property
    def last(self) -> int:
        return len(self.states) - 1

    def mixed(self, *, ledger: int, table: int, data: int | None = None) -> World:
        """A copy whose `.holdfast` is of one moment and the rest of another; the data files of a third."""
        clock = SimulatedClock(self.ended_ms + _LATER_MS)
        store = MemoryStore(clock)
        moments = {_Part.LEDGER: ledger, _Part.TIMELINE: table, _Part.DATA: table if data is None else data}
        for part, moment in moments.items():
            for path, content in self.states[moment].items():
                if _part(path) is part:
                    store.create(path, content)
        return World(store, clock, SimulatedHost(), _CHECKPOINT_AFTER)

    def rows_of(self, world: World) -> list[Row]:
        """What a reader has to see, as the newest commit of the timeline tells."""
        return self.rows[newest_commit(world)]


def newest_commit(world: World) -> InstantTime | None:
    newest = load_timeline(world.store).last_commit
    return None if newest is None else newest.time


def history(*, archives_restores: bool = False) -> History:
    """A table that is written to in every way, undone, restored, cleaned and archived."""
    world = memory_world()
    world.checkpoint_after = _CHECKPOINT_AFTER
    world.create()
    world.insert("a", "b")
    store = _SnappingStore(world.store)
    _live(world.on(store))
    if archives_restores:
        _archive_restores(world.on(store))
    found: dict[InstantTime | None, list[Row]] = {None: []}
    whole = History(store.states, store.changes, world.clock.now, found)
    for moment in range(len(store.states)):
        then = whole.mixed(ledger=moment, table=moment)
        newest = newest_commit(then)
        if newest not in found:
            found[newest] = sorted(visible_rows(then.open()))
    return whole


def _live(world: World) -> None:
    world.insert("k", city="oslo")
    world.write("upsert", rows("a", city="paris", fare=7.0))
    world.insert("c")
    undo(world.open())
    kept = world.insert("d").instant
    create_savepoint(world.open())
    world.insert("e")
    world.write("upsert", rows("a", city="paris", fare=8.0))
    restore(world.open(), kept)
    world.write("insert_overwrite", rows("f", city="rome"))
    numbered = WriteSettings(application="loader", batch_number=1)
    world.write("upsert", rows("d", city="paris", fare=9.0), numbered)
    world.die_after(lambda world: world.insert("x"), last="upload ")
    clean(world.open(), TWO_LEFT)
    archive_instants(world.open(), WriteSettings(clean=TWO_LEFT))
    world.write("delete", table_of([("d", "paris", 0.0)]))
    delete_savepoint(world.open(), kept)
    world.insert("g")
    world.write("upsert", rows("b", city="rome", fare=2.0))


def _archive_restores(world: World) -> None:
    clean(world.open(), TWO_LEFT)
    archive_instants(world.open(), WriteSettings(clean=TWO_LEFT))
    assert Action.RESTORE not in {instant.action for instant in load_timeline(world.store).instants}
    world.insert("h")
