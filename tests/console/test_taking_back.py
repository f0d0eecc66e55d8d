"""Taking back: the plan is the truth, nothing is done but what it showed, and the proof is shown."""

import pytest

import holdfast
from console.conftest import Browser
from harness.console_world import console_alone, make_trips, push_orders, rows, serving_console

PLAN = "/console/table/trips/takeback?act={}"


@pytest.fixture
def world(tmp_path):
    table = make_trips(tmp_path)
    with console_alone({"trips": str(tmp_path / "trips")}) as running:
        yield Browser(running.controller_url), table


def _commits(table):
    return [one.time for one in table.timeline() if one.action == "commit" and one.is_completed]


def _keys(table):
    return set(table.to_arrow(columns=["id"])["id"].to_pylist())


def test_an_undo_is_planned_confirmed_done_and_proven(world):
    browser, table = world
    before = _commits(table)
    plan = browser.json(PLAN.format("undo"))["plan"]

    task = browser.act(PLAN.format("undo"), "trips")

    assert task["state"] == "done", task
    assert _commits(table) == before[:-1]
    assert plan["now"]["rows"] == 175
    assert plan["after"]["rows"] == 180 == table.to_arrow().num_rows
    assert plan["rows"]["added"] == 5
    assert plan["rows"]["removed"] == 0
    text = browser.get(f"/console/task/{task['id']}").text
    assert "proven: queries see the" in text
    assert f"holdfast undo {table.path}" in text


def test_a_plan_says_what_a_restore_does_before_it_does_it(world):
    browser, table = world
    saved = table.savepoints()[0].instant
    old = set(table.to_arrow(as_of=saved, columns=["id"])["id"].to_pylist())
    path = PLAN.format(f"restore&to={saved}")
    plan = browser.json(path)["plan"]

    assert plan["rows"]["removed"] == len(_keys(table) - old)
    assert plan["after"]["rows"] == len(old)
    assert plan["vanishing_of"] > 0
    task = browser.act(path, "trips")

    assert task["state"] == "done", task
    assert _keys(table) == old
    assert task["command"] == f"holdfast restore {table.path} --to {saved}"


def test_a_restore_names_the_partitions_that_become_empty(tmp_path):
    table = holdfast.create_table(
        str(tmp_path / "t"), name="t", record_key="id", partition_by="city", ordering="ts"
    )
    first = table.insert(rows(0, 3, cities=("oslo",))).instant
    table.insert(rows(9, 3, cities=("bergen",)))
    with console_alone({"t": str(tmp_path / "t")}) as running:
        browser = Browser(running.controller_url)
        plan = browser.json(f"/console/table/t/takeback?act=restore&to={first}")["plan"]

    assert [name.rpartition("=")[2] for name in plan["emptied"]] == ["bergen"]


def test_the_name_must_be_typed(world):
    browser, table = world
    before = table.timeline()

    for word in ("", "trip", "TRIPS", "orders"):
        answer = browser.act(PLAN.format("undo"), word)
        assert answer.status_code == 400
        assert "Type the name" in answer.text
    assert table.timeline() == before


def test_a_plan_that_the_table_has_outgrown_is_shown_anew(world):
    browser, table = world
    fields = browser.fields(PLAN.format("undo"))
    added = table.insert(rows(500, 3)).instant

    answer = browser.http.post("/console/table/trips/takeback", data={**fields, "confirm": "trips"})

    assert answer.status_code == 409
    assert "nothing was done" in answer.text
    assert added in answer.text
    assert _commits(table)[-1] == added


_LOOKS = (
    "timeline", "takeback?act=undo", "takeback?act=restore&to=latest-savepoint", "takeback?act=recover",
    "storage", "clean?retain=1", "lineage", "query?sql=SELECT+1", "compare", "care",
)  # fmt: skip


def test_looking_changes_nothing(world):
    browser, table = world
    before = {path: path.stat().st_mtime_ns for path in sorted(_files(table))}

    for page in _LOOKS:
        assert browser.get(f"/console/table/trips/{page}").status_code == 200, page

    assert {path: path.stat().st_mtime_ns for path in sorted(_files(table))} == before


def _files(table):
    from pathlib import Path

    return [path for path in Path(table.path).rglob("*") if path.is_file()]


def test_a_reader_sees_the_plan_and_cannot_confirm_it(tmp_path):
    table = make_trips(tmp_path)
    with console_alone({"trips": table.path}, is_read_only=True) as running:
        reader = Browser(running.controller_url)
        text = reader.get(PLAN.format("undo")).text
        token = reader.http.cookies["holdfast"]
        answer = reader.post("/console/table/trips/takeback", token=token, act="undo", confirm="trips")

    assert "needs the role" in text
    assert "to confirm" not in text
    assert answer.status_code == 403
    assert len(_commits(table)) == 7


def test_what_stands_in_the_way_is_said(world):
    browser, table = world
    answer = browser.get(PLAN.format(f"rollback&to={_commits(table)[1]}"))

    assert answer.status_code == 409
    assert "there are commits after this one" in answer.text


def test_a_push_is_reverted_redone_and_gone_back_to(tmp_path):
    with serving_console(tmp_path, {"orders": str(tmp_path / "orders")}) as running:
        lake = push_orders(tmp_path, running)
        name, browser = lake.served.name, Browser(running.controller_url)
        path = f"/console/table/{name}/takeback?act="
        plan = browser.json(f"{path}redo&to={lake.entries[2]}")["plan"]

        assert plan["planned"] == {"shown": ["s3"], "hidden": ["s2"]}
        assert browser.act(f"{path}redo&to={lake.entries[2]}", name)["state"] == "done"
        assert lake.served.visible() == {"s3"}
        assert browser.act(f"{path}revert&to={lake.entries[2]}", name)["state"] == "done"
        assert lake.served.visible() == {"s2"}
        kept = browser.json(f"/console/table/{name}/pushes")["snapshots"]
        oldest = next(one for one in kept if one["entry"] == lake.entries[0])
        assert browser.act(f"{path}push_rollback&to={oldest['epoch']}", name)["state"] == "done"
        assert lake.served.visible() == {"s1"}

        refused = browser.act(f"{path}revert&to={lake.entries[0]}", name)
        assert "NO ROWS" in refused.text
        assert lake.served.visible() == {"s1"}
        assert browser.act(f"{path}revert&to={lake.entries[0]}", name, to_empty="yes")["state"] == "done"
        assert lake.served.visible() == set()


def test_pushes_that_show_what_is_taken_back_are_named(tmp_path):
    with serving_console(tmp_path, {"orders": str(tmp_path / "orders")}) as running:
        lake = push_orders(tmp_path, running)
        browser = Browser(running.controller_url)
        plan = browser.json(f"/console/table/orders/takeback?act=restore&to={lake.instants[0]}")["plan"]

        assert {one["entry"] for one in plan["follows"]} == set(lake.entries[1:])
        assert (
            browser.act(f"/console/table/orders/takeback?act=restore&to={lake.instants[0]}", "orders")[
                "state"
            ]
            == "done"
        )
        served = browser.json("/")["lake"][0]["served"][0]
        assert served["word"] == "shows rows that were taken back"
