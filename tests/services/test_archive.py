"""Archiving real tables: what leaves the timeline, what stays, and that no query notices."""

import datetime as dt
import pathlib
from dataclasses import replace

import msgspec
import pytest

from harness.checker import check_at_any_time, check_at_rest, visible_rows
from harness.cleaning import clean
from harness.faults import Crash, CrashingStore, InterruptedStore, RecordingStore, StoreWrapper
from harness.hudi_reader import copy_to_disk, hudi_rows, hudi_snapshot
from harness.world import memory_world, row_list, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import ArchiveSettings, CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Refused, SnapshotExpired, StorageUnavailable, TableDamaged, UnknownInstant
from holdfast.format.archive import decode_archive
from holdfast.format.ledger_entries import EntryKind, decode_entry
from holdfast.format.rollbacks import (
    RolledBackPartition,
    decode_rollback_metadata,
    encode_rollback_metadata,
)
from holdfast.model.instant import COMMIT_ACTIONS, Action, InstantTime, State
from holdfast.model.names import LEDGER_FOLDER, META_FOLDER, instant_file, parse_base_file
from holdfast.read.changes import change_schema, changes, read_changes
from holdfast.read.savepoints import savepoints
from holdfast.services.archive.archive import archive_instants, archive_without_recovery, plan_next_archive
from holdfast.services.archive.plan import commits_to_keep, plan_archive
from holdfast.services.leases import lease
from holdfast.services.restore.plan import plan_restore
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint
from holdfast.services.verify.verify import verify
from holdfast.table.archive import read_archive
from holdfast.table.clean_plans import pending_cleans
from holdfast.timeline.archived import archives
from holdfast.timeline.timeline import Timeline, load_timeline

NO_CLEAN = CleanSettings(automatic=False)
BY_HAND = WriteSettings(clean=NO_CLEAN, archives=False)
FIVE = CleanSettings(
    automatic=False,
    policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
    versions_retained=1,
    keep_min=2,
    keep_max=4,
)
SMALL = ArchiveSettings(clean=FIVE)
"""Two commits stay when there are more than four."""
SMALL_WRITES = WriteSettings(clean=FIVE)


def _table(commits=6, settings=BY_HAND):
    """A row in Paris that every commit changes, and one in Rome that only the first one wrote."""
    world = memory_world()
    world.create()
    world.write("upsert", table_of([("a", "paris", 0.0), ("b", "rome", 0.0)]), settings)
    for number in range(1, commits):
        _change(world, number, settings)
    return world


def _change(world, number, settings=BY_HAND, city="paris"):
    return world.write("upsert", table_of([("a" if city == "paris" else "b", city, float(number))]), settings)


def _archive(world, settings=SMALL):
    return archive_without_recovery(world.open(), settings)


def _times(world):
    return [commit.time for commit in load_timeline(world.store).completed_commits]


def _archived(world):
    return read_archive(world.store, world.open().settings).timeline


def _archived_commits(world):
    return [commit.time for commit in _archived(world).completed_commits]


def _entries(world, kind):
    entries = (decode_entry(world.store.read(path))[0] for path in world.store.paths(LEDGER_FOLDER))
    return [entry for entry in entries if entry.kind is kind]


# What is archived.


def test_of_31_commits_11_are_archived_and_20_left():
    world = _table(commits=31, settings=WriteSettings())

    assert len(_times(world)) == 20
    assert len(_archived_commits(world)) == 11
    assert _archived_commits(world)[-1] < _times(world)[0]
    assert visible_rows(world.open()) == {("a", "paris", 30.0), ("b", "rome", 0.0)}
    check_at_rest(world.open())


def test_up_to_30_commits_nothing_is_archived():
    world = _table(commits=30, settings=WriteSettings(clean=NO_CLEAN))

    assert len(_times(world)) == 30
    assert _archived_commits(world) == []


