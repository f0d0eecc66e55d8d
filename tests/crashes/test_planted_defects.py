"""Proof that the harness bites: defects planted on purpose, each of which must be found.

A defect replaces one function of the protocol for the length of a test; the
crash matrix and the explorer then have to stumble over it.
"""

import itertools
from dataclasses import replace

import pytest

from crashes.matrix import OPERATIONS, crash_points, recover_and_check
from harness import world
from harness.explorer import random_schedules, schedules
from harness.faults import StoreWrapper
from harness.world import World
from holdfast.errors import HoldfastError
from holdfast.jobs import ingested
from holdfast.model.instant import State
from holdfast.model.names import LEDGER_FOLDER, META_FOLDER, BaseFileName, heartbeat_path, instant_file
from holdfast.services import archive, rollback, undo
from holdfast.services.rollback import Recovery
from holdfast.table import markers, publish
from holdfast.table.view import load_view
from holdfast.timeline.ledger import Aborted
from holdfast.timeline.timeline import Timeline, load_timeline
from holdfast.writes import merge_task, operations, task, transaction
from holdfast.writes.validation import Validation, refuse_if_fenced
from interleavings.scenarios import INGESTING, MANY_WRITERS, SCENARIOS

SEED = 7


def matrix_finds_it(named=""):
    """Whether killing operations, those whose name contains a word, at every step meets a violation."""
    for operation in (o for o in OPERATIONS[1:] if named in o.name):
        try:
            for _, world in crash_points(operation):
                recover_and_check(operation, world)
        except (AssertionError, HoldfastError, FileNotFoundError):
            return True
    return False


def explorer_finds_it(scenarios=SCENARIOS):
    """Whether running the actors in other orders meets a violation."""
    for scenario in scenarios:
        try:
            for _ in schedules(scenario.run, switches=1):
                pass
            for _ in random_schedules(scenario.run, switches=3, count=60, seed=SEED):
                pass
        except (AssertionError, HoldfastError, FileNotFoundError):
            return True
    return False


def interruption_finds_it():
    """Whether a write between another actor's last look and its decision meets a violation."""
    try:
        for scenario in (s for s in SCENARIOS if s.begins_with_a_writer):
            scenario.run_interrupted()
    except (AssertionError, HoldfastError, FileNotFoundError):
        return True
    return False


@pytest.fixture(scope="module", autouse=True)
def counted(request):
    failed_before = request.session.testsfailed
    yield
    planted = sum(item.module is request.module for item in request.session.items)
    found = planted - (request.session.testsfailed - failed_before)
    request.config.summary_lines.append(f"planted defects: {found} of {planted} found")


def test_an_instant_published_before_it_is_decided_is_found(monkeypatch):
    prepared = transaction._prepared

    def publishing(table, request, instant, stats):
        payload = prepared(table, request, instant, stats)
        table.store.create(instant_file(instant, request.action, State.COMPLETED), payload)
        return payload

    monkeypatch.setattr(transaction, "_prepared", publishing)

    assert matrix_finds_it()
    assert explorer_finds_it()


def test_a_rollback_that_does_not_fence_is_found(monkeypatch):
    def unfenced(table, time, action, *, adopt, reason):
        state = table.ledger.read()
        if time in state.committed or time in state.aborted:
            return state
        stated = Aborted(action, adopt or transaction.next_time(table.clock.now_ms(), state.newest), reason)
        object.__setattr__(state, "aborted", {**state.aborted, time: stated})
        return state

    monkeypatch.setattr(rollback, "abort", unfenced)

    assert explorer_finds_it()


def test_instant_files_deleted_first_and_without_a_stored_plan_are_found(monkeypatch):
    def unstored(table, write, aborted):
        return rollback.plan_rollback(table, write)

    def instant_first(table, write, doomed, *, is_revoked):
        for state in (State.INFLIGHT, State.REQUESTED):
            table.store.delete(instant_file(write.time, write.action, state))
        markers.delete_markers(table.store, write.time)
        table.store.delete_all(doomed)
        table.store.delete(heartbeat_path(write.time))

    monkeypatch.setattr(rollback, "_stored_plan", unstored)
    monkeypatch.setattr(rollback, "_execute", instant_first)

    assert matrix_finds_it()


def test_a_decision_written_without_compare_and_set_is_found(monkeypatch):
    class Overwriting(StoreWrapper):
        def create(self, path, content):
            if path.startswith(LEDGER_FOLDER):
                self.inner.put(path, content)
                return True
            return self.inner.create(path, content)

    opened = World.open
    monkeypatch.setattr(World, "open", lambda world: opened(world.on(Overwriting(world.store))))

    assert explorer_finds_it()


def test_a_recovery_that_never_rolls_back_is_found(monkeypatch):
    monkeypatch.setattr(transaction, "recover", lambda table, **_: Recovery((), ()))

    assert matrix_finds_it()


@pytest.mark.parametrize(("module", "operation"), [(task, "bulk insert"), (merge_task, "upsert")])
def test_a_file_written_before_its_marker_is_found(monkeypatch, module, operation):
    withdraw = module.withdraw_if_late

    def marked_late(store, request, stat):
        markers.leave_marker(store, request.instant, stat.path)
        withdraw(store, request, stat)

    monkeypatch.setattr(module, "leave_marker", lambda *_, **__: None)
    monkeypatch.setattr(module, "withdraw_if_late", marked_late)

    assert matrix_finds_it(operation)


