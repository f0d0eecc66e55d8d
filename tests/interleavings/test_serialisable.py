"""Whatever two writers do to the same rows at once, the rows are what one after the other leaves.

Every verb meets every verb, itself too, where they can get in each other's
way: one has read the table and is about to be decided, or has begun and not
read it yet, and the other is decided meanwhile, whichever began first.
"""

from dataclasses import replace
from functools import cache, partial
from itertools import product

import pyarrow as pa
import pytest
from greenlet import greenlet

from harness.explorer import Run
from harness.faults import RememberingStore, StoreWrapper
from harness.world import SimulatedHost, World, memory_world, table_of
from holdfast.config.choices import ConcurrencyMode, FailedWritesPolicy, IndexType, TableType
from holdfast.config.write import WriteSettings
from holdfast.host import Liveness
from holdfast.model.names import LEDGER_FOLDER
from holdfast.writes import plan, transaction
from holdfast.writes.task import IS_DELETED
from interleavings.scenarios import Scenario, Writer

SHARED = WriteSettings(
    concurrency_mode=ConcurrencyMode.OPTIMISTIC, failed_writes_policy=FailedWritesPolicy.LAZY
)
GLOBAL = replace(SHARED, index_type=IndexType.GLOBAL_SIMPLE, simple_moves_records=True)

OLD = (("p1", "paris", 5.0), ("p2", "paris", 5.0), ("r1", "rome", 5.0))


def columns(rows, *, removed=()):
    """The rows, of which those with these keys say that they are deleted."""
    told = table_of(rows)
    flags = pa.array([row[0] in removed for row in rows])
    return told.append_column(IS_DELETED, flags)


def stored(row):
    return (*row, f"{IS_DELETED}=False")


def merged(table, rows, removed):
    """What an upsert leaves: a row that is older than the stored one changes nothing."""
    table = dict(table)
    for row in rows:
        key, _, fare = row
        if key in table and table[key][2] > fare:
            continue
        if key in removed:
            table.pop(key, None)
        else:
            table[key] = stored(row)
    return table


@cache
def start(kind=TableType.COPY_ON_WRITE):
    """Of merge-on-read, every write appends log files, as long as these can say what it does."""
    is_logged = kind is TableType.MERGE_ON_READ
    world = replace(memory_world(), log_ratio_max=1000.0 if is_logged else None)
    payload = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
    world.create({"hoodie.compaction.payload.class": payload}, ordering="fare", table_type=kind)
    world.write("bulk_insert", columns(OLD))
    return world


def upsert(*rows, removed=(), settings=SHARED):
    return Writer(
        lambda world: world.write("upsert", columns(rows, removed=removed), settings),
        lambda table: merged(table, rows, removed),
    )


def delete(*rows, settings=SHARED):
    """Rows that name their fare lose against a newer one."""
    keys = [row[0] for row in rows]
    return Writer(
        lambda world: world.write("delete", table_of(rows), settings),
        lambda table: merged(table, rows, keys),
    )


def addition(operation, *rows):
    return Writer(
        lambda world: world.write(operation, columns(rows), SHARED),
        lambda table: table | {row[0]: stored(row) for row in rows},
    )


def overwrite(*rows):
    cities = {row[1] for row in rows}
    return Writer(
        lambda world: world.write("insert_overwrite", columns(rows), SHARED),
        lambda table: (
            {k: row for k, row in table.items() if row[1] not in cities}
            | {row[0]: stored(row) for row in rows}
        ),
    )


def overwrite_table(*rows):
    return Writer(
        lambda world: world.write("insert_overwrite_table", columns(rows), SHARED),
        lambda table: {row[0]: stored(row) for row in rows},
    )


def delete_partition(city):
    return Writer(
        lambda world: world.delete_partitions(f"city={city}", settings=SHARED),
        lambda table: {key: row for key, row in table.items() if row[1] != city},
    )


