"""Tables whose lists are larger than what ZooKeeper takes in one packet."""

import uuid
from dataclasses import replace

import pytest

from harness.push_client import Client, make_table
from harness.push_world import TABLE, PushWorld
from holdfast.config.server import Listener, ServerSettings
from holdfast.jobs.push.replacement import RetryPolicy, open_target, upload_segments
from holdfast.push.metastore.zookeeper import ZookeeperMetastore
from holdfast.push.segments.build import BuiltSegment
from holdfast.push.state.records import ideal_state_path
from holdfast.server.run import serving

SEGMENTS = 100_000
UPLOADED = 2_000


@pytest.fixture
def connect(zookeeper):
    cluster = f"large-{uuid.uuid4().hex}"
    opened = []

    def connect():
        opened.append(ZookeeperMetastore(f"127.0.0.1:{zookeeper.port}", "", cluster, connect_timeout_s=30.0))
        return opened[-1]

    yield connect
    for store in opened:
        store.close()


def names(push):
    return tuple(f"orders_2026-11-{push:02}_{number:06}" for number in range(SEGMENTS))


def add(world, segments):
    """As uploads would; neither end nor revert reads the metadata of segments."""
    state = world.catalog.load(TABLE)
    world.catalog.save(state, replace(state, segments=state.segments.union(segments)))


def test_j9_a_push_of_a_hundred_thousand_segments_is_switched_and_reverted(connect):
    world = PushWorld(connect()).create()
    other = PushWorld(connect())
    add(world, names(1))
    entry_id = world.start(names(1), names(2))
    add(world, names(2))

    world.end(entry_id)
    assert other.seen() == set(names(2))
    other.revert(entry_id)

    assert world.seen() == set(names(1))
    assert ideal_state_path(TABLE) in world.metastore._pieces, "one packet would have held it"


def test_a_job_registers_more_segments_than_one_packet_holds(zookeeper, tmp_path):
    settings = ServerSettings(
        cluster=f"large-{uuid.uuid4().hex}",
        store=f"zookeeper://127.0.0.1:{zookeeper.port}",
        deep_store=str(tmp_path),
        controller=Listener(port=0),
        broker=Listener(port=0),
    )
    with serving(settings) as running:
        table = make_table(Client(running))
        target = open_target(running.controller_url, "", table.name, RetryPolicy())
        built = [built_segment(tmp_path, table.name, number) for number in range(UPLOADED)]
        registered = []

        upload_segments(
            target, built, uri_of=lambda path: f"{tmp_path}/{path}", created_ms=1, announce=registered.append
        )

        assert table.segments() == {one.name for one in built}
        assert registered[0] < 2000, "one packet would have held them"


def built_segment(folder, table, number):
    name = f"orders_2026-11-01_{number:06}"
    path = f"{table}/{name}__{uuid.uuid4().hex}.parquet"
    (folder / table).mkdir(exist_ok=True)
    (folder / path).write_bytes(b"x")
    ranges = {"id": (f"{number * 1000}", f"{number * 1000 + 999}"), "city": ("aalborg", "zwolle")}
    return BuiltSegment(name=name, path=path, rows=1000, size_bytes=1, crc=number, ranges=ranges)
