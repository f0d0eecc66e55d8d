"""Cleaning real tables: what goes, what stays, who may still read, and what a crash leaves."""

import datetime as dt
import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from click.testing import CliRunner

from harness.checker import check_at_any_time, check_at_rest, visible_rows
from harness.cleaning import clean
from harness.faults import Crash, CrashingStore, InterruptedStore, RecordingStore, StoreWrapper
from harness.foreign_cleans import FOREIGN_CLEAN, clean_by_another
from harness.hudi_reader import copy_to_disk, hudi_rows
from harness.sleepers import sweep_between_a_plan_and_its_decision
from harness.world import LOCATION, SimulatedHost, memory_world, rows, table_of
from holdfast.cli.main import cli
from holdfast.config.choices import CleanPolicy, FailedWritesPolicy, IndexType
from holdfast.config.cleaning import CleanSettings
from holdfast.config.table import new_table_settings
from holdfast.config.write import WriteSettings
from holdfast.errors import Refused, SnapshotExpired, StorageUnavailable, TableDamaged
from holdfast.format.buckets import bucket_numbers
from holdfast.format.cleans import decode_clean_metadata, decode_clean_plan
from holdfast.format.ledger_entries import EntryKind
from holdfast.host import Liveness
from holdfast.model.instant import Action, InstantTime, State, time_at
from holdfast.model.names import LEDGER_FOLDER, PARTITION_METAFILE, PLANS_FOLDER, instant_file
from holdfast.model.reports import FindingKind
from holdfast.services.clean.plan import explain_clean
from holdfast.services.leases import lease
from holdfast.services.repair.repair import repair
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint
from holdfast.services.verify.verify import verify
from holdfast.storage.local import LocalStore
from holdfast.table.markers import leave_marker
from holdfast.table.opened import create_new
from holdfast.timeline.ledger import Decision
from holdfast.timeline.timeline import load_timeline

NO_CLEAN = CleanSettings(automatic=False)
BY_HAND = WriteSettings(clean=NO_CLEAN)
ONE_COMMIT = CleanSettings(commits_retained=1)
TWO_COMMITS = CleanSettings(commits_retained=2)
ONE_VERSION = CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1)


def _table(commits=4, settings=BY_HAND):
    """A row in Paris that every commit changes, and one in Rome that only the first one wrote."""
    world = memory_world()
    world.create()
    world.write("upsert", table_of([("a", "paris", 0.0), ("b", "rome", 0.0)]), settings)
    for number in range(1, commits):
        _change(world, number, settings)
    return world


def _change(world, number, settings=BY_HAND, city="paris"):
    return world.write("upsert", table_of([("a" if city == "paris" else "b", city, float(number))]), settings)


@pytest.fixture
def world():
    return _table()


def _cleans(world):
    return [instant for instant in load_timeline(world.store).instants if instant.action is Action.CLEAN]


def _data_files(world):
    return {path for path in world.store.paths("") if path.endswith(".parquet")}


def _versions(world, city="paris"):
    """The commits whose files are there, oldest first."""
    found = [path for path in _data_files(world) if path.startswith(f"city={city}/")]
    return sorted(path.removesuffix(".parquet").rpartition("_")[2] for path in found)


def _metadata(world, time):
    return decode_clean_metadata(world.store.read(instant_file(time, Action.CLEAN, State.COMPLETED)))


def _dead_clean(world, settings, *, last):
    """A cleaner that dies right after the last of its changes that contains this text."""
    world.die_after(lambda world: clean(world.open(), settings), last=last)


# The seed's example: five commits, four file groups, each a bucket of its own.

COMMITS = ("8:30", "9:00", "9:30", "10:00", "10:30")
GROUPS = (("8:30", "9:00", "10:30"), COMMITS, ("8:30", "9:30"), ("10:00", "10:30"))
BUCKETS = WriteSettings(index_type=IndexType.BUCKET, bucket_count=4, clean=NO_CLEAN)
KEYS = [
    next(key for key in map(str, range(99)) if bucket_numbers([pa.array([key])], count=4)[0] == bucket)
    for bucket in range(4)
]


def _ms(clock):
    hour, minute = map(int, clock.split(":"))
    return int(dt.datetime(2024, 5, 1, hour, minute, tzinfo=dt.UTC).timestamp() * 1000)


