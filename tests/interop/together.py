"""Both write at the same time: heartbeats and locks of each are respected by the other, nothing is lost."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import holdfast
from harness.faults import InterruptedStore
from harness.servers import running_zookeeper
from holdfast.concurrency.locks.open import open_lock
from holdfast.config.locks import LockSettings
from holdfast.errors import LockTimeout, WriteConflict
from holdfast.timeline.ledger import Ledger
from interop.lines import ROOT, CannotBeHad
from interop.racing import raced
from interop.shapes import TRIPS, trips
from interop.talk import Talk, check

ZOOKEEPER = Path("/usr/share/zookeeper/bin/zkServer.sh")
PYTHON = ROOT / ".venv" / "bin" / "python"
"""Of processes that need a client of ZooKeeper, which the one of this conversation has not."""
_LOCKS = "org.apache.hudi.client.transaction.lock."
_SHARED = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.lock.provider": _LOCKS + "FileSystemBasedLockProvider",
    "hoodie.write.lock.wait_time_ms": "2000",
    "hoodie.write.lock.num_retries": "20",
    "hoodie.write.lock.client.num_retries": "100",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "200",
    "hoodie.write.lock.filesystem.expire": "0",
    "hoodie.write.lock.wait_time_ms_between_retry": "100",
}
_RETRIES = {"hoodie.write.num.retries.on.conflict.failures": "5"}


def _shared(path: str) -> dict[str, str]:
    """Options of every writer; the place of the lock is said, because Hudi's default has moved."""
    return _SHARED | {"hoodie.write.lock.filesystem.path": f"{path}/.hoodie"}


def _interrupted(path: str, before: str, meanwhile: Callable[[], object]) -> holdfast.Table:
    """The table, for a write of ours in the middle of which something happens."""
    opened = holdfast.open_table(path)._opened
    store = InterruptedStore(opened.store, before, meanwhile)
    return holdfast.Table(replace(opened, store=store, ledger=Ledger(store, opened.clock)))


@check(short=True)
def hudi_leaves_our_running_write_alone(talk: Talk) -> None:
    """Hudi writes and cleans while ours is inflight, with its heartbeat; both commits stand."""
    path = talk.path()
    options = _shared(path)
    talk.ours.write(path, TRIPS, "insert", trips(("a", "paris", 1), ("b", "rome", 2)), options)

    def meanwhile() -> None:
        for n in (3, 4):
            talk.hudi.write(path, TRIPS, "upsert", trips(("b", "rome", n), ts=n), options)

    running = _interrupted(path, "city=paris/", meanwhile)
    running.upsert(trips(("a", "paris", 5), ts=5), options=options)
    talk.agree(path, {"a": 5, "b": 4})
    talk.same([i.action for i in holdfast.open_table(path).timeline() if i.action == "rollback"], [])
    talk.sound(path)


@check(short=True)
def we_lose_against_a_commit_of_hudi_to_the_same_file_group(talk: Talk) -> None:
    path = talk.path()
    options = _shared(path)
    talk.ours.write(path, TRIPS, "insert", trips(("a", "paris", 1), ("b", "paris", 2)), options)
    rows = trips(("b", "paris", 3), ts=3)
    running = _interrupted(path, "city=paris/", lambda: talk.hudi.write(path, TRIPS, "upsert", rows, options))
    try:
        running.upsert(trips(("a", "paris", 5), ts=5), options=options)
    except WriteConflict:
        talk.agree(path, {"a": 1, "b": 3})
    else:
        raise AssertionError("a commit of Hudi's would be lost")
    talk.ours.write(path, TRIPS, "upsert", trips(("a", "paris", 5), ts=5), options)
    talk.agree(path, {"a": 5, "b": 3})
    talk.sound(path)


