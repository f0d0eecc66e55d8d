"""Leases: what a reader holds stays, whatever the retention says; what it no longer holds goes."""

import datetime as dt
import json
from dataclasses import dataclass, field, replace

import pytest

import holdfast
from harness.checker import check_at_rest, visible_rows, whole_ledger
from harness.cleaning import clean
from harness.faults import Crash, CrashingStore, InterruptedStore, RecordingStore, StoreWrapper
from harness.world import SimulatedClock, SimulatedHost, World, WrongClock, memory_world, rows
from holdfast.config.choices import CleanPolicy, ConcurrencyMode, FailedWritesPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Conflict, InvalidRequest, Refused, SnapshotExpired, TableDamaged, UnknownInstant
from holdfast.format.ledger_entries import EntryKind, decode_entry
from holdfast.host import Liveness
from holdfast.model.names import LEASE_FOLDER, LEDGER_FOLDER
from holdfast.model.reports import FindingKind, Severity
from holdfast.services import leases as leases_module
from holdfast.services.drop import drop, plan_drop
from holdfast.services.leases import instants_under_lease, lease, leases
from holdfast.services.restore.plan import plan_restore
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.undo import check_undo, undo
from holdfast.services.verify.verify import verify
from holdfast.storage.memory import MemoryStore
from holdfast.timeline.timeline import load_timeline

MINUTE_MS = 60_000
MINUTE = dt.timedelta(minutes=1)
DAY_MS = 24 * 60 * MINUTE_MS

_BY_HAND = CleanSettings(automatic=False)
WRITE = WriteSettings(clean=_BY_HAND)
SHARED = WriteSettings(
    clean=_BY_HAND,
    concurrency_mode=ConcurrencyMode.OPTIMISTIC,
    failed_writes_policy=FailedWritesPolicy.LAZY,
)
NEWEST_ONLY = CleanSettings(commits_retained=1)
POLICIES = (
    NEWEST_ONLY,
    CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1),
    CleanSettings(policy=CleanPolicy.KEEP_LATEST_BY_HOURS, hours_retained=1),
)


@dataclass
class TickingClock(SimulatedClock):
    """What repeats in the background runs when it is told to."""

    actions: list = field(default_factory=list)

    def every_ms(self, interval_ms, action, *, name):
        self.actions.append(action)
        clock = self

        class _Timer:
            def stop(self):
                clock.actions.remove(action)

        return _Timer()

    def tick(self):
        for action in list(self.actions):
            action()


def _update(world, fare):
    return world.write("upsert", rows("a", fare=fare), WRITE)


def _table(world, versions):
    world.create()
    world.write("insert", rows("a", "b"), WRITE)
    for number in range(1, versions):
        _update(world, float(number))
    return world


@pytest.fixture
def world():
    """Two partitions; the row `a` of one of them in four versions, 1 to 4 hours apart from now."""
    world = memory_world()
    _table(world, 4)
    world.clock.now += 4 * 60 * MINUTE_MS
    return world


def _fares(world, as_of=None):
    return {key: fare for key, _, fare in visible_rows(world.open(), as_of=as_of)}


def _entries(world, kind):
    entries = [decode_entry(world.store.read(path))[0] for path in world.store.paths(LEDGER_FOLDER)]
    return [entry for entry in entries if entry.kind is kind]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda settings: settings.policy.value)
def test_what_a_lease_holds_survives_every_policy_and_goes_when_it_ends(world, policy):
    second = world.commit_times()[1]

    with lease(world.open(), "report", MINUTE, as_of=second):
        for number in range(10, 10 + NEWEST_ONLY.commits_retained + 5):
            _update(world, float(number))
            clean(world.open(), policy)
            assert _fares(world, second) == {"a": 1.0, "b": 1.0}
    assert world.store.paths(LEASE_FOLDER) == []
    _update(world, 20.0)
    clean(world.open(), policy)

    with pytest.raises(SnapshotExpired):
        _fares(world, second)
    assert _fares(world) == {"a": 20.0, "b": 1.0}


