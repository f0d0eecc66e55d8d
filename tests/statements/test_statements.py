"""Statements on Spark: one commit each, or a refusal that says what to do."""

import pytest

import holdfast
from holdfast.errors import (
    InvalidRequest,
    PlanOutdated,
    Refused,
    SchemaMismatch,
    TableExists,
    TableNotFound,
    UnsupportedTable,
    WriteConflict,
)
from holdfast.model.reports import Commit, DropReport
from holdfast.statements import rows as row_statements
from holdfast.statements.catalog import Catalog

pytestmark = pytest.mark.spark

CREATE = """
CREATE TABLE trips (id INT, rider STRING, fare DOUBLE, city STRING) USING holdfast
PARTITIONED BY (city) TBLPROPERTIES (primaryKey = 'id'{more})
"""
VALUES = "INSERT INTO trips VALUES (1, 'ada', 1.5, 'oslo'), (2, 'bob', 2.5, 'rome'), (3, 'cy', 3.5, 'oslo')"


@pytest.fixture
def run(spark, tmp_path):
    """Runs a statement over a warehouse; rows as tuples, in order."""
    catalog = Catalog(warehouse=str(tmp_path / "lake"))

    def run(text, **more):
        answer = holdfast.sql(spark, text, catalog=more.pop("catalog", catalog), **more)
        return (
            sorted((tuple(row) for row in answer.collect()), key=repr)
            if hasattr(answer, "collect")
            else answer
        )

    run.path = str(tmp_path / "lake" / "trips")
    return run


@pytest.fixture(params=["", ", type = 'mor'"], ids=["cow", "mor"])
def trips(run, request):
    run(CREATE.format(more=request.param))
    run(VALUES)
    return run


def riders(run):
    return run("SELECT id, rider, fare, city FROM trips")


def commits(run):
    return len(holdfast.open_table(run.path).timeline())


def test_a_table_is_made_as_it_is_declared(run):
    made = run(CREATE.format(more=", preCombineField = 'fare', type = 'mor'"))

    assert made.settings.record_key == ("id",)
    assert made.settings.partition_by == ("city",)
    assert made.settings.ordering == "fare"
    assert made.settings.table_type == "MERGE_ON_READ"
    assert made.schema().names == ["id", "rider", "fare", "city"]
    assert run("SELECT * FROM trips") == []


def test_partition_columns_are_the_last_and_may_be_declared_apart(run):
    made = run("CREATE TABLE a (city STRING, id INT PRIMARY KEY) PARTITIONED BY (city)")
    typed = run("CREATE TABLE b (id INT) PARTITIONED BY (day DATE) TBLPROPERTIES (primaryKey = 'id')")

    assert made.schema().names == ["id", "city"]
    assert typed.schema().names == ["id", "day"]


def test_a_table_is_made_with_its_rows_in_one_commit(run):
    commit = run(
        "CREATE TABLE trips PARTITIONED BY (city) TBLPROPERTIES (primaryKey = 'id')"
        " AS SELECT 'oslo' AS city, 1 AS id, 2.5D AS fare"
    )

    assert isinstance(commit, Commit)
    assert run("SELECT * FROM trips") == [(1, 2.5, "oslo")]
    assert commits(run) == 1
    assert "city=oslo" in commit.partitions


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CREATE TABLE t (id INT, x INT) USING parquet", "not made here"),
        ("CREATE TABLE t (id INT)", "needs a record key"),
        ("CREATE TABLE t (uuid INT COMMENT 'x')", "not kept"),
        ("CREATE TABLE t (uuid INT, x INT NOT NULL)", "not kept"),
        ("CREATE TABLE t (uuid INT) TBLPROPERTIES ('hoodie.index.type' = 'BLOOM')", "options of writes"),
        ("CREATE TABLE t (uuid INT) TBLPROPERTIES ('hoodie.nonsense' = 'x')", "unknown"),
        ("CREATE TABLE t (uuid INT) TBLPROPERTIES (primaryKey = 'id')", "not declared"),
        ("CREATE TABLE t (uuid INT, x INT) PARTITIONED BY (bucket(4, x))", "partitioned by columns"),
        ("CREATE TABLE t", "needs columns"),
        ("CREATE OR REPLACE TABLE t (uuid INT)", "not replaced"),
        ("CREATE VIEW v AS SELECT 1", "not supported"),
        ("CREATE TABLE t (uuid INT, x NOTATYPE)", "cannot"),
    ],
)
def test_a_definition_that_would_not_be_kept_is_refused(run, text, reason):
    with pytest.raises(InvalidRequest, match=reason):
        run(text)


