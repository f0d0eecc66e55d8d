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

from harness.checker import check_at_any_time, check_at_rest, ledger_files, visible_rows
from harness.cleaning import clean
from harness.explorer import Run, Schedule, run_schedule
from harness.faults import Crash, CrashingStore, InterruptedStore, RecordingStore, RememberingStore
from harness.world import Row, SimulatedHost, World, WrongClock, memory_world, table_of
from holdfast.config.choices import CleanPolicy, ConcurrencyMode, FailedWritesPolicy, IndexType
from holdfast.config.cleaning import ArchiveSettings, CleanSettings
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS, WriteSettings
from holdfast.engines.arrow.compaction import ArrowCompactor
from holdfast.errors import (
    Conflict,
    Fenced,
    InvalidOption,
    Refused,
    SnapshotExpired,
    TableExists,
    UnknownInstant,
)
from holdfast.exports.follow import follow
from holdfast.format.ledger_entries import EntryKind, decode_entry
from holdfast.host import Liveness
from holdfast.model.instant import InstantTime
from holdfast.model.names import LEDGER_FOLDER, is_file_of
from holdfast.model.reports import Commit, Severity
from holdfast.read.savepoints import savepoints
from holdfast.services.archive.archive import archive_without_recovery
from holdfast.services.leases import lease
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint
from holdfast.services.verify.verify import verify
from holdfast.storage.store import Store
from holdfast.table.pending import pending_compactions, pending_restore
from holdfast.table.properties_file import has_settings
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.compaction import compact, schedule_compaction, unschedule_compaction

Rows = dict[str, Row]
"""By key."""

REFUSALS = (Fenced, Conflict, InvalidOption, Refused, SnapshotExpired, TableExists, UnknownInstant)
DAY_MS = 24 * 3600 * 1000
CREATED = "created"
"""What an actor is told who created the table."""

OLD: Rows = {row[0]: row for row in (("old1", "paris", 1.0), ("old2", "paris", 2.0), ("old3", "rome", 3.0))}
LAST = ("last", "paris", 9.0)

_SETTINGS = WriteSettings(fills_missing_columns=True)
_SHARED = WriteSettings(
    fills_missing_columns=True,
    concurrency_mode=ConcurrencyMode.OPTIMISTIC,
    failed_writes_policy=FailedWritesPolicy.LAZY,
)
_SHARED_GLOBAL = replace(_SHARED, index_type=IndexType.GLOBAL_SIMPLE)


@dataclass(frozen=True)
class Writer:
    """An actor that writes, and what its write does to the rows there are."""

    act: Callable[..., object]
    effect: Callable[[Rows], Rows]

    def __call__(self, world: World) -> object:
        """What the writer was told."""
        try:
            return self.act(world)
        except REFUSALS as refused:
            return refused


@dataclass(frozen=True)
class Named:
    """A snapshot that somebody named, and what was in it."""

    instant: InstantTime
    rows: frozenset[Row]


Actor = Callable[[World], object]


@dataclass(frozen=True)
class Scenario:
    """Actors over one start state. Every actor gets its own open table, as a process would."""

    name: str
    start: Callable[[], World]
    actors: tuple[Actor, ...]
    others: Liveness = Liveness.UNKNOWN
    """What every actor believes of the owners of unfinished writes."""
    checkpoint_after: int = 100
    clocks_wrong_by_ms: tuple[int, ...] = ()
    first: tuple[Callable[[Rows], Rows], ...] = (lambda _: dict(OLD),)
    """What the commits of the start state did."""

    def run(self, schedule: Schedule, *, asleep: int | None = None) -> Run:
        """Run one schedule, then check the world as it lies there and after one more write."""
        start = self.start().copy()
        # The ledger may be trimmed meanwhile; what was decided is known all the same.
        store, clock = RememberingStore(start.store, LEDGER_FOLDER), start.clock

        def actor(index: int) -> Callable[[Store], object]:
            # The host of the start state is number 0.
            host = SimulatedHost(index + 1, self.others)
            own = WrongClock(clock, self.clocks_wrong_by_ms[index]) if self.clocks_wrong_by_ms else clock
            return lambda store: self.actors[index](
                replace(start, store=store, clock=own, host=host, checkpoint_after=self.checkpoint_after)
            )

        actors = [actor(index) for index in range(len(self.actors))]
        run = run_schedule(store, actors, schedule, asleep=asleep)
        self._check(World(store, clock, SimulatedHost()), run)
        return run

    @property
    def are_rivals(self) -> bool:
        """Whether all do the same, so that each may decide what another one is just carrying out."""
        return len(set(self.actors)) == 1

    @property
    def begins_with_a_writer(self) -> bool:
        return isinstance(self.actors[0], Writer)

    def run_interrupted(self) -> None:
        """Let the first actor be decided, and not shown, between the other's last look and its decision."""
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
        refused = [failure for failure in failures if isinstance(failure, REFUSALS)]
        assert failures == refused, f"an actor failed: {failures!r}"
        self._check_told(world, run)
        if not has_settings(world.store):
            # Nobody has made the table, or somebody lies asleep who is about to.
            assert not any(isinstance(outcome, Commit) for outcome in run.outcomes), "I22: told, and no table"
            world.first_write(table_of([LAST]))
        else:
            check_at_any_time(world.open())
            if None not in run.outcomes:
                # Nobody lies asleep with a decision that is yet to be shown.
                self._check_rows(world, "before recovery")
                self._check_saved(world, run)
            pending = pending_restore(load_timeline(world.store), world.open().ledger.read())
            if pending is not None:
                restore(world.open(), pending.to)
            world.write("bulk_insert", table_of([LAST]), _SETTINGS)

        check_at_rest(world.open())
        self._check_rows(world, "after recovery", LAST)
        self._check_saved(world, run)
        self._check_past(world)
        for named in (outcome for outcome in run.outcomes if isinstance(outcome, Named)):
            seen = visible_rows(world.open(), as_of=named.instant)
            assert seen == named.rows, (
                f"I20: as of {named.instant} there were {sorted(named.rows)}, then {seen}"
            )

    def _check_told(self, world: World, run: Run) -> None:
        entries = _entries(world.store)
        is_born = any(entry.properties for entry in entries)
        assert not (CREATED in run.outcomes and is_born), "I22: told that it made the table that another made"
        committed = {entry.instant for entry in entries if entry.kind is EntryKind.COMMIT}
        told = {outcome.instant for outcome in run.outcomes if isinstance(outcome, Commit)}
        assert told <= committed, f"I13: acknowledged {told}, committed {committed}"
        writers = {number for number, *_ in self._standing(world.store)}
        for number, outcome in enumerate(run.outcomes):
            is_refused = isinstance(outcome, REFUSALS)
            assert not (is_refused and number in writers), f"I14: refused and committed: {outcome!r}"

    def _check_saved(self, world: World, run: Run) -> None:
        """A savepoint that was acknowledged is shown, unless it was deleted after it was asked for."""
        released = [entry for entry in _entries(world.store) if entry.kind is EntryKind.RELEASE]
        shown = {savepoint.instant for savepoint in savepoints(world.open())}
        for saved in (outcome for outcome in run.outcomes if isinstance(outcome, Saved)):
            is_released = any(e.slot > saved.asked_after and e.instant == saved.instant for e in released)
            assert is_released or saved.instant in shown, f"I5: savepoint {saved.instant} vanished"

    def _check_rows(self, world: World, moment: str, *later: Row) -> None:
        expected: Rows = {}
        for _, _, effect in self._standing(world.store):
            expected = effect(expected)
        seen = visible_rows(world.open()) - frozenset(later)
        assert seen == frozenset(expected.values()), f"I1, {moment}: {sorted(seen)}, not {expected}"

    def _check_past(self, world: World) -> None:
        """As of each commit there are the rows that it and those before it made of each other."""
        standing = self._standing(world.store)
        for _, time, _ in standing:
            expected: Rows = {}
            for _, other, effect in standing:
                expected = effect(expected) if other <= time else expected
            with suppress(SnapshotExpired):
                seen = visible_rows(world.open(), as_of=time)
                assert seen == frozenset(expected.values()), f"I21, as of {time}: {sorted(seen)}"

    def _standing(self, store: Store) -> list[tuple[int, InstantTime, Callable[[Rows], Rows]]]:
        """Who committed what stands, when, and what it did to the rows, in the ledger's order.

        The start state counts as number -1; what was written after the scenario is left out.
        """
        entries = _entries(store)
        owners = {entry.instant: entry.owner for entry in entries if entry.kind is EntryKind.BEGIN}
        taken_back = {one.instant for entry in entries for one in entry.revoked}
        # A restore to an archived commit takes back all that followed it, archived or not.
        gaps = [(entry.restored_to, entry.instant) for entry in entries if entry.restored_to is not None]
        taken_back |= {time for time in owners for after, before in gaps if after < time < before}
        first = iter(self.first)
        standing = []
        for instant in (entry.instant for entry in entries if entry.kind is EntryKind.COMMIT):
            number = owners[instant].pid - 1
            effect = next(first, None) if number < 0 else self.actors[number].effect
            if effect is not None and instant not in taken_back:
                standing.append((number, instant, effect))
        return standing


