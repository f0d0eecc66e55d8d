"""What goes beyond Pinot's three calls: parts of a table, ends in the background, waiting for clean-up."""

import time

import pytest

from harness.push_client import config, make_table, parquet, schema

DAY_MS = 86_400_000
FIRST = 1_785_542_400_000
"""The first of August 2026."""


@pytest.fixture
def daily(client):
    """A table of three days, one segment each, which appends."""
    table = make_table(client, kind="APPEND")
    described = schema(table.name)
    described["dateTimeFieldSpecs"] = [
        {"name": "at", "dataType": "LONG", "format": "1:MILLISECONDS:EPOCH", "granularity": "1:DAYS"}
    ]
    assert client.call("PUT", f"/schemas/{table.name}", json=described).status_code == 200
    document = config(table.name, kind="APPEND", segments={"timeColumnName": "at"})
    assert client.call("PUT", f"/tables/{table.name}", json=document).status_code == 200
    for day in range(3):
        upload(table, f"day{day}", day)
    return table


def upload(table, name, day, rows=2):
    content = parquet(rows, at=FIRST + day * DAY_MS + 1000, snapshot=day)
    answer = table.client.call(
        "POST", "/v2/segments", params={"tableName": table.name}, files={"file": (name, content)}
    )
    assert answer.status_code == 200, answer.text


def start(table, document, **params):
    return table.client.post(
        f"/segments/{table.name}/startReplaceSegments", document,
        headers={"X-Lineage-Status": "precise"}, type="OFFLINE", **params,
    )  # fmt: skip


def test_a_push_replaces_the_segments_of_a_time_range(daily):
    answer = start(daily, {"replace": {"timeRange": ["2026-08-02", "2026-08-03"]}, "segmentsTo": ["new"]})

    assert answer.json()["segmentsFrom"] == ["day1"]
    upload(daily, "new", 1, rows=5)
    assert daily.end(answer.json()["segmentLineageEntryId"]).status_code == 200
    assert daily.visible() == {"day0", "new", "day2"}


def test_a_part_with_segments_across_its_border_is_refused(daily):
    """Each segment has rows of both cities, so none of them is the partition of one."""
    border = {"partition": {"column": "city", "value": "oslo"}}

    answer = start(daily, {"replace": border, "segmentsTo": ["new"]})

    assert (answer.status_code, answer.json()["errorCode"]) == (409, "PART_OVERLAPS")
    assert daily.entries() == {}


def test_a_part_without_segments_is_added_to(daily):
    document = {"replace": {"timeRange": ["2026-08-07", "2026-08-08"]}, "segmentsTo": ["new"]}

    assert start(daily, document).json()["segmentsFrom"] == []


def test_what_a_push_of_a_part_brings_must_lie_in_it(daily):
    document = {"replace": {"timeRange": ["2026-08-02", "2026-08-03"]}, "segmentsTo": ["new"]}
    entry = start(daily, document).json()["segmentLineageEntryId"]
    upload(daily, "new", 2)

    answer = daily.end(entry)

    assert (answer.status_code, answer.json()["errorCode"]) == (409, "TO_OUTSIDE_PART")
    assert daily.visible() == {"day0", "day1", "day2"}


@pytest.mark.parametrize(
    "document",
    [
        {"replace": {"timeRange": ["soon", "later"]}, "segmentsTo": ["x"]},
        {"replace": {}, "segmentsTo": ["x"]},
        {"replace": {"timeRange": [1, 2]}, "segmentsFrom": ["day0"], "segmentsTo": ["x"]},
    ],
)
def test_a_part_that_means_nothing_is_refused(daily, document):
    assert start(daily, document).status_code == 400


def test_an_end_goes_on_after_its_call(table):
    entry = table.started([], ["a"])
    table.upload("a")

    answer = table.end(entry, **{"async": True})

    job = answer.json()["jobId"]
    deadline = time.monotonic() + 20
    while (found := table.client.get(f"/lineage/jobs/{job}").json())["state"] == "RUNNING":
        assert found["segments"] == 1
        assert time.monotonic() < deadline
    assert (found["state"], found["segmentLineageEntryId"]) == ("DONE", entry)
    assert table.states() == ["COMPLETED"]


def test_an_end_that_fails_after_its_call_says_why(table):
    entry = table.started([], ["a"])

    job = table.end(entry, **{"async": True}).json()["jobId"]

    deadline = time.monotonic() + 20
    while (found := table.client.get(f"/lineage/jobs/{job}").json())["state"] == "RUNNING":
        assert time.monotonic() < deadline
    assert (found["state"], found["errorCode"]) == ("FAILED", "TO_NOT_UPLOADED")
    assert table.states() == ["IN_PROGRESS"]
    assert table.client.get("/lineage/jobs/unknown").status_code == 404


def test_a_start_waits_until_what_it_let_go_is_deleted(running, client):
    table = make_table(client, batch={"retainedSnapshots": 1})
    table.push([], ["a"])
    table.push(["a"], ["b"])
    folder = f"{running.service.settings.deep_store}/{table.name}"

    answer = start(
        table, {"segmentsFrom": ["b"], "segmentsTo": ["c"]}, forceCleanup=True, waitForCleanup=True
    )

    assert answer.json()["notCleanedUp"] == []
    names = {path.path for path in running.service.deep_store.files(table.typed)}
    assert not any("/a__" in name for name in names), (folder, names)


def test_a_change_of_the_schema_and_the_end_of_the_table_are_in_the_audit(client):
    table = make_table(client)
    wider = schema(table.name)
    wider["dimensionFieldSpecs"].append({"name": "extra", "dataType": "STRING"})
    assert client.call("PUT", f"/schemas/{table.name}", json=wider).status_code == 200

    assert client.delete(f"/tables/{table.name}").status_code == 200
    assert client.post("/tables", config(table.name)).status_code == 200

    records = client.get(f"/segments/{table.name}/lineage/audit", type="OFFLINE").json()["records"]
    assert [one["operation"] for one in records] == [
        "create table",
        "delete table",
        "change schema",
        "create table",
    ]


def test_a_query_sees_what_was_seen_at_a_moment(table):
    before_ms = round(time.time() * 1000)
    entry = table.push([], ["a"])
    published_ms = round(time.time() * 1000)
    time.sleep(0.002)
    table.push(["a"], ["b", "c"])
    epoch = max(one["epoch"] for one in _snapshots(table))

    def asked(**options):
        given = {"minSnapshotEpoch": epoch, "timeoutMs": 60_000, **options}
        listed = ";".join(f"{name}={value}" for name, value in given.items())
        answer = table.client.sql(f"SELECT count(*) FROM {table.name}", queryOptions=listed)
        return answer["exceptions"] or answer["resultTable"]["rows"]

    assert asked() == [[4]]
    assert asked(asOfTime=published_ms) == [[2]]
    assert asked(asOfTime=round(time.time() * 1000)) == [[4]]
    assert asked(asOfTime=before_ms - 1000)[0]["errorCode"] == 700
    assert asked(asOfTime="yesterday")[0]["errorCode"] == 700
    assert entry in table.entries()


def _snapshots(table):
    return table.client.get(f"/segments/{table.name}/snapshots", type="OFFLINE").json()["snapshots"]
