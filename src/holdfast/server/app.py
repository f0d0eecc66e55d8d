"""The applications: declared endpoints become routes, and every request is checked.

Each route is wrapped when it is made: who calls, may they, is it too much,
then the body, then the handler. The check belongs to the route that matched,
so no spelling of a path can reach a handler around it.
"""

import logging
import shutil
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive

from holdfast.config.server import Limits, Role
from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.server.auth import Access, On, Principal, authorise
from holdfast.server.documents import Document, Download
from holdfast.server.endpoints import BodyKind, Call, Endpoint, Upload
from holdfast.server.errors import (
    REFUSALS,
    LoginRequired,
    RouteNotFound,
    TooLate,
    TooMany,
    TooSlow,
    code_of,
    error_body,
    internal_body,
    status_of,
)
from holdfast.server.limits import Budget, Room, check_declared_size, check_depth, network_of, too_large
from holdfast.server.origins import refuse_foreign_pages
from holdfast.server.parameters import Parameters, Place, read_parameters
from holdfast.server.service import Service
from holdfast.server.table_names import qualify

log = logging.getLogger(__name__)

_COUNTERS = {"numServersQueried": 0, "numServersResponded": 0}
"""Clients of Pinot look at these first; without them they hide the real error."""
_ON_LOOP_BYTES = 16 * 1024
"""A body up to this size is checked on the event loop; a larger one would keep all other requests waiting."""
_DEADLINES_AT_ONCE = 2
"""Reading a statement to find its deadline takes a core for a moment."""
_LOGINS_AT_ONCE = 2
"""Comparing a secret takes a core for a moment, too."""
_READERS_OF_DOWNLOADS = 4
_SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def build_app(
    service: Service, endpoints: Iterable[Endpoint[Any]], *, name: str, is_broker: bool
) -> Starlette:
    """The application of these endpoints. Fails if one of its routes has no access declared."""
    guard = _RequestGuard(service, name, is_broker=is_broker)
    routes: list[BaseRoute] = [guard.route(one) for one in endpoints]
    app = Starlette(routes=routes, exception_handlers={HTTPException: guard.not_served})
    app.router.redirect_slashes = False
    refuse_unguarded(app.router.routes)
    return app


def refuse_unguarded(routes: Iterable[BaseRoute]) -> None:
    """Every route must be one that was declared with its access."""
    for route in routes:
        if not isinstance(route, _GuardedRoute) or not isinstance(route.declared.access, Access):
            raise AssertionError(f"the route {getattr(route, 'path', route)} has no access declared")
        role = route.declared.access.role
        if route.declared.has_list and (role is None or role < Role.WRITE):
            raise AssertionError(f"the route {route.path} takes large bodies from readers")