def _entries(store: Store):
    return [decode_entry(content)[0] for content in ledger_files(store).values()]


@cache
def _step_of_commit(scenario: Scenario) -> int:
    """The number of the change by which the first actor is decided."""
    world = scenario.start().copy()
    recorder = RecordingStore(world.store)
    scenario.actors[0](world.on(recorder))
    return recorder.last(LEDGER_FOLDER)


def _rows_writer(operation: str, effect: Callable[[Rows, Rows], Rows], *rows: Row) -> Writer:
    mine = {row[0]: row for row in rows}

    def act(world: World, settings: WriteSettings = _SETTINGS) -> Commit:
        return world.write(operation, table_of(mine.values()), settings)

    return Writer(act, lambda table: effect(table, mine))


def _sharing(writer: Writer, settings: WriteSettings = _SHARED) -> Writer:
    """The same writer, admitting others at the same time."""
    return Writer(lambda world: writer.act(world, settings), writer.effect)


def _ingest(fare: float) -> Writer:
    """A run of a pipeline: all of them find the same file, and read something else of it."""
    row = ("file", "paris", fare)

    def act(world: World, settings: WriteSettings = _SETTINGS) -> object:
        return world.ingest({"a.csv": table_of([row])}, settings) or "there was nothing new"

    return Writer(act, lambda table: table | {"file": row})


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


def _overwrite_table(*rows: Row) -> Writer:
    return _rows_writer("insert_overwrite_table", lambda table, mine: mine, *rows)


def _without_paris(world: World, settings: WriteSettings = _SETTINGS) -> Commit:
    return world.delete_partitions("city=paris", settings=settings)


_delete_paris = Writer(_without_paris, lambda table: _outside(table, {"paris"}))


def _roll_back(world: World) -> object:
    return recover(world.open())


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
def _two_commits() -> World:
    world = _clean().copy()
    _second.act(world)
    return world


@cache
def _unpublished() -> World:
    """A writer died when it was decided, before anybody could see it."""
    world, counted = _clean().copy(), _clean().copy()
    recorder = RecordingStore(counted.store)
    _second.act(counted.on(recorder))
    with suppress(Crash):
        _second.act(world.on(CrashingStore(world.store, recorder.last(LEDGER_FOLDER), after=True)))
    return world


@cache
def _dead_insert() -> World:
    return _dead(_insert("dead"))


@cache
def _dead_upsert() -> World:
    return _dead(_upsert(("old1", "paris", -1.0), ("dead", "rome", -1.0)))


def _with_tip(world: World, settings: WriteSettings = _SETTINGS) -> Commit:
    rows = table_of([("a", "paris", 10.0)])
    return world.write("upsert", rows.append_column("tip", pa.array([5])), settings)


def _roll_back_expired(world: World) -> object:
    """Everybody's heartbeat has expired when this one looks."""
    clock = world.clock.right if isinstance(world.clock, WrongClock) else world.clock
    clock.now += 2 * HEARTBEAT_TIMEOUT_MS
    return recover(world.open(), policy=FailedWritesPolicy.LAZY)


