"""Settings of the push service, as values. How a file becomes them is in `server_file`."""

import datetime as dt
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from holdfast.config.push_rules import Rules
from holdfast.errors import InvalidOption

EVERY_TABLE = "*"
DEFAULT_STORE = "sqlite:///holdfast-data/push.db"
DEFAULT_DEEP_STORE = "holdfast-data/segments"


class Role(IntEnum):
    """What a user may do; each includes the ones before it."""

    READ = 1
    """Query and list."""
    WRITE = 2
    """Upload, and start, end and revert one's own pushes."""
    OPERATE = 3
    """Revert and force the pushes of others, delete segments, run retention."""
    ADMIN = 4
    """Change tables and schemas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    port: int
    host: str = "127.0.0.1"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    secret_hash: str = field(repr=False)
    """Of a password (Basic) or of a token's secret (Bearer); made by `holdfast serve --hash-secret`."""
    is_token: bool
    roles: Mapping[str, Role]
    """By raw table name; `*` stands for every table."""
    expires_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    query_timeout_ms: int = 600_000
    """The most that a query may ask for; without asking it gets ten seconds."""
    query_memory_bytes: int = 1024**3
    query_rows: int = 100_000
    concurrent_queries: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))
    body_bytes: int = 16 * 1024**2
    upload_bytes: int = 4 * 1024**3
    json_depth: int = 64
    requests_per_second: int = 500
    """Of one user, or of one address where nobody logs in."""
    failed_logins_per_minute: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloads:
    """Where an upload by address may take its bytes from. Nowhere, unless configured."""

    roots: tuple[str, ...] = ()
    """Folders; a `file:` address must lie beneath one of them."""
    hosts: tuple[str, ...] = ()
    """`host` or `host:port` of http and https addresses."""
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    """Loopback and private networks in which those hosts may live; public ones always may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    certificate: str | None = None
    key: str | None = None
    is_required: bool = True
    """False: another program ends TLS in front of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    cluster: str = "PinotCluster"
    store: str = field(default=DEFAULT_STORE, repr=False)
    """May hold a password, so its text form does not show it."""
    deep_store: str = DEFAULT_DEEP_STORE
    controller: Listener = field(default_factory=lambda: Listener(port=9000))
    broker: Listener = field(default_factory=lambda: Listener(port=8099))
    retention_frequency_ms: int = 6 * 3_600_000
    retention_initial_delay_ms: int = 120_000
    orphan_ms: int = 3 * 24 * 3_600_000
    """How old a file in the deep store must be that nothing names before retention removes it."""
    engine: str = "duckdb"
    rules: Rules = field(default_factory=Rules)
    users: tuple[User, ...] = ()
    limits: Limits = field(default_factory=Limits)
    downloads: Downloads = field(default_factory=Downloads)
    tls: Tls = field(default_factory=Tls)

    @property
    def has_auth(self) -> bool:
        return bool(self.users)

    @property
    def has_tls(self) -> bool:
        return self.tls.certificate is not None

    def __post_init__(self) -> None:
        for name, listener in (("controller", self.controller), ("broker", self.broker)):
            if listener.is_loopback:
                continue
            if not self.has_auth:
                raise InvalidOption(
                    "an address that others can reach needs users", option=f"{name}.host",
                    value=listener.host, hint="configure auth.users, or listen on 127.0.0.1",
                )  # fmt: skip
            if self.tls.is_required and not self.has_tls:
                raise InvalidOption(
                    "an address that others can reach needs TLS", option=f"{name}.host",
                    value=listener.host,
                    hint="configure tls.certificate and tls.key, or tls.required: false behind a proxy",
                )  # fmt: skip