def _example():
    world = memory_world()
    world.create()
    for number, clock in enumerate(COMMITS):
        world.clock.now = _ms(clock)
        written = [key for key, clocks in zip(KEYS, GROUPS, strict=True) if clock in clocks]
        world.write("upsert", table_of((key, "paris", float(number)) for key in written), BUCKETS)
    return world


def _kept(world):
    """For each file group the times of day of the versions that are there."""
    found = [[], [], [], []]
    for path in sorted(_data_files(world)):
        name, _, time = path.removesuffix(".parquet").rpartition("_")
        clock = f"{int(time[8:10])}:{time[10:12]}"
        found[int(name.rpartition("/")[2][:8])].append(clock)
    return [tuple(sorted(clocks, key=_ms)) for clocks in found]


ALL = GROUPS
BY_TWO = (("9:00", "10:30"), ("9:30", "10:00", "10:30"), ("9:30",), ("10:00", "10:30"))
LATEST = (("10:30",), ("10:30",), ("9:30",), ("10:30",))
ROWS = {
    "COMMITS 2": ({"commits_retained": 2}, "10:35", BY_TWO),
    "COMMITS 1": (
        {"commits_retained": 1}, "10:35",
        (("9:00", "10:30"), ("10:00", "10:30"), ("9:30",), ("10:00", "10:30")),
    ),
    "COMMITS 3": (
        {"commits_retained": 3}, "10:35",
        (("9:00", "10:30"), ("9:00", "9:30", "10:00", "10:30"), ("8:30", "9:30"), ("10:00", "10:30")),
    ),
    "COMMITS 4": ({"commits_retained": 4}, "10:35", ALL),
    "COMMITS 5": ({"commits_retained": 5}, "10:35", ALL),
    "COMMITS 10": ({"commits_retained": 10}, "10:35", ALL),
    "VERSIONS 1": ({"versions_retained": 1}, "10:35", LATEST),
    "VERSIONS 2": (
        {"versions_retained": 2}, "10:35",
        (("9:00", "10:30"), ("10:00", "10:30"), ("8:30", "9:30"), ("10:00", "10:30")),
    ),
    "VERSIONS 3": (
        {"versions_retained": 3}, "10:35",
        (GROUPS[0], ("9:30", "10:00", "10:30"), ("8:30", "9:30"), ("10:00", "10:30")),
    ),
    "HOURS 1": ({"hours_retained": 1}, "10:35", BY_TWO),
    "HOURS 2": ({"hours_retained": 2}, "10:35", ALL),
    "HOURS 1, idle": ({"hours_retained": 1}, "12:00", LATEST),
    "HOURS 1, idle as in Hudi": ({"hours_retained": 1, "cleans_idle_tables": False}, "12:00", ALL),
}  # fmt: skip
POLICIES = {
    "commits_retained": CleanPolicy.KEEP_LATEST_COMMITS,
    "versions_retained": CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
    "hours_retained": CleanPolicy.KEEP_LATEST_BY_HOURS,
}


@pytest.mark.parametrize("row", ROWS)
def test_the_example_of_the_specification_comes_out_exactly(row, tmp_path):
    options, now, expected = ROWS[row]
    settings = CleanSettings(policy=POLICIES[next(iter(options))], **options)
    world = _example()
    world.clock.now = _ms(now)
    before = visible_rows(world.open())
    plan = explain_clean(world.open(), settings)

    report = clean(world.open(), settings)

    assert _kept(world) == list(expected)
    assert {file.path for file in plan.doomed} == set(report.deleted if report else ())
    assert {file.path for file in plan.kept} == _data_files(world)
    check_at_rest(world.open())
    assert visible_rows(world.open()) == before
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == before


OPTIONS = {
    "commits_retained": "hoodie.cleaner.commits.retained",
    "versions_retained": "hoodie.cleaner.fileversions.retained",
}


