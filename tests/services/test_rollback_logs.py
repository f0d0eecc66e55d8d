"""Taking back writes with log files: what is theirs alone goes, else a command says it does not count."""

from dataclasses import replace

import pytest

from harness.merge_on_read import HudiTable, block_of
from holdfast.errors import StorageUnavailable, TableDamaged
from holdfast.format.log_heads import read_heads
from holdfast.format.rollbacks import decode_rollback_metadata, decode_rollback_plan, encode_rollback_plan
from holdfast.model.instant import Action, State
from holdfast.model.names import LogFileName, instant_file, is_data_file
from holdfast.model.reports import FindingKind
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.command_blocks import encode_rollback_block
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.verify.verify import verify
from holdfast.table.log_files import Share, log_name, share_of, writers_of_log
from holdfast.timeline.timeline import load_timeline

A, B, C = ("p", "a-0"), ("p", "b-0"), ("", "c-0")


def files(table):
    return {path for path in table.world.store.paths("") if is_data_file(path.rpartition("/")[2])}


def heads(table, path):
    with table.world.store.open(path) as source:
        return list(read_heads(source))


def commands(table):
    """Path → the write that is taken back, of each log file with a command."""
    logs = [path for path in files(table) if ".log." in path]
    found = {path: [head.taken_back for head in heads(table, path) if head.taken_back] for path in logs}
    return {path: times for path, times in found.items() if times}


def orphans(table):
    found = verify(table.world.open()).findings
    return [finding.path for finding in found if finding.kind is FindingKind.ORPHAN]


def record_of(table, rollback):
    path = instant_file(rollback, Action.ROLLBACK, State.COMPLETED)
    return decode_rollback_metadata(table.world.store.read(path))


@pytest.fixture
def table():
    """Two file groups of one partition, the first with a log file."""
    table = HudiTable()
    table.deltacommit(base=[A, B, C])
    table.deltacommit(logs=[A])
    return table


@pytest.mark.parametrize("markers", [True, False])
def test_what_a_failed_write_left_is_gone(table, markers):
    before = files(table)
    failed = table.deltacommit(logs=[A, B], base=[("p", "d-0")], finish=False, markers=markers)
    left = files(table) - before
    assert len(left) == 3

    (report,) = recover(table.world.open()).rolled_back

    assert files(table) == before
    assert report.rolled_back == failed
    assert set(report.deleted) == left
    record = record_of(table, report.instant)
    assert record.total_files_deleted == 3
    assert {path.rpartition("/")[2] for path in record.by_partition["p"].deleted_files} == {
        path.rpartition("/")[2] for path in left
    }
    assert not commands(table)


@pytest.mark.parametrize("markers", [True, False])
def test_blocks_that_share_a_file_are_taken_back_by_a_command(table, markers):
    before = files(table)
    failed = table.append(A, finish=False, markers=markers)
    (shared,) = table.groups[A][-1].logs

    (report,) = recover(table.world.open()).rolled_back

    (command,) = files(table) - before
    assert commands(table) == {command: [failed]}
    assert command.rpartition("_")[2] == "1-0-1"
    assert ".log.2_" in command
    (head,) = heads(table, command)
    assert head.instant == report.instant
    record = record_of(table, report.instant).by_partition["p"]
    uri = table.world.store.uri
    assert record.rollback_log_files == {uri(command): table.world.store.stat(command).size}
    assert record.failed_commit_log_files == {uri(shared): table.world.store.stat(shared).size}
    assert record.deleted_files == ()


def test_the_plan_names_blocks_as_hudi_does(table):
    table.append(A, finish=False, markers=True)
    (shared,) = table.groups[A][-1].logs
    size = table.world.store.stat(shared).size

    (report,) = recover(Keeps(table, Action.ROLLBACK).open()).rolled_back

    requested = table.kept[instant_file(report.instant, Action.ROLLBACK, State.REQUESTED)]
    (request,) = decode_rollback_plan(requested).requests
    assert request.partition == "p"
    assert request.file_id == "a-0"
    assert request.latest_base_instant == table.groups[A][-1].instant
    assert request.files == ()
    assert request.log_blocks == {table.world.store.uri(shared): size}


