"""Revert, rollback to any retained snapshot, redo."""

from dataclasses import replace

import pytest

from harness.push_rules import OPERATOR, PLAIN, REFRESH, SOMEBODY, refused, table_with
from holdfast.config.push_rules import PINOT
from holdfast.config.values import DAY_MS
from holdfast.model.lineage import EntryState
from holdfast.push.calls import Caller

IN_PROGRESS, COMPLETED, REVERTED = EntryState
MANY = replace(PLAIN, retained_snapshots=5)


def test_an_open_push_is_reverted_only_by_force():
    table = table_with("a")
    entry = table.start("a", "b c")
    table.upload("b")

    refused("REVERT_NEEDS_FORCE", table.revert, entry, table=table)
    decision = table.revert(entry, force=True)

    assert table.state_of(entry) is REVERTED
    assert decision.removed == ("b",)
    assert table.seen == table.all == {"a"}


def test_a_revert_shows_what_was_before_and_keeps_what_was_taken_back():
    table = table_with("a")
    entry = table.push("b")

    table.revert(entry)

    assert table.seen == {"a"}
    assert table.all == {"a", "b"}


def test_strict_rules_delete_what_a_revert_takes_back():
    table = table_with("a", rules=PINOT)
    entry = table.push("b")

    decision = table.revert(entry)

    assert decision.removed == ("b",)
    assert table.seen == table.all == {"a"}


def test_a_push_that_an_open_one_builds_on_is_not_reverted():
    table = table_with("a")
    first = table.push("b")
    table.start("b", "c")

    error = refused("REVERT_CONSUMED_BY", table.revert, first, table=table)

    assert error.facts["later"] == "e2"


def test_a_push_that_a_completed_one_builds_on_is_not_reverted():
    table = table_with("a", config=MANY)
    first = table.push("b")
    table.push("c")

    refused("REVERT_CONSUMED_BY", table.revert, first, table=table)


@pytest.mark.parametrize("force", [True, False])
def test_a_revert_needs_the_whole_snapshot_before(force):
    table = table_with("a", "b")
    entry = table.push("c")
    table.take_out("a")

    refused("REVERT_SOURCE_GONE", table.revert, entry, table=table, force=force)


def test_a_revert_needs_the_snapshot_before_online():
    table = table_with("a")
    entry = table.push("b")
    table.go_offline("a")

    refused("REVERT_SOURCE_GONE", table.revert, entry, table=table)


def test_a_revert_that_is_repeated_succeeds_and_changes_nothing():
    table = table_with("a")
    entry = table.push("b")
    table.revert(entry)
    before = table.state

    assert table.revert(entry).already
    assert table.revert(entry, force=True).already
    assert table.state is before


def test_strict_rules_refuse_a_repeated_revert():
    table = table_with("a", rules=PINOT)
    entry = table.push("b")
    table.revert(entry)

    refused("ENTRY_REVERTED", table.revert, entry, table=table, force=True)


def test_reverting_the_first_load_leaves_an_empty_table():
    table = table_with()
    entry = table.push("a")

    table.revert(entry)

    assert table.seen == set()


def test_an_unknown_entry_cannot_be_reverted():
    table = table_with("a")

    refused("ENTRY_NOT_FOUND", table.revert, "nobody", table=table)


def test_somebody_else_reverts_only_as_operator():
    table = table_with("a")
    entry = table.start("a", "b", by=Caller(actor="ben", operator=False))

    refused("FOREIGN_ENTRY", table.revert, entry, table=table, force=True, by=SOMEBODY)
    table.revert(entry, force=True, by=OPERATOR)

    assert table.state_of(entry) is REVERTED


def test_a_rollback_of_several_steps_is_one_step():
    table = table_with(config=MANY)
    entries = [table.push(name) for name in ("v1", "v2", "v3", "v4")]
    epoch = table.epoch

    decision = table.rollback(steps=2)

    assert table.seen == {"v2"}
    assert [table.state_of(entry) for entry in entries] == [COMPLETED, COMPLETED, REVERTED, REVERTED]
    assert decision.entry_ids == (entries[3], entries[2])
    assert table.epoch == epoch + 1


