"""Who meets whom: the scenarios the explorer runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.checker import check_at_any_time, check_at_rest, visible_ids
from harness.explorer import Run, Schedule, run_schedule
from harness.faults import Crash, CrashingStore
from harness.world import SimulatedHost, World, memory_world
from holdfast.errors import Fenced, WriterActive
from holdfast.host import Liveness
from holdfast.model.reports import Commit
from holdfast.services.rollback import roll_back_failed_writes
from holdfast.storage.store import Store

OLD = frozenset({"old1", "old2"})


@dataclass(frozen=True)
class Scenario:
    """Actors over one start state. Every actor gets its own open table, as a process would."""

    name: str
    start: Callable[[], World]
    actors: tuple[Callable[[World], object], ...]
    others: Liveness = Liveness.UNKNOWN
    """What every actor believes of the owners of unfinished writes."""
    checkpoint_after: int = 50

    def run(self, schedule: Schedule, *, asleep: int | None = None) -> Run:
        """Run one schedule, then check the world as it lies there and after one more write."""
        start = self.start()
        clock = replace(start.clock)

        def actor(index: int) -> Callable[[Store], object]:
            host = SimulatedHost(index, self.others)
            return lambda store: self.actors[index](World(store, clock, host, self.checkpoint_after))

        actors = [actor(index) for index in range(len(self.actors))]
        run = run_schedule(start.store, actors, schedule, asleep=asleep)
        _check(World(start.store, clock, SimulatedHost()), run)
        return run


@dataclass(frozen=True)
class Written:
    """What a writer was told about its row."""

    row: str
    answer: Commit | Fenced | WriterActive


def _check(world: World, run: Run) -> None:
    failures = [outcome for outcome in run.outcomes if isinstance(outcome, BaseException)]
    assert not failures, f"an actor failed: {failures!r}"
    written = [outcome for outcome in run.outcomes if isinstance(outcome, Written)]
    acknowledged = {w.row for w in written if isinstance(w.answer, Commit)}
    refused = {w.row for w in written} - acknowledged
    check_at_any_time(world.open())
    seen = visible_ids(world.open())
    assert OLD | acknowledged <= seen, f"I13: acknowledged {acknowledged}, seen {sorted(seen)}"

    world.insert("last")

    check_at_rest(world.open())
    seen = visible_ids(world.open())
    assert OLD | acknowledged | {"last"} <= seen, f"I13: acknowledged {acknowledged}, seen {sorted(seen)}"
    assert not refused & seen, f"I14: refused {refused}, seen {sorted(seen)}"


def _writer(row: str) -> Callable[[World], Written]:
    def write(world: World) -> Written:
        try:
            return Written(row, world.insert(row, city="paris"))
        except (Fenced, WriterActive) as refused:
            return Written(row, refused)

    return write


def _roll_back(world: World) -> object:
    return roll_back_failed_writes(world.open())


def _clean() -> World:
    world = memory_world()
    world.create()
    world.insert(*sorted(OLD), city="paris")
    return world


def _dirty() -> World:
    world = _clean()
    try:
        world.on(CrashingStore(world.store, 6, after=True)).insert("dead", city="paris")
    except Crash:
        return world
    raise AssertionError("the writer was to die")


SCENARIOS = (
    Scenario("writer and writer", _clean, (_writer("a"), _writer("b"))),
    Scenario("writer and rollback", _clean, (_writer("a"), _roll_back)),
    Scenario("writer and rollback after a dead writer", _dirty, (_writer("a"), _roll_back)),
    Scenario("rollback and rollback", _dirty, (_roll_back, _roll_back)),
    Scenario("writer and two rollbacks", _clean, (_writer("a"), _roll_back, _roll_back)),
    Scenario("writers that checkpoint", _clean, (_writer("a"), _writer("b")), checkpoint_after=1),
    Scenario("writer that checkpoints and rollback", _clean, (_writer("a"), _roll_back), checkpoint_after=1),
    Scenario("writer and writer that is known to live", _clean, (_writer("a"), _writer("b")), Liveness.ALIVE),
    Scenario("writer and rollback that leaves it alone", _clean, (_writer("a"), _roll_back), Liveness.ALIVE),
)