def test_the_bounds_are_raised_to_what_cleaning_retains():
    world = _table(commits=45)
    timeline = load_timeline(world.store)
    settings = ArchiveSettings(clean=CleanSettings(commits_retained=40))

    assert commits_to_keep(timeline.completed_commits, settings) == (41, 51)
    assert plan_archive(timeline, settings).instants == ()
    assert commits_to_keep(timeline.completed_commits[:5], settings) == (41, 51)


def test_all_commits_of_the_hours_retained_stay():
    world = _table(commits=8)
    by_hours = CleanSettings(policy=CleanPolicy.KEEP_LATEST_BY_HOURS, keep_min=2, keep_max=4)

    assert _archive(world, ArchiveSettings(clean=by_hours)).archived == ()

    world.clock.now += 48 * 3600 * 1000
    _change(world, 9)
    assert len(_archive(world, ArchiveSettings(clean=by_hours)).archived) == 7


def test_archiving_stops_at_the_commit_before_a_pending_write():
    world = _table(commits=4)
    counted = world.copy()
    recorder = RecordingStore(counted.store)
    _change(counted.on(recorder), 5)
    with pytest.raises(Crash):
        _change(world.on(CrashingStore(world.store, recorder.last("upload"), after=True)), 5)
    dead = load_timeline(world.store).pending_writes[0].time
    for number in range(2):
        _foreign_commit(world, number)

    report = _archive(world)

    assert [instant.time for instant in report.archived] == _archived_commits(world)
    assert len(report.archived) == 3
    assert load_timeline(world.store).completed_commits[0].time < dead
    assert dead in report.held_back


def _foreign_commit(world, number):
    """A commit by another program, in a file group of its own, that does not know the ledger."""
    newest = load_timeline(world.store).completed_commits[-1]
    content = world.store.read(instant_file(newest.time, newest.action, State.COMPLETED))
    time = InstantTime(str(int(newest.time) + 1000))
    for state in State:
        path = instant_file(time, Action.COMMIT, state)
        world.store.create(path, content.replace(newest.time.encode(), time.encode()))


def test_a_clean_of_ours_that_another_program_archived_holds_nothing_back():
    """Hudi archives cleans apart from commits, so older instants may still be active."""
    world = _table(commits=6)
    cleaned = clean(world.open(), CleanSettings(commits_retained=3)).instant
    for number in range(6, 8):
        _change(world, number)
    for state in State:
        world.store.delete(instant_file(cleaned, Action.CLEAN, state))

    report = _archive(world)

    assert len(_times(world)) == 2
    assert report.held_back == ""
    assert pending_cleans(world.store, load_timeline(world.store), world.open().ledger.read()) == ()


def test_a_replacecommit_whose_files_are_not_cleaned_stays():
    world = _table(commits=2)
    replacement = world.write("insert_overwrite", table_of([("c", "rome", 1.0)]), BY_HAND).instant
    for number in range(3, 8):
        _change(world, number)

    held = _archive(world)
    clean(world.open(), CleanSettings(commits_retained=1))
    freed = _archive(world)

    assert len(held.archived) == 2
    assert replacement in held.held_back
    assert replacement in [instant.time for instant in freed.archived]
    assert visible_rows(world.open()) == {("a", "paris", 7.0), ("c", "rome", 1.0)}


AT_SAVEPOINTS = replace(SMALL, beyond_savepoints=False)


def test_archiving_stops_at_a_savepoint_if_it_is_told_to():
    world = _table(commits=9)
    saved = _times(world)[4]
    create_savepoint(world.open(), saved)

    report = _archive(world, AT_SAVEPOINTS)

    assert len(report.archived) == 4
    assert _times(world)[0] == saved
    assert saved in report.held_back


def _saved_and_archived(commits=9, saved=4):
    """A table whose savepointed commit is archived, and others around it, cleaned as far as may be."""
    world = _table(commits=commits)
    time = _times(world)[saved]
    rows = visible_rows(world.open(), as_of=time)
    create_savepoint(world.open(), time, user="u", comment="c")
    clean(world.open(), CleanSettings(commits_retained=1))
    _archive(world)
    assert time in _archived_commits(world)
    return world, time, rows


