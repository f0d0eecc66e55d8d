"""Storage that answers with an error, having done what was asked or not."""

import pytest

from crashes.matrix import INSERT, NEXT, OLD, OVERWRITE, UPSERT, clean_table
from crashes.storage_faults import VERBS, check_what_is_told
from harness.checker import check_at_any_time, check_at_rest, visible_ids, visible_rows
from harness.faults import FailingStore, RecordingStore
from harness.world import table_of
from holdfast.cli.failures import exit_code
from holdfast.errors import OutcomeUnknown, StorageUnavailable
from holdfast.model.names import LEDGER_FOLDER
from holdfast.services.rollback.rollback import recover

WRITES = {"insert": INSERT, "upsert": UPSERT, "insert_overwrite": OVERWRITE}


def _steps(write):
    world = clean_table()
    recorder = RecordingStore(world.store)
    write.run(world.on(recorder))
    return recorder.changes


STEPS = {name: _steps(write) for name, write in WRITES.items()}
CASES = [(name, step) for name, steps in STEPS.items() for step in range(1, len(steps) + 1)]


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("applied", [False, True], ids=["not applied", "applied"])
@pytest.mark.parametrize(("name", "step"), CASES)
def test_what_a_writer_is_told_is_what_the_table_holds(name, step, applied, persistent):
    """I14: an error means the rows are not there, unless it says that nobody knows."""
    write = WRITES[name]
    world = clean_table()
    failing = FailingStore(world.store, step, applied=applied, persistent=persistent)
    allowed = {True: write.effect(OLD), False: OLD}
    try:
        write.run(world.on(failing))
        outcomes = [allowed[True]]
    except OutcomeUnknown:
        outcomes = [allowed[True], allowed[False]]
    except StorageUnavailable:
        outcomes = [allowed[False]]
    check_at_any_time(world.open())

    world.write("insert", table_of([NEXT]))

    check_at_rest(world.open())
    assert visible_rows(world.open()) - {NEXT} in outcomes


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_an_error_means_that_nothing_changes_unless_it_says_that_nobody_knows(verb):
    check_what_is_told(verb)


DECIDING = ["undo an upsert", "restore", "delete a savepoint", "clean by versions", "drop"]


@pytest.mark.parametrize("name", DECIDING)
def test_a_full_disk_after_the_decision_is_told_with_what_will_happen(name):
    verb = next(verb for verb in VERBS if verb.name == name)
    recorder = RecordingStore(verb.start.make().store)
    verb.run(verb.start.make().on(recorder))
    world = verb.start.make()
    full = FailingStore(
        world.store, recorder.last(LEDGER_FOLDER) + 1, applied=False, persistent=True, refused=True
    )

    with pytest.raises(OutcomeUnknown) as told:
        verb.run(world.on(full))

    assert "storage failed before that was carried out" in told.value.message
    assert told.value.hint
    assert exit_code(told.value) == 6


def test_a_decision_that_was_written_but_answered_with_an_error_stands():
    """The slot is read back: our entry is there, so the write is committed and says so."""
    world = clean_table()
    commit_slot = STEPS["insert"].index("create .hoodie/.holdfast/ledger/00000000000000000004") + 1

    commit = INSERT.run(world.on(FailingStore(world.store, commit_slot, applied=True, persistent=False)))

    assert commit.records_inserted == 3
    assert visible_rows(world.open()) == INSERT.effect(OLD)


@pytest.mark.parametrize("name", WRITES)
def test_a_commit_that_cannot_be_shown_says_so_and_is_shown_by_the_next_operation(name):
    write = WRITES[name]
    world = clean_table()
    publish = next(n for n, change in enumerate(STEPS[name], 1) if change.endswith("commit"))

    with pytest.raises(OutcomeUnknown, match="do not write the rows again"):
        write.run(world.on(FailingStore(world.store, publish, applied=False, persistent=True)))
    assert visible_rows(world.open()) == OLD
    recover(world.open())

    assert visible_rows(world.open()) == write.effect(OLD)


@pytest.mark.parametrize("name", WRITES)
def test_trouble_after_the_commit_is_reported_and_not_raised(name):
    write = WRITES[name]
    world = clean_table()
    tidy = next(n for n, change in enumerate(STEPS[name], 1) if change.startswith("delete .hoodie/.temp"))

    commit = write.run(world.on(FailingStore(world.store, tidy, applied=False, persistent=True)))

    assert commit.post_commit_errors
    assert visible_rows(world.open()) == write.effect(OLD)
    world.insert("next")
    check_at_rest(world.open())
    assert "next" in visible_ids(world.open())
