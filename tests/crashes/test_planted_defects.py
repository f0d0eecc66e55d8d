"""Proof that the harness bites: defects planted on purpose, each of which must be found.

A defect replaces one function of the protocol for the length of a test; the
crash matrix and the explorer then have to stumble over it.
"""

import itertools
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest

from crashes.matrix import OPERATIONS, crash_points, recover_and_check
from crashes.storage_faults import VERBS, check_what_is_told
from harness import world
from harness.attempts import LateRows, lets_a_task_end
from harness.checker import check_at_rest
from harness.explorer import random_schedules, schedules
from harness.faults import StoreWrapper
from harness.sleepers import sweep_between_a_plan_and_its_decision, wake_while_entries_are_deleted
from harness.world import World, memory_world, rows
from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.errors import HoldfastError
from holdfast.files.merge import open_old_version
from holdfast.jobs import ingested
from holdfast.model.instant import Action, State
from holdfast.model.names import (
    LEDGER_FOLDER,
    META_FOLDER,
    PLANS_FOLDER,
    BaseFileName,
    heartbeat_path,
    instant_file,
)
from holdfast.services import drop, savepoints, sweep
from holdfast.services.archive import archive
from holdfast.services.clean import clean
from holdfast.services.rollback import doomed_files, rollback, undo
from holdfast.services.rollback.record import Removed
from holdfast.services.rollback.rollback import Recovery
from holdfast.table import markers, opened, publish, settled, view
from holdfast.table.log_files import SharedFiles, files_of_write
from holdfast.table.properties_file import show_settings
from holdfast.table.publish import checkpoint_if_due
from holdfast.table.undone import Undone
from holdfast.table.view import load_view
from holdfast.timeline.ledger import Aborted, Ledger
from holdfast.timeline.timeline import Timeline, load_timeline
from holdfast.writes import commit, compact_task, new_versions, operations, plan, task, transaction
from holdfast.writes.read_base import ReadBase
from holdfast.writes.validation import Validation, refuse_if_fenced
from interleavings.scenarios import CREATING, INGESTING, MANY_WRITERS, NAMING, REPEATING, SCENARIOS, UPDATING

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
    build = transaction.build_payload

    def publishing(table, plan, instant, draft):
        payload = build(table, plan, instant, draft)
        table.store.create(instant_file(instant, plan.action, State.COMPLETED), payload)
        return payload

    monkeypatch.setattr(transaction, "build_payload", publishing)

    assert matrix_finds_it()
    assert explorer_finds_it()


def test_a_rollback_that_does_not_fence_is_found(monkeypatch):
    def unfenced(table, write, *, reason):
        state = table.ledger.read()
        if write.time in state.committed or write.time in state.aborted:
            return state
        rollback = write.rollback or transaction.next_instant(table, state.newest)
        stated = Aborted(write.action, rollback, reason)
        object.__setattr__(state, "aborted", {**state.aborted, write.time: stated})
        return state

    monkeypatch.setattr(rollback, "abort", unfenced)

    assert explorer_finds_it()


def test_instant_files_deleted_first_and_without_a_stored_plan_are_found(monkeypatch):
    def unstored(table, write, aborted):
        return rollback.plan_rollback(table, write)

    def instant_first(table, write, aborted, doomed):
        for state in (State.INFLIGHT, State.REQUESTED):
            table.store.delete(instant_file(write.time, write.action, state))
        markers.delete_markers(table.store, write.time)
        table.store.delete_all(doomed.files)
        table.store.delete(heartbeat_path(write.time))
        return Removed(doomed.files)

    monkeypatch.setattr(rollback, "_ensure_plan", unstored)
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


@pytest.mark.parametrize(("module", "operation"), [(task, "bulk insert"), (new_versions, "upsert")])
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


def late_attempt_finds_it(*, before, fails=False):
    """Whether a task that ends late, and keeps its file, meets a violation."""
    table, late = memory_world(), []
    table.create()
    table.insert("old")
    ending = table.on(lets_a_task_end(table.store, late, before=before))
    with suppress(RuntimeError):
        operations.write(
            ending.open(), Operation.BULK_INSERT, LateRows(rows("a"), late, fails), WriteSettings()
        )
    try:
        check_at_rest(table.open())
    except AssertionError:
        return True
    return False


def test_markers_deleted_without_a_second_look_are_found(monkeypatch):
    """A task may have kept a file after the first look, because the commit was not shown yet."""

    def at_once(table, instant, stats):
        markers.delete_markers(table.store, instant)

    monkeypatch.setattr(commit, "_delete_markers", at_once)

    assert late_attempt_finds_it(before="create .hoodie/.holdfast/ledger")