def test_a_savepointed_commit_is_archived_and_no_reader_notices(tmp_path):
    world, saved, then = _saved_and_archived()
    now = {("a", "paris", 8.0), ("b", "rome", 0.0)}

    assert len(_times(world)) == 2
    assert [savepoint.instant for savepoint in savepoints(world.open())] == [saved]
    assert create_savepoint(world.open(), saved, user="u", comment="c").instant == saved
    assert visible_rows(world.open()) == now
    assert visible_rows(world.open(), as_of=saved) == then
    table = copy_to_disk(world.store, tmp_path)
    assert hudi_rows(table) == now
    assert frozenset(row_list(hudi_snapshot(table, as_of=saved))) == then
    assert verify(world.open()).findings == ()
    check_at_rest(world.open())


def test_the_table_is_restored_to_a_savepoint_whose_commit_is_archived(tmp_path):
    world, saved, then = _saved_and_archived()
    later = [time for time in (*_archived_commits(world), *_times(world)) if time > saved]
    planned = plan_restore(world.open(), saved)

    report = restore(world.open(), saved)

    assert [one.instant for one in planned.instants] == sorted(later, reverse=True)
    assert [one.rolled_back for one in report.rolled_back] == sorted(later, reverse=True)
    assert _times(world) == [saved]
    assert visible_rows(world.open()) == then
    assert hudi_rows(copy_to_disk(world.store, tmp_path / "restored")) == then
    assert not any(time in path for path in world.store.paths("city=paris") for time in later)
    assert verify(world.open()).findings == ()

    _change(world, 99)
    assert visible_rows(world.open()) == {("a", "paris", 99.0), ("b", "rome", 0.0)}
    assert visible_rows(world.open(), as_of=later[0]) == then
    assert hudi_rows(copy_to_disk(world.store, tmp_path / "written")) == visible_rows(world.open())
    check_at_rest(world.open())


def test_a_table_restored_to_an_archived_savepoint_is_archived_and_restored_again(tmp_path):
    world, saved, then = _saved_and_archived()
    restore(world.open(), saved)
    for number in range(20, 28):
        _change(world, number)
    _archive(world)
    assert saved not in _times(world)

    assert visible_rows(world.open(), as_of=saved) == then
    restore(world.open(), saved)

    assert _times(world) == [saved]
    assert visible_rows(world.open()) == then
    delete_savepoint(world.open(), saved)
    for number in range(30, 38):
        _change(world, number)
    _archive(world)
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == visible_rows(world.open())
    assert verify(world.open()).findings == ()
    check_at_rest(world.open())


def test_a_commit_that_a_restore_brought_back_comes_back_if_an_archiver_that_slept_deletes_it():
    world, saved, then = _saved_and_archived()
    restore(world.open(), saved)
    world.store.delete(instant_file(saved, Action.COMMIT, State.COMPLETED))

    recover(world.open())

    assert _times(world) == [saved]
    assert visible_rows(world.open()) == then


def test_without_its_savepoint_an_archived_commit_is_out_of_reach():
    world, saved, _ = _saved_and_archived()
    delete_savepoint(world.open(), saved)

    with pytest.raises(UnknownInstant):
        restore(world.open(), saved)
    assert visible_rows(world.open()) == {("a", "paris", 8.0), ("b", "rome", 0.0)}


def test_an_archived_savepoint_that_is_in_no_archive_is_damage_and_nothing_is_taken_back():
    world, saved, _ = _saved_and_archived()
    commits = _times(world)
    for path in archives(world.store, world.open().settings.archive_folder).values():
        world.store.delete(path)

    with pytest.raises((TableDamaged, SnapshotExpired)):
        restore(world.open(), saved)
    assert _times(world) == commits


def test_a_metadata_table_that_was_never_compacted_stops_everything():
    world = _table(commits=6)
    world.store.create(".hoodie/metadata/.hoodie/20231114221320001.deltacommit", b"{}")

    held = _archive(world)
    world.store.create(f".hoodie/metadata/.hoodie/{_times(world)[2]}001.commit", b"{}")
    freed = _archive(world)

    assert (held.archived, held.held_back) == ((), "the metadata table was never compacted")
    assert len(freed.archived) == 3


