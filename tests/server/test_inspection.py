"""What clients and tools of Pinot's ask before they query or push: brokers, instances, states."""

from urllib.parse import urlsplit

from harness.push_client import Client, basic, config, make_table, parquet, schema
from holdfast.config.server import Listener, Role, User
from holdfast.server.run import serving
from holdfast.server.secrets import hash_secret
from server.conftest import settings


def _broker(client):
    url = urlsplit(client.running.broker_url)
    return {"instanceName": f"Broker_{url.hostname}_{url.port}", "host": url.hostname, "port": url.port}


def test_brokers_are_found_by_table_and_by_tenant(client, table):
    broker = _broker(client)
    name = broker["instanceName"]

    assert client.get("/v2/brokers/tables", state="ONLINE").json()[table.name] == [broker]
    assert client.get(f"/v2/brokers/tables/{table.name}").json() == [broker]
    assert client.get("/v2/brokers/tenants").json() == {"DefaultTenant": [broker]}
    assert client.get("/v2/brokers/tenants/DefaultTenant").json() == [broker]
    assert client.get("/v2/brokers").json()["tenants"] == {"DefaultTenant": [broker]}
    assert client.get("/brokers").json()["tables"][table.name] == [name]
    assert client.get("/brokers/tables").json()[table.name] == [name]
    assert client.get(f"/brokers/tables/{table.name}").json() == [name]
    assert client.get("/brokers/tenants").json() == {"DefaultTenant": [name]}
    assert client.get("/brokers/tenants/DefaultTenant").json() == [name]
    assert client.get("/tables/livebrokers").json()[table.typed] == [broker]
    assert client.get("/tables/livebrokers", tables=table.name).json() == {table.typed: [broker]}
    assert client.get(f"/tables/{table.name}/livebrokers").json() == [f"{broker['host']}:{broker['port']}"]


def test_nothing_is_offline_and_what_is_not_there_is_404(client, table):
    assert client.get("/v2/brokers/tenants/DefaultTenant", state="OFFLINE").json() == []
    for path in (
        "/v2/brokers/tables/nowhere", "/brokers/tables/nowhere", "/v2/brokers/tenants/Other",
        "/tenants/Other",
        "/instances/Server_x_1", "/tables/nowhere/idealstate", "/tables/nowhere/externalview",
        "/tables/nowhere/instances", "/tables/nowhere/livebrokers", "/tableConfigs/nowhere",
    ):  # fmt: skip
        assert client.get(path).status_code == 404, path
    assert client.post("/segments/nowhere/reload").status_code == 404
    assert client.post(f"/segments/{table.name}/absent/reload").status_code == 404


def test_the_parts_of_the_service_are_told(client, table):
    assert list(client.get("/version").json()) == ["holdfast"]
    assert client.get("/cluster/info").json() == {"clusterName": "PinotCluster"}
    assert client.get("/tenants").json() == {
        "SERVER_TENANTS": ["DefaultTenant"], "BROKER_TENANTS": ["DefaultTenant"]
    }  # fmt: skip
    names = client.get("/instances").json()["instances"]
    assert [name.partition("_")[0] for name in names] == ["Controller", "Broker", "Server"]
    for name in names:
        assert client.get(f"/instances/{name}").json()["instanceName"] == name
    assert client.get("/tenants/DefaultTenant").json()["BrokerInstances"] == [names[1]]
    assert client.get(f"/tables/{table.name}/instances").json()["server"][0]["instances"] == [names[2]]


def test_ideal_state_and_external_view_name_every_segment(client, table):
    table.push([], ["a", "b"])

    for view in ("idealstate", "externalview"):
        found = client.get(f"/tables/{table.name}/{view}").json()
        assert found["REALTIME"] is None
        assert {name: set(held.values()) for name, held in found["OFFLINE"].items()} == {
            "a": {"ONLINE"}, "b": {"ONLINE"}
        }  # fmt: skip


def test_a_reload_changes_nothing_and_says_why(client, table):
    table.push([], ["a"])
    before = table.records()

    for path in (f"/segments/{table.name}/reload", f"/segments/{table.name}/a/reload"):
        assert "nothing to reload" in client.post(path).json()["status"]
    assert table.records() == before


def test_a_schema_and_its_table_are_made_changed_and_deleted_together(client):
    both = {"tableName": "pair", "schema": schema("pair"), "offline": config("pair", surplus=1)}

    added = client.post("/tableConfigs", both)
    assert (added.status_code, added.json()["unrecognizedProperties"]) == (200, {"/surplus": 1})
    assert client.post("/tableConfigs", both).status_code == 409
    assert "pair" in client.get("/tableConfigs").json()
    found = client.get("/tableConfigs/pair").json()
    assert (found["schema"], found["offline"]["tableName"]) == (schema("pair"), "pair_OFFLINE")
    both["offline"]["description"] = "changed"
    assert client.call("PUT", "/tableConfigs/pair", json=both).status_code == 200
    assert client.get("/tables/pair").json()["OFFLINE"]["description"] == "changed"
    assert client.call("PUT", "/tableConfigs/other", json=both).status_code == 400
    assert client.delete("/tableConfigs/pair").status_code == 200
    assert client.get("/tables/pair").status_code == client.get("/schemas/pair").status_code == 404


def test_what_is_refused_of_a_pair_leaves_neither(client):
    pair = {"schema": schema("half"), "offline": config("half")}
    wrong = config("half")
    wrong["ingestionConfig"]["enrichmentConfigs"] = [{"enricherType": "generateColumn"}]

    for body in (
        {**pair, "offline": wrong}, {**pair, "realtime": config("half")}, {"schema": schema("half")},
        {**pair, "schema": schema("another")},
    ):  # fmt: skip
        for path in ("/tableConfigs", "/tableConfigs/validate"):
            assert client.post(path, body).status_code == 400, (path, body)
    assert client.get("/schemas/half").status_code == 404
    assert client.post("/tableConfigs/validate", pair).json()["tableName"] == "half"
    assert client.get("/schemas/half").status_code == 404


def test_the_same_table_named_twice_is_one_and_two_are_refused(client, table):
    path = f"/v2/segments?tableName={table.name}&tableType=OFFLINE&tableName="
    files = {"file": ("a", parquet(2, snapshot=0))}
    assert client.call("POST", path + table.name, files=files).status_code == 200
    other = make_table(client)
    assert client.call("POST", path + other.name, files=files).status_code == 400


def test_only_tables_that_may_be_read_are_listed(tmp_path):
    secret = str(hash_secret("secret"))
    users = (
        User(name="one", secret_hash=secret, is_token=False, roles={"one": Role.READ}),
        User(name="root", secret_hash=secret, is_token=False, roles={"*": Role.ADMIN}),
    )
    with serving(settings(tmp_path, users=users, broker=Listener(port=0))) as running:
        root, reader = Client(running, basic("root", "secret")), Client(running, basic("one", "secret"))
        for name in ("one", "two"):
            make_table(root, name)
        assert list(reader.get("/v2/brokers/tables").json()) == ["one"]
        assert list(reader.get("/brokers").json()["tables"]) == ["one"]
        assert reader.get("/tableConfigs").json() == ["one"]
        assert reader.get("/v2/brokers/tables/two").status_code == 403
        assert reader.post("/tableConfigs", {}).status_code in (400, 403)
