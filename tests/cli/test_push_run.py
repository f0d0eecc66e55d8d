"""`push run` on the command line, as far as it needs no Spark."""

import json

import pytest

from harness.lake_pushes import service
from harness.push_client import Client, make_table


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with service(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def table(running):
    return make_table(Client(running), consistent=True)


@pytest.fixture
def job(tmp_path, running, table):
    """A job file, by the name of the day whose rows it pushes."""
    (tmp_path / "monday").mkdir()
    (tmp_path / "monday" / "rows.csv").write_text("id,city,snapshot\n1,oslo,1\n")
    spec = {
        "tableSpec": {"tableName": table.name},
        "pinotClusterSpecs": [{"controllerURI": running.controller_url}],
        "inputDirURI": "${day}",
        "recordReaderSpec": {"dataFormat": "csv"},
        "gates": [{"min_rows": 1}],
    }
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(spec))
    return path


def test_a_dry_run_says_what_would_be_pushed_and_pushes_nothing(run, job, table):
    shown = run("push", "run", str(job), "--values", "day=monday", "--dry-run")
    plan = json.loads(run("push", "run", str(job), "--values", "day=monday", "--dry-run", "--json").stdout)

    assert shown.exit_code == 0, shown.stderr
    assert "replaces the whole table" in shown.stdout
    assert (plan["table"], plan["source"]["input.files"], plan["replaced"]) == (table.typed, "1", [])
    assert plan["example"].startswith(f"{table.typed}_")
    assert (table.segments(), table.states()) == (set(), [])


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"tableSpec": {"tableName": "missing"}}, 2, "missing"),
        ({"pinotClusterSpecs": [{"controllerURI": "http://127.0.0.1:9"}]}, 4, "does not answer"),
        ({"inputDirURI": "tuesday"}, 2, "tuesday"),
        ({"gate": []}, 2, "gates"),
        ({"backfill": {"start": "2026-01-01", "end": "2026-01-02"}}, 2, "backfill"),
    ],
)
def test_what_is_wrong_with_a_job_is_one_line_and_the_right_exit_code(run, job, change, code, said):
    spec = json.loads(job.read_text()) | change | {"pushJobSpec": {"pushAttempts": 1}}
    job.write_text(json.dumps(spec))

    refused = run("push", "run", str(job), "--values", "day=monday", "--dry-run")

    assert refused.exit_code == code
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("inputDirURI: tuesday\n", "there is no such folder (line: 4, key: inputDirURI, "),
        ("source: {table: no/lake}\n", "there is no table here (line: 4, key: source.table, "),
    ],
)
def test_an_input_that_is_not_there_is_named_with_its_line_and_its_key(
    run, tmp_path, running, table, named, told
):
    clusters = f"[{{controllerURI: '{running.controller_url}'}}]"
    text = f"tableSpec: {{tableName: {table.name}}}\npinotClusterSpecs: {clusters}\n"
    (tmp_path / "job.yaml").write_text(f"{text}recordReaderSpec: {{dataFormat: csv}}\n{named}")

    refused = run("push", "run", str(tmp_path / "job.yaml"))

    assert refused.exit_code == 2
    assert told in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_job_file_that_is_not_there_is_named(run, tmp_path):
    refused = run("push", "run", str(tmp_path / "nowhere.yaml"))

    assert refused.exit_code == 2
    assert "nowhere.yaml" in refused.stderr
