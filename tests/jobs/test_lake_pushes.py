"""Pushes are recorded with the lake table, and reverted when their commits are taken back."""

import datetime as dt
import json
import os
from dataclasses import replace

import pytest

from harness.lake_pushes import PushedLake
from holdfast.errors import Conflict, OutcomeUnknown, Refused, StorageUnavailable, TableDamaged
from holdfast.jobs.lake_pushes import plan_reverts, record_push, revert
from holdfast.model.pushes import newest_of_each_place
from holdfast.services.pushes import find_undone_commits, pushes, write_push
from holdfast.storage.local import LocalStore


def _revert_all(lake):
    for plan in plan_reverts(lake.opened):
        revert(lake.opened, plan, to_empty=True)


def test_a_push_is_recorded_with_the_commit_it_came_from(lake):
    entry = lake.commit_and_push()

    [push] = lake.lake.pushes()

    assert (push.instant, push.entry_id, push.table) == (lake.instants[0], entry, lake.served.typed)
    assert push.published_at is not None
    assert (push.segments, push.rows, push.lake) == (1, 2, str(lake.path))


def test_the_record_is_there_before_queries_can_see_the_push(lake):
    lake.commit()
    push = lake.start(lake.instants[0])

    with record_push(lake.opened, push, lake.client):
        [found] = lake.lake.pushes()
        assert found.published_at is None
        assert lake.served.end(push.entry_id).status_code == 200


@pytest.mark.parametrize("error", [Refused("no"), Conflict("no")])
def test_a_push_that_was_not_published_is_not_recorded(lake, error):
    lake.commit()
    push = lake.start(lake.instants[0])

    with pytest.raises(type(error)), record_push(lake.opened, push, lake.client):
        raise error

    assert lake.lake.pushes() == []


@pytest.mark.parametrize("error", [OutcomeUnknown("perhaps"), KeyboardInterrupt()])
def test_a_push_that_may_have_been_published_stays_recorded(lake, error):
    lake.commit()
    push = lake.start(lake.instants[0])

    with pytest.raises(type(error)), record_push(lake.opened, push, lake.client):
        raise error

    assert [one.published_at for one in lake.lake.pushes()] == [None]


def test_a_commit_that_was_taken_back_while_it_was_pushed_is_not_published(lake):
    lake.commit()
    lake.commit()
    push = lake.start(lake.instants[1])
    lake.lake.undo()

    with (
        pytest.raises(Conflict, match="taken back while it was pushed"),
        record_push(lake.opened, push, lake.client),
    ):
        raise AssertionError("nothing may be published")

    assert lake.lake.pushes() == []


def test_a_lake_table_that_may_not_be_written_does_not_stop_a_push(lake):
    class ReadOnly(LocalStore):
        def put(self, path, content):
            raise StorageUnavailable("not permitted", path=path)

    lake.commit()
    push = lake.start(lake.instants[0])

    with record_push(replace(lake.opened, store=ReadOnly(lake.path)), push, lake.client) as warnings:
        assert lake.served.end(push.entry_id).status_code == 200

    assert "cannot tell later" in warnings[0]


def test_records_go_with_their_lineage_entries_but_not_the_one_that_is_served(lake):
    for _ in range(3):
        lake.commit_and_push()
    ghost = replace(lake.lake.pushes()[0], entry_id="gone-from-the-lineage")
    other = replace(ghost, table="another_OFFLINE", entry_id="elsewhere")
    write_push(lake.opened, ghost)
    write_push(lake.opened, other)

    lake.commit_and_push()

    kept = {push.entry_id for push in lake.lake.pushes()}
    assert "gone-from-the-lineage" not in kept
    assert {"elsewhere", lake.entries[-1]} <= kept


def test_no_more_records_are_kept_than_anybody_goes_back(lake):
    lake.commit()
    model = replace(lake.start(lake.instants[0]), is_whole=False)
    for number in range(150):
        published_at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=number)
        write_push(lake.opened, replace(model, entry_id=f"part-{number}", published_at=published_at))

    lake.publish(model)

    assert len(lake.lake.pushes()) == 100
    assert newest_of_each_place(lake.lake.pushes())[0].entry_id == model.entry_id


def test_the_newest_push_of_a_commit_that_is_gone_is_reverted(lake):
    lake.commit_and_push()
    lake.commit_and_push()
    lake.lake.undo()

    [plan] = plan_reverts(lake.opened)
    assert (plan.reverted, lake.served.visible()) == ((lake.entries[1],), {"s2"})
    assert plan.steps.shown["source"]["lake.instant"] == lake.instants[0]
    revert(lake.opened, plan)

    assert lake.served.visible() == {"s1"}
    assert [push.entry_id for push in lake.lake.pushes()] == [lake.entries[0]]
    assert plan_reverts(lake.opened) == []


def test_the_first_push_is_reverted_to_nothing(lake):
    lake.commit()
    lake.commit_and_push()
    lake.lake.undo()

    _revert_all(lake)

    assert lake.served.visible() == set()


def test_pushes_of_several_commits_go_in_one_step_to_the_newest_that_survives(lake):
    for _ in range(4):
        lake.commit_and_push()
    lake.lake.restore(lake.instants[1])

    [plan] = plan_reverts(lake.opened)
    [step] = plan.steps.reverts
    revert(lake.opened, plan)

    assert step.entries == (lake.entries[3], lake.entries[2])
    assert lake.served.visible() == {"s2"}
    newest = lake.served.client.get(f"/segments/{lake.served.name}/lineage/audit").json()["records"][0]
    assert newest["operation"] == "rollback"


