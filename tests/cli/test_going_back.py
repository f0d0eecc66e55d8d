"""`savepoints`, `savepoint`, `restore`, `undo` and `commit rollback`."""

import json

import click
import pytest
from click.testing import CliRunner

import holdfast
from harness.hudi_reader import hudi_snapshot
from holdfast.cli.main import cli
from holdfast.errors import Refused


def _answered(answer, *arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], input=answer)


def _files(table):
    return sorted(str(file) for file in table.rglob("*"))


def _trips(table):
    """The keys that both readers see."""
    ours = set(holdfast.open_table(str(table)).to_arrow()["trip_id"].to_pylist())
    theirs = hudi_snapshot(table)
    assert set(theirs["trip_id"].to_pylist() if theirs.num_rows else ()) == ours
    return ours


def _table_lines(text):
    header, _, *lines = text.splitlines()
    return header, lines


@pytest.fixture
def savepointed(run, table, times):
    """The first commit has a savepoint."""
    result = run(
        "savepoint", "create", table, "--commit", times[0], "--user", "ann", "--comments", "the start"
    )
    assert (result.exit_code, result.stdout) == (0, f"savepointed {times[0]}, 2 files kept\n")
    return times[0]


def test_savepoints_are_shown(run, table, savepointed):
    header, [line] = _table_lines(run("savepoints", "show", table).stdout)

    assert header.split()[0] == "SavepointTime"
    assert line.startswith(f"{savepointed}  ann   the start")


def test_savepoints_are_given_as_a_document(run, table, savepointed):
    document = json.loads(run("savepoints", "show", table, "--json").stdout)

    [found] = document["savepoints"]
    assert found.pop("created_at").endswith("Z")
    assert found == {
        "instant": savepointed,
        "user": "ann",
        "comment": "the start",
        "files": 2,
        "partitions": ["city=paris", "city=rome"],
    }


def test_a_table_without_savepoints_says_so(run, table):
    assert run("savepoints", "show", table).stdout == "no savepoints\n"


def test_the_newest_commit_is_savepointed_by_default(run, table, times):
    document = json.loads(run("savepoint", "create", table, "--json").stdout)

    assert (document["instant"], document["user"]) == (times[1], "")


def test_a_commit_that_is_not_there_cannot_be_savepointed(run, table):
    result = run("savepoint", "create", table, "--commit", "20200101000000000")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "no completed commit" in result.stderr


def test_a_savepoint_is_deleted_by_whoever_agrees(run, table, savepointed):
    assert _answered("n\n", "savepoint", "delete", table, "--commit", savepointed).exit_code == 1
    assert savepointed in run("savepoints", "show", table).stdout
    assert run("savepoint", "delete", table, "--commit", savepointed, "--dry-run").exit_code == 0
    assert savepointed in run("savepoints", "show", table).stdout

    result = _answered("y\n", "savepoint", "delete", table, "--commit", savepointed)

    assert result.exit_code == 0
    assert result.stdout.endswith(f"deleted the savepoint of {savepointed}\n")
    assert run("savepoints", "show", table).stdout == "no savepoints\n"
    again = run("savepoint", "delete", table, "--commit", savepointed, "--yes")
    assert again.exit_code == 2
    assert "there is no savepoint of this commit" in again.stderr


def test_a_table_goes_back_to_a_savepoint(run, table, savepointed):
    result = run("savepoint", "rollback", table, "--savepoint", savepointed, "--yes")

    assert result.exit_code == 0
    assert f"restored the table to {savepointed}" in result.stdout
    assert _trips(table) == set(range(10))


def test_a_table_does_not_go_back_to_a_commit_without_savepoint_by_that_name(run, table, savepointed, times):
    result = run("savepoint", "rollback", table, "--savepoint", times[1], "--yes")

    assert result.exit_code == 2
    assert "there is no savepoint of this commit" in result.stderr


