"""Savepoints: commits whose files stay until somebody lets them go."""

import pytest

from crashes.matrix import Operation, Start, crash_points
from harness.checker import check_at_rest, visible_rows
from harness.cleaning import clean
from harness.faults import InterruptedStore, StoreWrapper
from harness.foreign_cleans import FOREIGN_CLEAN, clean_by_another
from harness.hudi_reader import copy_to_disk, hudi_rows
from harness.world import memory_world, rows
from holdfast.config.cleaning import CleanSettings
from holdfast.errors import Refused, SnapshotExpired, TableDamaged, UnknownInstant
from holdfast.format.savepoints import decode_savepoint, encode_savepoint, savepoint_of
from holdfast.model.instant import Action, State
from holdfast.model.names import LEDGER_FOLDER, instant_file
from holdfast.read.savepoints import savepoints
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint
from holdfast.timeline.timeline import load_timeline


def _table():
    """Three commits: two partitions, a change in one of them, and a third partition."""
    world = memory_world()
    world.create()
    world.insert("a", "b")
    world.write("upsert", rows("a", fare=5.0))
    world.insert("c", city="oslo")
    return world


@pytest.fixture
def world():
    return _table()


def _times(world):
    return [commit.time for commit in load_timeline(world.store).completed_commits]


def _stored(world, time):
    return world.store.read(instant_file(time, Action.SAVEPOINT, State.COMPLETED))


def _files_of(world, time):
    return [path for path in world.store.paths("") if path.endswith(f"_{time}.parquet")]


def test_a_savepoint_lists_the_files_of_all_partitions_as_of_its_commit(world):
    first, second, _ = _times(world)

    made = create_savepoint(world.open(), second, user="ann", comment="before the migration")

    stored = decode_savepoint(_stored(world, second))
    paths = {f"{partition}/{name}" for partition, names in stored.files.items() for name in names}
    [paris] = _files_of(world, second)
    [rome] = [path for path in _files_of(world, first) if path.startswith("city=rome")]
    assert paths == {paris, rome}
    assert (made.instant, made.user, made.comment) == (second, "ann", "before the migration")
    assert (made.files, made.partitions) == (2, ("city=paris", "city=rome"))
    assert savepoints(world.open()) == [made]


def test_by_default_the_newest_commit_is_protected(world):
    made = create_savepoint(world.open())

    assert made.instant == _times(world)[-1]
    assert made.partitions == ("city=oslo", "city=paris", "city=rome")


def test_other_readers_see_the_same_rows_beside_a_savepoint(world, tmp_path):
    create_savepoint(world.open(), _times(world)[0])

    check_at_rest(world.open())
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == visible_rows(world.open())


def test_a_table_without_commits_has_nothing_to_protect():
    world = memory_world()
    world.create()

    with pytest.raises(Refused, match="no commit to protect"):
        create_savepoint(world.open())


def test_a_time_that_is_no_commit_is_refused_and_the_commit_before_it_named(world):
    times = _times(world)

    with pytest.raises(UnknownInstant, match=times[-1]):
        create_savepoint(world.open(), "20991231235959999")


def test_a_date_means_the_newest_commit_before_it(world):
    assert create_savepoint(world.open(), "2099-12-31").instant == _times(world)[-1]


def test_the_same_call_again_gives_the_same_savepoint(world):
    made = create_savepoint(world.open(), user="ann", comment="x")

    assert create_savepoint(world.open(), user="ann", comment="x") == made
    with pytest.raises(Refused, match="has a savepoint already"):
        create_savepoint(world.open(), user="bob", comment="x")


def test_a_commit_that_was_cleaned_away_is_refused(world):
    first = _times(world)[0]
    clean_by_another(world, *_files_of(world, first))

    with pytest.raises(SnapshotExpired, match=FOREIGN_CLEAN):
        create_savepoint(world.open(), first)
    assert savepoints(world.open()) == []


def test_a_commit_whose_file_is_missing_without_a_clean_is_damage(world):
    first = _times(world)[0]
    world.store.delete(_files_of(world, first)[0])

    with pytest.raises(TableDamaged):
        create_savepoint(world.open(), first)


