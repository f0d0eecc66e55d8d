"""`sql`: one statement, those of standard input, or what is typed. Spark is not needed for any of it here."""

import json
import os
import pty
import select
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli.main import cli
from holdfast.cli.sql import completions, find_completion
from holdfast.statements.catalog import open_catalog

DUCKDB = ("--engine", "duckdb")


@pytest.fixture
def catalog(tmp_path):
    table = holdfast.create_table(str(tmp_path / "lake" / "rides"), name="rides", record_key="id")
    table.insert(pa.table({"id": [1, 2, 3], "fare": [1.5, 2.5, None]}))
    (tmp_path / "catalog.yaml").write_text("warehouse: lake\n")
    return str(tmp_path / "catalog.yaml")


def test_a_query_is_shown_as_a_table_or_as_json(run, catalog):
    shown = run(
        "sql", "SELECT id, fare FROM rides ORDER BY id", "--catalog", catalog, "--limit", "2", *DUCKDB
    )
    told = run("sql", "SELECT id, fare FROM rides ORDER BY id", "--catalog", catalog, "--json", *DUCKDB)

    assert shown.exit_code == 0
    assert "2 rows; there are more: --limit shows them" in shown.stdout
    assert json.loads(told.stdout) == {
        "columns": ["id", "fare"],
        "rows": [{"id": 1, "fare": 1.5}, {"id": 2, "fare": 2.5}, {"id": 3, "fare": None}],
    }


def test_a_table_is_named_by_its_path_without_a_catalog(run, catalog, tmp_path):
    told = run("sql", f"SELECT count(*) AS n FROM holdfast.`{tmp_path / 'lake/rides'}`", "--json", *DUCKDB)

    assert json.loads(told.stdout)["rows"] == [{"n": 3}]


def test_standard_input_has_many_statements_and_the_first_that_fails_ends_it(catalog):
    text = "SHOW TABLES; CALL create_savepoint('rides'); SELECT nope FROM rides; CALL undo('rides');"

    done = _run_with_input("SHOW TABLES; CALL show_savepoints('rides')", "--catalog", catalog, "--json")
    failed = _run_with_input(text, "--catalog", catalog)

    first, second = json.loads(done.stdout)["results"]
    assert [row["tableName"] for row in first["rows"]] == ["rides"]
    assert second["rows"] == []
    assert failed.exit_code == 2
    assert failed.stderr.startswith("holdfast: DuckDB cannot run the statement")
    assert len(holdfast.open_table(os.path.dirname(catalog) + "/lake/rides").savepoints()) == 1


def test_procedures_and_descriptions_start_no_spark(run, catalog):
    undone = run("sql", "CALL undo('rides')", "--catalog", catalog, "--json")

    assert undone.exit_code == 0
    assert json.loads(undone.stdout)["action"] == "commit"
    assert run("sql", "DESCRIBE rides", "--catalog", catalog).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELEC 1", "the statement cannot be read (line: 1, column: 7, at: 1"),
        ("DELETE FROM rides", "DuckDB only reads tables (statement: DELETE)"),
        ("CALL nothing()", "there is no such procedure"),
        ("", "there is no statement"),
    ],
)
def test_a_wrong_statement_is_one_line_and_exit_code_2(run, catalog, text, said):
    failed = run("sql", text, "--catalog", catalog, *DUCKDB)

    assert failed.exit_code == 2
    assert said in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_keywords_tables_and_columns_are_completed(catalog):
    words = completions(open_catalog(catalog))

    assert find_completion(words, "ri", 0) == "rides"
    assert find_completion(words, "fa", 0) == "fare"
    assert [find_completion(words, "sel", at) for at in (0, 1)] == ["SELECT", None]


def test_statements_are_typed_on_a_terminal_and_remembered(catalog, tmp_path):
    command = [sys.executable, "-m", "holdfast", "sql", "--catalog", catalog, *DUCKDB]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "dumb", "COLUMNS": "100"}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)

    said = _talk(ours, b"SELECT nope FROM rides;\n", until="holdfast: DuckDB cannot run")
    said += _talk(ours, b"SELECT sum(fare)\n AS fares FROM rides;\n", until="1 row")
    os.write(ours, b"exit\n")

    assert process.wait(timeout=60) == 0
    assert "4.0" in said
    history = tmp_path / "state" / "holdfast" / "sql_history"
    assert "SELECT nope FROM rides;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def _run_with_input(text, *arguments):
    return CliRunner().invoke(cli, ["sql", *arguments, *DUCKDB], input=text)


def _talk(terminal, text, *, until):
    """Type, and read until something was said."""
    os.write(terminal, text)
    said, deadline = "", time.monotonic() + 60
    while until not in said:
        assert time.monotonic() < deadline, said
        if select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 65536).decode()
    return said