def test_a_rollback_that_forgets_files_marked_after_its_plan_is_found(monkeypatch):
    monkeypatch.setattr(rollback, "files_of_markers", lambda table, time, *, committed: SharedFiles(()))

    assert late_attempt_finds_it(before="rollback.inflight", fails=True)


def test_a_task_that_keeps_a_late_file_is_found(monkeypatch):
    for module in (task, new_versions):
        monkeypatch.setattr(module, "withdraw_if_late", lambda *_: None)

    assert explorer_finds_it()


def test_a_commit_that_names_a_file_that_is_gone_is_found(monkeypatch):
    """Reconciling against the wrong set deletes what the commit names."""
    monkeypatch.setattr(commit, "surplus_files", lambda table, time, *, committed: tuple(committed))

    assert matrix_finds_it()


def test_a_commit_that_is_never_published_by_others_is_found(monkeypatch):
    monkeypatch.setattr(rollback, "publish_decided", lambda *_, **__: False)

    assert matrix_finds_it()


def test_a_new_version_that_bears_the_name_of_an_older_instant_is_found(monkeypatch):
    older = itertools.count(20200101000000000)

    def named_before(file_id, write_token, _):
        return BaseFileName(file_id, write_token, str(next(older)))

    monkeypatch.setattr(new_versions, "BaseFileName", named_before)

    assert matrix_finds_it("upsert")


def test_replaced_file_groups_of_another_snapshot_are_found(monkeypatch):
    def view_before_the_last_commit(table, instant=None):
        timeline = load_timeline(table.store)
        last = timeline.completed_commits[-1:]
        return load_view(table.store, Timeline(tuple(i for i in timeline.instants if i not in last)))

    monkeypatch.setattr(plan, "_base", view_before_the_last_commit)

    assert matrix_finds_it("overwrite")


def test_a_rollback_that_deletes_every_version_of_a_file_group_is_found(monkeypatch):
    def versions(table, time, *, committed):
        groups = {marker.data_path.partition("_")[0] for marker in markers.read_markers(table.store, time)}
        paths = table.store.paths("", without=META_FOLDER)
        return SharedFiles(tuple(p for p in paths if p.partition("_")[0] in groups))

    monkeypatch.setattr(rollback, "files_of_markers", versions)

    assert matrix_finds_it("upsert")


def test_a_write_that_builds_on_what_was_there_before_its_begin_is_found(monkeypatch):
    """What was decided since the recovery must be shown before the file groups are looked at."""
    monkeypatch.setattr(transaction, "load_published_timeline", lambda table, _: load_timeline(table.store))

    assert interruption_finds_it()


def test_taking_back_without_looking_at_what_is_decided_and_not_shown_is_found(monkeypatch):
    monkeypatch.setattr(undo, "load_published_timeline", lambda table, _: load_timeline(table.store))

    assert interruption_finds_it()


def test_a_commit_that_does_not_look_at_those_since_its_begin_is_found(monkeypatch):
    def only_fenced(validation, state, claim):
        refuse_if_fenced(state, validation.instant)

    monkeypatch.setattr(Validation, "check", only_fenced)

    assert explorer_finds_it(MANY_WRITERS)


def test_a_name_for_a_snapshot_that_an_older_write_may_still_change_is_found(monkeypatch):
    monkeypatch.setattr(settled, "find_undecided_writes", lambda *_: [])

    for scenario in NAMING:
        assert explorer_finds_it([scenario])


def test_a_table_that_is_there_before_its_first_commit_is_found(monkeypatch):
    build = transaction.build_payload

    def showing(table, plan, instant, draft):
        if table.is_new:
            show_settings(table.store, table.settings.properties, now_ms=0)
        return build(table, plan, instant, draft)

    monkeypatch.setattr(transaction, "build_payload", showing)

    assert matrix_finds_it("first write")


def test_a_first_write_that_does_not_look_for_a_table_in_its_slot_is_found(monkeypatch):
    monkeypatch.setattr(commit, "has_settings", lambda _: False)

    assert explorer_finds_it(CREATING)


def test_a_table_created_beside_a_first_write_without_its_notice_is_found(monkeypatch):
    monkeypatch.setattr(opened, "_stop_first_write", lambda _: None)

    assert explorer_finds_it(CREATING)


