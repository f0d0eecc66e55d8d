"""Programs that ask the Iceberg REST catalog for a table read its rows, now and as of a savepoint.

The service runs in its own environment, which `HOLDFAST_SERVICE` names: it needs a newer DuckDB.
"""

import os
from contextlib import contextmanager

import pyarrow as pa
import pytest
import yaml

import holdfast
from harness.exported import HAS_JUDGES, duckdb_with_extensions
from harness.servers import free_port, serving_beside

SERVICE = os.environ.get("HOLDFAST_SERVICE")
pytestmark = pytest.mark.skipif(not (HAS_JUDGES and SERVICE), reason="make test-exports has what it needs")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    made = holdfast.create_table(
        str(tmp_path_factory.mktemp("lake") / "trips"),
        name="trips",
        record_key="id",
        partition_by="city",
        properties={"holdfast.export.formats": "iceberg"},
    )
    made.insert(pa.table({"id": ["a", "b"], "city": ["oslo", "rome"], "fare": [1.5, 2.5]}))
    made.savepoint(comment="month end")
    made.upsert(pa.table({"id": ["a"], "city": ["oslo"], "fare": [9.5]}))
    return made


@contextmanager
def serving(folder, table, **more):
    port = free_port()
    settings = {
        "controller": {"port": port},
        "broker": {"port": free_port()},
        "catalog": {"lake.trips": table.path},
        **more,
    }
    file = folder / "server.yaml"
    file.write_text(yaml.safe_dump(settings))
    with serving_beside([SERVICE, "serve", "--config", str(file)], environment=dict(os.environ)):
        yield f"http://127.0.0.1:{port}/iceberg"


def test_pyiceberg_and_duckdb_find_and_read_tables(tmp_path, table):
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.exceptions import NoSuchTableError

    with serving(tmp_path, table) as uri:
        catalog = RestCatalog("holdfast", uri=uri)
        assert catalog.list_namespaces() == [("lake",)]
        assert catalog.list_tables("lake") == [("lake", "trips")]
        assert catalog.table_exists("lake.trips")
        assert not catalog.table_exists("lake.none")
        with pytest.raises(NoSuchTableError):
            catalog.load_table("lake.none")
        found = catalog.load_table("lake.trips")
        assert found.scan(row_filter="city = 'oslo'").to_arrow()["fare"].to_pylist() == [9.5]
        [tag] = [name for name in found.refs() if name != "main"]
        then = found.scan(snapshot_id=found.snapshot_by_name(tag).snapshot_id).to_arrow()
        assert sorted(then["fare"].to_pylist()) == [1.5, 2.5]

        connection = duckdb_with_extensions().cursor()
        connection.execute(f"ATTACH '' AS hf (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none')")
        rows = connection.sql("SELECT id, fare FROM hf.lake.trips ORDER BY id").fetchall()
        connection.execute("DETACH hf")
        assert rows == [("a", 9.5), ("b", 2.5)]

        table.delete(pa.table({"id": ["b"], "city": ["rome"]}))
        assert found.refresh().scan().to_arrow()["id"].to_pylist() == ["a"]
        table.undo()
        assert sorted(found.refresh().scan().to_arrow()["id"].to_pylist()) == ["a", "b"]


def test_pyiceberg_needs_the_token_of_a_user(tmp_path, table):
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.exceptions import RESTError

    users = [{"name": "anna", "token": _hash("s3cret"), "tables": {"lake.trips": "read"}}]
    with serving(tmp_path, table, auth={"users": users}) as uri:
        catalog = RestCatalog("holdfast", uri=uri, token="anna.s3cret")
        assert catalog.list_tables("lake") == [("lake", "trips")]
        with pytest.raises(RESTError):
            RestCatalog("holdfast", uri=uri, token="anna.wrong").list_tables("lake")


def _hash(secret):
    from holdfast.server.secrets import hash_secret

    return str(hash_secret(secret))
