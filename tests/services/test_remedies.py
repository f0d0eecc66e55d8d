"""Every finding names a remedy that works: after it the table is clean, or at least read and written."""

import re

import pytest

from harness.checker import visible_ids
from harness.planted import DEFECTS, NOBODYS, died
from harness.world import rows
from holdfast.errors import TableDamaged
from holdfast.format.rollbacks import RollbackPlan, RolledBackInstant, encode_rollback_plan
from holdfast.model.instant import Action, State
from holdfast.model.names import instant_file
from holdfast.model.reports import FindingKind, Severity
from holdfast.services.repair.repair import repair
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import delete_savepoint

_COMMAND = re.compile(r"holdfast (restore|savepoint delete) PATH --(?:to|commit) (\d+)")


def from_backup(lake, finding, before):
    """What was planted there, and never was whole, gets the plan that it might have had."""
    plan = encode_rollback_plan(RollbackPlan(RolledBackInstant(NOBODYS, Action.COMMIT), ()))
    lake.store.put(finding.path, before.get(finding.path, plan))


def by_command(lake, finding, before):
    """The command that it names."""
    command, instant = _COMMAND.search(finding.remedy).groups()
    act = restore if command == "restore" else delete_savepoint
    act(lake.world.open(), instant)


def by_moving(lake, finding, before):
    lake.store.delete(finding.path)


def by_moving_both(lake, finding, before):
    lake.store.delete_all([finding.path, finding.path.replace(".requested", ".inflight")])


def by_repair(lake, finding, before):
    report = repair(lake.world.open(), lake.report())

    assert not [left for left in report.left if left.severity is not Severity.INFO]


def by_leaving_it(lake, finding, before):
    """Nothing has to be done."""


WAYS = {
    "holdfast restore PATH --to": by_command,
    "holdfast savepoint delete PATH": by_command,
    "put a copy back from a backup": from_backup,
    "put the file back from a backup": from_backup,
    "repair": by_repair,
    "move the file out of the table": by_moving,
    "move it and its inflight file out of the table": by_moving_both,
    "delete it if that writer is gone": by_moving,
    "leave it": by_leaving_it,
}
"""What a remedy says → doing it. A remedy may offer several ways."""


def ways(finding):
    return [act for said, act in WAYS.items() if said in finding.remedy]


def wrong(lake):
    return [finding for finding in lake.report().findings if finding.severity is not Severity.INFO]


@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__)
def test_every_remedy_of_a_planted_defect_works(fresh_lake, plant):
    planted = fresh_lake()
    before = planted.files()
    plant(planted)
    offered = ways(wrong(planted)[0])
    assert offered

    for number in range(len(offered)):
        lake = fresh_lake()
        plant(lake)
        for finding in wrong(lake):
            ways(finding)[number](lake, finding, before)

        if offered[number] is not by_leaving_it:
            assert wrong(lake) == []
        check_in_use(lake)


def check_in_use(lake):
    """It is written to, undone and restored."""
    ids = visible_ids(lake.world.open())
    lake.world.write("upsert", rows("a", "new", city="paris", fare=5.0))
    assert set(visible_ids(lake.world.open())) == {*ids, "new"}
    undo(lake.world.open())
    assert sorted(visible_ids(lake.world.open())) == sorted(ids)
    target = lake.world.commit_times()[-2]
    restore(lake.world.open(), target)
    assert lake.world.commit_times()[-1] == target


def test_every_kind_that_verify_names_as_damage_offers_a_way(lake):
    """All planted at once: none is left to prose."""
    for plant in DEFECTS:
        plant(lake)

    assert [finding.remedy for finding in wrong(lake) if not ways(finding)] == []


def test_a_commit_that_is_torn_is_shown_again_with_the_same_bytes(lake):
    path = lake.completed(6)
    whole = lake.store.read(path)
    lake.store.put(path, whole[:100])

    report = repair(lake.world.open(), lake.report())

    assert report.moved == (path,)
    assert lake.store.read(path) == whole


def test_a_rollback_whose_plan_is_torn_while_it_is_under_way_is_made_anew(lake):
    """Before, every write was refused for ever."""
    died(lake.world, "upload")
    (failed,) = lake.world.open().ledger.read().begun
    lake.world.die_after(lambda world: recover(world.open()), last=".rollback.inflight")
    rollback = lake.world.open().ledger.read().aborted[failed].rollback
    plan = instant_file(rollback, Action.ROLLBACK, State.REQUESTED)
    lake.store.put(plan, b"Obj")
    with pytest.raises(TableDamaged, match="plan of a rollback"):
        lake.world.insert("z")
    found = {finding.kind for finding in wrong(lake)}

    repair(lake.world.open(), lake.report())

    assert found == {FindingKind.TORN_ROLLBACK}
    assert wrong(lake) == []
    lake.world.insert("z")
    assert "z" in visible_ids(lake.world.open())
