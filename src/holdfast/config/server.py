"""Settings of the push service, and the YAML file that they are read from.

Unknown keys are refused with the nearest known name. Relative paths are
relative to the folder of the file. Secrets may stand elsewhere: `env:NAME`
and `file:PATH` are replaced by what they name.
"""

import datetime as dt
import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from holdfast.config import values
from holdfast.config.catalog import Catalog, read_catalog
from holdfast.config.documents import Document, Section, read_document
from holdfast.config.push import check_new_name, check_table_name, name_with_type
from holdfast.config.push_rules import PINOT, Rules
from holdfast.errors import InvalidOption, InvalidRequest

Value = TypeVar("Value")

EVERY_TABLE = "*"
DEFAULT_STORE = "sqlite:///holdfast-data/push.db"
DEFAULT_DEEP_STORE = "holdfast-data/segments"

_USER_NAME = re.compile(r"[A-Za-z0-9_@-]{1,100}")
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


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


def _limit(key: str, parse: Callable[[Any], Value], default: Value) -> Value:
    """A limit that the file gives under this key."""
    declared: Value = field(default=default, metadata={"key": key, "parse": parse})
    return declared


def _json_depth(value: Any) -> int:
    return values.whole(value, 4, 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    query_timeout_ms: int = _limit("query_timeout", values.positive_period, 600_000)
    """The most that a query may ask for; without asking it gets ten seconds."""
    query_memory_bytes: int = _limit("query_memory", values.size, 1024**3)
    query_rows: int = _limit("query_rows", values.count, 100_000)
    concurrent_queries: int = _limit("concurrent_queries", values.count, max(2, os.cpu_count() or 1))
    queries_per_user: int | None = _limit("queries_per_user", values.count, None)
    """Of those, how many one user may have at a time; all but one if it is not configured."""
    answer_bytes: int = _limit("answer_size", values.size, 256 * 1024**2)
    """What one answer may take in the serving process, its JSON included."""
    answer_timeout_ms: int = _limit("answer_timeout", values.positive_period, 30_000)
    """How long a client may leave a piece of its answer, some hundred kilobytes, where it is."""
    query_body_bytes: int = _limit("query_body_size", values.size, 256 * 1024)
    body_bytes: int = _limit("body_size", values.size, 1024**2)
    list_body_bytes: int = _limit("list_body_size", values.size, 16 * 1024**2)
    """Of a body that lists segments or files, from who may write."""
    bodies_bytes: int = _limit("bodies_size", values.size, 64 * 1024**2)
    """What all bodies under way, but for uploads, may take in memory, together."""
    upload_bytes: int = _limit("upload_size", values.size, 4 * 1024**3)
    staged_bytes: int = _limit("staged_size", values.size, 16 * 1024**3)
    """What uploads under way may take on disk, together."""
    header_timeout_ms: int = _limit("header_timeout", values.positive_period, 10_000)
    handshake_timeout_ms: int = _limit("handshake_timeout", values.positive_period, 5_000)
    """For TLS to be agreed on, before the first header."""
    body_timeout_ms: int = _limit("body_timeout", values.positive_period, 30_000)
    """For a whole body; of an upload, the longest pause in it."""
    upload_rate_bytes: int = _limit("upload_rate", values.size, 16 * 1024)
    """The part of an upload that must come in a second, on average."""
    connections_per_address: int = _limit("connections_per_address", values.count, 200)
    json_depth: int = _limit("json_depth", _json_depth, 64)
    requests_per_second: int = _limit("requests_per_second", values.count, 500)
    """Of one user, or of one address where there are no users."""
    failed_logins_per_minute: int = _limit("failed_logins_per_minute", values.count, 10)

    def __post_init__(self) -> None:
        if self.largest_body_bytes > self.bodies_bytes:
            raise InvalidOption(
                "one body may be larger than all bodies together", option="limits.bodies_size",
                value=self.bodies_bytes, hint=f"make it {self.largest_body_bytes} or more",
            )  # fmt: skip

    @property
    def largest_body_bytes(self) -> int:
        """Of a body that is kept in memory."""
        return max(self.query_body_bytes, self.body_bytes, self.list_body_bytes)


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
    readers_are_trusted: bool = False
    """With the memory and the cores of Spark, which all queries share."""
    rules: Rules = field(default_factory=Rules)
    users: tuple[User, ...] = ()
    limits: Limits = field(default_factory=Limits)
    downloads: Downloads = field(default_factory=Downloads)
    tls: Tls = field(default_factory=Tls)
    catalog: Catalog = field(default_factory=Catalog)
    """The lake tables that the console shows."""

    @property
    def has_auth(self) -> bool:
        return bool(self.users)

    @property
    def has_tls(self) -> bool:
        return self.tls.certificate is not None

    def __post_init__(self) -> None:
        if self.engine != "duckdb" and self.has_auth and not self.readers_are_trusted:
            raise InvalidOption(
                "the queries of all readers share the memory and the cores of Spark", option="engine",
                value=self.engine,
                hint="use duckdb, or set readers_are_trusted: true if no reader would take them from others",
            )  # fmt: skip
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


def load_settings(path: str | os.PathLike[str] | None) -> ServerSettings:
    """The settings in a file; the defaults, with the data in the current folder, if there is none."""
    if path is None:
        return parse_settings({}, folder=os.getcwd())
    document = read_document(path, may_be_empty=True, may_have_anchors=False)
    return parse_settings(document, folder=os.path.dirname(os.path.abspath(path)))


def parse_settings(document: Document | Mapping[str, Any], *, folder: str) -> ServerSettings:
    """The settings that a document means, beneath `folder`."""
    top = Section(document, folder)
    given: dict[str, Any] = {
        "cluster": top.read("cluster", _cluster),
        "store": top.read("store", lambda text: _store(values.secret(text, folder), folder))
        or _store(DEFAULT_STORE, folder),
        "deep_store": values.place(top.read("deep_store", values.text) or DEFAULT_DEEP_STORE, folder),
        "controller": top.section("controller", lambda part: _listener(part, 9000)),
        "broker": top.section("broker", lambda part: _listener(part, 8099)),
        "engine": top.read("engine", _engine),
        "readers_are_trusted": top.read("readers_are_trusted", values.flag),
        "rules": _rules(top),
        "limits": top.section("limits", _limits),
        "downloads": top.section("downloads", _downloads),
        "users": top.section("auth", _users),
        "tls": top.section("tls", _tls),
        "catalog": read_catalog(top),
        **(top.section("retention", _retention) or {}),
    }
    top.finish()
    return ServerSettings(**values.without_none(given))


def _listener(part: Section, port: int) -> Listener:
    return Listener(
        host=part.read("host", values.text) or "127.0.0.1",
        port=values.or_default(part.read("port", lambda value: values.whole(value, 0, 65535)), port),
    )


def _retention(part: Section) -> dict[str, Any]:
    return {
        "retention_frequency_ms": part.read("frequency", values.positive_period),
        "retention_initial_delay_ms": part.read("initial_delay", values.period),
        "orphan_ms": part.read("orphans", values.positive_period),
    }


def _rules(top: Section) -> Rules:
    """Each rule by its name; Pinot's own switch has a key of its own."""
    rules = top.section("rules", _rule_switches) or Rules()
    locks_deletes = top.read("delete_lock", values.flag)
    return rules if locks_deletes is None else replace(rules, locks_deletes=locks_deletes)


def _rule_switches(part: Section) -> Rules:
    rules = PINOT if part.read("pinot", values.flag) else Rules()
    names = [each.name for each in fields(Rules) if each.name != "locks_deletes"]
    return replace(rules, **values.without_none({name: part.read(name, values.flag) for name in names}))


def _limits(part: Section) -> Limits:
    given = {each.name: part.read(each.metadata["key"], each.metadata["parse"]) for each in fields(Limits)}
    return Limits(**values.without_none(given))


def _downloads(part: Section) -> Downloads:
    return Downloads(
        roots=part.each("roots", part.place),
        hosts=part.each("hosts", lambda text: values.text(text).lower()),
        networks=part.each("networks", lambda text: ipaddress.ip_network(values.text(text))),
    )


def _tls(part: Section) -> Tls:
    certificate = part.read("certificate", part.place)
    key = part.read("key", part.place)
    is_required = values.or_default(part.read("required", values.flag), True)
    part.finish()
    if (certificate is None) != (key is None):
        raise part.wrong("certificate" if key else "key", "TLS needs a certificate and its key")
    return Tls(certificate=certificate, key=key, is_required=is_required)


def _users(part: Section) -> tuple[User, ...]:
    users = part.sections("users", _user)
    part.finish()
    if not users:
        raise part.wrong("users", "auth lists no users", hint="list users, or leave auth out")
    names = [user.name for user in users]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise part.wrong("users", "a user is listed twice", user=repeated[0])
    return users


def _user(part: Section) -> User:
    name = part.require("name", _user_name)
    password = part.read("password", part.secret)
    token = part.read("token", part.secret)
    role = part.read("role", _role)
    tables = part.read("tables", _roles_by_table)
    expires_at = part.read("expires", values.moment)
    part.finish()
    if (password is None) == (token is None):
        raise part.wrong("password", "a user needs a password or a token", user=name)
    if (role is None) == (tables is None):
        raise part.wrong("role", "a user needs either a role or roles by table", user=name)
    return User(
        name=name,
        secret_hash=password or token or "",
        is_token=token is not None,
        roles=MappingProxyType({EVERY_TABLE: role} if role is not None else dict(tables or {})),
        expires_at=expires_at,
    )


def _role(value: Any) -> Role:
    return Role[values.one_of(value, [role.name.lower() for role in Role]).upper()]


def _roles_by_table(value: Any) -> dict[str, Role]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError("not a mapping of tables to roles")
    roles = {_table_of_role(table): _role(role) for table, role in value.items()}
    by_case: dict[str, str] = {}
    for table in roles:
        other = by_case.setdefault(table.lower(), table)
        if other != table:
            raise ValueError(f"{other} and {table} differ only by case")
    return roles


def _table_of_role(value: Any) -> str:
    """The raw name of a table, or `*`."""
    table = values.text(value)
    if table == EVERY_TABLE:
        return table
    try:
        check_table_name(table)
        check_new_name(name_with_type(table))
    except InvalidRequest:
        raise ValueError(f"{table!r} is not the name of a table") from None
    if name_with_type(table) == table:
        raise ValueError(f"{table!r} has a type; roles are given by the name without it")
    return table


def _cluster(value: Any) -> str:
    text = values.text(value)
    if not _CLUSTER_NAME.fullmatch(text):
        raise ValueError("only letters, digits, _ and -")
    return text


def _user_name(value: Any) -> str:
    text = values.text(value)
    if not _USER_NAME.fullmatch(text):
        raise ValueError("only letters, digits, _, @ and -")
    return text


def _engine(value: Any) -> str:
    text = values.text(value)
    if text != "duckdb" and not text.startswith(("local", "spark://", "sc://", "yarn", "k8s://")):
        raise ValueError(f"{text!r} is neither duckdb nor the address of Spark")
    return text


def _store(value: Any, folder: str) -> str:
    text = values.text(value)
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "sqlite":
        if not rest.startswith("/") or rest == "/":
            raise ValueError("sqlite needs a file: sqlite:///relative or sqlite:////absolute")
        return f"sqlite:///{quote(values.place(unquote(rest[1:]), folder))}"
    if text.startswith("zookeeper://"):
        values.zookeeper_servers(text)
        return text
    if text.startswith("memory:"):
        return text
    # Without the text: it may hold a password, or be one that stood in the wrong variable.
    raise ValueError("neither sqlite:///FILE nor zookeeper://HOST:PORT")
