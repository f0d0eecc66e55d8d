"""Defects planted on purpose, each of which is named, and nothing else."""

import itertools
from dataclasses import replace

import msgspec
import pytest

from crashes.matrix import OPERATIONS, crash_points, one_more_write
from harness.damage import rich_table
from harness.faults import RecordingStore
from harness.planted import DEFECTS, NOBODYS, died, each_crash
from harness.world import SimulatedHost, rows
from holdfast.errors import TableDamaged
from holdfast.format.ledger_entries import decode_entry, encode_entry
from holdfast.host import Liveness
from holdfast.model.instant import Action, State
from holdfast.model.names import (
    ABORTED_FOLDER,
    CHECKPOINT_FOLDER,
    LEDGER_FLOOR,
    LEDGER_FOLDER,
    META_FOLDER,
    instant_file,
)
from holdfast.model.reports import FindingKind, Severity
from holdfast.services.repair.repair import repair
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.verify.verify import verify
from holdfast.table.opened import open_at
from holdfast.table.properties_file import has_settings
from holdfast.timeline.timeline import load_timeline


def test_a_healthy_table_is_clean(lake):
    report = lake.report()

    assert report.findings == ()
    assert report.is_clean
    assert report.files_checked == len([p for p in lake.store.paths("") if p.endswith(".parquet")])


@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__)
def test_each_defect_alone_is_named_and_nothing_else(lake, plant):
    expected = plant(lake)

    found = lake.found()

    assert found == expected
    assert not lake.report().is_clean
    assert all(finding.remedy and finding.detail for finding in lake.report().findings)


def test_all_defects_at_once_are_named_and_nothing_else(lake):
    expected = set().union(*(plant(lake) for plant in DEFECTS))

    assert lake.found() == expected


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_older_aborts_that_cannot_be_read_are_named_and_nothing_is_repaired(content):
    """Without them nobody can tell which files are nobody's."""
    world = rich_table()
    path, *_ = world.store.paths(ABORTED_FOLDER)
    world.store.put(path, content)

    report = verify(world.open())

    assert [(f.kind, f.severity) for f in report.findings if f.path == path] == [
        (FindingKind.TORN, Severity.DAMAGE)
    ]
    with pytest.raises(TableDamaged, match="ledger is damaged"):
        repair(world.open(), report)


def test_looking_changes_nothing(lake):
    for plant in DEFECTS:
        plant(lake)
    recorder = RecordingStore(lake.store)

    verify(lake.world.on(recorder).open())

    assert recorder.changes == []


def test_tables_of_hudi_are_clean(hudi_table):
    report = verify(open_at(str(hudi_table), {}))

    assert report.is_clean, report.findings


def test_a_running_writer_is_information(lake):
    died(lake.world, "upload")
    running = replace(lake.world, host=SimulatedHost(others=Liveness.ALIVE))

    report = verify(running.open())

    assert report.is_clean
    assert [finding.kind for finding in report.findings] == [FindingKind.PENDING]
    assert "is alive" in report.findings[0].detail


def test_a_commit_that_its_living_writer_is_about_to_show_is_information(lake):
    died(lake.world, "ledger")
    running = replace(lake.world, host=SimulatedHost(others=Liveness.ALIVE))

    assert verify(running.open()).is_clean
    assert not lake.report().is_clean


def test_a_write_that_ends_during_the_look_leaves_no_shadow(lake):
    """Its file is listed and named by no commit yet; then it is rolled back, and the file is gone."""
    died(lake.world, "upload")

    class Looking(RecordingStore):
        def folder(self, path, *, after=""):
            if path == META_FOLDER:
                recover(lake.world.open())
            return super().folder(path, after=after)

    report = verify(lake.world.on(Looking(lake.store)).open())

    assert report.is_clean, report.findings


def test_a_ghost_that_readers_see_is_damage(lake):
    """The rollback was archived with the commits around it; a file that came late counts as archived."""
    path = lake.copy_as(lake.aborted)
    timeline = load_timeline(lake.store)
    for instant in timeline.instants:
        if instant.time <= max(i.time for i in timeline.instants if i.action is Action.ROLLBACK):
            for state in State:
                lake.store.delete(instant_file(instant.time, instant.action, state))

    findings = lake.report().findings

    assert [(f.kind, f.path, f.severity) for f in findings] == [(FindingKind.ORPHAN, path, Severity.DAMAGE)]


def test_files_of_commits_archived_after_a_savepoint_are_not_taken_for_orphans(lake):
    """Hudi, which has no ledger, may archive beyond a savepoint, whose own commit stays on the timeline."""
    lake.store.delete_all([*lake.store.paths(LEDGER_FOLDER), *lake.store.paths(CHECKPOINT_FOLDER)])
    for time in (lake.commits[0], *lake.commits[2:6]):
        for state in State:
            lake.store.delete(instant_file(time, Action.COMMIT, state))

    assert FindingKind.ORPHAN not in {finding.kind for finding in lake.report().findings}