def test_an_expired_lease_protects_nothing(world):
    second = world.commit_times()[1]

    with lease(world.open(), "report", MINUTE, as_of=second) as held:
        assert instants_under_lease(world.open()) == (second,)
        world.clock.now += 2 * MINUTE_MS
        assert held.is_expired
        assert instants_under_lease(world.open()) == ()
        assert [one.is_expired for one in leases(world.open())] == [True]
        clean(world.open(), NEWEST_ONLY)
        with pytest.raises(SnapshotExpired):
            _fares(world, second)


def test_a_lease_is_renewed_while_it_is_held():
    clock = TickingClock()
    world = _table(World(MemoryStore(clock), clock), 3)
    first = world.commit_times()[0]

    with lease(world.open(), "report", MINUTE, as_of=first) as held:
        for _ in range(10):
            clock.now += MINUTE_MS // 3
            clock.tick()
        assert not held.is_expired
        clean(world.open(), NEWEST_ONLY)
        assert _fares(world, first) == {"a": 1.0, "b": 1.0}
    assert clock.actions == []


def test_a_lease_that_was_not_renewed_in_time_does_not_come_back():
    """The process slept: others may have relied on its files being free."""
    clock = TickingClock()
    world = _table(World(MemoryStore(clock), clock), 3)

    with lease(world.open(), "report", MINUTE, as_of=world.commit_times()[0]) as held:
        clock.now += 2 * MINUTE_MS
        clock.tick()
        assert held.is_expired
        assert instants_under_lease(world.open()) == ()


def test_the_wrong_clock_of_a_reader_makes_no_difference(world):
    second = world.commit_times()[1]
    for wrong_by_ms in (DAY_MS, -DAY_MS):
        wrong = replace(world, clock=WrongClock(world.clock, wrong_by_ms))
        with lease(wrong.open(), "report", MINUTE, as_of=second):
            assert instants_under_lease(world.open()) == (second,)
            assert instants_under_lease(wrong.open()) == (second,)
            world.clock.now += 2 * MINUTE_MS
            assert instants_under_lease(wrong.open()) == ()


def test_a_lease_between_planning_and_the_decision_of_a_clean_is_honoured(world):
    second, granted = world.commit_times()[1], []

    def read_on():
        holding = lease(world.open(), "report", MINUTE, as_of=second)
        granted.append((holding, holding.__enter__()))

    clean(world.on(InterruptedStore(world.store, LEDGER_FOLDER, read_on)).open(), NEWEST_ONLY)

    [(holding, held)] = granted
    assert held.instant == second
    assert _fares(world, second) == {"a": 1.0, "b": 1.0}
    holding.__exit__(None, None, None)
    _update(world, 20.0)
    clean(world.open(), NEWEST_ONLY)
    with pytest.raises(SnapshotExpired):
        _fares(world, second)


def test_a_snapshot_that_a_decided_clean_removes_cannot_be_leased_and_the_newest_can(world):
    second, told = world.commit_times()[1], []

    def ask():
        with pytest.raises(SnapshotExpired, match="a clean is removing") as refusal:
            lease(world.open(), "report", MINUTE, as_of=second).__enter__()
        told.append(refusal.value.facts["clean"])
        with lease(world.open(), "report", MINUTE) as held:
            assert held.instant == world.commit_times()[-1]

    report = clean(world.on(InterruptedStore(world.store, ".hoodie/2", ask)).open(), NEWEST_ONLY)

    assert told == [report.instant]
    assert world.store.paths(LEASE_FOLDER) == []


def test_a_snapshot_that_was_cleaned_cannot_be_leased(world):
    first = world.commit_times()[0]
    report = clean(world.open(), NEWEST_ONLY)

    with pytest.raises(SnapshotExpired, match=report.instant):
        lease(world.open(), "report", MINUTE, as_of=first).__enter__()
    assert world.store.paths(LEASE_FOLDER) == []


