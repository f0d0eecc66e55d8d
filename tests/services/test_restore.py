"""Restore: the whole table goes back to a commit, and that is proven."""

import datetime as dt
import io
import json
from dataclasses import replace

import fastavro
import pytest

import holdfast
from crashes.matrix import Operation, Start, crash_points
from harness.checker import check_at_rest, visible_rows
from harness.faults import InterruptedStore, StoreWrapper
from harness.foreign_cleans import FOREIGN_CLEAN, clean_by_another
from harness.hudi_reader import check_alike, copy_to_disk, hudi_rows, hudi_snapshot
from harness.world import SimulatedHost, memory_world, rows
from holdfast.config.choices import FailedWritesPolicy
from holdfast.config.write import WriteSettings
from holdfast.errors import (
    Conflict,
    Fenced,
    OutcomeUnknown,
    Refused,
    SnapshotExpired,
    StorageUnavailable,
    TableDamaged,
    UnknownInstant,
    WriterActive,
)
from holdfast.format.avro import encode_container
from holdfast.format.commits import inflight_metadata
from holdfast.format.replace_requests import encode_replace_request
from holdfast.format.restores import decode_restore_metadata, decode_restore_plan
from holdfast.format.rollbacks import RollbackPlan, RolledBackInstant, encode_rollback_plan
from holdfast.host import Liveness
from holdfast.model.instant import COMMIT_ACTIONS, Action, InstantTime, State, moment_of
from holdfast.model.names import LEDGER_FOLDER, instant_file
from holdfast.services.restore.plan import plan_restore
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint
from holdfast.table.pending import pending_restore
from holdfast.timeline.timeline import load_timeline

SHARED = WriteSettings(failed_writes_policy=FailedWritesPolicy.LAZY)

FIRST = frozenset({("a", "paris", 1.0), ("b", "rome", 1.0)})
SECOND = frozenset({("a", "paris", 5.0), ("b", "rome", 1.0)})
THIRD = frozenset({("z", "paris", 1.0), ("b", "rome", 1.0)})
FOURTH = THIRD | {("c", "oslo", 1.0)}
STATES = (FIRST, SECOND, THIRD, FOURTH)


def _table():
    """Four commits: two partitions, an update, an overwritten partition, a third partition."""
    world = memory_world()
    world.create()
    world.insert("a", "b")
    world.write("upsert", rows("a", fare=5.0))
    world.write("insert_overwrite", rows("z"))
    world.insert("c", city="oslo")
    return world


@pytest.fixture
def world():
    return _table()


def _instants(world):
    return [(instant.time, instant.action) for instant in load_timeline(world.store).instants]


def _dead_insert(world, settings=None):
    write = rows("x", "y")
    world.die_after(lambda world: world.write("insert", write, settings or WriteSettings()), last="upload")
    return load_timeline(world.store).pending_writes[-1].time


@pytest.mark.parametrize("number", range(4))
def test_the_table_is_afterwards_what_it_was_then(world, number, tmp_path):
    times = world.commit_times()

    report = restore(world.open(), times[number])

    check_at_rest(world.open())
    assert report.target == times[number]
    assert [one.rolled_back for one in report.rolled_back] == times[:number:-1]
    assert visible_rows(world.open()) == STATES[number]
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == STATES[number]
    assert world.commit_times() == times[: number + 1]


def test_only_the_restore_is_left_on_the_timeline(world):
    first, *_ = world.commit_times()
    create_savepoint(world.open(), first)
    clean_by_another(world)

    report = restore(world.open(), first)

    assert set(_instants(world)) == {
        (first, Action.COMMIT),
        (first, Action.SAVEPOINT),
        (FOREIGN_CLEAN, Action.CLEAN),
        (report.instant, Action.RESTORE),
    }


