import threading

import pytest

from harness.checker import visible_ids
from harness.world import memory_world
from holdfast.errors import TableDamaged
from holdfast.model.instant import Action, State
from holdfast.services.rollback.undo import undo
from holdfast.storage.memory import MemoryStore
from holdfast.timeline.timeline import load_timeline, read_completed


def timeline_of(*names):
    store = MemoryStore()
    for name in names:
        store.create(f".hoodie/{name}", b"")
    return load_timeline(store)


def test_an_instant_is_shown_once_in_its_furthest_state():
    found = timeline_of(
        "20240101000000001.commit", "20240101000000001.inflight", "20240101000000001.commit.requested"
    )

    (instant,) = found.instants
    assert (instant.action, instant.state) == (Action.COMMIT, State.COMPLETED)
    assert instant.completed_at is not None


def test_a_finished_compaction_is_a_commit_and_a_pending_one_is_not_a_failed_write():
    found = timeline_of(
        "20240101000000001.compaction.requested",
        "20240101000000001.compaction.inflight",
        "20240101000000001.commit",
        "20240101000000002.compaction.requested",
    )

    assert [(i.action, i.state) for i in found.instants] == [
        (Action.COMMIT, State.COMPLETED),
        (Action.COMPACTION, State.REQUESTED),
    ]
    assert found.pending_writes == ()


def test_a_savepoint_shares_the_time_of_its_commit():
    found = timeline_of("20240101000000001.commit", "20240101000000001.savepoint")

    assert [i.action for i in found.instants] == [Action.COMMIT, Action.SAVEPOINT]
    assert found.find("20240101000000001").action is Action.COMMIT


def test_other_files_are_ignored():
    found = timeline_of("20240101000000001.commit.tmp", "hoodie.properties.backup", "archived/x", ".aux/y")

    assert found.instants == ()


def test_one_write_leaves_three_files_and_no_marker_or_heartbeat():
    world = memory_world()
    world.create()

    commit = world.insert("a")

    names = [p for p in world.store.paths(".hoodie") if commit.instant in p]
    assert names == [
        f".hoodie/{commit.instant}.commit",
        f".hoodie/{commit.instant}.commit.requested",
        f".hoodie/{commit.instant}.inflight",
    ]


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_commit_that_another_program_is_still_writing_is_waited_for(share):
    world = memory_world()
    world.create()
    path = f".hoodie/{world.insert('a').instant}.commit"
    content = world.store.read(path)
    world.store.put(path, content[: int(share * len(content))])
    later = threading.Timer(0.2, world.store.put, (path, content))

    later.start()

    assert visible_ids(world.open()) == {"a"}


def test_a_rollback_that_another_program_is_still_writing_is_waited_for():
    world = memory_world()
    world.create()
    world.insert("a")
    world.insert("b")
    undo(world.open())
    (rollback,) = [i for i in load_timeline(world.store).instants if i.action is Action.ROLLBACK]
    path = f".hoodie/{rollback.time}.rollback"
    content = world.store.read(path)
    world.store.put(path, content[:-20])
    later = threading.Timer(0.2, world.store.put, (path, content))

    later.start()

    assert read_completed(world.store, rollback) == content


def test_a_commit_that_stays_unfinished_is_damaged():
    world = memory_world()
    world.create()
    path = f".hoodie/{world.insert('a').instant}.commit"
    content = world.store.read(path)

    for torn in (b"", content[:-2]):
        world.store.put(path, torn)
        with pytest.raises(TableDamaged):
            visible_ids(world.open())