def test_a_dry_restore_shows_the_plan_and_changes_nothing(run, table, times, failed_write):
    before = _files(table)

    result = run("restore", table, "--to", times[0], "--dry-run")

    header, [failed, commit, total, *doomed] = _table_lines(result.stdout)
    assert result.exit_code == 0
    assert header.split() == ["Instant", "Action", "State", "Records", "Files", "Size"]
    assert failed.startswith(f"{failed_write}  commit  unfinished, by process ")
    assert commit.startswith(f"{times[1]}  commit  committed ")
    assert total.startswith("to be deleted in all: 4 data files, ")
    assert sum(line.endswith(".parquet") for line in doomed) == 4
    assert f"to be deleted: .hoodie/{times[1]}.commit" in doomed
    assert _files(table) == before


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_whoever_does_not_agree_keeps_the_table(table, times, answer):
    for words in (["restore", table, "--to", times[0]], ["undo", table], ["commit", "rollback", table]):
        rest = ["--commit", times[1]] if words[0] == "commit" else []
        result = _answered(answer, *words, *rest)

        assert result.exit_code == 1, words
        assert "holdfast: declined, nothing was changed" in result.stderr
    assert _trips(table) == set(range(16))


def test_whoever_agrees_has_the_table_restored(table, times):
    result = _answered("y\n", "restore", table, "--to", times[0])

    assert result.exit_code == 0
    assert f"took back commit {times[1]}, 2 files deleted" in result.stdout
    assert _trips(table) == set(range(10))


def test_a_restore_by_a_script_gives_a_document(run, table, times):
    document = json.loads(run("restore", table, "--to", times[0], "--yes", "--json").stdout)

    [planned] = document["planned"]["instants"]
    [done] = document["restored"]["rolled_back"]
    assert (document["dry_run"], document["planned"]["target"]) == (False, times[0])
    assert (document["planned"]["files"], document["planned"]["resumes"]) == (2, None)
    assert (planned["instant"], planned["records"], planned["files"]) == (times[1], 6, 2)
    assert planned["size_bytes"] == document["planned"]["size_bytes"] > 0
    assert (done["rolled_back"], len(done["deleted"])) == (times[1], 2)
    assert document["restored"]["target"] == times[0]
    assert holdfast.open_table(str(table)).timeline()[-1].time == document["restored"]["instant"]


def test_a_date_is_a_place_to_go_back_to(run, table, times):
    assert run("restore", table, "--to", "2099-01-01", "--yes").stdout == (
        f"nothing to take back: {times[1]} is the newest commit\n"
    )
    assert run("restore", table, "--to", "2001-01-01", "--yes").exit_code == 2


def test_a_table_that_changes_while_somebody_thinks_is_asked_about_anew(table, times, trips, monkeypatch):
    answers = [True, False]

    def think(*_arguments, **_options):
        if not answers.pop(0):
            raise click.Abort
        holdfast.open_table(str(table)).bulk_insert(trips(50, 2))

    monkeypatch.setattr("click.confirm", think)
    result = _answered("", "restore", table, "--to", times[0])

    commits = [instant.time for instant in holdfast.open_table(str(table)).timeline()]
    assert (result.exit_code, answers) == (1, [])
    shown, _, again = result.stdout.partition(
        "the table changed meanwhile, and nothing was done; the plan is now:"
    )
    assert (commits[2] in shown, commits[2] in again) == (False, True)
    assert len(commits) == 3
    assert _trips(table) == {*range(16), 50, 51}


def test_savepoints_that_a_restore_would_lose_are_named(run, table, times):
    run("savepoint", "create", table)

    result = run("restore", table, "--to", times[0], "--yes")

    assert result.exit_code == 2
    assert times[1] in result.stderr


def test_a_dry_undo_shows_the_plan_and_changes_nothing(run, table, times):
    before = _files(table)

    result = run("undo", table, "--dry-run")

    _, [line, *doomed] = _table_lines(result.stdout)
    assert (result.exit_code, line.split()[:5]) == (0, [times[1], "commit", "committed", "6", "2"])
    assert sum(line.endswith(".parquet") for line in doomed) == 2
    assert _files(table) == before


def test_whoever_agrees_has_the_newest_commit_undone(table, times):
    result = _answered("y\n", "undo", table)

    assert result.exit_code == 0
    assert f"rolled back commit {times[1]} with " in result.stdout
    assert _trips(table) == set(range(10))


def test_undo_gives_a_document(run, table, times):
    document = json.loads(run("undo", table, "--yes", "--json").stdout)

    assert (document["dry_run"], document["planned"]["instant"]) == (False, times[1])
    assert document["rolled_back"]["rolled_back"] == times[1]
    assert json.loads(run("undo", table, "--dry-run", "--json").stdout)["rolled_back"] is None


def test_undo_takes_back_what_was_shown_and_not_what_came_since(table, trips, monkeypatch):
    def think(*_arguments, **_options):
        holdfast.open_table(str(table)).bulk_insert(trips(50, 2))
        return True

    monkeypatch.setattr("click.confirm", think)
    result = _answered("", "undo", table)

    assert result.exit_code == 2
    assert "there are commits after this one" in result.stderr
    assert _trips(table) == {*range(16), 50, 51}