def test_a_leased_commit_stays_with_those_after_it():
    world = _table(commits=7)
    third = _times(world)[2]
    then = visible_rows(world.open(), as_of=third)

    with lease(world.open(), "reader", 3600, as_of=third):
        report = _archive(world)

        assert len(report.archived) == 2
        assert "lease" in report.held_back
        assert visible_rows(world.open(), as_of=third) == then
    assert len(_archive(world).archived) == 3


def test_what_the_last_clean_has_reached_stays():
    world = _table(commits=6)
    clean(world.open(), CleanSettings(commits_retained=4))

    report = _archive(world, ArchiveSettings(clean=replace(FIVE, automatic=True)))

    assert len(report.archived) == 2
    assert "clean has reached" in report.held_back


def test_cleans_and_rollbacks_go_with_younger_commits():
    world = _table(commits=3)
    clean(world.open(), CleanSettings(commits_retained=1))
    _change(world, 3)
    undo(world.open())
    for number in range(4, 9):
        _change(world, number)
    late = clean(world.open(), CleanSettings(commits_retained=1)).instant

    report = _archive(world)

    actions = [instant.action for instant in report.archived]
    assert actions.count(Action.CLEAN) == actions.count(Action.ROLLBACK) == 1
    others = [i for i in load_timeline(world.store).instants if i.action not in COMMIT_ACTIONS]
    assert [instant.time for instant in others] == [late]
    check_at_rest(world.open())


def _undone(times=6, commits=3):
    world = _table(commits=commits)
    for number in range(times):
        _change(world, number)
        undo(world.open())
    return world


def _rollbacks(timeline):
    return [instant.time for instant in timeline.instants if instant.action is Action.ROLLBACK]


def test_rollbacks_alone_go_when_too_many_have_gathered():
    world = _undone()
    rows, commits, gathered = (
        visible_rows(world.open()),
        _times(world),
        _rollbacks(load_timeline(world.store)),
    )

    report = _archive(world)

    assert [instant.time for instant in report.archived] == gathered[:4]
    assert _rollbacks(load_timeline(world.store)) == gathered[4:]
    assert _rollbacks(_archived(world)) == gathered[:4]
    assert (_times(world), _archived_commits(world)) == (commits, [])
    assert recover(world.open()).rolled_back == ()
    assert visible_rows(world.open()) == rows
    assert verify(world.open()).findings == ()
    check_at_rest(world.open())


def test_a_table_of_which_only_rollbacks_are_archived_may_lose_its_first_commit():
    world = _undone(commits=1)
    _archive(world)

    undo(world.open())

    assert visible_rows(world.open()) == frozenset()


def test_a_rollback_that_left_a_file_stays_however_many_there_are():
    world = _undone()
    oldest = load_timeline(world.store).instants
    [rollback] = [i for i in oldest if i.action is Action.ROLLBACK][:1]
    said = decode_rollback_metadata(
        world.store.read(instant_file(rollback.time, Action.ROLLBACK, State.COMPLETED))
    )
    late = f"city=paris/late_9-9-9_{said.commits[0]}.parquet"
    world.store.create(late, b"late")

    held = _archive(world)
    world.store.delete(late)

    assert rollback.time not in {instant.time for instant in held.archived}
    assert _archive(world).archived == ()
    assert len(held.archived) == 3


def test_the_commits_after_an_archive_of_rollbacks_are_archived_as_ever():
    world = _undone()
    _archive(world)
    for number in range(10, 14):
        _change(world, number)

    report = _archive(world)

    assert [i.time for i in report.archived if i.action in COMMIT_ACTIONS] == _archived_commits(world)
    assert len(_times(world)) == 2
    check_at_rest(world.open())


# A file of what was rolled back must not come back.


def _rolled_back(commits=3):
    world = _table(commits=commits)
    taken_back = _change(world, 99).instant
    path = next(path for path in world.store.paths("city=paris") if taken_back in path)
    content = world.store.read(path)
    undo(world.open())
    for number in range(4, 9):
        _change(world, number)
    return world, path, content


