"""A table with some history, and defects that are planted in it on purpose."""

from dataclasses import replace

import msgspec
import pytest

from harness.faults import Crash, CrashingStore, RecordingStore
from harness.world import SimulatedHost, memory_world, rows
from holdfast.concurrency.heartbeats import Beat
from holdfast.format.commits import decode_commit, decode_written_files, encode_commit, encode_sealed_commit
from holdfast.format.rollbacks import RollbackPlan, RolledBackInstant, encode_rollback_plan
from holdfast.format.savepoints import encode_savepoint, savepoint_of
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import (
    LEDGER_FOLDER,
    PARTITION_METAFILE,
    heartbeat_path,
    instant_file,
    marker_path,
    partition_of,
)
from holdfast.model.reports import FindingKind, Severity
from holdfast.services.rollback.rollback import recover
from holdfast.services.verify.verify import verify

NOBODYS = InstantTime("20991231235959999")
ROLLBACK = InstantTime("20991231235959998")


class Lake:
    """A table with some history: many commits, a savepoint, a write that was rolled back."""

    def __init__(self) -> None:
        self.world = memory_world()
        early = replace(self.world, checkpoint_after=4)
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
        content = encode_savepoint(savepoint_of("ada", 1, "", files))
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
    return {(FindingKind.CHANGED, path)}


def empty_commit(lake):
    lake.store.put(lake.completed(7), b"")
    return {(FindingKind.CHANGED, lake.completed(7))}


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
    changed = msgspec.structs.replace(metadata, operation_type="UPSERT")
    lake.store.put(path, encode_sealed_commit(changed, lake.commits[9]))
    return {(FindingKind.CHANGED, path)}


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
    lake.store.create(
        path, encode_rollback_plan(RollbackPlan(RolledBackInstant(lake.commits[2], Action.COMMIT), ()))
    )
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
    return {(FindingKind.VANISHED, lake.completed(11))}


def aborted_write_that_is_completed(lake):
    path = instant_file(lake.aborted, Action.COMMIT, State.COMPLETED)
    for state in (State.REQUESTED, State.INFLIGHT):
        lake.store.create(instant_file(lake.aborted, Action.COMMIT, state), b"")
    lake.store.create(path, encode_commit(decode_commit(b'{"partitionToWriteStats":{}}')))
    return {(FindingKind.GHOST, path)}


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
FINISHED = (
    torn_commit,
    empty_commit,
    commit_that_says_something_else,
    commit_that_is_not_shown,
    commit_that_vanished,
    aborted_write_that_is_completed,
    partition_without_metafile,
)
"""What the ledger, or the timeline, tells how to put right."""
MOVED = (
    orphan_of_an_unknown_instant,
    orphan_of_a_rolled_back_write,
    orphan_that_its_commit_does_not_name,
    torn_rollback_request,
    stale_markers,
    stale_heartbeat,
)


def each_crash(world, act):
    """Every world that a crash of the act can leave, once it has changed anything."""
    recorder = RecordingStore(world.copy().store)
    act(world.copy().on(recorder))
    for step in range(1, len(recorder.changes) + 1):
        left = world.copy()
        with pytest.raises(Crash):
            act(left.on(CrashingStore(left.store, step, after=True)))
        yield left
