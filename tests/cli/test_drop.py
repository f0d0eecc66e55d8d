"""`holdfast drop`."""

import json

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli.main import cli


def test_a_dry_run_shows_what_goes_and_what_stays(run, table):
    (table / "notes.txt").write_text("mine")

    result = run("drop", table, "--dry-run")

    assert result.exit_code == 0
    assert "to be deleted" in result.stdout
    assert "stays, it is not the table's: notes.txt" in result.stdout
    assert holdfast.table_exists(str(table))


def test_it_asks_and_a_no_changes_nothing(table):
    result = CliRunner().invoke(cli, ["drop", str(table)], input="n\n")

    assert result.exit_code == 1
    assert holdfast.table_exists(str(table))


def test_with_yes_the_table_is_gone(run, table):
    result = run("drop", table, "--yes")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("dropped trips: ")
    assert not holdfast.table_exists(str(table))
    assert [path for path in table.rglob("*") if path.is_file()] == []


def test_the_document_says_what_was_planned_and_done(run, table):
    document = json.loads(run("drop", table, "--yes", "--json").stdout)

    assert document["dry_run"] is False
    assert document["dropped"]["deleted"] == len(document["planned"]["files"])


def test_a_path_without_a_table_is_refused(run, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")

    result = run("drop", tmp_path, "--yes")

    assert result.exit_code == 2
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize("flags", [(), ("--force",)])
def test_a_leased_table_is_dropped_only_if_forced(run, table, flags):
    with holdfast.open_table(str(table)).lease("a report", 60):
        result = run("drop", table, "--yes", *flags)

    assert result.exit_code == (0 if flags else 2)
    assert holdfast.table_exists(str(table)) is not bool(flags)
