"""The rules of start, end and delete, as Pinot's own tests and the test catalogue have them."""

import pytest

from harness.push_rules import APPEND, OPERATOR, PLAIN, REFRESH, SOMEBODY, refused, table_with
from holdfast.config.push_rules import PINOT, Rules
from holdfast.errors import InvalidRequest
from holdfast.model.lineage import EntryState
from holdfast.push.calls import Caller
from holdfast.push.state.table_state import GateOutcome

IN_PROGRESS, COMPLETED, REVERTED = EntryState


# Start


def test_a_start_names_at_least_one_segment():
    table = table_with("a")

    error = refused("NOTHING_TO_REPLACE", table.start, table=table)

    assert isinstance(error, InvalidRequest)


def test_the_first_load_opens_an_entry_and_shows_nothing():
    table = table_with()

    entry = table.start("", "a b")

    assert table.state_of(entry) is IN_PROGRESS
    assert table.seen == set()


@pytest.mark.parametrize("name", ["a,b", " a", "a/b", "a\\b", "a:b", "a*", "a?", 'a"', "a<", "a>", "a|b", ""])
def test_a_start_refuses_names_that_the_record_cannot_hold(name):
    from holdfast.push.calls import StartRequest
    from holdfast.push.replacement.start import start

    table = table_with()

    with pytest.raises(InvalidRequest) as caught:
        start(
            table.state,
            StartRequest(segments_to=(name,)),
            entry_id="e",
            now_ms=1,
            by=OPERATOR,
            rules=Rules(),
        )

    assert caught.value.facts["code"] == "INVALID_SEGMENT_NAME"


def test_only_what_queries_see_can_be_replaced():
    table = table_with("a")
    first = table.start("a", "b")
    table.upload("b")

    refused("FROM_NOT_VISIBLE", table.start, "unknown", "c", table=table)
    refused("FROM_NOT_VISIBLE", table.start, "b", "c", table=table)
    table.end(first)
    refused("FROM_NOT_VISIBLE", table.start, "a", "c", table=table)


def test_what_queries_see_cannot_come_in_again():
    table = table_with("a", "b")

    refused("TO_ALREADY_VISIBLE", table.start, "a", "b", table=table)
    refused("TO_ALREADY_VISIBLE", table.start, "a", "a", table=table)


def test_a_second_push_of_the_same_segments_waits():
    table = table_with("a")
    table.start("a", "b")

    refused("FROM_ALREADY_REPLACED", table.start, "a", "c", table=table)


def test_two_open_pushes_do_not_share_a_new_name():
    table = table_with("a", "x")
    table.start("a", "b")

    refused("TO_NAME_CONFLICT", table.start, "x", "b", table=table)


def test_force_reverts_the_open_push_of_the_same_segments():
    table = table_with("a")
    first = table.start("a", "b")
    table.upload("b")

    second = table.start("a", "c", force=True)

    assert table.state_of(first) is REVERTED
    assert table.state_of(second) is IN_PROGRESS
    assert table.all == {"a"}
    assert table.seen == {"a"}


def test_force_with_the_same_names_removes_the_first_entry_and_deletes_nothing():
    table = table_with()
    first = table.start("", "b c")
    table.upload("b")

    second = table.start("", "b c", force=True)

    assert table.entry(first) is None
    assert table.state_of(second) is IN_PROGRESS
    assert table.all == {"b"}
    refused("ENTRY_REVERTED", table.end, first, table=table)


def test_force_leaves_a_push_alone_that_shares_nothing():
    table = table_with()
    first = table.start("", "b")

    table.start("", "c", force=True)

    assert table.state_of(first) is IN_PROGRESS


def test_force_with_some_shared_names_reverts_only_the_others():
    table = table_with()
    first = table.start("", "s3 s4")
    table.upload("s3 s4")

    second = table.start("", "s4 s5", force=True)

    assert table.state_of(first) is REVERTED
    assert table.entry(first).segments_to == ("s3",)
    assert table.all == {"s4"}
    assert table.state_of(second) is IN_PROGRESS


