"""Calling a running push service over HTTP.

The credentials are a bearer token, or a whole header such as `Basic ...`; who
gives none gets those in `HOLDFAST_TOKEN`. They are sent to the address that
was given and nowhere else; redirects are not followed.
"""

import json
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from types import MappingProxyType
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidRequest,
    OutcomeUnknown,
    StorageUnavailable,
    TableNotFound,
)

CONTROLLER = "HOLDFAST_CONTROLLER"
TOKEN = "HOLDFAST_TOKEN"  # noqa: S105  # the name of a variable
DEFAULT_CONTROLLER = "http://127.0.0.1:9000"
DEFAULT_BROKER = "http://127.0.0.1:8099"

_TIMEOUT_SECONDS = 120
_ERRORS: Mapping[int, type[HoldfastError]] = {
    404: TableNotFound, 409: Conflict, 429: StorageUnavailable, 503: StorageUnavailable, 504: OutcomeUnknown,
}  # fmt: skip


WAITING_FOR_BROKERS: Mapping[str, Any] = MappingProxyType({"waitForBrokers": True, "brokerTimeoutMs": 60_000})
"""Parameters of a call that changes what queries see, answered when every broker has switched."""


def late_brokers(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """The brokers that had not switched when the service stopped waiting for them."""
    epoch, brokers = answer.get("epoch"), answer.get("brokers", {})
    return tuple(sorted(name for name, applied in brokers.items() if epoch is not None and applied < epoch))


class ServiceClient:
    def __init__(self, url: str, token: str = "", *, is_trusted: bool = True) -> None:
        """An address that the user did not give is not trusted: it gets no credentials."""
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise InvalidRequest("not the address of a service", url=url, hint="use http://host:port")
        self.url = url.rstrip("/")
        self._token = token
        self._is_trusted = is_trusted
        self._opener = urllib.request.build_opener(_NoRedirects())

    def get(self, path: str, *, timeout_s: float = _TIMEOUT_SECONDS, **query: object) -> Any:
        return self._call("GET", path, query, None, {}, timeout_s)

    def post(
        self,
        path: str,
        document: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _TIMEOUT_SECONDS,
        **query: object,
    ) -> Any:
        body = None if document is None else json.dumps(document).encode()
        return self._call("POST", path, query, body, headers or {}, timeout_s)

    def delete(self, path: str, *, timeout_s: float = _TIMEOUT_SECONDS, **query: object) -> Any:
        return self._call("DELETE", path, query, None, {}, timeout_s)

    def upload(
        self,
        path: str,
        name: str,
        content: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _TIMEOUT_SECONDS,
        **query: object,
    ) -> Any:
        """Send one file as a form."""
        boundary = uuid.uuid4().hex
        disposition = f'form-data; name="file"; filename="{name}"'
        head = f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n"
        body = b"".join((head.encode(), content, f"\r\n--{boundary}--\r\n".encode()))
        form = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        return self._call("POST", path, query, body, form | dict(headers or {}), timeout_s)

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Any:
        given = {name: _text(value) for name, value in query.items() if value is not None}
        request = urllib.request.Request(  # noqa: S310  # the scheme was checked
            f"{self.url}{path}" + (f"?{urlencode(given)}" if given else ""),
            method=method,
            data=body,
            headers={
                "Content-Type": "application/json",
                "X-Lineage-Status": "precise",
                **(_credentials(self._token) if self._is_trusted else {}),
                **headers,
            },
        )
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                return _decode(answer.read(), self.url)
        except urllib.error.HTTPError as error:
            with error:
                raise _failure(error.code, error.read(), self.url) from error
        except (OSError, HTTPException) as error:
            raise _unreachable(method, self.url, error) from error


def segments_path(table: str, *rest: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in ("segments", table, *rest))


def _credentials(given: str) -> dict[str, str]:
    token = (given or os.environ.get(TOKEN, "")).strip()
    if not token:
        return {}
    return {"Authorization": token if " " in token else f"Bearer {token}"}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decode(body: bytes, url: str) -> Any:
    if not body.strip():
        return {}
    try:
        return json.loads(body)
    except ValueError as error:
        raise InvalidRequest("the answer is not JSON", url=url, hint="is this the push service?") from error


def _failure(status: int, body: bytes, url: str) -> HoldfastError:
    """The service's own words as the error they stand for."""
    try:
        document = json.loads(body)
        message, code = str(document["error"]), str(document.get("errorCode", ""))
    except (ValueError, KeyError, TypeError):
        return InvalidRequest("the service refused", url=url, status=status, hint="is this the push service?")
    hint = {401: f"set {TOKEN}", 503: "the log of the service tells why"}.get(status, "")
    kind = InvalidRequest if status < 500 else HoldfastError
    return _ERRORS.get(status, kind)(message, hint=hint, **({"code": code} if code else {}))


def _unreachable(method: str, url: str, error: Exception) -> HoldfastError:
    reason = getattr(error, "reason", error)
    if method == "GET" or isinstance(reason, ConnectionRefusedError):
        return StorageUnavailable(
            "the service does not answer", url=url, cause=str(reason), hint="start it with holdfast serve"
        )
    # The request may have arrived before the connection broke.
    return OutcomeUnknown(
        "the service did not answer", url=url, cause=str(reason), hint="look before you repeat it"
    )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Refuse: the credentials are for the address that was given."""
