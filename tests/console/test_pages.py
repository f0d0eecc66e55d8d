"""Storage, lineage, pushes, queries, care: what they say is what is there."""

import csv
import io
from uuid import uuid4

import pyarrow as pa
import pytest

import holdfast
from console.conftest import Browser
from harness.console_world import console_alone, rows
from holdfast.cli.console import name_tables
from holdfast.config.server import parse_settings
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidOption
from holdfast.model.instant import just_after
from holdfast.services.clean.plan import explain_clean
from holdfast.table.opened import open_at

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser(guarded):
    return Browser(guarded.controller_url, "reader")


@pytest.fixture(scope="module")
def trips(guarded):
    return guarded.service.settings.catalog.tables["trips"]


def test_the_room_is_that_of_the_files(browser, trips):
    page = browser.json("/console/table/trips/storage?retain=2")
    options = {"hoodie.clean.commits.retained": "2"}
    plan = explain_clean(open_at(trips), WriteSettings.from_options(options).clean)

    assert page["size_bytes"] == sum(one.size for one in (*plan.kept, *plan.doomed))
    assert page["freed_bytes"] == plan.bytes_freed
    assert {one["path"] for one in page["files"]} == {one.path for one in (*plan.kept, *plan.doomed)}
    assert sum(one["files"] for one in page["sizes"]) == page["files_of"]


def test_the_slider_answers_with_its_part_of_the_page(browser):
    part = browser.get("/console/table/trips/storage?retain=1", **{"HX-Request": "true"}).text

    assert part.lstrip().startswith('<div id="forecast">')
    assert "<html" not in part


def test_a_clean_deletes_what_its_plan_named(tmp_path):
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id", ordering="ts")
    for number in range(4):
        table.upsert(rows(0, 5, note=str(number)))
    with console_alone({"t": str(tmp_path / "t")}) as running:
        browser = Browser(running.controller_url)
        plan = browser.json("/console/table/t/clean?retain=1")
        task = browser.act("/console/table/t/clean?retain=1", "t")

    assert plan["freed_files"] > 0
    assert task["state"] == "done"
    assert sorted(task["report"]["cleaned"]["deleted"]) == sorted(
        one for one in plan["vanishing"] if one.endswith(".parquet")
    )


def test_lineage_leads_from_a_commit_to_the_segments_that_queries_see(served):
    running, lake = served
    page = Browser(running.controller_url).json("/console/table/orders/lineage")
    links = {tuple(link) for link in page["links"]}

    assert (lake.instants[1], lake.entries[1]) in links
    assert (lake.entries[1], f"{lake.served.typed}/s2") in links
    states = {one["id"]: one["state"] for one in page["pushes"]}
    assert states[lake.entries[1]] == "current"
    assert states[lake.entries[2]] == "undone"


def test_pushes_tell_the_lineage_and_the_snapshots(served):
    running, lake = served
    page = Browser(running.controller_url).json(f"/console/table/{lake.served.name}/pushes")

    assert [one["id"] for one in page["entries"]] == list(reversed(list(lake.served.entries())))
    assert {one["state"] for one in page["entries"]} == {"COMPLETED", "REVERTED"}
    assert next(one for one in page["snapshots"] if one["is_current"])["entry"] == lake.entries[1]


def test_a_query_sees_the_snapshot_that_was_picked(browser, trips):
    saved = holdfast.open_table(trips).savepoints()[0].instant

    now = browser.json("/console/table/trips/query?sql=SELECT count(*) AS n FROM trips")
    then = browser.json(f"/console/table/trips/query?sql=SELECT count(*) AS n FROM trips&as_of={saved}")

    assert (now["rows"], then["rows"]) == ([[175]], [[120]])


def test_an_answer_can_be_had_as_csv(browser):
    sql = "SELECT id, note, '=1+1' AS formula FROM trips ORDER BY id LIMIT 3"
    answer = browser.http.get("/console/table/trips/query", params={"format": "csv", "sql": sql})

    table = list(csv.reader(io.StringIO(answer.text)))
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    assert table[0] == ["id", "note", "formula"]
    assert table[1][2] == "'=1+1"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM glob('/*')",
        "COPY trips TO '/tmp/holdfast-console-stolen.csv'",
        "ATTACH '/tmp/holdfast-console-stolen.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        "CREATE TABLE x AS SELECT 1",
        "DROP VIEW trips",
        "PRAGMA database_list",
        "SELECT * FROM site",
        "SELECT * FROM rows",
        "no sql at all",
    ],
)
def test_a_query_can_do_nothing_but_read_its_table(browser, sql):
    answer = browser.http.get("/console/table/trips/query", params={"sql": sql, "format": "json"})

    assert answer.status_code == 400, answer.text
    assert answer.json()["failure"]
    assert "root:" not in answer.text