def test_a_table_is_not_made_twice_and_one_that_is_there_gets_a_name(run, tmp_path):
    run(CREATE.format(more=""))

    with pytest.raises(TableExists):
        run(CREATE.format(more=""))
    assert run(CREATE.format(more="").replace("TABLE", "TABLE IF NOT EXISTS")).path == run.path
    run(f"CREATE TABLE again USING hudi LOCATION '{run.path}'")
    assert run("SELECT * FROM again") == []
    holdfast.statements.catalog.Catalog().forget("again")


def test_drop_deletes_a_table_of_the_warehouse_and_only_the_name_of_another(run, tmp_path):
    run(CREATE.format(more=""))
    elsewhere = str(tmp_path / "elsewhere")
    run(f"CREATE TABLE far (uuid INT) LOCATION '{elsewhere}'")

    assert run("DROP TABLE far") is None
    assert isinstance(run("DROP TABLE trips"), DropReport)

    assert holdfast.table_exists(elsewhere)
    assert not holdfast.table_exists(run.path)
    assert run("DROP TABLE IF EXISTS trips") is None
    with pytest.raises(TableNotFound):
        run("DROP TABLE trips")
    with pytest.raises(InvalidRequest, match="PURGE"):
        run(f"DROP TABLE holdfast.`{elsewhere}`")
    assert isinstance(run(f"DROP TABLE holdfast.`{elsewhere}` PURGE"), DropReport)


