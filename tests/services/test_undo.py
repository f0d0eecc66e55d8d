"""Taking back one instant: the newest commit, or a write that did not finish."""

import datetime as dt
from dataclasses import replace

import pytest

from crashes.matrix import Operation, Start, crash_points
from harness.checker import check_at_any_time, check_at_rest, visible_ids, visible_rows
from harness.faults import StoreWrapper
from harness.foreign_cleans import FOREIGN_CLEAN, clean_by_another
from harness.hudi_reader import copy_to_disk, hudi_rows
from harness.world import SimulatedHost, memory_world, rows, table_of
from holdfast.errors import (
    OutcomeUnknown,
    Refused,
    SnapshotExpired,
    StorageUnavailable,
    UnknownInstant,
    WriterActive,
)
from holdfast.format.rollbacks import (
    RollbackMetadata,
    RollbackPlan,
    RolledBackInstant,
    decode_rollback_metadata,
    encode_rollback_metadata,
    encode_rollback_plan,
)
from holdfast.host import Liveness
from holdfast.model.instant import Action, InstantTime, State, next_time
from holdfast.model.names import instant_file
from holdfast.services.rollback.plan import plan_rollback_of, plan_undo
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import roll_back_instant, undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint
from holdfast.services.verify.verify import verify
from holdfast.table.markers import delete_markers
from holdfast.timeline.timeline import load_timeline

BEFORE = frozenset({("a", "paris", 1.0), ("b", "rome", 1.0)})
AFTER = frozenset({("a", "paris", 5.0), ("b", "rome", 1.0), ("c", "oslo", 5.0)})


def _table():
    """A commit, and another one that changes one of its file groups and adds a partition."""
    world = memory_world()
    world.create()
    world.insert("a", "b")
    world.write("upsert", table_of([("a", "paris", 5.0), ("c", "oslo", 5.0)]))
    return world


@pytest.fixture
def world():
    return _table()


def _dead_insert(world):
    world.die_after(lambda world: world.insert("x", "y"), last="upload")
    return load_timeline(world.store).pending_writes[-1].time


def test_a_decided_write_that_another_program_rolled_back_leaves_nothing(world):
    """Hudi does not know the ledger: it rolls back what it finds inflight."""
    world.die_after(lambda world: world.insert("x", "y"), last="create .hoodie/.holdfast/ledger")
    decided = load_timeline(world.store).pending_writes[-1].time
    assert world.open().ledger.read().committed.keys() >= {decided}
    delete_markers(world.store, decided)
    for path in (
        *world.files_of(decided),
        *(instant_file(decided, Action.COMMIT, state) for state in (State.INFLIGHT, State.REQUESTED)),
    ):
        world.store.delete(path)
    theirs = next_time(world.clock.now_ms(), decided, dt.UTC)
    metadata = RollbackMetadata(
        start_time=theirs, time_taken_ms=1, total_files_deleted=2, commits=(decided,), by_partition={},
        instants=(RolledBackInstant(decided, Action.COMMIT),),
    )  # fmt: skip
    plan = encode_rollback_plan(RollbackPlan(RolledBackInstant(decided, Action.COMMIT), ()))
    for state, content in (
        (State.REQUESTED, plan),
        (State.INFLIGHT, b""),
        (State.COMPLETED, encode_rollback_metadata(metadata)),
    ):
        world.store.create(instant_file(theirs, Action.ROLLBACK, state), content)

    world.write("upsert", table_of([("c", "oslo", 6.0)]))

    assert verify(world.open()).findings == ()
    assert visible_ids(world.open()) == {"a", "b", "c"}


def test_undo_gives_back_the_content_before_the_newest_commit(world, tmp_path):
    first, second = world.commit_times()

    report = undo(world.open())

    check_at_rest(world.open())
    assert (report.rolled_back, report.action, len(report.deleted)) == (second, "commit", 2)
    assert visible_rows(world.open()) == BEFORE
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == BEFORE
    assert world.commit_times() == [first]
    assert world.files_of(second) == []


