"""`run`, as far as it needs no Spark; what it does is in tests/jobs."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest

import holdfast
from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.host import descendants
from holdfast.jobs.ingested import Register, files_origin
from holdfast.jobs.source_files import matching_files
from holdfast.table.opened import open_at
from holdfast.writes import operations

PIPELINE = """
name: trips
source: {format: csv, path: in/*.csv}
table: {path: lake/trips, record_key: id, partition_by: city}
"""


@pytest.fixture
def pipeline(tmp_path):
    file = tmp_path / "trips.yaml"
    file.write_text(PIPELINE)
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.csv").write_text("id,city\n1,paris\n")
    return file


@pytest.fixture
def ingested(pipeline, tmp_path):
    """The first of the files is in the table."""
    path = str(tmp_path / "lake/trips")
    holdfast.create_table(path, name="trips", record_key="id", partition_by="city")
    register = Register(open_at(path))
    files = matching_files(f"{tmp_path}/in/a.csv")
    origin = files_origin(register, files, register.read(), pipeline="trips")
    operations.write(
        open_at(path),
        Operation.INSERT,
        ArrowRows(pa.table({"id": [1], "city": ["paris"]})),
        WriteSettings(),
        origin=origin,
    )
    return path


def test_a_dry_run_shows_what_is_new_and_changes_nothing(run, pipeline, tmp_path):
    result = run("run", pipeline, "--dry-run")

    assert result.exit_code == 0
    assert re.search(r"^table +will be created$", result.stdout, re.MULTILINE)
    assert re.search(r"^new files +2, 32 B$", result.stdout, re.MULTILINE)
    assert f"{tmp_path}/in/b.csv" in result.stdout
    assert not (tmp_path / "lake").exists()


def test_a_dry_run_is_one_document_for_programs(run, pipeline, ingested, tmp_path):
    document = json.loads(run("run", pipeline, "--dry-run", "--json").stdout)

    assert document["dry_run"] is True
    assert document["creates_table"] is False
    assert [file["uri"] for file in document["files"]] == [f"{tmp_path}/in/b.csv"]
    assert (document["files_left"], document["push"]) == (0, None)


def test_a_dry_run_says_what_would_be_pushed_and_reads_the_sql(run, pipeline):
    pipeline.write_text(
        PIPELINE
        + "transform: SELECT id, city FROM source WHERE id > 0\n"
        + "push: {table: rides, controller: 'http://127.0.0.1:1', gates: [{min_rows: 1}]}\n"
    )

    shown = run("run", pipeline, "--dry-run").stdout
    document = json.loads(run("run", pipeline, "--dry-run", "--json").stdout)

    assert re.search(r"^transform +is Spark SQL$", shown, re.MULTILINE)
    assert "what this run commits, to rides at http://127.0.0.1:1, after 1 gate" in shown
    assert (document["pushes_to"], document["gates"]) == ("rides at http://127.0.0.1:1", 1)
    assert document["is_transform_parsed"] is True


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT id FROM source WHERE", "the transform is not Spark SQL (key: transform, line: 5"),
        ("DELETE FROM source", "the transform is not a query (key: transform, found: DELETE)"),
        ("SELECT 1; SELECT 2", "the transform is not one query"),
    ],
)
def test_a_dry_run_refuses_what_is_no_query(run, pipeline, sql, text):
    pipeline.write_text(f"{PIPELINE}transform: {sql}\n")

    result = run("run", pipeline, "--dry-run")

    assert result.exit_code == 2
    assert text in result.stderr


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, city FROM source LATERAL VIEW explode(split(city, ',')) AS part",
        "SELECT * EXCEPT (city) FROM source QUALIFY row_number() OVER (PARTITION BY id ORDER BY city) = 1",
        "WITH a AS (SELECT id, named_struct('x', 1) AS s FROM source) SELECT id, s.x, city FROM a, source",
        "SELECT id, city, transform(array(1, 2), x -> x + 1) AS xs, date'2026-01-01' AS day FROM source",
        "SELECT /*+ BROADCAST(source) */ id, try_cast(city AS INT) FROM source TABLESAMPLE (10 PERCENT)",
        "FROM source SELECT id, city",
        "SELECT id, city FROM source PIVOT (count(*) FOR city IN ('paris', 'rome'))",
    ],
)
def test_a_dry_run_takes_what_spark_takes(run, pipeline, sql):
    pipeline.write_text(f'{PIPELINE}transform: "{sql}"\n')

    assert run("run", pipeline, "--dry-run").exit_code == 0


