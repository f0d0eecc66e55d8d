"""`write`."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast


@pytest.fixture(scope="session")
def spark():
    from holdfast.engines.spark.session import local_session

    session = local_session("command line tests", master="local[1]")
    yield session
    session.stop()


def _ids(table):
    return sorted(holdfast.open_table(str(table)).to_arrow(columns=["trip_id"])["trip_id"].to_pylist())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--from", "missing.csv", "--operation", "insert"], "there is no such file (file: missing.csv)"),
        (["--from", "_hidden.csv", "--operation", "insert"], "Spark skips files whose name begins so"),
        (["--from", "rows.txt", "--operation", "insert"], "give --format"),
        (["--from", "rows.csv", "rows.json", "--operation", "insert"], "do not name one format"),
        (["--from", "rows.csv", "--operation", "merge"], "'merge' is not one of"),
        (["--operation", "insert"], "--from names the files to write"),
        (["--from", "rows.csv"], "Missing option '--operation'. Choose from: insert, bulk_insert"),
        (
            ["--from", "rows.csv", "--operation", "insert", "--option", "hoodie.parquet.max.file.siz=1"],
            "did you mean hoodie.parquet.max.file.size?",
        ),
    ],
)
def test_a_write_that_cannot_work_is_refused_before_spark_starts(
    run, table, tmp_path, monkeypatch, arguments, text
):
    monkeypatch.chdir(tmp_path)
    for name in ("_hidden.csv", "rows.txt", "rows.csv", "rows.json"):
        (tmp_path / name).touch()

    result = run("write", table, *arguments)

    assert result.exit_code == 2
    assert text in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_unknown_table_is_refused_before_spark_starts(run, tmp_path):
    (tmp_path / "rows.csv").touch()

    result = run("write", tmp_path / "none", "--from", tmp_path / "rows.csv", "--operation", "insert")

    assert result.exit_code == 2
    assert "there is no table here" in result.stderr


@pytest.mark.spark
def test_the_first_write_guesses_types_and_later_ones_go_by_name(run, spark, empty_table, tmp_path):
    first, second, third = tmp_path / "a[1].csv", tmp_path / "b.csv", tmp_path / "c.csv"
    first.write_text("trip_id,city,ts,fare\n1,paris,10,1.5\n")
    second.write_text("trip_id,city,ts,fare\n2,rome,20,2.5\n")
    third.write_text("fare,ts,city,trip_id\n,30,oslo,3\n")

    report = run("write", empty_table, "--from", first, second, "--operation", "insert")
    document = json.loads(
        run("write", empty_table, "--operation", "bulk_insert", "--json", "--from", third).stdout
    )

    rows = holdfast.open_table(str(empty_table)).to_arrow().sort_by("trip_id").to_pylist()
    assert re.search(r"^records written +2$", report.stdout, re.MULTILINE)
    assert (document["operation"], document["records_written"]) == ("BULK_INSERT", 1)
    assert document["partitions"] == ["city=oslo"]
    assert rows == [
        {"trip_id": 1, "city": "paris", "ts": 10, "fare": 1.5},
        {"trip_id": 2, "city": "rome", "ts": 20, "fare": 2.5},
        {"trip_id": 3, "city": "oslo", "ts": 30, "fare": None},
    ]


@pytest.mark.spark
def test_a_write_reports_the_failed_write_it_rolled_back(run, spark, table, failed_write, tmp_path, trips):
    source = tmp_path / "more.parquet"
    pq.write_table(trips(20, 2), source)

    result = run("write", table, "--from", source, "--operation", "insert")

    assert result.exit_code == 0, result.stderr
    assert f"rolled back commit {failed_write} with" in result.stdout
    assert _ids(table) == [*range(16), 20, 21]


@pytest.mark.spark
def test_json_is_read_in_the_schema_of_the_table(run, spark, table, tmp_path):
    source = tmp_path / "more.json"
    source.write_text('{"trip_id": 20, "city": "rome", "ts": 1, "fare": 7}\n')

    result = run("write", table, "--from", source, "--operation", "insert")

    assert result.exit_code == 0, result.stderr
    rows = holdfast.open_table(str(table)).to_arrow()
    assert rows.schema.field("fare").type == pa.float64()
    assert _ids(table) == [*range(16), 20]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "content", "code", "text"),
    [
        ("a.csv", "trip_id,city,ts,fare\nx,rome,1,1\n", 1, 'For input string: "x"'),
        ("a.csv", "trip_id,city,ts,fare,tip\n1,rome,1,1,1\n", 2, "the table has no such column (column: tip"),
        ("a.csv", "trip_id,city,ts\n1,rome,1\n", 2, "column: fare"),
        ("a.json", '{"trip_id": 1, "city": "rome", "ts": 1, "tip": 1}\n', 2, "column: tip"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_seen(
    run, spark, table, tmp_path, name, content, code, text
):
    (tmp_path / name).write_text(content)

    result = run("write", table, "--from", tmp_path / name, "--operation", "insert")

    assert result.exit_code == code
    assert text in result.stderr
    assert result.stderr.count("\n") == 1
    assert _ids(table) == list(range(16))


@pytest.mark.spark
def test_a_write_beside_a_live_writer_has_code_3(run, spark, table, running_write, tmp_path):
    source = tmp_path / "more.csv"
    source.write_text("trip_id,city,ts,fare\n20,rome,1,1\n")

    result = run("write", table, "--from", source, "--operation", "insert")

    assert result.exit_code == 3
    assert f"another write is running on this table (instant: {running_write}" in result.stderr
    assert _ids(table) == list(range(16))