def test_by_default_the_newest_commit_is_held_even_if_it_changes_meanwhile(world):
    """What was the newest commit is cleaned before the lease's file is there."""

    def overtake():
        _update(world, 30.0)
        _update(world, 40.0)
        clean(world.open(), NEWEST_ONLY)

    slow = world.on(InterruptedStore(world.store, LEASE_FOLDER, overtake))
    with lease(slow.open(), "report", MINUTE) as held:
        assert held.instant == world.commit_times()[-1]
        assert _fares(world, held.instant) == {"a": 40.0, "b": 1.0}


def test_a_lease_that_is_taken_while_writes_overtake_each_other_holds_what_none_of_them_changes(world):
    """The newest commit is younger than a write that is not decided, and would change with it."""
    planned = []
    world = replace(world, host=SimulatedHost(others=Liveness.ALIVE))

    def overtake():
        world.write("upsert", rows("b2", city="oslo"), SHARED)
        holding = lease(world.open(), "report", MINUTE)
        held = holding.__enter__()
        planned.append((holding, held, _fares(world, held.instant)))

    before = world.commit_times()[-1]
    slow = world.on(InterruptedStore(world.store, "city=paris", overtake))
    older = slow.write("upsert", rows("a", fare=50.0), SHARED)
    [(holding, held, fares)] = planned
    assert held.instant == before < older.instant < world.commit_times()[-1]
    _update(world, 60.0)
    clean(world.open(), NEWEST_ONLY)

    assert _fares(world, held.instant) == fares
    holding.__exit__(None, None, None)


def test_undo_of_a_leased_commit_is_refused_and_the_owner_named(world):
    newest = world.commit_times()[-1]

    with lease(world.open(), "nightly report", MINUTE):
        for act in (undo, lambda table: check_undo(table, newest)):
            with pytest.raises(Refused, match="nightly report"):
                act(world.open())
    undo(world.open())

    assert newest not in world.commit_times()
    assert world.store.paths(LEASE_FOLDER) == []


def test_a_restore_before_a_leased_commit_is_refused_and_one_to_it_is_not(world):
    first, second, third, _ = world.commit_times()

    with lease(world.open(), "nightly report", MINUTE, as_of=third):
        for act in (restore, plan_restore):
            with pytest.raises(Refused, match="nightly report"):
                act(world.open(), second)
        restore(world.open(), third)
        assert _fares(world, third) == {"a": 2.0, "b": 1.0}
    restore(world.open(), first)
    check_at_rest(world.open())


@pytest.mark.parametrize(
    "act", [undo, lambda table: restore(table, load_timeline(table.store).completed_commits[0])]
)
def test_a_lease_that_comes_after_the_look_for_leases_stops_what_takes_its_commit_back(world, act):
    """Whoever takes commits back is overtaken by the lease in the ledger, and looks again."""
    granted = []

    def read_on():
        holding = lease(world.open(), "report", MINUTE)
        granted.append((holding, holding.__enter__()))

    before = _fares(world)
    with pytest.raises(Refused, match="report"):
        act(world.on(InterruptedStore(world.store, LEDGER_FOLDER, read_on)).open())

    [(holding, held)] = granted
    assert _fares(world, held.instant) == before == _fares(world)
    assert [entry.instant for entry in _entries(world, EntryKind.LEASE)] == [held.instant]
    holding.__exit__(None, None, None)
    assert world.store.paths(LEASE_FOLDER) == []


def test_a_commit_that_is_taken_back_before_the_lease_is_there_cannot_be_held(world):
    newest = world.commit_times()[-1]

    slow = world.on(InterruptedStore(world.store, LEASE_FOLDER, lambda: undo(world.open())))
    with pytest.raises(UnknownInstant, match="taken back"):
        lease(slow.open(), "report", MINUTE, as_of=newest).__enter__()
    assert world.store.paths(LEASE_FOLDER) == []