def _refusable(act: Callable[[World], object]) -> Actor:
    def told(world: World) -> object:
        try:
            return act(world)
        except REFUSALS as refused:
            return refused

    return told


def _oldest(world: World) -> InstantTime:
    return load_timeline(world.store).completed_commits[0].time


def _naming(writer: Writer, name: Callable[[World], InstantTime]) -> Writer:
    """The same writer, sharing the table, which then names a snapshot, if it may."""

    def act(world: World, settings: WriteSettings = _SHARED) -> object:
        commit = writer.act(world, settings)
        try:
            instant = name(world)
            return Named(instant, visible_rows(world.open(), as_of=instant))
        except REFUSALS:
            return commit

    return Writer(act, writer.effect)


def _lease_newest(world: World) -> InstantTime:
    with lease(world.open(), "reader", 3600) as held:
        return held.instant


def _newest(world: World) -> InstantTime:
    return load_timeline(world.store).completed_commits[-1].time


_undo = _refusable(lambda world: undo(world.open()))
_restore = _refusable(lambda world: restore(world.open(), _oldest(world)))
_savepoint = _refusable(lambda world: create_savepoint(world.open(), _oldest(world)))
_savepoint_newest = _refusable(lambda world: create_savepoint(world.open()))
_delete_savepoint = _refusable(lambda world: delete_savepoint(world.open(), _oldest(world)))


@dataclass(frozen=True)
class Saved:
    """A savepoint that was acknowledged, and the slot of the ledger after which it was asked for."""

    instant: InstantTime
    asked_after: int


@_refusable
def _save(world: World) -> object:
    asked_after = world.open().ledger.read().slot
    return Saved(create_savepoint(world.open(), _oldest(world)).instant, asked_after)


@cache
def _savepointed() -> World:
    world = _clean().copy()
    _savepoint(world)
    return world


_first = _upsert(("old1", "paris", 10.0), ("a", "paris", 10.0))
_second = _upsert(("old1", "paris", 20.0), ("b", "paris", 20.0))
_deletion = _delete(("old1", "paris", 0.0), ("old3", "rome", 0.0))
_evolution = Writer(_with_tip, lambda table: table | {"a": ("a", "paris", 10.0, "tip=5")})
_replacement = _overwrite(("old2", "paris", 30.0))
_new_table = _overwrite_table(("old2", "oslo", 30.0), ("c", "paris", 30.0))
# With a global index: one record leaves its partition, and a new key comes to different partitions.
_move = _upsert(("old1", "rome", 10.0), ("k", "paris", 10.0))
_other_move = _upsert(("old3", "oslo", 20.0), ("k", "rome", 20.0))

_in_rome = _upsert(("old3", "rome", 30.0))

ONE_WRITER = (
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
    Scenario("upsert and overwrite of the table", _clean, (_first, _new_table)),
    Scenario("upsert and delete", _clean, (_first, _deletion)),
    Scenario("upsert and rollback after a dead upsert", _dead_upsert, (_first, _roll_back)),
    Scenario("upsert and upsert that adds a column", _clean, (_second, _evolution)),
    Scenario("deleted partition and insert into it", _clean, (_delete_paris, _insert("a"))),
)

MANY_WRITERS = (
    Scenario("sharing writers", _clean, (_sharing(_add("a")), _sharing(_add("b")))),
    Scenario("sharing upserts of one row", _clean, (_sharing(_first), _sharing(_second))),
    Scenario("sharing upserts of different file groups", _clean, (_sharing(_first), _sharing(_in_rome))),
    Scenario(
        "sharing upserts that add one key", _clean, (_sharing(_first), _sharing(_upsert(("a", "paris", 9.0))))
    ),
    Scenario("sharing upsert and overwrite", _clean, (_sharing(_first), _sharing(_replacement))),
    Scenario("sharing upsert and overwrite of the table", _clean, (_sharing(_first), _sharing(_new_table))),
    Scenario("sharing writer and deleted partition", _clean, (_sharing(_add("a")), _sharing(_delete_paris))),
    Scenario(
        "sharing upserts that move records",
        _clean,
        (_sharing(_move, _SHARED_GLOBAL), _sharing(_other_move, _SHARED_GLOBAL)),
    ),
    Scenario("sharing upsert and delete", _clean, (_sharing(_first), _sharing(_deletion))),
    Scenario("sharing upserts, one adds a column", _clean, (_sharing(_in_rome), _sharing(_evolution))),
    Scenario("sharing writer and one that is alone", _clean, (_sharing(_first), _second)),
    Scenario(
        "sharing writer and a rollback of the expired", _clean, (_sharing(_add("a")), _roll_back_expired)
    ),
    Scenario(
        "sharing upsert and a rollback of the expired after a dead upsert",
        _dead_upsert,
        (_sharing(_first), _roll_back_expired),
    ),
    Scenario(
        "two sharing writers and a rollback of the expired",
        _clean,
        (_sharing(_first), _sharing(_in_rome), _roll_back_expired),
    ),
    Scenario(
        "sharing writers with wrong clocks",
        _clean,
        (_sharing(_first), _sharing(_second)),
        clocks_wrong_by_ms=(DAY_MS, -DAY_MS),
    ),
    Scenario(
        "sharing writer and a rollback with wrong clocks",
        _clean,
        (_sharing(_first), _roll_back_expired),
        clocks_wrong_by_ms=(DAY_MS, -DAY_MS),
    ),
)

_TWO = ((lambda _: dict(OLD)), _second.effect)

TAKING_BACK = (
    Scenario("writer and undo", _clean, (_first, _undo)),
    Scenario("sharing writer and undo", _clean, (_sharing(_first), _undo)),
    Scenario("sharing writer of another file group and undo", _clean, (_sharing(_add("a")), _undo)),
    Scenario("undo and undo", _two_commits, (_undo, _undo), first=_TWO),
    Scenario("undo and rollback", _clean, (_undo, _roll_back)),
    Scenario("undo and undo after an unpublished write", _unpublished, (_undo, _undo), first=_TWO),
    Scenario("undo, rollback and writer", _two_commits, (_undo, _roll_back, _sharing(_in_rome)), first=_TWO),
)

