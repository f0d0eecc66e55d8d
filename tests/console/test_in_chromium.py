"""The console in a real Chromium: every page and action, as people have them."""

import time
from pathlib import Path

import pytest

import holdfast
from harness.chromium import CHROMIUM, Watched, chromium
from harness.console_world import USERS, console_alone, make_trips, push_orders, rows, serving_console
from harness.guides import ROOT

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="HOLDFAST_CHROMIUM names no Chromium")

PICTURES = ROOT / "build/console"
AXE = (Path(__file__).parent / "axe.min.js").read_text()
SCREENS = {
    "desktop-light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "desktop-dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone-light": {"viewport": {"width": 360, "height": 740}, "color_scheme": "light"},
    "phone-dark": {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"},
}
PAGES = {
    "overview": "/",
    "timeline": "/console/table/trips/timeline",
    "instant": "/console/table/trips/timeline?instant={newest}",
    "takeback": "/console/table/trips/takeback",
    "plan": "/console/table/trips/takeback?act=restore&to=latest-savepoint",
    "storage": "/console/table/trips/storage?retain=2",
    "clean": "/console/table/trips/clean?retain=1",
    "lineage": "/console/table/orders/lineage",
    "pushes": "/console/table/{served}/pushes",
    "push-plan": "/console/table/{served}/takeback?act=redo&to={entry}",
    "query": "/console/table/trips/query?sql=SELECT city, sum(fare) AS fares FROM trips GROUP BY 1",
    "compare": "/console/table/trips/compare?before=latest-savepoint",
    "care": "/console/table/trips/care",
    "care-served": "/console/table/{served}/care",
    "login": "/console/login",
}
_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Tables to look at, and the names that paths of pages take."""
    folder = tmp_path_factory.mktemp("looked-at")
    table = make_trips(folder)
    tables = {"trips": str(folder / "trips"), "orders": str(folder / "orders")}
    with serving_console(folder, tables) as running:
        lake = push_orders(folder, running)
        commits = [one.time for one in table.timeline() if one.action == "commit"]
        yield running.controller_url, {
            "newest": commits[-1], "served": lake.served.name, "entry": lake.entries[2],
        }  # fmt: skip


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_in_order(browser, world, name, screen):
    url, names = world
    with Watched(browser, url, **SCREENS[screen]) as watched:
        answer = watched.go(PAGES[name].format(**names))
        watched.page.wait_for_timeout(100)
        watched.shoot(PICTURES, f"{name}-{screen}")

        assert answer.status == 200
        watched.check()
        watched.page.evaluate(AXE)
        found = watched.page.evaluate("rules => axe.run(document, rules)", _RULES)
        wrong = [(one["id"], [node["html"][:160] for node in one["nodes"]]) for one in found["violations"]]
        assert wrong == []
        assert found["passes"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_read_without_javascript(browser, world, name):
    url, names = world
    with Watched(browser, url, java_script_enabled=False) as watched:
        assert watched.go(PAGES[name].format(**names)).status == 200
        assert watched.page.locator("h1").first.is_visible()
        assert len(watched.page.locator("main").inner_text()) > 20
        assert watched.complaints == []


@pytest.fixture
def own(tmp_path):
    """Tables to change, in a service with users."""
    table = make_trips(tmp_path)
    with console_alone({"trips": table.path}, users=USERS) as running:
        yield running.controller_url, table


def _sign_in(watched, name="operator"):
    watched.go("/")
    watched.page.get_by_label("Name").fill(name)
    watched.page.get_by_label("Password").fill(f"{name}-secret")
    watched.page.get_by_role("button", name="Sign in").click()
    watched.page.wait_for_url("**/")


def _confirm(watched, button):
    watched.page.get_by_label("to confirm").fill("trips")
    watched.page.get_by_role("button", name=button).click()
    watched.page.get_by_text("done and proven").wait_for()


def test_an_undo_with_the_keyboard_alone(browser, own):
    url, table = own
    commits = [one for one in table.timeline() if one.action == "commit"]
    with Watched(browser, url) as watched:
        _sign_in(watched)
        watched.go("/console/table/trips/takeback?act=undo")
        keys = watched.page.keyboard
        for _ in range(60):
            keys.press("Tab")
            if watched.page.evaluate("document.activeElement.id") == "confirm":
                break
        keys.type("trips")
        watched.shoot(PICTURES, "action-undo-plan")
        keys.press("Enter")
        watched.page.get_by_text("done and proven").wait_for()
        watched.shoot(PICTURES, "action-undo-done")
        watched.check()

    left = [one for one in table.timeline() if one.action == "commit"]
    assert left == commits[:-1]


def test_restore_clean_query_and_signing_out(browser, own):
    url, table = own
    with Watched(browser, url) as watched:
        _sign_in(watched)
        page = watched.page
        watched.go("/console/table/trips/storage")
        page.get_by_role("slider").focus()
        page.keyboard.press("Home")
        page.get_by_text("Clean with 1 commits retained").wait_for()
        page.get_by_text("Clean with 1 commits retained").click()
        _confirm(watched, "Clean now")
        watched.go("/console/table/trips/takeback")
        page.get_by_label("Restore to").fill("latest-savepoint")
        page.get_by_role("button", name="Show the plan").click()
        _confirm(watched, "Restore now")
        watched.go("/console/table/trips/query")
        page.get_by_label("One SELECT").fill("SELECT count(*) AS rows_there FROM trips")
        page.get_by_role("button", name="Run").click()
        page.get_by_role("cell", name="120").wait_for()
        with page.expect_download() as download:
            page.get_by_text("As CSV").click()
        assert "120" in Path(download.value.path()).read_text()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("Password").wait_for()
        watched.check()

    assert table.to_arrow().num_rows == 120


def test_an_undo_without_javascript(browser, own):
    url, table = own
    rows_then = table.to_arrow().num_rows
    with Watched(browser, url, java_script_enabled=False) as watched:
        _sign_in(watched)
        watched.go("/console/table/trips/takeback?act=undo")
        _confirm(watched, "Take now")

    assert table.to_arrow().num_rows == rows_then + 5


def test_a_mark_of_the_axis_leads_to_its_instant(browser, world):
    url, _ = world
    with Watched(browser, url) as watched:
        watched.go("/console/table/trips/timeline")
        watched.page.locator("a.mark.undone").first.focus()
        watched.page.keyboard.press("Enter")
        watched.page.get_by_text("taken back by").first.wait_for()
        watched.check()


def test_the_overview_refreshes_by_itself(browser, own):
    url, table = own
    with Watched(browser, url) as watched:
        _sign_in(watched, "reader")
        instant = table.insert(rows(900, 2)).instant
        began = time.monotonic()
        text = f"{instant[8:10]}:{instant[10:12]}:{instant[12:14]}.{instant[14:]}"
        watched.page.get_by_text(text).first.wait_for()
        took = time.monotonic() - began
        watched.check()

    assert took < 10, f"after {took:.1f} s"


def test_scripts_that_are_stored_do_not_run(browser, tmp_path):
    evil = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id", ordering="ts")
    table.insert(rows(0, 3, note=evil))
    table.savepoint(user=evil, comment=evil)
    table.upsert(rows(0, 2, note=evil + "2"))
    saved = table.savepoints()[0].instant
    pages = (
        f"timeline?instant={saved}", "takeback?act=undo", "query?sql=SELECT * FROM t", f"query?sql={evil}",
        f"timeline?instant={evil}", f"takeback?act=restore&to={evil}",
    )  # fmt: skip
    with (
        console_alone({"t": str(tmp_path / "t")}) as running,
        Watched(browser, running.controller_url) as watched,
    ):
        for page in pages:
            watched.go(f"/console/table/t/{page}")
            watched.page.wait_for_timeout(100)
            assert watched.page.title() != "run", page
            assert watched.page.locator("main script, main img").count() == 0, page
        # A status that is not 200 is told in the browser's console, which is no error of the page.
        assert [one for one in watched.complaints if "the server responded" not in one] == []