def test_the_restore_is_on_record(world):
    _, second, third, fourth = world.commit_times()

    report = restore(world.open(), second)

    def stored(state):
        return world.store.read(instant_file(report.instant, Action.RESTORE, state))

    plan = decode_restore_plan(stored(State.REQUESTED))
    metadata = decode_restore_metadata(stored(State.COMPLETED))
    assert plan.savepoint == second
    assert [(one.time, one.action) for one in plan.instants] == [(fourth, "commit"), (third, "replacecommit")]
    assert metadata.start_time == report.instant
    assert metadata.commits == (fourth, third)
    assert metadata.instants == plan.instants
    assert {time: found[0].total_files_deleted for time, found in metadata.rollbacks.items()} == {
        fourth: 1,
        third: 1,
    }


def test_a_restore_to_the_newest_commit_changes_nothing(world):
    paths = world.store.paths("")

    report = restore(world.open(), world.commit_times()[-1])

    assert (report.instant, report.rolled_back) == (None, ())
    assert world.store.paths("") == paths


def test_a_date_means_the_newest_commit_at_or_before_it(world):
    _, second, third, _ = world.commit_times()

    report = restore(world.open(), moment_of(third, dt.UTC) - dt.timedelta(milliseconds=1))

    assert report.target == second
    assert visible_rows(world.open()) == SECOND


@pytest.mark.parametrize("to", ["20230101000000000", "2023-01-01", "20231114221320999"])
def test_what_is_no_commit_is_refused(world, to):
    with pytest.raises(UnknownInstant):
        restore(world.open(), to)
    assert visible_rows(world.open()) == FOURTH


def test_the_plan_says_what_would_vanish_and_changes_nothing(world):
    times = world.commit_times()
    failed = _dead_insert(world)
    paths = world.store.paths("")

    plan = plan_restore(world.open(), times[1])

    assert world.store.paths("") == paths
    assert plan.target == times[1]
    assert [(one.instant, one.is_committed, one.records, one.files) for one in plan.instants] == [
        (failed, False, 0, 2),
        (times[3], True, 1, 1),
        (times[2], True, 1, 1),
    ]
    doomed = [path for one in plan.instants for path in world.files_of(one.instant)]
    assert (plan.files, plan.size_bytes) == (4, sum(world.store.stat(path).size for path in doomed))

    report = restore(world.open(), times[1])

    assert [one.rolled_back for one in report.rolled_back] == [one.instant for one in plan.instants]
    assert sorted(path for one in report.rolled_back for path in one.deleted) == sorted(doomed)


def test_writes_go_on_after_a_restore(world, tmp_path):
    restore(world.open(), world.commit_times()[0])
    world.write("upsert", rows("a", "n", fare=8.0))

    check_at_rest(world.open())
    assert visible_rows(world.open()) == {("a", "paris", 8.0), ("b", "rome", 1.0), ("n", "rome", 8.0)}
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == visible_rows(world.open())


def test_a_second_restore_to_an_older_commit_works_right_after_the_first(world, tmp_path):
    first, _, third, _ = world.commit_times()

    restore(world.open(), third)
    restore(world.open(), first)

    check_at_rest(world.open())
    assert visible_rows(world.open()) == FIRST
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == FIRST


def test_a_restore_after_writes_after_a_restore_works(world):
    first, second, *_ = world.commit_times()
    restore(world.open(), second)
    commit = world.insert("n")
    world.insert("m")

    restore(world.open(), commit.instant)
    check_at_rest(world.open())
    assert visible_rows(world.open()) == SECOND | {("n", "paris", 1.0)}
    restore(world.open(), first)
    check_at_rest(world.open())
    assert visible_rows(world.open()) == FIRST


def test_rollbacks_after_the_target_leave_the_timeline_and_stay_on_record(world):
    second = world.commit_times()[1]
    undone = undo(world.open()).rolled_back
    failed = _dead_insert(world)
    recover(world.open())

    report = restore(world.open(), second)

    check_at_rest(world.open())
    assert Action.ROLLBACK not in {action for _, action in _instants(world)}
    done = world.store.read(instant_file(report.instant, Action.RESTORE, State.COMPLETED))
    assert {undone, failed} < set(decode_restore_metadata(done).commits)
    recover(world.open())
    world.insert("n")
    assert Action.ROLLBACK not in {action for _, action in _instants(world)}


