"""The configuration file of the push service: YAML, read once into typed values.

Unknown keys are refused with the nearest known name. Relative paths are
relative to the folder of the file. Secrets may stand elsewhere: `env:NAME`
and `file:PATH` are replaced by what they name.
"""

import datetime as dt
import difflib
import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import yaml

from holdfast.config.push import parse_period_ms, parse_size_bytes
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
from holdfast.errors import InvalidOption

_FILE_BYTES_MAX = 1024 * 1024
_USER_NAME = re.compile(r"[A-Za-z0-9_@-]{1,100}")
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")

Value = TypeVar("Value")


def load_settings(path: str | os.PathLike[str] | None) -> ServerSettings:
    """The settings in a file; the defaults, with the data in the current folder, if there is none."""
    if path is None:
        return parse_settings({}, folder=os.getcwd())
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidOption("the configuration cannot be read", path=path, cause=error.strerror) from error
    if len(content) > _FILE_BYTES_MAX:
        raise InvalidOption("the configuration is too large", path=path, size_bytes=len(content))
    return parse_settings(_document(content, path), folder=os.path.dirname(os.path.abspath(path)))


def parse_settings(document: Mapping[str, Any], *, folder: str) -> ServerSettings:
    """The settings that a document means, beneath `folder`."""
    top = _Section(document, "", folder)
    given: dict[str, Any] = {
        "cluster": top.read("cluster", _cluster),
        "store": top.read("store", lambda text: _store(_secret(text, folder), folder))
        or _store(DEFAULT_STORE, folder),
        "deep_store": _place(top.read("deep_store", _text) or DEFAULT_DEEP_STORE, folder),
        "controller": top.section("controller", lambda part: _listener(part, 9000)),
        "broker": top.section("broker", lambda part: _listener(part, 8099)),
        "engine": top.read("engine", _engine),
        "locks_deletes": top.read("delete_lock", _flag),
        "limits": top.section("limits", _limits),
        "downloads": top.section("downloads", _downloads),
        "users": top.section("auth", _users),
        "tls": top.section("tls", _tls),
        **(top.section("retention", _retention) or {}),
    }
    top.finish()
    return ServerSettings(**_present(given))


