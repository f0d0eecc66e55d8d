"""Requests that a web page of somebody else makes in a user's browser.

A service on the loopback address is within reach of every page that is open
on the machine. Browsers say where a request comes from, and under which name
they found this host; both must be ours.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from holdfast.server.errors import AccessDenied


def refuse_foreign_pages(headers: Mapping[str, str], *, is_open: bool) -> None:
    """`AccessDenied` for a request that another site caused.

    `is_open`: no login is needed, so that the name in `Host` must be one of
    this machine, or a page could rename its own host to the loopback address.
    """
    host = headers.get("host", "")
    origin = headers.get("origin")
    if origin is not None and _netloc(origin).lower() != host.lower():
        raise AccessDenied("the request comes from another site", code="FOREIGN_ORIGIN")
    if headers.get("sec-fetch-site", "none").lower() in ("cross-site", "same-site"):
        raise AccessDenied("the request comes from another site", code="FOREIGN_ORIGIN")
    if is_open and not _is_loopback(host):
        raise AccessDenied("the host is not a name of this machine", code="FOREIGN_HOST")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""  # No site, so not this one.


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