def test_writes_that_did_not_finish_are_taken_back_too(world):
    first, *_ = world.commit_times()
    failed = _dead_insert(world)

    report = restore(world.open(), first)

    check_at_rest(world.open())
    assert report.rolled_back[0].rolled_back == failed
    assert world.files_of(failed) == []


def test_a_rollback_that_was_begun_is_finished_by_the_restore(world):
    first, *_ = world.commit_times()
    failed = _dead_insert(world)
    world.die_after(lambda world: recover(world.open()), last="delete city=paris")

    restore(world.open(), first)

    check_at_rest(world.open())
    assert world.files_of(failed) == []
    assert visible_rows(world.open()) == FIRST


def test_a_commit_that_was_decided_and_not_shown_is_taken_back(world):
    first, *_ = world.commit_times()
    world.die_after(lambda world: world.insert("x", "y"), last="ledger")
    plan = plan_restore(world.open(), first)

    report = restore(world.open(), first)

    check_at_rest(world.open())
    assert [one.instant for one in plan.instants] == [one.rolled_back for one in report.rolled_back]
    assert plan.instants[0].is_committed
    assert visible_rows(world.open()) == FIRST


def test_pending_clustering_of_another_program_goes_first(world):
    first, *_, fourth = world.commit_times()
    clustering, write = InstantTime("20231114221320700"), InstantTime("20231114221320800")
    schema = json.loads(fastavro.reader(io.BytesIO(encode_replace_request())).metadata["avro.schema"])
    request = encode_container(schema, {"operationType": "CLUSTER"})
    world.store.create(instant_file(clustering, Action.REPLACECOMMIT, State.REQUESTED), request)
    world.store.create(instant_file(write, Action.COMMIT, State.REQUESTED), b"")
    world.store.create(instant_file(write, Action.COMMIT, State.INFLIGHT), inflight_metadata("UPSERT"))

    report = restore(world.open(), first)

    taken_back = [one.rolled_back for one in report.rolled_back]
    assert taken_back[:3] == [clustering, write, fourth]
    check_at_rest(world.open())


def test_a_dead_write_older_than_the_target_is_taken_back(world):
    """I11: it could still be committed if it were not dead after all."""
    failed = _dead_insert(world, SHARED)
    elsewhere = replace(world, host=SimulatedHost(actor=1, others=Liveness.UNKNOWN))
    target = elsewhere.write("bulk_insert", rows("n"), SHARED).instant
    assert failed < target

    report = restore(world.open(), target)

    check_at_rest(world.open())
    assert [one.rolled_back for one in report.rolled_back] == [failed]
    assert visible_rows(world.open()) == FOURTH | {("n", "paris", 1.0)}


def test_rollbacks_of_another_program_after_the_target_leave_the_timeline(world):
    first, *_ = world.commit_times()
    theirs = InstantTime("20231114221320600")
    plan = encode_rollback_plan(
        RollbackPlan(RolledBackInstant(InstantTime("20231114221320500"), Action.COMMIT), ())
    )
    world.store.create(instant_file(theirs, Action.ROLLBACK, State.REQUESTED), plan)
    world.store.create(instant_file(theirs, Action.ROLLBACK, State.INFLIGHT), b"")

    restore(world.open(), first)

    check_at_rest(world.open())
    assert theirs not in {time for time, _ in _instants(world)}


def test_a_running_write_is_refused_and_named(world):
    first, *_ = world.commit_times()
    failed = _dead_insert(world)
    others = replace(world, host=SimulatedHost(actor=1, others=Liveness.ALIVE))

    with pytest.raises(WriterActive) as refusal:
        restore(others.open(), first)
    assert refusal.value.facts["instant"] == failed
    assert visible_rows(world.open()) == FOURTH