@pytest.mark.parametrize("row", [row for row in ROWS if not row.startswith("HOURS")])
def test_the_command_line_cleans_the_example_exactly(row, tmp_path):
    """Retention by hours depends on the time of day, which a command does not choose."""
    [(setting, number)], _, expected = ROWS[row][0].items(), *ROWS[row][1:]
    world = _example()
    folder = copy_to_disk(world.store, tmp_path)
    option = f"{OPTIONS[setting]}={number}"
    planned = CliRunner().invoke(cli, ["cleans", "run", str(folder), "--hoodie-conf", option, "--dry-run"])

    ran = CliRunner().invoke(cli, ["cleans", "run", str(folder), "--hoodie-conf", option, "--yes"])

    assert (planned.exit_code, ran.exit_code) == (0, 0)
    assert _kept(world.on(LocalStore(str(folder)))) == list(expected)
    assert planned.stdout.count("to be deleted: ") == len(_data_files(world)) - sum(map(len, expected))


def test_a_savepoint_keeps_its_files_in_the_example():
    world = _example()
    create_savepoint(world.open(), world.commit_times()[1])

    clean(world.open(), TWO_COMMITS)

    assert _kept(world) == [GROUPS[0][1:], GROUPS[1][1:], GROUPS[2], GROUPS[3]]


def test_every_commit_that_is_retained_can_be_read_as_before():
    world = _table(8)
    pinned = {time: visible_rows(world.open(), as_of=time) for time in world.commit_times()}

    report = clean(world.open(), CleanSettings(commits_retained=3))

    for time in world.commit_times():
        if time >= report.earliest_commit_to_retain:
            assert visible_rows(world.open(), as_of=time) == pinned[time]
    with pytest.raises(SnapshotExpired):
        visible_rows(world.open(), as_of=world.commit_times()[0])


def test_a_clean_is_recorded_as_hudi_records_it(world):
    times = world.commit_times()

    report = clean(world.open(), ONE_COMMIT)

    metadata = _metadata(world, report.instant)
    assert (metadata.earliest, metadata.last_completed) == (times[-1], times[-1])
    assert metadata.deleted_count == len(report.deleted) == 2
    [paris] = metadata.partitions
    assert (paris.partition, paris.policy, len(paris.deleted)) == ("city=paris", "KEEP_LATEST_COMMITS", 2)
    plan = decode_clean_plan(world.store.read(instant_file(report.instant, Action.CLEAN, State.REQUESTED)))
    assert plan.files == {"city=paris": paris.deleted}
    assert world.store.stat(instant_file(report.instant, Action.CLEAN, State.INFLIGHT)) is not None
    assert world.store.paths(PLANS_FOLDER) == []


def test_a_dry_run_changes_nothing(world):
    before = {file.path: file for file in world.store.walk("")}

    plan = explain_clean(world.open(), ONE_COMMIT)

    assert plan.bytes_freed == sum(before[file.path].size for file in plan.doomed) > 0
    assert {file.path: file for file in world.store.walk("")} == before


def test_a_plan_says_what_other_retentions_would_free():
    world = _table(8)

    forecast = {one.commits_retained: one.files for one in explain_clean(world.open(), NO_CLEAN).forecast}

    assert forecast == {1: 6, 5: 2, 10: 0, 20: 0, 50: 0}


def test_when_nothing_can_be_cleaned_the_plan_says_why(world):
    plan = explain_clean(world.open(), CleanSettings(commits_retained=10))

    assert "10 are retained" in plan.why_nothing
    assert clean(world.open(), CleanSettings(commits_retained=10)) is None
    assert _cleans(world) == []


# With a write.


def test_a_write_cleans_after_its_commit():
    world = _table(6, WriteSettings(clean=TWO_COMMITS))

    assert _versions(world) == world.commit_times()[-3:]
    check_at_rest(world.open())


def test_a_write_that_is_told_not_to_leaves_the_old_versions():
    for settings in (NO_CLEAN, replace(ONE_COMMIT, services_enabled=False)):
        assert len(_versions(_table(4, WriteSettings(clean=settings)))) == 4


def test_a_write_can_clean_while_its_files_are_written():
    settings = WriteSettings(clean=replace(ONE_COMMIT, asynchronous=True))
    before = set(threading.enumerate())
    world = _table(6, settings)

    # It does not know the commit beside which it runs.
    assert _versions(world) == world.commit_times()[-3:]
    assert set(threading.enumerate()) <= before
    check_at_rest(world.open())


class StuckStore(StoreWrapper):
    """Does not delete base files."""

    def delete_all(self, paths):
        stuck = [path for path in paths if path.endswith(".parquet")]
        super().delete_all(path for path in paths if path not in stuck)
        return tuple(stuck)