def test_force_with_some_shared_sources_reverts_the_open_push():
    table = table_with("s1", "s2")
    first = table.start("s1 s2", "s3 s4")

    table.start("s1", "s5", force=True)

    assert table.state_of(first) is REVERTED


def test_a_third_snapshot_makes_the_first_one_go_when_it_starts():
    table = table_with("a")
    first = table.push("b")

    table.start("b", "c", force=True)

    assert table.all == {"b"}
    assert table.state_of(first) is COMPLETED
    refused("REVERT_CONSUMED_BY", table.revert, first, table=table)


def test_a_failed_attempt_between_snapshots_is_reverted_and_cleared():
    table = table_with("a")
    table.push("b")
    failed = table.start("b", "c d", force=True)
    table.upload("c")

    third = table.start("b", "e f", force=True)

    assert table.state_of(failed) is REVERTED
    assert table.all == {"b"}
    assert table.state_of(third) is IN_PROGRESS


@pytest.mark.parametrize("force", [True, False])
def test_another_list_of_sources_keeps_the_snapshot_before(force):
    table = table_with("a")
    table.push("b c")

    table.start("b", "d", force=force)

    assert table.all == {"a", "b", "c"}


def test_a_table_that_is_added_to_keeps_the_snapshot_before():
    table = table_with("a", config=APPEND)
    table.push("b")

    table.start("b", "c", force=True)

    assert table.all == {"a", "b"}


def test_a_start_without_force_keeps_the_snapshot_before():
    table = table_with("a")
    table.push("b")

    table.start("b", "c")

    assert table.all == {"a", "b"}


def test_a_table_that_keeps_more_snapshots_lets_the_oldest_go():
    from dataclasses import replace

    table = table_with("v1", config=replace(PLAIN, retained_snapshots=4))
    for name in ("v2", "v3", "v4"):
        table.push(name)

    table.start("v4", "v5", force=True)

    assert table.all == {"v2", "v3", "v4"}


@pytest.mark.parametrize(("force", "left"), [(True, {"a"}), (False, {"a", "b"})])
def test_force_clears_what_reverted_pushes_left(force, left):
    table = table_with("a")
    first = table.push("b")
    table.revert(first)

    table.start("a", "c", force=force)

    assert table.all == left


def test_names_of_a_reverted_push_are_not_used_again():
    table = table_with("a")
    first = table.start("a", "b")
    table.revert(first, force=True)

    refused("NAME_REVERTED", table.start, "a", "b", table=table)


def test_force_takes_the_name_from_the_reverted_push():
    """Otherwise the reverted entry would hide the segment for ever, and retention delete it."""
    table = table_with("a")
    first = table.push("b c")
    table.revert(first)

    second = table.start("a", "b", force=True)
    table.upload("b")
    table.end(second)

    assert table.entry(first).segments_to == ("c",)
    assert table.seen == {"b"}


def test_strict_rules_show_nothing_when_a_reverted_name_is_used_again():
    """Pinot's own behaviour, which the rule closes."""
    table = table_with("a", rules=PINOT)
    first = table.start("a", "b")
    table.revert(first, force=True)
    second = table.start("a", "b")
    table.upload("b")

    table.end(second)

    assert table.seen == set()


def test_a_replaced_name_does_not_come_back_as_a_new_one():
    table = table_with("a")
    table.push("b")

    refused("TO_NAME_CONFLICT", table.start, "b", "a", table=table)
    refused("TO_NAME_CONFLICT", table.start, "b", "a", table=table, force=True)


def test_a_start_may_only_remove():
    table = table_with("a", "b")
    entry = table.start("a", "")
    assert table.seen == {"a", "b"}

    table.end(entry)

    assert table.seen == {"b"}


def test_parallel_first_loads_are_both_open_without_consistent_push():
    table = table_with()

    table.start("", "a")
    table.start("", "b")

    assert len(table.state.lineage.entries) == 2


def test_one_push_of_the_whole_table_is_open_with_consistent_push():
    table = table_with(config=REFRESH)
    first = table.start("", "a")

    refused("LEASE_HELD", table.start, "", "b", table=table)
    second = table.start("", "b", force=True)

    assert table.state_of(first) is REVERTED
    assert table.state_of(second) is IN_PROGRESS


