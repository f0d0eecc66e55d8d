"""Storage that answers with an error, having done what was asked or not."""

import pytest

from harness.checker import check_at_any_time, check_at_rest, visible_ids
from harness.faults import FailingStore, RecordingStore
from harness.world import memory_world
from holdfast.errors import OutcomeUnknown, StorageUnavailable
from holdfast.services.rollback import roll_back_failed_writes

OLD = frozenset({"old1", "old2"})
NEW = frozenset({"new1", "new2"})


def _clean():
    world = memory_world()
    world.create()
    world.insert(*sorted(OLD))
    return world


def _steps_of_an_insert():
    world = _clean()
    recorder = RecordingStore(world.store)
    world.on(recorder).insert(*sorted(NEW))
    return recorder.changes


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("applied", [False, True], ids=["not applied", "applied"])
@pytest.mark.parametrize("step", range(1, len(_steps_of_an_insert()) + 1))
def test_what_a_writer_is_told_is_what_the_table_holds(step, applied, persistent):
    """I14: an error means the rows are not there, unless it says that nobody knows."""
    world = _clean()
    failing = FailingStore(world.store, step, applied=applied, persistent=persistent)
    allowed = {True: OLD | NEW, False: OLD}
    try:
        commit = world.on(failing).insert(*sorted(NEW))
        outcomes = [allowed[True]]
        assert commit.records_written == len(NEW)
    except OutcomeUnknown:
        outcomes = [allowed[True], allowed[False]]
    except StorageUnavailable:
        outcomes = [allowed[False]]
    check_at_any_time(world.open())

    world.insert("next")

    check_at_rest(world.open())
    assert visible_ids(world.open()) - {"next"} in outcomes


def test_a_decision_that_was_written_but_answered_with_an_error_stands():
    """The slot is read back: our entry is there, so the write is committed and says so."""
    world = _clean()
    commit_slot = _steps_of_an_insert().index("create .hoodie/.holdfast/ledger/00000000000000000004") + 1

    commit = world.on(FailingStore(world.store, commit_slot, applied=True, persistent=False)).insert("new1")

    assert commit.records_written == 1
    assert visible_ids(world.open()) == OLD | {"new1"}


def test_a_commit_that_cannot_be_shown_says_so_and_is_shown_by_the_next_operation():
    world = _clean()
    steps = _steps_of_an_insert()
    publish = next(n for n, change in enumerate(steps, 1) if change.endswith(".commit"))

    with pytest.raises(OutcomeUnknown, match="do not write the rows again"):
        world.on(FailingStore(world.store, publish, applied=False, persistent=True)).insert(*sorted(NEW))
    assert visible_ids(world.open()) == OLD
    roll_back_failed_writes(world.open())

    assert visible_ids(world.open()) == OLD | NEW


def test_trouble_after_the_commit_is_reported_and_not_raised():
    world = _clean()
    steps = _steps_of_an_insert()
    tidy = next(n for n, change in enumerate(steps, 1) if change.startswith("delete .hoodie/.temp"))

    commit = world.on(FailingStore(world.store, tidy, applied=False, persistent=True)).insert(*sorted(NEW))

    assert commit.post_commit_errors
    assert visible_ids(world.open()) == OLD | NEW
    world.insert("next")
    check_at_rest(world.open())