def test_a_file_that_came_back_after_its_rollback_keeps_the_timeline_beginning_before_it(tmp_path):
    world, path, content = _rolled_back()
    world.store.create(path, content)

    held = _archive(world)
    rows = visible_rows(world.open())
    world.store.delete(path)
    freed = _archive(world)

    assert path in held.held_back
    assert len(held.archived) == 2
    assert all(instant.action is not Action.ROLLBACK for instant in held.archived)
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == rows
    assert Action.ROLLBACK in {instant.action for instant in freed.archived}


def test_a_rollback_stays_while_a_file_is_there_that_it_could_not_delete():
    """Another program's rollback says so; what the file is called does not matter then."""
    world, _, _ = _rolled_back()
    [rollback] = [i for i in load_timeline(world.store).instants if i.action is Action.ROLLBACK]
    record = instant_file(rollback.time, Action.ROLLBACK, State.COMPLETED)
    said = decode_rollback_metadata(world.store.read(record))
    stuck = RolledBackPartition("city=paris", failed_files=("city=paris/.x_20200101000000000.log.1_0-0-0",))
    world.store.put(
        record, encode_rollback_metadata(msgspec.structs.replace(said, by_partition={"city=paris": stuck}))
    )
    world.store.create(stuck.failed_files[0], b"")

    held = _archive(world)
    world.store.delete(stuck.failed_files[0])
    freed = _archive(world)

    assert stuck.failed_files[0] in held.held_back
    assert Action.ROLLBACK not in {instant.action for instant in held.archived}
    assert Action.ROLLBACK in {instant.action for instant in freed.archived}


def test_a_file_of_a_commit_with_a_similar_name_is_not_taken_for_one_that_was_rolled_back():
    world, path, content = _rolled_back()
    name = parse_base_file(path.rpartition("/")[2])
    world.store.create(f"city=paris/x{name.file_id}_{name.write_token}_{name.instant[:-1]}.parquet", content)

    report = _archive(world)

    assert report.held_back == ""
    assert Action.ROLLBACK in {instant.action for instant in report.archived}


def test_a_clean_stays_while_a_file_of_its_plan_is_there():
    """Whoever fell asleep over the plan may still delete the file, so nobody may rely on it."""
    world = _table(commits=3)

    class Stuck(StoreWrapper):
        def delete_all(self, paths):
            return tuple(paths)

    failed = clean(world.on(Stuck(world.store)).open(), CleanSettings(commits_retained=1)).failed
    for number in range(4, 9):
        _change(world, number)
    assert failed != ()

    held = _archive(world)
    world.store.delete_all(failed)
    for number in range(9, 14):
        _change(world, number)
    freed = _archive(world)

    assert Action.CLEAN not in {instant.action for instant in held.archived}
    assert Action.CLEAN in {instant.action for instant in freed.archived}


# No query notices.


def test_a_reader_of_an_archived_commit_reads_it_as_it_was():
    world = _table(commits=7)
    shown = {time: visible_rows(world.open(), as_of=time) for time in _times(world)}

    _archive(world)

    assert len(_times(world)) == 2
    for time, rows in shown.items():
        assert visible_rows(world.open(), as_of=time) == rows


def test_a_reader_of_an_archived_commit_that_was_cleaned_is_told_which_clean_it_was():
    world = _table(commits=3)
    first = _times(world)[0]
    cleaned = clean(world.open(), CleanSettings(commits_retained=1)).instant
    for number in range(4, 10):
        _change(world, number)
    _archive(world)
    assert cleaned in {instant.time for instant in _archived(world).instants}

    with pytest.raises(SnapshotExpired) as told:
        visible_rows(world.open(), as_of=first)

    assert told.value.facts["clean"] == cleaned


def test_changes_since_an_archived_commit_are_all_there():
    world = _table(commits=5)
    _change(world, 6, city="rome")
    times = _times(world)

    def changed():
        table = world.open()
        found = changes(table, since=times[3])
        read = read_changes(
            table.store, found, change_schema(found.snapshot.schema, columns=None, meta_columns=False)
        )
        return set(row_list(read))

    before = changed()
    _archive(world)

    assert changed() == before == {("a", "paris", 4.0), ("b", "rome", 6.0)}


