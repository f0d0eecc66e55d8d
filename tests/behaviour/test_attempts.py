"""Attempts: what a task leaves when it runs twice, too late, or not to its end."""

from contextlib import suppress
from functools import partial

import pytest

from harness.attempts import AttemptedRows, LateRows, attempt, counted, lets_a_task_end
from harness.checker import check_at_rest, visible_rows
from harness.faults import Crash, CrashingStore
from harness.world import memory_world, table_of
from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.errors import Fenced, Refused
from holdfast.services.rollback.rollback import recover
from holdfast.table.markers import CREATE, MERGE, instants_with_markers, read_markers
from holdfast.writes import operations

OLD = ("old", "paris", 1.0)
NEXT = ("next", "rome", 9.0)
ADDED = (("a", "paris", 2.0), ("b", "rome", 3.0), ("c", "paris", 4.0))
UPSERTED = (("old", "paris", 10.0), ("b", "rome", 3.0), ("c", "paris", 4.0))

# What each does with its rows: in new file groups, or in the one there is and in a new one.
CASES = {
    "bulk_insert": (ADDED, {OLD, *ADDED}, {CREATE}),
    "upsert": (UPSERTED, set(UPSERTED), {CREATE, MERGE}),
}


@pytest.fixture
def world():
    world = memory_world()
    world.create()
    world.write("insert", table_of([OLD]))
    return world


@pytest.fixture(params=CASES)
def case(request):
    rows, expected, kinds = CASES[request.param]
    return (
        partial(operations.write, operation=Operation(request.param)),
        table_of(rows),
        frozenset(expected),
        kinds,
    )


def _ends(store, body):
    list(body(store, attempt(1)))


def _dies_after_a_file(store, body):
    first = body(store, attempt(1))
    next(first)
    first.close()


def _dies_after_a_marker(store, body):
    with suppress(Crash):
        list(body(CrashingStore(store, 1, after=True), attempt(1)))


@pytest.mark.parametrize(
    "first", [_ends, _dies_after_a_file, _dies_after_a_marker], ids=lambda first: first.__name__.strip("_")
)
def test_a_task_that_runs_twice_counts_once(world, case, first):
    run, rows, expected, kinds = case
    left = set()

    class TwiceRows(AttemptedRows):
        def _run(self, store, body):
            first(store, body)
            (instant,) = instants_with_markers(store)
            left.update(marker.kind for marker in read_markers(store, instant))
            return counted(store, body)

    commit = run(world.open(), rows=TwiceRows(rows), settings=WriteSettings())

    assert commit.records_inserted + commit.records_updated == 3
    assert commit.files_written == 2
    assert left
    assert left <= kinds
    assert visible_rows(world.open()) == expected
    check_at_rest(world.open())


def test_a_write_can_ask_to_fail_rather_than_delete_what_a_task_left(world, case):
    run, rows, _, _ = case
    before = visible_rows(world.open())

    class TwiceRows(AttemptedRows):
        def _run(self, store, body):
            _ends(store, body)
            return counted(store, body)

    with pytest.raises(Refused, match="beside the one that counts"):
        run(world.open(), rows=TwiceRows(rows), settings=WriteSettings(refuses_duplicates=True))

    assert visible_rows(world.open()) == before
    check_at_rest(world.open())


def test_an_attempt_that_ends_after_the_commit_withdraws_its_file(world, case):
    run, rows, expected, _ = case
    late = []

    run(world.open(), rows=LateRows(rows, late), settings=WriteSettings())
    (other,) = late

    with pytest.raises(Fenced):
        list(other)

    assert visible_rows(world.open()) == expected
    world.write("insert", table_of([NEXT]))
    check_at_rest(world.open())
    assert visible_rows(world.open()) == expected | {NEXT}


def test_an_attempt_that_ends_after_the_rollback_withdraws_its_file(world, case):
    run, rows, _, _ = case
    late = []

    class DeadRows(AttemptedRows):
        def _run(self, store, body):
            late.append(body(store, attempt(3)))
            raise RuntimeError("the job failed")

    with pytest.raises(RuntimeError, match="the job failed"):
        run(world.open(), rows=DeadRows(rows), settings=WriteSettings())
    (other,) = late

    with pytest.raises(Fenced):
        list(other)

    recover(world.open())
    check_at_rest(world.open())
    assert visible_rows(world.open()) == {OLD}


def test_attempts_of_a_failed_write_leave_the_old_versions_alone(world, case):
    """One attempt ended, one died after its marker; the job fails, and nothing of either stays."""
    run, rows, _, _ = case

    class FailedRows(AttemptedRows):
        def _run(self, store, body):
            _ends(store, body)
            with suppress(Crash):
                list(body(CrashingStore(store, 1, after=True), attempt(2)))
            raise RuntimeError("the job failed")

    with pytest.raises(RuntimeError, match="the job failed"):
        run(world.open(), rows=FailedRows(rows), settings=WriteSettings())

    check_at_rest(world.open())
    assert visible_rows(world.open()) == {OLD}


def test_a_file_that_a_task_kept_just_before_the_commit_was_shown_does_not_stay(world, case):
    """It ended after the write had looked for such files; the markers are looked at again before they go."""
    run, rows, expected, _ = case
    late = []
    store = lets_a_task_end(world.store, late, before="create .hoodie/.holdfast/ledger")

    run(world.on(store).open(), rows=LateRows(rows, late), settings=WriteSettings())

    assert not late
    check_at_rest(world.open())
    assert visible_rows(world.open()) == expected


def test_a_file_that_a_task_kept_after_the_rollback_was_planned_does_not_stay(world, case):
    run, rows, _, _ = case
    late = []
    store = lets_a_task_end(world.store, late, before="rollback.inflight")

    with pytest.raises(RuntimeError, match="the job failed"):
        run(world.on(store).open(), rows=LateRows(rows, late, fails=True), settings=WriteSettings())

    assert not late
    check_at_rest(world.open())
    assert visible_rows(world.open()) == {OLD}