def test_rows_are_inserted_by_position_by_column_and_by_name(trips):
    trips("INSERT INTO trips (city, id) VALUES ('bonn', 4)")
    trips("INSERT INTO trips BY NAME SELECT 'rome' AS city, 5 AS id, 'eve' AS rider, 1 AS fare")
    trips("INSERT INTO trips PARTITION (city = 'oslo') SELECT 6, 'fay', 6")
    trips("INSERT INTO trips PARTITION (city) SELECT 7, 'gus', 7, 'bonn'")
    trips("WITH new AS (SELECT 8 AS id) INSERT INTO trips SELECT id, NULL, 8.5, 'bonn' FROM new")

    assert riders(trips)[3:] == [
        (4, None, None, "bonn"),
        (5, "eve", 1.0, "rome"),
        (6, "fay", 6.0, "oslo"),
        (7, "gus", 7.0, "bonn"),
        (8, None, 8.5, "bonn"),
    ]


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("INSERT INTO trips VALUES (1, 'a', 1.5)", SchemaMismatch, "as many columns"),
        ("INSERT INTO trips VALUES ('1', 'a', 1.5, 'oslo')", SchemaMismatch, "cannot be stored"),
        ("INSERT INTO trips (id, nope) VALUES (1, 2)", InvalidRequest, "no such column"),
        ("INSERT INTO trips (id, id) VALUES (1, 2)", InvalidRequest, "given twice"),
        (
            "INSERT INTO trips PARTITION (rider = 'a') SELECT 1, 2.5, 'oslo'",
            InvalidRequest,
            "partition column",
        ),
        ("INSERT INTO trips SELECT nothing FROM trips", InvalidRequest, "Spark cannot run"),
        ("INSERT INTO nothing VALUES (1)", TableNotFound, "no such table"),
        ("INSERT INTO trips (rider, city) VALUES ('a', 'oslo')", InvalidRequest, "no key"),
        (
            "INSERT INTO trips REPLACE WHERE id = 1 SELECT 1, 'a', 1.5, 'oslo'",
            InvalidRequest,
            "not supported",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(run, text, error, reason):
    run(CREATE.format(more=""))
    run(VALUES)

    with pytest.raises(error, match=reason):
        run(text)
    assert commits(run) == 1


def test_a_number_that_does_not_fit_its_column_fails_the_statement(run):
    run(CREATE.format(more=""))

    with pytest.raises(holdfast.errors.HoldfastError, match="does not fit column id"):
        run("INSERT INTO trips VALUES (3000000000, 'a', 1.5, 'oslo')")
    assert commits(run) == 0


def test_overwrite_replaces_partitions_or_everything(trips, spark):
    trips("INSERT OVERWRITE trips PARTITION (city = 'oslo') SELECT 9, 'ida', 9.5")
    assert riders(trips) == [(2, "bob", 2.5, "rome"), (9, "ida", 9.5, "oslo")]

    trips("INSERT OVERWRITE trips PARTITION (city) SELECT 8, 'hal', 8.5, 'rome'")
    assert riders(trips) == [(8, "hal", 8.5, "rome"), (9, "ida", 9.5, "oslo")]

    trips("INSERT OVERWRITE trips PARTITION (city = 'oslo') SELECT 1, 'x', 1.5 WHERE false")
    assert riders(trips) == [(8, "hal", 8.5, "rome")]

    trips("INSERT OVERWRITE trips SELECT 7, 'gus', 7.5, 'bonn'")
    assert riders(trips) == [(7, "gus", 7.5, "bonn")]

    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        trips("INSERT OVERWRITE trips SELECT 6, 'fay', 6.5, 'oslo'")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert riders(trips) == [(6, "fay", 6.5, "oslo"), (7, "gus", 7.5, "bonn")]


def test_update_changes_what_its_condition_names_in_one_commit(trips):
    before = commits(trips)

    commit = trips(
        "UPDATE trips AS t SET t.fare = t.fare * 2, rider = concat(rider, '!') WHERE city = 'oslo'"
    )

    assert commits(trips) == before + 1
    assert commit.records_updated == 2
    assert riders(trips) == [(1, "ada!", 3.0, "oslo"), (2, "bob", 2.5, "rome"), (3, "cy!", 7.0, "oslo")]


def test_update_reads_other_tables_and_moves_rows_between_partitions(trips):
    trips("CREATE TABLE moved (uuid INT, to_city STRING)")
    trips("INSERT INTO moved VALUES (1, 'rome')")

    trips("UPDATE trips SET city = 'rome' WHERE id IN (SELECT uuid FROM moved)")

    assert riders(trips) == [(1, "ada", 1.5, "rome"), (2, "bob", 2.5, "rome"), (3, "cy", 3.5, "oslo")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("UPDATE trips SET id = 5", "record key"),
        ("UPDATE trips SET nope = 5", "no such column"),
        ("UPDATE trips SET fare = 1, fare = 2", "set twice"),
        ("UPDATE trips SET other.fare = 1", "whole columns"),
        ("UPDATE trips SET fare = 'x'", "cannot be stored"),
        ("UPDATE trips SET fare = 1 WHERE nope = 1", "Spark cannot run"),
    ],
)
def test_an_update_that_cannot_be_meant_is_refused(run, text, reason):
    run(CREATE.format(more=""))
    run(VALUES)

    with pytest.raises(InvalidRequest, match=reason):
        run(text)


def test_an_update_that_would_lose_against_the_stored_row_is_refused(run):
    run(CREATE.format(more=", preCombineField = 'fare'"))
    run(VALUES)

    with pytest.raises(InvalidRequest, match="lower the ordering column"):
        run("UPDATE trips SET fare = fare - 1")
    run("UPDATE trips SET fare = fare + 1 WHERE id = 1")

    assert riders(run)[0] == (1, "ada", 2.5, "oslo")