def test_a_replaced_file_group_is_seen_by_readers_of_the_time_before_after_archiving():
    world = _table(commits=2)
    before = _times(world)[-1]
    world.write("insert_overwrite", table_of([("c", "rome", 1.0)]), BY_HAND)
    then = visible_rows(world.open(), as_of=before)
    for number in range(3, 8):
        _change(world, number)

    _archive(world)

    assert visible_rows(world.open(), as_of=before) == then


def test_hudi_reads_the_same_before_and_after(tmp_path):
    world = _table(commits=8)
    times = _times(world)
    before = copy_to_disk(world.store, tmp_path / "before")
    seen = [sorted(row_list(hudi_snapshot(before, as_of=time))) for time in times[-2:]]

    _archive(world)

    after = copy_to_disk(world.store, tmp_path / "after")
    assert hudi_rows(after) == hudi_rows(before) == visible_rows(world.open())
    assert [sorted(row_list(hudi_snapshot(after, as_of=time))) for time in times[-2:]] == seen


# What goes back does not go behind the archive.


def test_nobody_goes_back_to_an_archived_commit():
    world = _table(commits=7)
    first = _times(world)[0]
    _archive(world)

    for attempt in (restore, create_savepoint):
        with pytest.raises(UnknownInstant, match="may be archived"):
            attempt(world.open(), first)
    with (
        pytest.raises(UnknownInstant, match="may be archived"),
        lease(world.open(), "reader", 60, as_of=first),
    ):
        pass


def test_the_last_commit_on_the_timeline_is_not_undone():
    world = _table(commits=6)
    _archive(world, ArchiveSettings(clean=replace(FIVE, keep_min=1)))
    assert len(_times(world)) == 1

    with pytest.raises(Refused, match="the commits before this one are archived"):
        undo(world.open())

    assert visible_rows(world.open()) == {("a", "paris", 5.0), ("b", "rome", 0.0)}


def test_the_newest_of_the_commits_left_can_be_undone():
    world = _table(commits=6)
    _archive(world)

    undo(world.open())

    assert visible_rows(world.open()) == {("a", "paris", 4.0), ("b", "rome", 0.0)}
    check_at_rest(world.open())


@pytest.mark.parametrize("act", ["savepoint", "lease", "undo"])
def test_what_comes_between_plan_and_decision_is_honoured(act):
    world = _table(commits=7)
    third = _times(world)[2]
    held = []

    def meanwhile():
        if act == "savepoint":
            create_savepoint(world.open(), third)
        elif act == "lease":
            held.append(lease(world.open(), "reader", 3600, as_of=third))
            held[0].__enter__()
        else:
            undo(world.open())

    folder = LEDGER_FOLDER if act != "lease" else f"{META_FOLDER}/.holdfast/leases"
    report = _archive(world.on(InterruptedStore(world.store, folder, meanwhile)), AT_SAVEPOINTS)

    if act == "undo":
        assert len(_times(world)) == 2
        assert len(report.archived) == 4
    else:
        assert _times(world)[0] == third
        assert len(report.archived) == 2
    for one in held:
        one.__exit__(None, None, None)


def test_a_commit_that_is_being_archived_cannot_be_savepointed():
    world = _table(commits=7)
    third = _times(world)[2]
    _die(world, last=LEDGER_FOLDER)
    assert third in _times(world)

    with pytest.raises(UnknownInstant, match="archived in the meantime"):
        create_savepoint(world.open(), third)


# Crashes, faults and company.


def _die(world, *, last, act=_archive):
    counted = world.copy()
    recorder = RecordingStore(counted.store)
    act(counted.on(recorder))
    with pytest.raises(Crash):
        act(world.on(CrashingStore(world.store, recorder.last(last), after=True)))