def test_a_served_table_is_queried_by_its_broker(served):
    running, lake = served
    name = lake.served.name
    page = Browser(running.controller_url).json(
        f"/console/table/{name}/query?sql=SELECT count(*) FROM {name}"
    )

    assert page["rows"] == [[2]]


def test_two_snapshots_are_compared(browser, trips):
    table = holdfast.open_table(trips)
    commits = [one.time for one in table.timeline() if one.action == "commit"]
    page = browser.json(f"/console/table/trips/compare?before={commits[-2]}&after={commits[-1]}")["compared"]

    assert (page["rows"]["added"], page["rows"]["removed"], page["rows"]["changed"]) == (0, 5, 0)
    assert page["before"]["rows"] - page["after"]["rows"] == 5


def test_care_finds_what_verify_finds_and_repairs_it(tmp_path):
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id", ordering="ts")
    instant = table.insert(rows(0, 3)).instant
    base = next((tmp_path / "t").glob("*.parquet"))
    table.insert(rows(3, 3))
    between = just_after(instant)
    orphan = base.with_name(f"{uuid4()}-0_0-0-0_{between}.parquet")
    orphan.write_bytes(base.read_bytes())
    with console_alone({"t": str(tmp_path / "t")}) as running:
        browser = Browser(running.controller_url)
        found = browser.json("/console/table/t/care")["lake"]
        stored = browser.json("/console/table/t/storage")
        task = browser.act("/console/table/t/care", "t")

        assert [one["kind"] for one in found["findings"]] == ["orphan"]
        assert next(one for one in stored["sizes"] if one["kind"] == "orphan")["files"] == 1
        assert task["state"] == "done", task
        assert not orphan.exists()
        assert browser.json("/console/table/t/care")["lake"]["is_clean"]


def test_what_is_stored_never_runs(tmp_path):
    """Comments, values, columns and partitions of a table are text, whatever they say."""
    rows_ = pa.table({"id": ["1", EVIL], EVIL: [EVIL, EVIL], "city": ["oslo", "<b>x"]})
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id", partition_by="city")
    try:
        table.insert(rows_)
    except holdfast.errors.HoldfastError:
        rows_ = rows_.rename_columns(["id", "evil", "city"])
        table.insert(rows_)
    table.savepoint(user=EVIL, comment=EVIL)
    table.insert(rows_.slice(0, 1))
    instant = table.timeline()[-1].time
    with console_alone({"t": str(tmp_path / "t")}) as running:
        browser = Browser(running.controller_url)
        saved = table.savepoints()[0].instant
        for page in (
            f"timeline?instant={saved}", f"timeline?instant={instant}", "takeback?act=undo", "storage",
            "query?sql=SELECT * FROM t", "lineage", "care", f"compare?before={saved}",
        ):  # fmt: skip
            text = browser.get(f"/console/table/t/{page}").text

            assert "<script>alert" not in text, page
            assert "<img src=x" not in text, page
            assert "<b>x" not in text, page
        assert "&lt;script&gt;" in browser.get(f"/console/table/t/timeline?instant={saved}").text


def test_a_catalog_is_a_mapping_or_a_file(tmp_path):
    (tmp_path / "tables.yaml").write_text("tables: {trips: lake/trips}\n")

    for given in ({"tables": {"trips": "lake/trips"}}, "tables.yaml"):
        settings = parse_settings({"catalog": given}, folder=str(tmp_path))
        assert settings.catalog.tables == {"trips": str(tmp_path / "lake/trips")}
    with pytest.raises(InvalidOption, match="not a name of a table"):
        parse_settings({"catalog": {"tables": {"a/b": "x"}}}, folder=str(tmp_path))
    with pytest.raises(InvalidOption, match="catalog"):
        parse_settings({"catalog": {"table": {}}}, folder=str(tmp_path))


def test_tables_without_a_name_get_one_from_their_path(tmp_path):
    names = name_tables(["lake/trips", "other/trips/", "s3://bucket/orders", "/"])

    assert list(names) == ["trips", "trips-2", "orders", "table"]
    assert names["orders"] == "s3://bucket/orders"
