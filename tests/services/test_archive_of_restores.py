"""Restores and rollbacks leave the timeline, and what they took back stays taken back."""

import logging

import pytest

from harness.checker import check_at_any_time, check_at_rest, visible_rows
from harness.faults import Crash, CrashingStore, InterruptedStore, RecordingStore
from harness.hudi_reader import copy_to_disk, hudi_rows
from harness.world import memory_world, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import ArchiveSettings, CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.format.archive import decode_archive
from holdfast.model.instant import Action, State
from holdfast.model.names import ARCHIVED_UNDONE, META_FOLDER, instant_file, is_file_of
from holdfast.model.reports import FindingKind, Severity
from holdfast.read.history import undone_by
from holdfast.services.archive.archive import archive_without_recovery
from holdfast.services.repair.repair import repair
from holdfast.services.restore.plan import commits_archived_between
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint
from holdfast.services.verify.verify import verify
from holdfast.table.archive import read_archive
from holdfast.table.undone import Stretch, Undone, add_to_undone, find_undone, read_undone
from holdfast.timeline.timeline import load_timeline

BY_HAND = WriteSettings(clean=CleanSettings(automatic=False), archives=False)
SMALL = ArchiveSettings(
    clean=CleanSettings(
        automatic=False,
        policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
        versions_retained=1,
        keep_min=2,
        keep_max=4,
    )
)
RESTORES = ".restores_.archive"


def _write(world, number):
    return world.write("upsert", table_of([("a", "paris", float(number))]), BY_HAND)


def _table(commits=3):
    world = memory_world()
    world.create()
    for number in range(commits):
        _write(world, number)
    return world


def _archive(world):
    return archive_without_recovery(world.open(), SMALL)


def _restore(world):
    """Take the newest commit back; the path and the content of its file."""
    newest, before = load_timeline(world.store).completed_commits[:-3:-1]
    path = next(path for path in world.store.paths("city=paris") if is_file_of(path, newest.time))
    content = world.store.read(path)
    restore(world.open(), before.time)
    return path, content


def _undo(world):
    newest = load_timeline(world.store).completed_commits[-1]
    path = next(path for path in world.store.paths("city=paris") if is_file_of(path, newest.time))
    content = world.store.read(path)
    undo(world.open())
    return path, content


def _taken_back(take_back, times=6):
    """A table with more restores, or rollbacks, than may gather; and a file of the first write of those."""
    world = _table()
    found = []
    for number in range(times):
        _write(world, 100 + number)
        found.append(take_back(world))
    return world, *found[0]


def _archived_beyond(take_back):
    """The same, and the timeline begins after all of it."""
    world, path, content = _taken_back(take_back)
    for number in range(5):
        _write(world, number)
    _archive(world)
    return world, path, content


def _actions(timeline, action):
    return [instant.time for instant in timeline.instants if instant.action is action]


def test_restores_alone_go_when_too_many_have_gathered():
    world, *_ = _taken_back(_restore)
    rows, gathered = visible_rows(world.open()), _actions(load_timeline(world.store), Action.RESTORE)
    assert len(gathered) == 6

    report = _archive(world)

    assert [instant.time for instant in report.archived] == gathered[:4]
    assert _actions(load_timeline(world.store), Action.RESTORE) == gathered[4:]
    assert visible_rows(world.open()) == rows
    assert verify(world.open()).findings == ()
    check_at_rest(world.open())


def test_restores_go_with_younger_commits():
    world, *_ = _taken_back(_restore, times=1)
    for number in range(5):
        _write(world, number)

    report = _archive(world)

    assert Action.RESTORE in {instant.action for instant in report.archived}
    assert _actions(load_timeline(world.store), Action.RESTORE) == []
    check_at_rest(world.open())


def test_what_a_restore_said_is_in_the_archive_and_hudi_does_not_look_there(tmp_path):
    world, *_ = _taken_back(_restore)
    oldest = _actions(load_timeline(world.store), Action.RESTORE)[0]
    said = {state: world.store.read(instant_file(oldest, Action.RESTORE, state)) for state in State}

    _archive(world)

    archived = read_archive(world.store)
    assert {state: archived.content(oldest, Action.RESTORE, state) or b"" for state in State} == said
    shown = archived.timeline.find(oldest, Action.RESTORE)
    assert len(undone_by(world.open(), shown, archived=archived)) == 1
    assert shown.completed_at is not None
    for path in world.store.paths(f"{META_FOLDER}/archived"):
        kinds = {file.action for file in decode_archive(world.store.read(path)).files}
        assert (Action.RESTORE in kinds) is (RESTORES in path)
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == visible_rows(world.open())