class Keeps:
    """The table's world; what its instants said is kept in `table.kept`."""

    def __init__(self, table, action):
        self._table, self._action = table, action
        table.kept = {}

    def open(self):
        opened = self._table.world.open()
        create, kept = opened.store.create, self._table.kept

        def keeping(path, content):
            kept[path] = content
            return create(path, content)

        opened.store.create = keeping
        return opened


def test_a_rollback_that_is_repeated_says_it_once(table):
    table.append(A, finish=False, markers=True)
    opened = table.world.open()
    recover(opened)
    (command,) = commands(table)
    (done,) = [i for i in load_timeline(table.world.store).instants if i.action is Action.ROLLBACK]
    failed = commands(table)[command][0]
    for state in (State.REQUESTED, State.INFLIGHT):
        table.world.store.put(instant_file(failed, Action.DELTACOMMIT, state), b"")
    table.world.store.delete(instant_file(done.time, Action.ROLLBACK, State.COMPLETED))

    (report,) = recover(table.world.open()).rolled_back

    assert report.instant == done.time
    assert list(commands(table)) == [command]
    assert list(record_of(table, done.time).by_partition["p"].rollback_log_files) == [
        table.world.store.uri(command)
    ]


@pytest.mark.parametrize("content", [b"", b"#HUDI#", block_of("20300101000000000")[:-30]])
def test_a_torn_log_file_of_a_failed_attempt_goes_with_its_marker(table, content):
    # hudi 11007: log files without a byte stayed for ever.
    failed = table.deltacommit(logs=[A], finish=False, markers=True)
    torn = table.groups[A][-1].logs[-1]
    table.world.store.put(torn, content.replace(b"20300101000000000", failed.encode()))

    recover(table.world.open())

    assert table.world.store.stat(torn) is None


def test_the_head_of_a_torn_block_tells_whose_it_is(table):
    failed = table.deltacommit(logs=[A], finish=False)
    torn = table.groups[A][-1].logs[-1]
    table.world.store.put(torn, block_of(failed)[:-20])

    assert writers_of_log(table.world.store, torn) == {failed}
    assert [head.is_whole for head in heads(table, torn)] == [False]
    recover(table.world.open())
    assert table.world.store.stat(torn) is None


def test_a_block_behind_a_torn_one_is_found(table):
    path = table.groups[A][-1].logs[-1]
    whole = table.world.store.read(path)
    table.world.store.put(path, whole[:-20] + block_of("20300101000000000"))

    assert [head.is_whole for head in heads(table, path)] == [False, True]
    assert "20300101000000000" in writers_of_log(table.world.store, path)


def test_a_file_that_another_write_made_under_an_announced_name_stays(table):
    # hudi 10803: attempts are told apart by what they wrote, never by counting blocks.
    failed = table.deltacommit(logs=[A], finish=False, markers=True)
    path = table.groups[A][-1].logs[-1]
    other = table.deltacommit(logs=[B])
    table.world.store.put(path, block_of(other))

    recover(table.world.open())

    assert table.world.store.stat(path) is not None
    assert not commands(table)
    assert share_of(table.world.store, path, failed) is Share.NONE


def test_the_name_of_a_file_of_ours_tells_whose_it_is(table):
    time, slice_ = "20300101000000000", table.groups[A][0].instant
    name = LogFileName.of_write("a-0", slice_, 7, attempt=0, instant=time)
    path = f"p/{name}"
    table.world.store.create(path, b"nothing that can be read")

    assert share_of(table.world.store, path, time) is Share.WHOLE
    assert share_of(table.world.store, path, slice_) is Share.NONE
    assert writers_of_log(table.world.store, path) == {time}


def test_a_plan_that_names_a_log_file_of_another_write_is_refused(table):
    failed = table.deltacommit(logs=[B], finish=False, markers=True)
    victim = table.groups[A][-1].logs[0]
    rollback = table._now()
    plan = {"p": [table.world.store.uri(victim)]}
    table.world.store.create(
        instant_file(rollback, Action.ROLLBACK, State.REQUESTED), foreign_plan(failed, plan)
    )

    with pytest.raises(TableDamaged, match="another instant") as refusal:
        recover(table.world.open())

    assert refusal.value.facts["file"].endswith(victim.rpartition("/")[2])
    assert table.world.store.stat(victim) is not None