def test_a_crash_at_any_step_leaves_no_hole_and_the_next_run_finishes_it():
    start = _table(commits=7)
    rows = visible_rows(start.open())
    shown = {time: visible_rows(start.open(), as_of=time) for time in _times(start)}
    counted = start.copy()
    recorder = RecordingStore(counted.store)
    _archive(counted.on(recorder))
    assert len(recorder.changes) == 1 + 1 + 1 + 1 + 1 + 2 * 5 + 5

    for step in range(1, len(recorder.changes) + 1):
        world = start.copy()
        with pytest.raises(Crash):
            _archive(world.on(CrashingStore(world.store, step, after=True)))

        check_at_any_time(world.open())
        left = _times(world)
        assert left == _times(start)[-len(left) :]
        assert visible_rows(world.open()) == rows
        for time, then in shown.items():
            assert visible_rows(world.open(), as_of=time) == then

        _archive(world)
        assert _times(world) == _times(start)[-2:]
        assert _archived_commits(world) == _times(start)[:-2]
        assert len(_entries(world, EntryKind.ARCHIVE)) == 1
        check_at_rest(world.open())


def test_the_next_write_finishes_what_a_dead_archiver_began():
    world = _table(commits=7)
    _die(world, last=".archive.1")

    _change(world, 9, SMALL_WRITES)

    assert len(_archived_commits(world)) == 5
    check_at_rest(world.open())


def test_an_instant_that_is_on_the_timeline_and_in_the_archive_counts_once():
    world = _table(commits=7)
    _die(world, last=".archive.1")

    archived = read_archive(world.store, world.open().settings)
    merged = archived.with_active(load_timeline(world.store))

    assert len(archived.timeline.instants) == 5
    assert len(merged.instants) == 7
    assert len(merged.completed_commits) == 7


def test_two_archivers_write_one_archive():
    world = _table(commits=7)

    class Rival(StoreWrapper):
        """Another archiver does all of it while this one is about to write the archive."""

        def create(self, path, content):
            if ".archive." in path and self.inner.stat(path) is None:
                _archive(world)
            return self.inner.create(path, content)

    _archive(world.on(Rival(world.store)))

    assert len([path for path in world.store.paths(META_FOLDER) if ".archive." in path]) == 1
    assert len(_archived_commits(world)) == 5
    check_at_rest(world.open())


def test_what_storage_does_not_delete_is_named_and_nothing_counts_as_gone():
    world = _table(commits=7)

    class Stubborn(StoreWrapper):
        def delete_all(self, paths):
            return tuple(paths)

    first = _archive(world.on(Stubborn(world.store)))
    second = _archive(world.on(Stubborn(world.store)))
    third = _archive(world)

    for report in (first, second):
        assert (report.archived, report.file, report.resumed, report.commits_left) == ((), None, (), 7)
        assert ".commit.requested" in report.held_back or ".inflight" in report.held_back
    assert len(_entries(world, EntryKind.ARCHIVE)) == 1
    assert (len(third.resumed), third.commits_left) == (5, 2)
    check_at_rest(world.open())


def test_an_archive_that_another_program_wrote_under_the_same_name_is_left_alone():
    world = _table(commits=7)

    class Foreign(StoreWrapper):
        def create(self, path, content):
            if path.endswith(".archive.1_1-0-1"):
                self.inner.create(path, b"foreign")
            return self.inner.create(path, content)

    report = _archive(world.on(Foreign(world.store)))

    assert world.store.read(".hoodie/archived/.commits_.archive.1_1-0-1") == b"foreign"
    assert report.file.endswith(".archive.2_1-0-1")
    assert len(decode_archive(world.store.read(report.file)).files) == 15


def test_archives_are_numbered_in_the_order_they_were_written():
    world = _table(commits=7)
    first = _archive(world).file
    for number in range(8, 12):
        _change(world, number)

    second = _archive(world).file

    assert (first[-7:], second[-7:]) == ("1_1-0-1", "2_1-0-1")
    assert len(_archived_commits(world)) == 9


