"""Routes of tables, schemas and segments, as Pinot's clients use them."""

import io
import json

import httpx2
import pyarrow.parquet as pq
import pytest

from harness.push_client import PushedTable, config, make_table, parquet, schema
from holdfast.config.push import check_new_name
from holdfast.errors import InvalidRequest
from holdfast.push.uploads.archives import unpack_segment


def test_a_schema_is_added_shown_changed_and_deleted(client):
    added = client.post("/schemas", schema("fresh"), override=False)
    assert added.json() == {"unrecognizedProperties": {}, "status": "fresh successfully added"}
    assert client.post("/schemas", schema("fresh"), override=False).status_code == 409
    assert client.get("/schemas/fresh").json() == schema("fresh")
    assert "fresh" in client.get("/schemas").json()

    wider = schema("fresh")
    wider["dimensionFieldSpecs"].append({"name": "extra", "dataType": "STRING"})
    assert client.call("PUT", "/schemas/fresh", json=wider).status_code == 200
    assert client.get("/schemas/fresh").json() == wider
    assert client.call("PUT", "/schemas/fresh", json=schema("other")).status_code == 400
    assert client.call("PUT", "/schemas/absent", json=schema("absent")).status_code == 404
    assert client.delete("/schemas/fresh").status_code == 200
    assert client.get("/schemas/fresh").status_code == 404


def test_a_schema_may_come_as_the_one_file_of_a_form(client):
    document = json.dumps(schema("formed")).encode()

    assert client.call("POST", "/schemas", files={"schema": ("formed.json", document)}).status_code == 200
    assert client.get("/schemas/formed").json() == schema("formed")
    two = [("a", ("a", document)), ("b", ("b", document))]
    assert client.call("POST", "/schemas", files=two).status_code == 400


@pytest.mark.parametrize("name", ["a__b", "", "../x", 7])
def test_a_schema_with_an_odd_name_is_400(client, name):
    assert client.post("/schemas", {**schema("x"), "schemaName": name}).status_code == 400


def test_a_table_that_asks_for_other_rows_is_refused_and_not_made(client):
    client.post("/schemas", schema("filtered"))
    asking = config("filtered")
    asking["ingestionConfig"]["filterConfig"] = {"filterFunction": "Groovy({city == 'oslo'}, city)"}

    for path in ("/tables", "/tables/validate"):
        answer = client.post(path, asking)
        assert (answer.status_code, answer.json()["errorCode"]) == (400, "UNSUPPORTED_SETTING"), path
        assert "ingestionConfig.filterConfig.filterFunction" in answer.json()["error"]
    assert "filtered" not in client.get("/tables").json()["tables"]
    assert client.post("/tables", config("filtered")).status_code == 200
    assert client.call("PUT", "/tables/filtered", json=asking).status_code == 400

    computed = schema("computed")
    computed["metricFieldSpecs"][0]["transformFunction"] = "nosuch(id)"
    refused = client.post("/schemas", computed)
    assert (refused.status_code, refused.json()["errorCode"]) == (400, "UNSUPPORTED_SETTING")


def test_a_table_is_created_shown_changed_and_deleted(client):
    assert client.post("/tables", config("lonely")).status_code == 400
    client.post("/schemas", schema("lonely"))

    created = client.post("/tables", config("lonely", surplus={"a": 1}))
    assert created.json() == {
        "unrecognizedProperties": {"/surplus": {"a": 1}},
        "settingsWithoutEffect": created.json()["settingsWithoutEffect"],
        "status": "Table lonely_OFFLINE successfully added",
    }
    assert list(created.json()["settingsWithoutEffect"]) == ["tableIndexConfig.loadMode"]
    found = client.get("/segments/lonely/lineage/doctor").json()
    assert (found["findings"], list(found["settingsWithoutEffect"])) == ([], ["tableIndexConfig.loadMode"])
    assert client.post("/tables", config("lonely")).status_code == 409
    assert "lonely" in client.get("/tables").json()["tables"]
    assert "lonely" not in client.get("/tables", type="REALTIME").json()["tables"]
    shown = client.get("/tables/lonely").json()
    assert shown["OFFLINE"]["tableName"] == "lonely_OFFLINE"
    assert client.get("/tables/lonely_OFFLINE").json() == shown
    assert client.get("/tables/lonely/schema").json() == schema("lonely")

    changed = config("lonely", segments={"replacedSegmentsRetentionPeriod": "3d"})
    assert client.call("PUT", "/tables/lonely", json=changed).status_code == 200
    held = client.get("/tables/lonely").json()["OFFLINE"]["segmentsConfig"]
    assert held["replacedSegmentsRetentionPeriod"] == "3d"
    assert client.call("PUT", "/tables/lonely", json=config("other")).status_code == 400
    assert client.call("PUT", "/tables/absent", json=config("absent")).status_code == 404
    assert client.delete("/schemas/lonely").status_code == 409
    assert client.delete("/tables/lonely").json() == {"status": "Tables: [lonely_OFFLINE] deleted"}
    assert client.get("/tables/lonely").status_code == 404
    assert client.delete("/schemas/lonely").status_code == 200