@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
def test_while_a_clean_is_pending_no_savepoint_is_made_of_its_files(world, state):
    first, second, _ = _times(world)
    superseded = [path for path in _files_of(world, first) if "paris" in path]
    clean_by_another(world, *superseded, state=state)

    with pytest.raises(Refused, match="clean that is not finished deletes a file"):
        create_savepoint(world.open(), first)
    assert create_savepoint(world.open(), second).instant == second


def test_while_a_clean_is_pending_that_cannot_be_read_no_savepoint_is_made(world):
    world.store.create(instant_file(FOREIGN_CLEAN, Action.CLEAN, State.REQUESTED), b"plan")

    with pytest.raises(Refused, match="plan cannot be read"):
        create_savepoint(world.open())


def test_a_clean_between_the_listing_and_the_decision_is_noticed(world):
    first = _times(world)[0]
    doomed = _files_of(world, first)
    inflight = instant_file(first, Action.SAVEPOINT, State.INFLIGHT)
    cleaned = InterruptedStore(world.store, inflight, lambda: clean_by_another(world, *doomed))

    with pytest.raises(SnapshotExpired, match=FOREIGN_CLEAN):
        create_savepoint(world.on(cleaned).open(), first)
    recover(world.open())
    assert load_timeline(world.store).find(first, Action.SAVEPOINT) is None


def test_a_commit_that_is_taken_back_at_the_same_time_gets_no_savepoint(world):
    newest = _times(world)[-1]
    interrupted = InterruptedStore(world.store, LEDGER_FOLDER, lambda: undo(world.open()))

    with pytest.raises(UnknownInstant, match="taken back in the meantime"):
        create_savepoint(world.on(interrupted).open())
    recover(world.open())
    check_at_rest(world.open())
    assert newest not in _times(world)


def test_a_savepoint_that_a_writer_took_for_a_left_over_is_shown_all_the_same(world):
    interrupted = InterruptedStore(world.store, LEDGER_FOLDER, lambda: recover(world.open()))

    made = create_savepoint(world.on(interrupted).open())

    assert savepoints(world.open()) == [made]
    assert load_timeline(world.store).find(made.instant, Action.SAVEPOINT).is_completed
    assert world.store.stat(instant_file(made.instant, Action.SAVEPOINT, State.INFLIGHT)) is not None


def test_a_savepoint_that_is_deleted_while_it_is_shown_stays_deleted(world):
    newest = _times(world)[-1]
    completed = instant_file(newest, Action.SAVEPOINT, State.COMPLETED)

    class DeletedBefore(StoreWrapper):
        def _change(self, verb, path, act):
            if path == completed:
                delete_savepoint(world.open(), newest)
            return act()

    with pytest.raises(UnknownInstant, match="deleted in the meantime"):
        create_savepoint(world.on(DeletedBefore(world.store)).open())
    check_at_rest(world.open())
    assert savepoints(world.open()) == []


def test_a_deletion_that_sleeps_does_not_take_the_savepoint_that_was_made_meanwhile(world):
    """It is decided, and sleeps before it removes the first file."""
    made = create_savepoint(world.open())
    again = []

    class SleepsBeforeItRemoves(StoreWrapper):
        def _change(self, verb, path, act):
            if verb == "delete" and not again:
                again.append(create_savepoint(world.open(), made.instant))
            return act()

    delete_savepoint(world.on(SleepsBeforeItRemoves(world.store)).open(), made.instant)

    assert savepoints(world.open()) == again
    assert made.instant in world.open().ledger.read().savepoints
    world.insert("next")
    check_at_rest(world.open())
    assert savepoints(world.open()) == again


def _cleaned_before_the_listing(world):
    """A store whose first listing of the table follows upserts and a clean that keeps one commit."""
    cleans = []

    class CleanedBeforeTheListing(StoreWrapper):
        def _look(self, verb, path, act):
            if verb == "list" and path == "" and not cleans:
                cleans.append(None)
                for fare in (8.0, 9.0, 10.0):
                    world.write("upsert", rows("c", city="oslo", fare=fare))
                cleans[:] = [clean(world.open(), CleanSettings(commits_retained=1))]
            return act()

    return CleanedBeforeTheListing(world.store), cleans


