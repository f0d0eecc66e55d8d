"""The crash matrix: every operation, killed before and after every change it makes.

Each run starts from a copy of a start state, dies at one step, and is followed
by one more write, as a user would do it. Then the invariants are checked. The
nested form kills that write, too, at every step, and follows with a third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from harness.checker import Violation, check_at_any_time, check_at_rest, visible_ids
from harness.faults import Crash, CrashingStore, RecordingStore
from harness.world import World, memory_world
from holdfast.errors import TableExists
from holdfast.services.rollback import roll_back_failed_writes
from holdfast.storage.memory import MemoryStore
from holdfast.table.properties_file import change_settings, has_settings

OLD = ("old1", "old2")
NEW = ("new1", "new2", "new3")
NEXT = ("next1",)


@dataclass(frozen=True)
class Operation:
    name: str
    run: Callable[[World], object]
    start: Callable[[], World]
    before: frozenset[str]
    after: frozenset[str]
    before_recovery: frozenset[str] | None = None
    """What a reader may still see until somebody publishes what was decided."""


@dataclass
class Tally:
    """What a run of the matrix did; printed as one line."""

    operations: int = 0
    points: int = 0
    nested: int = 0

    def __str__(self) -> str:
        return (
            f"crash matrix: {self.operations} operations, {self.points} crash points, "
            f"{self.nested} nested, data lost 0, orphans 0"
        )


def _nothing() -> World:
    return memory_world()


def _empty() -> World:
    world = memory_world()
    world.create()
    return world


def _clean() -> World:
    world = _empty()
    world.insert(*OLD)
    return world


def _dirty() -> World:
    """A writer died after it wrote its files and before it decided anything."""
    world = _clean()
    _die_at(world, lambda w: w.insert("dead1", "dead2"), step=8)
    return world


def _rolling_back() -> World:
    """A rollback died after it deleted one of two files."""
    world = _dirty()
    _die_at(world, lambda w: roll_back_failed_writes(w.open()), step=4)
    return world


def _decided() -> World:
    """A writer died between its COMMIT and its publication."""
    world = _clean()
    _die_at(world, lambda w: w.insert("decided1"), step=7)
    return world


def _with_metadata_table() -> World:
    """Hudi maintained a metadata table here, which a write has to switch off."""
    world = _clean()
    change_settings(world.store, {"hoodie.table.metadata.partitions": "files"}, now_ms=0)
    world.store.create(".hoodie/metadata/files/x", b"x")
    world.store.create(".hoodie/metadata/.hoodie/hoodie.properties", b"x")
    return world


def _die_at(world: World, act: Callable[[World], object], *, step: int) -> None:
    try:
        act(world.on(CrashingStore(world.store, step, after=True)))
    except Crash:
        return
    raise AssertionError(f"there is no step {step}")


def _insert(world: World) -> None:
    world.insert(*NEW)


def _bulk_insert(world: World) -> None:
    world.bulk_insert(*NEW)


def _create(world: World) -> None:
    world.create()


def _roll_back(world: World) -> None:
    roll_back_failed_writes(world.open())


_none: frozenset[str] = frozenset()
_old, _all = frozenset(OLD), frozenset(OLD) | frozenset(NEW)
_decided_ids = _old | {"decided1"}

OPERATIONS = (
    Operation("create a table", _create, _nothing, _none, _none),
    Operation("insert into an empty table", _insert, _empty, _none, frozenset(NEW)),
    Operation("insert into a clean table", _insert, _clean, _old, _all),
    Operation("bulk insert into a clean table", _bulk_insert, _clean, _old, _all),
    Operation("insert after a dead writer", _insert, _dirty, _old, _all),
    Operation("insert after a dead rollback", _insert, _rolling_back, _old, _all),
    Operation(
        "insert after an unpublished commit", _insert, _decided, _decided_ids, _all | _decided_ids, _old
    ),
    Operation("insert beside a metadata table", _insert, _with_metadata_table, _old, _all),
    Operation("roll back a dead writer", _roll_back, _dirty, _old, _old),
    Operation("resume a dead rollback", _roll_back, _rolling_back, _old, _old),
)


def crash_points(operation: Operation, *, every: int = 1, offset: int = 0) -> Iterator[tuple[str, World]]:
    """Every world a crash of the operation can leave, with the step that was the last; or a sample."""
    start = operation.start()
    recorder = RecordingStore(start.store.copy())
    operation.run(_world_over(start, recorder))
    points = [(n, change, after) for n, change in enumerate(recorder.changes, 1) for after in (False, True)]
    for step, change, after in points[offset % every :: every]:
        world = _world_over(start, start.store.copy())
        try:
            operation.run(world.on(CrashingStore(world.store, step, after=after)))
        except Crash:
            pass
        else:
            raise AssertionError(f"{operation.name} did not reach step {step}: {change}")
        yield f"{operation.name}, {'after' if after else 'before'} {step}: {change}", world


def recover_and_check(operation: Operation, world: World) -> None:
    """One more write, as a user would do it; then nothing may be left, lost or in between."""
    seen = _seen(world)
    if seen not in (operation.before, operation.after, operation.before_recovery):
        raise Violation(f"I1: a reader sees {sorted(seen)} after the crash")
    one_more_write(world, *NEXT)
    table = world.open()
    check_at_rest(table)
    seen = visible_ids(table) - frozenset(NEXT)
    if seen not in (operation.before, operation.after):
        raise Violation(f"I1: a reader sees {sorted(seen)} after recovery")


def one_more_write(world: World, *ids: str) -> None:
    """What a user does next: create the table if it is not there, and write."""
    with suppress(TableExists):
        world.create()
    world.insert(*ids)


def _seen(world: World) -> frozenset[str]:
    if not has_settings(world.store):
        return frozenset()
    table = world.open()
    check_at_any_time(table)
    return visible_ids(table)


def nested_crash_points(world: World, origin: str, *, every: int, offset: int) -> Iterator[tuple[str, World]]:
    """Every world that a crash of the write after the crash can leave."""
    nested = Operation("the next write", lambda w: one_more_write(w, *NEXT), lambda: world, _none, _none)
    for point, left in crash_points(nested, every=every, offset=offset):
        yield f"{origin}; then {point}", left


def _world_over(start: World, store: MemoryStore | RecordingStore) -> World:
    """A world with its own clock, so that every run of an operation takes the same steps."""
    return replace(start, store=store, clock=replace(start.clock))
