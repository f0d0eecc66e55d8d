"""Every page, role and method; forms of others; what is stored never runs."""

import re

import httpx2
import pytest

from console.conftest import Browser
from harness.console_world import NAMES
from holdfast.config.server import Role
from holdfast.console.pages.routes import PAGES
from holdfast.console.visits import On

ROLES = dict(zip(NAMES, Role, strict=True))
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE")


def _path(page, table="trips"):
    names = {"table": table, "file": "console.css", "task": "nothing"}
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], page.path)


def _each(pages=PAGES):
    return [pytest.param(page, id=page.name) for page in pages]


@pytest.fixture(scope="module")
def browsers(guarded):
    return {name: Browser(guarded.controller_url, name) for name in (*NAMES, "guest")}


def test_no_page_is_open_but_the_way_in():
    assert {page.name for page in PAGES if page.on is On.NOTHING} == {
        "login", "sign_in", "sign_out", "static", "favicon",
    }  # fmt: skip


@pytest.mark.parametrize("page", _each([one for one in PAGES if one.on is not On.NOTHING]))
def test_nobody_comes_in_without_signing_in(guarded, page):
    browser = Browser(guarded.controller_url)

    html = browser.http.request(
        page.method, _path(page), data={"token": browser.token()} if page.is_change else None
    )
    program = browser.http.request(
        page.method, _path(page), headers={"Accept": "application/json"},
        data={"token": browser.token()} if page.is_change else None,
    )  # fmt: skip

    assert program.status_code == 401, program.text
    if page.is_change:
        assert html.status_code == 401
    else:
        assert html.status_code == 303
        assert html.headers["location"].startswith("/console/login")


@pytest.mark.parametrize("page", _each([one for one in PAGES if one.on is not On.NOTHING]))
@pytest.mark.parametrize("name", NAMES)
def test_a_role_is_enough_or_is_not(browsers, page, name):
    browser = browsers[name]
    fields = {"token": browser.token_of_session()} if page.is_change else None

    answer = browser.http.request(page.method, _path(page), data=fields)

    assert (answer.status_code == 403) == (ROLES[name] < page.role), answer.text
    assert answer.status_code < 500


@pytest.mark.parametrize("page", _each([one for one in PAGES if one.on is On.TABLE]))
def test_a_role_on_another_table_is_not_enough(browsers, page):
    browser = browsers["guest"]
    fields = {"token": browser.token_of_session()} if page.is_change else None

    for table in ("trips", "missing", "nowhere"):
        answer = browser.http.request(page.method, _path(page, table), data=fields)

        assert answer.status_code == 403, answer.text
        assert "rows" not in answer.text


def test_a_visitor_sees_no_table_of_others(browsers):
    assert browsers["guest"].json("/")["lake"] == []
    assert "trips" not in browsers["guest"].get("/").text


@pytest.mark.parametrize("page", _each())
def test_no_other_method_is_served(browsers, page):
    served = {one.method for one in PAGES if one.path == page.path}

    for method in _METHODS:
        if method not in served:
            answer = browsers["admin"].http.request(method, _path(page))
            assert answer.status_code == 405, f"{method} {page.path}: {answer.status_code}"


@pytest.mark.parametrize("page", _each([one for one in PAGES if one.is_change]))
@pytest.mark.parametrize("token", ["", "0" * 64, "ä", "another"])
def test_a_form_of_another_session_is_refused(browsers, guarded, page, token):
    other = Browser(guarded.controller_url, "admin").token_of_session()
    browser = browsers["admin"]

    answer = browser.http.post(_path(page), data={"token": other if token == "another" else token})

    assert answer.status_code == 403
    assert "not one of this session" in answer.text


@pytest.mark.parametrize("page", _each([one for one in PAGES if one.is_change]))
def test_what_is_no_form_of_a_page_is_refused(browsers, page):
    token = browsers["admin"].token_of_session()

    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x"):
        answer = browsers["admin"].http.post(
            _path(page), content=f"token={token}".encode(), headers={"Content-Type": kind}
        )
        assert answer.status_code == 403, kind
    large = browsers["admin"].http.post(_path(page), data={"token": token, "x": "x" * 300_000})
    assert large.status_code == 413