def test_validating_changes_nothing(client):
    def kept():
        return [path for path in client.records() if "maybe" in path]

    assert client.post("/tables/validate", config("maybe")).json()["OFFLINE"]["tableName"] == "maybe_OFFLINE"
    assert client.post("/tables/validate", {"tableName": "maybe"}).status_code in (200, 400)
    assert client.post("/schemas/validate", schema("maybe")).json() == schema("maybe")
    assert client.post("/schemas/validate", {"schemaName": "maybe"}).status_code == 400
    assert kept() == []


def test_a_database_stands_before_the_name(client):
    headers = {"database": "sales"}
    assert client.post("/schemas", schema("shop"), headers=headers).status_code == 200
    inside = {**config("shop"), "segmentsConfig": {"replication": "1", "schemaName": "sales.shop"}}
    assert client.post("/tables", inside, headers=headers).status_code == 200

    assert "sales.shop" in client.get("/tables").json()["tables"]
    assert client.call("GET", "/tables/shop", headers=headers).status_code == 200
    assert client.get("/tables/sales.shop").status_code == 200
    assert client.get("/tables/shop").status_code == 404
    assert client.call("GET", "/tables/sales.shop", headers={"database": "other"}).status_code == 400


@pytest.fixture
def pushed(table):
    table.upload("a", rows=3)
    table.push(["a"], ["b"])
    return table


def test_segments_are_listed_selected_and_described(pushed, client):
    path = f"/segments/{pushed.name}"

    assert pushed.segments() == {"a", "b"}
    assert pushed.visible() == {"b"}
    assert client.get(f"{path}/select").json() == [{"OFFLINE": ["b"]}]
    everything = {"startTimestamp": 0, "endTimestamp": 10}
    assert client.get(path, **everything).json() == [{"OFFLINE": ["a", "b"]}]
    assert client.get(path, startTimestamp=10, endTimestamp=10).status_code == 400
    assert client.get(path, startTimestamp="soon").status_code == 400
    assert set(client.get(f"{path}/crc").json()) == {"a", "b"}
    (placed,) = client.get(f"{path}/servers").json()
    assert placed["tableName"] == pushed.typed
    assert [sorted(names) for names in placed["serverToSegmentsMap"].values()] == [["a", "b"]]
    described = client.get(f"{path}/a/metadata").json()
    assert described["segment.total.docs"] == "3"
    assert client.get(f"{path}/zkmetadata").json()["a"] == described
    assert client.get(f"{path}/nothing/metadata").status_code == 404
    assert client.get("/segments/nobody").status_code == 404


def test_sizes_are_told_with_and_without_what_was_replaced(pushed, client):
    path = f"/tables/{pushed.name}/size"

    whole = client.get(path).json()
    seen = client.get(path, includeReplacedSegments=False, verbose=False).json()

    assert whole["reportedSizeInBytes"] == sum(
        one["reportedSizeInBytes"] for one in whole["offlineSegments"]["segments"].values()
    )
    assert 0 < seen["reportedSizeInBytes"] < whole["reportedSizeInBytes"]
    assert seen["offlineSegments"]["segments"] == {}
    assert whole["offlineSegments"]["missingSegments"] == 0


def test_a_segment_is_downloaded_as_pinot_packs_it_and_can_be_uploaded_again(pushed, client):
    answer, columns = client.get(f"/segments/{pushed.name}/a"), io.BytesIO()

    unpacked = unpack_segment(io.BytesIO(answer.content), columns)
    assert unpacked.description.name == "a"
    assert unpacked.description.docs == 3
    assert pq.read_table(columns).num_rows == 3
    other = make_table(client)
    again = client.call(
        "POST", "/v2/segments", params={"tableName": other.name},
        files={"a": ("a", answer.content)},
    )  # fmt: skip
    assert again.status_code == 200, again.text
    assert other.visible() == {"a"}
    assert client.get(f"/segments/{pushed.name}/nothing").status_code == 404