@pytest.mark.parametrize("take_back", [_restore, _undo], ids=["restores", "rollbacks"])
def test_a_file_that_a_task_finishes_after_all_that_is_archived_is_no_data(take_back):
    """Its write was taken back, and what took it back has left the timeline."""
    world, path, content = _archived_beyond(take_back)
    rows = visible_rows(world.open())
    assert path.rpartition("_")[2].removesuffix(".parquet") < load_timeline(world.store).first_commit_time

    world.store.create(path, content)

    assert visible_rows(world.open()) == rows
    _write(world, 7)
    assert visible_rows(world.open()) == {("a", "paris", 7.0)}
    (finding,) = verify(world.open()).findings
    assert (finding.kind, finding.path) == (FindingKind.ORPHAN, path)
    assert finding.severity is Severity.WARNING
    repair(world.open(), verify(world.open()))
    assert verify(world.open()).is_clean


def test_a_restore_that_left_a_file_stays_however_many_there_are():
    world, path, content = _taken_back(_restore)
    oldest = _actions(load_timeline(world.store), Action.RESTORE)[0]
    world.store.create(path, content)

    held = _archive(world)
    world.store.delete(path)
    for _ in range(2):
        _write(world, 1)
        _restore(world)
    freed = _archive(world)

    assert oldest not in {instant.time for instant in held.archived}
    assert len(held.archived) == 3
    assert oldest in {instant.time for instant in freed.archived}


@pytest.mark.parametrize("damage", [None, b"", b"garbage\n", "a line of it"])
@pytest.mark.parametrize("take_back", [_restore, _undo], ids=["restores", "rollbacks"])
def test_a_record_that_is_damaged_or_lost_is_made_anew(take_back, damage, caplog):
    world, path, content = _archived_beyond(take_back)
    whole = world.store.read(ARCHIVED_UNDONE)
    rows = visible_rows(world.open())
    if damage is None:
        world.store.delete(ARCHIVED_UNDONE)
    else:
        world.store.put(ARCHIVED_UNDONE, whole.replace(b"2", b"3") if isinstance(damage, str) else damage)
        (finding,) = verify(world.open()).findings
        assert (finding.kind, finding.path) == (FindingKind.TORN, ARCHIVED_UNDONE)
        # The archive says it all the same.
        with caplog.at_level(logging.WARNING):
            world.store.create(path, content)
            assert visible_rows(world.open()) == rows
            world.store.delete(path)
        assert "undone.unreadable" in caplog.messages

    for number in range(6):
        _write(world, number)
        take_back(world)
    _archive(world)

    known = read_undone(world.store).stretches
    for old in _decoded(whole):
        assert any(new.first <= old.first <= old.last <= new.last for new in known)
    check_at_rest(world.open())
    assert verify(world.open()).findings == ()


def _decoded(content):
    return [Stretch(*map(int, line.split())) for line in content.decode().splitlines()[1:]]


def test_a_table_restored_to_one_commit_again_and_again_has_one_line():
    world = _table()
    target = create_savepoint(world.open()).instant
    for _ in range(4):
        for number in range(6):
            _write(world, number)
        _archive(world)
        restore(world.open(), target)
    for number in range(8):
        _write(world, number)
    _archive(world)

    assert _actions(load_timeline(world.store), Action.RESTORE) == []
    (stretch,) = read_undone(world.store).stretches
    restores = _actions(read_archive(world.store).timeline, Action.RESTORE)
    assert (stretch.first, stretch.last) == (int(target) + 1, int(restores[-1]) - 1)
    assert len(restores) == 4
    check_at_rest(world.open())


