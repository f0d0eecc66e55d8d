"""What a commit, an undo and a recovery ask of storage, after few and after many of anything.

Archives and checkpoints are made now and then, so a stretch of operations is counted, not one.
"""

from dataclasses import dataclass, replace
from functools import cache

import pytest

from harness.checker import check_at_rest, visible_rows
from harness.faults import Crash, StoreWrapper
from harness.world import memory_world, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Refused
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint
from holdfast.storage.store import Folder
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.origin import Origin

FEW, MANY, STRETCH = 20, 100, 10
SETTINGS = WriteSettings(
    clean=CleanSettings(
        policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=2, keep_min=3, keep_max=5
    )
)


@dataclass
class Asked:
    calls: int = 0
    bytes_read: int = 0
    entries_listed: int = 0


class MeteredStore(StoreWrapper):
    """Counts what is asked of storage."""

    def __init__(self, inner):
        super().__init__(inner)
        self.asked = Asked()

    def _change(self, verb, path, act):
        self.asked.calls += 1
        return act()

    def _look(self, verb, path, act):
        found = self._change(verb, path, act)
        if verb == "list":
            self.asked.entries_listed += len(found.files) if isinstance(found, Folder) else len(found)
        elif verb == "read":
            content = found[0] if isinstance(found, tuple) else found
            self.asked.bytes_read += len(content) if isinstance(content, bytes) else 0
        return found


class DyingStore(StoreWrapper):
    """Whoever writes here dies when a data file is written."""

    def _change(self, verb, path, act):
        act()
        if verb == "upload":
            raise Crash


def _commit(world, number):
    world.write("upsert", table_of([("a", "paris", float(number))]), SETTINGS)


def _fail(world, number):
    def check():
        raise Refused("the rows are not there any more")

    with pytest.raises(Refused):
        world.write("upsert", table_of([("a", "paris", float(number))]), SETTINGS, Origin(check=check))


def _commit_and_undo(world, number):
    _commit(world, number)
    undo(world.open())


def _commit_and_restore(world, number):
    target = load_timeline(world.store).last_commit.time
    _commit(world, number)
    restore(world.open(), target)
    _commit(world, number)


def _restore_to_savepoint(world, number):
    """By the time of each restore the savepointed commit has been archived."""
    for _ in range(6):
        _commit(world, number)
    assert load_timeline(world.store).completed_commits[0].time not in world.open().ledger.read().savepoints
    (saved,) = world.open().ledger.read().savepoints
    restore(world.open(), saved)
    # An undo of the first commit after it is one to a commit before the timeline.
    _commit(world, number)


def _recover_and_die(world, number):
    """Each rolls back the one before it, and dies as well."""
    with pytest.raises(Crash):
        _commit(world.on(DyingStore(world.store)), number)


def _table(*, savepoint=False):
    world = replace(memory_world(), checkpoint_after=20)
    world.create()
    for number in range(3):
        _commit(world, number)
    if savepoint:
        create_savepoint(world.open())
    return world


def _stretch(world, act, first):
    metered = MeteredStore(world.store)
    for number in range(first, first + STRETCH):
        act(world.on(metered), number)
    return metered.asked


@pytest.mark.parametrize(
    ("act", "with_savepoint"),
    [
        pytest.param(_commit, False, id="commits"),
        pytest.param(_fail, False, id="writes that fail"),
        pytest.param(_commit_and_undo, False, id="undos"),
        pytest.param(_recover_and_die, False, id="recoveries"),
        pytest.param(_commit_and_restore, False, id="restores"),
        pytest.param(_commit, True, id="commits after a savepoint"),
        pytest.param(_fail, True, id="writes that fail after a savepoint"),
        pytest.param(_commit_and_undo, True, id="undos after a savepoint"),
        pytest.param(_recover_and_die, True, id="recoveries after a savepoint"),
    ],
)
def test_many_cost_no_more_than_few(act, with_savepoint):
    world = _table(savepoint=with_savepoint)
    for number in range(FEW):
        act(world, number)
    few = _stretch(world.copy(), act, FEW)
    for number in range(FEW, MANY):
        act(world, number)
    many = _stretch(world.copy(), act, MANY)

    assert few.calls > 0
    assert many.calls <= 1.1 * few.calls
    assert many.bytes_read <= 1.1 * few.bytes_read
    assert many.entries_listed <= 1.1 * few.entries_listed
    recover(world.open())
    check_at_rest(world.open())
    assert len(visible_rows(world.open())) == 1


@pytest.mark.parametrize("act", [_commit, _commit_and_undo, _recover_and_die])
def test_after_many_restores_to_an_archived_savepoint_others_cost_no_more_than_after_few(act):
    """The restore itself reads the archive, which has all commits since; nobody else does."""
    few = _restored_to_savepoint(4)
    many = _restored_to_savepoint(16)

    asked = [_stretch(world.copy(), act, 1000) for world in (few, many)]

    assert asked[0].calls > 0
    assert asked[1].calls <= 1.1 * asked[0].calls
    assert asked[1].bytes_read <= 1.1 * asked[0].bytes_read
    assert asked[1].entries_listed <= 1.1 * asked[0].entries_listed


@cache
def _restored_to_savepoint(times):
    if times == 0:
        return _table(savepoint=True)
    world = _restored_to_savepoint(times - 1).copy()
    _restore_to_savepoint(world, times)
    return world