@pytest.mark.parametrize("by", ["entry", "epoch"])
def test_a_rollback_goes_to_a_named_snapshot(by):
    table = table_with(config=MANY)
    entries = [table.push(name) for name in ("v1", "v2", "v3")]
    wanted = next(each for each in table.snapshots() if each.segments == {"v1"})

    table.rollback(**({"entry_id": entries[0]} if by == "entry" else {"epoch": wanted.epoch}))

    assert table.seen == {"v1"}


def test_a_rollback_to_what_is_seen_changes_nothing():
    table = table_with(config=MANY)
    entry = table.push("v1")
    before = table.state

    assert table.rollback(entry_id=entry).already
    assert table.state is before


def test_a_rollback_can_insist_on_the_push_that_it_starts_from():
    table = table_with(config=MANY)
    entries = [table.push(name) for name in ("v1", "v2", "v3")]

    refused("SNAPSHOT_CHANGED", table.rollback, table=table, entry_id=entries[0], newest=entries[1])
    table.rollback(entry_id=entries[0], newest=entries[2])

    assert table.seen == {"v1"}


@pytest.mark.parametrize("target", [{}, {"steps": 0}, {"steps": 1, "epoch": 1}, {"steps": -1}])
def test_a_rollback_has_one_target(target):
    table = table_with(config=MANY)
    table.push("v1")

    refused("NO_TARGET", table.rollback, table=table, **target)


def test_a_rollback_beyond_what_is_kept_is_refused():
    table = table_with(config=MANY)
    table.push("v1")
    table.push("v2")

    refused("REVERT_SOURCE_GONE", table.rollback, table=table, steps=3)
    refused("REVERT_SOURCE_GONE", table.rollback, table=table, epoch=99)


def test_a_rollback_to_a_snapshot_that_is_partly_gone_writes_nothing():
    table = table_with(config=MANY)
    table.push("v1 w1")
    table.push("v2")
    table.go_offline("w1")

    refused("REVERT_SOURCE_GONE", table.rollback, table=table, steps=1)


def test_a_redo_of_the_newest_brings_back_everything_it_was_built_on():
    table = table_with(config=MANY)
    entries = [table.push(name) for name in ("v1", "v2", "v3")]
    table.rollback(steps=2)

    decision = table.redo(entries[2])

    assert decision.entry_ids == (entries[1], entries[2])
    assert table.seen == {"v3"}
    assert [each.segments for each in table.snapshots()] == [{"v3"}, {"v2"}, {"v1"}, set()]
    table.rollback(steps=1)
    assert table.seen == {"v2"}


def test_a_redo_of_one_step_goes_no_further():
    table = table_with(config=MANY)
    entries = [table.push(name) for name in ("v1", "v2", "v3")]
    table.rollback(steps=2)

    table.redo(entries[1])

    assert table.seen == {"v2"}
    assert table.state_of(entries[2]) is REVERTED


def test_a_new_push_after_a_rollback_branches_and_ends_the_redo():
    table = table_with(config=MANY)
    entries = [table.push(name) for name in ("v1", "v2")]
    table.rollback(steps=1)
    table.push("v3", force=False)

    refused("REDO_SOURCE_GONE", table.redo, entries[1], table=table)

    assert table.seen == {"v3"}
    assert [each.segments for each in table.snapshots()] == [{"v3"}, {"v1"}, set()]


def test_an_open_push_of_the_same_segments_stands_before_a_redo():
    table = table_with("a")
    entry = table.push("b")
    table.revert(entry)
    table.start("a", "c")

    refused("FROM_ALREADY_REPLACED", table.redo, entry, table=table)


def test_what_was_never_published_is_not_redone():
    table = table_with("a")
    entry = table.start("a", "b")
    table.revert(entry, force=True)

    refused("REDO_NOT_PUBLISHED", table.redo, entry, table=table)


