"""The metastore in a SQLite file."""

import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import InvalidRequest, LineageChanged, StorageRefused, StorageUnavailable, TableDamaged
from holdfast.push.metastore.open import display_address, open_metastore
from holdfast.push.metastore.port import Create, Replace
from holdfast.push.metastore.sqlite import LOG_LENGTH, SESSION_MS, SqliteMetastore
from push.metastore.promises import Heard, MetastorePromises

WRITER = Path(__file__).with_name("sqlite_writer.py")


@pytest.fixture
def connect(tmp_path):
    connections = []

    def connect(**options):
        connections.append(SqliteMetastore(tmp_path / "push.db", "cluster", **options))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


class TestSqliteMetastore(MetastorePromises):
    pass


class LateClock(SystemClock):
    """Runs ahead or behind by a chosen time; nothing repeats by itself."""

    def __init__(self):
        self.ahead_ms = 0
        self.timers = []

    def monotonic_ms(self):
        return super().monotonic_ms() + self.ahead_ms

    def every_ms(self, interval_ms, action, *, name):
        self.timers.append(action)
        return self

    def stop(self):
        pass


def start_writer(path, name, mode):
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(path), name, mode], stdout=subprocess.PIPE, text=True
    )


def test_what_was_acknowledged_before_a_kill_is_there(tmp_path, connect):
    for attempt in range(8):
        process = start_writer(tmp_path / "push.db", f"w{attempt}", "counting")
        for _ in range(5 + 7 * attempt):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        # What it still managed to say before it died counts as acknowledged too.
        rest = process.stdout.read().split()
        process.wait()
        acknowledged = int(rest[-1]) if rest else 5 + 7 * attempt

        store = connect()
        counter, twin = store.read_all([f"/w{attempt}/counter", f"/w{attempt}/twin"])

        assert int(counter.data) in (acknowledged, acknowledged + 1)
        assert counter.data == twin.data
    assert connect().children("/") == tuple(f"w{attempt}" for attempt in range(8))


def test_a_write_of_many_records_is_whole_or_absent_wherever_its_process_dies(tmp_path, connect):
    chance = random.Random(7)
    for attempt in range(12):
        process = start_writer(tmp_path / "push.db", f"w{attempt}", "bulk")
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        acknowledged = int(rest[-1]) if rest else 1

        found = {record.data for record in connect().read_children(f"/w{attempt}").values()}

        assert len(found) == 1
        assert int(found.pop()) in (acknowledged, acknowledged + 1)


def test_a_full_disk_is_told_and_the_old_record_stays(tmp_path, connect):
    process = start_writer(tmp_path / "push.db", "a", "full")
    told, _ = process.communicate()

    assert process.returncode == 0
    assert told.split() in (["StorageUnavailable", "old"], ["OutcomeUnknown", "old"])
    assert connect().read("/a").data == b"after"
    assert connect().read("/a-2") is None


def test_l9_several_processes_lose_no_change(tmp_path, connect):
    store = connect()
    store.write([Create("/shared/counter", b"0"), Create("/shared/twin", b"0")])
    processes = [start_writer(tmp_path / "push.db", "shared", "fifty") for _ in range(3)]
    for process in processes:
        process.communicate()

    assert [process.returncode for process in processes] == [0, 0, 0]
    assert store.read("/shared/counter").data == b"150"


def test_processes_that_open_a_new_file_at_once_all_succeed(tmp_path):
    processes = [start_writer(tmp_path / "push.db", f"p{number}", "once") for number in range(4)]

    assert [process.wait() for process in processes] == [0] * 4
    assert SqliteMetastore(tmp_path / "push.db", "cluster").children("/") == ("p0", "p1", "p2", "p3")


def test_a_killed_process_loses_its_announcements_and_claims_after_its_lease(tmp_path, connect):
    process = start_writer(tmp_path / "push.db", "broker", "announcing")
    assert process.stdout.readline() == "announced\n"
    clock = LateClock()
    store = connect(clock=clock)
    assert store.read("/brokers/broker").data == b"17"
    assert not store.claim("leader", "me")

    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert store.read("/brokers/broker") is not None
    clock.ahead_ms = SESSION_MS

    assert store.read("/brokers/broker") is None
    assert store.children("/brokers") == ()
    assert store.claim("leader", "me")


def test_a_process_that_was_silent_for_too_long_announces_again_by_itself(connect):
    sleeper, watcher = LateClock(), LateClock()
    asleep, awake = connect(clock=sleeper), connect(clock=watcher)
    asleep.announce("/brokers/b1", b"17")
    awake.announce("/brokers/b2", b"17")
    beat_of_sleeper, beat_of_watcher = sleeper.timers[0], watcher.timers[0]
    sleeper.ahead_ms = watcher.ahead_ms = SESSION_MS + 1
    assert not asleep.is_connected()

    beat_of_watcher()
    assert awake.children("/brokers") == ("b2",)
    beat_of_sleeper()

    assert awake.read("/brokers/b1").data == b"17"
    assert asleep.is_connected()


def test_a_lapsed_announcement_does_not_stand_in_the_way_of_a_record(connect):
    clock = LateClock()
    gone, store = connect(clock=clock), connect(clock=clock)
    gone.announce("/a", b"17")
    clock.ahead_ms = SESSION_MS + 1

    store.write([Create("/a", b"mine")])

    assert store.read("/a").data == b"mine"


def test_after_the_machine_was_started_anew_old_sessions_are_gone(connect):
    clock = LateClock()
    clock.ahead_ms = 10**9
    before = connect(clock=clock)
    before.announce("/brokers/b1", b"17")
    before.claim("leader", "before")
    store = connect()

    assert store.read("/brokers/b1") is None
    assert store.children("/brokers") == ()
    assert store.read_children("/brokers") == {}
    assert store.claim("leader", "after")


