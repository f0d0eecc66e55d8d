"""How often storage is asked: what costs a table of many commits more than a small one, and what must not."""

import pytest

from harness.faults import StoreWrapper
from harness.world import memory_world, rows
from holdfast.config.write import WriteSettings
from holdfast.model.instant import Action
from holdfast.services.rollback.doomed_files import plan_rollback
from holdfast.services.rollback.failed_writes import FailedWrite
from holdfast.timeline.timeline import load_timeline

CHECKPOINT_AFTER = 5
FEW, MANY = 2 * CHECKPOINT_AFTER, 8 * CHECKPOINT_AFTER
"""Both right after a checkpoint: what the ledger has since then is the same."""
NO_SERVICES = WriteSettings.from_options(
    {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
)


class CountingStore(StoreWrapper):
    def __init__(self, inner):
        super().__init__(inner)
        self.calls = []
        self.paths_seen = set()

    def _change(self, verb, path, act):
        self.calls.append(verb)
        self.paths_seen.add(path)
        return act()

    _look = _change


def write(world, number):
    return world.write("bulk_insert", rows(f"id{number}", city="paris"), NO_SERVICES)


@pytest.fixture(scope="module")
def worlds():
    """The same table after few commits and after many."""
    world = memory_world()
    world.checkpoint_after = CHECKPOINT_AFTER
    world.create()
    found = []
    for number in range(1, MANY + 1):
        write(world, number)
        if number in (FEW, MANY):
            found.append(world.copy())
    return found


def calls(world, act):
    counting = CountingStore(world.store)
    act(world.on(counting))
    return sorted(counting.calls)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda world: world.open(), id="open"),
        pytest.param(lambda world: load_timeline(world.open().store), id="timeline"),
        pytest.param(lambda world: write(world, 1000), id="commit"),
    ],
)
def test_many_commits_cost_no_more_calls_than_few(worlds, act):
    few, many = (calls(world, act) for world in worlds)

    assert few
    assert few == many


def test_a_rollback_is_planned_without_a_look_at_the_data(worlds):
    world = worlds[-1].copy()
    world.die_after(lambda world: write(world, 1000), last="upload ")
    (pending,) = load_timeline(world.store).pending_writes
    failed = FailedWrite(pending.time, Action.COMMIT, owner=None, rollback=None)
    counting = CountingStore(world.store)

    plan = plan_rollback(world.on(counting).open(), failed)

    assert [len(request.files) for request in plan.requests] == [1]
    assert counting.paths_seen
    assert all(path.startswith(".hoodie/") for path in counting.paths_seen)