def test_delete_removes_what_its_condition_names_and_truncate_all(trips):
    trips("DELETE FROM trips WHERE fare > 3 OR rider = 'bob'")
    assert riders(trips) == [(1, "ada", 1.5, "oslo")]

    trips("INSERT INTO trips VALUES (2, 'bob', 2.5, 'rome')")
    trips("TRUNCATE TABLE trips PARTITION (city = 'rome')")
    assert riders(trips) == [(1, "ada", 1.5, "oslo")]

    trips("TRUNCATE TABLE trips")
    assert riders(trips) == []
    trips("CALL undo('trips')")
    trips("DELETE FROM trips")
    assert riders(trips) == []


MERGE_ALL = """
MERGE INTO trips t USING (
    SELECT 1 AS id, 'ann' AS rider, 10.0D AS fare, 'oslo' AS city
    UNION ALL SELECT 2, 'ben', 20.0D, 'rome' UNION ALL SELECT 4, 'dan', 40.0D, 'bonn'
) s ON t.id = s.id{partition}
WHEN MATCHED AND s.fare > 15 THEN DELETE
WHEN MATCHED THEN UPDATE SET fare = t.fare + s.fare, rider = s.rider
WHEN NOT MATCHED AND s.fare > 100 THEN INSERT *
WHEN NOT MATCHED THEN INSERT (id, rider, city) VALUES (s.id, upper(s.rider), s.city)
WHEN NOT MATCHED BY SOURCE AND t.city = 'bonn' THEN DELETE
WHEN NOT MATCHED BY SOURCE THEN UPDATE SET rider = concat(t.rider, '?')
"""


@pytest.mark.parametrize("partition", ["", " AND t.city = s.city"])
def test_merge_takes_every_clause_in_one_commit(trips, partition):
    before = commits(trips)

    trips(MERGE_ALL.format(partition=partition))

    assert commits(trips) == before + 1
    assert riders(trips) == [(1, "ann", 11.5, "oslo"), (3, "cy?", 3.5, "oslo"), (4, "DAN", None, "bonn")]


@pytest.mark.parametrize("partition", ["", " AND t.city = s.city"])
def test_merge_as_an_upsert(trips, partition):
    trips(
        "MERGE INTO trips t USING (SELECT 'oslo' AS city, 1 AS id, 9 AS fare, 'new' AS rider"
        f" UNION ALL SELECT 'rome', 5, 5, 'eve') s ON s.id = t.id{partition}"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )

    assert riders(trips) == [
        (1, "new", 9.0, "oslo"),
        (2, "bob", 2.5, "rome"),
        (3, "cy", 3.5, "oslo"),
        (5, "eve", 5.0, "rome"),
    ]


def test_merge_moves_a_row_whose_partition_changes(trips):
    trips(
        "MERGE INTO trips USING (SELECT 1 AS id, 'bonn' AS city) s ON trips.id = s.id"
        " WHEN MATCHED THEN UPDATE SET city = s.city"
    )

    assert riders(trips)[0] == (1, "ada", 1.5, "bonn")
    assert len(riders(trips)) == 3


@pytest.mark.parametrize("clause", ["UPDATE SET rider = s.rider", "UPDATE SET rider = t.rider", "DELETE"])
@pytest.mark.parametrize("partition", ["", " AND t.city = s.city"])
def test_a_merge_that_meets_a_row_twice_is_refused(trips, clause, partition):
    before = commits(trips)

    with pytest.raises(Refused, match="several rows"):
        trips(
            "MERGE INTO trips t USING (SELECT 1 AS id, 'a' AS rider, 'oslo' AS city"
            " UNION ALL SELECT 1, 'b', 'oslo') s"
            f" ON t.id = s.id{partition} WHEN MATCHED THEN {clause}"
        )

    assert len(riders(trips)) == 3
    assert (
        len([i for i in holdfast.open_table(trips.path).timeline() if "rollback" not in i.action]) == before
    )


