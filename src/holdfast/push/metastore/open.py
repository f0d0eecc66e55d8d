"""Opening a metastore by its address."""

import re
from urllib.parse import unquote

from holdfast.clock import Clock, SystemClock
from holdfast.config.values import zookeeper_servers
from holdfast.errors import InvalidOption, InvalidRequest
from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.metastore.port import Metastore
from holdfast.push.metastore.sqlite import SqliteMetastore

DEFAULT_CLUSTER = "PinotCluster"

_CLUSTER = re.compile(r"[A-Za-z0-9_-]{1,100}")
_SECRET = re.compile(r"^([a-z]*:/*).*@")
_SYSTEM_CLOCK = SystemClock()


def open_metastore(uri: str, cluster: str = DEFAULT_CLUSTER, *, clock: Clock = _SYSTEM_CLOCK) -> Metastore:
    """The metastore at an address, one of

    - `sqlite:///data/push.db`, relative to the current folder, or with four
      slashes an absolute path;
    - `zookeeper://host:2181,host2:2181`, optionally with `user:password@` in
      front, and with a path below which the cluster is kept;
    - `memory:`, for tests.
    """
    if not _CLUSTER.fullmatch(cluster):
        raise InvalidOption("not a cluster name", cluster=repr(cluster), hint="use letters, digits, _ and -")
    scheme, colon, rest = uri.partition(":")
    if colon and scheme == "sqlite" and rest.startswith("///") and len(rest) > len("///"):
        return SqliteMetastore(unquote(rest.removeprefix("///")), cluster, clock=clock)
    if colon and scheme == "zookeeper" and rest.startswith("//") and len(rest) > len("//"):
        # Loaded here because kazoo is an optional package.
        from holdfast.push.metastore.zookeeper import ZookeeperMetastore

        place, slash, path = rest.removeprefix("//").partition("/")
        credentials, at, _ = place.rpartition("@")
        try:
            hosts = zookeeper_servers(uri)
        except ValueError as error:
            raise InvalidOption(str(error), uri=display_address(uri)) from None
        return ZookeeperMetastore(
            hosts,
            f"{slash}{path}".rstrip("/"),
            cluster,
            credentials=unquote(credentials) if at else None,
        )
    if colon and scheme == "memory" and rest in ("", "//"):
        return MemoryMetastore()
    raise InvalidRequest(
        "not the address of a store",
        uri=display_address(uri),
        hint="use sqlite:///relative/file, sqlite:////absolute/file or zookeeper://host:port",
    )


def display_address(uri: str) -> str:
    """The address without its password, for people."""
    return _SECRET.sub(r"\1***@", uri)