def test_segments_of_a_time_range_are_deleted_only_if_the_range_is_given(pushed, client):
    path = f"/segments/{pushed.name}/choose"

    assert client.delete(path, type="OFFLINE").status_code == 400
    assert client.delete(path, startTimestamp=1, endTimestamp=2).status_code == 400


def test_all_segments_go_if_none_is_named(client):
    table = make_table(client)
    table.upload("a")
    table.upload("b")

    assert client.delete(f"/segments/{table.name}").status_code == 400
    assert client.delete(f"/segments/{table.name}", type="OFFLINE", retention="0d").status_code == 200
    assert table.segments() == set()
    assert client.delete(f"/segments/{table.name}", type="OFFLINE", retention="soon").status_code == 400


def test_segments_in_a_body_are_deleted(client):
    table = make_table(client)
    table.upload("a")
    table.upload("b")

    assert client.post(f"/segments/{table.name}/delete", ["a"]).status_code == 200
    assert table.segments() == {"b"}


def test_retention_runs_on_demand(pushed, client):
    assert client.get("/periodictask/names").json() == ["RetentionManager"]
    run = {"taskname": "RetentionManager", "tableName": pushed.name, "type": "OFFLINE"}

    answer = client.post("/periodictask/run", **run)
    assert [one["table"] for one in answer.json()["reports"]] == [pushed.typed]
    assert client.get("/periodictask/run", **run).status_code == 405, "a look changes nothing"
    assert client.post("/periodictask/run", taskname="Nothing").status_code == 404
    assert client.post("/periodictask/run").status_code == 400
    assert client.post("/periodictask/run", taskname="RetentionManager", dryRun=True).status_code == 400
    assert (
        client.post("/periodictask/run", taskname="RetentionManager", tableName="nobody").status_code == 404
    )


def test_gates_are_evaluated_before_the_end(client):
    table = make_table(client)
    table.upload("a", rows=10)
    entry = table.started(["a"], ["b"], gatesRequired=True)
    table.upload("b", rows=4)
    assert table.end(entry).json()["errorCode"] == "GATE_FAILED"

    path = f"/segments/{table.name}/validateReplaceSegments"
    failed = client.post(path, {"gates": [{"min_rows": 5}]}, segmentLineageEntryId=entry).json()
    assert (failed["passed"], failed["gates"][0]["found"]) == (False, "4 rows")
    assert table.end(entry).status_code == 409
    passed = client.post(path, {"gates": [{"min_rows": 4}]}, segmentLineageEntryId=entry).json()
    assert passed["passed"] is True
    assert table.end(entry).status_code == 200


def test_a_lease_is_given_renewed_and_asked_for(client):
    table = make_table(client)
    started = table.start([], ["a"], lease=True).json()
    entry, token = started["segmentLineageEntryId"], started["leaseToken"]
    path = f"/segments/{table.name}/heartbeat"

    assert table.upload("a").status_code in (403, 409)
    assert client.post(path, segmentLineageEntryId=entry).status_code >= 400
    held = client.post(path, headers={"X-Lease-Token": token}, segmentLineageEntryId=entry).json()
    assert held["leaseExpiresAt"] >= started["leaseExpiresAt"]
    assert table.upload("a", headers={"X-Lease-Token": token}).status_code == 200


def test_consistent_push_is_switched_on_and_off_in_place(client):
    table = make_table(client)
    table.push([], [f"{table.typed}_1700000000000_0"])
    path = f"/tables/{table.name}/consistentPush"

    assert client.post(path).status_code == 400
    assert client.post(path, enabled=True).json()["consistentDataPush"] is True
    held = client.get(f"/tables/{table.name}").json()["OFFLINE"]["ingestionConfig"]
    assert held["batchIngestionConfig"]["consistentDataPush"] is True
    assert client.post(path, enabled=False).status_code == 200
    assert len(table.visible()) == 1


