"""Statements that need no Spark: SELECT through DuckDB, SHOW, DESCRIBE, and procedures."""

import pyarrow as pa
import pytest

import holdfast
from holdfast.errors import InvalidRequest, TableNotFound
from holdfast.model.reports import CleanReport, RestoreReport, RollbackReport, Savepoint
from holdfast.statements.catalog import Catalog
from holdfast.statements.duck import run_with_duckdb
from holdfast.statements.names import Context


@pytest.fixture
def lake(tmp_path):
    """A table of two commits, and the catalog that has it."""
    table = holdfast.create_table(
        str(tmp_path / "lake" / "trips"), name="trips", record_key="id", partition_by="city"
    )
    table.insert(pa.table({"id": [1, 2, 3], "fare": [1.5, 2.5, 3.5], "city": ["oslo", "rome", "oslo"]}))
    table.upsert(pa.table({"id": [1], "fare": [9.0], "city": ["oslo"]}))
    return Catalog(warehouse=str(tmp_path / "lake"))


def run(lake, text):
    answer = run_with_duckdb(Context(text=text, catalog=lake))
    return answer.to_pylist() if isinstance(answer, pa.Table) else answer


def commits(lake):
    return [row["commit_time"] for row in run(lake, "DESCRIBE HISTORY trips")][::-1]


def test_a_query_reads_the_newest_snapshot(lake):
    rows = run(lake, "SELECT city, sum(fare) AS fares FROM trips GROUP BY city ORDER BY city")

    assert rows == [{"city": "oslo", "fares": 12.5}, {"city": "rome", "fares": 2.5}]


def test_a_query_travels_in_time_beside_the_present(lake):
    first = commits(lake)[0]

    rows = run(
        lake,
        f"SELECT old.fare AS was, t.fare AS became FROM trips VERSION AS OF {first} AS old"
        " JOIN trips t ON old.id = t.id WHERE old.fare <> t.fare",
    )

    assert rows == [{"was": 1.5, "became": 9.0}]
    assert run(lake, f"SELECT count(*) AS n FROM trips TIMESTAMP AS OF '{first}'") == [{"n": 3}]


@pytest.mark.parametrize(
    "function", ["table_changes('trips', '{0}')", "hudi_table_changes('trips', 'latest_state', '{0}')"]
)
def test_changes_are_a_table_function(lake, function):
    first, second = commits(lake)

    rows = run(lake, f"SELECT id, fare, _hoodie_commit_time AS at FROM {function.format(first)}")

    assert rows == [{"id": 1, "fare": 9.0, "at": second}]


def test_a_name_in_a_with_hides_the_table_but_not_from_itself(lake):
    rows = run(lake, "WITH trips AS (SELECT * FROM trips WHERE city = 'rome') SELECT id FROM trips")

    assert rows == [{"id": 2}]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_parquet('https://example.org/x.parquet')",
        "COPY trips TO '/tmp/x'",
        "DELETE FROM trips",
        "ATTACH '/tmp/x.db'",
    ],
)
def test_duckdb_reaches_nothing_but_the_tables(lake, text):
    with pytest.raises(InvalidRequest):
        run(lake, text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM holdfast.`{path}`",
        "SELECT * FROM `{path}`",
        "SELECT * FROM table_changes('{path}', 'earliest')",
        "DESCRIBE holdfast.`{path}`",
        "CALL show_commits('{path}')",
        "CALL show_commits(path => '{path}')",
        "SELECT * FROM parquet.`{path}`",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM trips JOIN other USING (id)",
        "SELECT reflect('java.lang.System', 'getProperty', 'user.home') FROM trips",
        "SELECT * FROM glob('/etc/*')",
        "SELECT '${{env:HOME}}' FROM trips",
    ],
)
def test_over_an_exclusive_catalog_nothing_else_can_be_named(lake, tmp_path, text):
    other = holdfast.create_table(str(tmp_path / "secret"), name="secret", record_key="id")
    other.insert(pa.table({"id": [1]}))
    exclusive = Catalog(warehouse=lake.warehouse, exclusive=True)

    with pytest.raises(InvalidRequest):
        run(exclusive, text.format(path=other.path))
    assert run(exclusive, "SELECT count(*) AS n FROM trips") == [{"n": 3}]


def test_tables_are_shown_and_described(lake):
    assert [row["tableName"] for row in run(lake, "SHOW TABLES")] == ["trips"]
    assert run(lake, "SHOW TABLES LIKE 'x*'") == []
    assert run(lake, "DESCRIBE trips") == [
        {"col_name": "id", "data_type": "bigint", "comment": "record key"},
        {"col_name": "fare", "data_type": "double", "comment": ""},
        {"col_name": "city", "data_type": "string", "comment": "partition"},
    ]
    extended = {row["col_name"]: row["data_type"] for row in run(lake, "DESCRIBE EXTENDED trips")}
    assert extended["hoodie.table.recordkey.fields"] == "id"
    with pytest.raises(TableNotFound) as refused:
        run(lake, "DESCRIBE nothing")
    assert refused.value.facts["name"] == "nothing"