RESTORING = (
    Scenario("writer and restore", _two_commits, (_in_rome, _restore), first=_TWO),
    Scenario("sharing writer and restore", _two_commits, (_sharing(_in_rome), _restore), first=_TWO),
    Scenario("restore and restore", _two_commits, (_restore, _restore), first=_TWO),
    Scenario("restore and rollback", _two_commits, (_restore, _roll_back), first=_TWO),
    Scenario("restore and undo", _two_commits, (_restore, _undo), first=_TWO),
    Scenario("restore after an unpublished write, and writer", _unpublished, (_restore, _first), first=_TWO),
    Scenario(
        "restore, rollback and sharing writer",
        _two_commits,
        (_restore, _roll_back, _sharing(_first)),
        first=_TWO,
    ),
    Scenario("writer and savepoint", _clean, (_first, _savepoint)),
    Scenario("sharing writer and savepoint", _clean, (_sharing(_first), _savepoint)),
    Scenario("savepoint and undo", _two_commits, (_savepoint_newest, _undo), first=_TWO),
    Scenario("savepoint and restore", _two_commits, (_savepoint_newest, _restore), first=_TWO),
    Scenario("savepoint and savepoint", _clean, (_savepoint, _savepoint)),
    Scenario("savepoint and its deletion", _savepointed, (_savepoint, _delete_savepoint)),
    Scenario("deletion of a savepoint and the same savepoint", _savepointed, (_delete_savepoint, _save)),
    Scenario(
        "two deletions of a savepoint and the same savepoint",
        _savepointed,
        (_delete_savepoint, _delete_savepoint, _save),
    ),
    Scenario("savepoint and rollback", _clean, (_savepoint, _roll_back)),
)

_third = _upsert(("old1", "paris", 40.0), ("old3", "rome", 40.0))
_fourth = _upsert(("old1", "paris", 50.0))
_FOUR = (*_TWO, _third.effect, _fourth.effect)
_ONE_COMMIT = CleanSettings(commits_retained=1)
_ONE_VERSION = CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1)


def _cleaner(settings: CleanSettings) -> Actor:
    return _refusable(lambda world: clean(world.open(), settings))


def _cleaning(writer: Writer) -> Writer:
    """The same writer, cleaning after its commit."""
    return Writer(lambda world: writer.act(world, replace(_SETTINGS, clean=_ONE_VERSION)), writer.effect)


_clean_commits, _clean_versions = _cleaner(_ONE_COMMIT), _cleaner(_ONE_VERSION)


@_refusable
def _leased_read(world: World) -> object:
    """A reader of the second commit that holds a lease: what it was granted it gets to read."""
    second = load_timeline(world.store).completed_commits[1].time
    with lease(world.open(), "reader", 3600, as_of=second) as held:
        rows = visible_rows(world.open(), as_of=held.instant)
    assert rows == frozenset(_second.effect(dict(OLD)).values()), f"the lease did not hold: {sorted(rows)}"
    return held


@cache
def _four_commits() -> World:
    world = _two_commits().copy()
    _third.act(world)
    _fourth.act(world)
    return world


@cache
def _four_and_savepoint() -> World:
    world = _four_commits().copy()
    _savepoint(world)
    return world


@cache
def _decided_clean() -> World:
    """A cleaner died when its clean was decided, before anything was deleted."""
    world, counted = _four_commits().copy(), _four_commits().copy()
    recorder = RecordingStore(counted.store)
    _clean_versions(counted.on(recorder))
    with suppress(Crash):
        _clean_versions(world.on(CrashingStore(world.store, recorder.last(LEDGER_FOLDER), after=True)))
    return world


CLEANING = tuple(
    Scenario(name, start, actors, first=_FOUR)
    for name, start, actors in (
        ("clean and writer", _four_commits, (_clean_versions, _first)),
        ("writer and clean", _four_commits, (_first, _clean_commits)),
        ("clean and sharing writer", _four_commits, (_clean_versions, _sharing(_first))),
        ("clean and writer that cleans", _four_commits, (_clean_commits, _cleaning(_first))),
        ("writers that clean", _four_commits, (_cleaning(_first), _cleaning(_in_rome))),
        ("clean and clean", _four_commits, (_clean_versions, _clean_versions)),
        ("clean and clean by another policy", _four_commits, (_clean_commits, _clean_versions)),
        ("clean and overwrite", _four_commits, (_clean_versions, _replacement)),
        ("clean and savepoint", _four_commits, (_clean_versions, _savepoint)),
        ("savepoint and clean", _four_commits, (_savepoint, _clean_versions)),
        (
            "deletion of a savepoint, the same savepoint and clean",
            _four_and_savepoint,
            (_delete_savepoint, _save, _clean_versions),
        ),
        ("clean and restore", _four_commits, (_clean_versions, _restore)),
        ("restore and clean", _four_commits, (_restore, _clean_commits)),
        ("clean and undo", _four_commits, (_clean_versions, _undo)),
        ("undo and clean", _four_commits, (_undo, _clean_commits)),
        ("clean and leased reader", _four_commits, (_clean_versions, _leased_read)),
        ("two cleans and leased reader", _four_commits, (_clean_commits, _clean_versions, _leased_read)),
        ("clean, undo and savepoint", _four_commits, (_clean_versions, _undo, _savepoint)),
        ("clean and writer after a decided clean", _decided_clean, (_clean_versions, _first)),
        ("undo and clean after a decided clean", _decided_clean, (_undo, _clean_versions)),
        ("savepoint and clean after a decided clean", _decided_clean, (_savepoint_newest, _clean_versions)),
    )
)


@cache
def _exported() -> World:
    """A table that is kept in other formats, too."""
    world = memory_world()
    world.create({"holdfast.export.formats": "delta"})
    world.write("insert", table_of(OLD.values()))
    return world


@cache
def _two_exported() -> World:
    world = _exported().copy()
    _second.act(world)
    return world


@cache
def _four_exported() -> World:
    world = _two_exported().copy()
    _third.act(world)
    _fourth.act(world)
    return world


@cache
def _unexported() -> World:
    """A writer died when its commit was visible, before it was exported."""
    world, counted = _exported().copy(), _exported().copy()
    recorder = RecordingStore(counted.store)
    _second.act(counted.on(recorder))
    with suppress(Crash):
        _second.act(world.on(CrashingStore(world.store, recorder.last(".commit"), after=True)))
    return world