class DeafStore(StoreWrapper):
    """Answers no question about plans of cleans."""

    def folder(self, path, *, after=""):
        if path == PLANS_FOLDER:
            raise StorageUnavailable("no answer", path=path)
        return super().folder(path, after=after)


def test_when_the_clean_fails_the_commit_stands_and_says_so(world):
    commit = _change(world.on(DeafStore(world.store)), 9, WriteSettings(clean=ONE_COMMIT))

    assert len(commit.post_commit_errors) == 1
    assert ("a", "paris", 9.0) in visible_rows(world.open())


def test_a_clean_comes_after_as_many_commits_as_the_trigger_says():
    world = _table(1)
    settings = WriteSettings(clean=replace(ONE_COMMIT, max_commits=3))

    counts = [len(_cleans(world)) for number in range(1, 9) if _change(world, number, settings)]

    assert counts == [0, 1, 1, 1, 2, 2, 2, 3]


# Who is protected.


def test_a_pending_write_keeps_what_it_builds_on():
    world = _table(4)
    owner = SimulatedHost(7).owner("t")
    pending = time_at(world.clock.now_ms(), dt.UTC)
    world.open().ledger.append(
        lambda _: Decision(
            kind=EntryKind.BEGIN, instant=pending, action=Action.COMMIT, owner=owner, shared=True
        )
    )
    for number in (5, 6):
        _change(world, number, WriteSettings(failed_writes_policy=FailedWritesPolicy.NEVER, clean=NO_CLEAN))
    world = replace(world, host=SimulatedHost(others=Liveness.ALIVE))

    for settings in (ONE_COMMIT, ONE_VERSION):
        clean(world.open(), settings)

    assert _versions(world)[0] < pending
    assert len([time for time in _versions(world) if time < pending]) <= 2


def test_a_clean_rolls_back_dead_writers_first(world):
    _dead = WriteSettings(failed_writes_policy=FailedWritesPolicy.LAZY, clean=NO_CLEAN)
    counted = world.copy()
    recorder = RecordingStore(counted.store)
    _change(counted.on(recorder), 7, _dead)
    with pytest.raises(Crash):
        _change(world.on(CrashingStore(world.store, recorder.last("upload"), after=True)), 7, _dead)

    clean(world.open(), ONE_COMMIT)

    assert load_timeline(world.store).pending_writes == ()
    assert _versions(world) == world.commit_times()[-2:]


def test_files_of_a_savepoint_go_when_it_is_deleted(world):
    first = world.commit_times()[0]
    create_savepoint(world.open(), first)
    clean(world.open(), ONE_COMMIT)
    assert _versions(world)[0] == first

    delete_savepoint(world.open(), first)
    clean(world.open(), ONE_COMMIT)

    assert _versions(world) == world.commit_times()[-2:]


def test_a_leased_snapshot_outlives_every_policy_and_goes_afterwards(world):
    second = world.commit_times()[1]
    then = visible_rows(world.open(), as_of=second)

    with lease(world.open(), "report", 3600, as_of=second):
        for number in range(10, 16):
            _change(world, number, WriteSettings(clean=ONE_VERSION))
            assert visible_rows(world.open(), as_of=second) == then
        clean(world.open(), ONE_COMMIT)
        assert visible_rows(world.open(), as_of=second) == then
    clean(world.open(), ONE_VERSION)

    assert _versions(world) == world.commit_times()[-1:]


def test_a_lease_between_plan_and_decision_is_honoured(world):
    second = world.commit_times()[1]
    held = lease(world.open(), "report", 3600, as_of=second)
    interrupted = InterruptedStore(world.store, LEDGER_FOLDER, held.__enter__)

    report = clean(world.on(interrupted).open(), ONE_VERSION)

    assert second in _versions(world)
    assert all(second not in path for path in report.deleted)
    held.__exit__(None, None, None)
    clean(world.open(), ONE_VERSION)
    assert _versions(world) == world.commit_times()[-1:]


def test_a_savepoint_between_plan_and_decision_is_honoured(world):
    first = world.commit_times()[0]
    interrupted = InterruptedStore(world.store, LEDGER_FOLDER, lambda: create_savepoint(world.open(), first))

    clean(world.on(interrupted).open(), ONE_VERSION)

    assert _versions(world) == [first, world.commit_times()[-1]]
    restore(world.open(), first)
    check_at_rest(world.open())


