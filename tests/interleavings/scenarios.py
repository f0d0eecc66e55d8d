"""Who meets whom: the scenarios the explorer runs.

Every writer says what it does to the rows. Afterwards the table must hold what
the committed writes make of each other, one after the other as the ledger has
them: nothing lost, nothing twice, nothing of a write that was refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa

from harness.checker import check_at_any_time, check_at_rest, visible_rows
from harness.explorer import Run, Schedule, run_schedule
from harness.faults import Crash, CrashingStore, InterruptedStore, RecordingStore
from harness.world import Row, SimulatedHost, World, memory_world, table_of
from holdfast.config.write import WriteSettings
from holdfast.errors import Fenced, WriterActive
from holdfast.format.ledger_entries import EntryKind, decode_entry
from holdfast.host import Liveness
from holdfast.model.names import LEDGER_FOLDER
from holdfast.model.reports import Commit
from holdfast.services.rollback import roll_back_failed_writes
from holdfast.storage.store import Store

Rows = dict[str, Row]
"""By key."""

OLD: Rows = {row[0]: row for row in (("old1", "paris", 1.0), ("old2", "paris", 2.0), ("old3", "rome", 3.0))}
LAST = ("last", "paris", 9.0)

_SETTINGS = WriteSettings(fills_missing_columns=True)


@dataclass(frozen=True)
class Writer:
    """An actor that writes, and what its write does to the rows there are."""

    act: Callable[[World], Commit]
    effect: Callable[[Rows], Rows]

    def __call__(self, world: World) -> Commit | Fenced | WriterActive:
        """What the writer was told."""
        try:
            return self.act(world)
        except (Fenced, WriterActive) as refused:
            return refused


Actor = Callable[[World], object]


@dataclass(frozen=True)
class Scenario:
    """Actors over one start state. Every actor gets its own open table, as a process would."""

    name: str
    start: Callable[[], World]
    actors: tuple[Actor, ...]
    others: Liveness = Liveness.UNKNOWN
    """What every actor believes of the owners of unfinished writes."""
    checkpoint_after: int = 50

    def run(self, schedule: Schedule, *, asleep: int | None = None) -> Run:
        """Run one schedule, then check the world as it lies there and after one more write."""
        start = self.start().copy()
        store, clock = start.store, start.clock

        def actor(index: int) -> Callable[[Store], object]:
            # The host of the start state is number 0.
            host = SimulatedHost(index + 1, self.others)
            return lambda store: self.actors[index](World(store, clock, host, self.checkpoint_after))

        actors = [actor(index) for index in range(len(self.actors))]
        run = run_schedule(store, actors, schedule, asleep=asleep)
        self._check(World(store, clock, SimulatedHost()), run)
        return run

    @property
    def has_two_writers(self) -> bool:
        return sum(isinstance(actor, Writer) for actor in self.actors) == 2

    def run_interrupted(self) -> None:
        """Let the first actor be decided, and not shown, between the other's recovery and its BEGIN."""
        start = self.start().copy()
        first, second = self.actors[:2]

        def decide() -> None:
            world = replace(start, host=SimulatedHost(1, self.others))
            with suppress(Crash):
                first(world.on(CrashingStore(world.store, _step_of_commit(self), after=True)))

        interrupted = InterruptedStore(start.store, LEDGER_FOLDER, decide)
        told = second(replace(start, store=interrupted, host=SimulatedHost(2, self.others)))
        self._check(replace(start, host=SimulatedHost()), Run((), (None, told), ()))

    def _check(self, world: World, run: Run) -> None:
        failures = [outcome for outcome in run.outcomes if isinstance(outcome, BaseException)]
        refused = [failure for failure in failures if isinstance(failure, Fenced | WriterActive)]
        assert failures == refused, f"an actor failed: {failures!r}"
        check_at_any_time(world.open())
        self._check_told(world, run)
        if None not in run.outcomes:
            # Nobody lies asleep with a decision that is yet to be shown.
            self._check_rows(world, "before recovery")

        world.write("bulk_insert", table_of([LAST]), _SETTINGS)

        check_at_rest(world.open())
        self._check_rows(world, "after recovery", LAST)

    def _check_told(self, world: World, run: Run) -> None:
        committed = {entry.instant for entry in _entries(world.store) if entry.kind is EntryKind.COMMIT}
        told = {outcome.instant for outcome in run.outcomes if isinstance(outcome, Commit)}
        assert told <= committed, f"I13: acknowledged {told}, committed {committed}"
        writers = {number for number, _ in self._committed(world.store)}
        for number, outcome in enumerate(run.outcomes):
            is_refused = isinstance(outcome, Fenced | WriterActive)
            assert not (is_refused and number in writers), f"I14: refused and committed: {outcome!r}"

    def _check_rows(self, world: World, moment: str, *later: Row) -> None:
        expected = dict(OLD)
        for _, writer in self._committed(world.store):
            expected = writer.effect(expected)
        seen = visible_rows(world.open()) - frozenset(later)
        assert seen == frozenset(expected.values()), f"I1, {moment}: {sorted(seen)}, not {expected}"

    def _committed(self, store: Store) -> list[tuple[int, Writer]]:
        """The writers of this scenario whose writes were committed, in the ledger's order."""
        entries = _entries(store)
        owners = {entry.instant: entry.owner for entry in entries if entry.kind is EntryKind.BEGIN}
        numbers = [owners[e.instant].pid - 1 for e in entries if e.kind is EntryKind.COMMIT]
        found = [(number, self.actors[number]) for number in numbers if number >= 0]
        return [(number, writer) for number, writer in found if isinstance(writer, Writer)]