class _GuardedRoute(Route):
    def __init__(self, declared: Endpoint[Any], serve: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__(declared.path, serve, methods=[declared.method], name=declared.name)
        self.declared = declared


class _RequestGuard:
    """What a request passes before its handler: who calls, what they may do, how much at a time."""

    def __init__(self, service: Service, name: str, *, is_broker: bool) -> None:
        self._service = service
        self._name = name
        self._counters = _COUNTERS if is_broker else {}
        self._reading_deadlines = anyio.CapacityLimiter(_DEADLINES_AT_ONCE)
        self._comparing_secrets = anyio.CapacityLimiter(_LOGINS_AT_ONCE)
        self._reading_downloads = anyio.CapacityLimiter(_READERS_OF_DOWNLOADS)

    def route(self, declared: Endpoint[Any]) -> _GuardedRoute:
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

    async def _answer(self, request: Request, declared: Endpoint[Any]) -> Response:
        service, request_id = self._service, self._service.clock.unique()
        started_ms, who, code = service.clock.monotonic_ms(), "", ""
        began_s = time.monotonic()
        try:
            principal = await self._principal(request, declared)
            who = principal.name
            self._admit(request, declared, principal)
            with self._budget(declared).room(who) as room:
                async with _staging(declared) as folder:
                    call = await self._read(request, declared, principal, request_id, folder, room, began_s)
                    response = await self._run(declared, call)
            self._keep(response, declared, who)
        except HoldfastError as error:
            code = code_of(error)
            is_precise = request.headers.get("x-lineage-status", "").strip().lower() == "precise"
            response = self._refusal(error, request_id=request_id, is_precise=is_precise)
            if declared.is_change and isinstance(error, REFUSALS):
                self._note(request, declared, who, code, request_id)
            # An error that crosses threads goes in circles with its frames, and with them what a large
            # body became would stay until the collector has a look at everything.
            traceback.clear_frames(error.__traceback__)
        except ClientDisconnect:
            code = "DISCONNECTED"
            response = Response(status_code=400)
        except Exception:  # the server's outermost handler
            code = "INTERNAL"
            log.exception("http.failed", extra={"route": declared.name, "request_id": request_id})
            response = _json(internal_body(request_id=request_id) | self._counters, 500)
        response.headers["X-Request-Id"] = request_id
        took_ms = service.clock.monotonic_ms() - started_ms
        service.metrics.count_answer(self._name, declared, response.status_code, took_ms, code)
        log.log(
            logging.INFO if declared.is_change else logging.DEBUG,
            "http.answered",
            extra={
                "route": declared.name, "status": response.status_code, "took_ms": took_ms,
                "actor": who, "request_id": request_id, "code": code,
            },
        )  # fmt: skip
        return response

    async def _run(self, declared: Endpoint[Any], call: Call[Parameters]) -> Response:
        service = self._service
        if declared.is_immediate:
            return _reply_to(declared, service, call)
        # Who needs no login has a share by network.
        who = call.principal.name or network_of(call.client)
        if declared.is_download:
            return await self._download(declared, call, who)
        if not declared.is_query:
            return await service.bounds.calls.run(who, _reply_to, declared, service, call)
        deadline_s = await self._deadline(declared, call)
        try:
            return await service.bounds.queries.run(
                call.principal.name, _reply_to, declared, service, call, deadline_s=deadline_s
            )
        except TooLate:
            if declared.deadline is None:
                raise
            # It knows how to tell this to its clients, and does nothing else so late.
            return await service.bounds.calls.run(who, _reply_to, declared, service, call)

    async def _download(self, declared: Endpoint[Any], call: Call[Parameters], who: str) -> Response:
        """An answer that counts as one of the user's downloads until it is sent."""
        room = self._service.bounds.downloads.open_room(who)
        room.take(1)
        try:
            response = await self._service.bounds.calls.run(who, _reply_to, declared, self._service, call)
        except BaseException:
            room.close()
            raise
        assert isinstance(response, Download), "it is declared as one"
        response.readers = self._reading_downloads
        response.on_sent = room.close
        return response

    async def _deadline(self, declared: Endpoint[Any], call: Call[Parameters]) -> float | None:
        """When the call must have its turn. Finding out may mean to look at a whole statement."""
        if declared.deadline is None:
            return None
        return await anyio.to_thread.run_sync(
            declared.deadline, self._service, call, limiter=self._reading_deadlines
        )

    def _budget(self, declared: Endpoint[Any]) -> Budget:
        bounds = self._service.bounds
        return bounds.staged if declared.body is BodyKind.UPLOAD else bounds.bodies

    def _keep(self, response: Response, declared: Endpoint[Any], who: str) -> None:
        """Count an answer until the client has taken it. `TooMany` if too many others wait for their clients.

        The answer to a change is always sent, and takes little room.
        """
        if isinstance(response, Document) and not declared.is_change:
            room = self._service.bounds.answers.open_room(who)
            room.take(len(response.body))
            response.on_sent = room.close

    def _note(self, request: Request, declared: Endpoint[Any], who: str, code: str, request_id: str) -> None:
        """Keep a refused call that would have changed something."""
        table = request.path_params.get("table") or request.query_params.get("tableName") or ""
        self._service.refused.note(
            actor=who, address=_client(request), operation=declared.name, table=str(table), code=code,
            request_id=request_id,
        )  # fmt: skip

    async def _principal(self, request: Request, declared: Endpoint[Any]) -> Principal:
        """Who calls."""
        service, client = self._service, _client(request)
        refuse_foreign_pages(request.headers, is_open=not service.users.is_on)
        if declared.access.role is None:
            return Principal("", {})
        header = request.headers.get("authorization")
        principal = service.users.recall(header)
        if principal is None:
            # The first comparison of a secret takes a core for a while: not on the loop.
            principal = await anyio.to_thread.run_sync(
                service.users.principal, header, client, limiter=self._comparing_secrets
            )
        return principal

    def _admit(self, request: Request, declared: Endpoint[Any], principal: Principal) -> None:
        """Refuse who may not, or has used up their share."""
        service, is_open = self._service, declared.access.role is None
        is_by_name = service.users.is_on and not is_open
        service.bounds.rates.admit(f"user {principal.name}" if is_by_name else network_of(_client(request)))
        if not is_open:
            authorise(principal, declared.access, _table(request, declared))

    async def _read(
        self,
        request: Request,
        declared: Endpoint[Any],
        principal: Principal,
        request_id: str,
        folder: Path | None,
        room: Room,
        began_s: float,
    ) -> Call[Parameters]:
        body, upload = await self._body(request, declared, folder, room)
        return Call(
            parameters=read_parameters(declared.parameters, partial(_texts, request)), principal=principal,
            request_id=request_id, client=_client(request), began_s=began_s, headers=request.headers,
            body=body, upload=upload, folder=folder,
            # Handlers run in threads, and the budget lives on the loop.
            take=lambda size: anyio.from_thread.run_sync(room.take, size),
        )  # fmt: skip

    async def _body(
        self, request: Request, declared: Endpoint[Any], folder: Path | None, room: Room
    ) -> tuple[bytes, Upload | None]:
        if declared.body is BodyKind.NONE:
            return b"", None
        limits = self._service.settings.limits
        most = _most_bytes(limits, declared)
        check_declared_size(request.headers.get("content-length"), most)
        bounded = Request(request.scope, _limit_body(request.receive, most, _Pace.of(limits, declared), room))
        is_form = request.headers.get("content-type", "").strip().lower().startswith("multipart/form-data")
        if folder is not None:
            return b"", await _stage(bounded, folder, room) if is_form else None
        body = await _part(bounded) if is_form else await bounded.body()
        if declared.body is BodyKind.JSON and not body.strip():
            raise InvalidRequest("a body is needed", code="BODY_MISSING")
        if len(body) > _ON_LOOP_BYTES:
            await anyio.to_thread.run_sync(check_depth, body, limits.json_depth)
        else:
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


def _table(request: Request, declared: Endpoint[Any]) -> str | None:
    """The table, in its database, on which the role must be held; None if the request names none."""
    database = request.headers.get("database")
    match declared.access.on:
        case On.PATH:
            return qualify(request.path_params["table"], database)
        case On.QUERY | On.QUERY_OR_EVERY:
            named = request.query_params.getlist("tableName")
            # Pinot's own client says the same twice.
            if len(set(named)) > 1:
                # Which of them counts must not depend on who reads the request.
                raise InvalidRequest(
                    "a parameter stands twice", parameter="tableName", code="PARAMETER_INVALID"
                )
            given = named[0].strip() if named else ""
            if not given and declared.access.on is On.QUERY:
                raise InvalidRequest(
                    "a parameter is missing", parameter="tableName", code="PARAMETER_MISSING"
                )
            return qualify(given, database) if given else None
        case On.EVERY | On.SOME:
            return None


def _texts(request: Request, place: Place, name: str) -> tuple[str, ...]:
    """The values of a parameter."""
    match place:
        case Place.PATH:
            return (str(request.path_params[name]),)
        case Place.HEADER:
            return tuple(request.headers.getlist(name)[:1])
        case Place.QUERY:
            return tuple(request.query_params.getlist(name))


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _most_bytes(limits: Limits, declared: Endpoint[Any]) -> int:
    if declared.body is BodyKind.UPLOAD:
        return limits.upload_bytes
    if declared.has_list:
        return limits.list_body_bytes
    return limits.query_body_bytes if declared.has_statement else limits.body_bytes


@dataclass(frozen=True, slots=True)
class _Pace:
    """How fast a body must come."""

    began_s: float
    whole_s: float
    """For all of it, but for what `rate` adds."""
    rate: int | None
    """Bytes that earn another second; None: nothing does."""

    @staticmethod
    def of(limits: Limits, declared: Endpoint[Any]) -> "_Pace":
        rate = limits.upload_rate_bytes if declared.body is BodyKind.UPLOAD else None
        return _Pace(time.monotonic(), limits.body_timeout_ms / 1000, rate)

    def remaining_s(self, received: int) -> float:
        """How long the next piece may take: never longer than the whole of a small body."""
        earned_s = 0.0 if self.rate is None else received / self.rate
        return min(self.whole_s, self.began_s + self.whole_s + earned_s - time.monotonic())


def _limit_body(receive: Receive, most_bytes: int, pace: _Pace, room: Room) -> Receive:
    """Messages of a request, until its body is larger or slower than it may be, whatever it announced."""
    received = 0

    async def receive_bounded() -> Message:
        nonlocal received
        with anyio.move_on_after(max(0.0, pace.remaining_s(received))) as waiting:
            message = await receive()
        if waiting.cancelled_caught:
            raise TooSlow("the body does not come", limit_s=pace.whole_s, code="BODY_TOO_SLOW")
        size = len(message.get("body", b""))
        received += size
        if received > most_bytes:
            raise too_large(most_bytes)
        room.take(size)
        return message

    return receive_bounded


@asynccontextmanager
async def _staging(declared: Endpoint[Any]) -> AsyncIterator[Path | None]:
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


async def _stage(request: Request, folder: Path, room: Room) -> Upload:
    async with _one_part(request) as part:
        path = folder / "part"
        # The form has a file of its own, which goes when this one is complete.
        room.take(part.size or 0)
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


def _reply_to(declared: Endpoint[Any], service: Service, call: Call[Parameters]) -> Response:
    """The answer of a handler as bytes, made where it does not keep the event loop from others."""
    reply = declared.handle(service, call)
    headers = {**_SAFE_HEADERS, **reply.headers}
    if reply.chunks is not None:
        return Download(reply.chunks, reply.status, headers=headers, media_type=reply.media_type)
    if reply.text is not None:
        return Response(reply.text, reply.status, headers=headers, media_type=reply.media_type)
    if reply.document is None:
        return Response(b"", reply.status, headers=headers)
    return Document(reply.document, reply.status, headers=headers)


def _json(document: Any, status: int) -> Response:
    return Document(document, status, headers=_SAFE_HEADERS)