@pytest.mark.parametrize("settings", [WriteSettings(), SHARED], ids=["alone", "shared"])
def test_a_write_of_another_machine_is_running_until_its_heartbeat_has_expired(world, settings):
    first, *_ = world.commit_times()
    _dead_insert(world, settings)
    elsewhere = replace(world, host=SimulatedHost(actor=1, others=Liveness.UNKNOWN))

    with pytest.raises(WriterActive):
        restore(elsewhere.open(), first)
    world.clock.now += 10 * 60 * 1000
    restore(elsewhere.open(), first)
    check_at_rest(world.open())
    assert visible_rows(world.open()) == FIRST


def test_a_write_that_begins_while_the_restore_is_decided_is_not_run_over(world):
    first, *_ = world.commit_times()
    others = replace(world, host=SimulatedHost(actor=1, others=Liveness.ALIVE))
    interrupted = InterruptedStore(world.store, LEDGER_FOLDER, lambda: _dead_insert(world))

    with pytest.raises(WriterActive):
        restore(others.on(interrupted).open(), first)
    assert visible_rows(world.open()) == FOURTH


def test_a_commit_that_lands_while_the_restore_is_decided_is_taken_back(world):
    first, *_ = world.commit_times()
    interrupted = InterruptedStore(world.store, LEDGER_FOLDER, lambda: world.insert("late"))

    restore(world.on(interrupted).open(), first)

    check_at_rest(world.open())
    assert visible_rows(world.open()) == FIRST


def test_a_write_that_began_before_the_restore_cannot_be_committed_after_it(world):
    """I11, whatever made the restore believe that its writer was gone."""
    first, *_ = world.commit_times()
    uploaded = []

    class Restored(StoreWrapper):
        """The table is restored between the write's last file and its COMMIT."""

        def _change(self, verb, path, act):
            done = act()
            if verb == "upload" and not uploaded:
                uploaded.append(path)
                restore(world.open(), first)
            return done

    with pytest.raises((Fenced, Conflict)):
        world.on(Restored(world.store)).insert("late", city="paris")
    recover(world.open())
    check_at_rest(world.open())
    assert visible_rows(world.open()) == FIRST


def test_younger_savepoints_are_refused_and_named(world):
    first, second, _, fourth = world.commit_times()
    create_savepoint(world.open(), second)
    create_savepoint(world.open(), fourth)

    with pytest.raises(Refused, match=f"{second}, {fourth}"):
        restore(world.open(), first)
    with pytest.raises(Refused, match=f"{second}, {fourth}"):
        plan_restore(world.open(), first)
    delete_savepoint(world.open(), fourth)
    restore(world.open(), second)
    check_at_rest(world.open())
    assert visible_rows(world.open()) == SECOND


def test_a_commit_whose_files_were_cleaned_is_refused_and_the_nearest_whole_one_named(world):
    first, second, *_ = world.commit_times()
    clean_by_another(world, *[path for path in world.files_of(first) if "paris" in path])

    for act in (restore, plan_restore):
        with pytest.raises(SnapshotExpired, match=FOREIGN_CLEAN) as refusal:
            act(world.open(), first)
        assert second in refusal.value.hint
        assert "city=paris" in str(refusal.value.facts["file"])
    assert visible_rows(world.open()) == FOURTH
    restore(world.open(), second)
    assert visible_rows(world.open()) == SECOND


def test_a_commit_whose_file_is_missing_without_a_clean_is_damage(world):
    first, *_ = world.commit_times()
    world.store.delete(world.files_of(first)[0])

    with pytest.raises(TableDamaged):
        restore(world.open(), first)


def test_a_pending_clean_of_files_of_the_target_is_refused(world):
    first, second, *_ = world.commit_times()
    superseded = [path for path in world.files_of(first) if "paris" in path]
    clean_by_another(world, *superseded, state=State.REQUESTED)

    for act in (restore, plan_restore):
        with pytest.raises(Refused, match="clean that is not finished deletes a file"):
            act(world.open(), first)
    restore(world.open(), second)
    assert visible_rows(world.open()) == SECOND