def test_leases_cost_no_ledger_entry_unless_a_commit_is_being_taken_back(world):
    slot = whole_ledger(world.store).slot

    with lease(world.open(), "report", MINUTE):
        assert whole_ledger(world.store).slot == slot


def test_what_dead_processes_left_is_removed_by_the_next_lease(world):
    recorder = RecordingStore(world.copy().store)
    undo(world.copy().on(recorder).open())
    put_up = next(n for n, change in enumerate(recorder.changes, 1) if LEASE_FOLDER in change)
    with pytest.raises(Crash):
        undo(world.on(CrashingStore(world.store, put_up, after=True)).open())
    dead = lease(world.open(), "dead", MINUTE)
    dead.__enter__()
    world.clock.now += 2 * MINUTE_MS
    assert [one.owner for one in leases(world.open())] == ["dead"]

    with lease(world.open(), "alive", MINUTE):
        assert [one.owner for one in leases(world.open())] == ["alive"]
        assert len(world.store.paths(LEASE_FOLDER)) == 1
    undo(world.open())
    check_at_rest(world.open())


@pytest.mark.parametrize("is_json", [False, True])
def test_a_lease_that_cannot_be_read_stops_the_clean_instead_of_being_passed_over(world, is_json):
    with lease(world.open(), "report", 60):
        [path] = world.store.paths(LEASE_FOLDER)
        content = world.store.read(path).replace(world.commit_times()[-1].encode(), b"2026111613413m060")
    world.store.put(f"{LEASE_FOLDER}/x.lease", content if is_json else b"\xff{")

    with pytest.raises(TableDamaged, match=r"x\.lease"):
        clean(world.open(), NEWEST_ONLY)
    assert _fares(world, world.commit_times()[0]) == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize(
    ("owner", "ttl", "text"),
    [
        ("", 60, "needs an owner"),
        ("report", 0, "a second at least"),
        ("report", dt.timedelta(seconds=-5), "a second at least"),
        ("report", "an hour", "not a length of time"),
        ("report", float("nan"), "not a length of time"),
        ("report", float("inf"), "not a length of time"),
    ],
)
def test_a_lease_without_an_owner_or_a_sensible_length_is_refused(world, owner, ttl, text):
    with pytest.raises(InvalidRequest, match=text):
        lease(world.open(), owner, ttl).__enter__()


def test_a_table_without_commits_has_nothing_to_hold():
    world = memory_world()
    world.create()

    with pytest.raises(Refused, match="no commit to hold"):
        lease(world.open(), "report", MINUTE).__enter__()


def test_a_lease_ends_with_an_error_of_the_reader_too(world):
    with pytest.raises(ZeroDivisionError), lease(world.open(), "report", 60):
        raise ZeroDivisionError
    assert leases(world.open()) == []


def test_a_table_on_disk_is_held_through_its_public_verbs(tmp_path):
    table = holdfast.create_table(str(tmp_path), name="t", record_key="id", partition_by="city")
    first = table.insert(rows("a"))
    without = {"hoodie.clean.commits.retained": "1"}

    with table.lease("report", ttl=30, as_of=first) as held:
        for fare in (5.0, 6.0, 7.0):
            table.upsert(rows("a", fare=fare), options=without)
        assert [(one.owner, one.instant) for one in table.leases()] == [("report", first.instant)]
        assert table.to_arrow(as_of=held.instant)["fare"].to_pylist() == [1.0]
    assert table.leases() == []
    table.upsert(rows("a", fare=8.0), options=without)
    with pytest.raises(SnapshotExpired):
        table.to_arrow(as_of=first)


class _WatchedStore(StoreWrapper):
    """Lets something happen right before a file whose path ends so is first looked at."""

    def __init__(self, inner, verb, suffix, meanwhile):
        super().__init__(inner)
        self._wanted, self._suffix, self._meanwhile = verb, suffix, meanwhile

    def _look(self, verb, path, act):
        if self._meanwhile is not None and verb == self._wanted and path.endswith(self._suffix):
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return act()


