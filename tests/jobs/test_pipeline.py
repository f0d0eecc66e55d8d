"""Pipelines on Spark: from files through SQL into a lake table."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import holdfast
from harness.checker import check_at_any_time, check_at_rest
from harness.faults import Crash, CrashingStore, RecordingStore
from holdfast.config.choices import Operation
from holdfast.config.pipeline import Destination, Pipeline, Rejects, Source
from holdfast.errors import (
    HoldfastError,
    InvalidOption,
    InvalidRequest,
    Refused,
    SchemaMismatch,
    WriterActive,
)
from holdfast.jobs.ingested import Register
from holdfast.jobs.pipeline import plan_pipeline, run_pipeline
from holdfast.read.history import commit_records
from holdfast.storage.local import LocalStore
from holdfast.table import opened
from holdfast.table.opened import open_at

pytestmark = pytest.mark.spark

_SHARING = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
}


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


@pytest.fixture
def pipeline(tmp_path, inbox):
    """Trips in CSV files, of which those that cost nothing are left out."""

    def make(*, transform="SELECT * FROM source WHERE fare >= 0", source=None, **destination):
        return Pipeline(
            name="trips",
            source=Source(**{"format": "csv", "path": f"{inbox}/*.csv", **(source or {})}),
            transform=transform,
            transform_line=4,
            destination=Destination(
                **{
                    "path": str(tmp_path / "lake"),
                    "name": "trips",
                    "record_key": ("trip_id",),
                    "partition_by": ("city",),
                    "ordering": "ts",
                    **destination,
                }
            ),
        )

    return make


def deliver(inbox, name, *rows):
    """A file with rows of trip, city, time and fare."""
    text = "".join(f"{','.join(map(str, row))}\n" for row in rows)
    (inbox / name).write_text(f"trip_id,city,ts,fare\n{text}")


def trips(pipeline):
    rows = holdfast.open_table(pipeline.destination.path).to_arrow().to_pylist()
    return sorted((row["trip_id"], row["city"], row["fare"]) for row in rows)


def commits(pipeline):
    timeline = holdfast.open_table(pipeline.destination.path).timeline()
    return [instant.time for instant in timeline if instant.action in ("commit", "replacecommit")]


def test_each_run_takes_in_the_files_that_are_new(spark, pipeline, inbox):
    trips_pipeline = pipeline()
    deliver(inbox, "a.csv", (1, "paris", 1, 1.5), (2, "rome", 1, 2.5), (3, "rome", 1, -1.0))
    assert plan_pipeline(trips_pipeline).creates_table

    first = run_pipeline(trips_pipeline, spark=spark)
    deliver(inbox, "b.csv", (1, "paris", 2, 9.5), (4, "oslo", 1, 4.0))
    second = run_pipeline(trips_pipeline, spark=spark)
    third = run_pipeline(trips_pipeline, spark=spark)

    assert (first.files, first.commit.records_inserted) == ((f"{inbox}/a.csv",), 2)
    assert (second.files, second.commit.records_inserted, second.commit.records_updated) == (
        (f"{inbox}/b.csv",), 1, 1,
    )  # fmt: skip
    assert (third.files, third.commit) == ((), None)
    assert trips(trips_pipeline) == [(1, "paris", 9.5), (2, "rome", 2.5), (4, "oslo", 4.0)]
    assert set(second.seconds) == {"plan", "write"}


def test_files_per_run_takes_the_oldest_first_and_says_what_is_left(spark, pipeline, inbox):
    for number, name in enumerate(("c", "b", "a")):
        deliver(inbox, f"{name}.csv", (number, "paris", 1, 1.0))
        os.utime(inbox / f"{name}.csv", (number + 1, number + 1))

    report = run_pipeline(pipeline(source={"files_per_run": 2}), spark=spark)

    assert report.files == (f"{inbox}/c.csv", f"{inbox}/b.csv")
    assert report.files_left == 1


def test_a_run_without_rows_remembers_its_files(spark, pipeline, inbox):
    deliver(inbox, "a.csv", (1, "paris", 1, -1.0))
    free = pipeline()

    report = run_pipeline(free, spark=spark)

    assert report.commit.records_written == 0
    assert run_pipeline(free, spark=spark).commit is None
    deliver(inbox, "b.csv", (2, "rome", 1, 1.0))
    assert run_pipeline(free, spark=spark).files == (f"{inbox}/b.csv",)
    assert trips(free) == [(2, "rome", 1.0)]


def test_what_was_undone_is_taken_in_again_by_the_next_run(spark, pipeline, inbox):
    added = pipeline(operation=Operation.BULK_INSERT)
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    run_pipeline(added, spark=spark)
    deliver(inbox, "b.csv", (2, "rome", 1, 2.0))
    run_pipeline(added, spark=spark)

    holdfast.open_table(added.destination.path).undo()
    again = run_pipeline(added, spark=spark)

    assert again.files == (f"{inbox}/b.csv",)
    assert trips(added) == [(1, "paris", 1.0), (2, "rome", 2.0)]


def test_a_value_that_does_not_fit_fails_the_run_and_commits_nothing(spark, pipeline, inbox):
    """Text is read in the table's schema, so that a torn value cannot change a column's type."""
    plain = pipeline(transform="")
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    run_pipeline(plain, spark=spark)
    deliver(inbox, "b.csv", (2, "rome", 1, 2.0), (3, "rome", 1, "2.x"))

    with pytest.raises(SchemaMismatch) as raised:
        run_pipeline(plain, spark=spark)

    assert raised.value.facts == {
        "file": f"{inbox}/b.csv", "line": 3, "column": "fare", "found": "2.x", "expected": "double",
    }  # fmt: skip

    assert trips(plain) == [(1, "paris", 1.0)]
    assert len(commits(plain)) == 1
    deliver(inbox, "b.csv", (2, "rome", 1, 2.0), (3, "rome", 1, 2.5))
    assert run_pipeline(plain, spark=spark).commit.records_inserted == 2


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        (
            "b.csv", "trip_id,city,ts,fare\n2,rome,1\n",
            {"line": 2, "found": "3 fields", "expected": "4 fields"},
        ),
        (
            "b.json", '{"trip_id": 2, "city": "rome", "ts": "soon", "fare": 1.0}\n',
            {"line": 1, "column": "ts", "found": "soon", "expected": "int"},
        ),
        ("b.json", '\n{"trip_id": 2,\n', {"line": 2, "found": '{"trip_id": 2,', "expected": "a JSON object"}),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_by_its_place_and_what_is_wrong(spark, pipeline, inbox, name, text, facts):
    kind = name.partition(".")[2]
    plain = pipeline(transform="")
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    run_pipeline(plain, spark=spark)
    (inbox / name).write_text(text)
    source = replace(plain.source, format=kind, path=f"{inbox}/b.{kind}")

    with pytest.raises(SchemaMismatch, match="a row does not fit its columns") as raised:
        run_pipeline(replace(plain, source=source), spark=spark)

    assert raised.value.facts == {"file": f"{inbox}/{name}", **facts}
    assert len(commits(plain)) == 1


def test_bad_rows_are_listed_and_counted_and_the_others_committed(spark, pipeline, inbox, tmp_path):
    rejecting = replace(pipeline(), rejects=Rejects(path=str(tmp_path / "rejected"), max_rows=3))
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    run_pipeline(rejecting, spark=spark)
    rows = "2,rome,1,2.0\n3,rome,soon,3.0\n4,rome,1\n5,oslo,1,5.0\n3,rome,soon,3.0\n"
    (inbox / "b.csv").write_text(f"trip_id,city,ts,fare\n{rows}")
    ddl = replace(
        rejecting, source=replace(rejecting.source, schema="trip_id long, city string, ts long, fare double")
    )

    report = run_pipeline(ddl, spark=spark)

    assert trips(rejecting) == [(1, "paris", 1.0), (2, "rome", 2.0), (5, "oslo", 5.0)]
    assert report.rejected == 3
    [listed] = (tmp_path / "rejected").iterdir()
    assert report.rejects.endswith(listed.name)
    soon = {"column": "ts", "found": "soon", "expected": "bigint"}
    assert sorted(map(json.loads, listed.read_text().splitlines()), key=lambda row: row["line"]) == [
        {"file": f"{inbox}/b.csv", "line": 3, **soon},
        {"file": f"{inbox}/b.csv", "line": 4, "found": "3 fields", "expected": "4 fields"},
        {"file": f"{inbox}/b.csv", "line": 6, **soon},
    ]
    newest = commit_records(open_at(rejecting.destination.path))[0]
    assert newest.metadata.extra_metadata["holdfast.source.rejected"] == "3"
    assert run_pipeline(ddl, spark=spark).commit is None


def test_what_a_transform_does_not_look_at_is_rejected_all_the_same(spark, pipeline, inbox, tmp_path):
    """Spark would not parse a column that nobody asks for."""
    source = {"schema": "trip_id long, city string, ts long, fare double"}
    few = pipeline(transform="SELECT trip_id, city, ts FROM source", source=source)
    rejecting = replace(few, rejects=Rejects(path=str(tmp_path / "rejected")))
    (inbox / "a.csv").write_text("trip_id,city,ts,fare\n1,paris,1,1.0\n2,rome,1,x\n")

    report = run_pipeline(rejecting, spark=spark)

    assert (report.rejected, report.commit.records_inserted) == (1, 1)


def test_too_many_bad_rows_end_the_run(spark, pipeline, inbox, tmp_path):
    source = {"schema": "trip_id long, city string, ts long, fare double"}
    rejecting = replace(pipeline(source=source), rejects=Rejects(path=str(tmp_path / "rejected"), max_rows=1))
    (inbox / "a.csv").write_text("trip_id,city,ts,fare\n1,paris,1,x\n2,rome,1,x\n3,rome,1,1.0\n")

    with pytest.raises(SchemaMismatch, match=r"more rows do not fit .*max_rows: 1"):
        run_pipeline(rejecting, spark=spark)

    assert not (tmp_path / "rejected").exists()
    assert not holdfast.table_exists(rejecting.destination.path)


def test_what_spark_fails_at_is_an_error_of_ours(spark, pipeline, inbox):
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    failing = "SELECT trip_id, city, ts, CAST(raise_error('no such rate') AS DOUBLE) AS fare FROM source"

    with pytest.raises(HoldfastError, match="Spark failed") as raised:
        run_pipeline(pipeline(transform=failing), spark=spark)

    assert "no such rate" in raised.value.facts["cause"]


def test_columns_of_text_files_are_matched_by_name(spark, pipeline, inbox):
    plain = pipeline(transform="")
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    run_pipeline(plain, spark=spark)
    (inbox / "b.csv").write_text("fare,city,trip_id,ts\n2.0,rome,2,1\n")
    run_pipeline(plain, spark=spark)
    (inbox / "c.csv").write_text("fare,city,trip_id,ts,tip\n2.0,rome,2,1,5\n")

    with pytest.raises(SchemaMismatch, match=r"no such column \(column: tip"):
        run_pipeline(plain, spark=spark)

    assert trips(plain) == [(1, "paris", 1.0), (2, "rome", 2.0)]


@pytest.mark.parametrize(
    ("transform", "line", "cause"),
    [
        ("SELECT trip_id,\n  fair FROM source", 5, "fair"),
        ("\n\nSELECT trip_id FORM source WHERE", 6, "PARSE_SYNTAX_ERROR"),
        ("SELECT * FROM source; DROP TABLE source", 4, "PARSE_SYNTAX_ERROR"),
        ("INSERT INTO t SELECT * FROM source", 4, "PARSE_SYNTAX_ERROR"),
        ("SELECT * FROM elsewhere", 4, "elsewhere"),
    ],
)
def test_a_wrong_transform_is_refused_with_its_line_in_the_file(
    spark, pipeline, inbox, transform, line, cause
):
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    wrong = pipeline(transform=transform)

    with pytest.raises(InvalidOption, match="Spark cannot run the transform") as refused:
        run_pipeline(wrong, spark=spark)

    assert refused.value.facts["line"] == line
    assert cause in refused.value.facts["cause"]
    assert "\n" not in str(refused.value)
    assert not Path(wrong.destination.path).exists()


def test_a_transform_may_be_any_query(spark, pipeline, inbox):
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0), (2, "paris", 1, 3.0))
    query = """
        WITH dear AS (SELECT * FROM source WHERE fare > 2)  -- not the others
        SELECT trip_id, city, ts, fare * 2 AS fare FROM dear; -- that is all
    """.strip()
    doubled = pipeline(transform=query.rpartition(";")[0] + ";")

    run_pipeline(doubled, spark=spark)

    assert trips(doubled) == [(2, "paris", 6.0)]
    assert not any("holdfast" in table.name for table in spark.catalog.listTables())


@pytest.mark.parametrize(
    ("destination", "option"),
    [
        ({"record_key": ("ts",)}, "recordkey"),
        ({"partition_by": ("ts",)}, "partitionpath"),
        ({"ordering": "fare"}, "ordering"),
    ],
)
def test_a_pipeline_that_contradicts_its_table_is_refused(spark, pipeline, inbox, destination, option):
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    run_pipeline(pipeline(), spark=spark)
    deliver(inbox, "b.csv", (2, "rome", 1, 1.0))

    with pytest.raises(InvalidOption, match="the option contradicts the table") as refused:
        run_pipeline(pipeline(**destination), spark=spark)

    assert option in refused.value.facts["option"]
    assert len(commits(pipeline())) == 1


def test_a_changed_file_is_refused_by_name_or_taken_in_again(spark, pipeline, inbox):
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    run_pipeline(pipeline(), spark=spark)
    deliver(inbox, "a.csv", (1, "paris", 2, 10.0), (2, "rome", 1, 2.0))

    with pytest.raises(Refused, match=r"a\.csv"):
        run_pipeline(pipeline(), spark=spark)
    assert run_pipeline(pipeline(source={"changed": "ignore"}), spark=spark).commit is None
    run_pipeline(pipeline(source={"changed": "ingest"}), spark=spark)

    assert trips(pipeline()) == [(1, "paris", 10.0), (2, "rome", 2.0)]
    assert run_pipeline(pipeline(source={"changed": "ingest"}), spark=spark).commit is None


@pytest.mark.parametrize("file_format", ["parquet", "json", "orc"])
def test_any_format_that_spark_reads_is_a_source(spark, pipeline, tmp_path, file_format):
    folder = tmp_path / "rows [1]"  # Spark takes every path for a pattern.
    rows = spark.sql("SELECT 1 AS trip_id, 'paris' AS city, 1 AS ts, 2.5D AS fare")
    rows.write.format(file_format).save(str(folder))
    found = pipeline(source={"format": file_format, "path": f"{tmp_path}/rows*/*"})

    report = run_pipeline(found, spark=spark)

    assert report.commit.records_inserted == 1
    assert trips(found) == [(1, "paris", 2.5)]


def test_a_schema_in_sparks_words_is_kept_to(spark, pipeline, inbox):
    deliver(inbox, "a.csv", ("01", "paris", 1, 1.0))
    found = pipeline(
        source={"schema": "trip_id STRING, city STRING, ts BIGINT, fare DECIMAL(8, 2)"},
        transform="SELECT * FROM source",
    )

    run_pipeline(found, spark=spark)

    assert [row[0] for row in trips(found)] == ["01"]


def test_a_source_without_files_is_read_as_a_whole_by_every_run(spark, pipeline, tmp_path):
    url = f"jdbc:derby:{tmp_path}/db;create=true"
    options = {"url": url, "dbtable": "trips", "driver": "org.apache.derby.jdbc.EmbeddedDriver"}
    rows = spark.sql("SELECT 1 AS trip_id, 'paris' AS city, 1 AS ts, 2.5D AS fare")
    rows.write.format("jdbc").options(**options).save()
    upper = "SELECT TRIP_ID AS trip_id, CITY AS city, TS AS ts, FARE AS fare FROM source"
    found = pipeline(source={"format": "jdbc", "path": "", "options": options}, transform=upper)

    for _ in range(2):
        assert run_pipeline(found, spark=spark).commit is not None

    assert trips(found) == [(1, "paris", 2.5)]


def test_an_unknown_format_is_refused(spark, pipeline, inbox):
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))

    with pytest.raises(InvalidRequest, match="Spark cannot read the source"):
        run_pipeline(pipeline(source={"format": "parkuet"}), spark=spark)


@pytest.mark.parametrize("option", [{"sep": ""}, {"maxColumns": "many"}, {"header": "maybe"}])
def test_an_option_that_the_format_does_not_take_is_refused(spark, pipeline, inbox, option):
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))

    with pytest.raises(InvalidRequest, match="Spark cannot read the source"):
        run_pipeline(pipeline(source={"format": "csv", "options": option}), spark=spark)


def test_clean_runs_after_the_commit(spark, pipeline, inbox):
    options = {"hoodie.clean.automatic": "false", "hoodie.cleaner.commits.retained": "1"}
    found = replace(pipeline(options=options), clean=True)
    for number in range(3):
        deliver(inbox, f"{number}.csv", (1, "paris", number, 1.0))
        report = run_pipeline(found, spark=spark)

    assert report.clean.deleted
    assert "clean" in report.seconds


def test_two_runs_at_once_take_in_every_file_once(spark, pipeline, inbox):
    shared = pipeline(operation=Operation.BULK_INSERT, options=_SHARING)
    for number in range(4):
        deliver(inbox, f"{number}.csv", (number, "paris", 1, 1.0))
    run_pipeline(pipeline(operation=Operation.BULK_INSERT, options=_SHARING, transform=""), spark=spark)
    for number in range(4, 8):
        deliver(inbox, f"{number}.csv", (number, "paris", 1, 1.0))
    outcomes = []

    def run():
        try:
            outcomes.append(run_pipeline(shared, spark=spark))
        except Exception as error:  # noqa: BLE001  # told below
            outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)], outcomes
    assert sorted(len(report.files) for report in outcomes) == [0, 4]
    assert [trip for trip, *_ in trips(shared)] == list(range(8))


def test_a_run_beside_one_that_is_alone_on_the_table_is_told_so(spark, pipeline, inbox):
    alone = pipeline(operation=Operation.BULK_INSERT)
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    run_pipeline(alone, spark=spark)
    deliver(inbox, "b.csv", (2, "paris", 1, 1.0))
    outcomes = []

    def run():
        try:
            outcomes.append(run_pipeline(alone, spark=spark).commit)
        except WriterActive as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [trip for trip, *_ in trips(alone)] == [1, 2]
    assert any(getattr(outcome, "records_written", 0) == 1 for outcome in outcomes)


def test_a_run_whose_driver_dies_over_its_write_is_made_up_for_by_the_next(
    spark, pipeline, inbox, monkeypatch
):
    """Keys are not looked for, so a row that comes twice is seen twice.

    Every other step, because all of them are in tests/jobs/test_ingested.py without Spark.
    """
    added = pipeline(operation=Operation.BULK_INSERT, transform="SELECT * FROM source")
    deliver(inbox, "0.csv", (0, "paris", 1, 1.0))
    run_pipeline(added, spark=spark)

    def on(wrap):
        monkeypatch.setattr(opened, "open_store", lambda location: wrap(LocalStore(location.uri)))

    deliver(inbox, "1.csv", (1, "paris", 1, 1.0))
    recorders = []
    on(lambda store: recorders.append(RecordingStore(store)) or recorders[-1])
    run_pipeline(added, spark=spark)
    steps = max(len(recorder.changes) for recorder in recorders)
    assert steps > 5

    for number, step in enumerate(range(1, steps + 1, 2), 2):
        deliver(inbox, f"{number}.csv", (number, "rome", 1, 1.0))
        on(lambda store, step=step: CrashingStore(store, step, after=True))
        with pytest.raises(Crash):
            run_pipeline(added, spark=spark)
        check_at_any_time(open_at(added.destination.path))
        on(lambda store: store)
        run_pipeline(added, spark=spark)
        assert [trip for trip, *_ in trips(added)] == list(range(number + 1)), f"died after step {step}"
    deliver(inbox, "last.csv", (99, "rome", 1, 1.0))
    run_pipeline(added, spark=spark)
    check_at_rest(open_at(added.destination.path))


def streaming(pipeline, inbox, **options):
    return pipeline(
        source={
            "path": str(inbox),
            "stream": True,
            "schema": "trip_id BIGINT, city STRING, ts BIGINT, fare DOUBLE",
            "options": {"maxFilesPerTrigger": "1", **options},
        },
        operation=Operation.BULK_INSERT,
    )


def test_a_stream_commits_each_batch_once_although_it_is_handed_over_again(spark, pipeline, inbox):
    stream = streaming(pipeline, inbox)
    for number in range(3):
        deliver(inbox, f"{number}.csv", (number, "paris", 1, 1.0), (number + 10, "rome", 1, -1.0))

    report = run_pipeline(stream, spark=spark)

    assert len([*report.earlier, report.commit]) == 3
    assert [trip for trip, *_ in trips(stream)] == [0, 1, 2]
    # As if the run had died after its commit, before the stream noted it.
    for noted in Path(stream.destination.path).glob(".hoodie/.holdfast/streams/trips/commits/*2*"):
        noted.unlink()
    again = run_pipeline(stream, spark=spark)
    assert again.commit is None
    assert [trip for trip, *_ in trips(stream)] == [0, 1, 2]
    deliver(inbox, "3.csv", (3, "oslo", 1, 1.0))
    assert run_pipeline(stream, spark=spark).commit.records_written == 1
    batches = Register(open_at(stream.destination.path)).read().batches
    assert list(batches.values()) == [3]


def test_a_stream_says_which_batches_were_taken_back(spark, pipeline, inbox):
    stream = streaming(pipeline, inbox)
    for number in range(2):
        deliver(inbox, f"{number}.csv", (number, "paris", 1, 1.0))
    run_pipeline(stream, spark=spark)
    holdfast.open_table(stream.destination.path).undo()
    deliver(inbox, "2.csv", (2, "paris", 1, 1.0))

    report = run_pipeline(stream, spark=spark)

    assert report.warnings == ("batches 1 to 1 of the stream were taken back and are not read again",)
    assert [trip for trip, *_ in trips(stream)] == [0, 2]


def test_an_error_in_a_batch_is_raised_as_it_is_and_the_batch_comes_again(spark, pipeline, inbox):
    stream = streaming(pipeline, inbox)
    deliver(inbox, "0.csv", (0, "paris", 1, 1.0))
    run_pipeline(stream, spark=spark)
    deliver(inbox, "1.csv", ("", "paris", 1, 1.0))

    with pytest.raises(InvalidRequest, match="a record has no key"):
        run_pipeline(stream, spark=spark)

    assert [trip for trip, *_ in trips(stream)] == [0]
    deliver(inbox, "1.csv", (1, "paris", 1, 1.0))
    assert run_pipeline(stream, spark=spark).commit.records_written == 1
    assert [trip for trip, *_ in trips(stream)] == [0, 1]


def test_a_stream_of_rates_is_taken_in_as_far_as_it_is_there(spark, pipeline):
    rate = pipeline(
        source={"format": "rate", "path": "", "stream": True, "options": {"rowsPerSecond": "50"}},
        transform="SELECT value AS trip_id, 'paris' AS city, value AS ts, 1.0D AS fare FROM source",
        operation=Operation.BULK_INSERT,
    )
    for _ in range(3):
        run_pipeline(rate, spark=spark)

    ids = [trip for trip, *_ in trips(rate)]
    assert ids == list(range(len(ids)))


def test_the_commit_tells_its_files_to_every_program(spark, pipeline, inbox):
    deliver(inbox, "a.csv", (1, "paris", 1, 1.0))
    found = pipeline()
    instant = run_pipeline(found, spark=spark).commit.instant

    commit = json.loads(Path(found.destination.path, ".hoodie", f"{instant}.commit").read_text())

    assert commit["extraMetadata"]["holdfast.source.folder"] == str(inbox)
    assert json.loads(commit["extraMetadata"]["holdfast.source.files"])[0][0] == "a.csv"