_export = _refusable(lambda world: follow(world.open()))

EXPORTING = (
    Scenario("exported writers", _exported, (_first, _second)),
    Scenario("exported sharing writers", _exported, (_sharing(_first), _sharing(_in_rome))),
    Scenario("exported sharing writer and undo", _two_exported, (_sharing(_first), _undo), first=_TWO),
    Scenario("export and undo", _two_exported, (_export, _undo), first=_TWO),
    Scenario("export and undo of a commit that it lacks", _unexported, (_export, _undo), first=_TWO),
    Scenario("export and export", _unexported, (_export, _export), first=_TWO),
    Scenario("export of a commit and restore", _unexported, (_export, _restore), first=_TWO),
    Scenario("undo and undo of what is exported", _two_exported, (_undo, _undo), first=_TWO),
    Scenario("export and restore", _two_exported, (_export, _restore), first=_TWO),
    Scenario("exported writer and restore", _two_exported, (_in_rome, _restore), first=_TWO),
    Scenario("export and clean", _four_exported, (_export, _clean_versions), first=_FOUR),
    Scenario("exported writer and clean", _four_exported, (_first, _clean_versions), first=_FOUR),
    Scenario("undo and clean of what is exported", _four_exported, (_undo, _clean_versions), first=_FOUR),
)

_ARCHIVE = ArchiveSettings(clean=replace(_ONE_VERSION, automatic=False, keep_min=2, keep_max=3))


def _archiving(writer: Writer) -> Writer:
    """The same writer, archiving after its commit."""
    return Writer(lambda world: writer.act(world, replace(_SETTINGS, clean=_ARCHIVE.clean)), writer.effect)


_archive = _refusable(lambda world: archive_without_recovery(world.open(), _ARCHIVE))


def _reader(world: World) -> object:
    """Whoever reads finds the rows of the newest commit, and those of the second, archived or not."""
    second = load_timeline(_four_commits().store).completed_commits[1].time
    now = visible_rows(world.open())
    then = visible_rows(world.open(), as_of=second)
    assert now == _rows_after(4), f"I12: a reader sees {sorted(now)}"
    assert then == _rows_after(2), f"I12: a reader of the past sees {sorted(then)}"
    return now, then


def _rows_after(commits: int) -> frozenset[Row]:
    table: Rows = {}
    for effect in _FOUR[:commits]:
        table = effect(table)
    return frozenset(table.values())


@_refusable
def _leased_second(world: World) -> object:
    second = load_timeline(_four_commits().store).completed_commits[1].time
    with lease(world.open(), "reader", 3600, as_of=second) as held:
        rows = visible_rows(world.open(), as_of=held.instant)
        assert second in {commit.time for commit in load_timeline(world.store).completed_commits}
    assert rows == _rows_after(2), f"the lease did not hold: {sorted(rows)}"
    return held


@cache
def _decided_archive() -> World:
    """An archiver died when it was decided, before anything left the timeline."""
    world, counted = _four_commits().copy(), _four_commits().copy()
    recorder = RecordingStore(counted.store)
    _archive(counted.on(recorder))
    with suppress(Crash):
        _archive(world.on(CrashingStore(world.store, recorder.last(LEDGER_FOLDER), after=True)))
    return world


def _dying(world: World) -> World:
    """A writer died there over its files."""
    counted = world.copy()
    recorder = RecordingStore(counted.store)
    _first.act(counted.on(recorder))
    with suppress(Crash):
        _first.act(world.on(CrashingStore(world.store, recorder.last("upload"), after=True)))
    return world


@cache
def _four_and_dead() -> World:
    return _dying(_four_commits().copy())


@cache
def _rolled_back_and_two() -> World:
    """A rollback stands between the commits that are to be archived and those that stay."""
    world = _dying(_two_commits().copy())
    _roll_back(world)
    _third.act(world)
    _fourth.act(world)
    return world


@cache
def _four_undos() -> World:
    """More rollbacks than may gather, and few commits."""
    world = _two_commits().copy()
    for _ in range(4):
        _first.act(world)
        undo(world.open())
    return world


@cache
def _four_restores() -> World:
    """More restores than may gather, and few commits."""
    world = _two_commits().copy()
    for _ in range(4):
        _first.act(world)
        restore(world.open(), load_timeline(world.store).completed_commits[-2].time)
    return world


# Of a file group of its own: no newer version hides a file of it.
_in_vain = _add("never")


def _taken_back(take_back: Callable[[World, InstantTime], object]) -> tuple[World, str, bytes]:
    """A write was taken back that goes with the commits to be archived; a file of it as it was."""
    world = _clean().copy()
    before = _newest(world)
    _in_vain.act(world)
    path = next(path for path in world.store.paths("") if is_file_of(path, _newest(world)))
    content = world.store.read(path)
    take_back(world, before)
    for writer in (_second, _third, _fourth):
        writer.act(world)
    return world, path, content


@cache
def _undone() -> tuple[World, str, bytes]:
    return _taken_back(lambda world, _: undo(world.open()))


@cache
def _restored() -> tuple[World, str, bytes]:
    return _taken_back(lambda world, before: restore(world.open(), before))


def _finishing_late(start: Callable[[], tuple[World, str, bytes]]) -> Actor:
    def finish(world: World) -> object:
        """A task that slept while its write was taken back finishes a file, and finds that it is too late.

        What took the write back may have left the timeline by then. As long as the file is
        there no reader takes it for data.
        """
        _, path, content = start()
        world.store.create(path, content)
        seen = visible_rows(world.open())
        world.store.delete(path)
        assert seen == _rows_after(4), f"I12: a reader sees {sorted(seen)} beside a late file"
        return seen

    return finish


@cache
def _saved_and_two() -> World:
    """A savepointed commit, and three after it: the first two of the four go when somebody archives."""
    world = _clean().copy()
    _savepoint(world)
    for writer in (_second, _third, _fourth):
        writer.act(world)
    return world


@cache
def _saved_and_archived() -> World:
    world = _saved_and_two().copy()
    _archive(world)
    return world


