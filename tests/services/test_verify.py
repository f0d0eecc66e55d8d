"""Defects planted on purpose, each of which is named, and nothing else; and their repair."""

import itertools
from dataclasses import replace

import msgspec
import pytest

from crashes.matrix import OPERATIONS, crash_points, one_more_write
from harness.checker import visible_ids
from harness.faults import Crash, CrashingStore, RecordingStore
from harness.world import SimulatedHost, memory_world, rows
from holdfast.cli.arguments import opened
from holdfast.concurrency.heartbeats import Beat
from holdfast.errors import InvalidRequest, Refused, TableDamaged, UnsupportedTable
from holdfast.format.commits import decode_commit, decode_written_files, encode_commit
from holdfast.format.ledger_entries import decode_entry, encode_entry
from holdfast.format.rollbacks import RollbackPlan, encode_rollback_plan
from holdfast.format.savepoints import SavepointMetadata, encode_savepoint
from holdfast.host import Liveness
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import (
    CHECKPOINT_FOLDER,
    LEDGER_FLOOR,
    LEDGER_FOLDER,
    META_FOLDER,
    PARTITION_METAFILE,
    heartbeat_path,
    instant_file,
    marker_path,
    partition_of,
)
from holdfast.model.reports import Finding, FindingKind, Severity, VerifyReport
from holdfast.services.repair import quarantines, repair, undo_repair
from holdfast.services.restore import restore
from holdfast.services.rollback import recover
from holdfast.services.undo import undo
from holdfast.services.verify import verify
from holdfast.timeline.timeline import load_timeline

NOBODYS = InstantTime("20991231235959999")
ROLLBACK = InstantTime("20991231235959998")


class Lake:
    """A table with some history: many commits, a savepoint, a write that was rolled back."""

    def __init__(self) -> None:
        self.world = memory_world()
        early = replace(self.world, checkpoint_after=2)
        early.create()
        self.commits = [early.bulk_insert("a", "b").instant, early.bulk_insert("c", "d").instant]
        self._savepoint(self.commits[1])
        self.commits.append(self.world.write("upsert", rows("a", city="paris", fare=7.0)).instant)
        self.aborted = self._rolled_back_write()
        self.commits += [self.world.bulk_insert(f"e{n}", f"f{n}").instant for n in range(10)]

    @property
    def store(self):
        return self.world.store

    def report(self):
        return verify(self.world.open())

    def found(self):
        """What is wrong, as kinds and paths."""
        return {(f.kind, f.path) for f in self.report().findings if f.severity is not Severity.INFO}

    def files(self):
        return {path: self.store.read(path) for path in self.store.paths("")}

    def written(self, number):
        """The files of a commit; paris first."""
        return sorted(file.path for file in decode_written_files(self.store.read(self.completed(number))))

    def completed(self, number):
        return instant_file(self.commits[number], Action.COMMIT, State.COMPLETED)

    def copy_as(self, time, number=0, token="9-9-9"):
        """A base file as a task of that instant would have left it."""
        source = self.written(number)[0]
        group = source.partition("_")[0]
        path = f"{group}_{token}_{time}.parquet"
        self.store.create(path, self.store.read(source))
        return path

    def _savepoint(self, time):
        names = {}
        for number in (0, 1):
            for path in self.written(number):
                names.setdefault(partition_of(path), []).append(path.rpartition("/")[2])
        files = {partition: tuple(found) for partition, found in names.items()}
        self.store.create(instant_file(time, Action.SAVEPOINT, State.INFLIGHT), b"")
        content = encode_savepoint(SavepointMetadata("ada", 1, "", files))
        self.store.create(instant_file(time, Action.SAVEPOINT, State.COMPLETED), content)

    def _rolled_back_write(self):
        died(self.world, "upload")
        (report,) = recover(self.world.open()).rolled_back
        return report.rolled_back


def died(world, last, *, after=True):
    """Let an insert die at the last of its changes that contains this text."""
    recorder = RecordingStore(world.copy().store)
    world.copy().on(recorder).insert("x", "y")
    with pytest.raises(Crash):
        world.on(CrashingStore(world.store, recorder.last(last), after=after)).insert("x", "y")


@pytest.fixture(scope="module")
def history():
    return Lake()


@pytest.fixture
def lake(history):
    copied = object.__new__(Lake)
    copied.__dict__ = {**history.__dict__, "world": history.world.copy()}
    return copied


def orphan_of_an_unknown_instant(lake):
    return {(FindingKind.ORPHAN, lake.copy_as(NOBODYS))}


def orphan_of_a_rolled_back_write(lake):
    return {(FindingKind.ORPHAN, lake.copy_as(lake.aborted))}


def orphan_that_its_commit_does_not_name(lake):
    return {(FindingKind.ORPHAN, lake.copy_as(lake.commits[1], number=1))}


def missing_file_of_the_snapshot(lake):
    path = lake.written(3)[0]
    lake.store.delete(path)
    return {(FindingKind.MISSING, path)}


