"""Containers: one host name, one boot, and processes that each of them counts for itself."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from concurrency.lock_user import FORMS, real_lock, unsynced
from harness.world import SimulatedClock, World, rows
from holdfast.config.choices import ConcurrencyMode, FailedWritesPolicy
from holdfast.config.write import WriteSettings
from holdfast.errors import LockTimeout
from holdfast.host import Liveness, Owner, SystemHost
from holdfast.services.rollback.rollback import recover
from holdfast.storage.memory import MemoryStore

_CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")

_WHO_IS_ALIVE = """
import dataclasses, json, sys
from holdfast.host import Owner, SystemHost
host = SystemHost()
print(json.dumps(dataclasses.asdict(host.owner("t"))), flush=True)
for line in sys.stdin:
    print(host.liveness(Owner(**json.loads(line))).value, flush=True)
"""


def _can_enter() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_CONTAINER, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not _can_enter(), reason="this user may not make process namespaces")


@pytest.fixture
def start():
    """Runs Python in a process namespace of its own; its processes end with the test."""
    started = []

    def run(*arguments: str) -> "subprocess.Popen[str]":
        command = [*_CONTAINER, sys.executable, *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def neighbour(start):
    """A process of another container, and who it says it is."""
    process = start("-c", _WHO_IS_ALIVE)
    return process, Owner(**json.loads(process.stdout.readline()))


def test_a_process_of_another_container_is_not_judged(neighbour):
    _, owner = neighbour
    mine = SystemHost().owner("t")

    assert (owner.host, owner.boot) == (mine.host, mine.boot)
    assert SystemHost().liveness(owner) is Liveness.UNKNOWN


def test_nor_does_it_judge_processes_outside_it(neighbour):
    process, _ = neighbour
    process.stdin.write(json.dumps(asdict(SystemHost().owner("t"))) + "\n")
    process.stdin.flush()

    assert process.stdout.readline().strip() == Liveness.UNKNOWN.value


def test_a_writer_of_another_container_that_shares_the_table_is_not_rolled_back(neighbour):
    """It began, and its heartbeat is young."""
    _, owner = neighbour

    class Neighbour(SystemHost):
        def owner(self, token):
            return replace(owner, token=token)

    clock = SimulatedClock()
    world = World(MemoryStore(clock), clock, Neighbour())
    world.create()
    shared = WriteSettings(
        concurrency_mode=ConcurrencyMode.OPTIMISTIC, failed_writes_policy=FailedWritesPolicy.LAZY
    )
    world.insert("old")
    world.die_after(lambda w: w.write("insert", rows("mine"), shared), last="upload")

    recovery = recover(replace(world, host=SystemHost()).open(), policy=FailedWritesPolicy.LAZY)

    assert recovery.rolled_back == ()
    assert [write.owner.pid for write in recovery.left] == [owner.pid]


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_lock_that_another_container_holds_is_not_taken(form, start, tmp_path):
    holder = start(str(Path(__file__).with_name("lock_user.py")), str(tmp_path), form, "hold")
    assert holder.stdout.readline() == "holding\n"

    with (
        pytest.raises(LockTimeout),
        real_lock(unsynced(tmp_path), form, patience_ms=100).hold(),
    ):
        pass


def test_whoever_does_not_see_its_own_processes_judges_nobody():
    """It has a namespace of its own, and the /proc of the host."""
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", _WHO_IS_ALIVE]
    mine = json.dumps(asdict(SystemHost().owner("t")))
    done = subprocess.run(command, input=mine, capture_output=True, text=True, check=True)

    theirs, judged = done.stdout.splitlines()

    assert judged == Liveness.UNKNOWN.value
    assert SystemHost().liveness(Owner(**json.loads(theirs))) is Liveness.UNKNOWN