def test_a_failure_after_the_commit_is_told_and_not_raised():
    world = _table(commits=6)

    class Full(StoreWrapper):
        def create(self, path, content):
            if ".archive." in path:
                raise StorageUnavailable("the disk is full", path=path)
            return self.inner.create(path, content)

    commit = _change(world.on(Full(world.store)), 7, SMALL_WRITES)

    assert [error for error in commit.post_commit_errors if "the disk is full" in error]
    assert visible_rows(world.open()) == {("a", "paris", 7.0), ("b", "rome", 0.0)}
    assert _change(world, 8, SMALL_WRITES).post_commit_errors == ()
    assert _archived_commits(world) != []


def test_archiving_beside_the_write_keeps_what_the_write_builds_on():
    world = _table(commits=6)

    commit = _change(world, 7, replace(SMALL_WRITES, archives_beside_write=True))

    assert commit.post_commit_errors == ()
    assert visible_rows(world.open()) == {("a", "paris", 7.0), ("b", "rome", 0.0)}
    check_at_rest(world.open())


def test_no_archiving_where_it_is_switched_off():
    for settings in (
        replace(SMALL_WRITES, archives=False),
        replace(SMALL_WRITES, clean=replace(FIVE, services_enabled=False)),
    ):
        assert _archived_commits(_table(commits=6, settings=settings)) == []


def test_what_was_aborted_stays_aborted_when_its_rollback_is_archived():
    world, *_ = _rolled_back()
    _archive(world)
    assert Action.ROLLBACK in {instant.action for instant in _archived(world).instants}

    assert recover(world.open()).rolled_back == ()
    assert verify(world.open()).findings == ()
    check_at_rest(world.open())


def test_verify_finds_nothing_wrong_with_an_archived_table():
    world = _table(commits=7)
    _archive(world)

    assert verify(world.open()).findings == ()


def test_verify_finds_nothing_wrong_while_instants_are_being_archived():
    world = _table(commits=7)
    _die(world, last=".inflight")

    assert verify(world.open()).findings == ()


def test_verify_finds_nothing_wrong_with_a_trimmed_ledger():
    world = replace(_table(commits=3), checkpoint_after=3)
    create_savepoint(world.open())
    for number in range(4, 16):
        _change(world, number)
    slots = [int(path.rpartition("/")[2]) for path in world.store.paths(LEDGER_FOLDER)]
    assert slots[1] - slots[0] > 1

    assert verify(world.open()).findings == ()
    check_at_rest(world.open())


def test_the_plan_says_what_would_go_and_changes_nothing():
    world = _table(commits=7)
    files = world.store.paths("")

    plan = plan_next_archive(world.open(), SMALL)

    assert [instant.time for instant in plan.instants] == _times(world)[:5]
    assert world.store.paths("") == files


def test_by_hand_dead_writers_are_rolled_back_first():
    world = _table(commits=6)
    _die(world, last="upload", act=lambda world: _change(world, 9))

    report = archive_instants(world.open(), SMALL_WRITES)

    assert len(report.archived) == 4
    check_at_rest(world.open())


def test_the_moment_of_completion_is_kept():
    world = _table(commits=7)
    before = {i.time: i.completed_at for i in load_timeline(world.store).instants}

    _archive(world)

    for instant in _archived(world).instants:
        assert instant.completed_at == before[instant.time]
        assert isinstance(instant.completed_at, dt.datetime)


def test_a_table_on_disk_is_archived_alike(tmp_path):
    import pyarrow as pa

    import holdfast

    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id")
    options = {"hoodie.keep.min.commits": "12", "hoodie.keep.max.commits": "13"}
    for number in range(14):
        commit = table.upsert(pa.table({"id": ["a"], "n": [number]}), options=options)
        assert commit.post_commit_errors == ()

    assert len([i for i in table.timeline() if i.action in COMMIT_ACTIONS]) == 12
    assert len([i for i in table.timeline(archived=True) if i.action in COMMIT_ACTIONS]) == 14
    assert table.archive(options=options).archived == ()
    assert pathlib.Path(tmp_path / "t/.hoodie/archived/.commits_.archive.1_1-0-1").stat().st_size > 0
    assert Timeline(tuple(table.timeline())).completed_commits[-1].time == commit.instant
