"""Services on merge-on-read tables of ours: cleans, archives, savepoints, leases, verify, repair, drop."""

from dataclasses import replace

import pytest

from harness.checker import check_at_any_time, check_at_rest
from harness.world import memory_world, row_list, rows, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.compaction import ArrowCompactor
from holdfast.errors import TableDamaged
from holdfast.format.compaction_plans import decode_compaction_plan, encode_compaction_plan
from holdfast.model.instant import Action, State
from holdfast.model.names import LogFileName, instant_file, is_data_file
from holdfast.model.reports import FindingKind, Severity
from holdfast.read.arrow_rows import read_rows
from holdfast.read.savepoints import read_savepoint_metadata
from holdfast.read.snapshot import snapshot
from holdfast.services.archive.archive import archive_instants
from holdfast.services.clean.clean import clean
from holdfast.services.drop import drop
from holdfast.services.leases import lease
from holdfast.services.repair.repair import repair, undo_repair
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint
from holdfast.services.verify.verify import verify
from holdfast.writes.compaction import compact, schedule_compaction

LOGS = WriteSettings(log_ratio_max=1000.0, logs_max=100, clean=CleanSettings(automatic=False))
ONE_VERSION = WriteSettings(
    clean=CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1)
)
ONE_COMMIT = WriteSettings(clean=CleanSettings(commits_retained=1))
FEW_COMMITS = WriteSettings.from_options(
    {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4", "hoodie.clean.commits.retained": "1"}
)


def visible(world, as_of=None):
    table = world.open()
    found = snapshot(table, as_of=as_of)
    return frozenset(row_list(read_rows(table.store, found, found.schema)))


def update(world, fare):
    return world.write("upsert", table_of([("b", "rome", fare), ("c", "paris", fare)]), LOGS).instant


def pack(world):
    return compact(world.open(), LOGS, ArrowCompactor())


def files(world):
    return {path for path in world.store.paths("") if is_data_file(path.rpartition("/")[2])}


def logs(world):
    return {path for path in files(world) if ".log." in path}


def findings(world):
    return {(finding.kind, finding.path): finding for finding in verify(world.open()).findings}


@pytest.fixture
def world():
    """Two file groups, with a log file each for every one of two updates."""
    world = memory_world()
    world.create(table_type="MERGE_ON_READ")
    world.write("bulk_insert", rows("a", "b", "c", "d"), LOGS)
    update(world, 2.0)
    update(world, 3.0)
    assert len(logs(world)) == 4
    return world


def test_nothing_is_wrong_with_a_table_that_is_written_compacted_and_undone(world):
    assert verify(world.open()).is_clean
    pack(world)
    update(world, 4.0)
    assert verify(world.open()).is_clean
    undo(world.open())
    undo(world.open())
    assert verify(world.open()).is_clean
    check_at_any_time(world.open())
    check_at_rest(world.open())


def test_a_log_file_that_is_gone_is_damage(world):
    gone = max(logs(world))
    world.store.delete(gone)

    finding = findings(world)[FindingKind.MISSING, gone]
    assert finding.severity is Severity.DAMAGE
    assert "restore PATH --to" in finding.remedy
    with pytest.raises(TableDamaged):
        visible(world)


def test_a_log_file_that_is_too_short_is_damage(world):
    path = max(logs(world))
    world.store.put(path, world.store.read(path)[:-1])

    assert findings(world)[FindingKind.TRUNCATED, path].severity is Severity.DAMAGE


def test_a_log_file_of_a_write_that_was_rolled_back_is_found_and_moved(world):
    content = {path: world.store.read(path) for path in logs(world)}
    newest = world.commit_times()[-1]
    undo(world.open())
    (path, *_) = [path for path in content if path not in logs(world)]
    world.store.create(path, content[path])
    before = visible(world)

    finding = findings(world)[FindingKind.ORPHAN, path]
    assert finding.severity is Severity.WARNING
    assert newest == LogFileName(*_parts(path)).written_by
    report = repair(world.open(), verify(world.open()))

    assert path not in logs(world)
    assert verify(world.open()).is_clean
    assert visible(world) == before
    undo_repair(world.open(), report.quarantine)
    assert path in logs(world)


def _parts(path):
    from holdfast.model.names import parse_log_file

    name = parse_log_file(path.rpartition("/")[2])
    return name.file_id, name.base_instant, name.version, name.write_token


def test_a_log_file_that_its_commit_does_not_name_is_found(world):
    path = max(logs(world))
    copy = path.replace("_0-", "_9-")
    world.store.create(copy, world.store.read(path))

    assert findings(world)[FindingKind.ORPHAN, copy].severity is Severity.DAMAGE


def test_a_plan_that_lacks_a_log_file_is_damage(world):
    # hudi 7969, 8132, 4863
    time = schedule_compaction(world.open(), LOGS)
    path = instant_file(time, Action.COMPACTION, State.REQUESTED)
    assert findings(world)[FindingKind.PENDING, path].severity is Severity.INFO
    plan = decode_compaction_plan(world.store.read(path))
    short = [replace(one, log_files=one.log_files[1:]) for one in plan.operations]
    world.store.put(path, encode_compaction_plan(replace(plan, operations=tuple(short))))

    finding = findings(world)[FindingKind.CONTRADICTORY, path]
    assert finding.severity is Severity.DAMAGE
    assert "unschedule" in finding.remedy


def test_a_savepoint_has_the_log_files_of_its_slices(world):
    """hudi 8314: before 0.14 it had not, and cleaning destroyed the savepoints of merge-on-read tables."""
    target = world.commit_times()[1]
    then = visible(world, as_of=target)
    saved = create_savepoint(world.open(), target)
    assert saved.files == 4
    content = world.store.read(instant_file(target, Action.SAVEPOINT, State.COMPLETED))
    named = read_savepoint_metadata(content, target).files
    assert {name.partition(".log.")[2].partition("_")[0] for names in named.values() for name in names} == {
        "",
        "1",
    }
    pack(world)
    update(world, 7.0)
    pack(world)
    report = clean(world.open(), ONE_VERSION)
    assert report.deleted

    restore(world.open(), target)

    assert visible(world) == then
    assert verify(world.open()).is_clean


def test_a_lease_pins_a_slice_with_its_log_files(world):
    then = visible(world)
    with lease(world.open(), "reader", 3600.0) as held:
        pack(world)
        update(world, 7.0)
        clean(world.open(), ONE_VERSION)
        assert visible(world, as_of=held.instant) == then
    old = {path for path in logs(world) if world.commit_times()[0] in path}
    assert clean(world.open(), ONE_VERSION).deleted
    assert not old & logs(world)


@pytest.mark.parametrize(
    "policy",
    [
        {"commits_retained": 1},
        {"policy": CleanPolicy.KEEP_LATEST_FILE_VERSIONS, "versions_retained": 1},
    ],
)
def test_a_slice_goes_when_a_newer_one_serves_and_never_before(world, policy):
    settings = WriteSettings(clean=CleanSettings(**policy))
    assert not clean(world.open(), settings).deleted
    pack(world)
    update(world, 5.0)
    update(world, 6.0)
    before = visible(world)
    old = {path for path in files(world) if f"_{world.commit_times()[0]}." in path}

    report = clean(world.open(), settings)

    assert set(report.deleted) == old
    assert visible(world) == before
    assert verify(world.open()).is_clean


def test_log_files_that_a_plan_names_stay(world):
    # hudi 19290: the cleaner deleted log files that a compaction listed.
    pack(world)
    update(world, 5.0)
    time = schedule_compaction(world.open(), LOGS)
    world.write("upsert", table_of([("b", "rome", 6.0), ("c", "paris", 6.0)]), LOGS)
    plan = decode_compaction_plan(world.store.read(instant_file(time, Action.COMPACTION, State.REQUESTED)))
    named = {f"{one.partition}/{name}" for one in plan.operations for name in one.log_files}

    clean(world.open(), ONE_VERSION)

    assert named <= logs(world)


def test_log_files_of_archived_commits_count(world):
    for number in range(12):
        update(world, 10.0 + number)
    before = visible(world)

    clean(world.open(), ONE_COMMIT)
    report = archive_instants(world.open(), FEW_COMMITS)

    assert report.archived
    assert len(world.commit_times()) == 3
    assert visible(world) == before
    assert verify(world.open()).is_clean
    pack(world)
    assert visible(world) == before
    update(world, 30.0)
    assert ("b", "rome", 30.0) in visible(world)


def test_a_compaction_is_archived_whole(world):
    pack(world)
    for number in range(12):
        update(world, 10.0 + number)
    before = visible(world)

    clean(world.open(), ONE_COMMIT)
    archive_instants(world.open(), FEW_COMMITS)

    assert not [path for path in world.store.paths(".hoodie") if "compaction" in path]
    assert visible(world) == before
    assert verify(world.open()).is_clean


def test_a_restore_into_the_middle_of_a_slice(world):
    target = world.commit_times()[1]
    then = visible(world, as_of=target)
    update(world, 9.0)
    pack(world)
    update(world, 10.0)

    report = restore(world.open(), target)

    assert len(report.rolled_back) == 4
    assert visible(world) == then
    assert len(logs(world)) == 2
    assert verify(world.open()).is_clean
    update(world, 11.0)
    assert ("b", "rome", 11.0) in visible(world)


def test_undo_takes_one_update_after_the_other(world):
    seen = [visible(world, as_of=time) for time in world.commit_times()]
    for expected in reversed(seen[:-1]):
        undo(world.open())
        assert visible(world) == expected
        assert verify(world.open()).is_clean


def test_a_dropped_table_leaves_nothing(world):
    pack(world)
    update(world, 5.0)
    drop(world.open())

    assert not world.store.paths("")


def test_a_dead_write_leaves_nothing(world):
    before, then = files(world), visible(world)
    world.die_after(lambda w: update(w, 9.0), last="upload")
    assert files(world) != before

    recover(world.open())

    assert files(world) == before
    assert visible(world) == then
    assert verify(world.open()).is_clean