def test_a_clean_between_the_look_at_the_files_and_the_decision_is_noticed(world):
    first, *_ = world.commit_times()
    doomed = world.files_of(first)
    interrupted = InterruptedStore(world.store, LEDGER_FOLDER, lambda: clean_by_another(world, *doomed))
    # Somebody else takes the slot, so it is decided again.
    interrupted = InterruptedStore(interrupted, LEDGER_FOLDER, lambda: create_savepoint(world.open(), first))

    with pytest.raises(SnapshotExpired, match=FOREIGN_CLEAN):
        restore(world.on(interrupted).open(), first)


def test_while_another_program_restores_nothing_is_done(world):
    theirs = InstantTime("20231114221320900")
    world.store.create(instant_file(theirs, Action.RESTORE, State.REQUESTED), b"plan")

    with pytest.raises(Refused, match=theirs):
        restore(world.open(), world.commit_times()[0])


def test_while_a_restore_is_pending_another_target_is_refused_and_both_are_named(world):
    first, second, third, _ = world.commit_times()
    world.die_after(lambda world: restore(world.open(), second), last="delete city=paris")

    for other in (first, third):
        with pytest.raises(Refused, match="not finished") as refusal:
            restore(world.open(), other)
        assert (refusal.value.facts["to"], refusal.value.facts["asked"]) == (second, other)
    restore(world.open(), second)
    restore(world.open(), first)
    check_at_rest(world.open())
    assert visible_rows(world.open()) == FIRST


def test_a_pending_restore_is_planned_as_what_it_resumes(world):
    second, third, fourth = world.commit_times()[1:]
    world.die_after(lambda world: restore(world.open(), second), last="delete city=paris")

    plan = plan_restore(world.open(), second)

    assert plan.resumes == pending_restore(load_timeline(world.store), world.open().ledger.read()).instant
    assert [one.instant for one in plan.instants] == [fourth, third]


def test_files_that_a_task_finishes_late_do_not_stop_the_restore(world):
    first, *_, fourth = world.commit_times()
    [path] = world.files_of(fourth)
    late = path.replace("-0_", "-9_")

    class Late(StoreWrapper):
        """Somebody finishes a file of a commit that has just been removed."""

        def delete(self, path):
            super().delete(path)
            if path == instant_file(fourth, Action.COMMIT, State.REQUESTED):
                self.inner.create(late, b"late")

    restore(world.on(Late(world.store)).open(), first)

    check_at_rest(world.open())
    assert world.store.stat(late) is None


class Keeping(StoreWrapper):
    """Says that it has deleted a file, and keeps it."""

    def __init__(self, inner, kept):
        super().__init__(inner)
        self._kept = kept

    def delete(self, path):
        if path != self._kept:
            super().delete(path)


def test_a_restore_that_leaves_a_file_behind_does_not_complete(world):
    first, *_, fourth = world.commit_times()
    [kept] = world.files_of(fourth)

    with pytest.raises(TableDamaged, match=kept):
        restore(world.on(Keeping(world.store, kept)).open(), first)
    with pytest.raises(Refused, match="restore of this table is not finished"):
        world.insert("n")
    restore(world.open(), first)
    check_at_rest(world.open())
    assert visible_rows(world.open()) == FIRST


def test_a_restore_that_leaves_a_commit_visible_does_not_complete(world):
    first, *_, fourth = world.commit_times()
    kept = instant_file(fourth, Action.COMMIT, State.COMPLETED)

    with pytest.raises(TableDamaged, match="newest commit is another one"):
        restore(world.on(Keeping(world.store, kept)).open(), first)
    restore(world.open(), first)
    check_at_rest(world.open())


def test_a_restore_proves_the_length_of_every_file(world):
    first, *_ = world.commit_times()
    [path, _] = world.files_of(first)
    world.store.put(path, b"short")

    with pytest.raises(TableDamaged, match="not as long as its commit says"):
        restore(world.open(), first)


def test_a_storage_error_leaves_the_restore_to_be_resumed(world):
    first, *_ = world.commit_times()

    class Failing(StoreWrapper):
        def walk(self, folder):
            raise StorageUnavailable("the folder cannot be listed", path=folder)

    with pytest.raises(OutcomeUnknown, match="finish it: holdfast restore"):
        restore(world.on(Failing(world.store)).open(), first)
    with pytest.raises(Refused):
        world.insert("n")
    report = restore(world.open(), first)
    assert len(report.rolled_back) == 3
    check_at_rest(world.open())