def test_a_commit_taken_back_between_plan_and_decision_makes_a_new_plan(world):
    interrupted = InterruptedStore(world.store, LEDGER_FOLDER, lambda: undo(world.open()))

    clean(world.on(interrupted).open(), ONE_VERSION)

    assert visible_rows(world.open()) == {("a", "paris", 2.0), ("b", "rome", 0.0)}
    check_at_rest(world.open())


def test_while_a_restore_is_pending_nothing_is_cleaned(world):
    theirs = InstantTime("20231114221320900")
    world.store.create(instant_file(theirs, Action.RESTORE, State.REQUESTED), b"plan")

    with pytest.raises(Refused, match=theirs):
        clean(world.open(), ONE_COMMIT)


# Crashes, two at once, and storage that fails.


@pytest.mark.parametrize("last", ["ledger", ".clean.requested", ".clean.inflight", "delete city=paris"])
def test_an_interrupted_clean_is_finished_with_the_plan_it_had(world, last):
    _dead_clean(world, ONE_VERSION, last=last)
    newest = world.commit_times()[-1]

    report = clean(world.open(), CleanSettings(commits_retained=10))

    assert _versions(world) == [newest]
    assert len(report.deleted) + len(report.absent) == 3
    assert report.failed == ()
    assert len(_cleans(world)) == 1
    check_at_rest(world.open())


def test_an_inflight_clean_holds_its_plan_for_other_programs(world):
    """Hudi up to 0.15 finishes a clean from this file, and drops one that is empty."""
    _dead_clean(world, ONE_VERSION, last=".clean.inflight")
    (pending,) = (i.time for i in load_timeline(world.store).instants if i.action is Action.CLEAN)

    requested, inflight = (
        world.store.read(instant_file(pending, Action.CLEAN, state))
        for state in (State.REQUESTED, State.INFLIGHT)
    )

    assert decode_clean_plan(inflight) == decode_clean_plan(requested)


def test_a_plan_that_was_never_decided_is_swept(world):
    _dead_clean(world, ONE_VERSION, last="create .hoodie/.holdfast/plans")
    assert len(world.store.paths(PLANS_FOLDER)) == 1

    _change(world, 9, WriteSettings())

    assert world.store.paths(PLANS_FOLDER) == []
    assert _cleans(world) == []


def test_a_pending_clean_does_not_stop_writers_and_readers(world):
    _dead_clean(world, ONE_VERSION, last="ledger")

    _change(world, 9)

    assert ("a", "paris", 9.0) in visible_rows(world.open())
    check_at_any_time(world.open())


def test_a_pending_clean_of_another_program_is_carried_out(world):
    first = world.commit_times()[0]
    doomed = [path for path in _data_files(world) if path.startswith("city=paris/") and first in path]
    clean_by_another(world, *doomed, state=State.INFLIGHT)

    report = clean(world.open(), CleanSettings(commits_retained=10))

    assert (report.instant, report.deleted) == (FOREIGN_CLEAN, tuple(doomed))
    assert _metadata(world, FOREIGN_CLEAN).deleted_count == 1


def test_a_lease_is_honoured_in_a_clean_of_another_program(world):
    first = world.commit_times()[0]
    doomed = [path for path in _data_files(world) if path.startswith("city=paris/") and first in path]
    with lease(world.open(), "report", 3600, as_of=first):
        clean_by_another(world, *doomed, state=State.REQUESTED)

        report = clean(world.open(), CleanSettings(commits_retained=10))

    assert report.deleted == ()
    assert first in _versions(world)


def test_a_plan_that_names_anything_but_data_files_deletes_nothing(world):
    clean_by_another(world, f"city=rome/{PARTITION_METAFILE}", state=State.REQUESTED)

    with pytest.raises(TableDamaged, match="no data file"):
        clean(world.open(), ONE_COMMIT)
    assert world.store.stat(f"city=rome/{PARTITION_METAFILE}") is not None


