"""Fetching what an upload names by address.

Nothing is fetched from anywhere that the configuration does not list: a
`file:` address must lie beneath a root, an http or https one must name a
listed host. The host is resolved once, its address checked and then connected
to, so that no second answer of a name server can lead elsewhere; each redirect
is checked anew.
"""

import errno
import http.client
import ipaddress
import os
import re
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from holdfast.config.server import Downloads
from holdfast.errors import InvalidRequest, Refused, StorageUnavailable
from holdfast.push.uploads.receive import (
    Take,
    take_freely,
)

_REDIRECTS_MAX = 3
_CONNECT_SECONDS = 10
_WHOLE_SECONDS = 600
_CHUNK = 1024 * 1024
_PORTS = {"http": 80, "https": 443}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._=+@~-]+")
_DIGITS_ONLY = re.compile(r"[0-9a-fx.]+", re.IGNORECASE)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class _Target:
    """Where to connect: the address that was checked, and the name it was asked for."""

    address: str
    host: str
    port: int
    is_tls: bool
    path: str


class Sources:
    def __init__(self, allowed: Downloads, *, most_bytes: int) -> None:
        self._allowed = allowed
        self._most_bytes = most_bytes

    def canonical_uri(self, uri: str) -> str:
        """The one spelling of an allowed file that is there, which means the same to every reader.

        Spark understands patterns, and neither decodes nor cuts off what follows a
        question mark; so the address as it came must never be handed over.
        """
        parts = _split(uri)
        if parts.scheme != "file":
            raise _refusal("queries read files only; what is on the web is copied first")
        root, names = self._beneath(parts)
        if not all(map(_PLAIN_NAME.fullmatch, names)):
            raise _refusal("a name in the path has other characters than letters, digits and ._=+@~-")
        with self._file(parts):
            return f"file://{root.rstrip('/')}/{'/'.join(names)}"

    def fetch(self, uri: str, target: Path, take: Take = take_freely) -> None:
        """Write what is at the address into a new file; each piece is claimed before it is written."""
        parts = _split(uri)
        with target.open("xb") as sink:
            if parts.scheme == "file":
                with self._file(parts) as source:
                    self._copy(source, sink, take)
            else:
                self._download(parts, sink, take)

    def _beneath(self, parts: SplitResult) -> tuple[str, list[str]]:
        """The root that the path lies beneath, and the names from there on."""
        if parts.netloc not in ("", "localhost"):
            raise _refusal("a file address names another machine")
        path = unquote(parts.path)
        names = path.split("/")[1:]
        if not path.startswith("/") or any(name in ("", ".", "..") or "\0" in name for name in names):
            raise _refusal("the path of the address is not plain")
        for root in self._allowed.roots:
            start = root.rstrip("/").split("/")[1:] if root.rstrip("/") else []
            if "://" not in root and names[: len(start)] == start and len(names) > len(start):
                return root, names[len(start) :]
        raise _refusal("the address is not beneath a configured root")

    @contextmanager
    def _file(self, parts: SplitResult) -> Iterator[BinaryIO]:
        root, names = self._beneath(parts)
        with os.fdopen(_open_beneath(root, names), "rb") as source:
            yield source

    def _download(self, parts: SplitResult, sink: BinaryIO, take: Take) -> None:
        deadline = time.monotonic() + _WHOLE_SECONDS
        for _ in range(_REDIRECTS_MAX + 1):
            connection = _connection(self._target(parts))
            try:
                connection.request("GET", _request_path(parts), headers={"Host": parts.netloc})
                answer = connection.getresponse()
                if answer.status in (301, 302, 303, 307, 308):
                    parts = _split(urljoin(parts.geturl(), answer.getheader("Location", "")))
                    if parts.scheme == "file":
                        raise _refusal("the address leads to a file")
                    continue
                if answer.status != 200:
                    raise InvalidRequest(
                        "the address did not give the file", status=answer.status, code="URI_FAILED"
                    )
                self._copy(answer, sink, take, deadline)
                return
            except (OSError, http.client.HTTPException) as error:
                raise StorageUnavailable(
                    "the address does not answer", uri=parts.geturl(), cause=type(error).__name__,
                    code="URI_FAILED",
                ) from error  # fmt: skip
            finally:
                connection.close()
        raise _refusal("the address redirects too often")

    def _target(self, parts: SplitResult) -> _Target:
        host, port = self._host_and_port(parts)
        return _Target(self._resolve(host, port), host, port, parts.scheme == "https", parts.path)

    def _host_and_port(self, parts: SplitResult) -> tuple[str, int]:
        """Host and port, if the configuration lists them."""
        try:
            host, port = (parts.hostname or "").rstrip("."), parts.port
        except ValueError as error:
            raise _refusal("the address has no proper port") from error
        if parts.username is not None or parts.password is not None:
            raise _refusal("the address holds credentials")
        with_port = f"{host}:{port or _PORTS[parts.scheme]}"
        if port in (None, _PORTS[parts.scheme]):
            is_listed = host in self._allowed.hosts or with_port in self._allowed.hosts
        else:
            is_listed = with_port in self._allowed.hosts
        if not host or not is_listed:
            raise _refusal("the host of the address is not configured")
        return host, port or _PORTS[parts.scheme]

    def _resolve(self, host: str, port: int) -> str:
        """One address of the host; every one of them must be allowed."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise StorageUnavailable(
                "the host of the address is not known", host=host, code="URI_FAILED"
            ) from error
        addresses = [str(one[4][0]) for one in found]
        for address in addresses:
            if not self._may_connect(ipaddress.ip_address(address.partition("%")[0])):
                raise _refusal("the host of the address is in a network that is not configured")
        return addresses[0]

    def _may_connect(self, address: Address) -> bool:
        meant = _inner_address(address)
        if any(meant in network for network in self._allowed.networks if network.version == meant.version):
            return True
        return all(map(_is_public, _addresses_on_way(address)))

    def _copy(
        self,
        source: BinaryIO | http.client.HTTPResponse,
        sink: BinaryIO,
        take: Take,
        deadline: float = 0,
    ) -> None:
        copied = 0
        while chunk := source.read(_CHUNK):
            copied += len(chunk)
            if copied > self._most_bytes:
                raise InvalidRequest(
                    "the file at the address is too large",
                    limit_bytes=self._most_bytes,
                    code="BODY_TOO_LARGE",
                )
            if deadline and time.monotonic() > deadline:
                raise StorageUnavailable("the address answers too slowly", code="URI_FAILED")
            take(len(chunk))
            sink.write(chunk)


def _split(uri: str) -> SplitResult:
    if not uri.isascii() or not uri.isprintable() or " " in uri or "\\" in uri:
        raise _refusal("the address is not plain")
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise _refusal("the address cannot be read") from error
    if parts.scheme not in ("file", *_PORTS):
        raise _refusal("the scheme of the address is not served")
    if parts.scheme == "file" and ("?" in uri or "#" in uri):
        raise _refusal("a file address has no question mark and no number sign")
    host = parts.hostname or ""
    if parts.scheme != "file" and _DIGITS_ONLY.fullmatch(host) and not _is_dotted(host):
        # 2130706433, 0x7f.1 and 0177.0.0.1 are addresses to some resolvers.
        raise _refusal("the host of the address is written in an odd way")
    return parts


def _is_dotted(host: str) -> bool:
    if not any(char.isdigit() for char in host.rpartition(".")[2]):
        return True  # A name: its last label has letters only.
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _networks(*texts: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All that is given out of IPv6; what else there is has a special purpose, or none yet."""
_NOT_PUBLIC = _networks(
    "192.0.0.0/24", "192.88.99.0/24", "3fff::/20", "5f00::/16", "100:0:0:1::/64", "fec0::/10", "2001::/23"
)  # fmt: skip
"""Special purposes that Python does not know of in all versions, or calls global."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_V4_BEHIND = _networks("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48")
"""Networks whose addresses end with an IPv4 address, or hold one, that a gateway may connect to."""
_ISATAP = (0x00005EFE, 0x02005EFE)


def _is_public(address: Address) -> bool:
    if address.version == 6 and address not in _GLOBAL_UNICAST:
        return False
    is_special = any(address in network for network in _NOT_PUBLIC if network.version == address.version)
    return address.is_global and not address.is_multicast and not is_special


def _inner_address(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one, if there is one."""
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    known = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
    if known is not None:
        return known
    is_behind = address in _NAT64 or any(address in network for network in _V4_BEHIND)
    if (is_behind or int(address) >> 32 & 0xFFFFFFFF in _ISATAP) and int(address) > 1:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _addresses_on_way(address: Address) -> tuple[Address, ...]:
    """Every address that a connection to this one goes to or through: each must be public."""
    meant = _inner_address(address)
    if not isinstance(address, ipaddress.IPv6Address) or meant == address:
        return (meant,)
    if address.ipv4_mapped is not None or address.sixtofour is not None or address in _NAT64:
        return (meant,)
    # Old kinds of tunnels, whose ends cannot be known.
    return (meant, address)


