"""What the overview and the timeline say, and that it is what the table says."""

import subprocess
import sys
import threading
import time

import pytest

import holdfast
from console.conftest import Browser
from harness.console_world import console_alone, rows
from harness.guides import ROOT
from holdfast.timeline.timeline import load_timeline


@pytest.fixture(scope="module")
def browser(guarded):
    return Browser(guarded.controller_url, "reader")


def _trips(browser):
    return next(one for one in browser.json("/")["lake"] if one["name"] == "trips")


def test_the_overview_says_what_the_table_holds(browser, guarded):
    table = holdfast.open_table(guarded.service.settings.catalog.tables["trips"])
    commits = [one for one in table.timeline() if one.action == "commit"]

    row = _trips(browser)

    assert row["latest"] == commits[-1].time
    assert row["commits"] == len(commits)
    assert row["state"] == "well"
    assert row["partitions"] == 3


def test_a_table_that_is_not_there_is_said_to_be(browser):
    row = next(one for one in browser.json("/")["lake"] if one["name"] == "missing")

    assert (row["state"], row["word"]) == ("wrong", "not there")


def test_drift_between_commit_and_what_is_served_is_marked(served):
    running, lake = served
    page = Browser(running.controller_url).json("/")

    assert page["lake"][0]["served"][0]["behind"] == 2
    assert page["lake"][0]["state"] == "attention"
    assert page["served"][0]["lake_behind"] == 2
    assert page["served"][0]["source"]["lake.instant"] == lake.instants[1]


def test_the_timeline_strikes_through_what_was_taken_back(browser, guarded):
    page = browser.json("/console/table/trips/timeline")
    undone = [one for one in page["shown"] if one["state"] == "undone"]
    rollback = next(one for one in page["shown"] if one["action"] == "rollback")

    assert len(undone) == 1
    assert f"rolls back {undone[0]['instant']}" == rollback["note"]
    text = browser.get("/console/table/trips/timeline").text
    assert text.count('class="strike"') == 1


def test_an_instant_is_told_in_detail(browser):
    row = _trips(browser)

    details = browser.json(f"/console/table/trips/timeline?instant={row['latest']}")["details"]

    assert details["commit"]["operation"] == "DELETE"
    assert details["commit"]["totals"]["records_deleted"] == 5
    assert details["commit"]["files"]


def test_the_axis_can_be_zoomed_until_one_instant_is_left(browser):
    page = browser.json("/console/table/trips/timeline")
    newest = page["shown"][0]

    assert page["shown_of"] == 11
    inner = page
    for _ in range(40):  # How close the instants are depends on the machine.
        inner = browser.json(inner["zoom"]["in"])
        if inner["shown_of"] < 11:
            break
    assert inner["shown_of"] < 11
    older = browser.json(page["zoom"]["older"])
    assert newest not in older["shown"]
    assert browser.json(page["zoom"]["all"])["shown_of"] == 11


@pytest.mark.parametrize(
    "query", ["from=x", "to=1e9", "from=-5&to=99999999999999999", "from=9&to=1", "instant=nothing"]
)
def test_odd_windows_are_answered(browser, query):
    answer = browser.get(f"/console/table/trips/timeline?{query}")

    assert answer.status_code in (200, 400)


_WRITER = """
import sys, time
from dataclasses import replace
sys.path.insert(0, {tests!r})
import holdfast
from harness.console_world import rows
from harness.faults import StoreWrapper
from holdfast.table.opened import open_at
from holdfast.timeline.ledger import Ledger

class Waiting(StoreWrapper):
    def create(self, path, content):
        done = self.inner.create(path, content)
        if path.endswith("inflight"):
            print("writing", flush=True)
            time.sleep(600)
        return done

opened = open_at({path!r})
store = Waiting(opened.store)
table = holdfast.Table(replace(opened, store=store, ledger=Ledger(store, opened.clock)))
table.insert(rows(900, 5))
"""


def test_a_writer_that_is_killed_is_seen_within_two_seconds(tmp_path):
    """Never a state that did not exist: written by a live one, then left by a dead one, and no third."""
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id", ordering="ts")
    table.insert(rows(0, 3))
    code = _WRITER.format(tests=str(ROOT / "tests"), path=str(tmp_path / "t"))
    seen, stopped = [], threading.Event()
    with console_alone({"t": str(tmp_path / "t")}) as running:
        browser = Browser(running.controller_url)

        def watch():
            while not stopped.is_set():
                seen.append((time.monotonic(), browser.json("/")["lake"][0]))

        watcher = threading.Thread(target=watch)
        watcher.start()
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert writer.stdout.readline() == "writing\n"
        _wait(lambda: seen[-1][1]["state"] == "busy")
        writer.kill()
        writer.wait()
        killed = time.monotonic()
        _wait(lambda: seen[-1][1]["state"] == "attention")
        told = time.monotonic()
        table.insert(rows(10, 3))
        _wait(lambda: seen[-1][1]["state"] == "well" and seen[-1][1]["commits"] == 2)
        stopped.set()
        watcher.join()

    assert told - killed < 2
    states = [one["state"] for _, one in seen]
    changes = [state for number, state in enumerate(states) if number == 0 or states[number - 1] != state]
    assert changes[:3] == ["well", "busy", "attention"]
    assert changes[-1] == "well"
    assert {one["commits"] for _, one in seen} == {1, 2}


def _wait(is_so, seconds=30):
    for _ in range(seconds * 50):
        if is_so():
            return
        time.sleep(0.02)
    raise AssertionError("it has not come to that")


def test_ten_thousand_instants_take_less_than_a_second(tmp_path):
    """A table that grew for years: its timeline is read, drawn and answered in time."""
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id", ordering="ts")
    instant = table.insert(rows(0, 3)).instant
    folder = tmp_path / "t" / ".hoodie"
    # Commits that wrote nothing, as an idle pipeline makes them; each is three files.
    content = b'{"partitionToWriteStats":{},"compacted":false,"extraMetadata":{},"operationType":"INSERT"}'
    first = int(instant[:4]) - 2
    for number in range(10_000):
        month, rest = divmod(number, 500)
        time_ = f"{first + month // 12}{month % 12 + 1:02d}{rest // 24 + 1:02d}{rest % 24:02d}0000000"
        (folder / f"{time_}.commit").write_bytes(content)
        (folder / f"{time_}.commit.requested").touch()
        (folder / f"{time_}.inflight").touch()
    assert len(load_timeline(holdfast.open_table(str(tmp_path / "t"))._opened.store).instants) >= 10_000

    with console_alone({"t": str(tmp_path / "t")}) as running:
        browser = Browser(running.controller_url)
        page = browser.json("/console/table/t/timeline")
        for path in ("/console/table/t/timeline", page["zoom"]["all"]):
            # The time of this process, which is the server too: other processes may keep it waiting.
            began = time.process_time()
            answer = browser.get(path)
            took = time.process_time() - began

            assert answer.status_code == 200
            assert len(answer.content) < 300_000
            assert took < 1, f"{path} took {took:.2f} s"
