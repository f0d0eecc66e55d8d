"""One pool of workers for all tests of the folder: starting them takes longer than most tests."""

import pytest

from harness.catalogs import with_table
from harness.serving import Tables
from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.metastore.sqlite import SqliteMetastore
from holdfast.push.queries.broker import Broker
from holdfast.push.queries.pool import PoolSettings, WorkerPool
from holdfast.push.queries.routing import Router, RouterSettings
from holdfast.storage.store import StoreLocation


@pytest.fixture(params=["memory", "sqlite"])
def metastore(request, tmp_path):
    store = MemoryMetastore() if request.param == "memory" else SqliteMetastore(tmp_path / "push.db", "c")
    yield store
    store.close()


@pytest.fixture
def catalog(metastore):
    return with_table(metastore)


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
def broker(tables, pool, readers):
    router = Router(tables.catalog, broker="Broker_localhost_8099", settings=RouterSettings(coalesce_ms=5))
    router.start()
    yield Broker(router, pool, readers=readers)
    router.close()