def _open_beneath(root: str, names: list[str]) -> int:
    """A descriptor of a regular file, reached without following any link below the root."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Without O_NONBLOCK a pipe would keep the caller waiting for a writer.
        file = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
            raise InvalidRequest("there is no such file at the address", code="URI_FAILED") from error
        raise StorageUnavailable(
            "the file cannot be opened", cause=error.strerror, code="URI_FAILED"
        ) from error
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _refusal("the address does not name a regular file")
    return file


def _connection(target: _Target) -> http.client.HTTPConnection:
    connection: http.client.HTTPConnection
    if target.is_tls:
        connection = _PinnedTls(target)
    else:
        connection = http.client.HTTPConnection(target.address, target.port, timeout=_CONNECT_SECONDS)
    return connection


class _PinnedTls(http.client.HTTPSConnection):
    """Connects to the checked address, and verifies the certificate of the name."""

    def __init__(self, target: _Target) -> None:
        context = ssl.create_default_context()
        super().__init__(target.address, target.port, timeout=_CONNECT_SECONDS, context=context)
        self._name = target.host
        self._context_of_name = context

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), self.timeout)
        self.sock = self._context_of_name.wrap_socket(plain, server_hostname=self._name)


def _request_path(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _refusal(message: str) -> Refused:
    return Refused(message, code="URI_REFUSED", hint="see downloads in the configuration of the service")