def test_a_push_that_somebody_published_meanwhile_is_not_taken_back_with_them(lake):
    for _ in range(4):
        lake.commit_and_push()
    lake.lake.restore(lake.instants[1])
    [plan] = plan_reverts(lake.opened)
    lake.push(lake.instants[1])

    with pytest.raises(Conflict, match="SNAPSHOT_CHANGED"):
        revert(lake.opened, plan)

    assert lake.served.visible() == {"s5"}
    [again] = plan_reverts(lake.opened)
    assert (again.reverted, set(again.steps.left.values())) == ((), {"a later push has replaced it"})


def test_a_push_that_was_reverted_by_hand_is_only_named(lake):
    lake.commit_and_push()
    lake.commit_and_push()
    assert lake.served.revert(lake.entries[1]).status_code == 200
    lake.lake.undo()

    [plan] = plan_reverts(lake.opened)

    assert (plan.reverted, plan.steps.left) == ((), {lake.entries[1]: "it was reverted before"})


def test_a_push_whose_way_back_is_gone_is_left_and_named(tmp_path, running):
    lake = PushedLake(tmp_path, running, retained=2)
    for _ in range(4):
        lake.commit_and_push()
    lake.run_retention()
    lake.lake.restore(lake.instants[0])

    [plan] = plan_reverts(lake.opened)
    revert(lake.opened, plan)

    assert plan.reverted == ()
    assert lake.entries[3] in plan.steps.still_served
    assert "push again" in plan.steps.left[lake.entries[3]]
    assert lake.served.visible() == {"s4"}
    assert lake.entries[3] in {push.entry_id for push in lake.lake.pushes()}


def test_a_push_whose_entry_is_gone_is_known_to_be_served(tmp_path, running):
    lake = PushedLake(tmp_path, running, segments={"replacedSegmentsRetentionPeriod": "0s"})
    lake.commit_and_push()
    lake.commit_and_push()
    lake.run_retention_until(lambda: lake.served.entries() == {})
    lake.lake.undo()

    [plan] = plan_reverts(lake.opened)

    assert plan.steps.still_served == (lake.entries[1],)
    assert "push again" in plan.steps.left[lake.entries[1]]


def test_a_push_that_is_still_open_is_given_up(lake):
    lake.commit_and_push()
    lake.commit()
    push = lake.start(lake.instants[1])
    write_push(lake.opened, push)
    lake.lake.undo()

    _revert_all(lake)

    assert lake.served.entries()[push.entry_id]["state"] == "REVERTED"
    assert lake.served.visible() == {"s1"}


def test_an_open_push_on_top_of_one_that_goes_is_given_up_first(lake):
    lake.commit_and_push()
    lake.commit_and_push()
    again = lake.start(lake.instants[1])
    write_push(lake.opened, again)
    lake.lake.undo()

    _revert_all(lake)

    assert lake.served.visible() == {"s1"}


def test_entries_that_only_the_service_knows_are_found_by_their_source(lake):
    lake.commit_and_push()
    lake.commit_and_push()
    lake.commit_and_push()
    _, middle, *_ = sorted(os.listdir(lake.path / ".hoodie/.holdfast/pushes"), reverse=True)
    os.remove(lake.path / ".hoodie/.holdfast/pushes" / middle)
    lake.lake.restore(lake.instants[0])

    _revert_all(lake)

    assert lake.served.visible() == {"s1"}


def test_a_copy_of_a_lake_table_takes_nothing_back(lake, tmp_path):
    lake.commit()
    lake.commit_and_push()
    [push] = lake.lake.pushes()
    write_push(lake.opened, replace(push, lake="/somewhere/else"))
    lake.lake.undo()

    [plan] = plan_reverts(lake.opened)

    assert (plan.reverted, plan.steps.left) == ((), {push.entry_id: "it was pushed from /somewhere/else"})


def test_a_commit_is_taken_back_if_undone_and_not_if_archived(lake):
    options = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3",
               "hoodie.clean.commits.retained": "1"}  # fmt: skip
    for _ in range(6):
        lake.commit()
    lake.lake.clean(options)
    lake.lake.archive(options)
    lake.lake.undo()
    shown = {instant.time for instant in lake.lake.timeline()}

    assert lake.instants[0] not in shown
    assert find_undone_commits(lake.opened, lake.instants) == {lake.instants[-1]}


def test_a_record_that_cannot_be_read_is_found_and_moved_away(lake):
    lake.commit_and_push()
    [name] = os.listdir(lake.path / ".hoodie/.holdfast/pushes")
    (lake.path / ".hoodie/.holdfast/pushes" / name).write_bytes(b'{"instant": 1')

    with pytest.raises(TableDamaged, match="holdfast repair"):
        pushes(lake.opened)
    report = lake.lake.verify()
    lake.lake.repair(report)

    assert [finding.kind for finding in report.findings] == ["push"]
    assert lake.lake.pushes() == []


def test_verify_names_pushes_of_commits_that_are_gone_and_finds_nothing_wrong(lake):
    lake.commit()
    lake.commit_and_push()
    assert lake.lake.verify().findings == ()
    lake.lake.undo()

    report = lake.lake.verify()

    assert report.is_clean
    assert [(finding.kind, lake.served.typed in finding.detail) for finding in report.findings] == [
        ("push", True)
    ]


def test_writers_cleans_and_archives_leave_the_records_alone(lake):
    lake.commit_and_push()
    for _ in range(4):
        lake.commit()
    lake.lake.clean()
    lake.lake.archive()

    assert [push.entry_id for push in lake.lake.pushes()] == [lake.entries[0]]
    record = next((lake.path / ".hoodie/.holdfast/pushes").iterdir())
    assert json.loads(record.read_text())["instant"] == lake.instants[0]
