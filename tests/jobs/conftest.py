"""One push service for all tests of jobs; every test has tables of its own."""

from collections.abc import Iterator

import pytest

from harness.cutting_proxy import CuttingProxy
from harness.lake_pushes import PushedLake, service
from harness.push_client import Client, PushedTable, make_table
from holdfast.server.run import Running


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    with service(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def lake(tmp_path, running):
    """An empty lake table and the served table it is pushed to."""
    return PushedLake(tmp_path, running)


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    client = Client(running)
    yield client
    client.close()


@pytest.fixture
def table(client: Client) -> PushedTable:
    """A table that every push replaces as a whole; what is deleted goes at once."""
    return make_table(client, consistent=True, segments={"deletedSegmentsRetentionPeriod": "0d"})


@pytest.fixture
def proxy(running: Running) -> Iterator[CuttingProxy]:
    with CuttingProxy(running.controller_url) as proxy:
        yield proxy
