"""Values of configuration files, parsed. One that is wrong is a `ValueError` or `InvalidOption`."""

import datetime as dt
import difflib
import os
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from holdfast.config.option import FLAGS
from holdfast.errors import InvalidOption

Value = TypeVar("Value")

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

_NUMBER_MAX = 10**12
_DIGITS = re.compile(r"[0-9]{1,19}")
_PERIOD = re.compile(r"(?=.)(?:(-?[0-9]+)d)?(?:(-?[0-9]+)h)?(?:(-?[0-9]+)m)?(?:(-?[0-9]+)s)?")
_PERIOD_UNITS_MS = (DAY_MS, HOUR_MS, 60_000, 1000)
_PERIOD_DIGITS_MAX = 12
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?|\.[0-9]{1,15})\s*([KMGTP]?)B?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")
_PORT_MAX = 65535


def suggest_name(name: str, known: Sequence[str]) -> str:
    """The hint for a name that is not known."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {nearest[0]}?" if nearest else "known: " + ", ".join(known)


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("not a text")
    return value


def zookeeper_servers(address: str) -> str:
    """The servers in `zookeeper://user:password@host:port,host:port/path`, without the password."""
    servers = address.removeprefix("zookeeper://").partition("/")[0].rpartition("@")[2]
    for server in servers.split(","):
        parts = _SERVER.fullmatch(server)
        if parts is None or not 0 < int(parts["port"] or 1) <= _PORT_MAX:
            # Without the text: what is not where it belongs may be a part of the password.
            raise ValueError("not the servers of ZooKeeper: zookeeper://HOST:PORT,HOST:PORT/PATH")
    return servers


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts, or one."""
    if isinstance(value, str):
        return (text(value),)
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("not a list of texts")
    return tuple(text(each) for each in value)


def scalar(value: Any) -> str:
    """A text, a number or a flag, as a text."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError("not a text, a number, true or false")
    return str(value)


def options(value: Any) -> dict[str, str]:
    """Names and their values, as texts."""
    if not isinstance(value, Mapping):
        raise ValueError("not a mapping of names to values")
    return {str(name): scalar(each) for name, each in value.items() if each is not None}


def flag(value: Any) -> bool:
    meant = FLAGS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(meant, bool):
        raise ValueError("neither true nor false")
    return meant


def whole(value: Any, least: int, most: int) -> int:
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise ValueError(f"not a whole number from {least} to {most}")
    return number


def number(value: Any) -> int:
    return whole(value, 0, _NUMBER_MAX)


def count(value: Any) -> int:
    return whole(value, 1, _NUMBER_MAX)


def one_of(value: Any, known: Sequence[str]) -> str:
    """One of the known names, in whatever case it is written."""
    written = scalar(value)
    for name in known:
        if name.lower() == written.lower():
            return name
    raise ValueError(f"{written[:80]!r} is none of {', '.join(known)}")


def parse_period_ms(text: str) -> int:
    """`1d`, `4h30m`, `0s` or `-1d` in milliseconds."""
    match = _PERIOD.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or any(part and len(part) > _PERIOD_DIGITS_MAX for part in match.groups()):
        raise InvalidOption("not a period", period=repr(text), hint="write it as 7d, 4h30m or 0s")
    return sum(int(part) * unit for part, unit in zip(match.groups(), _PERIOD_UNITS_MS, strict=True) if part)


def parse_size_bytes(text: str) -> int:
    """`10G`, `1.5T`, `512MB` or `1024` in bytes; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise InvalidOption("not a size", size=repr(text), hint="write it as 512M, 10G or 1.5T")
    return int(Decimal(match[1]) * _SIZE_UNITS[match[2].upper()])


def period(value: Any) -> int:
    return parse_period_ms(text(value))


def positive_period(value: Any) -> int:
    period_ms = period(value)
    if period_ms <= 0:
        raise ValueError("must be longer than nothing")
    return period_ms


def size(value: Any) -> int:
    size_bytes = parse_size_bytes(scalar(value))
    if size_bytes <= 0:
        raise ValueError("must be more than nothing")
    return size_bytes


def moment(value: Any) -> dt.datetime:
    """A date or a moment, in UTC unless it says otherwise."""
    if isinstance(value, dt.datetime):
        at = value
    elif isinstance(value, dt.date):
        at = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    else:
        at = dt.datetime.fromisoformat(text(value))
    return at if at.tzinfo else at.replace(tzinfo=dt.UTC)


def place(value: Any, folder: str) -> str:
    """A path beneath `folder`, an absolute path, or a URI."""
    written = text(value)
    return written if "://" in written else os.path.normpath(os.path.join(folder, written))


def address(value: Any) -> str:
    """The URL of a service, without a slash at its end."""
    url = text(value).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not http://HOST:PORT")
    return url


def secret(value: Any, folder: str) -> str:
    """A secret as written, or what `env:NAME` or `file:PATH` names."""
    written = text(value)
    kind, colon, name = written.partition(":")
    if colon and kind == "env":
        if not name.isidentifier():  # It may be the secret itself, and is not repeated.
            raise ValueError("what follows env: is not the name of a variable")
        if name not in os.environ:
            raise ValueError(f"the environment has no {name}")
        return os.environ[name].strip()
    if colon and kind == "file":
        try:
            return Path(place(name, folder)).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{name} cannot be read") from error
    return written


def or_default(value: Value | None, default: Value) -> Value:
    return default if value is None else value


def without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are there, so that the defaults of the others stand in one place only."""
    return {name: value for name, value in settings.items() if value is not None}
