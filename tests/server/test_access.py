"""Every route, every role, every spelling: nobody gets past the check."""

import http.client
import json
from urllib.parse import urlsplit

import pytest
from starlette.routing import Route

from harness.push_client import Client, PushedTable, basic, config, make_table, schema
from holdfast.config.server import Limits, Role, User
from holdfast.push.metastore.port import Create, Remove
from holdfast.push.state.records import lineage_path
from holdfast.server.app import build_app, refuse_unguarded
from holdfast.server.auth import On
from holdfast.server.endpoints import BodyKind
from holdfast.server.routes import broker_endpoints, controller_endpoints
from holdfast.server.run import serving
from holdfast.server.secrets import hash_secret
from server.conftest import settings

NAMES = ("reader", "writer", "operator", "admin")
ROLES = dict(zip(NAMES, Role, strict=True))
FREE = Limits(requests_per_second=1_000_000, failed_logins_per_minute=1_000_000)


def _user(name, roles, *, is_token=False):
    secret = hash_secret(f"{name}-secret")
    return User(name=name, secret_hash=str(secret), is_token=is_token, roles=roles)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    users = (
        *(_user(name, {"*": role}) for name, role in ROLES.items()),
        *(_user(f"{name}-here", {"here": role}) for name, role in ROLES.items()),
        _user("job", {"here": Role.WRITE}, is_token=True),
    )
    with serving(settings(tmp_path_factory.mktemp("guarded"), users=users, limits=FREE)) as running:
        running.retention.stop()
        admin = Client(running, basic("admin", "admin-secret"))
        for name in ("here", "elsewhere"):
            make_table(admin, name)
        PushedTable(admin, "elsewhere").push([], ["canary-segment"])
        yield running


def _login(name):
    return {} if name is None else basic(name, f"{name}-secret")


def _routes(*, without_open=True, without_some=False):
    for is_broker, endpoints in ((False, controller_endpoints()), (True, broker_endpoints())):
        for one in endpoints:
            is_left_out = (without_open and one.access.role is None) or (
                without_some and one.access.on is On.SOME
            )
            if not is_left_out:
                yield pytest.param(is_broker, one, id=f"{'broker' if is_broker else 'controller'}-{one.name}")


def _path(endpoint, table="here"):
    path = endpoint.path.replace("{table}", table).replace("{segment}", "s").replace("{epoch:int}", "1")
    path = path.replace("{id}", "nothing")
    if endpoint.access.on in (On.QUERY, On.QUERY_OR_EVERY):
        path += f"?tableName={table}"
    return path


def _send(running, endpoint, path, *, is_broker, login, method=None):
    url = urlsplit(running.broker_url if is_broker else running.controller_url)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    try:
        body = b"{}" if endpoint.body in (BodyKind.JSON, BodyKind.OPTIONAL_JSON) else None
        connection.request(method or endpoint.method, path, body, login)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(("is_broker", "endpoint"), list(_routes(without_open=False)))
def test_a_route_asks_for_its_role_and_no_less(guarded, is_broker, endpoint):
    needed = endpoint.access.role
    for name, role in ((None, 0), *ROLES.items()):
        path = _path(endpoint, "nobody")
        status, body = _send(guarded, endpoint, path, is_broker=is_broker, login=_login(name))

        if needed is None:
            assert status not in (403, 500), body
        elif name is None:
            assert status == 401, (name, body)
        elif role < needed:
            assert status == 403, (name, body)
        else:
            assert status not in (401, 403), (name, body)


@pytest.mark.parametrize(("is_broker", "endpoint"), list(_routes(without_some=True)))
def test_a_role_on_one_table_is_none_on_another(guarded, is_broker, endpoint):
    login = _login("admin-here")

    status, body = _send(guarded, endpoint, _path(endpoint, "elsewhere"), is_broker=is_broker, login=login)

    assert status == 403, body


def test_a_handler_that_decides_itself_decides_by_table(guarded):
    here = Client(guarded, _login("admin-here"))

    assert here.get("/tables").json() == {"tables": ["here"]}
    assert here.get("/schemas").json() == ["here"]
    assert here.post("/tables", config("elsewhere")).status_code == 403
    assert here.post("/tables/validate", config("elsewhere")).status_code == 403
    assert here.post("/schemas", schema("elsewhere")).status_code == 403
    assert here.post("/schemas/validate", schema("elsewhere")).status_code == 403
    for call in ("end", "revert"):
        group = [{"table": "elsewhere", "segmentLineageEntryId": "x"}]
        assert here.post(f"/lineage/group/{call}", group).status_code == 403
    assert here.post("/periodictask/run", taskname="RetentionManager").status_code == 403


