"""Retention: what goes, when, and in which order."""

from dataclasses import replace

import pytest

from harness.push_rules import APPEND, PLAIN, PureTable
from holdfast.config.push_rules import PINOT, Rules
from holdfast.config.values import DAY_MS, HOUR_MS
from holdfast.errors import Conflict
from holdfast.model.lineage import EntryState
from holdfast.model.segment import Segment
from holdfast.push.retention.decide import plan_retention, ready_deletions

IN_PROGRESS, COMPLETED, REVERTED = EntryState
MANY = replace(PLAIN, retained_snapshots=50)


def table_with(*names, config=MANY, rules=None):
    table = PureTable(config=config, rules=rules or Rules())
    if names:
        table.upload(" ".join(names))
    return table


def test_a_young_open_push_is_left_alone():
    table = table_with("a")
    entry = table.start("a", "b")
    table.upload("b")

    table.retention(after_ms=DAY_MS)

    assert table.state_of(entry) is IN_PROGRESS
    assert table.all == {"a", "b"}


@pytest.mark.parametrize("rules", [Rules(), PINOT])
def test_an_open_push_that_was_never_ended_goes_in_two_passes(rules):
    table = table_with("a", rules=rules)
    entry = table.start("a", "b")
    table.upload("b")

    table.retention(after_ms=DAY_MS + 10)
    assert table.all == {"a"}
    assert table.entry(entry) is not None
    table.retention()

    assert table.entry(entry) is None
    assert table.seen == {"a"}


def test_a_push_that_shows_signs_of_life_is_left_alone():
    table = table_with("a")
    entry = table.start("a", "b c", lease_ms=HOUR_MS, lease="mine")
    table.now += DAY_MS
    table.upload("b", lease="mine")

    table.retention(after_ms=HOUR_MS)

    assert table.state_of(entry) is IN_PROGRESS


def test_what_a_forced_revert_left_goes_at_once():
    table = table_with("a")
    entry = table.start("a", "b")
    table.upload("b")
    table.revert(entry, force=True)

    table.retention(after_ms=1000)

    assert table.all == {"a"}
    assert table.entry(entry) is None


def test_of_pushes_on_one_base_that_were_all_reverted_as_many_stay_as_the_table_keeps():
    table = table_with("a", config=replace(PLAIN, retained_snapshots=3))
    entries = []
    for name in "bcde":
        entries.append(table.push(name, force=False))
        table.revert(entries[-1])

    for _ in range(3):
        table.retention(after_ms=1000)

    assert table.all == {"a", "d", "e"}
    assert [table.entry(entry) is not None for entry in entries] == [False, False, True, True]


def test_a_pinned_snapshot_that_was_reverted_stays_whatever_its_age_and_number():
    table = table_with("a", config=replace(PLAIN, retained_snapshots=2))
    for name in "bcd":
        entry = table.push(name, force=False)
        if name == "b":
            table.state = replace(
                table.state, push=replace(table.state.push, pins={table.state.push.epoch: 10**15})
            )
        table.revert(entry)

    for _ in range(3):
        table.retention(after_ms=1000)

    assert {"a", "b", "d"} <= table.all


def test_a_push_that_was_given_up_and_forgotten_cannot_add_its_late_segments():
    table = table_with("a", config=replace(PLAIN, consistent_push=True))
    slow = table.start("a", "b")
    table.push("c")
    for _ in range(2):
        table.retention(after_ms=1000)
    assert table.entry(slow) is None

    with pytest.raises(Conflict, match="NOT_RESERVED"):
        table.upload("b")

    assert table.seen == {"c"}


def test_what_can_be_redone_stays_for_the_window():
    table = table_with("a")
    entry = table.push("b")
    table.revert(entry)

    table.retention(after_ms=DAY_MS)
    assert table.all == {"a", "b"}
    table.retention(after_ms=10)
    assert table.all == {"a"}
    table.retention()

    assert table.entry(entry) is None


def test_strict_rules_delete_what_was_reverted_whatever_its_age():
    table = table_with("a", rules=replace(Rules(), keeps_reverted=False))
    entry = table.push("b")
    table.revert(entry)

    table.retention()

    assert table.all == {"a"}


@pytest.mark.parametrize(
    ("config", "kept_ms", "over_ms"),
    [
        (MANY, DAY_MS, DAY_MS + 10),
        (APPEND, 4 * HOUR_MS, 5 * HOUR_MS),
        (replace(MANY, replaced_retention_ms=0), 0, 10),
    ],
)
def test_replaced_segments_stay_for_the_window_of_the_table(config, kept_ms, over_ms):
    table = table_with("a", config=config)
    entry = table.push("b")

    table.retention(after_ms=kept_ms)
    assert table.all == {"a", "b"}
    table.retention(after_ms=over_ms - kept_ms)
    assert table.all == {"b"}
    assert table.state_of(entry) is COMPLETED
    table.retention()

    assert table.entry(entry) is None
    assert table.seen == {"b"}


def test_a_revert_after_retention_decided_is_refused():
    """FINALISED is written with the removal, so a revert and retention cannot both win."""
    from holdfast.errors import Refused

    table = table_with("a")
    entry = table.push("b")
    table.retention(after_ms=DAY_MS + 10)

    with pytest.raises(Refused) as caught:
        table.revert(entry)

    assert caught.value.facts["code"] == "REVERT_SOURCE_GONE"


