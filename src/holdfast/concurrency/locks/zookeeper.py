"""A lock in ZooKeeper, shared with Hudi's `ZookeeperBasedLockProvider`.

Hudi takes it with Curator's mutex. Every contender creates an ephemeral
sequential node below the lock's path; the lowest number holds the lock.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.exceptions import LockTimeout as NotGranted
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.recipe.lock import Lock as Nodes

from holdfast.clock import Clock
from holdfast.concurrency.locks.lock import Hold, lock_loss, lock_timeout
from holdfast.errors import LockTimeout, StorageUnavailable
from holdfast.host import Host

log = logging.getLogger(__name__)

_INFIX = "-lock-"
"""What Curator puts before the number. It orders all nodes by what follows its last `lock-`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """How to reach ZooKeeper."""

    hosts: str
    session_timeout_ms: int
    connection_timeout_ms: int
    retries: int
    retry_wait_ms: int
    retry_wait_ms_max: int


class ZookeeperLock:
    """Each hold is a session of its own; with the session its node goes too."""

    def __init__(self, ensemble: Ensemble, path: str, *, clock: Clock, host: Host, patience_ms: int) -> None:
        self._ensemble = ensemble
        self._path = path
        self._clock = clock
        self._host = host
        self._patience_ms = patience_ms

    @contextmanager
    def hold(self) -> Iterator[Hold]:
        with _connect(self._ensemble) as client:
            hold = _Session(client, self._path)
            client.add_listener(hold.watch)
            try:
                hold.node = self._acquire(client)
                yield hold
            finally:
                client.remove_listener(hold.watch)

    def _acquire(self, client: KazooClient) -> str:
        """Wait for the lock; the name of the node that holds it."""
        token = self._clock.unique()
        nodes = Nodes(client, self._path, str(self._host.owner(token)), extra_lock_patterns=(_INFIX,))
        # Under kazoo's own name for nodes Curator would put them in the wrong order, and hold the lock too.
        nodes.prefix = f"_c_{token}{_INFIX}"
        nodes.create_path = f"{self._path}/{nodes.prefix}"
        try:
            if nodes.acquire(timeout=self._patience_ms / 1000):
                return str(nodes.node)
        except NotGranted:
            pass
        except KazooException as error:
            raise _unavailable(self._ensemble, error) from error
        raise self._timeout(client)

    def _timeout(self, client: KazooClient) -> LockTimeout:
        holder, age_ms = "another writer", None
        try:
            first = min(client.get_children(self._path), key=lambda node: node[-10:])
            data, stat = client.get(f"{self._path}/{first}")
            holder, age_ms = data.decode(errors="replace"), self._clock.now_ms() - stat.ctime
        except (KazooException, ValueError):
            log.debug("lock.holder_unknown", extra={"lock": self._path})
        return lock_timeout(
            self._path,
            holder=holder,
            age_ms=age_ms,
            waited_ms=self._patience_ms,
            hint="repeat the call later; the lock ends with its holder's session",
        )


class _Session:
    def __init__(self, client: KazooClient, path: str) -> None:
        self.node = ""
        self._client = client
        self._path = path
        self._is_lost = False

    def watch(self, state: str) -> None:
        if state == KazooState.LOST and self.node and not self._is_lost:
            self._is_lost = True
            log.warning("lock.lost", extra={"lock": self._path, "node": self.node})

    def refuse_if_lost(self) -> None:
        if self._is_lost or not self._client.connected:
            raise lock_loss(self._path)
        try:
            is_there = self._client.exists(f"{self._path}/{self.node}") is not None
        except KazooException as error:
            raise lock_loss(self._path) from error
        if not is_there:
            raise lock_loss(self._path)


@contextmanager
def _connect(ensemble: Ensemble) -> Iterator[KazooClient]:
    client = KazooClient(
        hosts=ensemble.hosts,
        timeout=ensemble.session_timeout_ms / 1000,
        connection_retry={
            "max_tries": ensemble.retries,
            "delay": ensemble.retry_wait_ms / 1000,
            "max_delay": ensemble.retry_wait_ms_max / 1000,
        },
    )
    try:
        try:
            client.start(timeout=ensemble.connection_timeout_ms / 1000)
        except (KazooException, KazooTimeoutError) as error:
            raise _unavailable(ensemble, error) from error
        yield client
    finally:
        client.stop()
        client.close()


def _unavailable(ensemble: Ensemble, error: Exception) -> StorageUnavailable:
    return StorageUnavailable(
        "ZooKeeper did not answer", hosts=ensemble.hosts, cause=str(error) or type(error).__name__
    )
