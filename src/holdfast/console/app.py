"""The console as an application: every page is checked before it looks at anything.

Who calls, may they, is the form one of ours; then the page. What is refused is
a page, too, or JSON. Nothing is changed by GET.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.config.server import Role
from holdfast.console.pages import routes
from holdfast.console.rendering import as_json, render
from holdfast.console.sessions import COOKIE
from holdfast.console.site import Site
from holdfast.console.visits import Answer, File, On, Page, Redirect, SignIn, View, Visit
from holdfast.errors import HoldfastError
from holdfast.server.auth import Principal, denial
from holdfast.server.errors import (
    AccessDenied,
    LoginRequired,
    RouteNotFound,
    TooMany,
    TooSlow,
    error_body,
    internal_body,
    status_of,
)
from holdfast.server.limits import check_declared_size, network_of, too_large
from holdfast.server.origins import refuse_foreign_pages

log = logging.getLogger(__name__)

ROOT = "/console"
_NOBODY = Principal("", {})
_LOGINS_AT_ONCE = 2
_BODY_SECONDS = 30
_FIELDS_MAX = 50
_KEEP = "public, max-age=3600"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


def build_console(site: Site, pages: Iterable[Page] | None = None) -> Starlette:
    """The application of the pages, by default all of them."""
    guard = _Guard(site)
    made: list[BaseRoute] = [guard.route(page) for page in (routes.PAGES if pages is None else pages)]
    app = Starlette(routes=made, exception_handlers={HTTPException: guard.not_served})
    app.router.redirect_slashes = False
    return app


class WithConsole:
    """The application of a port, with the console at `/` and below `/console`."""

    def __init__(self, console: ASGIApp, other: ASGIApp) -> None:
        self._console = console
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        is_page = path in ("/", ROOT, "/favicon.ico") or path.startswith(f"{ROOT}/")
        await (self._console if is_page else self._other)(scope, receive, send)


@dataclass(slots=True)
class _Who:
    principal: Principal
    cookie: str
    is_new: bool
    """Whether the browser has to be given the cookie."""
    is_signed_in: bool


class _Guard:
    """What a request passes before its page, and the form of every answer."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._logins = anyio.CapacityLimiter(_LOGINS_AT_ONCE)

    def route(self, page: Page) -> Route:
        async def serve(request: Request) -> Response:
            return await self._serve(request, page)

        route = Route(page.path, serve, methods=[page.method], name=page.name)
        # Starlette would answer HEAD, too.
        route.methods = {page.method}
        return route

    async def not_served(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = "the method is not served here" if error.status_code == 405 else "nothing is served here"
        refused = RouteNotFound(message, status=error.status_code, code="NOT_SERVED")
        response = self._refusal(request, None, refused, self._site.clock.unique())
        response.headers.update({**_HEADERS, **(error.headers or {})})
        return response

    async def _serve(self, request: Request, page: Page) -> Response:
        site, request_id = self._site, self._site.clock.unique()
        who: _Who | None = None
        try:
            self._refuse_others(request, page)
            who = await self._find_out_who(request)
            self._admit(request, page, who)
            form = await _read_form(request, page)
            self._check_form(page, who, form)
            visit = Visit(
                principal=who.principal, is_signed_in=who.is_signed_in, client=_client(request),
                request_id=request_id, path=request.path_params, query=dict(request.query_params), form=form,
            )  # fmt: skip
            caller = who.principal.name or network_of(_client(request))
            response = await site.bounds.calls.run(caller, self._answer, request, page, who, visit)
        except HoldfastError as error:
            response = self._refusal(request, who, error, request_id)
        except ClientDisconnect:
            response = Response(status_code=400)
        except Exception:  # the outermost handler of the console
            table = request.path_params.get("table", "")
            log.exception(
                "console.failed", extra={"page": page.name, "table": table, "request_id": request_id}
            )
            response = self._page_of_error(request, who, internal_body(request_id=request_id), 500)
        response.headers.update({name: _HEADERS[name] for name in _HEADERS if name not in response.headers})
        response.headers["X-Request-Id"] = request_id
        if who is not None and who.is_new:
            self._set_cookie(response, who.cookie)
        log.log(
            logging.INFO if page.is_change else logging.DEBUG,
            "console.answered",
            extra={
                "page": page.name, "status": response.status_code, "request_id": request_id,
                "actor": who.principal.name if who else "",
            },
        )  # fmt: skip
        return response

    def _refuse_others(self, request: Request, page: Page) -> None:
        """Requests that pages of others make. A link that somebody follows to a page is none."""
        headers = dict(request.headers)
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if is_link and not page.is_change:
            headers.pop("sec-fetch-site", None)
        refuse_foreign_pages(headers, is_open=not self._site.users.is_on)

    async def _find_out_who(self, request: Request) -> _Who:
        site = self._site
        given = request.cookies.get(self._cookie_name)
        is_known = site.sessions.is_cookie(given)
        cookie = given if given is not None and is_known else site.sessions.new_cookie()
        if not site.users.is_on:
            return _Who(site.anonymous, cookie, not is_known, is_signed_in=False)
        header = request.headers.get("authorization")
        if header is not None:
            principal = site.users.recall(header)
            if principal is None:
                principal = await anyio.to_thread.run_sync(
                    site.users.principal, header, _client(request), limiter=self._logins
                )
            return _Who(principal, cookie, not is_known, is_signed_in=False)
        name = site.sessions.user(cookie)
        if name is None:
            return _Who(_NOBODY, cookie, not is_known, is_signed_in=False)
        try:
            return _Who(site.users.principal_named(name), cookie, not is_known, is_signed_in=True)
        except LoginRequired:
            site.sessions.end(cookie)
            return _Who(_NOBODY, cookie, not is_known, is_signed_in=False)

    def _admit(self, request: Request, page: Page, who: _Who) -> None:
        site, principal = self._site, who.principal
        by_name = site.users.is_on and bool(principal.name)
        site.bounds.rates.admit(f"user {principal.name}" if by_name else network_of(_client(request)))
        if page.on is On.NOTHING:
            return
        if not principal.name:
            raise LoginRequired("sign in to see this", code="LOGIN_REQUIRED")
        table = request.path_params.get("table")
        if page.on is On.SOME and not principal.may_somewhere(page.role):
            raise denial(page.role, None)
        if page.on is On.TABLE and not principal.may(page.role, str(table)):
            raise denial(page.role, str(table))

    def _check_form(self, page: Page, who: _Who, form: dict[str, str]) -> None:
        if page.is_change and not self._site.sessions.is_token(who.cookie, form.get("token", "")):
            raise AccessDenied(
                "the form is not one of this session", code="FORM_FOREIGN", hint="load the page again"
            )

    def _answer(self, request: Request, page: Page, who: _Who, visit: Visit) -> Response:
        answer: Answer = page.handle(self._site, visit)
        match answer:
            case Redirect(to):
                return Response(status_code=303, headers={"Location": to})
            case File():
                headers = {"Cache-Control": _KEEP} if answer.is_kept else {}
                if answer.name is not None:
                    headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(answer.name)}"
                return Response(answer.content, media_type=answer.media_type, headers=headers)
            case SignIn(user, to):
                self._site.sessions.end(who.cookie)
                cookie = self._site.sessions.new_cookie() if user is None else self._site.sessions.begin(user)
                response = Response(status_code=303, headers={"Location": to})
                self._set_cookie(response, cookie)
                who.is_new = False
                return response
        return self._view(request, page.name, who, answer, visit.path.get("table"))

    def _view(self, request: Request, name: str, who: _Who | None, view: View, table: str | None) -> Response:
        if _wants_json(request):
            return Response(
                as_json({"page": name, **view.values}), view.status, media_type="application/json"
            )
        is_part = view.part is not None and request.headers.get("hx-request") == "true"
        template = view.part if is_part and view.part is not None else view.template
        text = render(template, {**self._frame(request, name, who, table), "title": view.title,
                                 **view.values, **view.drawn})  # fmt: skip
        return Response(text.encode(errors="replace"), view.status, media_type="text/html; charset=utf-8")

    def _frame(self, request: Request, name: str, who: _Who | None, table: str | None) -> dict[str, Any]:
        """What every page shows around its own."""
        site, principal = self._site, who.principal if who else _NOBODY
        is_known = table is not None and bool(principal.name) and principal.may_read(table)
        return {
            "page": name,
            "user": principal.name,
            "needs_login": site.users.is_on,
            "is_signed_in": who is not None and who.is_signed_in,
            "token": "" if who is None else site.sessions.token(who.cookie),
            "table": table,
            "kinds": list(site.kinds(table)) if is_known and table is not None else [],
            "may_write": is_known and table is not None and principal.may(Role.OPERATE, table),
            "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        }

    def _refusal(self, request: Request, who: _Who | None, error: HoldfastError, request_id: str) -> Response:
        status = status_of(error, is_precise=True)
        if status >= 500:
            table = request.path_params.get("table", "")
            log.warning(
                "console.refused", extra={"table": table, "request_id": request_id, "cause": str(error)}
            )
        is_page = request.method == "GET" and not _wants_json(request)
        if isinstance(error, LoginRequired) and is_page and error.facts.get("code") == "LOGIN_REQUIRED":
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return Response(
                status_code=303, headers={"Location": f"{ROOT}/login?next={quote(here, safe='')}"}
            )
        response = self._page_of_error(
            request, who, error_body(error, status=status, request_id=request_id), status
        )
        if isinstance(error, TooMany):
            response.headers["Retry-After"] = str(error.retry_after_s)
        return response

    def _page_of_error(
        self, request: Request, who: _Who | None, body: dict[str, Any], status: int
    ) -> Response:
        if _wants_json(request):
            return Response(as_json(body), status, media_type="application/json")
        view = View(
            template="error.html", title="Refused" if status < 500 else "Failed", values=body, status=status
        )
        return self._view(request, "error", who, view, None)

    @property
    def _cookie_name(self) -> str:
        return f"__Host-{COOKIE}" if self._site.is_secure else COOKIE

    def _set_cookie(self, response: Response, cookie: str) -> None:
        response.set_cookie(
            self._cookie_name, cookie, path="/", secure=self._site.is_secure, httponly=True, samesite="strict"
        )


async def _read_form(request: Request, page: Page) -> dict[str, str]:
    """The fields of a form; none where nothing is changed."""
    if not page.is_change:
        return {}
    check_declared_size(request.headers.get("content-length"), page.form_bytes)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise AccessDenied("not a form of these pages", code="FORM_FOREIGN")
    body = b""
    with anyio.move_on_after(_BODY_SECONDS) as waiting:
        async for piece in request.stream():
            body += piece
            if len(body) > page.form_bytes:
                raise too_large(page.form_bytes)
    if waiting.cancelled_caught:
        raise TooSlow("the form does not come", limit_s=_BODY_SECONDS, code="BODY_TOO_SLOW")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError:
        raise AccessDenied("not a form of these pages", code="FORM_FOREIGN") from None
    return dict(pairs)


def _wants_json(request: Request) -> bool:
    asked = request.query_params.get("format")
    if asked is not None:
        return asked == "json"
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def _client(request: Request) -> str:
    return request.client.host if request.client else ""
