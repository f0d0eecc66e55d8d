"""`rollbacks show` and `rollbacks run`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli.main import cli
from holdfast.format.commits import CommitMetadata, encode_commit
from holdfast.format.ledger_entries import EntryKind
from holdfast.model.instant import Action
from holdfast.table.opened import open_at
from holdfast.timeline.ledger import Decision


def _files_of(table, instant):
    return sorted(str(file) for file in table.glob(f"*/*_{instant}.parquet"))


def test_nothing_to_do_is_said_and_done(run, table):
    result = run("rollbacks", "run", table)

    assert (result.exit_code, result.stdout) == (0, "nothing to roll back\n")


def test_a_dry_run_shows_the_plan_and_changes_nothing(run, table, failed_write):
    before = sorted(str(file) for file in table.rglob("*"))
    doomed = _files_of(table, failed_write)

    result = run("rollbacks", "run", table, "--dry-run")

    assert result.exit_code == 0
    assert failed_write in result.stdout
    listed = [line for line in result.stdout.splitlines() if line.startswith("to be deleted: city=")]
    assert listed == [f"to be deleted: {Path(file).relative_to(table)}" for file in doomed]
    assert f"to be deleted: .hoodie/{failed_write}.inflight" in result.stdout
    assert sorted(str(file) for file in table.rglob("*")) == before


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_whoever_does_not_agree_declines(table, failed_write, answer):
    result = CliRunner().invoke(cli, ["rollbacks", "run", str(table)], input=answer)

    assert result.exit_code == 1
    assert "holdfast: declined, nothing was changed" in result.stderr
    assert len(_files_of(table, failed_write)) == 2


def test_whoever_agrees_has_the_failed_write_rolled_back(table, failed_write):
    result = CliRunner().invoke(cli, ["rollbacks", "run", str(table)], input="y\n")

    rollback = holdfast.open_table(str(table)).timeline()[-1]
    assert result.exit_code == 0
    assert f"rolled back commit {failed_write} with {rollback.time}, 2 files deleted" in result.stdout
    assert _files_of(table, failed_write) == []


def test_a_script_says_yes_and_reads_a_document(run, table, failed_write):
    doomed = _files_of(table, failed_write)

    document = json.loads(run("rollbacks", "run", table, "--yes", "--json").stdout)

    [planned] = document["planned"]
    [report] = document["rolled_back"]
    assert (document["dry_run"], document["running"], document["unpublished"]) == (False, [], [])
    assert (planned["instant"], planned["action"], planned["files"]) == (failed_write, "commit", doomed)
    assert planned["owner"].startswith("process ")
    assert (report["rolled_back"], report["action"], len(report["deleted"])) == (failed_write, "commit", 2)
    assert set(report) == {"instant", "rolled_back", "action", "deleted", "took_ms"}


def test_a_document_is_never_mixed_with_a_question(run, table, failed_write):
    result = run("rollbacks", "run", table, "--json")

    assert (result.exit_code, list(json.loads(result.stdout))) == (2, ["error"])
    assert "--json does not ask" in result.stderr


def test_a_live_writer_is_left_alone(run, table, running_write):
    result = run("rollbacks", "run", table, "--yes")

    assert result.exit_code == 0
    assert f"left alone: commit {running_write}, may still be written by process" in result.stdout
    assert "nothing to roll back" in result.stdout
    assert open_at(str(table), {}).ledger.read().begun.keys() == {running_write}


def test_a_write_that_died_before_its_first_file_is_rolled_back(run, table, begin):
    time = begin("never started", is_gone=True)

    document = json.loads(run("rollbacks", "run", table, "--yes", "--json").stdout)

    assert [report["rolled_back"] for report in document["rolled_back"]] == [time]
    assert open_at(str(table), {}).ledger.read().begun == {}


def test_a_commit_that_was_decided_is_shown_and_not_rolled_back(run, table, failed_write):
    payload = encode_commit(CommitMetadata({}, operation_type="INSERT"))
    decision = Decision(kind=EntryKind.COMMIT, instant=failed_write, action=Action.COMMIT, payload=payload)
    open_at(str(table), {}).ledger.append(lambda _state: decision)

    result = run("rollbacks", "run", table)

    assert f"to be shown: commit {failed_write}" in result.stdout
    assert "nothing to roll back" in result.stdout
    assert holdfast.open_table(str(table)).timeline()[-1].is_completed


def test_past_rollbacks_are_shown(run, table, failed_write):
    [report] = holdfast.open_table(str(table)).roll_back_failed_writes()

    document = json.loads(run("rollbacks", "show", table, "--json").stdout)
    header, _, row = run("rollbacks", "show", table).stdout.splitlines()

    assert document == {
        "rollbacks": [
            {
                "instant": report.instant,
                "rolled_back": failed_write,
                "total_files_deleted": 2,
                "took_ms": report.took_ms,
                "total_partitions": 2,
            }
        ]
    }
    assert "Rolledback Instant" in header
    assert row.split()[:3] == [report.instant, failed_write, "2"]


def test_no_rollbacks_are_said_in_words(run, table):
    assert run("rollbacks", "show", table).stdout == "no rollbacks\n"


def test_a_rollback_that_cannot_be_read_has_code_5(run, table, failed_write):
    [report] = holdfast.open_table(str(table)).roll_back_failed_writes()
    (table / ".hoodie" / f"{report.instant}.rollback").write_bytes(b"Obj\x01broken")

    result = run("rollbacks", "show", table)

    assert result.exit_code == 5
    assert f"file: .hoodie/{report.instant}.rollback" in result.stderr