def test_a_reader_whose_files_a_clean_removes_while_it_reads_is_told_which(world):
    second, reports = world.commit_times()[1], []
    watched = _WatchedStore(
        world.store, "read", ".parquet", lambda: reports.append(clean(world.open(), NEWEST_ONLY))
    )

    with pytest.raises(SnapshotExpired, match="while it was read") as told:
        _fares(world.on(watched), second)
    assert told.value.facts["clean"] == reports[0].instant
    assert "lease" in told.value.hint


def test_a_reader_whose_commit_is_taken_back_while_it_reads_may_read_again(world):
    watched = _WatchedStore(world.store, "read", ".parquet", lambda: undo(world.open()))

    with pytest.raises(Conflict, match="taken back while its rows were read"):
        _fares(world.on(watched))
    assert _fares(world) == {"a": 2.0, "b": 1.0}


def test_a_file_whose_absence_nothing_explains_is_damage(world):
    newest = world.commit_times()[-1]
    [path] = [path for path in world.store.paths("") if path.endswith(f"_{newest}.parquet")]
    watched = _WatchedStore(world.store, "read", ".parquet", lambda: world.store.delete(path))

    with pytest.raises(TableDamaged, match="missing"):
        _fares(world.on(watched))


def test_a_reader_of_the_newest_rows_looks_again_if_they_are_cleaned_before_it_has_their_files(world):
    def overtake():
        _update(world, 30.0)
        _update(world, 40.0)
        clean(world.open(), NEWEST_ONLY)

    watched = _WatchedStore(world.store, "list", "", overtake)
    original = watched._look

    def after_the_timeline(verb, path, act):
        return act() if path == ".hoodie" else original(verb, path, act)

    watched._look = after_the_timeline

    assert _fares(world.on(watched)) == {"a": 40.0, "b": 1.0}


def test_the_clean_that_removed_a_snapshot_is_named_and_not_a_later_one(world):
    first = world.commit_times()[0]
    guilty = clean(world.open(), NEWEST_ONLY)
    _update(world, 30.0)
    _update(world, 40.0)
    later = clean(world.open(), NEWEST_ONLY)

    with pytest.raises(SnapshotExpired) as told:
        _fares(world, first)
    assert later.instant > guilty.instant == told.value.facts["clean"]


def test_a_snapshot_that_a_clean_has_removed_in_part_and_died_has_expired(world):
    first = world.commit_times()[0]
    recorder = RecordingStore(world.copy().store)
    clean(world.copy().on(recorder).open(), NEWEST_ONLY)
    with pytest.raises(Crash):
        clean(world.on(CrashingStore(world.store, recorder.last(".parquet"), after=True)).open(), NEWEST_ONLY)

    with pytest.raises(SnapshotExpired, match="removed by a clean"):
        _fares(world, first)


class CoarseStore(StoreWrapper):
    """Tells the time of a file to the second, as object stores do."""

    def stat(self, path):
        found = super().stat(path)
        return None if found is None else _to_the_second(found)

    def folder(self, path, *, after=""):
        found = super().folder(path, after=after)
        return replace(found, files=tuple(map(_to_the_second, found.files)))