def test_a_number_that_is_not_looked_for_in_the_slot_is_found(monkeypatch):
    """Neither writer is in the other's way but for the number."""
    monkeypatch.setattr(commit, "refuse_repeat", lambda *_: None)

    assert explorer_finds_it(REPEATING)


@pytest.mark.parametrize("forgotten", ["check", "conflict"])
def test_a_statement_that_forgets_what_it_read_is_found(monkeypatch, forgotten):
    """The first is what happened before its BEGIN, the second what happened after it."""
    anything = {"check": lambda: None, "conflict": lambda _: None}[forgotten]
    whole = ReadBase.origin
    monkeypatch.setattr(ReadBase, "origin", lambda base: replace(whole(base), **{forgotten: anything}))

    assert explorer_finds_it(UPDATING)


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


_LATE_TASKS = [scenario for scenario in SCENARIOS if "late task" in scenario.name]


@pytest.mark.parametrize("scenario", _LATE_TASKS, ids=lambda scenario: scenario.name)
def test_a_reader_that_forgets_what_was_taken_back_and_archived_is_found(monkeypatch, scenario):
    monkeypatch.setattr(view, "read_undone", lambda store: Undone())

    assert explorer_finds_it([scenario])


def test_an_archiver_that_keeps_no_record_of_what_was_taken_back_is_found(monkeypatch):
    monkeypatch.setattr(archive, "add_to_undone", lambda store, stretches, aborted: None)

    assert matrix_finds_it("archive restores alone")


def test_a_record_of_what_was_taken_back_that_comes_after_the_deletions_is_found(monkeypatch):
    """The archiver may die in between, and the next one finds nothing left to do."""
    carry_out, add = archive._carry_out_newest, archive.add_to_undone

    def recorded_last(table, **how):
        late = []
        with monkeypatch.context() as swapped:
            swapped.setattr(archive, "add_to_undone", lambda *said: late.append(said))
            done = carry_out(table, **how)
        for said in late:
            add(*said)
        return done

    monkeypatch.setattr(archive, "_carry_out_newest", recorded_last)

    assert matrix_finds_it("archive restores alone")


def test_restores_that_are_deleted_and_not_archived_are_found(monkeypatch):
    ensure = archive._ensure_in_archive

    def without_restores(table, stored, keys, files, name):
        is_of_restores = any(action is Action.RESTORE for _, action in keys)
        return "nowhere" if is_of_restores else ensure(table, stored, keys, files, name)

    monkeypatch.setattr(archive, "_ensure_in_archive", without_restores)

    assert matrix_finds_it("archive restores alone")


def test_a_checkpoint_that_forgets_what_was_aborted_is_found(monkeypatch):
    monkeypatch.setattr(Ledger, "_keep_aborts", lambda ledger, state, settled: settled)

    assert matrix_finds_it("checkpoints")


def test_a_checkpoint_of_commits_that_are_not_shown_is_found(monkeypatch):
    published = publish.publish_decided

    def checkpointed_first(table, state, timeline):
        checkpoint_if_due(table, state)
        return published(table, table.ledger.read(), timeline)

    monkeypatch.setattr(rollback, "publish_decided", checkpointed_first)

    assert matrix_finds_it("checkpoints after an unpublished one")


def test_aborts_that_are_settled_before_they_are_carried_out_are_found(monkeypatch):
    monkeypatch.setattr(publish, "_aborts_to_forget", lambda timeline, state: frozenset(state.aborted))

    assert matrix_finds_it("checkpoints")


def test_archiving_past_a_lease_is_found(monkeypatch):
    monkeypatch.setattr(archive, "_old_leases", lambda table, first_left: [])

    assert explorer_finds_it([s for s in SCENARIOS if s.name == "archive and leased reader"])


def test_a_commit_that_comes_back_after_it_was_taken_back_is_found(monkeypatch):
    monkeypatch.setattr(publish, "withdraw", lambda table, time, action: None)
    monkeypatch.setattr(rollback, "withdraw", lambda table, time, action: None)

    assert matrix_finds_it("undo")


def test_a_deletion_that_does_not_look_for_the_same_savepoint_again_is_found(monkeypatch):
    settle = publish.settle_savepoint

    def hidden(table, time, slot):
        if slot is not None:
            return settle(table, time, slot)
        for reached in (State.COMPLETED, State.INFLIGHT):
            table.store.delete(instant_file(time, Action.SAVEPOINT, reached))
        return None

    monkeypatch.setattr(savepoints, "settle_savepoint", hidden)

    assert explorer_finds_it([s for s in SCENARIOS if "deletion of a savepoint" in s.name])