def test_a_configuration_that_switches_consistent_push_off_gives_segments_lasting_names(client):
    table = make_table(client, consistent=True)
    table.push([], [f"{table.typed}_1700000000000_{number}" for number in range(3)])

    settings = client.get(f"/tables/{table.name}").json()["OFFLINE"]
    settings["ingestionConfig"]["batchIngestionConfig"]["consistentDataPush"] = False
    assert client.call("PUT", f"/tables/{table.name}", json=settings).status_code == 200

    assert table.visible() == {f"{table.typed}_{number}" for number in range(3)}


def test_a_snapshot_is_pinned_and_let_go(pushed, client):
    epoch = client.get(f"/segments/{pushed.name}/snapshots").json()["snapshots"][0]["epoch"]
    path = f"/segments/{pushed.name}/snapshots/{epoch}/pin"

    assert client.post(path).status_code == 400
    assert client.post(path, until=4_000_000_000_000).json()["pinnedUntil"] == 4_000_000_000_000
    assert client.delete(path).status_code == 200
    assert client.post(f"/segments/{pushed.name}/snapshots/999/pin", until=1).status_code >= 400
    assert client.post(f"/segments/{pushed.name}/snapshots/x/pin", until=1).status_code == 404


def test_a_push_that_does_not_fit_is_refused_at_the_start_with_the_figures(client):
    table = make_table(client, quota={"storage": "1M"})

    assert client.get(f"/segments/{table.name}/preflight", expectedBytes=100).json()["fits"] is True
    assert client.get(f"/segments/{table.name}/preflight", expectedBytes=10**8).json()["fits"] is False
    assert client.get(f"/segments/{table.name}/preflight").status_code == 400
    answer = table.start([], ["a"], expectedBytes=10**8)
    assert (answer.status_code, answer.json()["errorCode"]) == (403, "QUOTA_EXCEEDED")
    assert "1" in answer.json()["error"]


def test_the_doctor_looks_and_mends(pushed, client):
    path = f"/segments/{pushed.name}/lineage/doctor"

    assert client.get(path).json()["findings"] == []
    assert client.post(path).status_code == 200


def test_uploads_by_address_come_from_configured_places_only(serve, tmp_path):
    from harness.push_client import Client
    from holdfast.config.server import Downloads

    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "a.parquet").write_bytes(parquet(5, snapshot=1))
    (tmp_path / "secret.parquet").write_bytes(parquet(5, snapshot=1))
    client = Client(serve(downloads=Downloads(roots=(str(tmp_path / "staging"),))))
    table = make_table(client)

    def upload(uri, **headers):
        headers = {"UPLOAD_TYPE": "URI", "DOWNLOAD_URI": uri, "Content-Type": "application/json", **headers}
        return client.call("POST", "/v2/segments", params={"tableName": table.name}, headers=headers)

    for uri in (
        f"file://{tmp_path}/secret.parquet",
        f"file://{tmp_path}/staging/../secret.parquet",
        "http://169.254.169.254/latest/meta-data",
        client.running.controller_url + "/health",
    ):
        answer = upload(uri)
        assert (answer.status_code, answer.json()["errorCode"]) == (403, "URI_REFUSED"), uri
        assert upload(uri, UPLOAD_TYPE="METADATA").status_code in (400, 403)
    assert upload("").status_code == 400
    assert table.segments() == set()
    assert upload(f"file://{tmp_path}/staging/a.parquet").status_code == 200
    assert len(table.segments()) == 1


def test_health_and_uptime_need_nobody(client):
    for broker in (False, True):
        answer = client.call("GET", "/health", broker=broker)
        assert (answer.status_code, answer.text) == (200, "OK")
        assert answer.headers["content-type"].startswith("text/plain")
        assert int(client.call("GET", "/uptime", broker=broker).text) >= 0
    assert client.get("/auth/info").json() == {"workflow": "NONE"}


def test_metrics_tell_about_tables_and_answers(pushed, client):
    pushed.start(["nobody"], ["x"])

    text = client.get("/metrics").text

    assert f'holdfast_table_visible_segments{{table="{pushed.name}"}} 1.0' in text
    assert f'holdfast_table_segments{{table="{pushed.name}"}} 2.0' in text
    assert f'holdfast_table_lineage_entries{{state="COMPLETED",table="{pushed.name}"}} 1.0' in text
    assert 'holdfast_lineage_failures_total{call="StartReplaceSegments",code="FROM_NOT_VISIBLE"}' in text
    assert client.call("GET", "/metrics", broker=True).status_code == 200