def test_a_merge_that_inserts_a_key_twice_is_refused(run):
    run("CREATE TABLE trips (id INT PRIMARY KEY, fare DOUBLE)")
    run("INSERT INTO trips VALUES (1, 1)")

    with pytest.raises(Refused, match="several rows"):
        run(
            "MERGE INTO trips t USING (SELECT 2 AS id, 1 AS fare UNION ALL SELECT 2, 3) s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ON t.rider = s.rider WHEN MATCHED THEN DELETE", "record key"),
        ("ON t.id = s.id AND t.fare > 1 WHEN MATCHED THEN DELETE", "record key"),
        ("ON t.id = s.id OR t.city = s.city WHEN MATCHED THEN DELETE", "record key"),
        ("ON t.id > s.id WHEN MATCHED THEN DELETE", "record key"),
        ("ON t.city = s.city WHEN MATCHED THEN DELETE", "record key"),
        ("ON id = s.id WHEN MATCHED THEN DELETE", "both sides"),
        ("ON t.id = s.rider WHEN MATCHED THEN DELETE", "another type"),
        ("ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = 7", "record key"),
        ("ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id + 1)", "key that ON compares"),
        ("ON t.id = s.id WHEN NOT MATCHED THEN INSERT (rider) VALUES ('x')", "key that ON compares"),
        ("ON t.id = s.id WHEN NOT MATCHED THEN INSERT *", "lacks a column"),
        ("ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET rider = s.rider", "no row of that side"),
        (
            "ON t.id = s.id WHEN NOT MATCHED AND t.fare > 1 THEN INSERT (id) VALUES (s.id)",
            "no row of that side",
        ),
        ("ON t.id = s.nope WHEN MATCHED THEN DELETE", "no such column"),
    ],
)
def test_a_merge_that_is_no_upsert_by_key_is_refused_with_what_to_do(run, text, reason):
    run(CREATE.format(more=""))
    run(VALUES)

    with pytest.raises(InvalidRequest, match=reason):
        run(f"MERGE INTO trips t USING (SELECT 1 AS id, 'a' AS rider, 'oslo' AS city) s {text}")
    assert commits(run) == 1


def test_queries_travel_in_time_and_list_changes(trips):
    first = holdfast.open_table(trips.path).timeline()[0].time
    trips("UPDATE trips SET fare = 9 WHERE id = 1")

    assert trips(f"SELECT fare FROM trips VERSION AS OF {first} WHERE id = 1") == [(1.5,)]
    assert trips(f"SELECT fare FROM trips TIMESTAMP AS OF '{first}' WHERE id = 1") == [(1.5,)]
    assert trips(f"SELECT id, fare FROM table_changes('trips', '{first}')") == [(1, 9.0)]
    assert trips("SELECT '{a}' AS x, t.id FROM trips t WHERE t.city = 'rome'") == [("{a}", 2)]
    assert trips(f"SELECT id FROM holdfast.`{trips.path}` WHERE city = 'rome'") == [(2,)]


def test_views_of_the_session_can_be_read_and_none_is_left(trips, spark):
    spark.range(2).createOrReplaceTempView("two_rows")
    try:
        assert trips("SELECT count(*) FROM trips, two_rows") == [(6,)]
        left = [table.name for table in spark.catalog.listTables()]
    finally:
        spark.catalog.dropTempView("two_rows")

    assert [name for name in left if "holdfast" in name or "pyspark" in name] == []