def missing_file_of_a_savepoint(lake):
    """The version before the upsert, which no query of today reads."""
    path = lake.written(0)[0]
    lake.store.delete(path)
    return {(FindingKind.MISSING, path)}


def file_cut_short(lake):
    path = lake.written(4)[0]
    lake.store.put(path, lake.store.read(path)[:-10])
    return {(FindingKind.TRUNCATED, path)}


def file_without_footer(lake):
    path = lake.written(5)[0]
    lake.store.put(path, lake.store.read(path)[:-4] + b"PARX")
    return {(FindingKind.TRUNCATED, path)}


def file_with_an_impossible_footer(lake):
    path = lake.written(5)[1]
    lake.store.put(path, lake.store.read(path)[:-8] + b"\xff\xff\xff\x7fPAR1")
    return {(FindingKind.TRUNCATED, path)}


def torn_commit(lake):
    path = lake.completed(6)
    lake.store.put(path, lake.store.read(path)[:100])
    return {(FindingKind.TORN, path)}


def empty_commit(lake):
    lake.store.put(lake.completed(7), b"")
    return {(FindingKind.TORN, lake.completed(7))}


def torn_savepoint_beside_it(lake):
    path = instant_file(lake.commits[8], Action.SAVEPOINT, State.COMPLETED)
    lake.store.create(instant_file(lake.commits[8], Action.SAVEPOINT, State.INFLIGHT), b"")
    lake.store.create(path, b"Obj\x01")
    return {(FindingKind.TORN, path)}


def commit_that_was_never_inflight(lake):
    lake.store.delete(instant_file(lake.commits[8], Action.COMMIT, State.INFLIGHT))
    return {(FindingKind.CONTRADICTORY, lake.completed(8))}


def commit_that_says_something_else(lake):
    path = lake.completed(9)
    metadata = decode_commit(lake.store.read(path))
    lake.store.put(path, encode_commit(msgspec.structs.replace(metadata, operation_type="UPSERT")))
    return {(FindingKind.DISAGREEMENT, path)}


def torn_rollback_request(lake):
    path = instant_file(ROLLBACK, Action.ROLLBACK, State.REQUESTED)
    lake.store.create(path, b"")
    return {(FindingKind.TORN_ROLLBACK, path)}


def torn_rollback_under_way(lake):
    time = InstantTime("20991231235959990")
    path = instant_file(time, Action.ROLLBACK, State.REQUESTED)
    lake.store.create(path, b"Obj")
    lake.store.create(instant_file(time, Action.ROLLBACK, State.INFLIGHT), b"")
    return {(FindingKind.TORN, path)}


def rollback_of_a_commit_that_stands(lake):
    path = instant_file(InstantTime("20991231235959991"), Action.ROLLBACK, State.REQUESTED)
    lake.store.create(path, encode_rollback_plan(RollbackPlan(lake.commits[2], Action.COMMIT, ())))
    return {(FindingKind.CONTRADICTORY, path)}


def ledger_entry_torn_before_the_checkpoint(lake):
    path = f"{LEDGER_FOLDER}/{2:020d}"
    lake.store.put(path, lake.store.read(path)[:-1])
    return {(FindingKind.TORN, path)}


def commit_that_is_not_shown(lake):
    lake.store.delete(lake.completed(12))
    return {(FindingKind.DISAGREEMENT, lake.completed(12))}


def commit_that_vanished(lake):
    for state in State:
        lake.store.delete(instant_file(lake.commits[11], Action.COMMIT, state))
    return {(FindingKind.DISAGREEMENT, lake.completed(11))}


def aborted_write_that_is_completed(lake):
    path = instant_file(lake.aborted, Action.COMMIT, State.COMPLETED)
    for state in (State.REQUESTED, State.INFLIGHT):
        lake.store.create(instant_file(lake.aborted, Action.COMMIT, state), b"")
    lake.store.create(path, encode_commit(decode_commit(b'{"partitionToWriteStats":{}}')))
    return {(FindingKind.DISAGREEMENT, path)}


def stale_markers(lake):
    for time in (lake.commits[10], NOBODYS):
        lake.store.create(marker_path(time, "city=paris/a_0-0-0_1.parquet", "CREATE"), b"")
    return {(FindingKind.MARKERS, f".hoodie/.temp/{time}") for time in (lake.commits[10], NOBODYS)}


def stale_heartbeat(lake):
    beat = Beat(SimulatedHost().owner("t"), 1, 1000, 2)
    lake.store.create(heartbeat_path(lake.commits[10]), msgspec.json.encode(beat))
    return {(FindingKind.HEARTBEAT, heartbeat_path(lake.commits[10]))}


def lock_of_a_writer_that_is_gone(lake):
    owner = SimulatedHost().owner("t")
    lake.store.create(".hoodie/lock", msgspec.json.encode({"owner": owner, "sequence": 1}))
    return {(FindingKind.LOCK, ".hoodie/lock")}


def lock_that_expired(lake):
    content = b'{"expired":false,"validUntil":1000,"owner":"somebody"}'
    lake.store.create(".hoodie/.locks/table_lock.json", content)
    return {(FindingKind.LOCK, ".hoodie/.locks/table_lock.json")}