def test_a_request_that_was_cut_off_is_forgotten(world):
    for state in (State.REQUESTED, State.INFLIGHT):
        world.store.create(instant_file(FOREIGN_CLEAN, Action.CLEAN, state), b"")

    clean(world.open(), ONE_COMMIT)

    assert FOREIGN_CLEAN not in {instant.time for instant in _cleans(world)}
    assert _versions(world) == world.commit_times()[-2:]


def test_a_record_that_was_cut_off_is_written_anew_from_the_plan(world):
    report = clean(world.open(), ONE_COMMIT)
    world.store.put(instant_file(report.instant, Action.CLEAN, State.COMPLETED), b"")

    again = clean(world.open(), ONE_COMMIT)

    assert (again.instant, again.deleted, again.absent) == (report.instant, (), report.deleted)
    assert _metadata(world, report.instant).deleted_count == 2


def test_what_would_not_go_is_reported_and_tried_again(world):
    report = clean(world.on(StuckStore(world.store)).open(), ONE_COMMIT)
    assert report.deleted == ()
    assert len(report.failed) == 2
    assert [len(each.failed) for each in _metadata(world, report.instant).partitions] == [2]

    # Only Rome changes, so nothing but the record leads back to Paris.
    _change(world, 9, city="rome")
    again = clean(world.open(), ONE_COMMIT)

    assert set(report.failed) <= set(again.deleted)
    check_at_rest(world.open())


# Partitions.


def test_a_dropped_partition_goes_with_its_last_file(world, tmp_path):
    world.delete_partitions("city=rome")
    for number in (7, 8):
        _change(world, number)

    report = clean(world.open(), ONE_COMMIT)

    assert not [path for path in world.store.paths("") if path.startswith("city=rome/")]
    [rome] = [each for each in _metadata(world, report.instant).partitions if each.partition == "city=rome"]
    assert rome.is_deleted
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == visible_rows(world.open())


def test_a_partition_that_somebody_is_about_to_write_to_stays(world):
    world.delete_partitions("city=rome")
    _change(world, 7)
    leave_marker(world.store, InstantTime("20231114221329000"), "city=rome/x_0-0-0_20231114221329000.parquet")

    report = clean(world.open(), ONE_VERSION)

    assert world.store.stat(f"city=rome/{PARTITION_METAFILE}") is not None
    assert not any(each.is_deleted for each in _metadata(world, report.instant).partitions)


def test_a_partition_that_is_written_to_while_it_goes_is_kept_and_found(world, tmp_path):
    world.delete_partitions("city=rome")
    _change(world, 7)
    metafile = f"city=rome/{PARTITION_METAFILE}"
    writing = InterruptedStore(world.store, metafile, lambda: _change(world, 8, city="rome"))

    clean(world.on(writing).open(), ONE_VERSION)

    assert world.store.stat(metafile) is not None
    assert ("b", "rome", 8.0) in visible_rows(world.open())
    assert hudi_rows(copy_to_disk(world.store, tmp_path)) == visible_rows(world.open())


# Which partitions are looked at.


class ListingStore(StoreWrapper):
    """Remembers which folders were listed."""

    def __init__(self, inner):
        super().__init__(inner)
        self.listed = set()

    def paths(self, folder, *, without=""):
        self.listed.add(folder)
        return super().paths(folder, without=without)

    def folder(self, path, *, after=""):
        self.listed.add(path)
        return super().folder(path, after=after)

    @property
    def data(self):
        return {folder for folder in self.listed if not folder.startswith(".hoodie")}


def test_only_partitions_that_changed_since_the_last_clean_are_listed(world):
    clean(world.open(), ONE_COMMIT)
    for number in (7, 8):
        _change(world, number)
    listing = ListingStore(world.store)

    report = clean(world.on(listing).open(), ONE_COMMIT)

    assert len(report.deleted) == 2
    assert listing.data == {"city=paris"}


@pytest.mark.parametrize(
    "why", ["not incremental", "savepoint deleted", "earliest commit gone", "by versions"]
)
def test_the_whole_table_is_listed_when_the_last_clean_cannot_be_built_on(world, why):
    settings = ONE_COMMIT
    savepointed = world.commit_times()[1]
    if why == "savepoint deleted":
        create_savepoint(world.open(), savepointed)
    clean(world.open(), ONE_COMMIT)
    if why == "savepoint deleted":
        delete_savepoint(world.open(), savepointed)
    if why == "not incremental":
        settings = replace(ONE_COMMIT, incremental=False)
    if why == "by versions":
        settings = ONE_VERSION
    if why == "earliest commit gone":
        undo(world.open())
        _change(world, 6)
    _change(world, 7)
    listing = ListingStore(world.store)

    clean(world.on(listing).open(), settings)

    assert "" in listing.data


