"""One pool of workers for all tests of the folder: starting them takes longer than most tests."""

import pytest

from harness.serving import Tables
from holdfast.push.broker import Broker
from holdfast.push.queries.pool import PoolSettings, WorkerPool
from holdfast.push.routing import Router
from holdfast.storage.store import StoreLocation


@pytest.fixture(scope="session")
def deep_store(tmp_path_factory):
    return tmp_path_factory.mktemp("deep_store")


@pytest.fixture(scope="session")
def pool(deep_store):
    workers = WorkerPool(
        StoreLocation(str(deep_store), {}),
        PoolSettings(workers=2, spares=1, threads=1, memory_bytes=256 << 20, max_bytes=8 << 20),
    )
    workers.start()
    yield workers
    workers.close()


@pytest.fixture
def tables(deep_store):
    return Tables(deep_store)


@pytest.fixture
def broker(tables, pool):
    router = Router(tables.catalog, broker="Broker_localhost_8099")
    router.start()
    yield Broker(router, pool)
    router.close()