@_refusable
def _restore_saved(world: World) -> object:
    (saved,) = _saved_and_two().open().ledger.read().savepoints
    return restore(world.open(), saved)


def _saved_reader(world: World) -> object:
    """Whoever reads finds the rows of the newest commit, and those of the savepoint, archived or not."""
    (saved,) = _saved_and_two().open().ledger.read().savepoints
    now, then = visible_rows(world.open()), visible_rows(world.open(), as_of=saved)
    assert now == _rows_after(4), f"I12: a reader sees {sorted(now)}"
    assert then == _rows_after(1), f"I12: a reader of the savepoint sees {sorted(then)}"
    return now, then


@_refusable
def _delete_saved(world: World) -> object:
    (saved,) = _saved_and_two().open().ledger.read().savepoints
    return delete_savepoint(world.open(), saved)


ARCHIVING = (
    *(
        Scenario(name, start, actors, first=_FOUR)
        for name, start, actors in (
            ("archive and restore to a savepoint", _saved_and_two, (_archive, _restore_saved)),
            ("restore to a savepoint and archive", _saved_and_two, (_restore_saved, _archive)),
            ("archive around a savepoint and reader", _saved_and_two, (_archive, _saved_reader)),
            ("archive and deletion of a savepoint", _saved_and_two, (_archive, _delete_saved)),
            ("two restores to an archived savepoint", _saved_and_archived, (_restore_saved, _restore_saved)),
            ("restore to an archived savepoint and writer", _saved_and_archived, (_restore_saved, _first)),
            (
                "restore to an archived savepoint and its deletion",
                _saved_and_archived,
                (_restore_saved, _delete_saved),
            ),
        )
    ),
    *(
        Scenario(name, _four_undos, actors, checkpoint_after=2, first=_FOUR[:2])
        for name, actors in (
            ("archive and archive of rollbacks alone", (_archive, _archive)),
            ("archive of rollbacks alone and undo", (_archive, _undo)),
            ("writer that archives rollbacks and rollback", (_archiving(_first), _roll_back)),
        )
    ),
    *(
        Scenario(name, start, actors, first=(_FOUR[0], _in_vain.effect, *_FOUR[1:]))
        for name, start, actors in (
            (
                "archive of a rollback and late task",
                lambda: _undone()[0],
                (_archive, _finishing_late(_undone)),
            ),
            (
                "archive of a restore and late task",
                lambda: _restored()[0],
                (_archive, _finishing_late(_restored)),
            ),
            ("archive and archive of a restore", lambda: _restored()[0], (_archive, _archive)),
        )
    ),
    *(
        Scenario(name, _four_restores, actors, checkpoint_after=2, first=_FOUR[:2])
        for name, actors in (
            ("archive and archive of restores alone", (_archive, _archive)),
            ("archive of restores alone and undo", (_archive, _undo)),
            ("archive of restores alone and restore", (_archive, _restore)),
            ("restore and archive of restores alone", (_restore, _archive)),
            ("writer that archives restores and rollback", (_archiving(_first), _roll_back)),
        )
    ),
    *(
        Scenario(name, start, actors, first=_FOUR)
        for name, start, actors in (
            ("archive and writer", _four_commits, (_archive, _first)),
            ("writer and archive", _four_commits, (_first, _archive)),
            ("archive and sharing writer", _four_commits, (_archive, _sharing(_first))),
            ("archive and writer that archives", _four_commits, (_archive, _archiving(_first))),
            ("archive and archive", _four_commits, (_archive, _archive)),
            ("archive and archive of a rollback", _rolled_back_and_two, (_archive, _archive)),
            ("archive and archive after a decided one", _decided_archive, (_archive, _archive)),
            ("archive and reader", _four_commits, (_archive, _reader)),
            ("archive and leased reader", _four_commits, (_archive, _leased_second)),
            ("archive and clean", _four_commits, (_archive, _clean_versions)),
            ("clean and archive", _four_commits, (_clean_commits, _archive)),
            ("archive and rollback", _four_and_dead, (_archive, _roll_back)),
            ("archive and undo", _four_commits, (_archive, _undo)),
            ("archive and restore", _four_commits, (_archive, _restore)),
            ("restore and archive", _four_commits, (_restore, _archive)),
            ("archive and savepoint", _four_commits, (_archive, _savepoint)),
            ("savepoint and archive", _four_commits, (_savepoint, _archive)),
            ("archive and writer after a decided one", _decided_archive, (_archive, _first)),
            ("savepoint and archive after a decided one", _decided_archive, (_savepoint, _archive)),
            ("archive, clean and savepoint", _four_commits, (_archive, _clean_versions, _savepoint)),
        )
    ),
    Scenario(
        "archive and writers, all of whom trim the ledger",
        _four_commits,
        (_archiving(_first), _archiving(_in_rome), _roll_back),
        checkpoint_after=1,
        first=_FOUR,
    ),
)


@cache
def _ingested() -> World:
    world = _clean().copy()
    _ingest(1.0).act(world)
    return world


_WITH_FILE = ((lambda _: dict(OLD)), _ingest(1.0).effect)
_ingesting = _sharing(_ingest(2.0))
_archiving_ingest = _sharing(_ingest(3.0), replace(_SHARED, clean=_ARCHIVE.clean))

INGESTING = (
    Scenario("two runs of a pipeline", _clean, (_ingest(2.0), _ingest(3.0))),
    Scenario("two sharing runs of a pipeline", _clean, (_ingesting, _sharing(_ingest(3.0)))),
    Scenario("a sharing run of a pipeline and one that is alone", _clean, (_ingesting, _ingest(3.0))),
    Scenario(
        "runs of a pipeline that trim", _clean, (_ingesting, _sharing(_ingest(3.0))), checkpoint_after=1
    ),
    Scenario("undo and run of a pipeline", _ingested, (_undo, _ingesting), first=_WITH_FILE),
    Scenario("restore and run of a pipeline", _ingested, (_restore, _ingesting), first=_WITH_FILE),
    Scenario("two runs of a pipeline and undo", _clean, (_ingesting, _sharing(_ingest(3.0)), _undo)),
    Scenario("run of a pipeline and archive", _four_commits, (_ingesting, _archive), first=_FOUR),
    Scenario("runs of a pipeline that archive", _four_commits, (_ingesting, _archiving_ingest), first=_FOUR),
)


