"""The lock in ZooKeeper: among Holdfast's writers, and with Curator's mutex, which Hudi uses."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from holdfast.concurrency.locks.open import open_lock
from holdfast.concurrency.locks.xxhash import xxhash64
from holdfast.concurrency.locks.zookeeper_place import path_of
from holdfast.config.choices import LockProvider
from holdfast.config.option import Area
from holdfast.config.option_table import options_of
from holdfast.errors import Fenced, LockTimeout, StorageUnavailable

THREADS = 4
ROUNDS = 10


@pytest.fixture
def client(zookeeper) -> Iterator[KazooClient]:
    client = KazooClient(f"127.0.0.1:{zookeeper.port}")
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def holder(table, settings) -> "Iterator[subprocess.Popen[str]]":
    """Another process that holds the lock."""
    chosen = settings()
    options = [f"{each.name}={getattr(chosen, each.setting)}" for each in options_of(Area.LOCK).values()]
    script = Path(__file__).with_name("lock_holder.py")
    process = subprocess.Popen(
        [sys.executable, str(script), table.location.uri, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "holding\n"
    yield process
    process.kill()
    process.communicate()


def test_contenders_are_never_inside_the_lock_together(table, settings):
    inside = threading.Semaphore(1)
    counter = [0]

    def run(_: int) -> None:
        for _ in range(ROUNDS):
            with open_lock(table, settings()).hold() as hold:
                assert inside.acquire(blocking=False)
                count = counter[0]
                hold.refuse_if_lost()
                counter[0] = count + 1
                inside.release()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(run, range(THREADS)))

    assert counter == [THREADS * ROUNDS]


def test_a_lock_that_is_not_granted_names_the_holder_and_its_age(table, settings, holder):
    time.sleep(0.05)

    with pytest.raises(LockTimeout, match=f"holder: process {holder.pid} on ") as refusal:
        open_lock(table, settings(wait_ms=100)).hold().__enter__()

    assert 50 <= refusal.value.facts["age_ms"] < 60_000


def test_who_did_not_get_the_lock_leaves_no_node_behind(table, settings, holder, client):
    path = path_of(settings(), table_uri="", table_name="")
    before = client.get_children(path)

    with pytest.raises(LockTimeout):
        open_lock(table, settings(wait_ms=100)).hold().__enter__()

    assert client.get_children(path) == before


def test_k5_81_a_killed_holders_lock_is_granted_when_its_session_ends(table, settings, holder):
    holder.kill()

    with open_lock(table, settings()).hold() as hold:
        hold.refuse_if_lost()


def test_k5_81_a_holder_that_slept_past_its_session_is_refused(table, settings, holder):
    holder.send_signal(signal.SIGSTOP)
    with open_lock(table, settings()).hold():
        holder.send_signal(signal.SIGCONT)

        holder.stdin.write("\n")
        holder.stdin.flush()

        assert holder.stdout.readline() == "fenced\n"


def test_a_holder_that_was_asked_in_time_is_not_refused(holder):
    holder.stdin.write("\n")
    holder.stdin.flush()

    assert holder.stdout.readline() == "held\n"


def test_a_holder_whose_node_was_deleted_is_refused(table, settings, client):
    path = path_of(settings(), table_uri="", table_name="")

    with open_lock(table, settings()).hold() as hold:
        (node,) = client.get_children(path)
        client.delete(f"{path}/{node}")

        with pytest.raises(Fenced, match="the lock was lost"):
            hold.refuse_if_lost()


def test_a_server_that_does_not_answer_is_told(table, settings):
    unreachable = settings(zookeeper_port=1, zookeeper_connection_timeout_ms=300)

    with pytest.raises(StorageUnavailable, match="ZooKeeper did not answer"):
        open_lock(table, unreachable).hold().__enter__()


# Curator, which comes with Spark


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    yield gateway.jvm
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@pytest.fixture
def mutex(jvm, zookeeper, settings) -> Iterator[Any]:
    """Curator's mutex on the same path, as Hudi makes it."""
    retry = jvm.org.apache.curator.retry.BoundedExponentialBackoffRetry(1000, 16000, 15)
    curator = jvm.org.apache.curator.framework.CuratorFrameworkFactory.newClient(
        f"127.0.0.1:{zookeeper.port}", retry
    )
    curator.start()
    path = path_of(settings(), table_uri="", table_name="")
    yield jvm.org.apache.curator.framework.recipes.locks.InterProcessMutex(curator, path)
    curator.close()


def milliseconds(jvm: Any) -> Any:
    return jvm.java.util.concurrent.TimeUnit.MILLISECONDS


def test_curator_does_not_get_the_lock_that_holdfast_holds(table, settings, mutex, jvm):
    with open_lock(table, settings()).hold():
        assert not mutex.acquire(300, milliseconds(jvm))

    assert mutex.acquire(5000, milliseconds(jvm))
    mutex.release()


def test_holdfast_does_not_get_the_lock_that_curator_holds(table, settings, mutex, jvm):
    assert mutex.acquire(5000, milliseconds(jvm))
    with pytest.raises(LockTimeout):
        open_lock(table, settings(wait_ms=300)).hold().__enter__()

    mutex.release()

    with open_lock(table, settings()).hold() as hold:
        hold.refuse_if_lost()


def test_holdfast_waits_its_turn_behind_curator(table, settings, mutex, jvm):
    assert mutex.acquire(5000, milliseconds(jvm))
    order = []

    def wait() -> None:
        with open_lock(table, settings()).hold():
            order.append("holdfast")

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.5)
    order.append("curator")
    mutex.release()
    waiting.join()

    assert order == ["curator", "holdfast"]


@pytest.mark.parametrize("size", [0, 3, 8, 12, 31, 32, 33, 63, 64, 100])
def test_the_implicit_path_is_hashed_as_hudi_does(jvm, size):
    """Hudi takes the hash from the same library that Spark brings."""
    text = ("s3://bucket/a/long/path/" * 5)[:size]
    hasher = jvm.net.jpountz.xxhash.XXHashFactory.safeInstance().hash64()
    seed = 0xDABADABA - (1 << 32)

    theirs = hasher.hash(bytearray(text.encode()), 0, size, seed)

    assert xxhash64(text.encode(), seed % (1 << 64)) == theirs % (1 << 64)


def test_the_implicit_path_needs_no_base_path(table, settings, client):
    chosen = settings(provider=LockProvider.ZOOKEEPER_BY_TABLE, zookeeper_base_path="")
    path = path_of(chosen, table_uri=table.location.uri, table_name="")

    with open_lock(table, chosen).hold():
        assert len(client.get_children(path)) == 1