def test_a_restore_that_somebody_else_finishes_meanwhile_is_finished(world):
    first, *_ = world.commit_times()
    slower = InterruptedStore(world.store, ".hoodie/2", lambda: _finish_and_write(world, first))

    restore(world.on(slower).open(), first)

    check_at_rest(world.open())
    assert visible_rows(world.open()) == FIRST | {("n", "paris", 1.0)}


def _finish_and_write(world, to):
    restore(world.open(), to)
    world.insert("n")


def _eventful_table():
    """As `_table`, with an undone commit and a dead write."""
    world = _table()
    world.insert("u")
    undo(world.open())
    _dead_insert(world)
    return world


def _to_second(world):
    return restore(world.open(), world.commit_times()[1])


RESTORE = Operation("restore", _to_second, Start(_eventful_table, FOURTH, FOURTH), SECOND)


def test_a_restore_that_dies_at_any_step_is_finished_by_the_same_call(tmp_path):
    points = 0
    for number, (point, world) in enumerate(crash_points(RESTORE)):
        second = world.commit_times()[1]
        is_pending = pending_restore(load_timeline(world.store), world.open().ledger.read()) is not None
        if is_pending:
            with pytest.raises(Refused, match="not finished"):
                world.insert("n")

        report = restore(world.open(), second)

        check_at_rest(world.open())
        assert not is_pending or len(report.rolled_back) == 3, point
        assert visible_rows(world.open()) == SECOND, point
        assert Action.ROLLBACK not in {action for _, action in _instants(world)}, point
        assert hudi_rows(copy_to_disk(world.store, tmp_path / str(number))) == SECOND, point
        points += 1
    assert points > 80


def test_a_restore_that_dies_while_it_is_resumed_is_finished_by_the_third_call():
    for number, (point, crashed) in enumerate(crash_points(RESTORE)):
        resumed = Operation("resumed", _to_second, Start(lambda world=crashed: world, SECOND, SECOND), SECOND)
        for nested, world in crash_points(resumed, every=13, offset=number):
            _to_second(world)

            check_at_rest(world.open())
            assert visible_rows(world.open()) == SECOND, f"{point}; then {nested}"


def test_what_a_restore_left_on_the_timeline_when_it_died_is_removed_by_the_next_write(tmp_path):
    for number, (point, world) in enumerate(crash_points(RESTORE)):
        if pending_restore(load_timeline(world.store), world.open().ledger.read()) is None:
            world.insert("n")

            check_at_rest(world.open())
            seen = visible_rows(world.open())
            assert seen - {("n", "paris", 1.0)} in (SECOND, FOURTH), point
            assert hudi_rows(copy_to_disk(world.store, tmp_path / str(number))) == seen, point


@pytest.mark.parametrize(
    "name", ["cow_v6_simplekeygen_nonhivestyle", "cow_v6_simplekeygen_nonhivestyle_overwritetable"]
)
def test_commits_that_hudi_made_are_gone_back_to_and_taken_back(hudi_fixture, name):
    table = holdfast.open_table(str(hudi_fixture(name)))
    hudis = [i for i in table.timeline() if i.is_completed and i.action in COMMIT_ACTIONS]
    before = {commit.time: _alike(table, commit.time) for commit in hudis}
    table.savepoint(hudis[0])
    table.upsert(table.to_arrow().slice(0, 1))
    table.delete(table.to_arrow().slice(0, 1))

    table.undo()
    for commit in reversed(hudis):
        table.restore(commit)

        assert _alike(table) == before[commit.time]
    assert [i.time for i in table.timeline() if i.action in COMMIT_ACTIONS] == [hudis[0].time]


def _alike(table, as_of=None):
    """The rows that both readers see."""
    ours = table.to_arrow(as_of=as_of, meta_columns=True)
    check_alike(ours, hudi_snapshot(table.path, as_of=as_of))
    return sorted(map(repr, ours.to_pylist()))