def test_a_watch_that_fell_behind_the_log_is_still_told(connect):
    clock = LateClock()
    one, other = connect(), connect(clock=clock)
    heard = Heard()
    one.write([Create("/a", b"0")])
    other.watch("/a", heard)
    (poll,) = clock.timers
    poll()
    heard.event.clear()

    one.write([Replace("/a", b"1", one.read("/a").version)])
    for number in range(1 + LOG_LENGTH // 100):
        one.write([Create(f"/other/{number}-{each}", b"x") for each in range(100)])
    poll()

    assert heard.soon()


def test_a_large_write_is_told_to_those_who_watch_one_of_its_records(connect):
    one, other = connect(), connect()
    heard = Heard()
    other.watch("/many/0500", heard)

    one.write([Create(f"/many/{number:04}", b"x") for number in range(1000)])

    assert heard.soon()


def test_clusters_in_one_file_do_not_see_each_other(tmp_path):
    one, other = (SqliteMetastore(tmp_path / "push.db", name) for name in ("one", "other"))
    one.write([Create("/a", b"1")])
    one.claim("leader", "me")

    assert other.read("/a") is None
    assert other.children("/") == ()
    assert other.claim("leader", "you")


def test_readers_are_not_held_up_by_a_writer(connect):
    store = connect()
    store.write([Create("/a", b"1")])

    with store._writing() as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("UPDATE record SET data = x'32'")
        found = pool.submit(store.read, "/a").result(timeout=5)

    assert found.data == b"1"


def test_a_read_of_many_records_is_one_moment(connect):
    store = connect()
    store.write([Create("/a", b"0"), Create("/b", b"0")])
    stop = threading.Event()

    def write():
        for number in range(1, 200):
            a, b = store.read_all(["/a", "/b"])
            text = b"%d" % number
            store.write([Replace("/a", text, a.version), Replace("/b", text, b.version)])
        stop.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not stop.is_set() and not writing.done():
            a, b = store.read_all(["/a", "/b"])
            assert a.data == b.data
        writing.result()


def test_the_file_is_for_its_owner_only_and_survives_power_cuts(tmp_path, connect):
    store = connect()
    store.write([Create("/a", b"1")])

    for file in tmp_path.glob("push.db*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with store._borrow() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_file_in_which_the_data_come_before_the_version_is_read_and_written(tmp_path, connect):
    """Files were laid out so at first; only the order of the columns differs."""
    connect().close()
    with sqlite3.connect(tmp_path / "push.db") as connection:
        connection.executescript(
            "DROP TABLE record; CREATE TABLE record"
            " (path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, session TEXT)"
        )
    connection.close()
    store = connect()

    store.write([Create("/a", b"1")])
    store.announce("/brokers/b", b"here")
    store.write([Replace("/a", b"2", store.read("/a").version)])

    assert store.read("/a").data == b"2"
    assert store.read("/brokers/b").data == b"here"
    with pytest.raises(LineageChanged):
        store.write([Create("/a", b"3")])


def test_a_full_disk_is_said_as_such(tmp_path):
    full = sqlite3.connect(":memory:")
    full.execute("PRAGMA max_page_count = 2")

    with (
        pytest.raises(StorageRefused, match="the disk of the store is full"),
        SqliteMetastore(tmp_path / "push.db", "cluster")._errors(),
    ):
        full.execute("CREATE TABLE wide AS SELECT randomblob(100000)")


def test_a_file_that_is_no_database_is_damaged(tmp_path):
    (tmp_path / "push.db").write_bytes(b"not a database at all" * 100)

    with pytest.raises(TableDamaged, match="the store's file is damaged"):
        SqliteMetastore(tmp_path / "push.db", "cluster")


def test_another_programs_database_is_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "push.db") as connection:
        connection.execute("PRAGMA application_id=7")

    with pytest.raises(InvalidRequest, match="another program"):
        SqliteMetastore(tmp_path / "push.db", "cluster")


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(InvalidRequest, match="does not exist") as refusal:
        SqliteMetastore(tmp_path / "no" / "push.db", "cluster")

    assert refusal.value.facts["folder"] == str(tmp_path / "no")


def test_a_closed_store_answers_with_an_error(connect):
    store = connect()
    store.close()

    with pytest.raises(StorageUnavailable, match="closed"):
        store.read("/a")


def test_addresses_are_relative_or_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = open_metastore("sqlite:///push.db", "cluster")
    relative.write([Create("/a", b"1")])

    absolute = open_metastore(f"sqlite:///{tmp_path}/push.db", "cluster")

    assert absolute.read("/a").data == b"1"
    relative.close()
    absolute.close()


@pytest.mark.parametrize(
    "uri", ["", "sqlite:", "sqlite://", "sqlite:///", "redis://x", "push.db", "zookeeper://"]
)
def test_an_address_nobody_knows_is_refused(uri):
    with pytest.raises(InvalidRequest, match="not the address of a store"):
        open_metastore(uri)


def test_an_address_is_shown_without_its_password():
    with pytest.raises(InvalidRequest) as refusal:
        open_metastore("redis://ann:canary@secret@host/x")

    assert "canary" not in str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert display_address("zookeeper://ann:canary@h:1,h2:2/p") == "zookeeper://***@h:1,h2:2/p"
    assert display_address("sqlite:///push.db") == "sqlite:///push.db"


@pytest.mark.parametrize("cluster", ["", "a/b", "..", "a b"])
def test_a_cluster_that_is_no_name_is_refused(cluster):
    with pytest.raises(InvalidRequest, match="not a cluster name"):
        open_metastore("memory:", cluster)
