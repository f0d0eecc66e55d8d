"""Who may act: living writers are left alone, dead ones are not, and unknown decides nothing."""

import os
import subprocess
import sys
import threading
from dataclasses import asdict, replace

import msgspec
import pytest

import holdfast
from harness.checker import check_at_rest, visible_ids
from harness.faults import Crash, CrashingStore
from harness.world import SimulatedHost, World, memory_world, rows
from holdfast.errors import WriterActive
from holdfast.host import Liveness, Owner, SystemHost, heartbeat_thread
from holdfast.model.names import HEARTBEAT_FOLDER
from holdfast.services.rollback.rollback import recover


@pytest.fixture
def interrupted():
    """A table with one commit and a writer that stopped at inflight."""
    world = memory_world()
    world.create()
    world.insert("old")
    with pytest.raises(Crash):
        world.on(CrashingStore(world.store, 4, after=True)).insert("half")
    return world


def test_a_write_refuses_while_another_is_provably_alive(interrupted):
    watcher = World(interrupted.store, interrupted.clock, SimulatedHost(1, Liveness.ALIVE))

    with pytest.raises(WriterActive, match="process 0 on simulated"):
        watcher.insert("new")

    assert visible_ids(watcher.open()) == {"old"}
    assert len(watcher.open().ledger.read().begun) == 1


def test_rolling_back_failed_writes_leaves_a_living_one_alone(interrupted):
    watcher = World(interrupted.store, interrupted.clock, SimulatedHost(1, Liveness.ALIVE))

    assert recover(watcher.open()).rolled_back == ()
    assert interrupted.store.paths(HEARTBEAT_FOLDER) != []


@pytest.mark.parametrize("belief", [Liveness.GONE, Liveness.UNKNOWN])
def test_one_writer_takes_over_from_whoever_is_not_provably_alive(interrupted, belief):
    successor = World(interrupted.store, interrupted.clock, SimulatedHost(1, belief))

    commit = successor.insert("new")

    assert len(commit.rolled_back) == 1
    check_at_rest(successor.open())


def test_the_heartbeat_names_its_owner(interrupted):
    (path,) = interrupted.store.paths(HEARTBEAT_FOLDER)

    assert b'"host":"simulated"' in interrupted.store.read(path)


def test_this_process_is_alive_only_while_the_write_beats():
    host = SystemHost()
    owner = host.owner("a-token")
    assert host.liveness(owner) is Liveness.GONE

    stop = threading.Event()
    beating = threading.Thread(target=stop.wait, name=heartbeat_thread("a-token"))
    beating.start()
    assert host.liveness(owner) is Liveness.ALIVE
    stop.set()
    beating.join()


def test_another_process_is_alive_until_it_ends():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host = SystemHost()
    with open(f"/proc/{child.pid}/stat") as stat:
        started = stat.read().rpartition(")")[2].split()[19]
    mine = host.owner("t")
    theirs = replace(mine, pid=child.pid, started=started)
    assert host.liveness(theirs) is Liveness.ALIVE

    child.communicate(b"\n")

    assert host.liveness(theirs) is Liveness.GONE


def test_a_reused_pid_is_not_the_owner():
    mine = SystemHost().owner("t")
    other = replace(mine, pid=os.getppid(), started="1")

    assert SystemHost().liveness(other) is Liveness.GONE


def test_nothing_is_known_of_other_hosts_nor_of_other_namespaces():
    mine = replace(SystemHost().owner("t"), pid=1, started="1")

    assert SystemHost().liveness(replace(mine, host="elsewhere")) is Liveness.UNKNOWN
    assert SystemHost().liveness(replace(mine, namespaces="pid:[1] time:[1]")) is Liveness.UNKNOWN


def test_an_owner_that_does_not_say_where_it_counts_processes_is_not_judged():
    """As those did that were written before owners said so."""
    mine = SystemHost().owner("t")
    before = {name: value for name, value in asdict(mine).items() if name != "namespaces"}

    assert SystemHost().liveness(Owner(**before, namespaces="")) is Liveness.UNKNOWN
    assert msgspec.json.decode(msgspec.json.encode(before), type=Owner) == replace(mine, namespaces="")


@pytest.mark.parametrize(
    ("namespaces", "belief"),
    [("pid:[4026531836] time:[4026531834]", Liveness.GONE), ("pid:[4026532178]", Liveness.UNKNOWN)],
    ids=["of the host", "of a container"],
)
def test_a_reboot_ends_the_processes_of_the_host_and_says_nothing_of_containers(
    monkeypatch, namespaces, belief
):
    monkeypatch.setattr("holdfast.host._namespaces", lambda: namespaces)
    mine = SystemHost().owner("t")

    assert SystemHost().liveness(replace(mine, boot="another-boot")) is belief


def test_a_process_that_is_hidden_from_this_user_is_not_taken_for_gone(monkeypatch):
    """As /proc does with `hidepid`: the process is there, its folder is not."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        hidden = f"/proc/{child.pid}/stat"

        def seen(path, *arguments, **named):
            if path == hidden:
                raise FileNotFoundError(path)
            return open(path, *arguments, **named)

        monkeypatch.setattr("holdfast.host.open", seen, raising=False)
        monkeypatch.setattr("os.path.exists", lambda path: path != hidden)
        owner = replace(SystemHost().owner("t"), pid=child.pid)

        assert SystemHost().liveness(owner) is Liveness.UNKNOWN
        child.communicate(b"\n")

    assert SystemHost().liveness(owner) is Liveness.GONE


def test_a_heartbeat_is_there_while_a_write_runs_and_gone_after_it(tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    seen = []
    upload = type(table._opened.store).upload

    class Watching(type(table._opened.store)):
        def upload(self, path):
            seen.append(sorted(p.name for p in (tmp_path / ".hoodie/.heartbeat").iterdir()))
            seen.append(any(t.name.startswith("holdfast-heartbeat-") for t in threading.enumerate()))
            return upload(self, path)

    table._opened.store.__class__ = Watching

    commit = table.insert(rows("a", city="x"))

    assert seen == [[commit.instant], True]
    assert list((tmp_path / ".hoodie/.heartbeat").iterdir()) == []
    assert not any(t.name.startswith("holdfast-heartbeat-") for t in threading.enumerate())