def test_a_ledger_that_cannot_be_read_is_named_and_the_files_are_looked_at_all_the_same(lake):
    last = lake.store.paths(LEDGER_FOLDER)[-1]
    lake.store.put(last, b"torn")
    orphan = lake.copy_as(NOBODYS)

    found = lake.found()

    assert found == {(FindingKind.TORN, last), (FindingKind.ORPHAN, orphan)}


@pytest.mark.parametrize("floor", [b"", b"x1", b"99999"])
def test_a_floor_that_cannot_be_right_is_named_and_nothing_is_repaired(lake, floor):
    lake.store.put(LEDGER_FLOOR, floor)

    report = verify(lake.world.open())

    assert (LEDGER_FLOOR, Severity.DAMAGE) in [(one.path, one.severity) for one in report.findings]
    with pytest.raises(TableDamaged, match="the ledger is damaged"):
        repair(lake.world.open(), report)


def test_a_hole_in_the_ledger_is_named(lake):
    paths = lake.store.paths(LEDGER_FOLDER)
    lake.store.delete(paths[-3])

    assert (FindingKind.CONTRADICTORY, paths[-2]) in lake.found()


def test_a_ledger_whose_chain_is_broken_is_named(lake):
    """The entry is whole, but it follows another one than the one before it."""
    *_, path, following = lake.store.paths(LEDGER_FOLDER)
    entry, payload, _ = decode_entry(lake.store.read(path))
    lake.store.put(path, encode_entry(msgspec.structs.replace(entry, previous="0" * 64), payload))

    assert lake.found() == {(FindingKind.CONTRADICTORY, path), (FindingKind.CONTRADICTORY, following)}


def test_a_torn_checkpoint_is_named(lake):
    checkpoint = lake.store.paths(CHECKPOINT_FOLDER)[-1]
    lake.store.put(checkpoint, lake.store.read(checkpoint)[:-1])

    assert lake.found() == {(FindingKind.TORN, checkpoint)}


def test_what_was_half_written_when_a_process_died_is_information(tmp_path, lake):
    table = tmp_path / "t"
    for path, content in lake.files().items():
        (table / path).parent.mkdir(parents=True, exist_ok=True)
        (table / path).write_bytes(content)
    staging = table / ".hoodie/.holdfast/staging"
    staging.mkdir()
    (staging / "elsewhere~boot~1~x").write_bytes(b"half")

    report = verify(open_at(str(table), {}))

    assert report.is_clean
    assert [(f.kind, f.path) for f in report.findings] == [
        (FindingKind.LEFTOVER, ".hoodie/.holdfast/staging/elsewhere~boot~1~x")
    ]


@pytest.mark.parametrize("number", range(1, len(OPERATIONS)), ids=lambda number: OPERATIONS[number].name)
def test_a_crash_is_no_damage_and_after_recovery_the_table_is_clean(number):
    """A sample of steps, another one for each operation; the crash matrix takes them all."""
    for point, world in crash_points(OPERATIONS[number], every=5, offset=number, moments=(True,)):
        # A table that a write makes may not be there yet.
        crashed = verify(world.open()).findings if has_settings(world.store) else ()
        assert not [f for f in crashed if f.severity is Severity.DAMAGE], point

        one_more_write(world, ("next", "paris", 9.0))

        recovered = verify(world.open()).findings
        # A planned compaction waits until somebody carries it out.
        assert [one for one in recovered if ".compaction." not in one.path] == [], point
        assert all(one.severity is Severity.INFO for one in recovered), point


@pytest.mark.parametrize(
    "act",
    [
        lambda lake, world: restore(world.open(), lake.commits[10]),
        lambda lake, world: restore(world.open(), lake.commits[1]),
        lambda lake, world: undo(world.open()),
    ],
    ids=["restore", "restore beyond a rolled back write", "undo"],
)
def test_going_back_leaves_a_clean_table_and_only_information_on_the_way(lake, act):
    for world in itertools.islice(each_crash(lake.world, lambda world: act(lake, world)), 0, None, 5):
        assert verify(world.open()).is_clean

        act(lake, world)

        assert verify(world.open()).findings == ()


@pytest.mark.parametrize("operation", ["insert", "upsert", "insert_overwrite"])
def test_at_every_step_of_a_living_writer_the_table_is_clean(lake, operation):
    def write(world):
        world.write(operation, rows("a", "z", fare=3.0))

    for world in each_crash(lake.world, write):
        report = verify(replace(world, host=SimulatedHost(others=Liveness.ALIVE)).open())

        assert report.is_clean, report.findings