def test_a_restore_to_an_archived_commit_counts_only_what_no_restore_before_it_took_back():
    world = _table()
    target = create_savepoint(world.open()).instant
    taken_back = []
    for _ in range(3):
        for number in range(6):
            _write(world, number)
        _archive(world)
        taken_back.append(len(restore(world.open(), target).rolled_back))
    for number in range(8):
        _write(world, number)
    _archive(world)

    assert taken_back == [6, 6, 6]
    standing = {commit.time for commit in read_archive(world.store).timeline.completed_commits}
    found = {write.time for write, _ in commits_archived_between(world.open(), target)}
    assert found == {time for time in standing if time > target}
    assert len(found) == 6


def test_commits_that_an_archived_restore_took_back_stay_away_while_it_leaves_the_timeline():
    """Its plan, which says where it went, is deleted before the restore itself is."""
    world = _table()
    target = create_savepoint(world.open()).instant
    for number in range(6):
        _write(world, number)
    _archive(world)
    restore(world.open(), target)
    for number in range(8):
        _write(world, number)
    restored = _actions(load_timeline(world.store), Action.RESTORE)[0]
    standing = {commit.time for commit in load_timeline(world.store).completed_commits}
    expected = {c.time for c in read_archive(world.store).timeline.completed_commits} | standing

    recorder = RecordingStore(world.copy().store)
    _archive(world.copy().on(recorder))
    assert any(change == f"delete {META_FOLDER}/{restored}.restore.requested" for change in recorder.changes)
    for number in range(1, 1 + len(recorder.changes)):
        copy = world.copy()
        with pytest.raises(Crash):
            _archive(copy.on(CrashingStore(copy.store, number, after=True)))
        history = read_archive(copy.store).with_active(load_timeline(copy.store))
        assert {commit.time for commit in history.completed_commits} == expected, recorder.changes[number - 1]
        check_at_any_time(copy.open())
        _archive(copy)
        check_at_rest(copy.open())


def test_the_record_is_there_before_the_first_instant_goes():
    world, *_ = _taken_back(_restore)
    recorder = RecordingStore(world.store)

    _archive(world.on(recorder))

    at = next(n for n, change in enumerate(recorder.changes) if ARCHIVED_UNDONE in change)
    deletions = [
        n for n, change in enumerate(recorder.changes) if change.startswith(f"delete {META_FOLDER}/2")
    ]
    assert at < deletions[0]
    assert any(RESTORES in change for change in recorder.changes[:at])


def test_a_commit_that_another_program_left_where_a_restore_went_past_it_stays():
    world, *_ = _taken_back(_restore, times=1)
    timeline = load_timeline(world.store)
    (restored,) = _actions(timeline, Action.RESTORE)
    (all_of_it,) = find_undone(world.store, timeline.instants, ())
    between = all_of_it.first + 1

    found = find_undone(world.store, timeline.instants, (), standing=[str(between), restored])

    assert all_of_it.last == int(restored) - 1
    assert found == (Stretch(between - 1, between - 1), Stretch(between + 1, all_of_it.last))
    assert find_undone(world.store, timeline.instants, (), standing=[str(between - 1)]) == (
        Stretch(between, all_of_it.last),
    )


def test_a_restore_whose_plan_cannot_be_read_still_says_what_it_took_back():
    world, *_ = _taken_back(_restore, times=1)
    timeline = load_timeline(world.store)
    (restored,) = _actions(timeline, Action.RESTORE)
    taken_back = undone_by(world.open(), timeline.find(restored, Action.RESTORE))
    world.store.put(instant_file(restored, Action.RESTORE, State.REQUESTED), b"torn")

    found = find_undone(world.store, timeline.instants, ())

    assert found == tuple(Stretch(int(time), int(time)) for time in taken_back)


def test_two_that_add_to_the_record_lose_nothing():
    world = memory_world()
    slow = InterruptedStore(
        world.store, ARCHIVED_UNDONE, lambda: add_to_undone(world.store, [Stretch(2, 4)], frozenset)
    )
    add_to_undone(slow, [Stretch(7, 7)], frozenset)
    slower = InterruptedStore(
        world.store, ARCHIVED_UNDONE, lambda: add_to_undone(world.store, [Stretch(5, 5)], frozenset)
    )
    add_to_undone(slower, [Stretch(9, 12)], frozenset)

    assert read_undone(world.store) == Undone((Stretch(2, 5), Stretch(7, 7), Stretch(9, 12)))
