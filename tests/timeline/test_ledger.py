"""The ledger: one order that everybody agrees on, and one outcome per instant."""

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.faults import FailingStore, StoreWrapper
from harness.sleepers import wake_while_entries_are_deleted
from harness.world import SimulatedClock, SimulatedHost, memory_world
from holdfast.errors import Conflict, OutcomeUnknown, StorageRefused, StorageUnavailable, TableDamaged
from holdfast.format.ledger_entries import EntryKind
from holdfast.model import instant
from holdfast.model.instant import Action
from holdfast.model.names import CHECKPOINT_FOLDER, LEDGER_FLOOR, LEDGER_FOLDER
from holdfast.storage.memory import MemoryStore
from holdfast.timeline.ledger import Decision, Ledger

OWNER = SimulatedHost().owner("token")


def time_at(number):
    return instant.time_at(number, dt.UTC)


def decision(kind, number):
    time = time_at(number)
    rollback = time_at(number + 1_000_000) if kind is EntryKind.ABORT else None
    return Decision(kind=kind, instant=time, action=Action.COMMIT, owner=OWNER, rollback=rollback)


def test_what_one_process_appends_another_reads():
    store, clock = MemoryStore(), SimulatedClock()
    writer, reader = Ledger(store, clock), Ledger(store, clock)

    writer.append(lambda _: decision(EntryKind.BEGIN, 1))

    assert set(reader.read().begun) == {time_at(1)}
    writer.append(lambda _: decision(EntryKind.COMMIT, 1))
    state = reader.read()
    assert (set(state.begun), set(state.committed)) == (set(), {time_at(1)})


_OUTCOMES = (EntryKind.BEGIN, EntryKind.COMMIT, EntryKind.ABORT)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(_OUTCOMES), st.integers(1, 4)), max_size=12))
def test_the_first_outcome_of_an_instant_is_its_only_one(history):
    ledger = Ledger(MemoryStore(), SimulatedClock())
    expected = {}
    for kind, number in history:
        ledger.append(lambda _, kind=kind, number=number: decision(kind, number))
        if kind is not EntryKind.BEGIN:
            expected.setdefault(number, kind)

    state = ledger.read()

    assert {time_at(n) for n, kind in expected.items() if kind is EntryKind.COMMIT} == set(state.committed)
    assert {time_at(n) for n, kind in expected.items() if kind is EntryKind.ABORT} == set(state.aborted)


def test_a_lost_slot_makes_the_decision_be_made_again():
    store, clock = MemoryStore(), SimulatedClock()
    seen = []

    class Rival(StoreWrapper):
        def create(self, path, content):
            if len(seen) == 1:
                Ledger(self.inner, clock).append(lambda _: decision(EntryKind.BEGIN, 1))
            return self.inner.create(path, content)

    def decide(state):
        seen.append(state.slot)
        return decision(EntryKind.BEGIN, 2)

    state = Ledger(Rival(store), clock).append(decide)

    assert seen == [0, 1]
    assert set(state.begun) == {time_at(1), time_at(2)}


def test_an_error_after_which_the_entry_is_there_counts_as_success():
    store = MemoryStore()

    Ledger(FailingStore(store, 1, applied=True, persistent=False), SimulatedClock()).append(
        lambda _: decision(EntryKind.BEGIN, 1)
    )

    assert len(store.paths(LEDGER_FOLDER)) == 1


def test_an_outcome_that_cannot_be_found_out_is_unknown():
    ledger = Ledger(FailingStore(MemoryStore(), 1, applied=False, persistent=True), SimulatedClock())

    with pytest.raises(OutcomeUnknown, match="nothing was deleted"):
        ledger.append(lambda _: decision(EntryKind.BEGIN, 1))


@pytest.mark.parametrize(("doubtful", "kind"), [(0, StorageRefused), (1, OutcomeUnknown)])
def test_what_storage_refused_each_time_was_not_decided(doubtful, kind):
    """After one failure that tells nothing, later refusals do not tell either."""
    failures = [StorageUnavailable("lost")] * doubtful + [StorageRefused("full")] * 3

    class Refusing(StoreWrapper):
        def create(self, path, content):
            raise failures.pop(0)

    with pytest.raises(kind) as raised:
        Ledger(Refusing(MemoryStore()), SimulatedClock()).append(lambda _: decision(EntryKind.BEGIN, 1))
    assert type(raised.value) is kind


def test_a_checkpoint_saves_reading_what_came_before_it():
    world = replace(memory_world(), checkpoint_after=40)
    world.create()
    for number in range(21):
        world.insert(f"k{number}", city="paris")
    assert len(world.store.paths(CHECKPOINT_FOLDER)) == 1

    reads = []

    class Counting(StoreWrapper):
        def read(self, path):
            reads.append(path)
            return self.inner.read(path)

    state = Ledger(Counting(world.store), world.clock).read()

    assert len(reads) < state.slot / 2
    assert state.slot == len(world.store.paths(LEDGER_FOLDER))
    assert state.newest == world.open().ledger.read().newest