class _Section:
    """One mapping of the document; what is not asked for by the end is unknown."""

    def __init__(self, values: Any, name: str, folder: str) -> None:
        if not isinstance(values, Mapping):
            raise InvalidOption("a section of the configuration is not a mapping", option=name)
        self._values = values
        self._name = name
        self._asked: list[str] = []
        self.folder = folder

    def option(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def read(self, key: str, parse: Callable[[Any], Value]) -> Value | None:
        """The value of `key`, parsed; None if it is not there."""
        self._asked.append(key)
        value = self._values.get(key)
        if value is None:
            return None
        try:
            return parse(value)
        except InvalidOption:
            raise
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidOption(
                "a value of the configuration is wrong", option=self.option(key), cause=str(error)
            ) from error

    def section(self, key: str, parse: Callable[["_Section"], Value]) -> Value | None:
        self._asked.append(key)
        if self._values.get(key) is None:
            return None
        part = _Section(self._values[key], self.option(key), self.folder)
        parsed = parse(part)
        part.finish()
        return parsed

    def finish(self) -> None:
        for key in self._values:
            if key not in self._asked:
                nearest = difflib.get_close_matches(str(key), self._asked, n=1, cutoff=0.6)
                known = f"did you mean {nearest[0]}?" if nearest else "known: " + ", ".join(self._asked)
                raise InvalidOption("unknown key in the configuration", option=self.option(key), hint=known)


def _listener(part: _Section, port: int) -> Listener:
    return Listener(
        host=part.read("host", _text) or "127.0.0.1",
        port=_given(part.read("port", lambda value: _whole(value, 0, 65535)), port),
    )


def _retention(part: _Section) -> dict[str, Any]:
    return {
        "retention_frequency_ms": part.read("frequency", _positive_period),
        "retention_initial_delay_ms": part.read("initial_delay", _period),
    }


def _limits(part: _Section) -> Limits:
    many = lambda value: _whole(value, 1, 10**12)  # noqa: E731
    return Limits(
        **_present(
            {
                "query_timeout_ms": part.read("query_timeout", _positive_period),
                "query_memory_bytes": part.read("query_memory", _size),
                "query_rows": part.read("query_rows", many),
                "concurrent_queries": part.read("concurrent_queries", many),
                "body_bytes": part.read("body_size", _size),
                "upload_bytes": part.read("upload_size", _size),
                "json_depth": part.read("json_depth", lambda value: _whole(value, 4, 500)),
                "requests_per_second": part.read("requests_per_second", many),
                "failed_logins_per_minute": part.read("failed_logins_per_minute", many),
            }
        )
    )


def _downloads(part: _Section) -> Downloads:
    return Downloads(
        roots=tuple(_place(text, part.folder) for text in part.read("roots", _texts) or ()),
        hosts=tuple(text.lower() for text in part.read("hosts", _texts) or ()),
        networks=part.read("networks", lambda value: tuple(map(ipaddress.ip_network, _texts(value)))) or (),
    )


def _tls(part: _Section) -> Tls:
    certificate = part.read("certificate", lambda text: _place(text, part.folder))
    key = part.read("key", lambda text: _place(text, part.folder))
    is_required = _given(part.read("required", _flag), True)
    part.finish()
    if (certificate is None) != (key is None):
        raise InvalidOption("TLS needs a certificate and its key", option="tls")
    return Tls(certificate=certificate, key=key, is_required=is_required)


def _users(part: _Section) -> tuple[User, ...]:
    listed = part.read("users", _list) or []
    part.finish()
    users = []
    for at, values in enumerate(listed):
        users.append(_user(_Section(values, f"auth.users[{at}]", part.folder)))
    if not users:
        raise InvalidOption("auth lists nobody", option="auth.users", hint="list users, or leave auth out")
    names = [user.name for user in users]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidOption("a user is listed twice", option="auth.users", user=repeated[0])
    return tuple(users)


def _user(one: _Section) -> User:
    name = one.read("name", _user_name)
    password = one.read("password", lambda text: _secret(text, one.folder))
    token = one.read("token", lambda text: _secret(text, one.folder))
    role = one.read("role", _role)
    tables = one.read("tables", _roles_by_table)
    expires_at = one.read("expires", _moment)
    one.finish()
    if name is None:
        raise InvalidOption("a user has no name", option=one.option("name"))
    if (password is None) == (token is None):
        raise InvalidOption("a user needs a password or a token", option=one.option("password"), user=name)
    if (role is None) == (tables is None):
        raise InvalidOption(
            "a user needs either a role or roles by table", option=one.option("role"), user=name
        )
    return User(
        name=name,
        secret_hash=password or token or "",
        is_token=token is not None,
        roles=MappingProxyType({EVERY_TABLE: role} if role is not None else dict(tables or {})),
        expires_at=expires_at,
    )


def _role(value: Any) -> Role:
    names = {role.name.lower(): role for role in Role}
    if value not in names:
        raise ValueError(f"{value!r} is none of {', '.join(names)}")
    return names[value]


def _roles_by_table(value: Any) -> dict[str, Role]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError("not a mapping of tables to roles")
    return {_text(table): _role(role) for table, role in value.items()}


def _secret(value: Any, folder: str) -> str:
    text = _text(value)
    kind, colon, name = text.partition(":")
    if colon and kind == "env":
        if name not in os.environ:
            raise ValueError(f"the environment has no {name}")
        return os.environ[name].strip()
    if colon and kind == "file":
        try:
            return Path(_place(name, folder)).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{name} cannot be read") from error
    return text


def _moment(value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        moment = value
    elif isinstance(value, dt.date):
        moment = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    else:
        moment = dt.datetime.fromisoformat(_text(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _cluster(value: Any) -> str:
    text = _text(value)
    if not _CLUSTER_NAME.fullmatch(text):
        raise ValueError("only letters, digits, _ and -")
    return text


def _user_name(value: Any) -> str:
    text = _text(value)
    if not _USER_NAME.fullmatch(text):
        raise ValueError("only letters, digits, _, @ and -")
    return text


def _engine(value: Any) -> str:
    text = _text(value)
    if text != "duckdb" and not text.startswith(("local", "spark://", "sc://", "yarn", "k8s://")):
        raise ValueError(f"{text!r} is neither duckdb nor the address of Spark")
    return text


def _store(value: Any, folder: str) -> str:
    text = _text(value)
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "sqlite":
        if not rest.startswith("/") or rest == "/":
            raise ValueError("sqlite needs a file: sqlite:///relative or sqlite:////absolute")
        return f"sqlite:///{quote(_place(unquote(rest[1:]), folder))}"
    if text.startswith(("zookeeper://", "memory:")):
        return text
    raise ValueError(f"{text!r} is neither sqlite:///FILE nor zookeeper://HOST:PORT")


def _place(value: Any, folder: str) -> str:
    text = _text(value)
    return text if "://" in text else os.path.normpath(os.path.join(folder, text))


def _period(value: Any) -> int:
    return parse_period_ms(_text(value))


def _positive_period(value: Any) -> int:
    period_ms = _period(value)
    if period_ms <= 0:
        raise ValueError("must be longer than nothing")
    return period_ms


def _size(value: Any) -> int:
    size_bytes = value if _is_whole(value) else parse_size_bytes(_text(value))
    if size_bytes <= 0:
        raise ValueError("must be more than nothing")
    return int(size_bytes)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _whole(value: Any, least: int, most: int) -> int:
    if not _is_whole(value) or not least <= value <= most:
        raise ValueError(f"not a whole number from {least} to {most}")
    return int(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value


def _texts(value: Any) -> list[str]:
    return [_text(one) for one in _list(value)]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("not a text")
    return value


def _given(value: Value | None, default: Value) -> Value:
    return default if value is None else value


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not there, so that the defaults stand in one place only."""
    return {name: value for name, value in values.items() if value is not None}


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML brings no types
    """Plain values only: no tags of Python, no anchors (they multiply), no key twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if getattr(event, "anchor", None) is not None:
            raise yaml.composer.ComposerError(None, None, "anchors are not used here", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} stands twice", key.start_mark
                )
            seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def _document(content: bytes, path: str | os.PathLike[str]) -> Mapping[str, Any]:
    try:
        document = yaml.load(content, Loader=_Loader)  # noqa: S506  # derived from the safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidOption("the configuration is not YAML", path=path, cause=_where(error)) from error
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise InvalidOption("the configuration is not a mapping", path=path)
    return document


def _where(error: Exception) -> str:
    """What is wrong and where, without the line itself: it may hold a secret."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return problem if mark is None else f"{problem}, line {mark.line + 1}"
