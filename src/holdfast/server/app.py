"""The applications: declared endpoints become routes that nobody passes unchecked.

Each route is wrapped when it is made: who calls, may they, is it too much,
then the body, then the handler. The check belongs to the route that matched,
so no spelling of a path can reach a handler around it.
"""

import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive

from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.server.auth import Access, On, Principal, authorise
from holdfast.server.endpoints import BodyKind, Call, Endpoint, Reply, Upload
from holdfast.server.errors import (
    REFUSALS,
    LoginRequired,
    RouteNotFound,
    TooMany,
    code_of,
    error_body,
    internal_body,
    status_of,
)
from holdfast.server.limits import check_declared_size, check_depth, too_large
from holdfast.server.origins import refuse_foreign_pages
from holdfast.server.service import Service
from holdfast.server.table_names import qualified

log = logging.getLogger(__name__)

_COUNTERS = {"numServersQueried": 0, "numServersResponded": 0}
"""Clients of Pinot look at these first; without them they hide the real error."""
_SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def build_app(service: Service, endpoints: Iterable[Endpoint], *, name: str, is_broker: bool) -> Starlette:
    """The application of these endpoints. Fails if one of its routes has no access declared."""
    gate = _Gate(service, name, is_broker=is_broker)
    routes: list[BaseRoute] = [gate.route(one) for one in endpoints]
    app = Starlette(routes=routes, exception_handlers={HTTPException: gate.not_served})
    app.router.redirect_slashes = False
    refuse_unguarded(app.router.routes)
    return app


def refuse_unguarded(routes: Iterable[BaseRoute]) -> None:
    """Every route must be one that was declared with its access."""
    for route in routes:
        if not isinstance(route, _GuardedRoute) or not isinstance(route.declared.access, Access):
            raise AssertionError(f"the route {getattr(route, 'path', route)} has no access declared")


