"""The console before a real service, with users of every role, and real tables."""

import re
from dataclasses import dataclass, field
from html import unescape

import httpx2
import pytest

from harness.console_world import USERS, make_trips, push_orders, serving_console

_TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')


@dataclass
class Browser:
    """As much of a browser as pages need that have no script: cookies and forms."""

    url: str
    name: str | None = None
    http: httpx2.Client = field(init=False)

    def __post_init__(self):
        self.http = httpx2.Client(base_url=self.url, timeout=60)
        if self.name is not None:
            answer = self.post("/console/login", name=self.name, secret=f"{self.name}-secret")
            assert answer.status_code == 303, answer.text

    def get(self, path, **headers):
        return self.http.get(path, headers=headers)

    def json(self, path):
        answer = self.http.get(path, headers={"Accept": "application/json"})
        return answer.json()

    def token(self, path="/console/login"):
        found = _TOKEN.search(self.http.get(path).text)
        return found[1] if found else ""

    def post(self, path, token=None, **fields):
        token = self.token_of_session() if token is None else token
        return self.http.post(path, data={"token": token, **fields})

    def token_of_session(self):
        return self.token() or self.token("/")

    def fields(self, path):
        """The hidden fields of the form on a page that confirms its plan."""
        forms = self.http.get(path).text.split("<form ")
        text = next((form for form in forms if 'name="digest"' in form), "")
        found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', text)
        return {name: unescape(value) for name, value in found}

    def act(self, path, table, **more):
        """Read the plan at the path, and confirm it; the task when it has ended."""
        answer = self.http.post(path.partition("?")[0], data={**self.fields(path), "confirm": table, **more})
        if answer.status_code != 303:
            return answer
        return self.task(answer.headers["location"])

    def task(self, where):
        for _ in range(600):
            task = self.json(where)["task"]
            if task["state"] != "running":
                return task
            __import__("time").sleep(0.05)
        raise AssertionError("the task has not ended")


@pytest.fixture(scope="session")
def guarded(tmp_path_factory):
    """A service with users, tables that tests only look at, and the paths of them."""
    folder = tmp_path_factory.mktemp("guarded")
    make_trips(folder)
    tables = {"trips": str(folder / "trips"), "missing": str(folder / "missing")}
    with serving_console(folder, tables, users=USERS) as running:
        yield running


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """A service without users, a lake table that is served, and the lake."""
    folder = tmp_path_factory.mktemp("served")
    with serving_console(folder, {"orders": str(folder / "orders")}) as running:
        yield running, push_orders(folder, running)
