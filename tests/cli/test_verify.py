"""`verify` and `repair`."""

import json

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli.main import cli
from holdfast.services.repair.repair import quarantines
from holdfast.table.opened import open_at

NOBODYS = "20991231235959999"


@pytest.fixture
def orphan(table):
    """A base file of an instant that nobody knows."""
    source = next(table.glob("city=paris/*.parquet"))
    path = source.with_name(f"{source.name.partition('_')[0]}_9-9-9_{NOBODYS}.parquet")
    path.write_bytes(source.read_bytes())
    return path


@pytest.fixture
def missing(table):
    path = next(table.glob("city=rome/*.parquet"))
    path.unlink()
    return path


def content(table):
    return {str(path): path.read_bytes() for path in table.rglob("*") if path.is_file()}


def below(table, path):
    return str(path.relative_to(table))


def test_a_clean_table_ends_with_0(run, table):
    result = run("verify", table)

    assert (result.exit_code, result.stdout) == (0, "4 base files checked, nothing is wrong\n")


def test_left_overs_end_with_1(run, table, orphan):
    result = run("verify", table)

    assert result.exit_code == 1
    assert below(table, orphan) in result.stdout
    assert result.stdout.splitlines()[-1] == "5 base files checked, 1 finding"


def test_damage_ends_with_5(run, table, orphan, missing):
    result = run("verify", table)

    assert result.exit_code == 5
    assert below(table, missing) in result.stdout
    assert result.stdout.splitlines()[-1] == "4 base files checked, 2 findings"


def test_work_in_progress_is_shown_and_ends_with_0(run, table, failed_write):
    result = run("verify", table)

    assert result.exit_code == 0
    assert f".hoodie/{failed_write}.inflight" in result.stdout
    assert result.stdout.splitlines()[-1] == "6 base files checked, nothing is wrong"


def test_a_program_reads_one_document(run, table, orphan):
    result = run("verify", table, "--json")

    document = json.loads(result.stdout)
    [finding] = document["findings"]
    assert result.exit_code == 1
    assert (document["is_clean"], document["files_checked"]) == (False, 5)
    assert (finding["kind"], finding["path"], finding["severity"]) == (
        "orphan",
        below(table, orphan),
        "warning",
    )
    assert set(finding) == {"kind", "path", "detail", "remedy", "severity"}


def test_nothing_to_repair_is_said(run, table):
    result = run("repair", table)

    assert (result.exit_code, result.stdout) == (0, "nothing to repair\n")


def test_a_dry_run_shows_the_plan_and_changes_nothing(run, table, orphan):
    before = content(table)

    result = run("repair", table, "--dry-run")

    assert (result.exit_code, result.stdout) == (0, f"to be moved: {below(table, orphan)}\n")
    assert content(table) == before


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_whoever_does_not_agree_declines(table, orphan, answer):
    before = content(table)

    result = CliRunner().invoke(cli, ["repair", str(table)], input=answer)

    assert result.exit_code == 1
    assert "holdfast: declined, nothing was changed" in result.stderr
    assert content(table) == before


def test_whoever_agrees_has_it_moved_and_can_have_it_back(run, table, orphan):
    before = content(table)

    moved = CliRunner().invoke(cli, ["repair", str(table)], input="y\n")
    [quarantine] = _quarantines(table)
    is_moved = not orphan.exists()
    undone = run("repair", table, "--undo", quarantine, "--yes")

    assert moved.exit_code == 0
    assert f"moved 1 file to quarantine {quarantine}" in moved.stdout
    assert is_moved
    assert (undone.exit_code, undone.stdout.splitlines()[-1]) == (0, "put back 1 file")
    assert content(table) == before


def test_an_undo_asks_and_shows_first(table, orphan, run):
    run("repair", table, "--yes")
    [quarantine] = _quarantines(table)
    before = content(table)

    declined = CliRunner().invoke(cli, ["repair", str(table), "--undo", quarantine], input="n\n")
    planned = run("repair", table, "--undo", quarantine, "--dry-run")

    assert declined.exit_code == 1
    kept = f".hoodie/.holdfast/quarantine/{quarantine}"
    assert planned.exit_code == 0
    assert planned.stdout.splitlines() == [
        f"to be put back: {below(table, orphan)}",
        f"to be deleted: {kept}/{below(table, orphan)}",
        f"to be deleted: {kept}.json",
    ]
    assert content(table) == before


def test_a_script_repairs_and_reads_documents(run, table, orphan):
    repaired = json.loads(run("repair", table, "--yes", "--json").stdout)
    undone = json.loads(run("repair", table, "--undo", repaired["quarantine"], "--yes", "--json").stdout)

    path = below(table, orphan)
    assert [finding["path"] for finding in repaired["planned"]["moved"]] == [path]
    assert (repaired["dry_run"], repaired["moved"], repaired["rolled_back"], repaired["left"]) == (
        False,
        [path],
        [],
        [],
    )
    assert (undone["planned"], undone["put_back"]) == ([path], [path])


def test_what_cannot_be_repaired_is_listed_and_ends_with_5(run, table, orphan, missing):
    result = run("repair", table, "--yes")

    assert result.exit_code == 5
    assert below(table, missing) in result.stdout
    assert not orphan.exists()


def test_a_decided_commit_is_shown_by_a_repair(run, table, times):
    (table / f".hoodie/{times[1]}.commit").unlink()

    planned = run("repair", table, "--dry-run")
    result = run("repair", table, "--yes")

    assert f"to be finished: .hoodie/{times[1]}.commit" in planned.stdout
    assert result.exit_code == 0
    assert [instant.is_completed for instant in holdfast.open_table(str(table)).timeline()] == [True, True]


def test_a_document_is_never_mixed_with_a_question(run, table, orphan):
    result = run("repair", table, "--json")

    assert (result.exit_code, list(json.loads(result.stdout))) == (2, ["error"])
    assert "--json does not ask" in result.stderr


def test_an_undo_of_nothing_is_refused(run, table):
    result = run("repair", table, "--undo", "20200101000000000", "--yes")

    assert result.exit_code == 2
    assert "no repair has this id" in result.stderr


def _quarantines(table):
    return quarantines(open_at(str(table), {}))
