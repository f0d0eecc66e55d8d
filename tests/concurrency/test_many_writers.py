"""Many writers at once: conflicts are found before anything is seen, and the dead do not stay.

Numbers in comments are lines of the recovery catalogue.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

import holdfast
from harness.checker import check_at_any_time, check_at_rest, visible_ids, visible_rows
from harness.faults import Crash, CrashingStore, InterruptedStore, RecordingStore
from harness.hudi_reader import copy_to_disk, hudi_snapshot
from harness.world import SimulatedHost, memory_world, row_list, table_of
from holdfast.concurrency.locks.open import open_lock
from holdfast.config.choices import ConcurrencyMode, FailedWritesPolicy, IndexType
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS, WriteSettings
from holdfast.errors import Fenced, LockTimeout, TableDamaged, WriteConflict, WriterActive
from holdfast.format.commits import CommitMetadata, WriteStat, encode_commit
from holdfast.format.rollbacks import RollbackPlan, RolledBackInstant, encode_rollback_plan
from holdfast.host import Liveness
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import HEARTBEAT_FOLDER, LEDGER_FOLDER, TEMP_FOLDER, instant_file
from holdfast.read.changes import change_schema, changes, read_changes
from holdfast.read.snapshot import snapshot
from holdfast.services.rollback.rollback import recover
from holdfast.storage.probe import ensure_many_writers
from holdfast.table import publish
from holdfast.timeline.timeline import load_timeline
from holdfast.writes import transaction
from holdfast.writes.validation import Validation

LAZY = FailedWritesPolicy.LAZY


def sharing(**changes):
    return WriteSettings(concurrency_mode=ConcurrencyMode.OPTIMISTIC, failed_writes_policy=LAZY, **changes)


SHARED = sharing()


@pytest.fixture
def world():
    """Two file groups in Paris, one in Rome, and nobody knows who else is alive."""
    world = memory_world()
    world.host = SimulatedHost(others=Liveness.UNKNOWN)
    world.create()
    world.write("bulk_insert", table_of([("p1", "paris", 1.0), ("r1", "rome", 1.0)]))
    world.write("bulk_insert", table_of([("p2", "paris", 2.0)]))
    return world


def meanwhile(world, act, *, at=TEMP_FOLDER):
    """The same world, in which something else happens when the next write has read the table."""
    return world.on(InterruptedStore(world.store, at, act))


def write(world, operation, *found, settings=SHARED):
    return world.write(operation, table_of(found), settings)


def seen(world):
    return visible_rows(world.open())


def check(world, tmp_path):
    """Nothing is left of what failed, and hudi-rs sees what we see."""
    check_at_rest(world.open())
    hudi = hudi_snapshot(copy_to_disk(world.store, tmp_path / "copy"))
    assert frozenset(row_list(hudi)) == seen(world)


def test_of_two_upserts_of_one_file_group_exactly_one_is_committed(world, tmp_path):  # 70
    other = []

    def first():
        other.append(write(world, "upsert", ("p1", "paris", 20.0)).instant)

    with pytest.raises(WriteConflict, match=r"both wrote file group .* of partition city=paris") as raised:
        write(meanwhile(world, first), "upsert", ("p1", "paris", 30.0))

    assert raised.value.facts["other"] == other[0]
    assert ("p1", "paris", 20.0) in seen(world)
    check(world, tmp_path)


def test_upserts_of_different_file_groups_of_one_partition_are_both_committed(world, tmp_path):  # 71
    write(
        meanwhile(world, lambda: write(world, "upsert", ("p1", "paris", 20.0))),
        "upsert",
        ("p2", "paris", 30.0),
    )

    assert seen(world) >= {("p1", "paris", 20.0), ("p2", "paris", 30.0)}
    check(world, tmp_path)


def test_inserts_of_one_key_are_both_committed_as_in_hudi(world):  # 72
    new = sharing(small_file_bytes=0)
    write(
        meanwhile(world, lambda: write(world, "insert", ("n", "oslo", 1.0), settings=new)),
        "insert",
        ("n", "oslo", 2.0),
        settings=new,
    )

    assert len(load_timeline(world.store).completed_commits) == 4


def test_of_two_upserts_that_add_one_key_one_is_refused(world, tmp_path):
    with pytest.raises(WriteConflict, match="both added new keys to partition city=oslo"):
        write(
            meanwhile(world, lambda: write(world, "upsert", ("n", "oslo", 1.0))), "upsert", ("n", "oslo", 2.0)
        )

    assert ("n", "oslo", 1.0) in seen(world)
    check(world, tmp_path)


def test_with_a_global_index_new_keys_are_unique_in_the_whole_table(world, tmp_path):
    settings = sharing(index_type=IndexType.GLOBAL_SIMPLE)

    with pytest.raises(WriteConflict, match="both added new keys"):
        write(
            meanwhile(world, lambda: write(world, "upsert", ("n", "oslo", 1.0))),
            "upsert",
            ("n", "rome", 2.0),
            settings=settings,
        )

    check(world, tmp_path)


def test_two_new_file_groups_of_one_bucket_are_the_same_one(world):
    fresh = memory_world()
    fresh.host = SimulatedHost(others=Liveness.UNKNOWN)
    fresh.create()
    buckets = sharing(index_type=IndexType.BUCKET, bucket_count=1)
    write(fresh, "upsert", ("a", "rome", 1.0), settings=buckets)

    with pytest.raises(WriteConflict, match="both wrote file group 0 of partition city=oslo"):
        write(
            meanwhile(fresh, lambda: write(fresh, "insert", ("b", "oslo", 1.0), settings=buckets)),
            "insert",
            ("c", "oslo", 2.0),
            settings=buckets,
        )


@pytest.mark.parametrize("first", ["upsert", "insert_overwrite"])
def test_an_overwrite_and_an_upsert_of_what_it_replaces_are_not_both_committed(world, first, tmp_path):  # 77
    second = "insert_overwrite" if first == "upsert" else "upsert"

    with pytest.raises(WriteConflict):
        write(
            meanwhile(world, lambda: write(world, first, ("p1", "paris", 20.0))),
            second,
            ("p1", "paris", 30.0),
        )

    assert ("p1", "paris", 20.0) in seen(world)
    check(world, tmp_path)


def test_an_overwrite_does_not_leave_rows_that_came_to_its_partition_meanwhile(world, tmp_path):
    with pytest.raises(WriteConflict, match="which this write replaces"):
        write(
            meanwhile(world, lambda: write(world, "bulk_insert", ("n", "oslo", 1.0))),
            "insert_overwrite",
            ("m", "oslo", 2.0),
        )

    check(world, tmp_path)


def test_of_two_writes_that_change_the_schema_one_is_refused(world):
    def wider(name):
        new = table_of([("r1", "rome", 2.0)])
        return new.append_column(name, new["fare"])

    with pytest.raises(WriteConflict, match="schema"):
        meanwhile(world, lambda: world.write("bulk_insert", wider("tip"), SHARED)).write(
            "bulk_insert", wider("tax"), SHARED
        )

    found = snapshot(world.open()).schema.names
    assert "tip" in found
    assert "tax" not in found


@pytest.mark.parametrize("index", [IndexType.SIMPLE, IndexType.GLOBAL_SIMPLE])
def test_a_delete_that_is_decided_after_the_upsert_of_a_new_key_removes_it_or_is_refused(world, index):
    settings = sharing(index_type=index)

    def late(settings):
        """The key is added when the delete has looked for it and is about to be decided."""
        store = InterruptedStore(
            world.store,
            LEDGER_FOLDER,
            lambda: write(world, "upsert", ("n", "paris", 1.0)),
            passes=1,
        )
        return write(world.on(store), "delete", ("n", "paris", 0.0), settings=settings)

    with pytest.raises(WriteConflict, match="added keys to partition city=paris, where this write missed"):
        late(settings)
    assert "n" in visible_ids(world.open())

    write(world, "delete", ("n", "paris", 0.0))
    late(replace(settings, conflict_retries=1))

    assert "n" not in visible_ids(world.open())
    check_at_rest(world.open())


def test_a_delete_of_keys_that_are_there_is_in_nobodys_way(world, tmp_path):
    store = InterruptedStore(
        world.store, LEDGER_FOLDER, lambda: write(world, "bulk_insert", ("n", "paris", 1.0)), passes=1
    )

    write(world.on(store), "delete", ("p1", "paris", 0.0))

    assert visible_ids(world.open()) == {"p2", "r1", "n"}
    check(world, tmp_path)


def test_a_deleted_partition_that_was_empty_is_in_the_way_of_rows_that_came_meanwhile(world):
    deleting = InterruptedStore(
        world.store, LEDGER_FOLDER, lambda: write(world, "bulk_insert", ("n", "rome", 1.0)), passes=2
    )
    emptied = InterruptedStore(deleting, LEDGER_FOLDER, lambda: world.delete_partitions("city=rome"))

    with pytest.raises(WriteConflict, match="wrote to partition city=rome, which this write replaces"):
        world.on(emptied).delete_partitions("city=rome", settings=SHARED)


def test_a_write_that_lost_is_made_anew_as_often_as_asked(world, tmp_path):  # 84
    settings = sharing(conflict_retries=1)

    commit = write(
        meanwhile(world, lambda: write(world, "upsert", ("p1", "paris", 20.0))),
        "upsert",
        ("p1", "paris", 30.0),
        settings=settings,
    )

    assert ("p1", "paris", 30.0) in seen(world)
    times = [instant.time for instant in load_timeline(world.store).completed_commits]
    assert len(times) == 4
    assert commit.instant == times[-1]
    check(world, tmp_path)


def test_the_younger_of_two_writers_on_a_file_group_learns_it_while_it_writes(world):  # 78
    early = sharing(detects_conflicts_early=True)
    written = RecordingStore(world.store)
    told = []

    def younger():
        with pytest.raises(WriteConflict, match="another write is working on the same file group") as raised:
            write(world.on(written), "upsert", ("p1", "paris", 30.0), settings=early)
        told.append(raised.value)

    write(meanwhile(world, younger, at="city=paris"), "upsert", ("p1", "paris", 20.0), settings=early)

    assert told
    assert not [change for change in written.changes if change.startswith("upload")]
    assert ("p1", "paris", 20.0) in seen(world)


def test_markers_of_the_dead_are_in_nobodys_way(world):  # 78
    early = sharing(detects_conflicts_early=True)
    die(world, "upload", "upsert", ("p1", "paris", -1.0))
    world.clock.now += 2 * HEARTBEAT_TIMEOUT_MS

    write(world, "upsert", ("p1", "paris", 30.0), settings=early)

    assert ("p1", "paris", 30.0) in seen(world)


def die(world, last, operation, *found, settings=SHARED):
    """A writer dies right after the last of its changes that contains this text."""
    counted = world.copy()
    recorder = RecordingStore(counted.store)
    write(counted.on(recorder), operation, *found, settings=settings)
    crashing = CrashingStore(world.store, recorder.last(last), after=True)
    with pytest.raises(Crash):
        write(world.on(crashing), operation, *found, settings=settings)


def test_a_paused_writer_whose_heartbeat_expired_is_fenced_and_changes_nothing(world, tmp_path):  # 62, 63
    def taken_for_dead():
        world.clock.now += 2 * HEARTBEAT_TIMEOUT_MS
        assert len(recover(world.open(), policy=LAZY).rolled_back) == 1

    before = seen(world)
    with pytest.raises(Fenced):
        write(meanwhile(world, taken_for_dead, at="city=paris"), "upsert", ("p1", "paris", 30.0))

    recover(world.open(), policy=LAZY)
    assert seen(world) == before
    check(world, tmp_path)


def test_a_paused_writer_that_fails_over_what_was_cleaned_meanwhile_is_told_that_it_was_rolled_back(
    world, tmp_path
):
    def cleaned_after_it_was_taken_for_dead():
        world.clock.now += 2 * HEARTBEAT_TIMEOUT_MS
        recover(world.open(), policy=LAZY)
        raise TableDamaged("a data file is missing", file="city=paris/old.parquet")

    with pytest.raises(Fenced, match="rolled back by another process") as raised:
        write(meanwhile(world, cleaned_after_it_was_taken_for_dead), "upsert", ("p1", "paris", 30.0))

    assert isinstance(raised.value.__cause__, TableDamaged)
    check(world, tmp_path)
    # Nobody ended this one: it is told what it failed of.
    with pytest.raises(TableDamaged):
        write(meanwhile(world, lambda: fail_with(TableDamaged("torn"))), "upsert", ("p1", "paris", 30.0))


def fail_with(error):
    raise error


def test_a_living_heartbeat_is_left_alone_and_an_expired_one_is_not(world, tmp_path):  # 20, 21
    die(world, "upload", "upsert", ("p1", "paris", -1.0))

    assert recover(world.open(), policy=LAZY).rolled_back == ()
    assert recover(world.open(), policy=FailedWritesPolicy.EAGER).rolled_back == ()

    world.clock.now += HEARTBEAT_TIMEOUT_MS
    write(world, "upsert", ("p2", "paris", 5.0))

    assert len(load_timeline(world.store).pending_writes) == 0
    check(world, tmp_path)


def test_a_missing_heartbeat_proves_nothing_until_it_has_been_missing_for_long(world):  # 58
    die(world, "upload", "upsert", ("p1", "paris", -1.0))
    (path,) = world.store.paths(HEARTBEAT_FOLDER)
    world.store.delete(path)
    world.clock.now += 2 * HEARTBEAT_TIMEOUT_MS

    assert recover(world.open(), policy=LAZY).rolled_back == ()

    world.clock.now += 2 * HEARTBEAT_TIMEOUT_MS
    assert len(recover(world.open(), policy=LAZY).rolled_back) == 1


def test_a_write_that_completes_while_it_is_judged_is_not_rolled_back(world, tmp_path):  # 22
    die(world, "ledger", "upsert", ("p1", "paris", 9.0))
    world.clock.now += 2 * HEARTBEAT_TIMEOUT_MS

    assert recover(world.open(), policy=LAZY).rolled_back == ()

    assert ("p1", "paris", 9.0) in seen(world)
    check(world, tmp_path)


def test_never_leaves_failed_writes_to_the_operator(world):  # 23
    die(world, "upload", "upsert", ("p1", "paris", -1.0))
    world.clock.now += 2 * HEARTBEAT_TIMEOUT_MS
    never = WriteSettings(failed_writes_policy=FailedWritesPolicy.NEVER)

    write(world, "upsert", ("p2", "paris", 5.0), settings=never)

    assert len(load_timeline(world.store).pending_writes) == 1
    assert len(recover(world.open()).rolled_back) == 1


def test_several_dead_writes_are_rolled_back_newest_first(world, tmp_path):  # 17
    for key in ("a", "b", "c"):
        die(world, "upload", "bulk_insert", (key, "paris", -1.0))
    world.clock.now += 2 * HEARTBEAT_TIMEOUT_MS

    reports = recover(world.open(), policy=LAZY).rolled_back

    times = [report.rolled_back for report in reports]
    assert len(times) == 3
    assert times == sorted(times, reverse=True)
    check(world, tmp_path)


def test_a_writer_that_is_alone_refuses_while_others_share_the_table(world):  # 69
    def alone():
        with pytest.raises(WriterActive, match="process 0 on simulated"):
            world.insert("x")

    write(meanwhile(world, alone), "upsert", ("p1", "paris", 30.0))

    assert ("p1", "paris", 30.0) in seen(world)


def test_the_first_commit_of_a_table_is_made_by_one_writer(world):
    fresh = memory_world()
    fresh.host = SimulatedHost(others=Liveness.UNKNOWN)
    fresh.create()

    def too_early():
        with pytest.raises(WriterActive, match="the first write is running"):
            write(fresh, "bulk_insert", ("b", "paris", 1.0))

    write(meanwhile(fresh, too_early), "bulk_insert", ("a", "paris", 1.0))

    assert visible_ids(fresh.open()) == {"a"}


def foreign_commit(world, time, *, file_id, partition="city=paris"):
    """What a program that does not know the ledger leaves when it has written to a file group."""
    found = next(path for path in world.store.paths(partition) if file_id in path)
    path = f"{partition}/{file_id}_9-9-9_{time}.parquet"
    content = world.store.read(found)
    world.store.create(path, content)
    stat = WriteStat(
        file_id, path, partition_path=partition, file_size_in_bytes=len(content), num_update_writes=1
    )
    metadata = CommitMetadata({partition: [stat]}, operation_type="UPSERT")
    world.store.create(instant_file(time, Action.COMMIT, State.COMPLETED), encode_commit(metadata))


def test_a_commit_of_another_program_is_validated_against_too(world):
    file_id = next(p for p in world.store.paths("city=paris") if p.endswith(".parquet"))
    file_id = file_id.rpartition("/")[2].partition("_")[0]
    time = InstantTime("20991231000000000")

    with pytest.raises(WriteConflict, match="both wrote file group") as raised:
        write(
            meanwhile(world, lambda: foreign_commit(world, time, file_id=file_id)),
            "upsert",
            ("p1", "paris", 30.0),
            ("p2", "paris", 30.0),
        )

    assert raised.value.facts["other"] == time


def beside_a_younger_foreign_commit(world):
    """An upsert of a file group to which another program commits, younger, before the upsert has read it."""
    file_id = next(p for p in world.store.paths("city=rome") if p.endswith(".parquet"))
    file_id = file_id.rpartition("/")[2].partition("_")[0]
    time = InstantTime("20991231000000000")
    found = meanwhile(
        world,
        lambda: foreign_commit(world, time, file_id=file_id, partition="city=rome"),
        at=HEARTBEAT_FOLDER,
    )
    write(found, "upsert", ("r1", "rome", 30.0))


def test_a_younger_commit_that_is_shown_before_the_write_reads_is_concurrent_all_the_same(world):
    with pytest.raises(WriteConflict, match="both wrote file group"):
        beside_a_younger_foreign_commit(world)


def test_a_younger_commit_that_counts_as_what_a_write_builds_on_is_found(world, monkeypatch):
    def counting_all(table, instant, slot, timeline):
        shown = frozenset(one.time for one in timeline.completed_commits)
        return Validation(table, instant, shown, slot)

    monkeypatch.setattr(transaction, "begin_validation", counting_all)
    beside_a_younger_foreign_commit(world)

    assert ("r1", "rome", 30.0) not in seen(world), "I6: the update is acknowledged, and lost"


def die_after_deciding_younger_first(world, step):
    """Two writers: the younger is decided first and not shown; the older dies so many changes after that."""

    def younger():
        counted = world.copy()
        recorder = RecordingStore(counted.store)
        write(counted.on(recorder), "bulk_insert", ("y", "oslo", 1.0))
        crashing = CrashingStore(world.store, recorder.last("ledger"), after=True)
        with pytest.raises(Crash):
            write(world.on(crashing), "bulk_insert", ("y", "oslo", 1.0))

    dying = CrashingStore(world.store, step, after=True)
    with suppress(Crash):
        write(
            world.on(InterruptedStore(dying, LEDGER_FOLDER, younger, passes=1)),
            "bulk_insert",
            ("o", "rome", 1.0),
        )


def check_publishing(world):
    ensure_many_writers(world.store, world.clock)  # So that the first step is one of the write.
    for step in range(1, 20):
        left = world.copy()
        die_after_deciding_younger_first(left, step)
        check_at_any_time(left.open())


def test_commits_are_shown_in_the_order_of_their_decisions(world):
    check_publishing(world)


def test_publishing_in_the_order_of_time_is_found(world, monkeypatch):
    in_order = publish._in_order

    def by_time(state, *, without):
        return sorted(in_order(state, without=without), key=lambda one: one[1])

    monkeypatch.setattr(publish, "_in_order", by_time)

    with pytest.raises(AssertionError, match="I7"):
        check_publishing(world)


def test_a_rollback_that_another_program_planned_fences_the_write(world):  # 64
    def planned():
        (pending,) = load_timeline(world.store).pending_writes
        plan = encode_rollback_plan(RollbackPlan(RolledBackInstant(pending.time, pending.action), ()))
        world.store.create(
            instant_file(InstantTime("20991231000000000"), Action.ROLLBACK, State.REQUESTED), plan
        )

    with pytest.raises(Fenced, match="by another program"):
        write(meanwhile(world, planned), "bulk_insert", ("x", "paris", 1.0))

    assert "x" not in visible_ids(world.open())
    recover(world.open())
    check_at_rest(world.open())


def test_changes_end_before_the_oldest_write_that_is_not_decided(world):
    """Once it is committed, a reader who goes on from the newest row it saw would miss it."""
    first = load_timeline(world.store).completed_commits[-1].time
    found = []

    def younger():
        write(world, "upsert", ("p2", "paris", 30.0))
        found.append(changed(world, first))

    write(meanwhile(world, younger), "upsert", ("p1", "paris", 20.0))
    found.append(changed(world, first))

    assert found == [set(), {("p1", "paris", 20.0), ("p2", "paris", 30.0)}]


def changed(world, since):
    table = world.open()
    found = changes(table, since=since)
    schema = change_schema(found.snapshot.schema, columns=None, meta_columns=False)
    return set(row_list(read_changes(table.store, found, schema)))


def test_whoever_takes_commits_back_uses_the_lock_of_the_writers(tmp_path):
    options = {
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
        "hoodie.write.lock.wait_time_ms": "50",
        "hoodie.write.lock.client.num_retries": "0",
    }
    table = holdfast.create_table(str(tmp_path), name="t", record_key="id", partition_by="city")
    table.insert(table_of([("a", "paris", 1.0)]), options=options)
    lock = open_lock(table._opened, WriteSettings.from_options(options).lock)

    with lock.hold(), pytest.raises(LockTimeout):
        table.undo()

    assert table.undo().action == "commit"