def test_columns_are_added_and_made_wider(trips):
    trips("ALTER TABLE trips ADD COLUMNS (tip FLOAT, note STRING)")
    trips("ALTER TABLE trips ALTER COLUMN tip TYPE DOUBLE")
    trips("INSERT INTO trips (id, tip, city) VALUES (4, 0.1, 'oslo')")

    assert trips("SELECT tip FROM trips WHERE tip IS NOT NULL") == [(0.1,)]
    assert trips("DESCRIBE trips")[3:5] != []
    assert {name: kind for name, kind, _ in trips("DESCRIBE trips")}["tip"] == "double"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("RENAME COLUMN rider TO driver", "files name their columns"),
        ("DROP COLUMN rider", "not supported"),
        ("ALTER COLUMN rider COMMENT 'x'", "not supported"),
        ("ALTER COLUMN fare TYPE INT", "only become wider|another type|fare"),
        ("ADD COLUMN rider INT", "already"),
        ("ADD COLUMN x INT FIRST", "the last"),
        ("SET TBLPROPERTIES ('a' = 'b')", "not supported"),
        ("RENAME TO other", "follows from the path"),
    ],
)
def test_a_change_of_columns_that_the_format_cannot_carry_is_refused_by_name(run, text, reason):
    run(CREATE.format(more=""))
    run(VALUES)

    with pytest.raises(InvalidRequest, match=reason):
        run(f"ALTER TABLE trips {text}")


def test_a_compaction_is_called(run):
    run(CREATE.format(more=", type = 'mor'"))
    run(VALUES)
    run("UPDATE trips SET fare = 1", options={"holdfast.mor.max.log.ratio": "100"})

    compacted = run("CALL run_compaction(op => 'scheduleAndExecute', table => 'trips')")

    assert isinstance(compacted, Commit)
    assert [row[1] for row in run("CALL show_compaction('trips')")] == ["COMPLETED"]


def test_a_numbered_statement_counts_once(trips):
    first = trips("INSERT INTO trips VALUES (4, 'dan', 4, 'oslo')", idempotency=("load", 1))

    again = trips(
        "INSERT INTO trips VALUES (4, 'dan', 4, 'oslo')", options={"txnAppId": "load", "txnVersion": "1"}
    )

    assert again.repeated
    assert again.instant == first.instant
    assert len(riders(trips)) == 4


class _Meanwhile:
    """Runs something else after a statement has read the table and before it writes, some times."""

    def __init__(self, act, times):
        self.act, self.times, self.write = act, times, row_statements.write_frame

    def __call__(self, *arguments, **named):
        if self.times:
            self.times -= 1
            self.act(self.times)
        return self.write(*arguments, **named)


@pytest.mark.parametrize(
    "statement", ["UPDATE trips SET fare = fare + 1", "DELETE FROM trips WHERE fare < 5"]
)
def test_a_statement_whose_table_was_changed_meanwhile_is_run_on_the_new_snapshot(
    run, monkeypatch, statement
):
    run(CREATE.format(more=""))
    run(VALUES)
    table = holdfast.open_table(run.path)

    def meanwhile(number):
        import pyarrow as pa

        table.insert(
            pa.table(
                {"id": pa.array([10 + number], pa.int32()), "rider": ["new"], "fare": [0.5], "city": ["oslo"]}
            )
        )

    monkeypatch.setattr(row_statements, "write_frame", _Meanwhile(meanwhile, times=2))

    run(statement)

    fares = [fare for _, _, fare, _ in riders(run)]
    expected = {"UPDATE": [2.5, 3.5, 4.5, 1.5, 1.5], "DELETE": []}[statement.split()[0]]
    assert sorted(fares) == sorted(expected)


def test_a_statement_that_never_comes_through_is_refused(run, monkeypatch):
    run(CREATE.format(more=""))
    run(VALUES)

    def meanwhile(number):
        import pyarrow as pa

        holdfast.open_table(run.path).insert(
            pa.table(
                {"id": pa.array([10 + number], pa.int32()), "rider": ["n"], "fare": [0.5], "city": ["oslo"]}
            )
        )

    monkeypatch.setattr(row_statements, "write_frame", _Meanwhile(meanwhile, times=100))

    with pytest.raises((PlanOutdated, WriteConflict)):
        run("UPDATE trips SET fare = 0")
    assert 0.0 not in [fare for _, _, fare, _ in riders(run)]


def test_a_table_that_cannot_be_written_is_refused(run, hudi_fixture):
    path = hudi_fixture("cow_v6_simplekeygen_hivestyle_no_metafields")

    with pytest.raises(UnsupportedTable):
        run(f"DELETE FROM holdfast.`{path}` WHERE 1 = 1")