def test_a_clean_that_deletes_nothing_is_recorded_so_that_the_next_looks_at_less():
    world = memory_world()
    world.create()
    for number in range(4):
        world.write("bulk_insert", rows(f"k{number}", city=f"c{number}"), BY_HAND)

    first = clean(world.open(), ONE_COMMIT)
    world.write("bulk_insert", rows("k9", city="c9"), BY_HAND)
    listing = ListingStore(world.store)
    second = clean(world.on(listing).open(), ONE_COMMIT)

    assert (first.deleted, second) == ((), None)
    assert listing.data == {"city=c3"}


@pytest.mark.parametrize("settings", [ONE_COMMIT, TWO_COMMITS])
def test_incremental_and_full_cleaning_leave_the_same_files(settings):
    worlds = []
    for incremental in (True, False):
        world = memory_world()
        world.create()
        for number in range(14):
            city = ("paris", "rome", "oslo")[number * number % 3]
            clean_settings = replace(settings, incremental=incremental)
            row = table_of([(f"{city}{number % 2}", city, float(number))])
            operation = "insert_overwrite" if number % 5 == 4 else "upsert"
            world.write(operation, row, WriteSettings(clean=clean_settings))
        worlds.append(world)

    incremental, full = worlds

    order = {time: number for number, time in enumerate(incremental.commit_times())}
    left = sorted((path.split("/")[0], order[path[-25:-8]]) for path in _data_files(incremental))
    order = {time: number for number, time in enumerate(full.commit_times())}
    assert left == sorted((path.split("/")[0], order[path[-25:-8]]) for path in _data_files(full))


def test_only_selected_partitions_are_cleaned_and_the_others_are_not_forgotten(world):
    for number in (5, 6):
        _change(world, number, city="rome")
    _change(world, 7)

    clean(world.open(), replace(ONE_COMMIT, partitions_selected=("city=rome",)))
    assert len(_versions(world)) == 5
    assert len(_versions(world, "rome")) == 1
    _change(world, 8, city="rome")
    clean(world.open(), ONE_COMMIT)

    assert _versions(world) == [world.commit_times()[-2]]


def test_a_table_without_partitions_keeps_its_root():
    world = memory_world()
    settings = new_table_settings(
        name="t",
        record_key=("id",),
        partition_by=(),
        ordering=None,
        table_type="COPY_ON_WRITE",
        properties={},
    )
    create_new(world.store, LOCATION, settings, clock=world.clock, host=world.host)
    for _ in range(3):
        world.write("insert_overwrite_table", rows("a"), BY_HAND)

    clean(world.open(), ONE_VERSION)

    assert len(_data_files(world)) == 1
    assert world.store.stat(PARTITION_METAFILE) is not None
    assert visible_rows(world.open())


def test_a_plan_that_is_about_to_be_decided_on_is_not_swept():
    sweep_between_a_plan_and_its_decision()


@pytest.mark.parametrize("damage", [b"garbage", None], ids=["garbage", "cut off"])
def test_a_plan_that_was_decided_on_and_cannot_be_read_is_named_and_repair_makes_way(world, damage):
    """Nothing of it was deleted: the next clean makes another."""
    _dead_clean(world, ONE_VERSION, last=LEDGER_FOLDER)
    (path,) = world.store.paths(PLANS_FOLDER)
    world.store.put(path, damage or world.store.read(path)[:-7])
    before = _data_files(world)

    with pytest.raises(TableDamaged, match=r"plan of a clean cannot be read.*repair"):
        clean(world.open(), ONE_VERSION)
    (finding,) = verify(world.open()).findings
    assert (finding.kind, finding.path) == (FindingKind.TORN_PLAN, path)
    report = repair(world.open(), verify(world.open()))

    assert report.moved == (path,)
    assert _data_files(world) == before
    done = clean(world.open(), ONE_VERSION)
    assert done is not None
    assert len(done.deleted) == 3
    assert verify(world.open()).is_clean