def test_the_rollback_of_a_commit_is_on_record(world):
    second = world.commit_times()[-1]

    report = undo(world.open())

    done = world.store.read(instant_file(report.instant, Action.ROLLBACK, State.COMPLETED))
    metadata = decode_rollback_metadata(done)
    assert (metadata.commits, metadata.total_files_deleted) == ((second,), 2)
    assert {one.partition for one in metadata.partitions} == {"city=paris", "city=oslo"}


def test_undo_again_takes_back_the_commit_before_until_there_is_none(world, tmp_path):
    undo(world.open())
    undo(world.open())

    assert visible_rows(world.open()) == frozenset()
    with pytest.raises(Refused, match="no commit to undo"):
        undo(world.open())
    world.insert("new")
    check_at_rest(world.open())
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == visible_rows(world.open())


def test_what_was_undone_can_be_written_again(world):
    undo(world.open())
    world.write("upsert", rows("a", fare=7.0))

    check_at_rest(world.open())
    assert visible_rows(world.open()) == {("a", "paris", 7.0), ("b", "rome", 1.0)}


@pytest.mark.parametrize("operation", ["insert_overwrite", "delete_partitions"])
def test_what_a_replacing_commit_hid_is_visible_again(world, operation, tmp_path):
    if operation == "insert_overwrite":
        world.write("insert_overwrite", rows("z"))
    else:
        world.delete_partitions("city=paris")

    report = undo(world.open())

    check_at_rest(world.open())
    assert report.action is Action.REPLACECOMMIT
    assert visible_rows(world.open()) == AFTER
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == AFTER


def test_a_commit_below_others_is_refused(world):
    first, second = world.commit_times()

    with pytest.raises(Refused, match="commits after this one") as refusal:
        roll_back_instant(world.open(), first)
    assert refusal.value.facts["newest"] == second
    assert visible_rows(world.open()) == AFTER


def test_a_savepointed_commit_is_refused_until_the_savepoint_is_deleted(world):
    second = world.commit_times()[-1]
    create_savepoint(world.open())

    with pytest.raises(Refused, match="savepointed"):
        undo(world.open())
    delete_savepoint(world.open(), second)
    undo(world.open())
    assert visible_rows(world.open()) == BEFORE


def test_a_savepoint_of_the_commit_before_does_not_matter(world):
    create_savepoint(world.open(), world.commit_times()[0])

    undo(world.open())

    check_at_rest(world.open())
    assert visible_rows(world.open()) == BEFORE


def test_undo_is_refused_when_the_version_before_was_cleaned(world):
    first = world.commit_times()[0]
    clean_by_another(world, *[path for path in world.files_of(first) if "paris" in path])

    with pytest.raises(SnapshotExpired, match=FOREIGN_CLEAN):
        undo(world.open())
    assert visible_rows(world.open()) == AFTER


def test_undo_is_refused_while_a_clean_is_pending_of_what_it_goes_back_to(world):
    superseded = [path for path in world.files_of(world.commit_times()[0]) if "paris" in path]
    clean_by_another(world, *superseded, state=State.REQUESTED)

    with pytest.raises(Refused, match="clean that is not finished deletes a file"):
        undo(world.open())


def test_a_pending_clean_of_other_files_is_not_in_the_way_of_undo(world):
    clean_by_another(world, state=State.REQUESTED)

    undo(world.open())

    assert visible_rows(world.open()) == BEFORE


def test_an_unknown_instant_is_refused(world):
    with pytest.raises(UnknownInstant):
        roll_back_instant(world.open(), InstantTime("20200101000000000"))
    # The first digits of a commit's time are not its time.
    with pytest.raises(UnknownInstant):
        roll_back_instant(world.open(), InstantTime(world.commit_times()[-1][:14]))


def test_a_pending_write_is_rolled_back_by_name(world):
    failed = _dead_insert(world)

    report = roll_back_instant(world.open(), failed)

    check_at_rest(world.open())
    assert report.rolled_back == failed
    assert world.files_of(failed) == []
    assert visible_rows(world.open()) == AFTER


def test_a_pending_write_without_markers_leaves_no_orphan(world):
    failed = _dead_insert(world)
    assert world.files_of(failed)
    delete_markers(world.store, failed)

    roll_back_instant(world.open(), failed)

    check_at_rest(world.open())
    assert world.files_of(failed) == []


