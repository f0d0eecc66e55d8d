"""Push jobs on Spark: every kind of input, and workers that die while they build."""

import json
import os
import signal
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from harness.push_client import PushedTable, config, make_events, make_table
from harness.push_jobs import job_of, retention, seen, stored_files
from holdfast.config.push_job import Backfill, FileInput, SegmentNaming, SegmentSizing, TableInput
from holdfast.errors import InvalidRequest, SchemaMismatch
from holdfast.jobs.process import Terminated
from holdfast.jobs.push.run import run_push_job
from holdfast.model.pushes import LAKE_INSTANT, LAKE_TABLE
from holdfast.push import run_job

pytestmark = pytest.mark.spark

COLUMNS = ["id", "city", "snapshot"]


def _content(table):
    answer = table.client.sql(f"SELECT id, city, snapshot FROM {table.name} ORDER BY id LIMIT 1000")
    assert not answer["exceptions"], answer["exceptions"]
    return [tuple(row) for row in answer["resultTable"]["rows"]]


def _files(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    return str(folder)


def test_csv_files_are_matched_by_name_and_converted_to_the_schema(spark, running, table, tmp_path):
    folder = _files(
        tmp_path / "in",
        a_csv="id,city,snapshot\n1,oslo,7\n2,,7\n",
        b_csv="id,city,snapshot\n3,bergen,7\n",
        c_txt="not this one",
    )
    files = FileInput(folder=folder, format="csv", include="glob:**/*.csv")

    report = run_push_job(job_of(running.controller_url, table.name, input=files), spark=spark)

    assert _content(table) == [(1, "oslo", 7), (2, "null", 7), (3, "bergen", 7)]
    assert report.source["input.files"] == "2"
    assert report.source["input.names"] == "a.csv, b.csv"


def test_csv_files_whose_headers_differ_are_refused(spark, running, table, tmp_path):
    folder = _files(
        tmp_path / "in", a_csv="id,city,snapshot\n1,oslo,7\n", b_csv="city,id,snapshot\noslo,1,7\n"
    )

    with pytest.raises(Exception, match=r"(?i)header"):
        run_push_job(
            job_of(running.controller_url, table.name, input=FileInput(folder=folder, format="csv")),
            spark=spark,
        )

    assert (table.segments(), stored_files(table)) == (set(), [])


def test_a_value_that_does_not_fit_is_named_with_its_column(spark, running, table, tmp_path):
    folder = _files(tmp_path / "in", a_csv="id,city,snapshot\n1,oslo,seven\n")

    with pytest.raises(SchemaMismatch) as caught:
        run_push_job(
            job_of(running.controller_url, table.name, input=FileInput(folder=folder, format="csv")),
            spark=spark,
        )

    assert (caught.value.facts["column"], caught.value.facts["value_type"]) == ("snapshot", "string")
    assert (table.segments(), stored_files(table)) == (set(), [])


def test_json_lines_keep_nested_values_as_json(spark, running, client, tmp_path):
    nested = make_table(client, consistent=True)
    folder = _files(tmp_path / "in", a_json='{"id": 1, "city": {"name": "oslo"}, "snapshot": 3}\n{"id": 2}\n')

    run_push_job(
        job_of(running.controller_url, nested.name, input=FileInput(folder=folder, format="json")),
        spark=spark,
    )

    (first, second) = _content(nested)
    assert (first[0], json.loads(first[1]), first[2]) == (1, {"name": "oslo"}, 3)
    assert second == (2, "null", 0)


def test_parquet_files_are_cut_into_segments_of_so_many_rows(spark, running, table, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(
        pa.table({"id": pa.array(range(10), pa.int32()), "snapshot": [1] * 10}), tmp_path / "in" / "a.parquet"
    )
    files = FileInput(folder=str(tmp_path / "in"), format="parquet")

    report = run_push_job(
        job_of(running.controller_url, table.name, input=files, sizing=SegmentSizing(rows=4)), spark=spark
    )

    assert [name.rpartition("_OFFLINE_")[2].split("_")[1:] for name in report.segments] == [
        ["0"], ["0", "1"], ["0", "2"]
    ]  # fmt: skip
    assert seen(table) == [(1, 10)]


def _days(folder, days, rows=2):
    folder.mkdir(parents=True, exist_ok=True)
    for day in days:
        at = [str((20_000 + day) * 86_400_000 + number) for number in range(rows)]
        lines = ["at,run", *(f"{one},1" for one in at)]
        (folder / f"day {day}.csv").write_text("\n".join(lines) + "\n")
    return str(folder)


@pytest.fixture
def events(client):
    """A table with a time column to which pushes add."""
    return make_events(client)


def _push_files(running, spark, events, folder, **options):
    options.setdefault("sizing", SegmentSizing())
    files = FileInput(folder=folder, format="csv")
    return run_push_job(job_of(running.controller_url, events.name, input=files, **options), spark=spark)


def _rows_seen(events):
    epoch = events.client.running.service.controller.views.state(events.typed).push.epoch
    statement = f"SELECT count(*) FROM {events.name}"
    answer = events.client.sql(statement, queryOptions=f"minSnapshotEpoch={epoch}")
    return answer["resultTable"]["rows"][0][0]


@pytest.mark.parametrize("options", [{}, {"parallelism": 1}, {"sizing": SegmentSizing(rows=20)}])
def test_a_file_is_a_segment_and_a_push_with_one_more_file_overwrites_the_others(
    spark, running, events, tmp_path, options
):
    _push_files(running, spark, events, _days(tmp_path / "in", range(3), rows=30), **options)
    # The new file is the largest, which Spark would take first.
    again = _push_files(running, spark, events, _days(tmp_path / "in", [3], rows=40), **options)

    assert _rows_seen(events) == 3 * 30 + 40
    wanted = ["0", "1", "2", "3"]
    if "sizing" in options:
        wanted = ["0", "0_1", "1", "1_1", "2", "2_1", "3", "3_1"]
    assert [name.split("_", 4)[4] for name in again.segments] == wanted
    assert spark.conf.get("spark.sql.files.maxPartitionBytes") == "134217728b"


def test_a_day_of_a_table_that_was_loaded_from_files_is_replaced(spark, running, events, tmp_path):
    _push_files(running, spark, events, _days(tmp_path / "in", range(3), rows=30))
    first = 20_001 * 86_400_000

    report = _push_files(
        running, spark, events, _days(tmp_path / "late", [1], rows=7),
        backfill=Backfill(start_ms=first, end_ms=first + 86_400_000),
    )  # fmt: skip

    assert len(report.replaced) == 1
    assert _rows_seen(events) == 30 + 7 + 30


def test_files_of_several_folders_are_numbered_as_the_job_says(spark, running, client, tmp_path):
    plain = make_table(client, kind="APPEND")
    for day in ("a", "b"):
        _files(tmp_path / day, rows_csv=f"id,city,snapshot\n1,{day},7\n")

    with pytest.raises(InvalidRequest, match="several segments get the same name"):
        _push_files(running, spark, plain, str(tmp_path))
    naming = SegmentNaming(numbers_all_files=True)
    report = _push_files(running, spark, plain, str(tmp_path), naming=naming)

    assert report.segments == (f"{plain.typed}_0", f"{plain.typed}_1")


def test_segments_are_named_by_their_files(spark, running, client, tmp_path):
    plain = make_table(client, kind="APPEND")
    _files(tmp_path, b_csv="id,city,snapshot\n1,b,7\n", a_csv="id,city,snapshot\n1,a,7\n")
    naming = SegmentNaming(
        kind="inputFile", file_pattern=r"file:.+/(.+)\.csv", template=r"orders_${filePathPattern:\1}"
    )

    assert _push_files(running, spark, plain, str(tmp_path), naming=naming).segments == (
        "orders_a", "orders_b"
    )  # fmt: skip
    with pytest.raises(InvalidRequest, match="several segments get the same name"):
        _push_files(running, spark, plain, str(tmp_path), naming=SegmentNaming(kind="fixed", fixed="one"))
    (tmp_path / "b.csv").unlink()
    report = _push_files(
        running, spark, plain, str(tmp_path), naming=SegmentNaming(kind="fixed", fixed="one")
    )
    assert report.segments == ("one",)


def test_files_without_rows_are_no_segments(spark, running, events, tmp_path):
    folder = _days(tmp_path / "in", range(3), rows=3)
    (tmp_path / "in" / "day 1.csv").write_text("at,run\n")
    (tmp_path / "in" / "day 4.csv").write_text("")

    report = _push_files(running, spark, events, folder)

    assert [name.split("_", 4)[4] for name in report.segments] == ["0", "2"]


def test_a_plain_push_after_consistent_push_replaces_the_segments_of_the_same_files(
    spark, running, client, tmp_path
):
    table = make_table(client, consistent=True)
    lines = "".join(f"{number},oslo,7\n" for number in range(30))
    folder = _files(tmp_path, a_csv="id,city,snapshot\n" + lines, b_csv="id,city,snapshot\n" + lines)
    _push_files(running, spark, table, folder)
    settings = client.get(f"/tables/{table.name}").json()["OFFLINE"]
    settings["ingestionConfig"]["batchIngestionConfig"]["consistentDataPush"] = False
    assert client.call("PUT", f"/tables/{table.name}", json=settings).status_code == 200
    _files(tmp_path, a_csv="id,city,snapshot\n1,oslo,8\n", b_csv="id,city,snapshot\n2,oslo,8\n")

    assert _push_files(running, spark, table, folder).warnings == ()

    assert _rows_seen(table) == 2


def _made_table(client, columns, **ingestion):
    """A table with columns by type, and with ingestion settings."""
    name = f"made{time.monotonic_ns()}"
    specs = [{"name": column, "dataType": kind} for column, kind in columns.items()]
    answer = client.post("/schemas", {"schemaName": name, "dimensionFieldSpecs": specs})
    assert answer.status_code == 200, answer.text
    settings = config(name, kind="APPEND")
    settings["ingestionConfig"] |= ingestion
    answer = client.post("/tables", settings)
    assert answer.status_code == 200, answer.text
    return PushedTable(client, name)


def _answer(table, columns):
    epoch = table.client.running.service.controller.views.state(table.typed).push.epoch
    statement = f"SELECT {columns} FROM {table.name} ORDER BY 1, 2 LIMIT 100"
    answer = table.client.sql(statement, queryOptions=f"minSnapshotEpoch={epoch}")
    assert not answer["exceptions"], answer["exceptions"]
    return [tuple(row) for row in answer["resultTable"]["rows"]]


def test_csv_rows_are_transformed_and_filtered_file_by_file(spark, running, client, tmp_path):
    made = _made_table(
        client,
        {"day": "INT", "ts": "LONG", "city": "STRING"},
        transformConfigs=[
            {"columnName": "ts", "transformFunction": "fromEpochDays(day)"},
            {"columnName": "city", "transformFunction": "upper(place)"},
        ],
        filterConfig={"filterFunction": "day < 16101"},
    )
    folder = _files(
        tmp_path / "in",
        a_csv="day,place\n16100,oslo\n16101,oslo\n",
        b_csv="day,place\n1,gone\n",
        c_csv="day,place\n16102,rome\n",
    )

    report = _push_files(running, spark, made, folder)

    assert [name.rpartition("_")[2] for name in report.segments] == ["0", "2"]
    assert _answer(made, "day, ts, city") == [
        (16101, 1391126400000, "OSLO"), (16102, 1391212800000, "ROME")
    ]  # fmt: skip


def test_json_rows_are_unnested(spark, running, client, tmp_path):
    made = _made_table(
        client,
        {"id": "INT", "items.price": "DOUBLE", "of.name": "STRING", "rest": "STRING"},
        complexTypeConfig={"fieldsToUnnest": ["items"]},
    )
    folder = _files(
        tmp_path / "in",
        a_json='{"id": 1, "items": [{"price": 2.5}, {"price": 3}], "of": {"name": "x"}, "rest": [{"k": 1}]}\n'
        '{"id": 2, "items": [], "of": null}\n',
    )
    files = FileInput(folder=folder, format="json")

    run_push_job(job_of(running.controller_url, made.name, input=files, sizing=SegmentSizing()), spark=spark)

    assert _answer(made, 'id, "items.price", "of.name", rest') == [
        (1, 2.5, "x", '[{"k":1}]'), (1, 3.0, "x", '[{"k":1}]'), (2, "-Infinity", "null", "null")
    ]  # fmt: skip


def test_avro_without_its_package_is_refused_by_name(spark, running, table, tmp_path):
    folder = _files(tmp_path / "in", a_avro="Obj")

    with pytest.raises(InvalidRequest, match=r"org\.apache\.spark:spark-avro"):
        run_push_job(
            job_of(running.controller_url, table.name, input=FileInput(folder=folder, format="avro")),
            spark=spark,
        )


def test_a_snapshot_of_a_lake_table_is_pushed_as_of_a_commit(spark, running, table, tmp_path):
    lake = holdfast.create_table(str(tmp_path / "lake"), name="orders", record_key="id")
    first = lake.insert(spark.createDataFrame([(1, "oslo", 1)], COLUMNS))
    lake.upsert(spark.createDataFrame([(1, "oslo", 2), (2, "bergen", 2)], COLUMNS))

    newest = run_push_job(
        job_of(running.controller_url, table.name, input=TableInput(path=str(tmp_path / "lake"))), spark=spark
    )
    assert _content(table) == [(1, "oslo", 2), (2, "bergen", 2)]

    earlier = run_push_job(
        job_of(
            running.controller_url, table.name,
            input=TableInput(path=str(tmp_path / "lake"), as_of=first.instant),
        ),
        spark=spark,
    )  # fmt: skip
    assert _content(table) == [(1, "oslo", 1)]
    assert earlier.source[LAKE_TABLE] == newest.source[LAKE_TABLE] == str(tmp_path / "lake")
    assert earlier.source[LAKE_INSTANT] == first.instant < newest.source[LAKE_INSTANT]
    assert lake.leases() == []


def test_a_data_frame_is_pushed_by_a_mapping(spark, running, table):
    frame = spark.range(5).selectExpr("id", "'oslo' AS city", "1 AS snapshot").repartition(3)
    spec = {
        "tableSpec": {"tableName": table.name},
        "pinotClusterSpecs": [{"controllerURI": running.controller_url}],
        "gates": [{"unique": "id"}],
    }

    report = run_job(spec, frame=frame)

    assert (report.rows, seen(table)) == (5, [(1, 5)])
    assert report.gates[0].passed


@pytest.mark.skipif("SPARK_REMOTE" in os.environ, reason="workers of a server are not ours to kill")
def test_a_worker_that_is_killed_while_it_builds_leaves_one_copy_of_each_row(spark, running, table):
    """Readers see the old snapshot or the new one all the while, and nothing else."""

    def dies_once(batches):
        """Gives half its rows, then kills its process, the first time."""
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, batch in enumerate(batches):
            if number == 3 and context.attemptNumber() == 0 and context.partitionId() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    run_push_job(
        job_of(running.controller_url, table.name), frame=spark.range(4).selectExpr("id", "1 AS snapshot")
    )
    rows = spark.range(0, 40_000, 1, 2).selectExpr("id", "2 AS snapshot")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
    answers, over = [], threading.Event()

    def watch():
        while not over.is_set():
            answers.append(seen(table))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        report = run_push_job(
            job_of(running.controller_url, table.name, sizing=SegmentSizing(rows=2000)),
            frame=rows.mapInArrow(dies_once, rows.schema),
        )
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        over.set()
        watcher.join()

    assert report.rows == 40_000
    assert seen(table) == [(2, 40_000)]
    assert {tuple(answer) for answer in answers} <= {((1, 4),), ((2, 40_000),)}
    answer = table.client.sql(f"SELECT count(DISTINCT id) FROM {table.name}")
    assert answer["resultTable"]["rows"] == [[40_000]]
    retention(table)
    assert len([name for name in stored_files(table) if "__" in name]) == len(report.segments) + len(
        report.replaced
    )


@pytest.mark.skipif("SPARK_REMOTE" in os.environ, reason="a server goes on with what it is doing")
def test_a_signal_while_segments_are_built_stops_spark_and_leaves_nothing(spark, running, table):
    def sleeps(batches):
        for batch in batches:
            time.sleep(60)
            yield batch

    rows = spark.range(0, 4, 1, 2).selectExpr("id", "1 AS snapshot")
    began, sent = time.monotonic(), []

    def announce(stage, done, total):
        if stage == "build" and total and not sent:
            sent.append(stage)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated):
        run_push_job(
            job_of(running.controller_url, table.name),
            frame=rows.mapInArrow(sleeps, rows.schema),
            announce=announce,
        )

    assert spark.range(3).count() == 3
    assert time.monotonic() - began < 50, "the tasks were cancelled"
    assert (table.segments(), table.states(), stored_files(table)) == (set(), [], [])


@pytest.fixture
def slow_planning(spark):
    """A column whose value Spark asks us for while it plans; we hold it until it is let go."""
    from pyspark.java_gateway import ensure_callback_server_started

    class Held:
        def __init__(self):
            self.is_planning, self.let_go = threading.Event(), threading.Event()

        def call(self, value):
            self.is_planning.set()
            self.let_go.wait(120)
            return value

        class Java:
            implements = ("org.apache.spark.sql.api.java.UDF1",)

    held = Held()
    ensure_callback_server_started(spark.sparkContext._gateway)
    kind = spark._jvm.org.apache.spark.sql.types.DataTypes.StringType
    spark._jsparkSession.udf().register("held", held, kind)
    yield held
    held.let_go.set()
    spark.sql("DROP TEMPORARY FUNCTION held")


@pytest.mark.skipif("SPARK_REMOTE" in os.environ, reason="planning is held by a call from the JVM")
def test_a_signal_while_spark_plans_is_obeyed_in_time_and_the_next_run_tidies_up(
    spark, running, table, slow_planning
):
    # In the end it is let go, so that a job that waits for it fails here instead of hanging.
    late = threading.Timer(60, slow_planning.let_go.set)

    def stop():
        slow_planning.is_planning.wait(60)
        os.kill(os.getpid(), signal.SIGTERM)
        late.start()

    threading.Thread(target=stop).start()
    with pytest.raises(Terminated) as stopped:
        run_push_job(
            job_of(running.controller_url, table.name),
            # Rows that stand in the query itself are computed while it is planned.
            frame=spark.sql("SELECT id, held('oslo') AS city, 1 AS snapshot FROM VALUES (1), (2) AS t (id)"),
        )

    assert not slow_planning.let_go.is_set(), "it did not wait until the plan was made"
    late.cancel()
    assert "Spark has not stopped yet" in str(stopped.value.__notes__)
    assert (table.segments(), table.states()) == (set(), [])
    slow_planning.let_go.set()
    _wait_for_the_build_to_end()
    report = run_push_job(
        job_of(running.controller_url, table.name), frame=spark.range(4).selectExpr("id", "2 AS snapshot")
    )
    assert any("had been killed" in warning for warning in report.warnings), report.warnings
    assert seen(table) == [(2, 4)]
    assert len(stored_files(table)) == len(report.segments), "nothing of the first run, nor of its record"


def _wait_for_the_build_to_end():
    for thread in threading.enumerate():
        if thread.name == "holdfast-push-build":
            thread.join(60)
            assert not thread.is_alive()
    # Python workers of a cancelled job may finish a file before Spark ends them, two seconds later.
    time.sleep(3)


@pytest.mark.skipif("SPARK_REMOTE" in os.environ, reason="local properties are those of a context")
def test_segments_are_built_under_the_local_properties_of_the_thread_that_pushes(spark, running, table):
    def told(batches):
        from pyspark import TaskContext

        city = TaskContext.get().getLocalProperty("holdfast.test.city") or "nowhere"
        for batch in batches:
            yield batch.set_column(1, "city", pa.array([city] * batch.num_rows))

    rows = spark.range(2).selectExpr("id", "'' AS city", "1 AS snapshot")
    spark.sparkContext.setLocalProperty("holdfast.test.city", "oslo")
    try:
        run_push_job(job_of(running.controller_url, table.name), frame=rows.mapInArrow(told, rows.schema))
    finally:
        spark.sparkContext.setLocalProperty("holdfast.test.city", None)

    assert _content(table) == [(0, "oslo", 1), (1, "oslo", 1)]