def _to_the_second(file):
    return replace(file, modified_ms=file.modified_ms // 1000 * 1000)


def held_to_the_end(world):
    """Whether others keep what is held as long as its holder relies on it, whenever in a second it began."""
    second = world.commit_times()[1]
    kept = []
    for _ in range(5):
        world.clock.now += 210
        coarse = world.on(CoarseStore(world.store))
        with lease(coarse.open(), "report", 1.5, as_of=second) as held:
            world.clock.now += 1400
            assert not held.is_expired
            kept.append(instants_under_lease(coarse.open()) == (second,))
    return all(kept)


def test_a_lease_is_not_over_for_others_before_it_is_for_its_holder(world):
    assert held_to_the_end(world)


def test_leases_without_grace_are_found(world, monkeypatch):
    monkeypatch.setattr(leases_module, "_GRACE_MS", 0)

    assert not held_to_the_end(world)


# What was changed in a lease's file, by a disk or by hand.


def _lease_file(world):
    (path,) = world.store.paths(LEASE_FOLDER)
    return path


def _with_other_pins(content):
    """One digit of the commit that it holds, which leaves a lease that reads as one."""
    at = content.index(b'"pins":["') + len(b'"pins":["') + 3
    return content[:at] + (b"9" if content[at : at + 1] != b"9" else b"8") + content[at + 1 :]


def test_a_lease_in_which_a_digit_was_changed_holds_back_the_clean_and_is_named(world):
    second = world.commit_times()[1]
    with lease(world.open(), "report", MINUTE, as_of=second):
        path = _lease_file(world)
        world.store.put(path, _with_other_pins(world.store.read(path)))

        with pytest.raises(
            TableDamaged, match=r"lease cannot be read.*digest.*delete it if its reader is gone"
        ):
            clean(world.open(), NEWEST_ONLY)
        with pytest.raises(TableDamaged, match="lease cannot be read"):
            undo(world.open())
        assert _fares(world, second) == {"a": 1.0, "b": 1.0}
        (finding,) = [f for f in verify(world.open()).findings if f.path == path]
        assert (finding.kind, finding.severity) == (FindingKind.TORN, Severity.WARNING)
        assert "delete it if its reader is gone" in finding.remedy

    clean(world.open(), NEWEST_ONLY)
    assert verify(world.open()).is_clean


def test_a_reader_that_lives_writes_its_damaged_lease_anew():
    clock = TickingClock()
    world = _table(World(MemoryStore(clock), clock), 3)
    with lease(world.open(), "report", MINUTE, as_of=world.commit_times()[0]):
        path = _lease_file(world)
        whole = world.store.read(path)
        world.store.put(path, _with_other_pins(whole))

        clock.tick()

        assert world.store.read(path) == whole
        assert instants_under_lease(world.open()) == (world.commit_times()[0],)


def test_a_lease_that_holds_what_another_does_is_damaged(world):
    """Each says its own name: the commit that the one held would be held by none."""
    first, second = world.commit_times()[:2]
    with (
        lease(world.open(), "one", MINUTE, as_of=first),
        lease(world.open(), "other", MINUTE, as_of=second),
    ):
        one, other = world.store.paths(LEASE_FOLDER)
        world.store.put(one, world.store.read(other))

        with pytest.raises(TableDamaged, match="lease cannot be read"):
            instants_under_lease(world.open())


def test_a_damaged_lease_is_in_no_other_readers_way(world):
    with lease(world.open(), "one", MINUTE):
        world.store.put(_lease_file(world), b"{")

        with lease(world.open(), "other", MINUTE) as other:
            assert other.instant == world.commit_times()[-1]


def test_a_lease_of_an_earlier_release_without_a_digest_still_holds(world):
    second = world.commit_times()[1]
    with lease(world.open(), "report", MINUTE, as_of=second):
        path = _lease_file(world)
        facts = json.loads(world.store.read(path))
        del facts["digest"]
        world.store.put(path, json.dumps(facts).encode())

        clean(world.open(), NEWEST_ONLY)

        assert _fares(world, second) == {"a": 1.0, "b": 1.0}
        assert verify(world.open()).is_clean


def test_a_table_with_a_damaged_lease_can_be_dropped_by_force(world):
    with lease(world.open(), "report", MINUTE):
        path = _lease_file(world)
        world.store.put(path, b"{")

        assert plan_drop(world.open()).leases == (f"{path}, which cannot be read",)
        with pytest.raises(TableDamaged, match="lease cannot be read"):
            drop(world.open())
        drop(world.open(), force=True)

    assert world.store.paths("") == []