def test_an_empty_table_has_nothing_to_undo(run, empty_table):
    result = run("undo", empty_table, "--yes")

    assert result.exit_code == 2
    assert "there is no commit to undo" in result.stderr


def test_the_newest_commit_is_rolled_back_by_its_time(run, table, times):
    result = run("commit", "rollback", table, "--commit", times[1], "--yes")

    assert result.exit_code == 0
    assert f"rolled back commit {times[1]}" in result.stdout
    assert _trips(table) == set(range(10))


def test_a_commit_below_others_is_not_rolled_back(run, table, times):
    result = run("commit", "rollback", table, "--commit", times[0], "--yes")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "there are commits after this one" in result.stderr


def test_a_failed_write_is_rolled_back_by_its_time(run, table, failed_write):
    document = json.loads(
        run("commit", "rollback", table, "--commit", failed_write, "--yes", "--json").stdout
    )

    assert document["planned"]["is_committed"] is False
    assert document["rolled_back"]["rolled_back"] == failed_write
    assert _trips(table) == set(range(16))


def test_an_unknown_instant_is_not_rolled_back(run, table):
    for time in ("20200101000000000", "yesterday"):
        result = run("commit", "rollback", table, "--commit", time, "--yes")

        assert result.exit_code == 2


def test_a_document_is_never_mixed_with_a_question(run, table, times):
    for words in (
        ["restore", table, "--to", times[0]],
        ["undo", table],
        ["commit", "rollback", table, "--commit", times[1]],
        ["savepoint", "delete", table, "--commit", times[1]],
        ["savepoint", "rollback", table, "--savepoint", times[1]],
    ):
        result = run(*words, "--json")

        assert (result.exit_code, list(json.loads(result.stdout))) == (2, ["error"])
        assert "--json does not ask" in result.stderr


def test_a_python_caller_has_the_same_verbs(table, times, trips):
    lake = holdfast.open_table(str(table))
    kept = lake.savepoint(times[0], user="ann", comment="the start")
    assert lake.savepoints() == [kept]
    lake.insert(trips(50, 2))
    assert lake.undo().action == "commit"
    assert [one.instant for one in lake.plan_restore(kept.instant).instants] == [times[1]]
    assert lake.restore(lake.timeline()[0]).target == times[0]
    assert _trips(table) == set(range(10))
    with pytest.raises(Refused, match="savepointed"):
        lake.rollback(times[0])
    lake.delete_savepoint(kept.instant)
    assert lake.rollback(times[0]).rolled_back == times[0]
    assert (lake.files(), lake.savepoints(), lake.heartbeats()) == ([], [], [])


@pytest.mark.parametrize("command", ["restore", "undo"])
@pytest.mark.parametrize("name", ["before the import", "latest-savepoint"])
def test_a_savepoint_is_named_by_its_comment_or_as_the_latest(run, table, trips, times, command, name):
    lake = holdfast.open_table(str(table))
    lake.savepoint(comment="before the import")
    lake.upsert(trips(20, 2))

    result = run(command, table, "--to", name, "--yes")

    assert result.exit_code == 0, result.stderr
    assert f"restored the table to {times[-1]}" in result.stdout
    assert holdfast.open_table(str(table)).to_arrow().num_rows == 16


def test_a_comment_of_several_savepoints_names_none(run, table, trips, times):
    lake = holdfast.open_table(str(table))
    lake.savepoint(times[0], comment="nightly")
    lake.savepoint(times[1], comment="nightly")

    result = run("restore", table, "--to", "nightly", "--yes")

    assert result.exit_code == 2
    assert "several savepoints have this comment" in result.stderr
    assert f"{times[0]}, {times[1]}" in result.stderr


def test_without_a_savepoint_the_latest_is_not_guessed(run, table):
    result = run("undo", table, "--to", "latest-savepoint", "--yes")

    assert result.exit_code == 2
    assert "the table has no savepoint" in result.stderr
    assert len(holdfast.open_table(str(table)).timeline()) == 2


def test_a_savepoint_is_deleted_by_its_comment(run, table):
    holdfast.open_table(str(table)).savepoint(comment="nightly")

    assert run("savepoints", "delete", table, "--commit", "nightly", "--yes").exit_code == 0
    assert holdfast.open_table(str(table)).savepoints() == []
