"""The configuration file of the push service: YAML, read once into typed values.

Unknown keys are refused with the nearest known name. Relative paths are
relative to the folder of the file. Secrets may stand elsewhere: `env:NAME`
and `file:PATH` are replaced by what they name.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

from holdfast.config import values
from holdfast.config.documents import Document, Section, read_document
from holdfast.config.push_rules import PINOT, Rules
from holdfast.config.server import (
    DEFAULT_DEEP_STORE,
    DEFAULT_STORE,
    EVERY_TABLE,
    Downloads,
    Limits,
    Listener,
    Role,
    ServerSettings,
    Tls,
    User,
)

_USER_NAME = re.compile(r"[A-Za-z0-9_@-]{1,100}")
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


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
        "rules": _rules(top),
        "limits": top.section("limits", _limits),
        "downloads": top.section("downloads", _downloads),
        "users": top.section("auth", _users),
        "tls": top.section("tls", _tls),
        **(top.section("retention", _retention) or {}),
    }
    top.finish()
    return ServerSettings(**values.present(given))


def _listener(part: Section, port: int) -> Listener:
    return Listener(
        host=part.read("host", values.text) or "127.0.0.1",
        port=values.given(part.read("port", lambda value: values.whole(value, 0, 65535)), port),
    )


def _retention(part: Section) -> dict[str, Any]:
    return {
        "retention_frequency_ms": part.read("frequency", values.positive_period),
        "retention_initial_delay_ms": part.read("initial_delay", values.period),
        "orphan_ms": part.read("orphans", values.positive_period),
    }


def _rules(top: Section) -> Rules:
    """Each rule by its name; Pinot's own switch has a key of its own."""
    rules = top.section("rules", _switched) or Rules()
    locks_deletes = top.read("delete_lock", values.flag)
    return rules if locks_deletes is None else replace(rules, locks_deletes=locks_deletes)


def _switched(part: Section) -> Rules:
    rules = PINOT if part.read("pinot", values.flag) else Rules()
    names = [one.name for one in fields(Rules) if one.name != "locks_deletes"]
    return replace(rules, **values.present({name: part.read(name, values.flag) for name in names}))


def _limits(part: Section) -> Limits:
    many = lambda value: values.whole(value, 1, 10**12)  # noqa: E731
    return Limits(
        **values.present(
            {
                "query_timeout_ms": part.read("query_timeout", values.positive_period),
                "query_memory_bytes": part.read("query_memory", values.size),
                "query_rows": part.read("query_rows", many),
                "concurrent_queries": part.read("concurrent_queries", many),
                "body_bytes": part.read("body_size", values.size),
                "upload_bytes": part.read("upload_size", values.size),
                "json_depth": part.read("json_depth", lambda value: values.whole(value, 4, 500)),
                "requests_per_second": part.read("requests_per_second", many),
                "failed_logins_per_minute": part.read("failed_logins_per_minute", many),
            }
        )
    )


def _downloads(part: Section) -> Downloads:
    return Downloads(
        roots=part.each("roots", lambda text: values.place(text, part.folder)),
        hosts=part.each("hosts", lambda text: values.text(text).lower()),
        networks=part.each("networks", lambda text: ipaddress.ip_network(values.text(text))),
    )


def _tls(part: Section) -> Tls:
    certificate = part.read("certificate", lambda text: values.place(text, part.folder))
    key = part.read("key", lambda text: values.place(text, part.folder))
    is_required = values.given(part.read("required", values.flag), True)
    part.finish()
    if (certificate is None) != (key is None):
        raise part.wrong("certificate" if key else "key", "TLS needs a certificate and its key")
    return Tls(certificate=certificate, key=key, is_required=is_required)


def _users(part: Section) -> tuple[User, ...]:
    users = part.sections("users", _user)
    part.finish()
    if not users:
        raise part.wrong("users", "auth lists nobody", hint="list users, or leave auth out")
    names = [user.name for user in users]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise part.wrong("users", "a user is listed twice", user=repeated[0])
    return users


def _user(one: Section) -> User:
    name = one.required("name", _user_name)
    password = one.read("password", lambda text: values.secret(text, one.folder))
    token = one.read("token", lambda text: values.secret(text, one.folder))
    role = one.read("role", _role)
    tables = one.read("tables", _roles_by_table)
    expires_at = one.read("expires", values.moment)
    one.finish()
    if (password is None) == (token is None):
        raise one.wrong("password", "a user needs a password or a token", user=name)
    if (role is None) == (tables is None):
        raise one.wrong("role", "a user needs either a role or roles by table", user=name)
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
    return {values.text(table): _role(role) for table, role in value.items()}


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
    if text.startswith(("zookeeper://", "memory:")):
        return text
    raise ValueError(f"{text!r} is neither sqlite:///FILE nor zookeeper://HOST:PORT")