def test_the_entry_waits_until_brokers_have_let_its_segments_go():
    table = table_with("a")
    entry = table.push("b")
    table.brokers = (table.epoch,)

    for _ in range(3):
        table.retention(after_ms=DAY_MS + 10)
    assert table.entry(entry) is not None
    assert "a__1" in table.disk
    table.brokers = (table.epoch,)
    table.retention()

    assert table.entry(entry) is None
    assert "a__1" not in table.disk


def test_the_newest_entry_stays_for_the_window_although_it_replaced_nothing():
    """Otherwise the first load could not be taken back after the first pass."""
    table = table_with()
    entry = table.push("a")

    table.retention(after_ms=HOUR_MS)
    assert table.state_of(entry) is COMPLETED
    table.revert(entry)

    assert table.seen == set()


def test_strict_rules_drop_an_entry_that_replaced_nothing_at_once():
    table = table_with(rules=PINOT)
    entry = table.push("a")

    table.retention()

    assert table.entry(entry) is None


def test_no_more_snapshots_stay_than_the_table_keeps():
    table = table_with(config=replace(PLAIN, retained_snapshots=3))
    for name in ("v1", "v2", "v3", "v4", "v5"):
        table.push(name, force=False)

    table.retention()

    assert table.all == {"v3", "v4", "v5"}
    assert len(table.snapshots()) == 3


def test_a_table_that_is_added_to_counts_no_snapshots():
    table = table_with(config=APPEND)
    for name in ("v1", "v2", "v3", "v4"):
        table.push(name, force=False)

    table.retention()

    assert table.all == {"v1", "v2", "v3", "v4"}


def test_age_and_number_may_have_to_agree():
    rules = replace(Rules(), keeps_by_either=True)
    table = table_with(config=replace(PLAIN, retained_snapshots=3), rules=rules)
    for name in ("v1", "v2", "v3", "v4"):
        table.push(name, force=False)

    table.retention(after_ms=HOUR_MS)
    assert table.all == {"v1", "v2", "v3", "v4"}
    table.retention(after_ms=DAY_MS)

    assert table.all == {"v2", "v3", "v4"}


def test_metadata_without_a_place_in_the_table_goes_with_its_entry():
    """As a crash of Pinot's between metadata and ideal state leaves it."""
    table = table_with("a")
    entry = table.start("a", "b")
    table.files["b"] = Segment(name="b", crc=1, docs=1, size_bytes=1, uri="b__1")
    table.disk.add("b__1")
    table.revert(entry, force=True)

    table.retention()
    table.retention()

    assert table.entry(entry) is None
    assert "b" not in table.files
    assert "b__1" not in table.disk


def test_old_rows_go_unless_a_push_needs_them():
    table = table_with(config=replace(APPEND, time_retention_ms=DAY_MS))
    old = table.now - 2 * DAY_MS
    table.upload("a b", end_ms=old)
    table.upload("young", end_ms=table.now)
    table.upload("timeless")
    table.start("a", "c")

    reasons = table.retention()

    assert table.all == {"a", "young", "timeless"}
    assert "1 segments" in reasons[0]


def test_a_table_that_is_replaced_is_not_purged_by_time():
    table = table_with(config=replace(PLAIN, time_retention_ms=DAY_MS))
    table.upload("a", end_ms=1)

    table.retention()

    assert table.all == {"a"}


def test_a_plan_says_why():
    table = table_with("a")
    entry = table.push("b")

    assert table.retention(after_ms=DAY_MS + 10) == (
        f"what {entry} replaced goes: the window for a revert is over",
    )


def test_a_second_plan_on_the_same_moment_finds_nothing_more():
    table = table_with("a")
    table.push("b")
    table.brokers = (0,)
    table.retention(after_ms=DAY_MS + 10)

    again = plan_retention(table.state, now_ms=table.now, rules=table.rules, known=table.files)

    assert again.decision.after == table.state


def test_files_wait_for_the_slowest_broker():
    table = table_with("a b")
    table.delete("a")
    table.delete("b")
    first, second = table.state.push.deletions

    assert ready_deletions(table.state, []) == (first, second)
    assert ready_deletions(table.state, [first.epoch, second.epoch]) == (first,)
    assert ready_deletions(table.state, [0]) == ()


def test_where_the_rows_came_from_is_known_as_long_as_they_are_seen():
    table = table_with()
    for number in (1, 2):
        table.push(f"v{number}", source={"lake.instant": str(number)})
    assert [each.source.get("lake.instant") for each in table.snapshots()] == ["2", "1", None]

    table.retention(after_ms=DAY_MS + 10)
    table.retention()
    table.retention()

    assert (table.state.lineage.entries, table.seen) == ((), {"v2"})
    assert [each.source for each in table.snapshots()] == [{"lake.instant": "2"}]
    table.push("v3", source={"lake.instant": "3"})
    assert [each.source["lake.instant"] for each in table.snapshots()] == ["3", "2"]


def test_where_a_part_of_the_rows_came_from_is_not_told_of_all():
    table = table_with(config=replace(APPEND, retained_snapshots=50))
    table.upload("a b")
    entry = table.start("b", "c", source={"lake.instant": "1"})
    table.upload("c")
    table.end(entry)
    for _ in range(3):
        table.retention(after_ms=DAY_MS)

    assert table.state.lineage.entries == ()
    assert [dict(each.source) for each in table.snapshots()] == [{}]