def test_a_rollback_that_removes_the_inflight_file_last_is_found(monkeypatch):
    """A task that finishes a file between the two steps would keep it although nothing announces it."""

    def inflight_last(table, write, doomed):
        table.store.delete_all(doomed)
        markers.delete_markers(table.store, write.time)
        table.store.delete(heartbeat_path(write.time))
        for state in (State.INFLIGHT, State.REQUESTED):
            table.store.delete(instant_file(write.time, write.action, state))

    monkeypatch.setattr(rollback, "_execute", inflight_last)

    assert explorer_finds_it()


def test_a_task_that_keeps_a_late_file_is_found(monkeypatch):
    for module in (task, merge_task):
        monkeypatch.setattr(module, "withdraw_if_late", lambda *_: None)

    assert explorer_finds_it()


def test_a_commit_that_names_a_file_that_is_gone_is_found(monkeypatch):
    """Reconciling against the wrong set deletes what the commit names."""
    monkeypatch.setattr(transaction, "unclaimed_files", lambda table, time, *, committed: tuple(committed))

    assert matrix_finds_it()


def test_a_commit_that_is_never_published_by_others_is_found(monkeypatch):
    monkeypatch.setattr(rollback, "publish_decided", lambda *_, **__: False)

    assert matrix_finds_it()


def test_a_new_version_that_bears_the_name_of_an_older_instant_is_found(monkeypatch):
    older = itertools.count(20200101000000000)

    def named_before(file_id, write_token, _):
        return BaseFileName(file_id, write_token, str(next(older)))

    monkeypatch.setattr(merge_task, "BaseFileName", named_before)

    assert matrix_finds_it("upsert")


def test_replaced_file_groups_of_another_snapshot_are_found(monkeypatch):
    def view_before_the_last_commit(table):
        timeline = load_timeline(table.store)
        last = timeline.completed_commits[-1:]
        return load_view(table.store, Timeline(tuple(i for i in timeline.instants if i not in last)))

    monkeypatch.setattr(operations, "_view", view_before_the_last_commit)

    assert matrix_finds_it("overwrite")


def test_a_rollback_that_deletes_every_version_of_a_file_group_is_found(monkeypatch):
    def versions(table, time, *, committed):
        groups = {marker.data_path.partition("_")[0] for marker in markers.read_markers(table.store, time)}
        return [p for p in table.store.paths("", without=META_FOLDER) if p.partition("_")[0] in groups]

    monkeypatch.setattr(rollback, "unclaimed_files", versions)

    assert matrix_finds_it("upsert")


def test_a_write_that_builds_on_what_was_there_before_its_begin_is_found(monkeypatch):
    """What was decided since the recovery must be shown before the file groups are looked at."""
    monkeypatch.setattr(transaction, "shown_timeline", lambda table, _: load_timeline(table.store))

    assert interruption_finds_it()


def test_taking_back_without_looking_at_what_is_decided_and_not_shown_is_found(monkeypatch):
    monkeypatch.setattr(undo, "shown_timeline", lambda table, _: load_timeline(table.store))

    assert interruption_finds_it()


def test_a_commit_that_does_not_look_at_those_since_its_begin_is_found(monkeypatch):
    def only_fenced(validation, state, claim):
        refuse_if_fenced(state, validation.instant)

    monkeypatch.setattr(Validation, "check", only_fenced)

    assert explorer_finds_it(MANY_WRITERS)


def test_a_file_that_is_not_looked_for_among_the_commits_since_begin_is_found(monkeypatch):
    """The two writers are in nobody's way but for the file that both ingest."""

    def without_conflicts(*arguments, **named):
        return replace(ingested.files_origin(*arguments, **named), conflict=lambda _: None)

    monkeypatch.setattr(world, "files_origin", without_conflicts)

    assert explorer_finds_it(INGESTING)


def test_a_file_that_is_not_looked_for_once_the_write_has_begun_is_found(monkeypatch):
    def unchecked(*arguments, **named):
        return replace(ingested.files_origin(*arguments, **named), check=lambda: None)

    monkeypatch.setattr(world, "files_origin", unchecked)

    assert explorer_finds_it(INGESTING)


def test_instants_deleted_before_they_are_archived_are_found(monkeypatch):
    monkeypatch.setattr(archive, "_ensure_archived", lambda table, stored, files: "nowhere")

    assert matrix_finds_it("archive")


def test_archiving_past_a_lease_is_found(monkeypatch):
    monkeypatch.setattr(archive, "_old_leases", lambda table, first_left: [])

    assert explorer_finds_it([s for s in SCENARIOS if s.name == "archive and leased reader"])


def test_a_commit_that_comes_back_after_it_was_taken_back_is_found(monkeypatch):
    monkeypatch.setattr(publish, "withdraw", lambda table, time, action: None)
    monkeypatch.setattr(rollback, "withdraw", lambda table, time, action: None)

    assert matrix_finds_it("undo")


def test_a_commit_that_says_in_place_what_is_not_is_found(monkeypatch):
    monkeypatch.setattr(transaction, "_in_place", lambda request: "true")

    assert matrix_finds_it("stay")


def test_an_archive_that_forgets_what_a_commit_did_not_say_is_found(monkeypatch):
    def every(store, instants):
        return tuple(instant.time for instant in instants)

    monkeypatch.setattr(archive, "leaving_in_place", every)

    assert matrix_finds_it("let records stay")