def foreign_plan(target, files, log_blocks=None):
    from holdfast.format.rollbacks import RollbackPlan, RollbackRequest, RolledBackInstant

    requests = [RollbackRequest(partition, files=tuple(paths)) for partition, paths in files.items()]
    for partition, blocks in (log_blocks or {}).items():
        requests.append(RollbackRequest(partition, "a-0", "", log_blocks=blocks))
    return encode_rollback_plan(RollbackPlan(RolledBackInstant(target, Action.DELTACOMMIT), tuple(requests)))


def test_a_rollback_that_hudi_began_is_finished(table):
    """Its plan names blocks; a file that holds no others is deleted, which says the same."""
    failed = table.deltacommit(logs=[A], finish=False)
    own = table.groups[A][-1].logs[-1]
    rollback = table._now()
    blocks = {"p": {f"file:/moved/{own}": table.world.store.stat(own).size}}
    table.world.store.create(
        instant_file(rollback, Action.ROLLBACK, State.REQUESTED), foreign_plan(failed, {}, blocks)
    )

    (report,) = recover(table.world.open()).rolled_back

    assert report.instant == rollback
    assert table.world.store.stat(own) is None
    assert record_of(table, rollback).by_partition["p"].deleted_files == (f"file:/moved/{own}",)


def test_a_stuck_file_leaves_a_rollback_that_the_next_one_finishes(table, monkeypatch):
    failed = table.deltacommit(logs=[A], finish=False, markers=True)
    path = table.groups[A][-1].logs[-1]
    opened = table.world.open()
    monkeypatch.setattr(opened.store, "delete_all", lambda paths: tuple(p for p in paths if p == path))
    with pytest.raises(StorageUnavailable):
        recover(opened)
    monkeypatch.undo()

    (report,) = recover(table.world.open()).rolled_back

    assert report.rolled_back == failed
    assert table.world.store.stat(path) is None


def test_undo_of_a_deltacommit_deletes_its_log_files_alone(table):
    before = files(table)
    table.deltacommit(logs=[A, B])

    undo(table.world.open())

    assert files(table) == before


def test_undo_of_a_shared_log_file_leaves_a_command(table):
    newest = table.append(A)

    undo(table.world.open())

    assert list(commands(table).values()) == [[newest]]


def test_undo_of_a_rewritten_base_takes_its_slice(table):
    """A command that a rollback left in the slice would else stay as a slice of its own."""
    before = files(table)
    newest = table.deltacommit(base=[A])
    table.deltacommit(logs=[A])
    table.append(A, finish=False, markers=True)
    recover(table.world.open())
    assert commands(table)
    undo(table.world.open())
    assert files(table) - before

    report = undo(table.world.open())

    assert report.rolled_back == newest
    assert files(table) == before


def test_restore_into_the_middle_of_a_slice(table):
    target = table.deltacommit(logs=[A, B])
    then = files(table)
    table.deltacommit(logs=[A, B])
    table.deltacommit(base=[A])
    table.deltacommit(logs=[A], base=[("q", "e-0")])
    table.deltacommit(logs=[B], finish=False, markers=True)

    restore(table.world.open(), target)

    assert files(table) == then


def test_no_phantom_slice_survives_a_restore(table):
    # hudi 889, 872, 8774: log files of a pending compaction's slice stayed after a restore.
    target = table.deltacommit(logs=[A])
    then = files(table)
    table.schedule_compaction([A])
    table.deltacommit(logs=[A])

    restore(table.world.open(), target)

    assert files(table) == then


def test_restore_leaves_a_command_where_files_are_shared(table):
    target = load_timeline(table.world.store).last_commit.time
    newer = [table.append(A), table.append(A)]

    restore(table.world.open(), target)

    assert sorted(time for times in commands(table).values() for time in times) == newer


def test_a_log_file_that_a_rollback_of_hudi_left_behind_a_command_is_in_order(table):
    failed = table.deltacommit(logs=[A], finish=False, markers=True)
    path = table.groups[A][-1].logs[-1]
    content = table.world.store.read(path)
    (report,) = recover(table.world.open()).rolled_back
    table.world.store.create(path, content)
    assert orphans(table) == [path]

    name = replace(log_name(path), version=9)
    table.world.store.create(f"p/{name}", encode_rollback_block(report.instant, failed))

    assert orphans(table) == []
