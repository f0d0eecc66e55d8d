"""The way in and out: signing in, the files of every page, and actions under way."""

import base64
from functools import cache
from importlib.resources import files

from holdfast.config.server import Role
from holdfast.console.site import Site
from holdfast.console.visits import Answer, File, On, Page, Redirect, SignIn, View, Visit
from holdfast.errors import InvalidRequest
from holdfast.server.auth import denial
from holdfast.server.errors import LoginRequired, RouteNotFound, TooMany, public_text

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_STATIC = ("console.css", "htmx.min.js", "icon.svg")


def login(site: Site, visit: Visit) -> Answer:
    if not site.users.is_on or visit.principal.name:
        return Redirect(_inside(visit.query.get("next", "/")))
    return _login_page(_inside(visit.query.get("next", "/")))


def sign_in(site: Site, visit: Visit) -> Answer:
    to = _inside(visit.form.get("next", "/"))
    name, secret = visit.form.get("name", "").strip(), visit.form.get("secret", "")
    if not site.users.is_on:
        return Redirect(to)
    if name:
        header = "Basic " + base64.b64encode(f"{name}:{secret}".encode(errors="replace")).decode()
    else:
        header = f"Bearer {secret.strip()}"
    try:
        principal = site.users.principal(header, visit.client)
    except (LoginRequired, TooMany) as error:
        return _login_page(to, error=public_text(error), status=429 if isinstance(error, TooMany) else 401)
    return SignIn(principal.name, to)


def sign_out(_site: Site, _visit: Visit) -> Answer:
    return SignIn(None, "/")


def static(_site: Site, visit: Visit) -> Answer:
    name = visit.path["file"]
    if name not in _STATIC:
        raise RouteNotFound("nothing is served here", status=404, code="NOT_SERVED")
    return File(_content(name), _TYPES[name[name.rindex(".") :]], is_kept=True)


def favicon(_site: Site, _visit: Visit) -> Answer:
    return File(_content("icon.svg"), _TYPES[".svg"], is_kept=True)


def task(site: Site, visit: Visit) -> Answer:
    found = site.tasks.find(visit.path["task"])
    if found is None:
        raise InvalidRequest(
            "no such action is known", code="TASK_NOT_FOUND", hint="the table's timeline shows what was done"
        )
    if not visit.principal.may(Role.READ, found.table):
        raise denial(Role.READ, found.table)
    return View(
        template="task.html", part="parts/task.html", title=found.what,
        values={"task": site.tasks.fields(found)}, drawn={"report": found.report, "table": found.table},
    )  # fmt: skip


def _login_page(to: str, *, error: str = "", status: int = 200) -> View:
    return View(template="login.html", title="Sign in", values={"next": to, "failure": error}, status=status)


def _inside(target: str) -> str:
    """Where to go afterwards: a page of this console, whatever was asked for."""
    is_ours = target == "/" or target.startswith(("/?", "/console"))
    return target if is_ours and "\\" not in target and target.isprintable() else "/"


@cache
def _content(name: str) -> bytes:
    return (files("holdfast.console") / "static" / name).read_bytes()


PAGES = (
    Page(method="GET", path="/console/login", name="login", handle=login, on=On.NOTHING),
    Page(method="POST", path="/console/login", name="sign_in", handle=sign_in, on=On.NOTHING),
    Page(method="POST", path="/console/logout", name="sign_out", handle=sign_out, on=On.NOTHING),
    Page(method="GET", path="/console/static/{file}", name="static", handle=static, on=On.NOTHING),
    Page(method="GET", path="/favicon.ico", name="favicon", handle=favicon, on=On.NOTHING),
    Page(method="GET", path="/console/task/{task}", name="task", handle=task, on=On.SOME),
)