def test_a_savepoint_of_the_newest_commit_takes_the_next_one_if_a_clean_was_faster(world):
    store, cleans = _cleaned_before_the_listing(world)

    made = create_savepoint(world.on(store).open())

    assert cleans[0].deleted
    assert made.instant == _times(world)[-1]
    check_at_rest(world.open())


def test_a_savepoint_of_a_named_commit_says_that_a_clean_was_faster(world):
    newest = _times(world)[-1]
    store, _ = _cleaned_before_the_listing(world)

    with pytest.raises(SnapshotExpired):
        create_savepoint(world.on(store).open(), newest)


def test_a_savepoint_outlives_the_writes_after_it(world):
    made = create_savepoint(world.open(), _times(world)[0])
    world.insert("d")

    assert savepoints(world.open()) == [made]
    check_at_rest(world.open())


def test_a_deleted_savepoint_leaves_nothing_behind_and_can_be_made_again(world):
    made = create_savepoint(world.open(), user="ann")

    delete_savepoint(world.open(), made.instant)

    assert savepoints(world.open()) == []
    assert not [path for path in world.store.paths(".hoodie") if "savepoint" in path]
    with pytest.raises(UnknownInstant, match="no savepoint"):
        delete_savepoint(world.open(), made.instant)
    assert create_savepoint(world.open(), user="bob").user == "bob"


def test_savepoints_that_hudi_made_are_shown_and_deleted(world):
    first = _times(world)[0]
    theirs = savepoint_of("hudi", 1_700_000_000_000, "old", {"city=paris": ("a.parquet",)})
    world.store.create(instant_file(first, Action.SAVEPOINT, State.INFLIGHT), b"")
    world.store.create(instant_file(first, Action.SAVEPOINT, State.COMPLETED), encode_savepoint(theirs))

    [shown] = savepoints(world.open())
    assert (shown.instant, shown.user, shown.files) == (first, "hudi", 1)
    assert create_savepoint(world.open(), first, user="hudi", comment="old") == shown

    delete_savepoint(world.open(), first)
    assert savepoints(world.open()) == []


def _savepointed():
    world = _table()
    create_savepoint(world.open(), _times(world)[1], user="ann")
    return world


def _create(world):
    create_savepoint(world.open(), _times(world)[1], user="ann")


def _delete(world):
    delete_savepoint(world.open(), _times(world)[1])


CREATION = Operation("create a savepoint", _create, Start(_table, frozenset(), frozenset()), frozenset())
DELETION = Operation(
    "delete a savepoint", _delete, Start(_savepointed, frozenset(), frozenset()), frozenset()
)


def test_a_savepoint_whose_maker_dies_at_any_step_is_made_by_the_same_call(tmp_path):
    number = 0
    for number, (point, world) in enumerate(crash_points(CREATION), 1):
        _create(world)

        check_at_rest(world.open())
        assert [one.instant for one in savepoints(world.open())] == [_times(world)[1]], point
        assert hudi_rows(copy_to_disk(world.store, tmp_path / str(number))) == visible_rows(world.open())
    assert number == 8


def test_a_savepoint_whose_maker_dies_at_any_step_is_there_or_not_after_the_next_write():
    outcomes = set()
    for point, world in crash_points(CREATION):
        world.insert("next")

        check_at_rest(world.open())
        found = [one.instant for one in savepoints(world.open())]
        assert found in ([], [_times(world)[1]]), point
        outcomes.add(len(found))
    assert outcomes == {0, 1}


def test_a_deletion_that_dies_at_any_step_is_finished_by_the_same_call(tmp_path):
    number = 0
    for number, (point, world) in enumerate(crash_points(DELETION), 1):
        try:
            _delete(world)
        except UnknownInstant:
            assert number == 6, point

        check_at_rest(world.open())
        assert savepoints(world.open()) == [], point
        assert hudi_rows(copy_to_disk(world.store, tmp_path / str(number))) == visible_rows(world.open())
    assert number == 6
