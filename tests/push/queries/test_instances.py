"""An instance by itself, as if both the gate and the worker had let a statement through."""

import duckdb
import pyarrow.parquet as pq
import pytest

from harness.serving import orders
from holdfast.push.queries import wire
from holdfast.push.queries.instances import INSTANCES_MAX, Instances


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segments")
    for name, ids in (("mine", [1, 2, 3]), ("other", [4])):
        pq.write_table(orders(ids), folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def setup(folder):
    return wire.Setup(str(folder), {}, [], False, 256 << 20, 1, False)


@pytest.fixture(scope="module")
def instances(setup):
    return Instances(setup)


@pytest.fixture
def mine(folder):
    return (str(folder / "mine.parquet"),)


@pytest.fixture
def open_instances(monkeypatch):
    """Those that were made since, and are not closed."""
    made = []
    connect = duckdb.connect

    def recorded(*arguments, **settings):
        made.append(connect(*arguments, **settings))
        return made[-1]

    monkeypatch.setattr(duckdb, "connect", recorded)
    return lambda: [instance for instance in made if _is_open(instance)]


def _is_open(instance):
    try:
        instance.execute("SELECT 1")
    except duckdb.ConnectionException:
        return False
    return True


def ask(instances, paths, sql):
    with instances.connection(paths) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM '{folder}/other.parquet'",
        "SELECT * FROM read_parquet('{folder}/*.parquet')",
        "SELECT * FROM parquet_metadata('{folder}/other.parquet')",
        "COPY (SELECT 1) TO '{folder}/new.csv'",
        "COPY (SELECT 1 AS a) TO '{folder}/new.parquet' (FORMAT parquet, USE_TMP_FILE false)",
        "ATTACH '{folder}/new.db' AS x",
        "EXPORT DATABASE '{folder}/export'",
        "SET threads = 8",
        "SET memory_limit = '100GB'",
        "SET enable_external_access = true",
        "SET allowed_paths = ['/etc/hostname']",
        "SET lock_configuration = false",
        "SET profiling_output = '{folder}/profile'",
        "PRAGMA enable_profiling = 'json'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE SECRET s (TYPE s3)",
        "CALL enable_logging(storage = 'file', storage_config = {{'path': '{folder}/log'}})",
        "SELECT * FROM enable_logging(storage = 'file', storage_config = {{'path': '{folder}/log'}})",
        "SELECT * FROM read_parquet('http://127.0.0.1:1/x.parquet')",
        "SELECT * FROM folder",
    ],
)
def test_an_instance_opens_its_files_and_changes_nothing_about_itself(instances, mine, folder, sql):
    before = sorted(folder.rglob("*"))

    with pytest.raises(duckdb.Error):
        ask(instances, mine, sql.format(folder=folder))

    assert sorted(folder.rglob("*")) == before
    assert ask(instances, mine, f"SELECT count(*) FROM '{mine[0]}'") == [(3,)]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE x (a INTEGER)",
        "CREATE VIEW x AS SELECT 1",
        "CREATE OR REPLACE MACRO sum(x) AS 0",
        "CREATE SEQUENCE s",
        "CREATE SCHEMA s",
        "CREATE TYPE t AS ENUM ('a')",
    ],
)
def test_nothing_can_be_made_that_another_query_would_see(instances, mine, sql):
    ask(instances, mine, "SELECT 1")

    with pytest.raises(duckdb.Error, match="read-only"):
        ask(instances, mine, sql)


@pytest.mark.parametrize(
    ("leave", "look"),
    [
        ("CREATE TEMP TABLE x AS SELECT 1", "SELECT * FROM x"),
        ("CREATE TEMP VIEW x AS SELECT 1", "SELECT * FROM x"),
        ("CREATE TEMP MACRO twice(a) AS 2 * a", "SELECT twice(1)"),
        ("PREPARE p AS SELECT 1", "EXECUTE p"),
    ],
)
def test_what_a_query_makes_for_itself_goes_with_it(instances, mine, leave, look):
    with instances.connection(mine) as connection:
        connection.execute(leave)
        assert connection.execute(look).fetchall()

    with pytest.raises(duckdb.Error):
        ask(instances, mine, look)


def test_a_variable_goes_with_its_query(instances, mine):
    ask(instances, mine, "SET VARIABLE secret = 'mine'")

    assert ask(instances, mine, "SELECT getvariable('secret')") == [(None,)]


def test_an_instance_without_files_opens_none(instances, mine):
    with pytest.raises(duckdb.PermissionException):
        ask(instances, (), f"SELECT * FROM '{mine[0]}'")


def test_times_are_of_utc_in_every_connection(instances, mine):
    for _ in range(2):
        assert ask(instances, mine, "SELECT current_setting('TimeZone')") == [("UTC",)]


def test_a_database_that_a_query_attaches_goes_with_it(instances, mine):
    ask(instances, mine, "ATTACH ':memory:' AS seen")

    assert ask(instances, mine, "SELECT count(*) FROM duckdb_databases() WHERE database_name = 'seen'") == [
        (0,)
    ]


def test_the_instance_of_a_failed_query_is_not_kept(setup, mine, open_instances):
    """A statement may have gone wrong in a way that nobody foresaw."""
    instances = Instances(setup)

    ask(instances, mine, "SELECT 1")
    instances.prepare()
    _, blank = open_instances()
    with pytest.raises(duckdb.Error):
        ask(instances, mine, "SELECT error('no')")
    instances.prepare()

    assert open_instances() == [blank]


def test_footers_are_remembered_where_all_instances_together_can_hold_them(setup, mine):
    """A few hundred ordinary segments, but not as many wide ones."""
    remembered = "SELECT current_setting('parquet_metadata_cache')"

    for size, is_remembered in ((0, True), (500_000, True), (2_000_000, False)):
        with Instances(setup).connection(mine, footer_bytes=size) as connection:
            assert connection.execute(remembered).fetchall() == [(is_remembered,)]


def test_only_a_few_instances_are_kept(setup, folder, open_instances):
    instances = Instances(setup)

    for number in range(3 * INSTANCES_MAX):
        ask(instances, (str(folder / f"{number}.parquet"),), "SELECT 1")
        instances.prepare()

    assert 2 < len(open_instances()) < INSTANCES_MAX
