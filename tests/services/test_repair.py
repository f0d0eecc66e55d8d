"""Defects planted on purpose, and their repair: what it moves, finishes and leaves, and what undoes it."""

import itertools
from dataclasses import replace

import pytest

from harness.checker import visible_ids
from harness.faults import Crash, CrashingStore, RecordingStore
from harness.planted import (
    DEFECTS,
    FINISHED,
    MOVED,
    NOBODYS,
    commit_that_is_not_shown,
    commit_that_vanished,
    died,
    each_crash,
    ledger_entry_torn_before_the_checkpoint,
)
from harness.world import SimulatedHost
from holdfast.errors import InvalidRequest, Refused, TableDamaged, UnsupportedTable
from holdfast.host import Liveness
from holdfast.model.names import LEDGER_FOLDER
from holdfast.model.reports import Finding, FindingKind, Severity, VerifyReport
from holdfast.services.repair.repair import quarantines, repair, undo_repair
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.verify.verify import verify
from holdfast.table.opened import open_at


def test_what_is_nobodys_is_moved_and_undo_puts_back_the_same_bytes(lake):
    for plant in MOVED:
        plant(lake)
    before = lake.files()

    report = repair(lake.world.open(), lake.report())
    repaired = lake.found()
    put_back = undo_repair(lake.world.open(), report.quarantine)

    assert repaired == set()
    assert sorted(put_back) == sorted(report.moved)
    assert len(report.moved) == 7
    assert report.left == ()
    assert lake.files() == before


def test_of_all_defects_only_what_is_proven_is_moved(lake):
    apart = (ledger_entry_torn_before_the_checkpoint, *FINISHED)
    planted = {plant: plant(lake) for plant in DEFECTS if plant not in apart}
    before = lake.files()

    report = repair(lake.world.open(), lake.report())

    after = lake.files()
    assert {path for path in before if path not in after} == set(report.moved)
    assert {path: before[path] for path in after if path in before} == {
        path: content for path, content in after.items() if path in before
    }
    left = set().union(*(found for plant, found in planted.items() if plant not in MOVED))
    assert {(f.kind, f.path) for f in report.left if f.severity is not Severity.INFO} == left
    undo_repair(lake.world.open(), report.quarantine)
    assert lake.files() == before


@pytest.mark.parametrize("plant", [commit_that_is_not_shown, commit_that_vanished])
def test_a_repair_shows_what_was_decided(lake, plant):
    expected = visible_ids(lake.world.open())
    plant(lake)

    report = repair(lake.world.open(), lake.report())

    assert (report.quarantine, report.moved, report.left) == (None, (), ())
    assert lake.report().findings == ()
    assert visible_ids(lake.world.open()) == expected


def test_a_repair_finishes_a_rollback_and_leaves_the_undecided_alone(lake):
    died(lake.world, "upload")
    unfinished = lake.world.copy()
    recorder = RecordingStore(lake.world.copy().store)
    recover(lake.world.on(recorder).open())
    with pytest.raises(Crash):
        recover(
            unfinished.on(CrashingStore(unfinished.store, recorder.last(".rollback"), after=False)).open()
        )

    finished = verify(unfinished.open())
    report = repair(unfinished.open(), finished)

    assert [f.kind for f in finished.findings] == [FindingKind.UNFINISHED]
    assert [one.instant for one in report.rolled_back]
    assert verify(unfinished.open()).findings == ()


def test_a_repair_leaves_a_running_writer_alone(lake):
    died(lake.world, "upload")
    running = replace(lake.world, host=SimulatedHost(others=Liveness.ALIVE))
    lake.copy_as(NOBODYS)
    before = lake.files()

    report = repair(running.open(), verify(running.open()))

    assert len(report.moved) == 1
    assert {p for p in before if p not in lake.files()} == set(report.moved)
    assert [finding.kind for finding in report.left] == [FindingKind.PENDING]