@pytest.mark.parametrize("path", ["/query/sql", "/query", "/sql"])
def test_a_query_of_a_foreign_table_is_403_with_the_counters_that_clients_want(guarded, path):
    here = Client(guarded, _login("reader-here"))

    answer = here.call("POST", path, broker=path != "/sql", json={"sql": "SELECT count(*) FROM elsewhere"})

    assert answer.status_code == 403
    body = answer.json()
    assert body["errorCode"] == "ACCESS_DENIED"
    if path != "/sql":
        assert (body["numServersQueried"], body["numServersResponded"]) == (0, 0)
    joined = {"sql": "SELECT count(*) FROM here JOIN elsewhere ON here.id = elsewhere.id"}
    assert here.call("POST", path, broker=path != "/sql", json=joined).status_code == 403


SPELLINGS = (
    "//{0}", "/./{0}", "/../{0}", "/x/../{0}", "/%2e%2e/{0}", "/%2e/{0}", "/{0}/", "/{0}//", "/{0}/.",
    "/{0}/..", "/{0};", "/{0};a=b", "/;/{0}", "/{0}%00", "/{0}%20", "/%20{0}", "/{0}.", "/{0}..", "/{0}%2e",
    "/{0}%2f", "/{0}%2F..%2Fhealth", "/{0}%3f", "/{0}%3B", "/{0}#/health", "/{0}?/health", "/health/../{0}",
    "/health/..%2f{0}", "/health;/../{0}", "/health%2f..%2f{0}", "/auth/info/../../{0}",
    "/auth/verify/../{0}", "/{0}?x=/auth/info", "/{0}/health", "/{0}/auth/info", "/health/{0}",
    "/{0}%0d%0aX-A:b", "/{0}%c0%af",
    "/{0}%252f", "/%2f{0}", "/{0}\\", "/\\{0}", "/http://127.0.0.1/{0}", "/{0}?_method=GET&method=GET",
)  # fmt: skip


def _odd(path):
    """Spellings of a path: shifted, escaped, in another case, half encoded."""
    plain, _, query = path.lstrip("/").partition("?")
    query = f"?{query}" if query else ""
    yield from (
        spelling.format(plain) + query.replace("?", "&" if "?" in spelling else "?") for spelling in SPELLINGS
    )
    yield f"/{plain.upper()}{query}"
    yield f"/{plain.title()}{query}"
    yield f"/{plain.replace('/', '%2f')}{query}"
    yield f"/{plain.replace('e', '%65')}{query}"
    yield f"/{''.join(f'%{ord(char):02x}' for char in plain)}{query}"
    yield f"http://localhost/{plain}{query}"


OVERRIDES = {"X-HTTP-Method-Override": "GET", "X-Original-URL": "/health", "X-Rewrite-URL": "/health",
             "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Prefix": "/health"}  # fmt: skip


@pytest.mark.parametrize(("is_broker", "endpoint"), list(_routes()))
def test_no_spelling_of_a_path_leads_around_the_check(guarded, is_broker, endpoint):
    """Whoever may not call the route gets nothing from it, however the path is written."""
    admin = Client(guarded, _login("admin"))
    before = admin.records()
    weaker = [name for name, role in ROLES.items() if role < endpoint.access.role][-1:]

    for path in _odd(_path(endpoint)):
        for name in (None, *weaker):
            login = {**_login(name), **OVERRIDES}
            status, body = _send(guarded, endpoint, path, is_broker=is_broker, login=login)
            is_open = status == 200 and (body == b"OK" or json.loads(body).keys() == {"workflow"})
            assert is_open or status in (400, 401, 403, 404, 405), (path, name, status, body)
            assert b"canary" not in body
    assert admin.records() == before


@pytest.mark.parametrize(("is_broker", "endpoint"), list(_routes()))
def test_no_other_method_leads_around_the_check(guarded, is_broker, endpoint):
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "FOO"):
        status, body = _send(guarded, endpoint, _path(endpoint), is_broker=is_broker, login={}, method=method)

        assert status in (400, 401, 405), (method, status, body)


def test_a_pusher_reverts_its_own_pushes_and_an_operator_everybodys(guarded):
    admin = Client(guarded, _login("admin"))
    table = make_table(admin)
    mine = PushedTable(Client(guarded, _login("writer")), table.name)
    foreign = table.started([], ["theirs"])
    own = mine.started([], ["mine"])

    assert mine.revert(foreign, force=True).json()["errorCode"] == "FOREIGN_ENTRY"
    assert mine.revert(foreign, force=True, precise=False).status_code == 403
    assert mine.revert(own, force=True).status_code == 200
    again = mine.started([], ["again"])
    operator = PushedTable(Client(guarded, _login("operator")), table.name)
    assert operator.revert(again, force=True).status_code == 200
    records = admin.get(f"/segments/{table.name}/lineage/audit").json()["records"]
    assert {one["actor"] for one in records} >= {"admin", "writer", "operator"}


