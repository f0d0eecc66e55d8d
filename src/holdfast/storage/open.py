"""Opening a store by its address."""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, unquote, urlsplit

from holdfast.errors import InvalidOption, InvalidRequest
from holdfast.storage.disk import LOCAL_DISK, PRIVATE_DISK
from holdfast.storage.local import LocalStore
from holdfast.storage.store import Store, StoreLocation

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config

OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "adl")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_PROVIDER = re.compile(r"(aws|google|azure)_")
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_max_frame_size",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)


def location_of(
    path: str | os.PathLike[str], options: Mapping[str, str] | None = None, *, is_private: bool = False
) -> StoreLocation:
    """Where a table is, in a form that means the same in every process.

    Spark's workers run in folders of their own, so local paths become absolute.
    """
    uri = os.fspath(path)
    given = {} if options is None else dict(options)
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidOption("a storage option is not text", option=name, type=type(value).__name__)
    match = _SCHEME.match(uri)
    if match is None:
        return StoreLocation(os.path.abspath(_not_empty(uri.strip() and uri, uri)), given, is_private)
    if match[1].lower() == "file":
        return StoreLocation(os.path.abspath(_not_empty(_local_path(uri), uri)), given, is_private)
    return StoreLocation(uri, given, is_private)


def canonical(uri: str) -> str:
    """One name for a place, whatever links lead to it; for comparing on one machine, not for opening."""
    return uri if _SCHEME.match(uri) else os.path.realpath(uri)


def is_link(location: StoreLocation, below: str = "") -> bool:
    """Whether a local path, or what lies below it, is a symbolic link."""
    return _SCHEME.match(location.uri) is None and os.path.islink(
        os.path.join(location.uri, below).rstrip("/")
    )


def open_store(location: StoreLocation) -> Store:
    """The store at a path, a `file` address, or an address in an object store.

    Nothing is asked of the storage yet. For an object store the options are

    - those of the service, by obstore's names: `region`, `endpoint`,
      `access_key_id`, `secret_access_key`, `session_token`, `profile` and
      `virtual_hosted_style_request` for S3, `service_account` for Google,
      `account_name`, `account_key` and `sas_key` for Azure, and so on, with or
      without `aws_`, `google_` or `azure_` before them;
    - those of the connection: `allow_http`, `timeout` ("30s"),
      `connect_timeout`, `proxy_url`, `root_certificate`, and so on.

    What is not given comes from the environment, as these services define it.
    On a local path options have no meaning and are not looked at.
    """
    uri = location.uri
    match = _SCHEME.match(uri)
    if match is None:
        return _open_folder(_not_empty(uri, uri), is_private=location.is_private)
    scheme = match[1].lower()
    if scheme == "file":
        return _open_folder(_not_empty(_local_path(uri), uri), is_private=location.is_private)
    if scheme in OBJECT_SCHEMES and uri[len(scheme) :].startswith("://"):
        return _open_objects(location)
    known = ", ".join(("file", *OBJECT_SCHEMES))
    raise InvalidRequest("the scheme is not known", uri=uri, hint=f"use a path or one of {known}")


def _open_folder(path: str, *, is_private: bool) -> Store:
    if os.path.exists(path) and not os.path.isdir(path):
        raise InvalidRequest("the path is a file, not a folder", path=path, hint="give a folder")
    return LocalStore(path, disk=PRIVATE_DISK if is_private else LOCAL_DISK)


def _open_objects(location: StoreLocation) -> Store:
    # Loaded here because commands on local tables must start fast, and never need it.
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError
    from obstore.store import from_url

    from holdfast.storage.objects import ObjectStore

    scheme, _, rest = location.uri.partition("://")
    bucket, slash, path = rest.partition("/")
    service: dict[str, str] = {}
    client: dict[str, str] = {}
    for name, value in location.options.items():
        plain = _PROVIDER.sub("", name.lower(), count=1)
        if plain in _CLIENT_OPTIONS:
            client[plain] = value
        else:
            service[name] = value
    try:
        objects = from_url(
            f"{scheme.lower()}://{bucket}{slash}{quote(path)}",
            config=cast("S3Config", service),
            client_options=cast("ClientConfig", client),
        )
    except UnknownConfigurationKeyError as error:
        raise InvalidOption("an option is unknown to the object store", cause=_first_line(error)) from error
    except (BaseError, ValueError) as error:
        raise InvalidRequest("not an object store", uri=location.uri, cause=_first_line(error)) from error
    return ObjectStore(objects, location.uri)


def _local_path(uri: str) -> str:
    address = urlsplit(uri)
    if address.netloc not in ("", "localhost"):
        raise InvalidRequest("a file address names another machine", uri=uri, hint="use file:///path")
    # Hadoop writes these addresses unescaped, so `#` and `?` belong to the path.
    return unquote(re.sub(r"^file:(//(localhost)?(?=/))?", "", uri, flags=re.IGNORECASE))


def _not_empty(path: str, uri: str) -> str:
    if not path or "\0" in path:
        raise InvalidRequest("not a path", uri=repr(uri))
    return path


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