def test_what_is_not_served_is_404_and_other_methods_are_405(client):
    assert client.get("/nothing").json()["errorCode"] == "NOT_SERVED"
    answer = client.call("PATCH", "/tables")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].replace(" ", "").split(",")) >= {"GET"}
    assert client.get("/tables/").status_code == 404


def test_the_client_of_another_site_is_refused(client):
    """A page that is open in a browser on this machine reaches the loopback address."""
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
        {"Host": "evil.example:9000", "Origin": "http://evil.example:9000"},
    ):
        answer = client.call("POST", "/schemas", json=schema("page"), headers=headers)
        assert answer.status_code == 403, headers
    assert client.get("/schemas/page").status_code == 404
    ours = {"Origin": client.running.controller_url}
    assert client.call("GET", "/tables", headers=ours).status_code == 200


def test_a_name_that_exists_nowhere_is_404_for_every_call(client):
    nobody = PushedTable(client, "nobody")

    assert nobody.start([], ["a"]).status_code == 404
    assert nobody.end("x").status_code == 404
    assert nobody.revert("x").status_code == 404
    assert nobody.delete("a").status_code == 404
    assert isinstance(nobody.start([], ["a"]), httpx2.Response)


@pytest.mark.parametrize("name", ["t_REALTIME_OFFLINE", "t_OFFLINE_OFFLINE", "t_offline_OFFLINE"])
def test_a_name_that_ends_like_a_type_is_refused(client, name):
    answer = client.post("/tables", {"tableName": name, "tableType": "OFFLINE", "segmentsConfig": {}})

    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_TABLE_NAME")


def test_a_name_that_differs_only_by_case_is_refused(client):
    table = make_table(client)
    schema = {"schemaName": table.name.upper(), "dimensionFieldSpecs": [{"name": "id", "dataType": "LONG"}]}
    client.post("/schemas", schema)

    answer = client.post(
        "/tables", {"tableName": table.name.upper(), "tableType": "OFFLINE", "segmentsConfig": {}}
    )

    assert (answer.status_code, answer.json()["errorCode"]) == (409, "TABLE_EXISTS")


@pytest.mark.parametrize("name", ["s_REALTIME", "s_OFFLINE", "s_offline"])
def test_the_name_of_a_schema_is_one_that_its_table_can_have(client, name):
    answer = client.post(
        "/schemas", {"schemaName": name, "dimensionFieldSpecs": [{"name": "id", "dataType": "LONG"}]}
    )

    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_TABLE_NAME")


def test_a_schema_whose_name_differs_only_by_case_is_refused(client):
    table = make_table(client)
    schema = {"schemaName": table.name.upper(), "dimensionFieldSpecs": [{"name": "id", "dataType": "LONG"}]}
    for override in (False, True):
        answer = client.call("POST", "/schemas", params={"override": override}, json=schema)

        assert (answer.status_code, answer.json()["errorCode"]) == (409, "SCHEMA_EXISTS")


@pytest.mark.parametrize(
    "path",
    ["{0}/../other/a__t.parquet", "{0}/sub/a__t.parquet", "../a__t.parquet", "{0}/a", "/{0}/a__t.parquet"],
)
def test_only_files_of_the_tables_own_folder_are_discarded(client, path):
    table = make_table(client)

    answer = client.post(f"/segments/{table.name}/discardFiles", {"files": [path.format(table.name)]})

    assert (answer.status_code, answer.json()["errorCode"]) == (400, "NOT_A_FILE")


@pytest.mark.parametrize("database", ["DEFAULT", "Default"])
def test_no_table_is_made_beside_those_without_a_database(client, database):
    """Queries read both by one name."""
    for name, headers in ((f"{database}.orders", {}), ("orders", {"database": database})):
        schema = client.post("/schemas", {"schemaName": name, "dimensionFieldSpecs": []}, headers=headers)
        table = client.post("/tables", {"tableName": name, "tableType": "OFFLINE"}, headers=headers)

        assert (schema.status_code, schema.json()["errorCode"]) == (400, "INVALID_TABLE_NAME")
        assert (table.status_code, table.json()["errorCode"]) == (400, "INVALID_TABLE_NAME")
    with pytest.raises(InvalidRequest, match="means none"):
        check_new_name(f"{database}.orders_OFFLINE")