def _write(ledger, number):
    """A write from its BEGIN to its COMMIT; a checkpoint after it, if one is due."""
    ledger.append(lambda _: decision(EntryKind.BEGIN, number))
    ledger.checkpoint_if_due(ledger.append(lambda _: decision(EntryKind.COMMIT, number)), shown={})


def _slots(store):
    return [int(path.rpartition("/")[2]) for path in store.paths(LEDGER_FOLDER)]


def test_the_ledger_does_not_grow_for_ever():
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=10)

    for number in range(100):
        _write(ledger, number)

    assert len(_slots(store)) <= 2 * 2 * 5
    assert len(store.paths(CHECKPOINT_FOLDER)) == 2
    state = Ledger(store, SimulatedClock()).read()
    assert (state.slot, state.newest) == (200, time_at(99))


def test_entries_of_any_kind_make_a_checkpoint_due():
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=10)

    for number in range(100):
        ledger.append(lambda _, number=number: decision(EntryKind.BEGIN, number))
        ledger.checkpoint_if_due(
            ledger.append(lambda _, number=number: decision(EntryKind.ABORT, number)), shown={}
        )

    assert len(_slots(store)) <= 2 * 10
    assert len(Ledger(store, SimulatedClock()).read().aborted) == 100


def _abort(ledger, number, *, settled):
    """A write that is aborted; a checkpoint after it leaves out those that are said to be settled."""
    ledger.append(lambda _: decision(EntryKind.BEGIN, number))
    state = ledger.append(lambda _: decision(EntryKind.ABORT, number))
    ledger.checkpoint_if_due(state, shown={}, settled=settled)


def test_what_was_aborted_long_ago_is_kept_where_nobody_has_to_read_it():
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=10)
    sizes = []

    for number in range(100):
        _abort(ledger, number, settled={time_at(older) for older in range(number - 5)})
        sizes += [len(store.read(path)) for path in store.paths(CHECKPOINT_FOLDER)[-1:]]

    fresh = Ledger(store, SimulatedClock())
    assert max(sizes) <= 2 * min(sizes)
    assert len(fresh.read().aborted) <= 15
    assert fresh.read_with_older_aborts().aborted.keys() == {time_at(number) for number in range(100)}


def test_two_that_leave_out_different_aborts_at_once_lose_none():
    store = MemoryStore()
    ledgers = [Ledger(store, SimulatedClock(), checkpoint_after=4) for _ in range(2)]
    for number in (1, 2):
        ledgers[0].append(lambda _, number=number: decision(EntryKind.BEGIN, number))
        ledgers[0].append(lambda _, number=number: decision(EntryKind.ABORT, number))
    states = [ledger.read() for ledger in ledgers]

    ledgers[0]._keep_aborts(states[0], {time_at(1)})
    ledgers[1].checkpoint_if_due(states[1], shown={}, settled={time_at(1), time_at(2)})

    fresh = Ledger(store, SimulatedClock())
    assert fresh.read().aborted.keys() == {time_at(2)}
    assert fresh.read_with_older_aborts().aborted.keys() == {time_at(1), time_at(2)}


def test_a_commit_that_fills_a_hole_is_fenced_if_its_write_was_aborted_long_ago():
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=6)
    ledger.append(lambda _: decision(EntryKind.BEGIN, 1))
    outcomes = []

    class Sleeping(StoreWrapper):
        def create(self, path, content):
            if len(outcomes) == 1 and path.startswith(LEDGER_FOLDER):
                ledger.append(lambda _: decision(EntryKind.ABORT, 1))
                for number in range(2, 30):
                    _abort(ledger, number, settled={time_at(1)})
            return self.inner.create(path, content)

    def decide(state):
        outcomes.append(time_at(1) in state.begun)
        return decision(EntryKind.COMMIT, 1) if outcomes[-1] else None

    state = Ledger(Sleeping(store), SimulatedClock()).append(decide)

    assert outcomes == [True, False]
    assert time_at(1) not in {*state.committed, *state.aborted}


def test_whoever_slept_while_the_ledger_was_trimmed_reads_it_to_its_end():
    store = MemoryStore()
    sleeper = Ledger(store, SimulatedClock())
    _write(sleeper, 1)
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=6)
    for number in range(2, 30):
        _write(ledger, number)
    assert min(_slots(store)) > 3

    assert sleeper.read().slot == ledger.read().slot == 58
    sleeper.append(lambda _: decision(EntryKind.BEGIN, 99))
    assert time_at(99) in ledger.read().begun