def test_a_pending_write_whose_markers_cannot_be_listed_is_not_declared_rolled_back(world):
    failed = _dead_insert(world)

    class Blind(StoreWrapper):
        def paths(self, folder, *, without=""):
            if folder.startswith(".hoodie/.temp"):
                raise StorageUnavailable("the folder cannot be listed", path=folder)
            return super().paths(folder, without=without)

    with pytest.raises(OutcomeUnknown, match="the write is rolled back"):
        roll_back_instant(world.on(Blind(world.store)).open(), failed)
    rollbacks = [i for i in load_timeline(world.store).instants if i.action is Action.ROLLBACK]
    assert not any(rollback.is_completed for rollback in rollbacks)


def test_a_running_write_is_left_alone(world):
    failed = _dead_insert(world)
    others = replace(world, host=SimulatedHost(actor=1, others=Liveness.ALIVE))

    with pytest.raises(WriterActive):
        roll_back_instant(others.open(), failed)
    assert world.files_of(failed)


def test_undo_rolls_back_what_dead_writers_left_first(world):
    failed = _dead_insert(world)

    undo(world.open())

    check_at_rest(world.open())
    assert world.files_of(failed) == []
    assert visible_rows(world.open()) == BEFORE


def test_undo_takes_a_commit_that_was_decided_and_not_shown_yet(world):
    world.die_after(lambda world: world.insert("x", "y"), last="ledger")

    undo(world.open())

    check_at_rest(world.open())
    assert visible_rows(world.open()) == AFTER


def test_a_preview_says_what_would_vanish_and_changes_nothing(world):
    second = world.commit_times()[-1]
    paths = world.store.paths("")

    planned = plan_undo(world.open())

    assert (planned.instant, planned.is_committed, planned.records, planned.files) == (second, True, 2, 2)
    assert planned.size_bytes == sum(world.store.stat(path).size for path in world.files_of(second))
    assert world.store.paths("") == paths
    assert plan_rollback_of(world.open(), second) == planned


def test_a_preview_of_a_write_that_did_not_finish_counts_its_files(world):
    failed = _dead_insert(world)

    planned = plan_rollback_of(world.open(), failed)

    assert (planned.is_committed, planned.files) == (False, 2)
    assert planned.owner.startswith("process ")
    assert planned.size_bytes == sum(world.store.stat(path).size for path in world.files_of(failed))


UNDO = Operation("undo", lambda world: undo(world.open()), Start(_table, AFTER, AFTER), BEFORE)


def test_an_undo_that_dies_at_any_step_is_finished_by_the_next_undo(tmp_path):
    points = list(crash_points(UNDO))
    for number, (point, world) in enumerate(points, 1):
        assert visible_rows(world.open()) in (BEFORE, AFTER), point
        check_at_any_time(world.open())
        is_done = number == len(points)
        if not is_done:
            assert undo(world.open()).rolled_back == _taken_back(world), point

        check_at_rest(world.open())
        assert visible_rows(world.open()) == BEFORE, point
        assert hudi_rows(copy_to_disk(world.store, tmp_path / str(number))) == BEFORE, point
    assert len(points) == 24


def _taken_back(world):
    """The one instant that was ever committed and taken back."""
    state = world.open().ledger.read()
    [time] = [time for time, aborted in state.aborted.items() if aborted.revoked_by is not None]
    return time


def test_an_undo_that_dies_at_any_step_is_done_or_not_after_the_next_write(tmp_path):
    outcomes = set()
    for number, (point, world) in enumerate(crash_points(UNDO)):
        world.insert("next")

        check_at_rest(world.open())
        seen = visible_ids(world.open()) - {"next"}
        assert seen in ({"a", "b"}, {"a", "b", "c"}), point
        assert hudi_rows(copy_to_disk(world.store, tmp_path / str(number))) == visible_rows(world.open()), (
            point
        )
        outcomes.add(len(seen))
    assert outcomes == {2, 3}


def test_a_recovery_finishes_an_undo_and_undoes_nothing_else():
    for point, world in crash_points(UNDO):
        recover(world.open())

        check_at_rest(world.open())
        assert visible_rows(world.open()) in (BEFORE, AFTER), point
