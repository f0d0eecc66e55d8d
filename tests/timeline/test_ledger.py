"""The ledger: one order that everybody agrees on, and one outcome per instant."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.faults import FailingStore, StoreWrapper
from harness.world import SimulatedClock, SimulatedHost, memory_world
from holdfast.errors import OutcomeUnknown
from holdfast.format.ledger_entries import EntryKind
from holdfast.model.instant import Action, time_at
from holdfast.model.names import CHECKPOINT_FOLDER, LEDGER_FOLDER
from holdfast.storage.memory import MemoryStore
from holdfast.timeline.ledger import Decision, Ledger

OWNER = SimulatedHost().owner("token")


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


def test_a_checkpoint_saves_reading_what_came_before_it():
    world = replace(memory_world(), checkpoint_after=20)
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

    assert len(reads) < 10
    assert state.slot == len(world.store.paths(LEDGER_FOLDER))
    assert state.newest == world.open().ledger.read().newest
