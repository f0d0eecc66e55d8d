"""The metastore in a real ZooKeeper."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol.states import KazooState

from holdfast.errors import InvalidRequest, LineageChanged, OutcomeUnknown, StorageUnavailable, TableDamaged
from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.metastore.open import open_metastore
from holdfast.push.metastore.port import Check, Create, Remove, Replace
from holdfast.push.metastore.zookeeper import ZookeeperMetastore
from holdfast.push.metastore.zookeeper_packets import pieces_path
from push.metastore.agreement import HISTORIES, assert_agreement
from push.metastore.promises import Heard, MetastorePromises, eventually

LIMIT = 1_048_575


@pytest.fixture
def cluster():
    return f"cluster-{uuid.uuid4().hex}"


@pytest.fixture
def connect(zookeeper, cluster):
    connections = []

    def connect(**options):
        options = {"session_timeout_s": 2.0, "connect_timeout_s": 20.0, **options}
        connections.append(ZookeeperMetastore(f"127.0.0.1:{zookeeper.port}", "/below", cluster, **options))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


@pytest.fixture
def client(zookeeper):
    client = KazooClient(f"127.0.0.1:{zookeeper.port}")
    client.start()
    yield client
    client.stop()
    client.close()


class TestZookeeperMetastore(MetastorePromises):
    pass


def test_records_are_at_pinots_places(connect, client, cluster):
    connect().write([Create("/PROPERTYSTORE/SEGMENT_LINEAGE/orders_OFFLINE", b"{}")])

    data, stat = client.get(f"/below/{cluster}/PROPERTYSTORE/SEGMENT_LINEAGE/orders_OFFLINE")

    assert (data, stat.version) == (b"{}", 0)


def test_j8_a_record_that_another_program_compressed_is_read(connect, client, cluster):
    store = connect()
    client.create(f"/below/{cluster}/a", gzip.compress(b'{"id": "x"}'), makepath=True)

    assert store.read("/a").data == b'{"id": "x"}'


def test_a_record_that_is_torn_gzip_is_damaged(connect, client, cluster):
    client.create(f"/below/{cluster}/a", gzip.compress(b'{"id": "x"}' * 100)[:-9], makepath=True)

    with pytest.raises(TableDamaged, match="a record cannot be read"):
        connect().read("/a")


def test_j9_a_record_above_helixs_threshold_is_compressed(connect, client, cluster):
    store = connect()
    small, large = b"a" * 1_020_000, b"a" * 1_024_001

    store.write([Create("/small", small)])
    store.write([Create("/large", large)])

    assert client.get(f"/below/{cluster}/small")[0] == small
    assert client.get(f"/below/{cluster}/large")[0][:2] == b"\x1f\x8b"
    assert store.read("/large").data == large


def test_records_that_do_not_fit_one_packet_together_are_compressed(connect, client, cluster):
    store = connect()
    contents = [
        json.dumps([f"orders_{kind}_{number}" for number in range(25_000)]).encode() for kind in "abc"
    ]
    assert all(300_000 < len(content) < 1_024_000 for content in contents)
    assert sum(map(len, contents)) > LIMIT

    store.write([Create(f"/r{number}", content) for number, content in enumerate(contents)])

    assert [record.data for record in store.read_all(["/r0", "/r1", "/r2"])] == contents


def noise(seed, size=3_000_000):
    """What no compression makes smaller, and so takes six pieces."""
    return random.Random(seed).randbytes(size)


@pytest.fixture
def pieces(client, cluster):
    """The names of all pieces of a record."""

    def pieces(path):
        folder = f"/below/{cluster}{pieces_path(path)}"
        return client.get_children(folder) if client.exists(folder) else []

    return pieces


def test_j9_what_does_not_fit_even_compressed_is_cut_and_read_whole(connect, pieces):
    store, other = connect(), connect()
    store.write([Create("/a", noise(1)), Create("/b", noise(2)), Create("/c", b"small")])

    found = other.read_all(["/a", "/b", "/c"])

    assert [record.data for record in found] == [noise(1), noise(2), b"small"]
    assert (len(pieces("/a")), len(pieces("/b")), pieces("/c")) == (6, 6, [])


def test_pieces_go_with_their_version_of_the_record(connect, pieces):
    store, other = connect(), connect()
    store.write([Create("/a", noise(1))])

    store.write([Replace("/a", noise(2), 0)])
    assert (store.read("/a").data, len(pieces("/a"))) == (noise(2), 6)
    other.write([Replace("/a", b"small", other.read("/a").version)])
    assert (store.read("/a").data, pieces("/a")) == (b"small", [])
    other.write([Replace("/a", noise(3), 2)])
    store.write([Remove("/a", store.read("/a").version)])

    assert (other.read("/a"), pieces("/a")) == (None, [])


def test_a_write_that_loses_its_race_leaves_no_pieces(connect, pieces):
    store = connect()
    store.write([Create("/a", b"old")])

    with pytest.raises(LineageChanged):
        store.write([Replace("/a", noise(1), 7)])

    assert (store.read("/a").data, pieces("/a")) == (b"old", [])


def test_what_a_dead_writer_left_goes_once_it_is_old(connect, client, cluster, pieces):
    store = connect()
    store.write([Create("/a", noise(1))])
    client.create(f"/below/{cluster}{pieces_path('/a')}/left-0000", b"x")

    store.write([Replace("/a", noise(2), 0)])
    assert "left-0000" in pieces("/a")
    impatient = connect(pieces_left_s=0)
    impatient.write([Replace("/a", noise(3), impatient.read("/a").version)])

    assert "left-0000" not in pieces("/a")
    assert store.read("/a").data == noise(3)


def test_a_writer_whose_pieces_were_taken_for_left_ones_has_lost(zookeeper, cluster):
    class Sleeper(ZookeeperMetastore):
        def _put_pieces(self, packet):
            super()._put_pieces(packet)
            self._remove_pieces([path for each in packet.pieces.values() for path in each])

    store = Sleeper(f"127.0.0.1:{zookeeper.port}", "/below", cluster, connect_timeout_s=20.0)
    store.write([Create("/a", b"old")])

    with pytest.raises(LineageChanged):
        store.write([Replace("/a", noise(1), 0)])

    assert store.read("/a").data == b"old"
    store.close()


def test_a_record_of_which_a_piece_is_lost_is_damaged(connect, client, cluster, pieces):
    store = connect()
    store.write([Create("/a", noise(1))])
    client.delete(f"/below/{cluster}{pieces_path('/a')}/{min(pieces('/a'))}")

    with pytest.raises(TableDamaged, match="pieces of a record are missing"):
        store.read("/a")


def test_who_reads_while_a_cut_record_changes_sees_one_version_whole(connect):
    store, other = connect(), connect()
    contents = [noise(number, 1_500_000) for number in range(4)]
    store.write([Create("/a", contents[0])])
    stop = threading.Event()

    def change():
        for number in range(30):
            store.write([Replace("/a", contents[(number + 1) % 4], number)])
        stop.set()

    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        seen = []
        while not stop.is_set() and not changing.done():
            seen.append(other.read("/a"))
        changing.result()

    assert {record.version for record in seen} <= set(range(31))
    assert all(record.data == contents[record.version % 4] for record in seen)


def test_j9_more_changes_than_one_packet_holds_are_refused_and_nothing_changes(connect):
    store = connect()
    store.write([Create("/a", b"old")])
    many = [Create(f"/many/{number}", noise(number, 1000)) for number in range(1200)]

    with pytest.raises(InvalidRequest) as refusal:
        store.write([Replace("/a", b"new", 0), *many])

    assert refusal.value.facts["code"] == "RECORD_TOO_LARGE"
    assert refusal.value.facts["size_bytes"] > refusal.value.facts["limit_bytes"]
    assert store.read("/a").data == b"old"
    assert store.children("/many") == ()


def test_what_is_just_allowed_reaches_the_server(connect):
    """The server drops the connection of who sends too much, so the limit must be known here."""
    store = connect()
    content = noise(2, 1_020_000)

    store.write([Create("/a", content)])

    assert store.read("/a").data == content
    assert store.is_connected()


def test_four_thousand_small_changes_fit_one_write(connect):
    store = connect()
    store.write([Create("/guard", b"1")])
    changes = [Create(f"/SEGMENTS/t/s{number:05}", b"x") for number in range(4000)]

    store.write([Check("/guard", 0), *changes])

    assert len(store.children("/SEGMENTS/t")) == 4000


def test_versions_are_exact_and_never_any(connect, client, cluster):
    """-1 would overwrite whatever is there."""
    store = connect()
    store.write([Create("/a", b"one")])
    client.set(f"/below/{cluster}/a", b"foreign")

    with pytest.raises(Exception, match="a record changed in the meantime"):
        store.write([Replace("/a", b"two", 0)])

    assert store.read("/a").data == b"foreign"


def test_a_killed_process_loses_its_announcements_and_claims(zookeeper, connect, cluster):
    script = Path(__file__).with_name("metastore_announcer.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(zookeeper.port), cluster], stdout=subprocess.PIPE, text=True
    )
    store = connect()
    assert process.stdout.readline() == "announced\n"
    assert store.read("/brokers/b1").data == b"17"
    assert not store.claim("leader", "me")

    process.send_signal(signal.SIGKILL)
    process.communicate()

    assert eventually(lambda: store.read("/brokers/b1") is None)
    assert eventually(lambda: store.claim("leader", "me"))


def test_a_lost_session_is_noticed_and_everything_is_announced_again(connect):
    store, other = connect(), connect()
    store.announce("/brokers/b1", b"17")
    heard = Heard()
    store.watch("/watched", heard)
    states = []
    store._client.add_listener(states.append)

    expire(store)

    assert eventually(lambda: "LOST" in states)
    assert eventually(lambda: (found := other.read("/brokers/b1")) and found.data == b"17")
    assert eventually(store.is_connected)
    heard.event.clear()
    other.write([Create("/watched", b"1")])
    assert heard.soon()
    assert store.read("/watched").data == b"1"


def test_a_session_that_is_lost_while_the_one_before_is_made_up_for_is_not_forgotten(zookeeper, cluster):
    class Unlucky(ZookeeperMetastore):
        is_unlucky = False

        def _put_ephemeral(self, path, data):
            super()._put_ephemeral(path, data)
            if self.is_unlucky:
                self._on_state(KazooState.LOST)

    store = Unlucky(f"127.0.0.1:{zookeeper.port}", "/below", cluster, connect_timeout_s=20.0)
    store.announce("/brokers/b1", b"17")
    store._on_state(KazooState.LOST)

    store.is_unlucky = True
    store._return()
    assert not store.is_connected()
    store.is_unlucky = False
    store._return()

    assert store.is_connected()
    store.close()


def test_a_server_that_does_not_answer_is_told():
    with pytest.raises(StorageUnavailable, match="ZooKeeper did not answer"):
        ZookeeperMetastore("127.0.0.1:1", "", "cluster", connect_timeout_s=0.5)


def test_addresses_name_hosts_and_a_path(zookeeper, cluster):
    store = open_metastore(f"zookeeper://127.0.0.1:{zookeeper.port}/below", cluster)
    store.write([Create("/a", b"1")])

    assert store._client.get(f"/below/{cluster}/a")[0] == b"1"
    store.close()


def test_with_credentials_nobody_else_reads_or_changes_a_record(zookeeper, client, cluster):
    address = f"127.0.0.1:{zookeeper.port}"
    owner = open_metastore(f"zookeeper://ann:p%40ss@{address}", cluster)
    stranger = open_metastore(f"zookeeper://bob:guess@{address}", cluster)
    owner.write([Create("/a", b"1")])
    owner.announce("/brokers/b", b"1")

    with pytest.raises(NoAuthError):
        client.get(f"/{cluster}/a")
    for attempt in (
        lambda: stranger.read("/a"),
        lambda: stranger.write([Replace("/a", b"2", 0)]),
        lambda: stranger.write([Create("/b", b"2")]),
        lambda: stranger.announce("/brokers/c", b"2"),
    ):
        with pytest.raises(StorageUnavailable):
            attempt()

    assert owner.read("/a").data == b"1"
    owner.close()
    stranger.close()


def test_j119_a_write_whose_answer_never_came_has_an_unknown_outcome(own_zookeeper, cluster):
    """The server is stopped, not gone: what it was sent it may still do."""
    store = ZookeeperMetastore(
        f"127.0.0.1:{own_zookeeper.port}",
        "",
        cluster,
        session_timeout_s=4.0,
        connect_timeout_s=30.0,
        answer_timeout_s=1.0,
    )
    store.write([Create("/a", b"1"), Create("/b/c", b"1")])
    os.kill(own_zookeeper.pid, signal.SIGSTOP)
    try:
        with pytest.raises(OutcomeUnknown, match="before it confirmed a change"):
            store.write([Replace("/a", b"2", 0)])
    finally:
        os.kill(own_zookeeper.pid, signal.SIGCONT)

    assert eventually(lambda: _data(store, "/a") in (b"1", b"2"))
    store.close()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES)
def test_j12_zookeeper_and_memory_agree_on_every_history(zookeeper, history):
    store = ZookeeperMetastore(
        f"127.0.0.1:{zookeeper.port}", "", f"cluster-{uuid.uuid4().hex}", connect_timeout_s=30.0
    )

    assert_agreement(store, MemoryMetastore(), history)

    store.close()


def expire(store):
    """End the session on the server as if it had lapsed, while the client believes in it."""
    client = store._client
    session, password = client.client_id
    usurper = KazooClient(client.hosts[0][0] + f":{client.hosts[0][1]}", client_id=(session, password))
    usurper.start()
    usurper.stop()
    usurper.close()


def _data(store, path):
    try:
        return store.read(path).data
    except StorageUnavailable:
        return None
