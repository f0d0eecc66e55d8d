"""Which pushes are taken back when commits are gone: decided without a service."""

import pytest

from holdfast.jobs.revert_steps import Revert, plan_steps


def entry(state, segments_from, segments_to, commit="good"):
    return {
        "state": state, "segmentsFrom": segments_from, "segmentsTo": segments_to, "source": {"commit": commit}
    }  # fmt: skip


def snapshot(position, epoch, steps, *, segments=("x",), commit="good"):
    return {
        "isCurrent": position == 0, "epoch": epoch, "steps": steps, "segments": segments,
        "source": {"commit": commit},
    }  # fmt: skip


def is_gone(_entry_id, source):
    return source.get("commit") == "gone"


def refreshed(*commits):
    """Pushes of the whole table, e1 first, and all their snapshots, newest first."""
    lineage = {
        f"e{number}": entry("COMPLETED", [f"s{number - 1}"], [f"s{number}"], commit)
        for number, commit in enumerate(commits, 1)
    }
    newest_first = list(lineage)[::-1]
    snapshots = [
        snapshot(position, 10 - position, newest_first[:position], commit=commit)
        for position, commit in enumerate((*commits[::-1], "before"))
    ]
    return lineage, snapshots


def test_nothing_is_done_about_commits_that_are_there():
    steps = plan_steps(*refreshed("good", "good"), is_gone)

    assert (steps.reverts, steps.left, steps.shown) == ((), {}, None)


def test_the_newest_push_is_reverted():
    steps = plan_steps(*refreshed("good", "gone"), is_gone)

    assert steps.reverts == (Revert(entries=("e2",)),)
    assert steps.shown["source"] == {"commit": "good"}


def test_several_go_at_once_to_the_newest_snapshot_that_survives():
    steps = plan_steps(*refreshed("good", "gone", "gone"), is_gone)

    assert steps.reverts == (Revert(entries=("e3", "e2"), to_epoch=8),)


def test_what_a_later_push_replaced_is_left():
    steps = plan_steps(*refreshed("good", "gone", "good"), is_gone)

    assert (steps.reverts, steps.left) == ((), {"e2": "a later push has replaced it"})
    assert steps.still_served == ()


def test_without_a_snapshot_that_survives_nothing_is_done():
    lineage, snapshots = refreshed("good", "gone", "gone")

    steps = plan_steps(lineage, snapshots[:2], is_gone)

    assert steps.reverts == ()
    assert set(steps.still_served) == {"e3", "e2"}


def test_a_snapshot_whose_own_push_is_no_longer_listed_counts_by_its_source():
    lineage, snapshots = refreshed("gone", "gone")
    del lineage["e1"]

    steps = plan_steps(lineage, snapshots[:2], is_gone, ["e1", "e2"])

    assert steps.reverts == ()
    assert "is gone, too" in steps.left["e2"]


@pytest.mark.parametrize(("commit", "is_served"), [("gone", True), ("good", False)])
def test_an_entry_that_is_no_longer_listed_is_served_if_its_rows_are(commit, is_served):
    steps = plan_steps({}, [snapshot(0, 5, [], commit=commit)], is_gone, ["e1"])

    assert steps.reverts == ()
    assert steps.still_served == (("e1",) if is_served else ())


def test_an_open_push_goes_first():
    lineage, snapshots = refreshed("good", "gone")
    lineage["e3"] = entry("IN_PROGRESS", ["s2"], ["s3"], "gone")

    steps = plan_steps(lineage, snapshots, is_gone)

    assert steps.reverts == (Revert(entries=("e3",), is_open=True), Revert(entries=("e2",)))


def test_what_was_reverted_is_only_named():
    lineage, snapshots = refreshed("good")
    lineage["e2"] = entry("REVERTED", ["s1"], ["s2"], "gone")

    steps = plan_steps(lineage, snapshots, is_gone)

    assert (steps.reverts, steps.left) == ((), {"e2": "it was reverted before"})


def test_parts_of_a_table_are_reverted_each_by_itself():
    lineage = {
        "monday": entry("COMPLETED", [], ["m1"], "gone"),
        "tuesday": entry("COMPLETED", [], ["t1"], "good"),
        "monday-again": entry("COMPLETED", ["m1"], ["m2"], "gone"),
        "wednesday": entry("COMPLETED", [], ["w1"], "good"),
    }

    steps = plan_steps(lineage, [snapshot(0, 9, [])], is_gone)

    assert steps.reverts == (Revert(entries=("monday-again",)), Revert(entries=("monday",)))