def _entries(store: Store):
    return [decode_entry(store.read(path))[0] for path in store.paths(LEDGER_FOLDER)]


@cache
def _step_of_commit(scenario: Scenario) -> int:
    """The number of the change by which the first actor is decided."""
    world = scenario.start().copy()
    recorder = RecordingStore(world.store)
    scenario.actors[0](world.on(recorder))
    return recorder.last(LEDGER_FOLDER)


def _rows_writer(operation: str, effect: Callable[[Rows, Rows], Rows], *rows: Row) -> Writer:
    mine = {row[0]: row for row in rows}
    return Writer(
        lambda world: world.write(operation, table_of(mine.values()), _SETTINGS),
        lambda table: effect(table, mine),
    )


def _insert(key: str) -> Writer:
    """A writer that adds to the file group there is."""
    return _rows_writer("insert", lambda table, mine: table | mine, (key, "paris", 4.0))


def _add(key: str) -> Writer:
    """A writer that makes a new file group: the quickest of all."""
    return _rows_writer("bulk_insert", lambda table, mine: table | mine, (key, "paris", 4.0))


def _upsert(*rows: Row) -> Writer:
    return _rows_writer("upsert", lambda table, mine: table | mine, *rows)


def _delete(*rows: Row) -> Writer:
    def effect(table: Rows, mine: Rows) -> Rows:
        return {key: row for key, row in table.items() if key not in mine}

    return _rows_writer("delete", effect, *rows)


def _outside(table: Rows, cities: set[str]) -> Rows:
    return {key: row for key, row in table.items() if row[1] not in cities}


def _overwrite(*rows: Row) -> Writer:
    cities = {row[1] for row in rows}
    return _rows_writer("insert_overwrite", lambda table, mine: _outside(table, cities) | mine, *rows)


_delete_paris = Writer(
    lambda world: world.delete_partitions("city=paris"), lambda table: _outside(table, {"paris"})
)


def _roll_back(world: World) -> object:
    return roll_back_failed_writes(world.open())


@cache
def _clean() -> World:
    world = memory_world()
    world.create()
    world.write("insert", table_of(OLD.values()))
    return world


def _dead(writer: Writer) -> World:
    """A writer died when its files were written and nothing was decided."""
    world, counted = _clean().copy(), _clean().copy()
    recorder = RecordingStore(counted.store)
    writer.act(counted.on(recorder))
    try:
        writer.act(world.on(CrashingStore(world.store, recorder.last("upload"), after=True)))
    except Crash:
        return world
    raise AssertionError("the writer was to die")


@cache
def _dead_insert() -> World:
    return _dead(_insert("dead"))


@cache
def _dead_upsert() -> World:
    return _dead(_upsert(("old1", "paris", -1.0), ("dead", "rome", -1.0)))


def _with_tip(world: World) -> Commit:
    rows = table_of([("a", "paris", 10.0)])
    return world.write("upsert", rows.append_column("tip", pa.array([5])))


_first = _upsert(("old1", "paris", 10.0), ("a", "paris", 10.0))
_second = _upsert(("old1", "paris", 20.0), ("b", "paris", 20.0))
_deletion = _delete(("old1", "paris", 0.0), ("old3", "rome", 0.0))
_evolution = Writer(_with_tip, lambda table: table | {"a": ("a", "paris", 10.0, "tip=5")})
_replacement = _overwrite(("old2", "paris", 30.0))

SCENARIOS = (
    Scenario("writer and writer", _clean, (_add("a"), _add("b"))),
    Scenario("writer and rollback", _clean, (_add("a"), _roll_back)),
    Scenario("writer and rollback after a dead writer", _dead_insert, (_add("a"), _roll_back)),
    Scenario("rollback and rollback", _dead_insert, (_roll_back, _roll_back)),
    Scenario("writer and two rollbacks", _clean, (_add("a"), _roll_back, _roll_back)),
    Scenario("writers that checkpoint", _clean, (_add("a"), _add("b")), checkpoint_after=1),
    Scenario("writer that checkpoints and rollback", _clean, (_add("a"), _roll_back), checkpoint_after=1),
    Scenario("writer and writer that is known to live", _clean, (_add("a"), _add("b")), Liveness.ALIVE),
    Scenario("writer and rollback that leaves it alone", _clean, (_add("a"), _roll_back), Liveness.ALIVE),
    Scenario("upserts of the same row", _clean, (_first, _second)),
    Scenario(
        "upserts of the same row by writers that are known to live", _clean, (_first, _second), Liveness.ALIVE
    ),
    Scenario("upsert and overwrite of its partition", _clean, (_first, _replacement)),
    Scenario("upsert and delete", _clean, (_first, _deletion)),
    Scenario("upsert and rollback after a dead upsert", _dead_upsert, (_first, _roll_back)),
    Scenario("upsert and upsert that adds a column", _clean, (_second, _evolution)),
    Scenario("deleted partition and insert into it", _clean, (_delete_paris, _insert("a"))),
)