# Two forms of each that looks for keys, so that each can add what the other removes.
VERBS = {
    "insert": addition("insert", ("i", "rome", 6.0)),
    "bulk_insert": addition("bulk_insert", ("b", "paris", 6.0)),
    "upsert that adds k1 and removes k2": upsert(("k1", "paris", 6.0), ("k2", "paris", 6.0), removed=("k2",)),
    "upsert that adds k2 and removes k1": upsert(("k2", "paris", 6.0), ("k1", "paris", 6.0), removed=("k1",)),
    "upsert that updates": upsert(("p1", "paris", 7.0)),
    "upsert that is too old": upsert(("p1", "paris", 4.0)),
    "delete": delete(("p1", "paris", 6.0)),
    "delete of what is not there": delete(("k1", "paris", 6.0)),
    "delete that is too old": delete(("p1", "paris", 4.0), ("r1", "rome", 4.0)),
    "overwrite": overwrite(("k1", "paris", 8.0)),
    "overwrite of the table": overwrite_table(("k1", "oslo", 8.0), ("p1", "paris", 8.0)),
    "deleted partition": delete_partition("paris"),
}
GLOBAL_VERBS = {
    "move": upsert(("p1", "rome", 6.0), settings=GLOBAL),
    "move that is too old": upsert(("p1", "oslo", 4.0), settings=GLOBAL),
    "upsert that adds k1 elsewhere and removes k2": upsert(
        ("k1", "paris", 6.0), ("k2", "paris", 6.0), removed=("k2",), settings=GLOBAL
    ),
    "upsert that adds k2": upsert(("k2", "rome", 6.0), ("k1", "oslo", 6.0), removed=("k1",), settings=GLOBAL),
    "delete": delete(("p1", "oslo", 6.0), settings=GLOBAL),
    "delete of what is not there": delete(("k1", "oslo", 6.0), settings=GLOBAL),
    "overwrite": overwrite(("o", "rome", 8.0)),
}


class _PausingStore(StoreWrapper):
    """Hands control back before the actor shows its instant, and before it is decided."""

    def __init__(self, inner, pause):
        super().__init__(inner)
        self._pause = pause

    def _change(self, verb, path, act):
        if verb == "create" and (path.startswith(LEDGER_FOLDER) or path.endswith(".inflight")):
            self._pause()
        return act()


HAS_BEGUN, IS_ABOUT_TO_BE_DECIDED = 2, 3
"""How often an actor was continued then. First it pauses before its BEGIN."""

SCHEDULES = {
    "the younger is decided first": ((0, IS_ABOUT_TO_BE_DECIDED), (1, None), (0, None)),
    "the older is decided first": (
        (0, IS_ABOUT_TO_BE_DECIDED),
        (1, IS_ABOUT_TO_BE_DECIDED),
        (0, None),
        (1, None),
    ),
    "the younger is decided before the older has read": ((0, HAS_BEGUN), (1, None), (0, None)),
}


def run(scenario, schedule):
    world = scenario.start().copy()
    store = RememberingStore(world.store, LEDGER_FOLDER)
    main = greenlet.getcurrent()

    def actor(index):
        pausing, host = _PausingStore(store, main.switch), SimulatedHost(index + 1, Liveness.UNKNOWN)
        own = replace(world, store=pausing, host=host)
        return greenlet(lambda: scenario.actors[index](own), main)

    actors = [actor(0), actor(1)]
    outcomes = [None, None]
    for index, times in schedule:
        while not actors[index].dead and times != 0:
            outcomes[index] = actors[index].switch()
            times = None if times is None else times - 1
    scenario._check(World(store, world.clock, SimulatedHost()), Run((), tuple(outcomes), ()))


def run_all(verbs, schedule, kind=TableType.COPY_ON_WRITE):
    for one, other in product(verbs, verbs):
        if one == other and one.endswith("insert"):
            continue  # They do not look for keys, and both would add the same.
        actors = (verbs[one], verbs[other])
        scenario = Scenario(
            f"{one}, {other}",
            partial(start, kind),
            actors,
            first=((lambda _: {row[0]: stored(row) for row in OLD}),),
        )
        try:
            run(scenario, schedule)
        except AssertionError as error:
            raise AssertionError(f"{one}, then {other}: {error}") from error


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("verbs", [VERBS, GLOBAL_VERBS], ids=["by partition", "global"])
@pytest.mark.parametrize("kind", TableType)
def test_any_two_writers_leave_what_one_after_the_other_leaves(verbs, schedule, kind):
    run_all(verbs, schedule, kind)


def without(**dropped):
    claim_of = transaction.claim_of
    return lambda *arguments: replace(claim_of(*arguments), **dropped)


@pytest.mark.parametrize(
    ("forgotten", "verbs", "schedule"),
    [
        ("absent_from", VERBS, "the older is decided first"),
        ("absent_from", GLOBAL_VERBS, "the younger is decided first"),
        ("kept", VERBS, "the older is decided first"),
        ("kept", GLOBAL_VERBS, "the older is decided first"),
    ],
)
def test_a_write_that_forgets_what_it_saw_and_left_is_found(monkeypatch, forgotten, verbs, schedule):
    monkeypatch.setattr(transaction, "claim_of", without(**{forgotten: frozenset()}))

    with pytest.raises(AssertionError, match="I1"):
        run_all(verbs, SCHEDULES[schedule])


def test_a_write_that_builds_on_a_younger_one_is_found(monkeypatch):
    monkeypatch.setattr(plan, "_before", lambda timeline, instant: timeline)

    with pytest.raises(AssertionError, match=r"I9|I21"):
        run_all(VERBS, SCHEDULES["the younger is decided before the older has read"])
