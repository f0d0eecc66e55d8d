"""Attempts: what a task leaves when it runs twice, too late, or not to its end."""

from dataclasses import dataclass

import pyarrow as pa
import pytest

from harness.checker import check_at_rest, visible_ids
from harness.world import memory_world, rows
from holdfast.config.write import WriteSettings
from holdfast.errors import Fenced
from holdfast.services.rollback import roll_back_failed_writes
from holdfast.write.insert import insert
from holdfast.write.task import TaskIdentity, write_rows


@dataclass(frozen=True)
class TwiceRows:
    """Rows whose one task runs in two attempts; only the second one is reported, as Spark does it."""

    table: pa.Table
    first_attempt_ends: bool

    def schema(self):
        return self.table.schema

    def prepared(self, schema, table):
        return self

    def write(self, table, request):
        ordered = self.table.sort_by("city").to_batches()
        first = write_rows(table.store, request, _attempt(1), ordered)
        if self.first_attempt_ends:
            list(first)
        else:
            next(first)
            first.close()
        return list(write_rows(table.store, request, _attempt(2), ordered))


def _attempt(number):
    prefix = f"{number:08d}-0000-0000-0000-000000000000"
    return TaskIdentity(task=0, stage=1, attempt=number, file_prefix=prefix)


@pytest.fixture
def world():
    world = memory_world()
    world.create()
    world.insert("old")
    return world


@pytest.mark.parametrize("first_attempt_ends", [True, False], ids=["both end", "the first dies half-way"])
def test_a_task_that_runs_twice_counts_once(world, first_attempt_ends):
    twice = TwiceRows(rows("a", "b", "c"), first_attempt_ends)

    commit = insert(world.open(), twice, operation="INSERT", settings=WriteSettings())

    assert (commit.records_written, commit.files_written) == (3, 2)
    assert visible_ids(world.open()) == {"old", "a", "b", "c"}
    check_at_rest(world.open())


def test_an_attempt_that_ends_after_the_commit_withdraws_its_file(world):
    late = []

    class LateRows(TwiceRows):
        def write(self, table, request):
            late.append(
                write_rows(table.store, request, _attempt(3), self.table.sort_by("city").to_batches())
            )
            return list(
                write_rows(table.store, request, _attempt(2), self.table.sort_by("city").to_batches())
            )

    insert(world.open(), LateRows(rows("a"), True), operation="INSERT", settings=WriteSettings())
    (attempt,) = late

    with pytest.raises(Fenced):
        list(attempt)

    assert visible_ids(world.open()) == {"old", "a"}
    world.insert("next")
    check_at_rest(world.open())


def test_an_attempt_that_ends_after_the_rollback_withdraws_its_file(world):
    late = []

    class DeadRows(TwiceRows):
        def write(self, table, request):
            late.append(write_rows(table.store, request, _attempt(3), self.table.to_batches()))
            raise RuntimeError("the job failed")

    with pytest.raises(RuntimeError, match="the job failed"):
        insert(world.open(), DeadRows(rows("a"), True), operation="INSERT", settings=WriteSettings())
    (attempt,) = late

    with pytest.raises(Fenced):
        list(attempt)

    roll_back_failed_writes(world.open())
    check_at_rest(world.open())