def test_without_pyspark_it_says_what_to_install(pipeline):
    """Also `write`, which reads its files by itself."""
    (pipeline.parent / "rows.csv").write_text("id,city\n1,paris\n")
    create = ["create", "t", "--name", "t", "--record-key", "id"]
    for words in (["run", str(pipeline)], ["write", "t", "--from", "rows.csv", "--operation", "insert"]):
        script = f"""
import sys
from holdfast.cli.main import cli
sys.modules["pyspark"] = None
for words in ({create!r}, {words!r}):
    try:
        cli.main(words)
    except SystemExit as ended:
        code = ended.code
sys.exit(code)
"""
        result = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, cwd=pipeline.parent
        )

        assert result.returncode == 2, result.stderr
        assert "Spark is not installed" in result.stderr
        assert "pip install 'holdfast-lake[spark]'" in result.stderr


def test_a_run_with_nothing_new_starts_no_spark(run_process, pipeline, ingested, tmp_path, monkeypatch):
    (tmp_path / "in/b.csv").unlink()
    (tmp_path / "in/empty.csv").touch()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # Spark could not start.

    result = run_process("run", pipeline, "--json")

    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["commit"] is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (PIPELINE.replace("format", "fromat"), "unknown key"),
        (PIPELINE.replace("in/*.csv", "none/*.csv"), "there is no such folder (line: 3, key: source.path, "),
        (PIPELINE.replace("in/*.csv", "none.csv"), "no such file or folder (line: 3, key: source.path, "),
        ("source: [", "not YAML"),
    ],
)
def test_a_pipeline_that_cannot_run_is_refused_in_one_line(run, pipeline, text, told):
    pipeline.write_text(text)

    result = run("run", pipeline)

    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_changed_file_is_refused_by_name(run, pipeline, ingested, tmp_path):
    (tmp_path / "in/a.csv").write_text("id,city\n1,paris\n2,rome\n")

    result = run("run", pipeline)

    assert result.exit_code == 2
    assert f"a file was changed after it was ingested (file: {tmp_path}/in/a.csv" in result.stderr


def test_once_and_every_exclude_each_other(run, pipeline):
    assert run("run", pipeline, "--once", "--every", "5").exit_code == 2
    assert run("run", pipeline, "--every", "0").exit_code == 2


@pytest.mark.spark
def test_runs_come_again_until_a_signal_and_a_failed_one_does_not_end_them(pipeline, tmp_path):
    (tmp_path / "in").rename(tmp_path / "later")
    command = [sys.executable, "-m", "holdfast", "run", str(pipeline), "--every", "0.2", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "there is no such folder" in process.stderr.readline()
        os.rename(tmp_path / "later", tmp_path / "in")
        assert "there is no such folder" in json.loads(process.stdout.readline())["error"]["message"]
        first = json.loads(process.stdout.readline())
        while "error" in first:
            first = json.loads(process.stdout.readline())
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        process.stdout.read()

        assert "stopping when this run is over" in process.stderr.read()
        assert process.wait(timeout=60) == 0

    assert len(first["files"]) == 2
    assert (second["files"], second["commit"]) == ([], None)


@pytest.mark.spark
@pytest.mark.parametrize("after", [0.0, 0.4, 1.5])
def test_an_interrupted_start_of_spark_leaves_no_jvm_and_ends_quietly(pipeline, after):
    """A script launches the JVM, which answers after a second or two; the signal comes before, or then."""
    command = [sys.executable, "-m", "holdfast", "run", str(pipeline)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=pipeline.parent,
        start_new_session=True,
    ) as process:  # fmt: skip
        while not descendants(process.pid):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.005)
        time.sleep(after)
        launched = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(60)
        told = process.stderr.read()

    assert (code, told) == (130, "holdfast: interrupted\n")
    deadline = time.monotonic() + 5
    while any(map(_is_running, launched)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [each for each in launched if _is_running(each)] == []


def _is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