def test_a_savepoint_that_only_the_timeline_knows_is_found(monkeypatch):
    """Whoever deleted it is about to remove it; the ledger has to know that somebody wants it again."""
    metadata_shown = savepoints._metadata_shown

    def undecided(table, commit, wanted):
        return metadata_shown(table, load_timeline(table.store), commit.time) or decide(table, commit, wanted)

    decide = savepoints._decide
    monkeypatch.setattr(savepoints, "_decide", undecided)

    assert explorer_finds_it([s for s in SCENARIOS if "deletion of a savepoint" in s.name])


_DECIDING = (
    (undo, "undo an upsert"),
    (savepoints, "savepoint"),
    (clean, "clean by versions"),
    (drop, "drop"),
    (opened, "create a table where a first write died"),
)


@pytest.mark.parametrize(("module", "named"), _DECIDING, ids=[name for _, name in _DECIDING])
def test_a_verb_that_says_after_its_decision_that_nothing_was_changed_is_found(monkeypatch, module, named):
    monkeypatch.setattr(module, "after_decision", lambda *_, **__: nullcontext())

    with pytest.raises(AssertionError, match="the store failed on purpose"):
        check_what_is_told(next(verb for verb in VERBS if verb.name == named), every=1)


def test_a_commit_that_says_in_place_what_is_not_is_found(monkeypatch):
    monkeypatch.setattr(commit, "_in_place", lambda plan: "true")

    assert matrix_finds_it("stay")


def test_an_archive_that_forgets_what_a_commit_did_not_say_is_found(monkeypatch):
    def every(store, instants):
        return tuple(instant.time for instant in instants)

    monkeypatch.setattr(archive, "leaving_in_place", every)

    assert matrix_finds_it("let records stay")


def test_a_restore_that_does_not_bring_its_archived_commit_back_is_found(monkeypatch):
    monkeypatch.setattr(publish, "_bring_back", lambda table, state, timeline, ghosts: False)

    assert matrix_finds_it("restore to an archived savepoint")


def test_an_archiver_that_does_not_look_for_a_restore_after_its_deletions_is_found(monkeypatch):
    monkeypatch.setattr(archive, "publish_decided", lambda table, state, timeline: False)

    assert explorer_finds_it([s for s in SCENARIOS if s.name == "archive and restore to a savepoint"])


def test_a_floor_that_is_raised_after_the_entries_are_deleted_is_found(monkeypatch):
    raise_floor, trim = Ledger._raise_floor, Ledger._trim

    def deleted_first(ledger, state):
        floors = []
        with monkeypatch.context() as late:
            late.setattr(Ledger, "_raise_floor", lambda _, slot: floors.append(slot))
            trim(ledger, state)
        for slot in floors:
            raise_floor(ledger, slot)

    monkeypatch.setattr(Ledger, "_trim", deleted_first)

    with pytest.raises(AssertionError, match="lost in a hole"):
        wake_while_entries_are_deleted()


def test_plans_that_are_swept_although_they_may_be_decided_on_are_found(monkeypatch):
    def swept(table):
        table.store.delete_all(table.store.paths(PLANS_FOLDER))

    monkeypatch.setattr(clean, "_sweep_plans", swept)

    with pytest.raises(AssertionError, match="swept"):
        sweep_between_a_plan_and_its_decision()


def test_a_compaction_that_leaves_log_files_out_is_found(monkeypatch):
    # hudi 10803, 7969: rows were gone after a compaction.
    def base_alone(store, group, _):
        return open_old_version(store, group.path)

    monkeypatch.setattr(compact_task, "open_group", base_alone)

    assert matrix_finds_it("compact")


def test_a_rollback_that_leaves_log_files_is_found(monkeypatch):
    def base_files(store, named, time):
        found = files_of_write(store, named, time)
        return SharedFiles(tuple(path for path in found.own if ".log." not in path), found.shared)

    for module in (doomed_files, rollback, sweep):
        monkeypatch.setattr(module, "files_of_write", base_files)

    assert matrix_finds_it("roll back a dead log file")


def test_an_undo_of_a_compaction_that_leaves_its_plan_is_found(monkeypatch):
    monkeypatch.setattr(rollback, "forget_plan", lambda *_: None)
    monkeypatch.setattr(rollback, "forget_left_plans", lambda *_: None)  # The next operation would do it.

    assert matrix_finds_it("undo a compaction")
