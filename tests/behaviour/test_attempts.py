"""Attempts: what a task leaves when it runs twice, too late, or not to its end."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from harness.checker import check_at_rest, visible_rows
from harness.faults import Crash, CrashingStore
from harness.world import memory_world, table_of
from holdfast.config.write import WriteSettings
from holdfast.errors import Fenced, Refused
from holdfast.format.commits import WriteStat
from holdfast.services.rollback import recover
from holdfast.storage.store import Store
from holdfast.table.markers import CREATE, MERGE, instants_with_markers, read_markers
from holdfast.writes import operations
from holdfast.writes.gather import SLOT
from holdfast.writes.merge_task import merge_rows
from holdfast.writes.rows import Written
from holdfast.writes.task import TaskIdentity, write_rows

OLD = ("old", "paris", 1.0)
NEXT = ("next", "rome", 9.0)
ADDED = (("a", "paris", 2.0), ("b", "rome", 3.0), ("c", "paris", 4.0))
UPSERTED = (("old", "paris", 10.0), ("b", "rome", 3.0), ("c", "paris", 4.0))

# What each does with its rows: in new file groups, or in the one there is and in a new one.
CASES = {
    "bulk_insert": (ADDED, {OLD, *ADDED}, {CREATE}),
    "upsert": (UPSERTED, set(UPSERTED), {CREATE, MERGE}),
}


@dataclass(frozen=True)
class AttemptedRows:
    """Rows whose one task runs as a test says it does; only what is returned is reported."""

    table: pa.Table

    def schema(self):
        return self.table.schema

    def prepared(self, schema, table, **how):
        return self

    def write(self, table, request):
        batches = self.table.sort_by("city").to_batches()
        return self._run(table.store, lambda store, attempt: write_rows(store, request, attempt, batches))

    def merge(self, table, request):
        slot = pa.array(np.zeros(self.table.num_rows, dtype=np.int64))
        batches = self.table.append_column(SLOT, slot).to_batches()
        return self._run(table.store, lambda store, attempt: merge_rows(store, request, attempt, batches))

    def cancel(self):
        """A test's task is over before anybody could cancel it."""

    def _run(self, store, body):
        raise NotImplementedError


def _attempt(number):
    prefix = f"f{number:07d}-0000-0000-0000-000000000000"
    return TaskIdentity(task=0, stage=1, attempt=number, file_prefix=prefix)


def _counted(store: Store, body):
    """The one attempt that is reported."""
    done = list(body(store, _attempt(2)))
    return Written(stats=[part for part in done if isinstance(part, WriteStat)])


@pytest.fixture
def world():
    world = memory_world()
    world.create()
    world.write("insert", table_of([OLD]))
    return world


@pytest.fixture(params=CASES)
def case(request):
    rows, expected, kinds = CASES[request.param]
    return getattr(operations, request.param), table_of(rows), frozenset(expected), kinds


def _ends(store, body):
    list(body(store, _attempt(1)))


def _dies_after_a_file(store, body):
    first = body(store, _attempt(1))
    next(first)
    first.close()


def _dies_after_a_marker(store, body):
    with suppress(Crash):
        list(body(CrashingStore(store, 1, after=True), _attempt(1)))


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
            return _counted(store, body)

    commit = run(world.open(), TwiceRows(rows), WriteSettings())

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
            return _counted(store, body)

    with pytest.raises(Refused, match="beside the one that counts"):
        run(world.open(), TwiceRows(rows), WriteSettings(refuses_duplicates=True))

    assert visible_rows(world.open()) == before
    check_at_rest(world.open())


def test_an_attempt_that_ends_after_the_commit_withdraws_its_file(world, case):
    run, rows, expected, _ = case
    late = []

    class LateRows(AttemptedRows):
        def _run(self, store, body):
            late.append(body(store, _attempt(3)))
            return _counted(store, body)

    run(world.open(), LateRows(rows), WriteSettings())
    (attempt,) = late

    with pytest.raises(Fenced):
        list(attempt)

    assert visible_rows(world.open()) == expected
    world.write("insert", table_of([NEXT]))
    check_at_rest(world.open())
    assert visible_rows(world.open()) == expected | {NEXT}


def test_an_attempt_that_ends_after_the_rollback_withdraws_its_file(world, case):
    run, rows, _, _ = case
    late = []

    class DeadRows(AttemptedRows):
        def _run(self, store, body):
            late.append(body(store, _attempt(3)))
            raise RuntimeError("the job failed")

    with pytest.raises(RuntimeError, match="the job failed"):
        run(world.open(), DeadRows(rows), WriteSettings())
    (attempt,) = late

    with pytest.raises(Fenced):
        list(attempt)

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
                list(body(CrashingStore(store, 1, after=True), _attempt(2)))
            raise RuntimeError("the job failed")

    with pytest.raises(RuntimeError, match="the job failed"):
        run(world.open(), FailedRows(rows), WriteSettings())

    check_at_rest(world.open())
    assert visible_rows(world.open()) == {OLD}