def test_a_first_load_that_comes_too_late_does_not_double_the_rows():
    """Its list of segments was taken when the table was empty."""
    table = table_with(config=REFRESH)
    table.push("a")

    refused("TABLE_NOT_EMPTY", table.start, "", "b", table=table, force=True)


def test_strict_rules_allow_parallel_first_loads_with_consistent_push():
    table = table_with(config=REFRESH, rules=PINOT)
    table.start("", "a")

    table.start("", "b")

    assert len(table.state.lineage.entries) == 2


def test_times_rise_although_a_clock_is_behind():
    table = table_with("a")
    first = table.start("a", "b")
    table.now -= 60_000

    second = table.start("", "c")

    assert table.entry(second).changed_at_ms == table.entry(first).changed_at_ms + 1
    assert [entry.id for entry in table.state.lineage.entries] == [first, second]


def test_strict_rules_write_what_the_clock_says():
    table = table_with("a", rules=PINOT)
    table.start("a", "b")
    table.now -= 60_000

    second = table.start("", "c")

    assert table.entry(second).changed_at_ms == table.now


def test_a_lease_keeps_force_away_until_it_runs_out():
    table = table_with("a")
    table.start("a", "b", lease_ms=600_000, lease="token")

    error = refused("LEASE_HELD", table.start, "a", "c", table=table, force=True)
    assert error.facts["holder"] == "op"
    table.now += 600_001
    second = table.start("a", "c", force=True)

    assert table.state_of(second) is IN_PROGRESS


def test_an_operator_takes_over_although_the_lease_holds():
    table = table_with("a")
    first = table.start("a", "b", lease_ms=600_000, lease="token")

    refused(
        "LEASE_HELD",
        table.start,
        "a",
        "c",
        table=table,
        force=True,
        takeover=True,
        by=Caller(actor="op", operator=False),
    )
    table.start("a", "c", force=True, takeover=True)

    assert table.state_of(first) is REVERTED


def test_force_does_not_revert_the_push_of_somebody_else_without_being_operator():
    table = table_with("a")
    table.start("a", "b", by=Caller(actor="ben", operator=False))

    refused("FOREIGN_ENTRY", table.start, "a", "c", table=table, force=True, by=SOMEBODY)
    table.start("a", "c", force=True, by=Caller(actor="ben", operator=False))


# End


def test_end_needs_every_segment_uploaded():
    table = table_with("a")
    entry = table.start("a", "b c")
    table.upload("b")

    refused("TO_NOT_UPLOADED", table.end, entry, table=table)
    table.upload("c")
    table.end(entry)

    assert table.state_of(entry) is COMPLETED
    assert table.seen == {"b", "c"}


def test_end_of_an_unknown_entry_is_refused():
    table = table_with("a")

    refused("ENTRY_NOT_FOUND", table.end, "nobody", table=table)


def test_a_repeated_end_changes_nothing():
    table = table_with("a")
    entry = table.push("b")
    before = table.state

    decision = table.end(entry, "strangers are not looked at")

    assert decision.already
    assert table.state is before


def test_end_of_a_reverted_push_is_refused():
    table = table_with("a")
    entry = table.start("a", "b")
    table.revert(entry, force=True)

    refused("ENTRY_REVERTED", table.end, entry, table=table)


def test_end_with_fewer_segments_publishes_those_and_removes_the_others():
    table = table_with("a")
    entry = table.start("a", "b c d")
    table.upload("b c")

    decision = table.end(entry, "b")

    assert table.entry(entry).segments_to == ("b",)
    assert table.seen == {"b"}
    assert decision.removed == ("c",)


def test_strict_rules_show_what_was_uploaded_and_left_out():
    """Pinot's own behaviour, which the rule closes."""
    table = table_with("a", rules=PINOT)
    entry = table.start("a", "b c")
    table.upload("b c")

    table.end(entry, "b")

    assert table.seen == {"b", "c"}


def test_end_with_a_stranger_is_refused():
    table = table_with("a")
    entry = table.start("a", "b")
    table.upload("b")

    refused("TO_NOT_DECLARED", table.end, entry, "b z", table=table)