@pytest.mark.parametrize("page", _each([one for one in PAGES if one.is_change]))
def test_pages_of_other_sites_change_nothing(browsers, page):
    browser = browsers["admin"]
    fields = {"token": browser.token_of_session()}

    for headers in (
        {"Origin": "https://elsewhere.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    ):
        answer = browser.http.post(_path(page), data=fields, headers=headers)
        assert answer.status_code == 403, headers


def test_a_link_from_another_site_leads_here(browsers):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}

    assert browsers["reader"].http.get("/", headers=link).status_code == 200
    assert browsers["reader"].http.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


@pytest.mark.parametrize("page", _each())
def test_every_answer_forbids_frames_and_foreign_scripts(browsers, page):
    fields = {"token": ""} if page.is_change else None
    answer = browsers["admin"].http.request(page.method, _path(page), data=fields)

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_cookie_is_for_this_site_and_no_script(guarded):
    answer = httpx2.get(f"{guarded.controller_url}/console/login")

    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie


def test_signing_in_gives_a_new_cookie_and_signing_out_ends_it(guarded):
    browser = Browser(guarded.controller_url)
    browser.get("/console/login")
    before = browser.http.cookies["holdfast"]

    browser.post("/console/login", name="reader", secret="reader-secret")

    after = browser.http.cookies["holdfast"]
    assert after != before
    assert browser.get("/").status_code == 200
    browser.post("/console/logout")
    assert browser.http.get("/", cookies={"holdfast": after}).status_code == 303


def test_a_token_signs_in_without_a_name(guarded):
    browser = Browser(guarded.controller_url)

    assert browser.post("/console/login", name="", secret="robot.robot-secret").status_code == 303
    assert browser.json("/")["page"] == "overview"


@pytest.mark.parametrize(
    ("name", "secret"), [("reader", "wrong"), ("nobody", "x"), ("", ""), ("robot", "robot-secret")]
)
def test_wrong_secrets_are_refused(guarded, name, secret):
    browser = Browser(guarded.controller_url)

    answer = browser.post("/console/login", name=name, secret=secret)

    assert answer.status_code == 401
    assert browser.get("/").status_code == 303


@pytest.mark.parametrize(
    "target",
    ["https://elsewhere.example", "//elsewhere.example", "/\\elsewhere", "javascript:alert(1)", "/health\n"],
)
def test_signing_in_leads_to_no_other_site(guarded, target):
    browser = Browser(guarded.controller_url)

    answer = browser.post("/console/login", name="reader", secret="reader-secret", next=target)

    assert answer.headers["location"] == "/"


def test_the_cookie_opens_no_route_of_the_service(guarded, browsers):
    cookies = dict(browsers["admin"].http.cookies)

    answer = httpx2.get(f"{guarded.controller_url}/tables", cookies=cookies)

    assert answer.status_code == 401


def test_the_api_is_where_it_was(guarded):
    assert httpx2.get(f"{guarded.controller_url}/health").status_code == 200
    assert httpx2.get(f"{guarded.controller_url}/nowhere").json()["errorCode"] == "NOT_SERVED"


_ASKED = (
    "/{}",
    "/console/task/{}",
    "/console/table/{}",
    "/console/login?next={}",
    "/console/table/trips/takeback?act={}",
    "/console/table/trips/takeback?act=restore&to={}",
    "/console/table/trips/timeline?instant={}",
    "/console/table/trips/query?sql={}",
    "/console/table/trips/query?sql=SELECT%201&as_of={}",
    "/console/table/trips/compare?before={}",
    "/console/table/trips/storage?retain={}",
    "/console/table/trips/lineage?commits={}",
)


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'-alert(1)-'"]
)
def test_what_is_asked_never_becomes_a_part_of_the_page(browsers, text):
    for path in _ASKED:
        answer = browsers["admin"].get(path.format(httpx2.URL("/", params={"a": text}).query.decode()[2:]))

        assert "<script>alert" not in answer.text
        assert "<img src=x" not in answer.text