def partition_without_metafile(lake):
    path = f"city=rome/{PARTITION_METAFILE}"
    lake.store.delete(path)
    return {(FindingKind.METAFILE, path)}


DEFECTS = (
    orphan_of_an_unknown_instant,
    orphan_of_a_rolled_back_write,
    orphan_that_its_commit_does_not_name,
    missing_file_of_the_snapshot,
    missing_file_of_a_savepoint,
    file_cut_short,
    file_without_footer,
    file_with_an_impossible_footer,
    torn_commit,
    empty_commit,
    torn_savepoint_beside_it,
    commit_that_was_never_inflight,
    commit_that_says_something_else,
    torn_rollback_request,
    torn_rollback_under_way,
    rollback_of_a_commit_that_stands,
    ledger_entry_torn_before_the_checkpoint,
    commit_that_is_not_shown,
    commit_that_vanished,
    aborted_write_that_is_completed,
    stale_markers,
    stale_heartbeat,
    lock_of_a_writer_that_is_gone,
    lock_that_expired,
    partition_without_metafile,
)
MOVED = (
    orphan_of_an_unknown_instant,
    orphan_of_a_rolled_back_write,
    orphan_that_its_commit_does_not_name,
    torn_rollback_request,
    stale_markers,
    stale_heartbeat,
)


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


def test_looking_changes_nothing(lake):
    for plant in DEFECTS:
        plant(lake)
    recorder = RecordingStore(lake.store)

    verify(lake.world.on(recorder).open())

    assert recorder.changes == []


def test_tables_of_hudi_are_clean(hudi_table):
    report = verify(opened(str(hudi_table), {}))

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

    report = verify(opened(str(table), {}))

    assert report.is_clean
    assert [(f.kind, f.path) for f in report.findings] == [
        (FindingKind.LEFTOVER, ".hoodie/.holdfast/staging/elsewhere~boot~1~x")
    ]


@pytest.mark.parametrize("number", range(1, len(OPERATIONS)), ids=lambda number: OPERATIONS[number].name)
def test_a_crash_is_no_damage_and_after_recovery_the_table_is_clean(number):
    """A sample of steps, another one for each operation; the crash matrix takes them all."""
    for point, world in crash_points(OPERATIONS[number], every=5, offset=number, moments=(True,)):
        crashed = verify(world.open())
        assert not [f for f in crashed.findings if f.severity is Severity.DAMAGE], point

        one_more_write(world, ("next", "paris", 9.0))

        recovered = verify(world.open())
        assert recovered.findings == (), point


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
    for world in itertools.islice(_each_crash(lake.world, lambda world: act(lake, world)), 0, None, 5):
        assert verify(world.open()).is_clean

        act(lake, world)

        assert verify(world.open()).findings == ()


def test_a_repair_leaves_a_restore_to_be_finished(lake):
    *_, crashed = itertools.islice(
        _each_crash(lake.world, lambda world: restore(world.open(), lake.commits[10])), 5
    )
    lake.world = crashed
    lake.copy_as(NOBODYS)

    report = repair(crashed.open(), verify(crashed.open()))

    assert len(report.moved) == 1
    assert report.rolled_back == ()
    assert FindingKind.PENDING in {finding.kind for finding in report.left}
    restore(crashed.open(), lake.commits[10])
    assert verify(crashed.open()).findings == ()


@pytest.mark.parametrize("operation", ["insert", "upsert", "insert_overwrite"])
def test_at_every_step_of_a_living_writer_the_table_is_clean(lake, operation):
    def write(world):
        world.write(operation, rows("a", "z", fare=3.0))

    for world in _each_crash(lake.world, write):
        report = verify(replace(world, host=SimulatedHost(others=Liveness.ALIVE)).open())

        assert report.is_clean, report.findings


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
    apart = (ledger_entry_torn_before_the_checkpoint, commit_that_is_not_shown)
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


def test_a_repair_shows_what_was_decided(lake):
    expected = visible_ids(lake.world.open())
    commit_that_is_not_shown(lake)

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


def _each_crash(world, act):
    """Every world that a crash of the act can leave, once it has changed anything."""
    recorder = RecordingStore(world.copy().store)
    act(world.copy().on(recorder))
    for step in range(1, len(recorder.changes) + 1):
        left = world.copy()
        with pytest.raises(Crash):
            act(left.on(CrashingStore(left.store, step, after=True)))
        yield left


def _repair(world):
    return repair(world.open(), verify(world.open()))


def test_a_crash_anywhere_in_a_repair_is_carried_on_under_the_same_id(lake):
    for plant in MOVED:
        plant(lake)
    before = lake.files()
    crashes = 0

    for world in _each_crash(lake.world, _repair):
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

    for world in _each_crash(lake.world, lambda world: undo_repair(world.open(), quarantine)):
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

    for world in _each_crash(lake.world, lambda world: undo_repair(world.open(), first)):
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
    table = opened(str(hudi_fixture("mor_parquet_v6_nonpartitioned")), {})

    with pytest.raises(UnsupportedTable):
        repair(table, verify(table))