class _GuardedRoute(Route):
    def __init__(self, declared: Endpoint, serve: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__(declared.path, serve, methods=[declared.method], name=declared.name)
        self.declared = declared


class _Gate:
    def __init__(self, service: Service, name: str, *, is_broker: bool) -> None:
        self._service = service
        self._name = name
        self._counters = _COUNTERS if is_broker else {}

    def route(self, declared: Endpoint) -> _GuardedRoute:
        async def serve(request: Request) -> Response:
            return await self._answer(request, declared)

        return _GuardedRoute(declared, serve)

    async def not_served(self, request: Request, error: Exception) -> Response:
        """No route matched, or none with this method."""
        assert isinstance(error, HTTPException)
        message = "the method is not served here" if error.status_code == 405 else "nothing is served here"
        refused = RouteNotFound(message, status=error.status_code, code="NOT_SERVED")
        response = self._refusal(refused, request_id=self._service.clock.unique(), is_precise=True)
        response.headers.update(error.headers or {})
        return response

    async def _answer(self, request: Request, declared: Endpoint) -> Response:
        service, request_id = self._service, self._service.clock.unique()
        started_ms, who, code = service.clock.elapsed_ms(), "", ""
        try:
            principal = await self._principal(request, declared)
            who = principal.name
            self._admit(request, declared, principal)
            async with _staging(declared) as folder:
                call = await self._read(request, declared, principal, request_id, folder)
                slots = service.queries if declared.is_query else service.calls
                reply = await slots.run(declared.handle, service, call)
            response = _rendered(reply)
        except HoldfastError as error:
            code = code_of(error)
            is_precise = request.headers.get("x-lineage-status", "").strip().lower() == "precise"
            response = self._refusal(error, request_id=request_id, is_precise=is_precise)
            if declared.is_change and isinstance(error, REFUSALS):
                self._note(request, declared, who, code, request_id)
        except ClientDisconnect:
            code = "DISCONNECTED"
            response = Response(status_code=400)
        except Exception:  # the server's outermost handler
            code = "INTERNAL"
            log.exception("http.failed", extra={"route": declared.name, "request_id": request_id})
            response = _json(internal_body(request_id=request_id) | self._counters, 500)
        response.headers["X-Request-Id"] = request_id
        took_ms = service.clock.elapsed_ms() - started_ms
        service.metrics.answered(self._name, declared, response.status_code, took_ms, code)
        log.log(
            logging.INFO if declared.is_change else logging.DEBUG,
            "http.answered",
            extra={
                "route": declared.name, "status": response.status_code, "took_ms": took_ms,
                "actor": who, "request_id": request_id, "code": code,
            },
        )  # fmt: skip
        return response

    def _note(self, request: Request, declared: Endpoint, who: str, code: str, request_id: str) -> None:
        """Keep a refused call that would have changed something."""
        table = request.path_params.get("table") or request.query_params.get("tableName") or ""
        self._service.refused.note(
            actor=who, address=_client(request), operation=declared.name, table=str(table), code=code,
            request_id=request_id,
        )  # fmt: skip

    async def _principal(self, request: Request, declared: Endpoint) -> Principal:
        """Who calls."""
        service, client = self._service, _client(request)
        refuse_foreign_pages(request.headers, is_open=not service.users.is_on)
        if declared.access.role is None:
            return Principal("", {})
        header = request.headers.get("authorization")
        principal = service.users.remembered(header)
        if principal is None:
            # The first comparison of a secret takes a core for a while: not on the loop.
            principal = await anyio.to_thread.run_sync(service.users.principal, header, client)
        return principal

    def _admit(self, request: Request, declared: Endpoint, principal: Principal) -> None:
        """Refuse who may not, or has used up their share."""
        service, is_open = self._service, declared.access.role is None
        is_by_name = service.users.is_on and not is_open
        service.rates.admit(f"user {principal.name}" if is_by_name else _client(request))
        if not is_open:
            authorise(principal, declared.access, _table(request, declared))

    async def _read(
        self, request: Request, declared: Endpoint, principal: Principal, request_id: str, folder: Path | None
    ) -> Call:
        body, upload = await self._body(request, declared, folder)
        query: dict[str, tuple[str, ...]] = {}
        for name, value in request.query_params.multi_items():
            query[name] = (*query.get(name, ()), value)
        return Call(
            endpoint=declared, principal=principal, request_id=request_id, client=_client(request),
            path=request.path_params, query=query, headers=request.headers, body=body, upload=upload,
            folder=folder,
        )  # fmt: skip

    async def _body(
        self, request: Request, declared: Endpoint, folder: Path | None
    ) -> tuple[bytes, Upload | None]:
        if declared.body is BodyKind.NONE:
            return b"", None
        limits = self._service.settings.limits
        most = limits.body_bytes if folder is None else limits.upload_bytes
        check_declared_size(request.headers.get("content-length"), most)
        bounded = Request(request.scope, _bounded(request.receive, most))
        is_form = request.headers.get("content-type", "").strip().lower().startswith("multipart/form-data")
        if folder is not None:
            return b"", await _staged(bounded, folder) if is_form else None
        body = await _part(bounded) if is_form else await bounded.body()
        if declared.body is BodyKind.JSON and not body.strip():
            raise InvalidRequest("a body is needed", code="BODY_MISSING")
        check_depth(body, limits.json_depth)
        return body, None

    def _refusal(self, error: HoldfastError, *, request_id: str, is_precise: bool) -> Response:
        status = status_of(error, is_precise=is_precise)
        if status >= 500:
            log.warning("http.refused", extra={"request_id": request_id, "cause": str(error)})
        response = _json(error_body(error, status=status, request_id=request_id) | self._counters, status)
        if isinstance(error, LoginRequired):
            response.headers["WWW-Authenticate"] = 'Basic realm="holdfast", charset="UTF-8"'
        if isinstance(error, TooMany):
            response.headers["Retry-After"] = str(error.retry_after_s)
        return response


def _table(request: Request, declared: Endpoint) -> str | None:
    """The table, in its database, on which the role must be held; None if the request names none."""
    database = request.headers.get("database")
    match declared.access.on:
        case On.PATH:
            return qualified(request.path_params["table"], database)
        case On.QUERY | On.QUERY_OR_EVERY:
            named = request.query_params.getlist("tableName")
            if len(named) > 1:
                # Which of them counts must not depend on who reads the request.
                raise InvalidRequest(
                    "a parameter stands twice", parameter="tableName", code="PARAMETER_INVALID"
                )
            given = named[0].strip() if named else ""
            if not given and declared.access.on is On.QUERY:
                raise InvalidRequest(
                    "a parameter is missing", parameter="tableName", code="PARAMETER_MISSING"
                )
            return qualified(given, database) if given else None
        case On.EVERY | On.SOME:
            return None


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _bounded(receive: Receive, most_bytes: int) -> Receive:
    """Messages of a request until its body is larger than the limit, whatever it announced."""
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most_bytes:
            raise too_large(most_bytes)
        return message

    return bounded


@asynccontextmanager
async def _staging(declared: Endpoint) -> AsyncIterator[Path | None]:
    """A folder for the files that an upload brings or fetches."""
    if declared.body is not BodyKind.UPLOAD:
        yield None
        return
    folder = await anyio.to_thread.run_sync(tempfile.mkdtemp, "", "holdfast-")
    try:
        yield Path(folder)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(shutil.rmtree, folder, True)


@asynccontextmanager
async def _one_part(request: Request) -> AsyncIterator[UploadFile]:
    """The one file of a form."""
    try:
        form = await request.form(max_files=1, max_fields=0)
    except HTTPException as error:
        raise _not_one_file(str(error.detail)) from error
    try:
        parts = [part for _, part in form.multi_items()]
        if len(parts) != 1 or not isinstance(parts[0], UploadFile):
            raise _not_one_file(f"{len(parts)} parts")
        yield parts[0]
    finally:
        await form.close()


async def _staged(request: Request, folder: Path) -> Upload:
    async with _one_part(request) as part:
        path = folder / "part"
        await anyio.to_thread.run_sync(_copy, part, path)
        return Upload(name=part.filename or "", path=path)


async def _part(request: Request) -> bytes:
    async with _one_part(request) as part:
        return await part.read()


def _copy(part: UploadFile, path: Path) -> None:
    with path.open("xb") as sink:
        shutil.copyfileobj(part.file, sink, 1024 * 1024)


def _not_one_file(cause: str) -> InvalidRequest:
    return InvalidRequest("the form is not one file", cause=cause, code="FORM_INVALID")


def _rendered(reply: Reply) -> Response:
    if reply.chunks is not None:
        return StreamingResponse(
            reply.chunks,
            reply.status,
            headers={**_SAFE_HEADERS, **reply.headers},
            media_type=reply.media_type,
        )
    if reply.text is not None:
        return Response(
            reply.text, reply.status, headers={**_SAFE_HEADERS, **reply.headers}, media_type=reply.media_type
        )
    if reply.document is None:
        return Response(b"", reply.status, headers={**_SAFE_HEADERS, **reply.headers})
    return _json(reply.document, reply.status, reply.headers)


def _json(document: Any, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(document), status, headers={**_SAFE_HEADERS, **(headers or {})},
        media_type="application/json",
    )  # fmt: skip