@check()
def we_leave_hudis_running_write_alone(talk: Talk) -> None:
    """Ours writes, and rolls back by hand, while Hudi's is pending with its heartbeat."""
    path = talk.path()
    options = _shared(path)
    talk.hudi.write(path, TRIPS, "insert", trips(("a", "paris", 1), ("b", "rome", 2)), options)
    gate = Path(path).with_suffix(".gate")
    rows = trips(("a", "paris", 5), ts=5)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(_slow_write, talk, path, rows, options, str(gate))
        try:
            _wait_for(lambda: [i for i in holdfast.open_table(path).timeline() if not i.is_completed])
            talk.ours.write(path, TRIPS, "upsert", trips(("b", "rome", 3), ts=3), options)
            talk.same(holdfast.open_table(path).roll_back_failed_writes(), [])
        finally:
            gate.touch()
        slow.result(timeout=120)
    talk.agree(path, {"a": 5, "b": 3})
    talk.same([i.action for i in holdfast.open_table(path).timeline() if i.action == "rollback"], [])
    talk.sound(path)


def _slow_write(talk: Talk, path: str, rows: Any, options: dict[str, str], gate: str) -> None:
    """A write of Hudi's whose rows do not come before a file is there."""

    def wait(batches):
        import pathlib
        import time

        while not pathlib.Path(gate).exists():
            time.sleep(0.05)
        yield from batches

    frame = talk.hudi.frame(rows)
    talk.hudi.save(frame.mapInArrow(wait, frame.schema), path, TRIPS, "upsert", options)


def _wait_for(condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.05)


@check(short=True)
def hudi_waits_for_our_file_lock(talk: Talk) -> None:
    path = talk.path()
    options = _shared(path)
    talk.ours.write(path, TRIPS, "insert", trips(("a", "paris", 1)), options)
    opened = holdfast.open_table(path)._opened
    with ThreadPoolExecutor(1) as pool:
        with open_lock(opened, LockSettings.from_options(options)).hold():
            rows = trips(("a", "paris", 2), ts=2)
            other = pool.submit(talk.hudi.write, path, TRIPS, "upsert", rows, options)
            time.sleep(3)
            talk.same(other.done(), False)
            talk.same(len(talk.ours.snapshot(path)), 1)
        other.result(timeout=60)
    talk.agree(path, {"a": 2})


@check(short=True)
def we_wait_for_hudis_file_lock(talk: Talk) -> None:
    path = talk.path()
    options = _shared(path)
    talk.hudi.write(path, TRIPS, "insert", trips(("a", "paris", 1)), options)
    provider = _provider(talk, "FileSystemBasedLockProvider", options)
    jvm = talk.hudi.spark._jvm
    talk.same(provider.tryLock(5, jvm.java.util.concurrent.TimeUnit.SECONDS), True)
    impatient = options | {
        "hoodie.write.lock.wait_time_ms": "500", "hoodie.write.lock.client.num_retries": "0",
    }  # fmt: skip
    rows = trips(("a", "paris", 2), ts=2)
    try:
        talk.ours.write(path, TRIPS, "upsert", rows, impatient)
    except LockTimeout:
        talk.agree(path, {"a": 1})
    else:
        raise AssertionError("a write went past the lock that Hudi holds")
    finally:
        provider.unlock()
        provider.close()
    talk.ours.write(path, TRIPS, "upsert", rows, options)
    talk.agree(path, {"a": 2})


def _provider(talk: Talk, name: str, options: dict[str, str]) -> Any:
    jvm = talk.hudi.spark._jvm
    properties = jvm.org.apache.hudi.common.config.TypedProperties()
    # A writer of Hudi 0.15 adds this to its options; by itself the provider has no default for it.
    for option, value in {"hoodie.write.lock.max_wait_time_ms_between_retry": "5000", **options}.items():
        properties.setProperty(option, value)
    hadoop = talk.hudi.spark._jsc.hadoopConfiguration()
    storage = jvm.org.apache.hudi.storage.hadoop.HadoopStorageConfiguration(hadoop)
    locks = jvm.org.apache.hudi.client.transaction.lock
    return getattr(locks, name)(jvm.org.apache.hudi.common.config.LockConfiguration(properties), storage)


@check()
def many_writes_of_both_at_once_lose_nothing(talk: Talk) -> None:
    path = talk.path()
    options = _shared(path) | _RETRIES
    talk.ours.write(path, TRIPS, "insert", trips(("a", "paris", 0)), options)
    _race(talk, path, options)