def test_savepoints_and_going_back(lake):
    first, second = commits(lake)

    saved = run(lake, f"CALL create_savepoint(table => 'trips', commit_time => '{first}', user => 'ada')")
    shown = run(lake, "CALL show_savepoints('trips')")
    planned = run(lake, f"CALL plan_restore('trips', '{first}')")
    gone_back = run(lake, f"CALL rollback_to_savepoint('trips', '{first}')")
    run(lake, f"CALL delete_savepoint(table => 'trips', instant_time => '{first}')")

    assert isinstance(saved, Savepoint)
    assert [(row["savepoint_time"], row["user"]) for row in shown] == [(first, "ada")]
    assert [row["instant"] for row in planned] == [second]
    assert isinstance(gone_back, RestoreReport)
    assert run(lake, "SELECT max(fare) AS m FROM trips") == [{"m": 3.5}]
    assert run(lake, "CALL show_savepoints('trips')") == []
    with pytest.raises(InvalidRequest, match="no such savepoint"):
        run(lake, f"CALL rollback_to_savepoint('trips', '{first}')")


def test_the_newest_commit_is_rolled_back_by_its_instant_or_undone(lake):
    first, second = commits(lake)

    rolled_back = run(lake, f"CALL rollback_to_instant(table => 'trips', instant_time => '{second}')")

    assert isinstance(rolled_back, RollbackReport)
    assert commits(lake) == [first]
    assert [row["rollback_instant"] for row in run(lake, "CALL show_rollbacks('trips')")] == [second]
    assert run(lake, "CALL undo('trips')").rolled_back == first


def test_cleans_are_planned_run_and_shown(lake):
    planned = run(lake, "CALL plan_clean('trips')")
    report = run(
        lake,
        "CALL run_clean(table => 'trips', clean_policy => 'KEEP_LATEST_FILE_VERSIONS',"
        " file_versions_retained => 1)",
    )
    shown = run(lake, "CALL show_cleans('trips')")
    plans = run(lake, "CALL show_clean_plans(table => 'trips')")

    assert {row["fate"] for row in planned} == {"kept"}
    assert isinstance(report, CleanReport)
    assert [row["clean_time"] for row in shown] == [report.instant]
    assert [(row["plan_instant"], row["total_files_to_delete"]) for row in plans] == [(report.instant, 1)]


def test_commits_are_shown_with_their_files_and_partitions(lake):
    first, second = commits(lake)

    files = run(lake, f"CALL show_commit_files(table => 'trips', instant_time => '{second}')")
    partitions = run(lake, f"CALL show_commit_partitions('trips', 10, '{first}')")

    assert [
        (row["commit_time"], row["total_update_records_written"])
        for row in run(lake, "CALL show_commits('trips', 1)")
    ] == [(second, 1)]
    assert [(row["partition_path"], row["total_records_written"]) for row in files] == [("city=oslo", 2)]
    assert [(row["partition_path"], row["total_records_inserted"]) for row in partitions] == [
        ("city=oslo", 2),
        ("city=rome", 1),
    ]
    assert run(lake, "CALL show_archived_commits('trips')") == []


def test_a_lease_is_taken_shown_and_released(lake):
    first = commits(lake)[0]

    [taken] = run(
        lake, f"CALL lease(table => 'trips', owner => 'report', seconds => 60, instant => '{first}')"
    )
    held = run(lake, "CALL show_leases('trips')")
    run(lake, f"CALL release_lease('trips', '{taken['id']}')")

    assert (taken["owner"], taken["instant"]) == ("report", first)
    assert [row["id"] for row in held] == [taken["id"]]
    assert run(lake, "CALL show_leases('trips')") == []
    assert "lease" in [row["procedure"] for row in run(lake, "CALL help()")]
    with pytest.raises(InvalidRequest, match="no such lease"):
        run(lake, f"CALL release_lease('trips', '{taken['id']}')")


def test_a_table_is_verified_and_its_properties_shown(lake):
    properties = {row["key"]: row["value"] for row in run(lake, "CALL show_table_properties('trips')")}

    assert run(lake, "CALL verify('trips')") == []
    assert properties["hoodie.table.name"] == "trips"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CALL show_comits('trips')", "did you mean show_commits"),
        ("CALL show_commits('trips', 1, 2)", "too many arguments"),
        ("CALL show_commits(table => 'trips', most => 1)", "no such argument"),
        ("CALL show_commits()", "an argument is missing"),
        ("CALL show_commits('trips', 'many')", "cannot be used"),
        ("CALL run_compaction(op => 'stop', table => 'trips')", "unknown operation"),
        ("SELECT * FROM table_changes('trips')", "arguments"),
        ("SELECT * FROM hudi_table_changes('trips', 'cdc', 'earliest')", "not supported"),
        ("SELECT * FROM trips VERSION AS OF (1 + 1)", "plain value"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(lake, text, reason):
    with pytest.raises(InvalidRequest, match=reason):
        run(lake, text)
