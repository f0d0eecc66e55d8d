"""Every promise of the catalog, with its records in a real ZooKeeper."""

import uuid

import pytest

from harness.catalogs import with_table
from holdfast.push.metastore.zookeeper import ZookeeperMetastore
from push.test_catalog import *  # noqa: F403  # the same tests, over another store
from push.test_catalog_tables import *  # noqa: F403


@pytest.fixture
def metastore(zookeeper):
    store = ZookeeperMetastore(
        f"127.0.0.1:{zookeeper.port}", "", f"catalog-{uuid.uuid4().hex}", connect_timeout_s=30.0
    )
    yield store
    store.close()


@pytest.fixture
def catalog(metastore):
    return with_table(metastore)