@check()
def many_writes_under_the_lock_in_zookeeper_lose_nothing(talk: Talk) -> None:
    with _zookeeper(talk) as options:
        _race(talk, talk.begun(talk.ours, ("a", "paris", 0)), options | _RETRIES)


def _race(talk: Talk, path: str, options: dict[str, str]) -> None:
    """Both write at once, ours in a process of its own; whatever was acknowledged is there."""
    command = [str(PYTHON), "-m", "interop.racing", path, *_words(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        theirs = raced(talk.hudi, path, options)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    ours = json.loads(out)
    hidden = _hidden(path)
    if talk.line.name != "0.15":
        talk.same(hidden, set())
    talk.same(hidden - theirs.keys(), set())
    talk.agree(path, {key: fare for key, fare in ({"a": 0.0} | ours | theirs).items() if key not in hidden})
    talk.sound(path)


def _hidden(path: str) -> set[str]:
    """Ids of rows that were merged into a file with a younger time than their own commit's.

    Hudi 0.15 takes the time of a write before it takes the lock. What another
    writer commits between then and Hudi's first look at the table is younger,
    and readers take the youngest file: of two writers of Hudi, too.
    """
    found = set()
    for instant in holdfast.open_table(path).timeline():
        if instant.action != "commit" or not instant.is_completed:
            continue
        content = json.loads((Path(path) / ".hoodie" / f"{instant.time}.commit").read_bytes())
        for stat in (stat for stats in content["partitionToWriteStats"].values() for stat in stats):
            if stat["prevCommit"] not in (None, "null") and stat["prevCommit"] > instant.time:
                rows = pq.read_table(f"{path}/{stat['path']}", partitioning=None).to_pylist()
                found |= {row["id"] for row in rows if row["_hoodie_commit_time"] == instant.time}
    return found


@check()
def the_lock_in_zookeeper_is_held_against_each_other(talk: Talk) -> None:
    path = talk.begun(talk.ours, ("a", "paris", 1))
    with _zookeeper(talk) as options:
        with ThreadPoolExecutor(1) as pool:
            with _holder(path, options) as holder:
                rows = trips(("a", "paris", 2), ts=2)
                other = pool.submit(talk.hudi.write, path, TRIPS, "upsert", rows, options)
                time.sleep(3)
                talk.same(other.done(), False)
                holder.kill()
            other.result(timeout=120)
        talk.agree(path, {"a": 2})
        provider = _provider(talk, "ZookeeperBasedLockProvider", options)
        seconds = talk.hudi.spark._jvm.java.util.concurrent.TimeUnit.SECONDS
        talk.same(provider.tryLock(10, seconds), True)
        with ThreadPoolExecutor(1) as pool:
            ours = pool.submit(_held_once, path, options)
            time.sleep(3)
            talk.same(ours.done(), False)
            provider.unlock()
            ours.result(timeout=60)
        provider.close()


@contextmanager
def _zookeeper(talk: Talk) -> Iterator[dict[str, str]]:
    """A server, and the options of writers that keep their lock in it."""
    if not ZOOKEEPER.exists():
        raise CannotBeHad("ZooKeeper is not installed; make zookeeper does it")
    folder = Path(talk.path("zookeeper"))
    folder.mkdir()
    with running_zookeeper(str(ZOOKEEPER), folder) as (port, _):
        yield _SHARED | {
            "hoodie.write.lock.provider": _LOCKS + "ZookeeperBasedLockProvider",
            # Hudi knows the port from the address alone.
            "hoodie.write.lock.zookeeper.url": f"127.0.0.1:{port}",
            "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
            "hoodie.write.lock.zookeeper.lock_key": "trips",
        }


@contextmanager
def _holder(path: str, options: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process of ours that holds the lock; this one has no client for ZooKeeper."""
    script = ROOT / "tests" / "zookeeper" / "lock_holder.py"
    command = [str(PYTHON), str(script), path, *_words(options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        yield process
        process.kill()


def _words(options: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items()]


def _held_once(path: str, options: dict[str, str]) -> None:
    with _holder(path, options):
        pass
