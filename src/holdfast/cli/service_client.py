"""Calling a running push service over HTTP.

`HOLDFAST_TOKEN` holds the credentials: a bearer token, or a whole header such
as `Basic ...`. They are sent to the address that was given and nowhere else;
redirects are not followed.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
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

TOKEN = "HOLDFAST_TOKEN"  # noqa: S105  # the name of a variable
DEFAULT_CONTROLLER = "http://127.0.0.1:9000"
DEFAULT_BROKER = "http://127.0.0.1:8099"

_TIMEOUT_SECONDS = 120
_ERRORS: Mapping[int, type[HoldfastError]] = {
    404: TableNotFound, 409: Conflict, 429: StorageUnavailable, 503: StorageUnavailable, 504: OutcomeUnknown,
}  # fmt: skip


class ServiceClient:
    def __init__(self, url: str) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise InvalidRequest("not the address of a service", url=url, hint="use http://host:port")
        self._url = url.rstrip("/")
        self._opener = urllib.request.build_opener(_NoRedirects())

    def get(self, path: str, **query: object) -> Any:
        return self._call("GET", path, query, None)

    def post(self, path: str, document: object = None, **query: object) -> Any:
        return self._call("POST", path, query, document)

    def _call(self, method: str, path: str, query: Mapping[str, object], document: object) -> Any:
        given = {name: _text(value) for name, value in query.items() if value is not None}
        request = urllib.request.Request(  # noqa: S310  # the scheme was checked
            f"{self._url}{path}" + (f"?{urlencode(given)}" if given else ""),
            method=method,
            data=None if document is None else json.dumps(document).encode(),
            headers={"Content-Type": "application/json", "X-Lineage-Status": "precise", **_credentials()},
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                return _decoded(answer.read(), self._url)
        except urllib.error.HTTPError as error:
            with error:
                raise _failure(error.code, error.read(), self._url) from error
        except (OSError, HTTPException) as error:
            raise _unreachable(method, self._url, error) from error


def segments_path(table: str, *rest: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in ("segments", table, *rest))


def _credentials() -> dict[str, str]:
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        return {}
    return {"Authorization": token if " " in token else f"Bearer {token}"}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(body: bytes, url: str) -> Any:
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
    hint = f"set {TOKEN}" if status == 401 else ""
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