def test_a_pusher_cannot_force_a_foreign_push_away(guarded):
    admin = Client(guarded, _login("admin"))
    table = make_table(admin)
    table.upload("a")
    foreign = table.started(["a"], ["theirs"])
    mine = PushedTable(Client(guarded, _login("writer")), table.name)
    before = admin.records()

    answer = mine.start(["a"], ["mine"], forceCleanup=True)

    assert (answer.status_code, answer.json()["errorCode"]) == (403, "FOREIGN_ENTRY")
    assert admin.records() == before
    assert list(table.entries()) == [foreign]


def test_a_token_pushes_to_its_table(guarded):
    table = PushedTable(Client(guarded, {"Authorization": "Bearer job.job-secret"}), "here")

    table.push([], ["by-token"])

    assert "by-token" in table.visible()


def test_verify_says_what_credentials_may_do(guarded):
    here = Client(guarded, _login("writer-here"))

    assert here.get("/auth/info").json() == {"workflow": "BASIC"}
    assert here.get("/auth/verify", tableName="here", accessType="CREATE").json() is True
    assert here.get("/auth/verify", tableName="here", accessType="DELETE").json() is False
    assert here.get("/auth/verify", tableName="elsewhere", accessType="READ").json() is False
    assert here.get("/auth/verify").json() is False
    assert Client(guarded).get("/auth/verify").status_code == 401


def test_401_says_how_to_log_in_and_carries_the_counters_on_the_broker(guarded):
    nobody = Client(guarded)

    assert nobody.get("/tables").headers["www-authenticate"].startswith("Basic")
    body = nobody.call("POST", "/query/sql", broker=True, json={"sql": "SELECT 1"}).json()
    assert (body["code"], body["numServersQueried"], body["numServersResponded"]) == (401, 0, 0)


def test_a_route_without_access_stops_the_start(guarded):
    unguarded = Route("/open", lambda request: None)

    with pytest.raises(AssertionError, match="/open has no access"):
        refuse_unguarded([unguarded])
    endpoint = controller_endpoints()[0]
    object.__setattr__(endpoint, "access", None)
    with pytest.raises(AssertionError, match="no access"):
        build_app(guarded.service, [endpoint], name="test", is_broker=False)


def test_refused_calls_that_would_have_changed_something_are_kept_for_the_admin(guarded):
    admin = Client(guarded, _login("admin"))
    reader, nobody = Client(guarded, _login("reader")), Client(guarded)

    assert reader.call("DELETE", "/tables/elsewhere").status_code == 403
    assert nobody.call("DELETE", "/tables/elsewhere").status_code == 401
    assert reader.get("/tables/not-there").status_code == 404
    wrong = admin.post("/segments/here/revertReplaceSegments", type="OFFLINE", segmentLineageEntryId="x")

    found = admin.get("/refusedCalls", limit=1000).json()["calls"]
    kept = {(one["actor"], one["operation"], one["table"], one["code"]) for one in found}
    assert ("reader", "DeleteTable", "elsewhere", "ACCESS_DENIED") in kept
    assert ("", "DeleteTable", "elsewhere", "LOGIN_REQUIRED") in kept
    assert ("admin", "RevertReplaceSegments", "here", "ENTRY_NOT_FOUND") in kept
    assert wrong.json()["errorCode"] == "ENTRY_NOT_FOUND"
    assert "not-there" not in {one["table"] for one in found}
    assert reader.get("/refusedCalls").status_code == 403


def test_refused_calls_that_only_look_are_not_kept(guarded):
    reader, nobody = Client(guarded, _login("reader")), Client(guarded)

    assert reader.get("/refusedCalls").status_code == 403
    assert nobody.post("/tables/validate", json={}).status_code == 401
    assert nobody.post("/schemas/validate", json={}).status_code == 401
    asked = nobody.call("POST", "/query/sql/validateSyntax", broker=True, json={"sql": "SELECT 1"})
    assert asked.status_code == 401

    found = Client(guarded, _login("admin")).get("/refusedCalls", limit=1000).json()["calls"]
    looks = {"GetRefusedCalls", "ValidateTable", "ValidateSchema", "ValidateSyntax"}
    assert not looks & {one["operation"] for one in found}


def test_a_call_that_failed_without_being_refused_is_not_kept_as_refused(guarded):
    admin, metastore = Client(guarded, _login("admin")), guarded.service.catalog.metastore
    make_table(admin, "damaged")
    path = lineage_path("damaged_OFFLINE")
    metastore.write([Create(path, b"{")])

    failed = admin.post("/segments/damaged/startReplaceSegments", type="OFFLINE", json={"segmentsTo": ["a"]})

    metastore.write([Remove(path, metastore.read(path).version)])
    assert (failed.status_code, failed.json()["errorCode"]) == (500, "TABLE_DAMAGED")
    found = admin.get("/refusedCalls", limit=1000).json()["calls"]
    assert "damaged" not in {one["table"] for one in found}