def _verify(world: World) -> object:
    """Whoever verifies a sound table finds no damage, whatever the others are about."""
    report = verify(world.open())
    damage = [finding for finding in report.findings if finding.severity is Severity.DAMAGE]
    assert not damage, f"a sound table is called damaged: {damage}"
    return report


VERIFYING = tuple(
    Scenario(name, start, actors, first=_FOUR)
    for name, start, actors in (
        ("verify and writer", _four_commits, (_verify, _first)),
        ("verify and sharing writers", _four_commits, (_verify, _sharing(_first), _sharing(_in_rome))),
        ("verify and archive", _four_commits, (_verify, _archive)),
        ("verify and clean", _four_commits, (_verify, _clean_versions)),
        ("verify and undo", _four_commits, (_verify, _undo)),
        ("verify and restore", _four_commits, (_verify, _restore)),
        ("verify and rollback", _four_and_dead, (_verify, _roll_back)),
        ("verify and savepoint", _four_commits, (_verify, _savepoint)),
        ("verify, clean and archive", _four_commits, (_verify, _clean_versions, _archive)),
    )
)

_outside_rome = _sharing(_add("a"))

NAMING = (
    Scenario("sharing writer and a lease", _clean, (_outside_rome, _naming(_in_rome, _lease_newest))),
    Scenario(
        "sharing writer and a savepoint of what is newest",
        _clean,
        (_outside_rome, _naming(_in_rome, lambda world: create_savepoint(world.open()).instant)),
    ),
    Scenario("sharing writer and a read of the past", _clean, (_outside_rome, _naming(_in_rome, _newest))),
)


def _make(key: str, record_key: str) -> Writer:
    """A writer that makes the table, unless somebody has."""
    row = (key, "paris", 4.0)

    def act(world: World, settings: WriteSettings = _SETTINGS) -> Commit:
        return world.first_write(table_of([row]), record_key=record_key, settings=settings)

    return Writer(act, lambda table: table | {key: row})


_create = _refusable(lambda world: world.create() and CREATED)


def _dead_first_write() -> World:
    world = memory_world()
    world.die_after(_make("dead", "city").act, last="upload")
    return world


def _unshown_first_write() -> World:
    world = memory_world()
    world.die_after(_make("first", "id").act, last=LEDGER_FOLDER)
    return world


_FIRST = (lambda _: {"first": ("first", "paris", 4.0)},)

CREATING = (
    *(
        Scenario(name, start, actors, first=())
        for name, start, actors in (
            ("first writes", memory_world, (_make("a", "id"), _make("b", "id"))),
            ("first writes with different keys", memory_world, (_make("a", "id"), _make("b", "city"))),
            (
                "sharing first writes",
                memory_world,
                (_sharing(_make("a", "id")), _sharing(_make("b", "city"))),
            ),
            ("first write and create", memory_world, (_make("a", "city"), _create)),
            ("create and first write", memory_world, (_create, _make("a", "city"))),
            ("first writes after a dead one", _dead_first_write, (_make("a", "id"), _make("b", "city"))),
            ("create and first write after a dead one", _dead_first_write, (_create, _make("a", "id"))),
        )
    ),
    Scenario(
        "first write and create, known to live",
        memory_world,
        (_make("a", "city"), _create),
        Liveness.ALIVE,
        first=(),
    ),
    Scenario(
        "create and first write after an unshown one",
        _unshown_first_write,
        (_create, _make("a", "id")),
        first=_FIRST,
    ),
)


def _numbered(fare: float, settings: WriteSettings = _SETTINGS) -> Writer:
    """A writer of the seventh batch: all of them have the same number, and read something else of it."""
    row = ("batch", "paris", fare)
    seventh = replace(settings, application="nightly", batch_number=7)
    return Writer(
        lambda world: world.write("bulk_insert", table_of([row]), seventh),
        lambda table: table | {"batch": row},
    )


REPEATING = (
    Scenario("writers of one number", _clean, (_numbered(1.0), _numbered(2.0))),
    Scenario("sharing writers of one number", _clean, (_numbered(1.0, _SHARED), _numbered(2.0, _SHARED))),
    Scenario("writer of a number and undo", _clean, (_numbered(1.0), _undo)),
)


@cache
def _logging() -> World:
    """Every write appends log files, as long as these can say what it does."""
    world = replace(memory_world(), log_ratio_max=1000.0)
    world.create(table_type="MERGE_ON_READ")
    world.write("insert", table_of(OLD.values()))
    return world


@cache
def _logged() -> World:
    """With a log file already, so that another is one more."""
    world = _logging().copy()
    _log_both(world)
    return world


_log_both = _upsert(("old1", "paris", 15.0), ("old3", "rome", 15.0))
_log = _upsert(("old1", "paris", 10.0))
_other_log = _upsert(("old1", "paris", 20.0), ("old2", "paris", 20.0))
_rewrite = Writer(lambda world: _other_log.act(world, replace(_SHARED, logs_max=0)), _other_log.effect)
_LOGGED = ((lambda _: dict(OLD)), _log_both.effect)
_clean_logs = _cleaner(_ONE_VERSION)

LOGGING = (
    Scenario("upserts into log files of one file group", _logging, (_log, _other_log)),
    Scenario(
        "sharing upserts into log files of one file group", _logging, (_sharing(_log), _sharing(_other_log))
    ),
    Scenario(
        "sharing upserts into log files of two file groups", _logging, (_sharing(_log), _sharing(_in_rome))
    ),
    Scenario(
        "sharing upsert into log files, and one that rewrites",
        _logged,
        (_sharing(_log), _rewrite),
        first=_LOGGED,
    ),
    Scenario(
        "sharing upsert and delete into log files",
        _logged,
        (_sharing(_log), _sharing(_deletion)),
        first=_LOGGED,
    ),
    Scenario(
        "sharing upsert into log files and insert",
        _logged,
        (_sharing(_log), _sharing(_insert("i"))),
        first=_LOGGED,
    ),
    Scenario(
        "sharing upsert into log files and overwrite",
        _logged,
        (_sharing(_log), _sharing(_replacement)),
        first=_LOGGED,
    ),
    Scenario("upsert into log files and rollback", _logged, (_log, _roll_back), first=_LOGGED),
    Scenario("upsert into log files and undo", _logged, (_sharing(_log), _undo), first=_LOGGED),
    Scenario("rewrite of log files and clean", _logged, (_rewrite, _clean_logs), first=_LOGGED),
    Scenario("upsert into log files and savepoint", _logged, (_log, _savepoint), first=_LOGGED),
    Scenario("upsert into log files and restore", _logged, (_sharing(_log), _restore), first=_LOGGED),
    Scenario(
        "sharing upserts into log files with wrong clocks",
        _logged,
        (_sharing(_log), _sharing(_other_log)),
        clocks_wrong_by_ms=(DAY_MS, -DAY_MS),
        first=_LOGGED,
    ),
)

