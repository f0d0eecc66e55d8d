"""What a value of a configuration file may be. A value that is not that is a `ValueError`, which says why."""

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from holdfast.config.push import check_table_name, parse_period_ms, parse_size_bytes
from holdfast.errors import InvalidRequest

Value = TypeVar("Value")

_FLAGS = {"true": True, "false": False}


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("not a text")
    return value


def texts(value: Any) -> list[str]:
    """A list of texts, or one."""
    if isinstance(value, str):
        return [text(value)]
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("not a list of texts")
    return [text(one) for one in value]


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
    return {str(name): scalar(one) for name, one in value.items() if one is not None}


def flag(value: Any) -> bool:
    found = _FLAGS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise ValueError("neither true nor false")
    return found


def whole(value: Any, least: int, most: int) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise ValueError(f"not a whole number from {least} to {most}")
    return number


def one_of(value: Any, known: Sequence[str]) -> str:
    """One of the known names, in whatever case it is written."""
    written = scalar(value)
    for name in known:
        if name.lower() == written.lower():
            return name
    raise ValueError(f"{written[:80]!r} is none of {', '.join(known)}")


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
        found = value
    elif isinstance(value, dt.date):
        found = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    else:
        found = dt.datetime.fromisoformat(text(value))
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


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


def table_name(value: Any) -> str:
    """The name of a push table, raw or typed."""
    name = text(value)
    try:
        check_table_name(name)
    except InvalidRequest as error:
        raise ValueError(f"{error.message}: {error.hint}") from error
    return name


def secret(value: Any, folder: str) -> str:
    """A secret as written, or what `env:NAME` or `file:PATH` names."""
    written = text(value)
    kind, colon, name = written.partition(":")
    if colon and kind == "env":
        if name not in os.environ:
            raise ValueError(f"the environment has no {name}")
        return os.environ[name].strip()
    if colon and kind == "file":
        try:
            return Path(place(name, folder)).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{name} cannot be read") from error
    return written


def given(value: Value | None, default: Value) -> Value:
    return default if value is None else value


def present(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not there, so that the defaults stand in one place only."""
    return {name: value for name, value in found.items() if value is not None}
