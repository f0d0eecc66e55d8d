"""The Iceberg REST catalog: which tables it shows, and to whom."""

import base64
import json
import urllib.error
import urllib.request

import pyarrow as pa
import pytest

import holdfast
from holdfast.config.catalog import Catalog
from holdfast.config.server import Role, User, load_settings
from holdfast.errors import InvalidOption
from holdfast.server.secrets import hash_secret


@pytest.fixture
def lake(tmp_path):
    """Two tables that are exported to Iceberg, and one that is not."""
    paths = {}
    for name, formats in (("trips", "iceberg"), ("sales.orders", "iceberg"), ("plain", "delta")):
        path = str(tmp_path / "lake" / name)
        made = holdfast.create_table(
            path, name="t", record_key="id", properties={"holdfast.export.formats": formats}
        )
        made.insert(pa.table({"id": ["a"], "fare": [1.5]}))
        paths[name] = path
    return paths


def ask(running, path, *, user=None, method="GET"):
    request = urllib.request.Request(f"{running.controller_url}/iceberg/v1/{path}", method=method)
    if user is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    try:
        with urllib.request.urlopen(request) as answer:
            content = answer.read()
            return answer.status, json.loads(content) if content else None
    except urllib.error.HTTPError as error:
        content = error.read()
        return error.code, json.loads(content) if content else None


def test_names_lead_to_the_newest_metadata(serve, lake):
    running = serve(catalog=Catalog(tables=lake))

    status, config = ask(running, "config?warehouse=any")
    assert (status, config["defaults"], config["overrides"]) == (200, {}, {})
    assert ask(running, "namespaces")[1] == {"namespaces": [["default"], ["sales"]]}
    assert ask(running, "namespaces/sales/tables")[1] == {
        "identifiers": [{"namespace": ["sales"], "name": "orders"}]
    }
    table = holdfast.open_table(lake["trips"])
    for _ in range(2):
        status, loaded = ask(running, "namespaces/default/tables/trips?snapshots=all")
        [export] = table.exports()
        assert (status, loaded["metadata-location"]) == (200, export.where)
        assert loaded["metadata"]["current-snapshot-id"] == int(export.instant)
        table.insert(pa.table({"id": ["b"], "fare": [2.5]}))
    assert ask(running, "namespaces/default/tables/trips", method="HEAD") == (200, None)
    assert ask(running, "namespaces/default/tables/none", method="HEAD") == (404, None)


def test_what_is_not_there_is_told_by_name(serve, lake):
    running = serve(catalog=Catalog(tables=lake))

    for path, told in (
        ("namespaces/none", "no such namespace"),
        ("namespaces/none/tables", "no such namespace"),
        ("namespaces/default/tables/none", "no such table"),
        ("namespaces/default/tables/orders", "no such table"),
        ("namespaces/default/tables/plain", "not exported to iceberg"),
    ):
        status, body = ask(running, path)
        assert (status, body["code"]) == (404, 404), path
        assert told in body["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_is_changed_through_it(serve, lake, method):
    running = serve(catalog=Catalog(tables=lake))

    for path in ("namespaces", "namespaces/default", "namespaces/default/tables/trips"):
        assert ask(running, path, method=method)[0] == 405


def test_a_user_sees_the_tables_that_he_may_read(serve, lake):
    secret = str(hash_secret("secret"))
    running = serve(
        catalog=Catalog(tables=lake),
        users=(
            User(name="anna", secret_hash=secret, is_token=False, roles={"trips": Role.READ}),
            User(name="boss", secret_hash=secret, is_token=False, roles={"*": Role.READ}),
        ),
    )

    assert ask(running, "namespaces")[0] == 401
    assert ask(running, "namespaces", user="anna:wrong")[0] == 401
    assert ask(running, "namespaces", user="anna:secret")[1] == {"namespaces": [["default"]]}
    found = ask(running, "namespaces/default/tables", user="anna:secret")[1]["identifiers"]
    assert [one["name"] for one in found] == ["trips"]
    assert ask(running, "namespaces/default/tables/trips", user="anna:secret")[0] == 200
    assert ask(running, "namespaces/sales/tables/orders", user="anna:secret")[0] == 404
    assert ask(running, "namespaces/sales/tables/orders", user="boss:secret")[0] == 200


def test_a_service_without_a_catalog_shows_no_tables(serve):
    assert ask(serve(), "namespaces")[1] == {"namespaces": []}


def test_the_catalog_is_read_from_the_settings(tmp_path):
    file = tmp_path / "server.yaml"
    file.write_text("catalog: {trips: lake/trips, sales.orders: 's3://bucket/orders'}\n")
    assert load_settings(file).catalog.tables == {
        "trips": str(tmp_path / "lake/trips"),
        "sales.orders": "s3://bucket/orders",
    }
    file.write_text("catalog:\n  tables: {trips: lake/trips}\n")
    assert load_settings(file).catalog.tables == {"trips": str(tmp_path / "lake/trips")}
    for wrong in ("catalog: trips\n", "catalog: {a.b.c: x}\n", "catalog: {'a/b': x}\n", "catalog: {a: 1}\n"):
        file.write_text(wrong)
        with pytest.raises(InvalidOption):
            load_settings(file)