def test_whoever_wakes_while_entries_are_deleted_does_not_take_a_hole_for_the_end():
    wake_while_entries_are_deleted()


def test_a_decision_that_fills_a_hole_is_made_anew_at_the_end():
    """The process sleeps between its look at the ledger and its entry, and wakes when all is trimmed."""
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=6)
    _write(ledger, 1)
    seen = []

    class Sleeping(StoreWrapper):
        def create(self, path, content):
            if len(seen) == 1 and path.startswith(LEDGER_FOLDER):
                for number in range(2, 30):
                    _write(ledger, number)
            return self.inner.create(path, content)

    def decide(state):
        seen.append(state.slot)
        return decision(EntryKind.BEGIN, 99)

    state = Ledger(Sleeping(store), SimulatedClock()).append(decide)

    assert seen == [2, 58]
    assert state.slot == 59
    assert Ledger(store, SimulatedClock()).read().begun.keys() == {time_at(99)}
    assert 3 not in _slots(store)


def test_a_commit_that_fills_a_hole_is_fenced_if_its_write_was_aborted():
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=6)
    ledger.append(lambda _: decision(EntryKind.BEGIN, 1))
    outcomes = []

    class Sleeping(StoreWrapper):
        def create(self, path, content):
            if len(outcomes) == 1 and path.startswith(LEDGER_FOLDER):
                ledger.append(lambda _: decision(EntryKind.ABORT, 1))
                for number in range(2, 30):
                    _write(ledger, number)
            return self.inner.create(path, content)

    def decide(state):
        outcomes.append(time_at(1) in state.aborted)
        return None if outcomes[-1] else decision(EntryKind.COMMIT, 1)

    state = Ledger(Sleeping(store), SimulatedClock()).append(decide)

    assert outcomes == [False, True]
    assert time_at(1) not in state.committed


def test_a_commit_that_was_trimmed_before_its_writer_woke_stands():
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=6)
    ledger.append(lambda _: decision(EntryKind.BEGIN, 1))
    asked = []

    class Sleeping(StoreWrapper):
        def create(self, path, content):
            created = self.inner.create(path, content)
            for number in range(2, 30):
                _write(ledger, number)
            return created

    def decide(state):
        asked.append(state.slot)
        return decision(EntryKind.COMMIT, 1)

    state = Ledger(Sleeping(store), SimulatedClock()).append(decide)

    assert asked == [1]
    assert time_at(1) in state.committed
    assert 2 not in _slots(store)


def test_nothing_is_trimmed_that_an_undecided_write_is_validated_against():
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=6)
    _write(ledger, 1)
    ledger.append(lambda _: decision(EntryKind.BEGIN, 2))

    for number in range(3, 40):
        _write(ledger, number)

    entries = [entry for entry, _ in ledger.between(3, ledger.read().slot)]
    assert [entry.slot for entry in entries] == list(range(4, 78))


def test_a_savepoint_keeps_its_entry():
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=6)
    _write(ledger, 1)
    saved = replace(decision(EntryKind.SAVEPOINT, 1), payload=b"files")
    slot = ledger.append(lambda _: saved).slot

    for number in range(2, 40):
        _write(ledger, number)

    assert ledger.payload(slot) == b"files"
    assert min(set(_slots(store)) - {slot}) > slot


def test_what_was_trimmed_is_not_passed_over_in_silence():
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=6)
    for number in range(1, 40):
        _write(ledger, number)

    with pytest.raises(Conflict, match="trimmed"):
        list(ledger.between(2, ledger.read().slot))


def test_a_floor_above_the_ledgers_end_is_damage_and_nobody_waits_for_it():
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=6)
    for number in range(1, 20):
        _write(ledger, number)
    store.put(LEDGER_FLOOR, b"999999")

    with pytest.raises(TableDamaged, match="below its floor"):
        Ledger(store, SimulatedClock()).read()


def test_the_floor_never_sinks():
    """A process that fell asleep before it raised the floor finds it higher when it wakes."""
    store = MemoryStore()
    ledger = Ledger(store, SimulatedClock(), checkpoint_after=6)
    floors = []

    class Sleeping(StoreWrapper):
        def replace(self, path, content, version):
            if path == LEDGER_FLOOR and not floors:
                floors.append(0)
                for number in range(100, 130):
                    _write(ledger, number)
                floors[0] = int(store.read(LEDGER_FLOOR))
            return self.inner.replace(path, content, version)

    late = Ledger(Sleeping(store), SimulatedClock(), checkpoint_after=6)
    for number in range(1, 20):
        _write(late, number)

    assert floors[0] > 30
    assert int(store.read(LEDGER_FLOOR)) >= floors[0]