def test_end_is_refused_when_what_it_replaces_has_gone_and_a_forced_revert_helps():
    table = table_with("a")
    entry = table.start("a", "b")
    table.upload("b")
    table.take_out("a")

    refused("FROM_MISSING_AT_END", table.end, entry, table=table)
    table.revert(entry, force=True)

    assert table.state_of(entry) is REVERTED
    assert table.all == set()


def test_end_waits_for_every_replica():
    table = table_with("a")
    entry = table.start("a", "b")
    table.upload("b")
    table.go_offline("b")

    refused("TO_NOT_ONLINE", table.end, entry, table=table)
    table.go_offline()
    table.end(entry)

    assert table.seen == {"b"}


def test_an_entry_that_retention_removed_still_answers_a_repeated_end():
    table = table_with("a")
    entry = table.push("b")
    for _ in range(3):
        table.retention(after_ms=2 * 86_400_000)
    assert table.entry(entry) is None

    assert table.end(entry).already
    for _ in range(2):
        table.retention(after_ms=31 * 86_400_000)

    refused("ENTRY_NOT_FOUND", table.end, entry, table=table)


def test_a_push_with_a_lease_is_ended_by_its_holder():
    table = table_with("a")
    entry = table.start("a", "b", lease_ms=1000, lease="mine")
    refused("LEASE_HELD", table.upload, "b", table=table)
    table.upload("b", lease="mine")

    refused("LEASE_HELD", table.end, entry, table=table)
    table.end(entry, lease="mine")

    assert table.seen == {"b"}


def test_gates_that_are_required_must_have_passed_on_what_is_published():
    from dataclasses import replace
    from types import MappingProxyType

    from holdfast.push.replacement.end import gate_scope

    def judged(passed, scope):
        outcome = GateOutcome(name="min_rows", passed=passed, found="1", expected="2")
        details = table.state.push.details[entry]
        judged = replace(details, gates=(outcome,), gated=gate_scope(scope, ()))
        push = replace(table.state.push, details=MappingProxyType({entry: judged}))
        table.state = replace(table.state, push=push)

    table = table_with("a")
    entry = table.start("a", "b c", gates_required=True)
    table.upload("b c")

    refused("GATE_FAILED", table.end, entry, table=table)
    judged(False, ["b", "c"])
    refused("GATE_FAILED", table.end, entry, table=table)
    judged(True, ["b", "c"])
    refused("GATE_FAILED", table.end, entry, "b", table=table)
    table.upload("c", crc=2)
    refused("GATE_FAILED", table.end, entry, table=table)
    refused("GATE_FAILED", table.end, entry, table=table, override_gates=True, by=SOMEBODY)
    table.end(entry, override_gates=True)

    assert table.seen == {"b", "c"}


# Delete


def test_what_pushes_need_cannot_be_deleted():
    table = table_with("a", "x")
    first = table.start("a", "b")
    table.upload("b")

    refused("SEGMENT_LOCKED", table.delete, "a", table=table)
    refused("SEGMENT_LOCKED", table.delete, "b", table=table)
    table.end(first)
    error = refused("SEGMENT_LOCKED", table.delete, "a x b", table=table)

    assert error.facts["segments"] == "a"


def test_what_no_push_needs_can_be_deleted():
    table = table_with("a", "x")
    first = table.push("b")
    table.delete("b")
    assert table.seen == set()

    table.revert(first)
    table.delete("a x")

    assert table.all == set()


def test_both_sides_of_a_reverted_push_can_be_deleted():
    table = table_with("a")
    first = table.push("b")
    table.revert(first)

    table.delete("a b")

    assert table.all == set()


def test_the_lock_can_be_switched_off():
    from dataclasses import replace

    table = table_with("a", rules=replace(Rules(), locks_deletes=False))
    entry = table.start("a", "b")

    table.delete("a")

    assert table.all == set()
    assert table.state_of(entry) is IN_PROGRESS


def test_an_unknown_segment_cannot_be_deleted():
    table = table_with("a")

    refused("SEGMENT_NOT_FOUND", table.delete, "a nobody", table=table)
