"""The completed file of a restore is lost after others have written: there is a way on."""

from dataclasses import replace

import pytest

from harness.checker import visible_ids
from harness.cleaning import clean
from harness.world import memory_world, rows
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.model.instant import Action, State
from holdfast.model.names import instant_file
from holdfast.model.reports import FindingKind
from holdfast.services.archive.archive import archive_instants
from holdfast.services.repair.repair import repair
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.undo import undo
from holdfast.services.verify.verify import verify

_ONE_VERSION = CleanSettings(
    policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1, automatic=False, keep_min=2, keep_max=3
)


_UP_TO_THE_TARGET = WriteSettings(clean=replace(_ONE_VERSION, keep_min=7, keep_max=8))


@pytest.fixture
def world():
    """Restored and written to; the commit that the restore went to is archived, the restore is not yet."""
    world = memory_world()
    world.create()
    oldest = world.insert("o").instant
    target = world.insert("a").instant
    world.insert("never")
    restored = restore(world.open(), target)
    for record in "bcdefgx":
        world.write("upsert", rows("a", record))
    clean(world.open(), _ONE_VERSION)
    archived = archive_instants(world.open(), _UP_TO_THE_TARGET).archived
    assert [instant.time for instant in archived] == [oldest, target]
    world.insert("z", city="oslo")
    world.lost = instant_file(restored.instant, Action.RESTORE, State.COMPLETED)
    world.target = target
    return world


def _lose(world):
    assert world.target not in world.commit_times()
    content = world.store.read(world.lost)
    world.store.delete(world.lost)
    return content


def test_it_is_found(world):
    _lose(world)

    found = [(finding.kind, finding.path) for finding in verify(world.open()).findings]

    assert found == [(FindingKind.DISAGREEMENT, world.lost)]


@pytest.mark.parametrize(
    "go_on",
    [
        lambda world: repair(world.open(), verify(world.open())),
        lambda world: world.insert("h"),
        lambda world: undo(world.open()),
        lambda world: clean(world.open(), _ONE_VERSION),
    ],
    ids=["repair", "write", "undo", "clean"],
)
def test_every_verb_goes_on_and_shows_it_again(world, go_on):
    _lose(world)

    go_on(world)

    assert verify(world.open()).findings == ()
    world.insert("i")
    assert {"a", "b", "c", "d", "e", "f", "i"} <= visible_ids(world.open())
    assert verify(world.open()).is_clean
