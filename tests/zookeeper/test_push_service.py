"""The push service with its records in a real ZooKeeper."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.push_client import Client, PushedTable, make_table
from holdfast.config.server import Listener, ServerSettings
from holdfast.server.run import serving
from server.replace_rules import ReplaceRules, loaded  # noqa: F401  # a fixture of the suite


@pytest.fixture(scope="session")
def service_settings(zookeeper, tmp_path_factory):
    return ServerSettings(
        cluster=f"cluster-{uuid.uuid4().hex}",
        store=f"zookeeper://127.0.0.1:{zookeeper.port}/push",
        deep_store=str(tmp_path_factory.mktemp("segments")),
        controller=Listener(port=0),
        broker=Listener(port=0),
    )


@pytest.fixture(scope="session")
def running(service_settings):
    with serving(service_settings) as running:
        yield running


@pytest.fixture(scope="session")
def second(service_settings, running):
    """Another controller and broker on the same records."""
    with serving(service_settings) as second:
        yield second


@pytest.fixture
def client(running):
    client = Client(running)
    yield client
    client.close()


@pytest.fixture
def table(client):
    return make_table(client)


class TestRulesOnZookeeper(ReplaceRules):
    def test_brokers_can_be_waited_for(self, loaded):  # noqa: F811
        """Here there may be two of them."""
        entry = loaded.started(["a"], ["b"])
        loaded.upload("b")

        answer = loaded.end(entry, waitForBrokers=True, brokerTimeoutMs=20_000)

        epoch = int(answer.headers["x-snapshot-epoch"])
        assert answer.json()["brokers"]
        assert all(applied >= epoch for applied in answer.json()["brokers"].values())


def test_two_controllers_lose_no_entry(client, second):
    table = make_table(client)
    other = PushedTable(Client(second), table.name)

    def start(number):
        return (table, other)[number % 2].started([], [f"s{number}"])

    with ThreadPoolExecutor(6) as threads:
        entries = list(threads.map(start, range(12)))

    assert set(table.entries()) == set(entries) == set(other.entries())


def test_a_push_through_one_controller_is_seen_through_both_brokers(client, second):
    table = make_table(client)
    other = Client(second)
    table.push([], ["a"])
    # A broker counts once it has heard of the table.
    assert other.sql(f"SELECT 1 FROM {table.name}", queryOptions="minSnapshotEpoch=1")["exceptions"] == []
    entry = table.started(["a"], ["b"])
    table.upload("b", rows=5)

    answer = table.end(entry, waitForBrokers=True, brokerTimeoutMs=20_000)

    assert len(answer.json()["brokers"]) == 2
    for one in (client, other):
        assert one.sql(f"SELECT count(*) FROM {table.name}")["resultTable"]["rows"] == [[5]]