_ADDING_LOGS = replace(_SETTINGS, log_ratio_max=1000.0, logs_max=100)
_SHARED_ADDING = replace(_SHARED, log_ratio_max=1000.0, logs_max=100)


def _adding_logs(writer: Writer, settings: WriteSettings = _ADDING_LOGS) -> Writer:
    """The same writer, which adds log files as long as that can say it."""
    return Writer(lambda world: writer.act(world, settings), writer.effect)


def _with_base_files() -> World:
    world = memory_world()
    world.create(table_type="MERGE_ON_READ")
    world.write("insert", table_of(OLD.values()), _ADDING_LOGS)
    return world


_first_logs = _adding_logs(_upsert(("old1", "paris", 5.0), ("old3", "rome", 5.0)))


@cache
def _to_compact() -> World:
    world = _with_base_files()
    _first_logs.act(world)
    return world


@cache
def _with_plan() -> World:
    world = _to_compact().copy()
    schedule_compaction(world.open(), _ADDING_LOGS)
    return world


@cache
def _with_dead_compaction() -> World:
    world, counted = _with_plan().copy(), _with_plan().copy()
    recorder = RecordingStore(counted.store)
    _pack(counted.on(recorder))
    with suppress(Crash):
        _pack(world.on(CrashingStore(world.store, recorder.last("upload"), after=True)))
    return world


def _pack(world: World, settings: WriteSettings = _ADDING_LOGS) -> object:
    return compact(world.open(), settings, ArrowCompactor()) or "nothing to compact"


def _same(table: Rows) -> Rows:
    return dict(table)


_compaction = Writer(_pack, _same)
_shared_compaction = Writer(lambda world: _pack(world, _SHARED_ADDING), _same)
_shared_planning = _refusable(
    lambda world: schedule_compaction(world.open(), _SHARED_ADDING) or "nothing to compact"
)
_twice = Writer(lambda world: (_shared_planning(world), _pack(world, _SHARED_ADDING))[1], _same)
_logger = _adding_logs(_second)
_shared_logger = _adding_logs(_second, _SHARED_ADDING)


@_refusable
def _taking_away(world: World) -> object:
    planned = pending_compactions(world.store, load_timeline(world.store))
    return unschedule_compaction(world.open(), planned[0][0].time) if planned else "nothing planned"


@_refusable
def _leased_logs(world: World) -> object:
    """A reader of the commit with the first log files that holds a lease."""
    second = load_timeline(world.store).completed_commits[1].time
    with lease(world.open(), "reader", 3600, as_of=second) as held:
        rows = visible_rows(world.open(), as_of=held.instant)
    expected = frozenset(_first_logs.effect(dict(OLD)).values())
    assert rows == expected, f"the lease did not hold: {sorted(rows)}"
    return held


_compact_and_clean = Writer(lambda world: (_pack(world), _clean_versions(world))[0], _same)

COMPACTING = tuple(
    Scenario(name, start, actors, first=((lambda _: dict(OLD)), _first_logs.effect))
    for name, start, actors in (
        ("compaction and writer", _to_compact, (_compaction, _logger)),
        ("writer and compaction", _to_compact, (_logger, _compaction)),
        (
            "sharing compaction and sharing writer",
            _to_compact,
            (_shared_compaction, _shared_logger),
        ),
        (
            "sharing writer and sharing compaction",
            _to_compact,
            (_shared_logger, _shared_compaction),
        ),
        ("planning and sharing writer", _to_compact, (_shared_planning, _shared_logger)),
        ("sharing writer and planning", _to_compact, (_shared_logger, _shared_planning)),
        (
            "planning and then a compaction, and sharing writer",
            _to_compact,
            (_twice, _shared_logger),
        ),
        ("compaction of a plan and sharing writer", _with_plan, (_shared_compaction, _shared_logger)),
        ("compaction and compaction", _to_compact, (_compaction, _compaction)),
        ("compactions of a plan", _with_plan, (_compaction, _compaction)),
        ("compactions after a dead one", _with_dead_compaction, (_compaction, _compaction)),
        ("compaction after a dead one and rollback", _with_dead_compaction, (_compaction, _roll_back)),
        ("compaction and rollback", _with_plan, (_compaction, _roll_back)),
        ("compaction of a plan that is taken away", _with_plan, (_compaction, _taking_away)),
        ("compaction and clean", _to_compact, (_compaction, _clean_versions)),
        ("clean and compaction of a plan", _with_plan, (_clean_versions, _compaction)),
        ("compaction and undo", _to_compact, (_compaction, _undo)),
        ("undo and compaction", _to_compact, (_undo, _compaction)),
        ("compaction and restore", _to_compact, (_compaction, _restore)),
        ("restore and compaction of a plan", _with_plan, (_restore, _compaction)),
        ("compaction and savepoint", _to_compact, (_compaction, _savepoint_newest)),
        ("compaction and leased reader", _to_compact, (_compaction, _leased_logs)),
        ("compaction with a clean, and leased reader", _to_compact, (_compact_and_clean, _leased_logs)),
    )
)

SCENARIOS = (
    *NAMING, *ONE_WRITER, *MANY_WRITERS, *TAKING_BACK, *RESTORING,
    *CLEANING, *ARCHIVING, *INGESTING, *VERIFYING, *CREATING, *REPEATING, *LOGGING,
    *COMPACTING, *EXPORTING,
)  # fmt: skip
