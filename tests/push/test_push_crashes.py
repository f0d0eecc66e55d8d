"""The crash matrix of the push service: every use case, dead before every change it makes.

Each run begins with a copy of a start state and dies before one change of the
metastore or the deep store. What is left must be sound at once; the client
repeats its call; and when everything has lapsed, nothing may be left over.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

import msgspec
import pytest

from harness.faults import Crash
from harness.push_checker import check_push_at_any_time, check_push_at_rest, check_table_is_gone
from harness.push_faults import CountedMetastore, CountedStore, Steps
from harness.push_world import ANN, DAY_MS, SCHEMA, TABLE, PushWorld, config
from holdfast.config.gates import parse_gates
from holdfast.config.push_rules import PINOT
from holdfast.errors import HoldfastError
from holdfast.model.lineage import EntryState
from holdfast.push.calls import Caller, StartRequest
from holdfast.push.controller import Controller
from holdfast.push.metastore.port import Create
from holdfast.push.state.records import segment_path

ITEMS = "items_OFFLINE"
KEYED = Caller(actor="ann", key="k1")


def _entry(world: PushWorld, state: EntryState = EntryState.IN_PROGRESS, *, table: str = TABLE) -> str:
    entries = world.catalog.load(table).lineage.entries
    return [entry.id for entry in entries if entry.state is state][-1]


@cache
def _empty() -> PushWorld:
    world = PushWorld(orphan_ms=0)
    world.store._clock = world.clock
    return world.create()


@cache
def _two() -> PushWorld:
    """Two snapshots."""
    world = _empty().copy()
    world.push(1, "a0", "a1")
    world.push(2, "b0", "b1")
    return world


@cache
def _open() -> PushWorld:
    """Two snapshots, and a third that is half uploaded."""
    world = _two().copy()
    world.start(["b0", "b1"], ["c0", "c1", "c2"])
    world.upload("c0", 3)
    world.upload("c1", 3)
    return world


@cache
def _placed() -> PushWorld:
    """As `_open`, and a push job has built the last segment."""
    world = _open().copy()
    world.place("c2", 3)
    return world


@cache
def _reverted() -> PushWorld:
    world = _two().copy()
    world.revert(_entry(world, EntryState.COMPLETED))
    return world


@cache
def _emptied() -> PushWorld:
    """Both pushes were reverted, one after the other, and retention has passed."""
    world = _reverted().copy()
    world.revert(_entry(world, EntryState.COMPLETED))
    world.retention()
    return world


@cache
def _old() -> PushWorld:
    world = _open().copy()
    world.clock.now += 2 * DAY_MS
    return world


@cache
def _leaving() -> PushWorld:
    """Retention has taken segments out of the table; their files and entries are left."""
    world = _old().copy()
    world.retention()
    return world


@cache
def _deleted() -> PushWorld:
    """Files in the deleted area whose time has come, and one that no record names."""
    world = _leaving().copy()
    world.retention()
    world.deep_store.put(TABLE, "lost", b"bytes", token="t1")
    world.clock.now += 8 * DAY_MS
    return world


@cache
def _group() -> PushWorld:
    world = _two().copy()
    world.controller.tables.create(config("items"), by=ANN)
    for table in (TABLE, ITEMS):
        world.start(sorted(world.seen(table)), ["c0"], table=table)
        world.upload("c0", 3, table=table)
    return world


@cache
def _leased() -> PushWorld:
    """Two snapshots, and an open push that shows signs of life."""
    world = _two().copy()
    request = StartRequest(segments_from=("b0", "b1"), segments_to=("c0",), lease_ms=1000)
    world.lease_token = world.controller.start_replace(TABLE, request, by=ANN).lease_token
    return world


@cache
def _timed() -> PushWorld:
    world = _empty().copy()
    world.push(1, "orders_1732752000456_0", "orders_1732752000456_1")
    return world


@cache
def _plain() -> PushWorld:
    world = _empty().copy()
    world.controller.tables.update(config(consistent=False), by=ANN)
    world.upload("a", 1)
    world.controller.delete_segments(TABLE, ["a"], by=ANN)
    return world


@cache
def _pinned() -> PushWorld:
    world = _two().copy()
    _pins(world)
    return world


@cache
def _unplaced() -> PushWorld:
    """Two snapshots, and metadata of a segment that is not in the table."""
    world = _two().copy()
    file = world.deep_store.put(TABLE, "lost", b"bytes", token="t1")
    found = msgspec.json.decode(world.metastore.read(segment_path(TABLE, "b0")).data)
    found["simpleFields"]["segment.download.url"] = world.deep_store.uri(file.path)
    world.metastore.write([Create(segment_path(TABLE, "lost"), msgspec.json.encode(found))])
    return world


@dataclass(frozen=True)
class Case:
    name: str
    start: Callable[[], PushWorld]
    act: Callable[[PushWorld], object]
    rows: tuple[list[int], ...]
    """What queries may see afterwards, whatever died: before or after, nothing between."""
    steps: int
    """So many changes it makes: a change that is added without thought is noticed here."""
    tables: tuple[str, ...] = field(default=(TABLE,))
    ends_table: bool = False


def _ends_group(world: PushWorld) -> object:
    entries = {table: _entry(world, table=table) for table in (TABLE, ITEMS)}
    return world.controller.end_group(entries, by=ANN)


def _redoes(world: PushWorld) -> object:
    return world.controller.redo(TABLE, _entry(world, EntryState.REVERTED), by=ANN)


def _redoes_first(world: PushWorld) -> object:
    """The entry that was reverted first, and with it the one that it was built on."""
    reverted = [
        one.id for one in world.catalog.load(TABLE).lineage.entries if one.state is EntryState.REVERTED
    ]
    return world.controller.redo(TABLE, reverted[0], by=ANN)


def _starts(sources: str, targets: str, **options) -> Callable[[PushWorld], object]:
    return lambda world: world.start(sources.split(), targets.split(), by=KEYED, **options)


def _ends(chosen: str, **options) -> Callable[[PushWorld], object]:
    return lambda world: world.end(_entry(world), segments_to=chosen.split(), **options)


def _switches_off(world: PushWorld) -> object:
    return world.controller.set_consistent_push(TABLE, enabled=False, by=ANN)


def _discards(world: PushWorld) -> object:
    return world.controller.orphans.discard_files(TABLE, sorted(world.files()))


def _reverts_group(world: PushWorld) -> object:
    entries = {table: _entry(world, table=table) for table in (TABLE, ITEMS)}
    return world.controller.revert_group(entries, force=True, by=ANN)


def _beats(world: PushWorld) -> object:
    token = _leased().lease_token
    return world.controller.heartbeat(TABLE, _entry(world), lease_token=token, by=ANN)


def _widens(world: PushWorld) -> object:
    wider = [*SCHEMA["dimensionFieldSpecs"], {"name": "city", "dataType": "STRING"}]
    return world.controller.tables.put_schema({**SCHEMA, "dimensionFieldSpecs": wider}, override=True, by=ANN)


def _reconfigures(world: PushWorld) -> object:
    return world.controller.tables.update(config(batch={"retainedSnapshots": 5}), by=ANN)


def _pins(world: PushWorld) -> object:
    return world.controller.pin(TABLE, 1, until_ms=world.clock.now + DAY_MS, by=ANN)


def _unpins(world: PushWorld) -> None:
    world.controller.unpin(TABLE, 1, by=ANN)


def _validates(world: PushWorld) -> object:
    asked = Controller(
        world.catalog, world.deep_store, world.clock, ask=lambda _: lambda _sql, _of: 2, wait=lambda _: None
    )
    return asked.validate(TABLE, _entry(world), parse_gates([{"min_rows": 1}]), by=ANN)


def _mends(world: PushWorld) -> object:
    return world.controller.upkeep.doctor(TABLE, fix=True, by=ANN)


def _deletes_table(world: PushWorld) -> None:
    world.controller.tables.delete(TABLE, by=ANN)


A, B, C = [1] * 4, [2] * 4, [3] * 4

CASES = [
    Case("first start", _empty, _starts("", "a"), ([],), 1),
    Case("start", _two, _starts("b0 b1", "c0"), (B,), 1),
    Case("forced start", _open, _starts("b0 b1", "d0", force=True), (B,), 1),
    Case("start after revert", _reverted, _starts("a0 a1", "c0", force=True), (A,), 1),
    Case("upload", _open, lambda w: w.upload("c2", 3), (B,), 2),
    Case("upload again", _open, lambda w: w.upload("c0", 3), (B,), 1),
    Case("registration in place", _placed, lambda w: w.register("c2", 3), (B,), 1),
    Case("discarding what was built", _placed, _discards, (B,), 2),
    Case("refresh", _open, lambda w: [w.upload(name, 9) for name in ("c0", "c1", "c2")], (B,), 6),
    Case("protected upload", _open, lambda w: w.upload("c2", 3, protected=True), (B,), 3),
    Case("upload of a deleted name", _plain, lambda w: w.upload("a", 5), ([], [5] * 2), 2),
    Case("narrowed end", _open, _ends("c0"), (B, [3] * 2), 1),
    Case("end and cleanup", _open, _ends("c0 c1", cleanup=True), (B, C), 2),
    Case("revert", _two, lambda w: w.revert(_entry(w, EntryState.COMPLETED)), (B, A), 1),
    Case("forced revert", _open, lambda w: w.revert(_entry(w), force=True), (B,), 1),
    Case("rollback", _two, lambda w: w.rollback(steps=1, by=KEYED), (B, A), 1),
    Case("redo", _reverted, _redoes, (A, B), 1),
    Case("second revert", _reverted, lambda w: w.revert(_entry(w, EntryState.COMPLETED)), (A, []), 1),
    Case("redo of two", _emptied, _redoes_first, ([], B), 1),
    Case("delete", _two, lambda w: w.controller.delete_segments(TABLE, ["b0"], by=ANN), (B, [2] * 2), 1),
    Case("retention decides", _old, lambda w: w.retention(), (B,), 1),
    Case("retention deletes", _leaving, lambda w: w.retention(), (B,), 10),
    Case("retention empties", _deleted, lambda w: w.retention(), (B,), 7),
    Case("end of a group", _group, _ends_group, (B, [3] * 2), 1, (TABLE, ITEMS)),
    Case("revert of a group", _group, _reverts_group, (B,), 1, (TABLE, ITEMS)),
    Case("sign of life", _leased, _beats, (B,), 1),
    Case("change of the schema", _two, _widens, (B,), 2),
    Case("change of the configuration", _two, _reconfigures, (B,), 1),
    Case("switching off", _timed, _switches_off, (A,), 5),
    Case("pin", _two, _pins, (B,), 1),
    Case("unpin", _pinned, _unpins, (B,), 1),
    Case("gates", _open, _validates, (B,), 1),
    Case("table deletion", _two, _deletes_table, (B,), 12, ends_table=True),
]


def _counted(world: PushWorld, steps: Steps) -> PushWorld:
    return world.another(
        metastore=CountedMetastore(world.metastore, steps), store=CountedStore(world.store, steps)
    )


def _changes(case: Case) -> int:
    steps = Steps()
    case.act(_counted(case.start().copy(), steps))
    return steps.taken


def _died(case: Case, step: int) -> PushWorld:
    """The world as the death before that change leaves it."""
    world = case.start().copy()
    with pytest.raises(Crash):
        case.act(_counted(world, Steps(dies_before=step)))
    return world.another()


def _repeated(case: Case, world: PushWorld) -> None:
    """The client calls again; it may be told that the call was carried out before."""
    # The entry that the call was about may have gone its way.
    with suppress(HoldfastError, IndexError):
        case.act(world)


def _check(case: Case, world: PushWorld) -> None:
    for table in case.tables:
        check_push_at_any_time(world, table=table)
    assert world.rows() in case.rows
    if len(case.tables) == 2:
        assert (world.rows(ITEMS) == []) == (world.rows() == B), "L1: a group is switched as a whole"


@pytest.mark.parametrize("case", [case for case in CASES if not case.ends_table], ids=lambda case: case.name)
def test_a_use_case_may_die_before_any_change(case):
    changes = _changes(case)

    for step in range(changes):
        world = _died(case, step)
        _check(case, world)
        _repeated(case, world)
        _check(case, world)
        for table in case.tables:
            check_push_at_rest(world, table=table)

    assert changes == case.steps


@pytest.mark.parametrize("case", [case for case in CASES if not case.ends_table], ids=lambda case: case.name)
def test_nobody_needs_to_repeat_a_call_that_died(case):
    """L12: retention alone brings everything to rest."""
    for step in range(_changes(case)):
        world = _died(case, step)

        for table in case.tables:
            check_push_at_rest(world, table=table)
        assert world.rows() in case.rows


@pytest.mark.parametrize("case", [case for case in CASES if not case.ends_table], ids=lambda case: case.name)
def test_retention_after_a_death_may_die_as_well(case):
    """A crash during the recovery of a crash."""
    recovery = Case("", lambda: world, lambda w: (w.retention(), w.retention()), case.rows, 0, case.tables)
    for step in range(_changes(case)):
        world = _died(case, step)
        world.clock.now += 2 * DAY_MS
        for later in range(_changes(recovery)):
            again = _died(recovery, later)
            _check(case, again)


def test_the_deletion_of_a_table_may_die_before_any_change():
    case = next(case for case in CASES if case.ends_table)
    changes = _changes(case)

    for step in range(changes):
        world = _died(case, step)
        if step < 2:
            # Only the audit tells of it, if anything does.
            case.act(world)
        else:
            world.controller.upkeep.run_retention_everywhere()
        check_table_is_gone(world)
        world.create()
        check_push_at_rest(world)

    assert changes == case.steps


def test_creating_a_table_may_die_before_any_change():
    for step in range(3):
        world = PushWorld()
        with suppress(Crash):
            _counted(world, Steps(dies_before=step)).create()
        world = world.another()
        if not world.controller.views.tables():
            world.create()
        world.push(1)
        check_push_at_rest(world)


def test_mending_may_die_before_any_change():
    """Only the doctor lets go of metadata without a place, so that here the call is repeated."""
    case = Case("mending", _unplaced, _mends, (B,), 1)

    for step in range(case.steps):
        world = _died(case, step)
        assert world.rows() == B
        _repeated(case, world)
        _check(case, world)
        check_push_at_rest(world)

    assert _changes(case) == case.steps


def test_strict_rules_leave_the_same_soundness():
    """Pinot's behaviour has its hazards; losing a file or mixing snapshots is none of them here."""
    case = CASES[2]
    for step in range(_changes(case)):
        world = _died(case, step)
        world.rules = PINOT
        strict = world.another()
        request = StartRequest(segments_from=("b0", "b1"), segments_to=("d0",), force=True)
        strict.controller.start_replace(TABLE, request, by=ANN)
        check_push_at_any_time(strict)