def test_a_repair_leaves_a_restore_to_be_finished(lake):
    *_, crashed = itertools.islice(
        each_crash(lake.world, lambda world: restore(world.open(), lake.commits[10])), 5
    )
    lake.world = crashed
    lake.copy_as(NOBODYS)

    report = repair(crashed.open(), verify(crashed.open()))

    assert len(report.moved) == 1
    assert report.rolled_back == ()
    assert FindingKind.PENDING in {finding.kind for finding in report.left}
    restore(crashed.open(), lake.commits[10])
    assert verify(crashed.open()).findings == ()


def test_a_report_that_is_not_true_any_more_moves_nothing(lake):
    committed, orphan = lake.written(3)[0], lake.copy_as(NOBODYS)
    stale = Finding(FindingKind.ORPHAN, committed, "", "", Severity.WARNING)
    report = VerifyReport(findings=(stale,), files_checked=0)
    before = lake.files()

    repaired = repair(lake.world.open(), report)

    assert (repaired.quarantine, repaired.moved) == (None, ())
    assert lake.files() == before
    assert orphan in before


def test_with_a_damaged_ledger_nothing_is_moved(lake):
    for plant in MOVED:
        plant(lake)
    path = lake.store.paths(LEDGER_FOLDER)[-1]
    lake.store.put(path, b"torn")
    before = lake.files()

    with pytest.raises(TableDamaged, match=path):
        repair(lake.world.open(), lake.report())

    assert lake.files() == before


def _repair(world):
    return repair(world.open(), verify(world.open()))


def test_a_crash_anywhere_in_a_repair_is_carried_on_under_the_same_id(lake):
    for plant in MOVED:
        plant(lake)
    before = lake.files()
    crashes = 0

    for world in each_crash(lake.world, _repair):
        report = _repair(world)
        assert verify(world.open()).findings == ()
        assert len(report.moved) in (0, 7)  # Nothing is moved any more if only the answer was lost.
        (quarantine,) = quarantines(world.open())
        undo_repair(world.open(), quarantine)
        assert {path: world.store.read(path) for path in world.store.paths("")} == before
        crashes += 1

    # A manifest, a copy and a deletion of each of seven files, and the manifest once more.
    assert crashes == 1 + 7 + 7 + 1


def test_a_crash_anywhere_in_an_undo_is_finished_by_the_next(lake):
    for plant in MOVED:
        plant(lake)
    before = lake.files()
    quarantine = _repair(lake.world).quarantine
    crashes = 0

    for world in each_crash(lake.world, lambda world: undo_repair(world.open(), quarantine)):
        if quarantine in quarantines(world.open()):
            undo_repair(world.open(), quarantine)
        assert {path: world.store.read(path) for path in world.store.paths("")} == before
        crashes += 1

    assert crashes == 7 + 7 + 1


def test_a_repair_after_half_an_undo_loses_nothing(lake):
    for plant in MOVED:
        plant(lake)
    before = lake.files()
    first = _repair(lake.world).quarantine

    for world in each_crash(lake.world, lambda world: undo_repair(world.open(), first)):
        _repair(world)
        for quarantine in quarantines(world.open()):
            undo_repair(world.open(), quarantine)
        assert {path: world.store.read(path) for path in world.store.paths("")} == before


def test_an_undo_overwrites_nothing(lake):
    orphan = lake.copy_as(NOBODYS)
    quarantine = _repair(lake.world).quarantine
    lake.store.create(orphan, b"another")
    before = lake.files()

    with pytest.raises(Refused, match=orphan):
        undo_repair(lake.world.open(), quarantine)

    assert lake.files() == before


@pytest.mark.parametrize("quarantine", ["20200101000000000", "", "../ledger"])
def test_an_undo_of_nothing_is_refused(lake, quarantine):
    with pytest.raises(InvalidRequest, match="no repair has this id"):
        undo_repair(lake.world.open(), quarantine)


def test_tables_that_are_not_written_are_not_repaired(hudi_fixture):
    table = open_at(str(hudi_fixture("mor_parquet_v6_simplekeygen_hivestyle_no_metafields")), {})

    with pytest.raises(UnsupportedTable):
        repair(table, verify(table))
