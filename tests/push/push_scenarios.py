"""Who meets whom in the push service: the scenarios that the explorer runs.

Every actor is a controller, a retention pass or a broker of its own process, on
one metastore and one deep store. Afterwards no accepted entry may be lost, no
broker may have seen a mixture or a missing file, and retention must be able to
bring everything to rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from harness.explorer import Run, Schedule, SteppingStore, run_schedule
from harness.push_checker import check_push_at_any_time, check_push_at_rest
from harness.push_faults import FineMetastore, SteppingMetastore
from harness.push_world import ANN, DAY_MS, TABLE, PushWorld, config
from holdfast.errors import Conflict, InvalidRequest, Refused
from holdfast.model.lineage import EntryState, visible

REFUSALS = (Conflict, Refused, InvalidRequest)
ITEMS = "items_OFFLINE"

Actor = Callable[[PushWorld], object]


@dataclass
class Told:
    """What the actors of one run were told."""

    started: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    reverted: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Scenario:
    name: str
    start: Callable[[], PushWorld]
    actors: tuple[Callable[[PushWorld, Told], object], ...]
    tables: tuple[str, ...] = (TABLE,)
    is_fine: bool = False
    check: Callable[[PushWorld, Told], None] = lambda _world, _told: None

    def run(self, schedule: Schedule, *, asleep: int | None = None) -> Run:
        world = self.start().copy()
        world.store._clock = world.clock
        told = Told()

        def actor(index: int):
            def act(store: SteppingStore) -> object:
                stepping = FineMetastore if self.is_fine else SteppingMetastore
                metastore = stepping(world.metastore.connect(), store._pause)
                try:
                    return self.actors[index](world.another(metastore=metastore, store=store), told)
                except REFUSALS as refusal:
                    return refusal

            return act

        run = run_schedule(world.store, [actor(i) for i in range(len(self.actors))], schedule, asleep=asleep)
        self._check(world.another(), run, told)
        return run

    def _check(self, world: PushWorld, run: Run, told: Told) -> None:
        failures = [each for each in run.outcomes if isinstance(each, BaseException)]
        wrong = [each for each in failures if not isinstance(each, REFUSALS)]
        if wrong:
            raise AssertionError(f"an actor failed: {wrong!r}") from wrong[0]
        for table in self.tables:
            check_push_at_any_time(world, table=table)
        self._check_told(world, told)
        self.check(world, told)
        _forget_brokers(world)
        for table in self.tables:
            check_push_at_rest(world, table=table)

    def _check_told(self, world: PushWorld, told: Told) -> None:
        """L9: what was accepted is there, or its end is remembered."""
        for table in self.tables[:1]:
            state = world.catalog.load(table)
            known = {entry.id for entry in state.lineage.entries} | state.push.tombstones.keys()
            assert set(told.started) <= known, f"L9: lost entries {set(told.started) - known}"
            for entry_id in set(told.ended) - set(told.reverted):
                entry = state.lineage.entry(entry_id)
                published = state.push.details.get(entry_id)
                done = entry is None or entry.state is EntryState.COMPLETED
                assert done or (published and published.epoch), f"L9: {entry_id} was acknowledged and is not"


def _forget_brokers(world: PushWorld) -> None:
    for session in tuple(world.metastore._tree.sessions):
        if session is not world.metastore:
            session.close()


# Actors


def pushes(number: int, *, force: bool = True) -> Callable[[PushWorld, Told], object]:
    def act(world: PushWorld, told: Told) -> None:
        entry = world.start(sorted(world.seen()), [f"v{number}"], force=force)
        told.started.append(entry)
        world.upload(f"v{number}", number)
        world.end(entry)
        told.ended.append(entry)

    return act


def _uploads(name: str, number: int, **options) -> Callable[[PushWorld, Told], object]:
    return lambda world, _told: world.upload(name, number, **options)


def _registers(world: PushWorld, _told: Told) -> None:
    """As a push job does with what it built."""
    world.register("v3", 3)


def _registers_and_ends(world: PushWorld, told: Told) -> None:
    _registers(world, told)
    _ends(world, told)


def _discards(world: PushWorld, _told: Told) -> None:
    """As the next push job does with what a killed one built."""
    world.controller.orphans.discard_files(TABLE, sorted(world.files()))


def _reverts_and_discards(world: PushWorld, told: Told) -> None:
    _reverts(world, told)
    _discards(world, told)


def _ends(world: PushWorld, told: Told) -> None:
    entry = _newest(world, EntryState.IN_PROGRESS)
    world.end(entry)
    told.ended.append(entry)


def _reverts(world: PushWorld, told: Told) -> None:
    entry = _newest(world)
    world.revert(entry, force=True)
    told.reverted.append(entry)


def _rolls_back(world: PushWorld, told: Told) -> None:
    told.reverted += world.rollback(steps=1).entry_ids


def _redoes(world: PushWorld, _told: Told) -> None:
    world.controller.redo(TABLE, _newest(world, EntryState.REVERTED), by=ANN)


def _retention(world: PushWorld, _told: Told) -> None:
    world.controller.upkeep.run_retention(TABLE)


def _retention_twice(world: PushWorld, told: Told) -> None:
    _retention(world, told)
    _retention(world, told)


def _finishes(world: PushWorld, _told: Told) -> None:
    world.controller.upkeep.finish_deletions(TABLE)


def _deletes(world: PushWorld, _told: Told) -> None:
    world.controller.delete_segments(TABLE, ["v2"], by=ANN)


def _deletes_and_cleans(world: PushWorld, told: Told) -> None:
    _deletes(world, told)
    _retention(world, told)


def _reverts_and_cleans(world: PushWorld, told: Told) -> None:
    _reverts(world, told)
    world.clock.now += 2 * DAY_MS
    _retention_twice(world, told)


def _refreshes_and_cleans(world: PushWorld, told: Told) -> None:
    world.upload("v2", 5, allow_in_place=True)
    _retention(world, told)


def _uploads_and_ends(world: PushWorld, told: Told) -> None:
    world.upload("v3", 3)
    _ends(world, told)


def _uploads_again(world: PushWorld, _told: Told) -> None:
    world.upload("a", 1)


def _ends_the_group(world: PushWorld, _told: Told) -> None:
    entries = {table: _newest(world, EntryState.IN_PROGRESS, table=table) for table in (TABLE, ITEMS)}
    world.controller.end_group(entries, by=ANN)


def _switches_off(world: PushWorld, _told: Told) -> None:
    world.controller.set_consistent_push(TABLE, enabled=False, by=ANN)


def broker(*, queries: int = 2, tables: tuple[str, ...] = (TABLE,)) -> Callable[[PushWorld, Told], object]:
    """A broker that starts, then answers: it announces before it loads, and again when it moved on."""

    def act(world: PushWorld, _told: Told) -> list[int]:
        epochs: list[int] = []
        for _ in range(queries):
            for table in tables:
                if not epochs:
                    world.announce("b1", 0, table=table)
                state = world.catalog.load(table)
                seen = visible(state.segments, state.lineage)
                known = world.catalog.segments(table, seen)
                world.announce("b1", state.push.epoch, table=table)
                assert known.keys() == seen, "L2: every visible segment is known"
                epochs.append(state.push.epoch)
                numbers = {number for name in sorted(seen) for number in world.rows_of(name, table=table)}
                assert len(numbers) <= 1, f"L1: one answer holds rows of {numbers}"
        assert epochs == sorted(epochs), "L11: an epoch never falls"
        return epochs

    return act


def _newest(world: PushWorld, *states: EntryState, table: str = TABLE) -> str:
    entries = world.catalog.load(table).lineage.entries
    found = [entry.id for entry in entries if not states or entry.state in states]
    if not found:
        raise Refused("somebody else was faster")
    return found[-1]


# Start states


@cache
def _one() -> PushWorld:
    world = PushWorld().create()
    world.push(1)
    return world


@cache
def _empty() -> PushWorld:
    return PushWorld().create()


@cache
def _two() -> PushWorld:
    world = _one().copy()
    world.push(2)
    return world


@cache
def _opened() -> PushWorld:
    """A push with everything uploaded."""
    world = _two().copy()
    world.start(["v2"], ["v3"])
    world.upload("v3", 3)
    return world


@cache
def _waiting() -> PushWorld:
    """A push that waits for its upload."""
    world = _two().copy()
    world.start(["v2"], ["v3"])
    return world


@cache
def _reverted() -> PushWorld:
    world = _two().copy()
    world.revert(_newest(world))
    return world


@cache
def _old() -> PushWorld:
    world = _two().copy()
    world.clock.now += 2 * DAY_MS
    return world


@cache
def _old_and_opened() -> PushWorld:
    world = _opened().copy()
    world.clock.now += 2 * DAY_MS
    return world


@cache
def _deleted() -> PushWorld:
    """A segment has left the table and its file waits."""
    world = PushWorld().create(consistent=False)
    world.upload("a", 1)
    world.controller.delete_segments(TABLE, ["a"], by=ANN)
    return world


@cache
def _impatient() -> PushWorld:
    """The orphan scan takes every file for old."""
    world = _waiting().copy()
    return PushWorld(world.metastore, world.store, world.clock, world.rules, orphan_ms=-DAY_MS)


@cache
def _placed() -> PushWorld:
    """As `_impatient`, with a push that waits for the registration of what was built."""
    world = _impatient().copy()
    world.store._clock = world.clock
    world.place("v3", 3)
    return world


@cache
def _group() -> PushWorld:
    world = _one().copy()
    world.controller.tables.create(config("items"), by=ANN)
    world.push(1, table=ITEMS)
    for table in (TABLE, ITEMS):
        world.start(["v1"], ["v2"], table=table)
        world.upload("v2", 2, table=table)
    return world


@cache
def _timed() -> PushWorld:
    world = PushWorld().create()
    world.push(1, "orders_1732752000456_0")
    return world


def _one_of(*rows: list[int]) -> Callable[[PushWorld, Told], None]:
    def check(world: PushWorld, _told: Told) -> None:
        assert world.rows() in rows, f"queries see {world.rows()}"

    return check


def _as_told(world: PushWorld, told: Told) -> None:
    """L4: a revert that was acknowledged shows the whole snapshot before."""
    expected = [1, 1] if told.reverted else [2, 2]
    assert world.rows() == expected, f"L4: {world.rows()}, not {expected}"


def _revert_wins(world: PushWorld, told: Told) -> None:
    """Of an end and a revert that were both acknowledged the revert came second."""
    expected = [3, 3] if told.ended and not told.reverted else [2, 2]
    assert world.rows() == expected, f"L4: {world.rows()}, not {expected}"


def _published_rows_stay(world: PushWorld, _told: Told) -> None:
    """Nothing that was uploaded changed what queries saw."""
    operations = [record.operation for record in world.controller.views.audit(TABLE)]
    assert "upload" not in operations, "L1: a published snapshot changed"


def _both_or_none(world: PushWorld, _told: Told) -> None:
    sides = world.rows(TABLE), world.rows(ITEMS)
    assert sides in (([1, 1], [1, 1]), ([2, 2], [2, 2])), f"L1: the group is torn: {sides}"


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("push x push", _one, (pushes(2), pushes(3)), check=_one_of([1, 1], [2, 2], [3, 3])),
        Scenario("first push x first push", _empty, (pushes(2, force=False), pushes(3, force=False))),
        Scenario("end x forced revert", _opened, (_ends, _reverts), check=_revert_wins),
        Scenario("end x push", _opened, (_ends, pushes(4))),
        Scenario("revert x retention", _old, (_reverts, _retention_twice), check=_as_told),
        Scenario("end x retention", _old_and_opened, (_ends, _retention_twice)),
        Scenario("redo x push", _reverted, (_redoes, pushes(4))),
        Scenario("redo x retention", _reverted, (_redoes, _retention_twice)),
        Scenario("rollback x end", _opened, (_rolls_back, _ends)),
        Scenario("retention x retention", _old_and_opened, (_retention_twice, _retention_twice)),
        Scenario(
            "upload x upload, end",
            _waiting,
            (_uploads("v3", 4), _uploads_and_ends),
            check=_published_rows_stay,
        ),
        Scenario(
            "protected x protected",
            _waiting,
            (_uploads("v3", 3, protected=True), _uploads("v3", 3, protected=True)),
        ),
        Scenario("upload x forced revert", _waiting, (_uploads("v3", 3), _reverts)),
        Scenario("upload again x retention", _deleted, (_uploads_again, _retention_twice)),
        Scenario("upload x orphan scan", _impatient, (_uploads("v3", 3), _retention)),
        Scenario("registration x orphan scan", _placed, (_registers_and_ends, _retention)),
        Scenario("registration x two orphan scans", _placed, (_registers, _retention, _retention)),
        Scenario("registration x discarding", _placed, (_registers_and_ends, _discards)),
        Scenario("registration x revert, discarding", _placed, (_registers, _reverts_and_discards)),
        Scenario("broker x push", _two, (broker(), pushes(3))),
        Scenario("broker x revert, retention", _old, (broker(), _reverts_and_cleans)),
        Scenario("broker x retention", _old, (broker(), _retention_twice)),
        Scenario("broker x delete, retention", _two, (broker(), _deletes_and_cleans)),
        Scenario("broker x refresh, retention", _two, (broker(), _refreshes_and_cleans)),
        Scenario("retention x broker x delete", _two, (_finishes, broker(queries=1), _deletes)),
        Scenario("group x revert", _group, (_ends_the_group, _reverts), (TABLE, ITEMS)),
        Scenario("group x broker", _group, (_ends_the_group, broker()), (TABLE, ITEMS), check=_both_or_none),
        Scenario("switching off x push", _timed, (_switches_off, pushes(4))),
        Scenario("broker x end, record by record", _opened, (broker(queries=1), _ends), is_fine=True),
    )
}
