"""Where in ZooKeeper a table's lock is: the servers and the path, as Hudi derives them."""

import re

from holdfast.concurrency.locks.xxhash import xxhash64
from holdfast.config.choices import LockProvider
from holdfast.config.locks import LockSettings

_HUDI_SEED = 0xFFFFFFFF_DABADABA
_HUDI_FOLDER = "/tmp"  # noqa: S108  # a path in ZooKeeper, not on a disk
_HUDI_KEY = "lock_key"


def hosts_of(settings: LockSettings) -> str:
    """The servers in one order, each with its port; then the path on them that counts as the root."""
    servers, slash, root = settings.zookeeper_url.partition("/")
    named = {server.strip().lower() for server in servers.split(",") if server.strip()}
    with_ports = {s if re.search(r":[0-9]+$", s) else f"{s}:{settings.zookeeper_port}" for s in named}
    return ",".join(sorted(with_ports)) + (slash + root).rstrip("/")


def path_of(settings: LockSettings, *, table_uri: str, table_name: str) -> str:
    """The path whose lowest child holds the lock."""
    if settings.provider is LockProvider.ZOOKEEPER:
        key = settings.zookeeper_lock_key or table_name
        return f"{settings.zookeeper_base_path.rstrip('/')}/{key}"
    address = re.sub("^s3a://", "s3://", table_uri.rstrip("/"), flags=re.IGNORECASE)
    return f"{_HUDI_FOLDER}/{xxhash64(address.encode(), _HUDI_SEED):016X}/{_HUDI_KEY}"
