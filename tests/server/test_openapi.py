"""`/openapi.json` is what is served: made-up requests meet no surprise, and a refused one changes nothing."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from harness.push_client import Client, PushedTable, config, schema
from holdfast.server.openapi import describe
from holdfast.server.routes import broker_endpoints, controller_endpoints
from holdfast.server.run import serving
from server.conftest import settings as server_settings

CONTROLLER = schemathesis.openapi.from_dict(
    describe(controller_endpoints(), title="controller", is_broker=False)
)
BROKER = schemathesis.openapi.from_dict(describe(broker_endpoints(), title="broker", is_broker=True))
TABLE = "specified"
ENTRIES: list[str] = []
bounded = settings(
    max_examples=5, database=None, derandomize=True, print_blob=False,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A service of its own: what a request changed is found by comparing all of its records."""
    with serving(server_settings(tmp_path_factory.mktemp("described"))) as running:
        running.retention.stop()
        client = Client(running)
        yield client
        client.close()


def _table(client: Client) -> PushedTable:
    """The table that made-up requests may name. Some of them delete it."""
    table = PushedTable(client, TABLE)
    catalog = client.running.service.catalog
    if TABLE not in catalog.schemas():
        client.post("/schemas", schema(TABLE))
    if f"{TABLE}_OFFLINE" not in catalog.tables():
        assert client.post("/tables", config(TABLE)).status_code == 200
        ENTRIES[:] = [table.push([], ["a"]), table.started(["a"], ["b"])]
    return table


def _check(case, client: Client, base_url: str) -> None:
    before = client.records()

    answer = case.call(base_url=base_url, timeout=60)

    if case.method.upper() != case.operation.method.upper():
        assert answer.status_code == 405
        return
    documented = case.operation.definition.raw["responses"]
    assert str(answer.status_code) in documented, (answer.status_code, answer.text)
    if answer.status_code >= 400:
        body = answer.json()
        # Iceberg's clients expect the code within the error, Pinot's beside it.
        of_iceberg = isinstance(body["error"], dict)
        assert (body["error"] if of_iceberg else body)["code"] == answer.status_code
        assert of_iceberg or body["errorCode"] != "INTERNAL", body
        assert body["error"]
        assert client.records() == before
    case.validate_response(
        answer,
        checks=[
            schemathesis.checks.CHECKS.get_one(name)
            for name in ("content_type_conformance", "response_schema_conformance")
        ],
    )


@CONTROLLER.given(
    table=st.sampled_from([TABLE, f"{TABLE}_OFFLINE", None]), entry=st.sampled_from([0, 1, None])
)
@CONTROLLER.parametrize()
@bounded
def test_the_controller_answers_as_described(client, case, table, entry):
    _table(client)
    if table is not None:
        if "table" in (case.path_parameters or {}):
            case.path_parameters["table"] = table
        if case.operation.label.endswith(("/v2/segments", "/segments", "/batchUpload", "/run")):
            case.query = {**(case.query or {}), "tableName": table}
    if entry is not None and "segmentLineageEntryId" in (case.query or {}):
        case.query["segmentLineageEntryId"] = ENTRIES[entry]
    if case.query and "onlineTimeoutMs" in case.query:
        case.query["onlineTimeoutMs"] = 1

    _check(case, client, client.running.controller_url)


@BROKER.parametrize()
@bounded
def test_the_broker_answers_as_described(client, case):
    _table(client)

    _check(case, client, client.running.broker_url)


def test_the_description_is_served_by_both(client):
    for is_broker, endpoints in ((False, controller_endpoints()), (True, broker_endpoints())):
        served = client.call("GET", "/openapi.json", broker=is_broker).json()
        operations = {
            (method.upper(), path) for path, methods in served["paths"].items() for method in methods
        }

        assert operations == {(one.method, one.path.replace(":int", "")) for one in endpoints}
        assert served["openapi"] == "3.1.0"