def test_a_redo_that_is_repeated_changes_nothing():
    table = table_with("a")
    entry = table.push("b")
    table.revert(entry)
    table.redo(entry)
    before = table.state

    assert table.redo(entry).already
    assert table.state is before


def test_snapshots_are_listed_newest_first_with_the_way_to_each():
    table = table_with(config=MANY)
    entries = [table.push(name) for name in ("v1", "v2", "v3")]
    table.rollback(steps=1)

    listed = table.snapshots()

    assert [(each.position, each.segments) for each in listed] == [
        (-1, {"v3"}),
        (0, {"v2"}),
        (1, {"v1"}),
        (2, set()),
    ]
    assert listed[0].steps == (entries[2],)
    assert listed[2].steps == (entries[1],)
    assert listed[1].is_current
    assert len({each.epoch for each in listed}) == 4


def test_two_reverts_in_a_row_leave_both_pushes_to_be_redone():
    """The start of the second push let go of the empty table before the first one, and of nothing else."""
    table = table_with(config=REFRESH)
    first = table.push("v1")
    second = table.push("v2")
    table.revert(second)
    table.revert(first)
    assert table.seen == set()

    for _ in range(3):
        table.retention()

    assert [each.entry_id for each in table.snapshots() if each.position < 0] == [second, first]
    table.redo(first)
    assert table.seen == {"v1"}
    table.redo(second)
    assert table.seen == {"v2"}


def test_two_reverts_are_redone_until_the_window_is_over():
    table = table_with(config=REFRESH)
    first = table.push("v1")
    second = table.push("v2")
    table.revert(second)
    table.revert(first)

    for _ in range(3):
        table.retention(after_ms=table.state.config.replaced_retention_ms + 1)

    refused("ENTRY_NOT_FOUND", table.redo, second, table=table)
    assert table.all == set()


def test_what_a_redo_publishes_again_stays_pinned():
    table = table_with(config=MANY)
    table.push("v1")
    entry = table.push("v2")
    table.revert(entry)
    pinned = next(each for each in table.snapshots() if each.entry_id == entry)
    table.pin(pinned.epoch, until_ms=table.now + 1000)

    table.redo(entry)

    current = next(each for each in table.snapshots() if each.is_current)
    assert current.epoch != pinned.epoch
    assert current.pinned_until_ms == table.now + 1000


def test_a_pin_stays_when_retention_forgets_who_published_what_it_keeps():
    """The entry goes once there is nothing left that it hides; the next push would let go of its rows."""
    table = table_with(config=REFRESH)
    table.push("v1")
    table.push("v2")
    current = next(each for each in table.snapshots() if each.is_current)
    until_ms = table.now + 100 * DAY_MS
    table.pin(current.epoch, until_ms=until_ms)

    for _ in range(4):
        table.retention(after_ms=2 * DAY_MS)
    assert table.state.lineage.entries == ()
    assert [each.pinned_until_ms for each in table.snapshots() if each.is_current] == [until_ms]
    for number in range(3, 7):
        table.push(f"v{number}")
        table.retention()

    [kept] = [each for each in table.snapshots() if each.segments == {"v2"}]
    assert kept.pinned_until_ms == until_ms
    table.rollback(epoch=kept.epoch)
    assert table.seen == {"v2"}


def test_what_was_there_before_any_push_stays_pinned_over_a_revert_and_another_push():
    table = table_with("a", config=MANY)
    [base] = table.snapshots()
    until_ms = table.now + 100 * DAY_MS
    table.pin(base.epoch, until_ms=until_ms)

    first = table.push("v1")
    table.revert(first)
    table.push("v2")

    pinned = [each.segments for each in table.snapshots() if each.pinned_until_ms == until_ms]
    assert pinned == [{"a"}]


def test_a_redo_beside_an_exclusive_push_waits():
    table = table_with(config=replace(REFRESH, retained_snapshots=5))
    table.push("v1")
    entry = table.push("v2")
    table.revert(entry)
    table.start("v1", "v3")

    refused("FROM_ALREADY_REPLACED", table.redo, entry, table=table)
