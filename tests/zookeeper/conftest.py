"""A real ZooKeeper server. `make test-zookeeper` says where its script is; otherwise nothing is collected."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.servers import running_zookeeper
from harness.world import World
from holdfast.clock import SystemClock
from holdfast.config.choices import LockProvider
from holdfast.config.locks import LockSettings
from holdfast.host import SystemHost
from holdfast.storage.local import LocalStore
from holdfast.storage.open import location_of
from holdfast.table.opened import OpenTable, open_existing

SERVER = os.environ.get("HOLDFAST_ZOOKEEPER")
collect_ignore_glob = [] if SERVER else ["test_*.py"]

SESSION_TIMEOUT_MS = 1000


pytest.register_assert_rewrite("push.metastore.promises", "push.metastore.agreement")


@dataclass(frozen=True)
class ZooKeeper:
    port: int
    pid: int

    def settings(self, **changes: object) -> LockSettings:
        defaults = {
            "provider": LockProvider.ZOOKEEPER,
            "wait_ms": 20_000,
            "client_retries": 0,
            "zookeeper_url": "127.0.0.1",
            "zookeeper_port": self.port,
            "zookeeper_base_path": "/hudi/locks",
            "zookeeper_session_timeout_ms": SESSION_TIMEOUT_MS,
        }
        return LockSettings(**{**defaults, **changes})


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with _running(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def own_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A server that a test may stop."""
    with _running(tmp_path_factory.mktemp("own-zookeeper")) as server:
        yield server


@contextmanager
def _running(folder: Path) -> Iterator[ZooKeeper]:
    with running_zookeeper(str(SERVER), folder) as (port, pid):
        yield ZooKeeper(port, pid)


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> OpenTable:
    """A table of its own for every test, so that each has its own lock."""
    world = World(LocalStore(str(tmp_path)))
    world.create()
    return open_existing(world.store, location_of(str(tmp_path)), clock=SystemClock(), host=SystemHost())


@pytest.fixture
def settings(zookeeper: ZooKeeper, tmp_path: Path) -> Callable[..., LockSettings]:
    return lambda **changes: zookeeper.settings(zookeeper_lock_key=tmp_path.name, **changes)
